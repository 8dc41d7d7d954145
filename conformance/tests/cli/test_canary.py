"""Every output of every command against a server that repeats credentials in many spellings, with characters that steer terminals."""

import base64
import json
import os
import re
import shlex
import stat
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pyte
import pytest

from harmony_conformance.evidence.exchange_json import read_exchange
from harmony_conformance.runtime.terminal_text import escape_invisible

CANARIES = {
    "key": "sk-Canary0Key9xYz",
    "header": "TeamCanary77Value",
    "member": "Extra0Canary5Body",
    "nested": "Nested8Canary1Pass",
}
FORGED = "3732 passed, 0 failed"
HOSTILE = f"\x1b[2J\x9b2J\x9b1;1H\x07\r\n{FORGED}\n\u202e\u2066\u2028\u2029\u200b\ufeff\U000e0041\u3164"
MODEL = f"gpt-oss-{HOSTILE}"
COMMAND = [sys.executable, "-m", "harmony_conformance"]
FORKS = """
import importlib, json, os, pkgutil, sys
from harmony_conformance import cli
from harmony_conformance.cli.main import main
from harmony_ref.tokenizer.tokens import encoding
for module in pkgutil.walk_packages(cli.__path__, "harmony_conformance.cli."):
    importlib.import_module(module.name)
encoding()  # the vocabulary, as the modules, is loaded once
for line in sys.stdin:
    words, folder, *outputs = json.loads(line)
    if not (child := os.fork()):
        code = 70
        try:
            os.chdir(folder)
            for number, path in enumerate(outputs, 1):
                os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), number)
            code = main(words)
        except SystemExit as stopped:
            code = stopped.code
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.waitpid(child, 0)
    print("done", flush=True)
"""
"""A process that runs each command line in a fork of itself: it reads arguments, folder and the files for both outputs."""
EXTRA = {"api_key": CANARIES["member"], "extra": {"auth": [{"password": CANARIES["nested"]}]}}
RUN = ["--api-key-env", "CANARY_KEY", "--header", f"X-Team: {CANARIES['header']}", "--extra-body", json.dumps(EXTRA)]
SELECT = ["simple_answer", "tool_call"]
DOCUMENTS = ("html", "md", "junit", "junit-all", "sarif", "ctrf", "github", "badge-json", "badge-svg")


def spellings(secret):
    user = base64.b64encode(f"user:{secret}".encode()).decode()
    escaped = "".join(f"\\u{ord(char):04x}" for char in secret)
    percent = "".join(f"%{ord(char):02X}" for char in secret)
    return [secret, secret.upper(), secret.lower(), escaped, percent, base64.b64encode(secret.encode()).decode(), user]


def repeated_by(headers, body):
    """The credentials of a request, as the server repeats them."""
    sent = f"{headers}{body.decode('utf-8', 'replace')}"
    return [secret for secret in CANARIES.values() if secret in sent]


class Echo(BaseHTTPRequestHandler):
    """Repeats the credentials it is sent, in whole answers and streams, beside text that steers a terminal."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        said = " ".join(repeated_by(self.headers, b""))
        self._answer({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": said}], "version": said})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        secrets = repeated_by(self.headers, body)
        said = " ".join(spelling for secret in secrets for spelling in spellings(secret)) + HOSTILE + "<|channel|>"
        try:
            is_stream = json.loads(body).get("stream")
        except (ValueError, AttributeError):
            is_stream = False
        if not is_stream:
            call = {"id": said, "type": "function", "function": {"name": said, "arguments": json.dumps({"a": said})}}
            message = {"role": "assistant", "content": said, "reasoning_content": said, "tool_calls": [call]}
            choice = {"index": 0, "message": message, "finish_reason": HOSTILE}
            self._answer({"id": said, "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]})
            return
        letters = [char for secret in secrets for char in f"{secret} "] + ["<|channel|>", HOSTILE]
        deltas = [{"role": "assistant"}, {"content": said}]
        deltas += [{field: char} for field in ("content", "reasoning_content") for char in letters]
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": char}}]} for char in letters]
        mixed = [(index, {"content": char}) for char in letters for index in (0, 1)]
        chosen = [*((0, delta) for delta in deltas), *mixed]
        events = [{"id": "1", "object": "chat.completion.chunk", "created": 1, "model": MODEL,
                   "choices": [{"index": index, "delta": delta, "finish_reason": None}]} for index, delta in chosen]  # fmt: skip
        data = "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events) + "data: [DONE]\n\n"
        raw = data.replace(json.dumps(secrets[0])[1:-1], spellings(secrets[0])[3]) if secrets else data
        self._send(raw.encode(), "text/event-stream")

    def _answer(self, value):
        self._send(json.dumps(value, ensure_ascii=False).encode(), "application/json")

    def _send(self, data, kind):
        self.send_response(200)
        for name, value in (("content-type", kind), ("content-length", str(len(data)))):
            self.send_header(name, value)
        for place, secret in enumerate(repeated_by(self.headers, b"")):
            self.send_header(f"x-repeated-{place}", secret)
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture(scope="module")
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as httpd:
        Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}/v1"
        httpd.shutdown()


ENVIRONMENT = {"CANARY_KEY": CANARIES["key"], "HARMONY_CONFORMANCE_DEBUG": "1"}


def call_each(commands, cwd, places):
    """Return what each command printed."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | ENVIRONMENT,
        text=True,
    ) as process:
        for number, words in enumerate(commands.values()):
            outputs = [str(places / f"{number}.{name}") for name in ("out", "err")]
            print(json.dumps([words, str(cwd), *outputs]), file=process.stdin, flush=True)
            assert process.stdout.readline() == "done\n", process.communicate()
    return {
        name: tuple((places / f"{number}.{output}").read_bytes().decode() for output in ("out", "err"))
        for number, name in enumerate(commands)
    }


@pytest.fixture(scope="module")
def outputs(server, tmp_path_factory):
    """What each command printed; the folder has what they wrote."""
    folder = tmp_path_factory.mktemp("canary")
    selected = [word for name in SELECT for word in ("--select", name)]
    run = [*RUN, *selected, "--latency", "0", "--timeout", "20"]
    commands = {
        "dry run": ["run", server, *run, "--dry-run", "-v"],
        "invalid member": ["run", server, "--extra-body", f"{CANARIES['member']} {{"],
        "run": ["run", server, *run, "--out", "run"],
        "replay": ["run", "replay:run/exchanges.jsonl", "--out", "replay"],
        "audit": ["audit", "run/exchanges.jsonl", "--excerpts", "full", "--workers", "1", "--out", "audit"],
        "quiet run": ["run", server, *run, "-q", "--baseline-write", "known.toml", "--out", "quiet"],
        "run as JSON": ["run", server, *run, "--format", "json", "--out", "json"],
        "run against a baseline": ["run", server, *run, "--baseline", "gate.toml", "--out", "gated"],
        "verbose run": ["run", server, *run, "--verbose", "--out", "verbose"],
        "reproduce": ["reproduce", "run", f"--run-options={shlex.join([*RUN, '--timeout', '20'])}"],
        "compare": ["compare", "run", "replay"],
        "compare as JSON": ["compare", "run", "replay", "--format", "json"],
        "matrix": ["matrix", "run", "replay"],
        "matrix as a page": ["matrix", "run", "replay", "--format", "html"],
        "rates": ["rates", server, *RUN, "--task", "named call", "--tries", "1", "--timeout", "20", "--out", "rates"],
        "rates as JSON": ["rates", server, *RUN, "--task", "named call", "--tries", "1", "--format", "json", "--out", "rates-json"],
        "load": ["load", server, *RUN, "--clients", "2", "--requests", "4", "--timeout", "20", "--out", "load"],
        "run-all": ["run-all", "--out", "all"],
        "audit against a baseline": ["audit", "run/exchanges.jsonl", *("--baseline", "gate.toml", "--baseline-write", "log.toml", "--workers", "1")],
        "audit as tables": ["audit", "run/exchanges.jsonl", "--parquet", "--workers", "1", "--out", "tables"],
        "explain": ["explain", HOSTILE],
        **{form: ["report", "run/report.jsonl", "--format", form] for form in DOCUMENTS},
    }  # fmt: skip
    options = ["--api-key-env", "CANARY_KEY", "--select", "simple_answer", "--latency", "0", "--timeout", "20"]
    endpoint = f'[[endpoint]]\nname = "echo"\ntarget = "{server}"\noptions = {json.dumps(options)}\n'
    (folder / "harmony-conformance.toml").write_text(endpoint, "utf-8")
    (folder / "gate.toml").write_text('[[expected]]\ncheck = "streaming.*"\nreason = "known"\n', "utf-8")
    printed = call_each(commands, folder, tmp_path_factory.mktemp("printed"))
    words = [
        *(sys.executable, "-m", "pytest", "--pyargs", "harmony_conformance.conformance_test", "--endpoint", server),
        *("-p", "no:randomly", "-v", "-rA", "--junitxml=pytest.xml", "-p", "no:cacheprovider"),
        *("--harmony", "api-key-env=CANARY_KEY", "--harmony", f"header={RUN[3]}", "--harmony", f"extra-body={RUN[5]}"),
        *("--harmony", "select=simple_answer", "--harmony", "out=pytest"),
    ]
    done = subprocess.run(
        words, cwd=folder, env=os.environ | ENVIRONMENT, capture_output=True, check=False, timeout=300
    )
    return folder, {**printed, "pytest": (done.stdout.decode(), done.stderr.decode())}


def fold(text):
    """The text as a reader could restore it."""
    text = re.sub(r"\\+u00([2-7][0-9a-fA-F])", lambda match: chr(int(match[1], 16)), text)
    return re.sub(r"%([2-7][0-9a-fA-F])", lambda match: chr(int(match[1], 16)), text).lower()


def found_in(text):
    """The canaries in a text, in any spelling."""
    folded = fold(text)
    tails = {name: [base64.b64encode(bytes(offset) + secret.encode()).decode().rstrip("=")[4:-3].lower() for offset in range(3)]
             for name, secret in CANARIES.items()}  # fmt: skip
    return [name for name, secret in CANARIES.items() if any(one in folded for one in (secret.lower(), *tails[name]))]


def found_in_streams(x):
    """The canaries in the joined texts of an exchange's events."""
    joined = {}
    for line in x.response.body.decode().split("\n") if x.response is not None else ():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                delta, index = choice["delta"], choice["index"]
                for name in ("content", "reasoning_content"):
                    joined[name, index] = joined.get((name, index), "") + delta.get(name, "")
                for one in delta.get("tool_calls", ()):
                    joined["arguments", index] = joined.get(("arguments", index), "") + one["function"]["arguments"]
    return {name: found for name, text in joined.items() if (found := found_in(text))}


def check_terminal(text, *, is_document=False):
    """Nothing steers the terminal, and nothing that the server wrote begins a line, except in the quotations of a document."""
    colours = re.sub(r"\x1b\[[0-9;]*m", "", text)
    raw = {f"U+{ord(char):04X}" for char in colours if escape_invisible(char, keep="\n\t") != char}
    assert not raw
    screen = pyte.HistoryScreen(400, 50, history=1_000_000)
    pyte.Stream(screen).feed("first line\r\n" + text.replace("\n", "\r\n"))
    lines = ["".join(row[column].data for column in range(400)) for row in screen.history.top] + screen.display
    assert lines[0].startswith("first line")  # nothing was erased
    assert is_document or not [line for line in lines if line.strip().startswith(FORGED)]


def test_no_command_prints_or_writes_a_credential(outputs):
    folder, printed = outputs
    assert (folder / "run" / "exchanges.jsonl").stat().st_size > 0
    leaks = {name: found for name, texts in printed.items() if (found := found_in("".join(texts)))}
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    leaks |= {name: found for name, path in files.items() if (found := found_in(path.read_text("utf-8", "replace")))}
    for line in (folder / "run" / "exchanges.jsonl").read_text().split("\n")[:-1]:
        if json.loads(line).get("kind") == "exchange" and (found := found_in_streams(read_exchange(json.loads(line)))):
            leaks[json.loads(line)["id"]] = found
    assert not leaks


def test_no_command_lets_a_server_steer_the_terminal(outputs):
    _, printed = outputs
    assert all(any(texts) for texts in printed.values())
    for name, texts in printed.items():
        for text in texts:
            check_terminal(text, is_document=name in DOCUMENTS)


def test_the_files_of_a_run_and_an_audit_are_private(outputs):
    folder, _ = outputs
    made = [
        path
        for name in ("run", "replay", "audit", "pytest", "rates", "load", "all", "tables")
        for path in (folder / name, *(folder / name).iterdir())
    ]
    assert len(made) > 10
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in made
            if stat.S_IMODE(path.stat().st_mode) != (0o700 if path.is_dir() else 0o600)} == {}  # fmt: skip


def test_the_proxy_logs_prints_and_counts_no_credential(server, tmp_path):
    log = tmp_path / "log.jsonl"
    words = ["--upstream", server, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log", str(log)]
    words += ["--capture", "full", "--excerpts", "full"]
    with subprocess.Popen([*COMMAND, "proxy", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            addresses = []
            while not addresses or "forwarding" not in addresses[-1]:
                addresses.append(process.stdout.readline().decode())
                assert addresses[-1], addresses
            base = re.search(r"http://\S+:[0-9]+", addresses[-1])[0]
            said = " ".join(spelling for secret in CANARIES.values() for spelling in spellings(secret))
            for stream in (False, True):
                message = {"role": "user", "content": f"{said} {HOSTILE}"}
                body = {"model": MODEL, "messages": [message], "stream": stream, **EXTRA}
                headers = {"authorization": f"Bearer {CANARIES['key']}", "x-session": CANARIES["header"]}
                httpx.post(f"{base}/v1/chat/completions", json=body, headers=headers, timeout=60)
            metrics = httpx.get(f"{base}/metrics", timeout=60).text
        finally:
            process.terminate()
            printed = "".join(addresses) + process.stdout.read().decode()
    lines = [json.loads(line) for line in log.read_text().split("\n") if line]
    assert len(lines) == 2
    assert any(line.get("sample") for line in lines)
    assert [found_in(text) for text in (log.read_text(), printed, metrics)] == [[], [], []]
    assert not [line["id"] for line in lines if "sample" in line and found_in_streams(read_exchange(line["sample"]))]
    check_terminal(printed)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert Path(log).exists()

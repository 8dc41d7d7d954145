"""Secrets and controls: what reaches files, reports and the terminal."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from attacked_processes import finish as finished
from attacked_processes import judged, post, proxy, run, start, until
from case import Case, expect
from cases_proxy import CHAT, until_logged
from payloads import LEAK, NEVER_RAW, TERMINAL, log_line, write_log
from servers import EVENTS_HEAD, Answer, Received, answer_with, completion, events, hostile, models, whole

PART = "secrets, terminal, files"
KEY, HEADER, BODY = "sk-canary-KEY-7f3e9b2a", "canary-HEADER-51d0c4e8", "canary-BODY-90ab12cd"
COOKIE, QUERY = "canary-COOKIE-66aa77bb", "canary-QUERY-1c2d3e4f"
CANARIES = (KEY, HEADER, BODY)

Form = Callable[[str], str]
FORMS: dict[str, Form] = {
    "plain": lambda secret: secret,
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "percent": lambda secret: "".join(f"%{byte:02x}" for byte in secret.encode()),
    "upper case": str.upper,
}


def escaped(text: str) -> str:
    """Each character as a JSON escape."""
    return "".join(f"\\u{ord(character):04x}" for character in text)


def echoing(*, is_escaped: bool) -> Answer:
    """A server that repeats all it was sent, in every form: whole, or letter by letter over a stream."""

    def answer(request: Received) -> Iterator[bytes]:
        if not request.is_chat:
            yield models()
            return
        secrets = [secret for secret in CANARIES if secret in request.head or secret.encode() in request.body]
        text = "You sent " + " and ".join(form(secret) for secret in secrets for form in FORMS.values()) + "."
        if request.streams:
            yield b"HTTP/1.1 200 OK\r\n" + EVENTS_HEAD + b"connection: close\r\n\r\n"
            yield from events(text)
            return
        body = json.dumps(completion("MARK")).replace("MARK", escaped(text) if is_escaped else text)
        yield whole(body.encode())

    return answer


def readable(data: bytes) -> str:
    """The text of a file with its JSON escapes undone, and stream deltas joined."""
    text = data.decode("utf-8", "replace")
    joined: list[str] = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        joined += strings(value)
    return "\n".join(
        (text, *joined, text.replace("\\\\", "\\").encode().decode("unicode_escape", "replace"), deltas(joined))
    )


def strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for member in value.values() for text in strings(member)]
    return [text for member in value for text in strings(member)] if isinstance(value, list) else []


def deltas(texts: list[str]) -> str:
    """The contents of the events that stand in recorded texts, joined."""
    parts: list[str] = []
    for text in texts:
        for line in text.splitlines():
            if line.startswith("data: {"):
                try:
                    choices = json.loads(line[6:])["choices"]
                except (ValueError, KeyError):
                    continue
                parts += [str(choice.get("delta", {}).get("content") or "") for choice in choices]
    return "".join(parts)


def leaks(name: str, data: bytes, secrets: tuple[str, ...] = CANARIES) -> list[str]:
    text = readable(data)
    return [
        f"{secret.split('-')[2]} {how} in {name}"
        for secret in secrets
        for how, form in FORMS.items()
        if form(secret) in text
    ]


def searched(folder: Path, texts: dict[str, str], secrets: tuple[str, ...] = CANARIES) -> str:
    """Look for the canaries in every file and text."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = [leak for path in files for leak in leaks(path.name, path.read_bytes(), secrets)]
    found += [leak for name, text in texts.items() for leak in leaks(name, text.encode("utf-8", "replace"), secrets)]
    expect(not found, f"{len(found)} places: {', '.join(found[:6])}")
    return f"in none of {len(files) + len(texts)} files and texts"


def run_canary(folder: Path, *, is_escaped: bool) -> str:
    with hostile(echoing(is_escaped=is_escaped)) as server:
        options = (
            "--api-key-env",
            "CANARY",
            "--header",
            f"X-Team: {HEADER}",
            "--extra-body",
            json.dumps({"auth": {"api_key": BODY}}),
        )
        select = ("--select", "channels.*", "--select", "streaming.*", "--select", "multi_turn.*")
        ended = run(
            folder,
            "run",
            server.url,
            "--latency",
            "0",
            *options,
            *select,
            "--max-requests",
            "120",
            "--out",
            "out",
            environment={"CANARY": KEY},
        )
        judged(ended, 1, 2)
        sent = sum(KEY in one.head and HEADER in one.head for one in server.received)
        expect(sent > 5, f"only {sent} requests carried the canaries")
        replayed = run(folder, "run", "replay:out/exchanges.jsonl", "--out", "again")
        rendered = run(folder, "report", "out")
        audited = run(folder, "audit", "out/exchanges.jsonl", "--excerpts", "full", "--out", "audit")
        texts = {"run": ended.text, "replay": replayed.text, "report": rendered.text, "audit": audited.text}
        return f"{searched(folder, texts)}; sent with {sent} requests"


def proxy_canary(folder: Path) -> str:
    """Credentials of headers and query, repeated in the request's body and echoed in the answer."""
    secrets = (KEY, HEADER, COOKIE, QUERY)
    text = f"Repeat: {' '.join(secrets)} {LEAK}"

    def answer(request: Received) -> Iterator[bytes]:
        if request.streams:
            yield b"HTTP/1.1 200 OK\r\n" + EVENTS_HEAD + b"connection: close\r\n\r\n"
            yield from events(text)
        else:
            yield whole(json.dumps(completion(text)).encode())

    headers = {"Authorization": f"Bearer {KEY}", "X-Api-Key": HEADER, "Cookie": f"session={COOKIE}"}
    with hostile(answer) as server, proxy(folder, server.port, "--excerpts", "full", "--capture", "full") as listener:
        for stream in (False, True):
            body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]}
            post(f"{listener.url}{CHAT}?api_key={QUERY}", json.dumps(body).encode(), headers=headers)
        until_logged(folder, 2)
    expect(all(secret in server.received[0].head for secret in secrets), "the credentials were not forwarded")
    return searched(folder, {}, secrets)


def process_list(folder: Path) -> str:
    """The key is in no command line."""
    with hostile(answer_with("Hello.")) as server:
        process = start(
            folder,
            "run",
            server.url,
            "--latency",
            "0",
            "--api-key-env",
            "CANARY",
            "--out",
            "out",
            environment={"CANARY": KEY},
        )
        until(lambda: len(server.received) > 3 or process.poll() is not None, 30, "no requests")
        shown = [path for path in Path("/proc").glob("[0-9]*/cmdline") if KEY in read(path)]
        process.kill()
        process.communicate()
        expect(server.received, "no requests")
    expect(not shown, "in a command line")
    return "in no command line"


def read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def terminal_run(folder: Path) -> str:
    """A model id, an answer and a server name full of controls."""
    with hostile(answer_with(TERMINAL + LEAK, model=TERMINAL)) as server:
        ended = run(folder, "run", server.url, "--latency", "0", "--max-requests", "60", "--out", "out")
        replayed = run(folder, "run", "replay:out/exchanges.jsonl", "--out", "again")
    judged(ended, 1, 2)
    return clean({"run": ended.text, "replay": replayed.text})


def terminal_audit(folder: Path) -> str:
    log = write_log(folder / "log.jsonl", (log_line(TERMINAL + LEAK, tool=TERMINAL) for _ in range(3)))
    texts: dict[str, str] = {}
    for how in ("full", "redacted"):
        ended = run(folder, "audit", str(log), "--excerpts", how, "--out", how)
        judged(ended, 1)
        texts[how] = ended.text
    other = folder / f"log{TERMINAL.replace(chr(0), '')}.jsonl"
    log.rename(other)
    texts["a file's name"] = run(folder, "audit", str(other), str(other) + "missing").text
    texts["an option"] = run(folder, "audit", str(other), "--format", TERMINAL.replace(chr(0), "")).text
    return clean(texts)


def terminal_pytest(folder: Path) -> str:
    """The pytest plugin against the same server; its items name no text of the server unescaped."""
    with hostile(answer_with(TERMINAL + LEAK, model=TERMINAL)) as server:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--pyargs",
            "harmony_conformance.conformance_test",
        ]
        process = subprocess.Popen(
            [*command, "--endpoint", server.url, "-k", "channels", "-q"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        ended = finished(process, 80)
    expect(ended.code in (0, 1) and "failed" in ended.out, f"exit {ended.code}: {ended.text[-200:]}")
    return clean({"pytest": ended.text})


def terminal_proxy(folder: Path) -> str:
    """Without a log, failing exchanges are printed."""
    with hostile(answer_with(TERMINAL + LEAK, model=TERMINAL)) as server:
        process = start(
            folder, "proxy", "--upstream", f"openai:{server.url}", "--listen", "127.0.0.1:0", "--drain", "1"
        )
        assert process.stdout
        port = int(process.stdout.readline().decode().split("127.0.0.1:")[1].split(",")[0])
        body = {"model": TERMINAL, "messages": [{"role": "user", "content": TERMINAL}]}
        for _ in range(3):
            post(f"http://127.0.0.1:{port}{CHAT}", json.dumps(body).encode())
        process.terminate()
        ended = finished(process, 30)
    expect(ended.text.strip(), "nothing was printed")
    return clean({"proxy": ended.text})


def clean(texts: dict[str, str]) -> str:
    raw = [f"U+{ord(sign):04X} in {name}" for name, text in texts.items() for sign in NEVER_RAW if sign in text]
    expect(not raw, f"raw: {', '.join(raw[:6])}")
    return f"{sum(map(len, texts.values())):,} characters, no raw control"


def report_page(folder: Path) -> str:
    """A report about an answer of HTML: no element of it, one script, which is the page's own, and a policy that forbids all else."""
    evil = (
        '</pre><script>alert(1)</script><img src=x onerror=alert(1)><a href="javascript:x">y</a><style>@import"//x"</style>'
        + LEAK
    )
    with hostile(answer_with(evil, model="<script>alert(2)</script>")) as server:
        judged(run(folder, "run", server.url, "--latency", "0", "--max-requests", "60", "--out", "out"), 1, 2)
    page = (folder / "out" / "report.html").read_text("utf-8")
    found = [
        word
        for word in ("<script>alert", "<img", "<iframe", "<form", '<a href="javascript', "onerror=alert(1)>")
        if word in page
    ]
    expect(not found and "default-src 'none'" in page, f"in the page: {found}")
    expect(page.count("<script") == 1 and "script-src 'sha256-" in page, "another script than the page's own")
    expect("alert(1)" in page, "the answer is not in the page at all")
    return f"{len(page):,} characters without an element of the answer"


def file_modes(folder: Path) -> str:
    """Files with traffic are for the owner alone."""
    os.umask(0o022)
    with hostile(answer_with(LEAK)) as server:
        run(folder, "run", server.url, "--latency", "0", "--max-requests", "30", "--out", "out")
        with proxy(folder, server.port, "--capture", "full") as listener:
            post(listener.url + CHAT, b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}')
            until_logged(folder, 1)
    run(folder, "audit", "out/exchanges.jsonl", "--excerpts", "full", "--out", "audit")
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".err"]
    wide = [path.name for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077]
    expect(not wide, f"readable for others: {', '.join(sorted(wide)[:8])}")
    return f"{len(files)} files of mode 0600"


def case(name: str, report: str, expected: str, attack: object, **limits: float) -> Case:
    return Case(name=name, part=PART, report=report, expected=expected, attack=attack, **limits)  # type: ignore[arg-type]


CASES = (
    case(
        "secrets.run, echoed",
        "F7",
        "in no file, no text",
        lambda folder: run_canary(folder, is_escaped=False),
        seconds=120,
    ),
    case(
        "secrets.run, echoed escaped",
        "F7",
        "in no file, no text",
        lambda folder: run_canary(folder, is_escaped=True),
        seconds=120,
    ),
    case("secrets.proxy, capture full", "F7", "in no file", proxy_canary),
    case("secrets.process list", "survived 7", "in no command line", process_list),
    case("terminal.run and replay", "F6", "no raw control", terminal_run, seconds=90),
    case("terminal.audit", "F6", "no raw control", terminal_audit),
    case("terminal.pytest plugin", "F6", "no raw control", terminal_pytest, seconds=100),
    case("terminal.proxy", "F6", "no raw control", terminal_proxy),
    case("report.HTML of an answer", "survived 1", "no element of the answer", report_page),
    case("files.modes", "F10", "0600", file_modes),
)

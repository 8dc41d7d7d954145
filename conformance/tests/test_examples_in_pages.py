"""The tutorial, the action and the site do what they say."""

import json
import os
import re
import runpy
import shlex
import shutil
import ssl
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import MappingProxyType

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from harmony_conformance.cli.main import main

ROOT = Path(__file__).parents[2]
COMMANDS = str(Path(sys.executable).parent)


def run_bash(script, folder, **environment):
    path = f"{COMMANDS}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


WRITE_OUTPUT = (sys.executable, ROOT / "tools" / "write_guide_output.py")
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
PLAYED = [page for page in PAGES if "\n<!-- output" in page.read_text("utf-8")]
ALWAYS_PLAYED = ("README", "tutorial", "failure")
"""The other pages take a minute of CPU time: `make test-guides`. Of these, CI plays README, and `make test-slow` the others."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page.stem != "README" else []) for page in PLAYED],
    ids=lambda page: page.stem,
)
def test_output_of_guides(page):
    """The commands of a page print what is below them."""
    if page.stem not in ALWAYS_PLAYED and not os.environ.get("HARMONY_ALL_GUIDES"):
        pytest.skip("HARMONY_ALL_GUIDES is not set: make test-guides")
    environment = re.search(r"^<!-- environment: (\S+) -->$", page.read_text("utf-8"), re.MULTILINE)
    if environment is not None and not (ROOT / environment[1] / "bin" / "python").exists():
        pytest.skip(f"{environment[1]} is missing: `make environments` creates it if there is a Python 3.12")
    checked = subprocess.run([*WRITE_OUTPUT, "--check", page], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def page_with(commands, comment, output):
    text = f"```text\n{output}\n```\n" if output else ""
    return f"# Page\n\n```sh\n{commands}\n```\n\n<!-- {comment} -->\n{text}\nEnd.\n"


@pytest.mark.parametrize(
    ("commands", "comment", "before", "after"),
    [
        ("echo a; echo b >&2", "output", "", "a\nb"),
        ("seq 9", "output: first 2, last 1 lines", "1", "1\n2\n…\n9"),
        ("seq 3", "output: first 2, last 1 lines", "1", "1\n2\n3"),
        ("echo 127.0.0.1:18700", "output", "", "127.0.0.1:18700"),
        ("true", "output: none", "", ""),
        ("echo p95 12.5 of 7", "output: figures vary", "p95 3 of 11", "p95 3 of 11"),
        ("echo p99 12.5 of 7", "output: figures vary", "p95 3 of 11 s", "p99 12.5 of 7"),
    ],
)
def test_output_is_written(commands, comment, before, after, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(page_with(commands, comment, before), encoding="utf-8")
    checked = subprocess.run([*WRITE_OUTPUT, "--check", page], capture_output=True, text=True, check=False)
    assert checked.returncode == (before != after)
    assert ("is not current" in checked.stderr) == (before != after)
    subprocess.run([*WRITE_OUTPUT, page], check=True)
    assert page.read_text("utf-8") == page_with(commands, comment, after)


@pytest.mark.parametrize(
    ("commands", "comment", "message"),
    [
        ("echo a", "output: none", "expected no output of 'echo a\\n', got 'a\\n'"),
        ("echo a", "output: two lines", "invalid comment: expected none, first N or last N lines, got 'two lines'"),
    ],
)
def test_invalid_output_comment(commands, comment, message, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(page_with(commands, comment, "a"), encoding="utf-8")
    ran = subprocess.run([*WRITE_OUTPUT, page], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, f"{page}: {message}\n")


def test_commands_of_a_page_are_those_of_its_environment(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    text = f"<!-- environment: {tmp_path}/other -->\n{page_with('hello', 'output', 'Hello')}"
    page.write_text(text, encoding="utf-8")
    command = [*WRITE_OUTPUT, "--check", page]
    missing = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = f"{page}: expected the environment {tmp_path}/other, got none: `make environments` makes it\n"
    assert (missing.returncode, missing.stderr) == (1, expected)
    tool = runpy.run_path(str(WRITE_OUTPUT[1]))["main"].__globals__
    monkeypatch.setitem(tool, "pages", lambda: [page])
    monkeypatch.setattr(sys, "argv", ["write_guide_output.py"])
    assert tool["main"]() == 0
    assert capsys.readouterr().err == expected.replace(": expected", ": skipped: expected")
    (tmp_path / "other" / "bin").mkdir(parents=True)
    for name in ("python", "hello"):
        (program := tmp_path / "other" / "bin" / name).write_text("#!/bin/sh\necho Hello\n", encoding="utf-8")
        program.chmod(0o700)
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.fixture(scope="module")
def action():
    return yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


@pytest.fixture
def play(action, tmp_path):
    """Return a function that runs a step of the action with these inputs."""
    values = {
        "inputs.target": "reference",
        "inputs.arguments": "--select tool_call --latency 0",
        "inputs.report": "harmony-report",
        "inputs.python": sys.executable,
        "github.action_path": str(ROOT),
        "runner.temp": str(tmp_path),
    }
    assert set(action["inputs"]) == {name.removeprefix("inputs.") for name in values if name.startswith("inputs.")}
    steps = {step["name"]: step for step in action["runs"]["steps"]}
    assert list(steps) == ["Install", "Run"]

    def play_step(step, **inputs):
        filled = values | {f"inputs.{name}": value for name, value in inputs.items()}
        environment = {
            name: re.sub(r"\$\{\{ (.*?) \}\}", lambda word: filled[word[1]], value)
            for name, value in steps[step]["env"].items()
        }
        return run_bash(f"set -eo pipefail\n{steps[step]['run']}", tmp_path, **environment)

    return play_step


@pytest.fixture
def printed_words(tmp_path):
    """Where the action installs the package, a command that prints its arguments as JSON."""
    (folder := tmp_path / "harmony-conformance" / "bin").mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    (command := folder / "harmony-conformance").write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n", encoding="utf-8"
    )
    command.chmod(0o700)


@pytest.mark.usefixtures("printed_words")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--baseline known.toml\n--max-time 20m\n", ["--baseline", "known.toml", "--max-time", "20m"]),
        ("--skip \"a b\" --select 'c*' \\\n  --name=d\\ e", ["--skip", "a b", "--select", "c*", "--name=d e"]),
        ("", []),
        ("--name $HOME `id` #1", ["--name", "$HOME", "`id`", "#1"]),
    ],
    ids=["lines", "quotes", "none", "no expansion"],
)
def test_arguments_of_the_action(play, arguments, words):
    played = play("Run", arguments=arguments)
    assert (played.returncode, played.stderr) == (0, "")
    assert json.loads(played.stdout) == ["run", "reference", "--out", "harmony-report", *words]


@pytest.mark.usefixtures("printed_words")
def test_an_open_quote_in_the_arguments_of_the_action_is_one_line(play):
    played = play("Run", arguments='--skip "a')
    assert (played.returncode, played.stdout) == (2, "")
    assert played.stderr == """invalid arguments: expected words in closed quotes, got '--skip "a'\n"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_action(play, tmp_path):
    installed = play("Install")
    assert installed.returncode == 0, installed.stderr
    assert play("Run").returncode == 0
    assert play("Run", target="reference:defect=output-unparsed", report="broken").returncode == 1
    assert [(tmp_path / name / "junit.xml").is_file() for name in ("harmony-report", "broken")] == [True, True]


def test_example_of_concepts(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "concepts.md").read_text("utf-8")
    request, prompt, completion = re.findall(r"^```(?:json|text)\n(.*?)\n```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "request.json").write_text(request, encoding="utf-8")
    (tmp_path / "completion.txt").write_text(completion, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code = main(shlex.split("render request.json --date 2026-11-27"))
    assert (code, capsys.readouterr().out.strip()) == (0, prompt)
    main(["parse", "completion.txt"])
    messages = json.loads(capsys.readouterr().out)["messages"]
    assert [message["channel"] for message in messages] == ["analysis", "commentary"]


def test_extras_of_the_installation():
    page = (ROOT / "docs" / "install.md").read_text("utf-8").partition("## Extras")[2].partition("\n## ")[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(project["optional-dependencies"])
    assert project["requires-python"] == ">=3.11"


UNUSED = "http://127.0.0.1:9/v1"


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Returns the error of a command line that is refused. The other tests here start processes."""
    monkeypatch.chdir(tmp_path)

    def error_of(command):
        capsys.readouterr()
        try:
            code = main(shlex.split(command))
        except SystemExit as stopped:
            code = stopped.code
        error = capsys.readouterr().err
        assert code == 2, (command, error)
        return error

    return error_of


def test_messages_of_troubleshooting(url, refused):
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    rows = page.partition("## The run does not start")[2].partition("\n## ")[0]
    simple = "--select simple_answer --latency 0"
    commands = (
        f"run {UNUSED}",
        "run http://nohost.invalid/v1",
        f"run {url.replace('http:', 'https:')}/v1",
        f"run {url}/v2",
        f"run {url}/v1 --model nope {simple}",
        f"run {url}/v1 --api-key-env NOPE",
        f"run vlm:{UNUSED}",
        "run reference --select nothing",
        "run replay:nope.jsonl",
        "run reference --select tool_call --latency 0 --resume --out a",
    )
    messages = re.findall(r"^\| `(.*?)` \|", rows, re.MULTILINE)
    assert len(messages) == len(commands)
    assert main(shlex.split(f"run reference {simple} --out a")) == 0
    for message, command in zip(messages, commands, strict=True):
        assert message in refused(command), command


class OddServer(BaseHTTPRequestHandler):
    """Lists a model, and answers questions as the first segment of the path says."""

    ANSWERS = MappingProxyType(
        {
            "key": (401, "Incorrect API key provided"),
            "template": (400, "As of transformers v4.44, default chat template is no longer allowed, so you must …"),
            "memory": (500, "CUDA out of memory"),
            "other": (200, "Welcome."),
        }
    )

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(200, {"object": "list", "data": [{"id": "gpt-oss-20b", "object": "model"}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        kind = self.path.split("/")[1]
        if kind == "silent":
            self.rfile.read(1)  # ends when the client leaves
        else:
            status, message = self.ANSWERS[kind]
            self.answer(status, {"error": {"message": message}})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def odd_server(certificate=None):
    with ThreadingHTTPServer(("127.0.0.1", 0), OddServer) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def self_signed(file):
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "local")])
    now = datetime.now(UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(built.sign(key, SHA256()).public_bytes(Encoding.PEM) + private)
    return file


def test_answers_of_troubleshooting(tmp_path, refused):
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    rows = page.partition("## The server does not answer as expected")[2].partition("\n## ")[0]
    messages = re.findall(r"^\| `(.*?)` \|", rows, re.MULTILINE)
    with odd_server() as plain, odd_server(self_signed(tmp_path / "own.pem")) as tls:
        commands = (
            f"http://{plain}/key/v1",
            f"http://{plain}/template/v1",
            f"http://{plain}/memory/v1",
            f"http://{plain}/other/v1",
            f"http://{plain}/silent/v1 --timeout 1",
            f"https://{tls}/v1",
            f"{UNUSED} --proxy http://127.0.0.1:9",
        )
        assert len(messages) == len(commands)
        for message, command in zip(messages, commands, strict=True):
            assert message in refused(f"run {command} --select simple_answer"), command


def test_check_of_contributing(tmp_path):
    """A copy of the package with the check and the defect of the page: the check catches the defect."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Write a check")[2].partition("\n## ")[0]
    check, change, row = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    package = tmp_path / "conformance" / "harmony_conformance"
    shutil.copytree(ROOT / "conformance" / "harmony_conformance", package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "golden").symlink_to(ROOT / "golden")
    with (package / "checks" / "channels.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\n{check}")
    leaks = package / "reference_server" / "defects" / "leaks.py"
    before, table, after = leaks.read_text("utf-8").partition("DEFECTS = (\n")
    leaks.write_text(f"{before}{change}\n\n{table}{row.rstrip()},\n{after}", encoding="utf-8")
    command = re.search(r"harmony-conformance (run reference:defect=.*)", page)[1]
    ran = run_bash(
        f"{sys.executable} -m harmony_conformance {command} --verbose", tmp_path, PYTHONPATH=str(package.parent)
    )
    assert ran.returncode == 1, ran.stderr
    failed = re.findall(r"^FAILED +MUST +(\S+):", ran.stdout, re.MULTILINE)
    assert sorted(failed) == ["channels.content_has_no_null_character", "channels.content_is_the_answer"]

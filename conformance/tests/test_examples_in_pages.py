"""The tutorial, the action and the site do what they say."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

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


@pytest.mark.timeout(300)
def test_tutorial(tmp_path):
    page = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    blocks = "".join(re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    script = re.sub(r"^pip install.*\n", "", blocks, flags=re.MULTILINE)
    script = re.sub(r"^(harmony-conformance serve [^&\n]*)&.*", r"\1& sleep 3", script, flags=re.MULTILINE)
    script = re.sub(r"^(harmony-conformance (?!serve).*)", r"\1 2> /dev/null; echo code $?", script, flags=re.MULTILINE)
    script = re.sub(r"(run http\S+)", r"\1 --select simple_answer --select tool_call --select finished_turn", script)
    ran = run_bash(f"set -m\n{script}", tmp_path)
    assert re.findall(r"code (\d)", ran.stdout) == ["1", "0", "0", "1", "1", "0", "0", "0", "1"]
    assert '"content":"analysis' in ran.stdout
    assert "causes: 1, for " in ran.stdout
    assert "FIXED MUST output-unparsed" in ran.stdout


@pytest.fixture(scope="module")
def action():
    return yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


@pytest.mark.timeout(300)
def test_action(action, tmp_path):
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

    def play(step, **inputs):
        filled = values | {f"inputs.{name}": value for name, value in inputs.items()}
        environment = {
            name: re.sub(r"\$\{\{ (.*?) \}\}", lambda word: filled[word[1]], value)
            for name, value in steps[step]["env"].items()
        }
        return run_bash(f"set -eo pipefail\n{steps[step]['run']}", tmp_path, **environment)

    installed = play("Install")
    assert installed.returncode == 0, installed.stderr
    assert play("Run").returncode == 0
    assert play("Run", target="reference:defect=output-unparsed", report="broken").returncode == 1
    assert [(tmp_path / name / "junit.xml").is_file() for name in ("harmony-report", "broken")] == [True, True]


def test_example_of_concepts(tmp_path):
    page = (ROOT / "docs" / "concepts.md").read_text("utf-8")
    request, prompt, completion = re.findall(r"^```(?:json|text)\n(.*?)\n```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "request.json").write_text(request, encoding="utf-8")
    (tmp_path / "completion.txt").write_text(completion, encoding="utf-8")
    ran = run_bash("harmony-conformance render request.json --date 2026-11-27", tmp_path)
    assert (ran.returncode, ran.stdout.strip()) == (0, prompt)
    ran = run_bash("harmony-conformance parse completion.txt", tmp_path)
    assert [message["channel"] for message in json.loads(ran.stdout)["messages"]] == ["analysis", "commentary"]


def test_extras_of_the_installation():
    page = (ROOT / "docs" / "install.md").read_text("utf-8").partition("## Extras")[2].partition("\n## ")[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(project["optional-dependencies"])
    assert project["requires-python"] == ">=3.11"


UNUSED = "http://127.0.0.1:9/v1"


@pytest.fixture
def server(tmp_path):
    command = [f"{COMMANDS}/harmony-conformance", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        yield re.search(r"http://[\d.:]+", process.stdout.readline())[0]
        process.terminate()


def test_messages_of_troubleshooting(server, tmp_path):
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    rows = page.partition("## The run does not start")[2].partition("\n## ")[0]
    simple = "--select simple_answer --latency 0"
    commands = (
        f"run {UNUSED}",
        "run http://nohost.invalid/v1",
        f"run {server.replace('http:', 'https:')}/v1",
        f"run {server}/v2",
        f"run {server}/v1 --model nope {simple}",
        f"run {server}/v1 --api-key-env NOPE",
        f"run vlm:{UNUSED}",
        "run reference --select nothing",
        "run replay:nope.jsonl",
        f"run reference {simple} --out a; harmony-conformance run reference --select tool_call --latency 0 --resume --out a",
    )
    messages = re.findall(r"^\| `(.*?)` \|", rows, re.MULTILINE)
    assert len(messages) == len(commands)
    for message, command in zip(messages, commands, strict=True):
        ran = run_bash(f"harmony-conformance {command}", tmp_path, HTTP_PROXY="", HTTPS_PROXY="", ALL_PROXY="")
        assert ran.returncode == 2, command
        assert message in ran.stderr, command

"""The tutorial, the action and the site do what they say."""

import os
import re
import subprocess
import sys
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


def test_site_has_a_page_for_each_id_and_no_dead_link(tmp_path):
    tool = [sys.executable, ROOT / "tools" / "write_site.py", tmp_path]
    subprocess.run(tool, check=True, capture_output=True)
    pages = tmp_path / "pages"
    for there in (
        "checks/tool_calls.calls_arrive",
        "defects/output-unparsed",
        "scenarios/tool_call",
        "causes/vllm-joiner",
    ):
        assert (pages / "reference" / f"{there}.md").is_file(), there
    linked = {
        page.parent / place
        for page in pages.rglob("*.md")
        for place in re.findall(
            r"\]\((?!https?:|mailto:)([^)#\s]+)",
            re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL),
        )
    }
    assert len(linked) > 1000
    assert [place for place in linked if not place.exists()] == []

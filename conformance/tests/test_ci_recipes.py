"""The recipes of docs/ci.md: each is valid in its own format, and its commands are those of the program."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from harmony_conformance.cli.main import build_parser

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text("utf-8")
WHEEL = "ci/harmony_conformance-*.whl"


def block(heading, language):
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return section.partition(f"```{language}\n")[2].partition("\n```")[0]


def github():
    (job,) = yaml.safe_load(block("GitHub Actions", "yaml"))["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


def gitlab():
    return yaml.safe_load(block("GitLab", "yaml"))["harmony"]["script"]


def jenkins():
    return re.findall(r"sh '([^']*)'", block("Jenkins", "groovy"))


def buildkite():
    (step,) = yaml.safe_load(block("Buildkite", "yaml"))["steps"]
    return step["command"].splitlines()


def any_other_system():
    return block("Any other system", "sh").replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("recipe", [github, gitlab, jenkins, buildkite, any_other_system], ids=lambda one: one.__name__)
def test_a_recipe_installs_the_wheel_and_waits_for_the_server(recipe):
    lines = [line for one in recipe() for line in re.split(r" && |\n", one)]
    assert sum(f"pip install {WHEEL}" in line for line in lines) == 1
    calls = [shlex.split(line.partition(" > ")[0]) for line in lines if re.match(r"(\.venv/bin/)?harmony-conf", line)]
    parsed = {words[1]: build_parser(words[1]).parse_args(words[1:]) for words in calls}
    run = parsed["run"]
    assert (run.wait, run.max_time, str(run.baseline), str(run.out)) == (600, 2700, "known.toml", "harmony-report")


def test_the_nightly_workflow_runs_the_script_of_its_page():
    page = (Path(__file__).parents[2] / "docs" / "vllm-nightly.md").read_text("utf-8")
    workflow = yaml.safe_load(page.partition("```yaml\n")[2].partition("\n```")[0])
    (job,) = workflow["jobs"].values()
    steps = [step.get("run", "") for step in job["steps"]]
    assert any(f"pip install {WHEEL}" in step for step in steps)
    assert any(step.endswith("./nightly.sh") for step in steps)
    script = page.partition("cat > nightly.sh <<'EOF'\n")[2].partition("\nEOF\n")[0].replace("\\\n", " ")
    calls = [shlex.split(line.partition(" > ")[0]) for line in script.splitlines() if line.startswith("harmony-")]
    run, rates = (build_parser(words[1]).parse_args([one for one in words[1:] if one != "$OPTIONS"]) for words in calls)
    waits = run.max_time + rates.max_time
    assert (run.wait, run.tries, rates.tries, str(run.baseline)) == (1800, 3, 5, "known.toml")
    assert waits + run.wait <= 60 * job["timeout-minutes"]


def test_the_page_has_no_name_to_fill_in():
    assert not re.findall(r"OWNER|COMMIT|<[a-z]+>", PAGE)

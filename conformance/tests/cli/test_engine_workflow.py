"""`examples/`: the workflow for pull requests of an engine, its shell steps executed against `serve`, and the script for two servers."""

import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest
import yaml

from harmony_conformance.golden import data as golden
from harmony_conformance.reference_server import running

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / "examples" / "github-actions" / "engine.yml"
WORKFLOWS = [WORKFLOW, *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
UNREACHABLE = re.compile("dial tcp|no such host|i/o timeout|connection refused|TLS handshake|proxyconnect")
JOB = yaml.safe_load(WORKFLOW.read_text("utf-8"))
INSTALL = "Install harmony-conformance"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
RUN_OPTIONS = "--latency 0 --select tool_call --select simple_answer"

ADAPTER = """\
#!/usr/bin/env python
import json, pathlib, sys
FILES = [file for kind in ("render", "parse", "stream", "typescript") for file in pathlib.Path("{golden}", kind).glob("*.json")]
ANSWERS = {{test["id"]: test["expected"] for file in FILES for test in json.loads(file.read_text("utf-8"))["tests"]}}
for line in sys.stdin:
    name = json.loads(line)["id"]
    answer = ANSWERS[name]
    {fault}
    print(json.dumps({{"id": name, **answer}}), flush=True)
"""
WITHOUT_RECIPIENT = "for message in answer.get('messages', []): message.pop('recipient', None)"
ENGINE = '#!/bin/sh\nshift\nexec harmony-conformance serve "$@" {defect}\n'
MAKEFILE = "all:\n\tinstall -m 755 adapter.py harmony-adapter\n\tinstall -m 755 engine.sh engine\n"


def write_engine(folder, *, fault="pass", defect=""):
    """An engine: an adapter of its library, and a server."""
    folder.mkdir()
    (folder / "Makefile").write_text(MAKEFILE, "utf-8")
    (folder / "adapter.py").write_text(ADAPTER.format(golden=golden.root(), fault=fault), "utf-8")
    (folder / "engine.sh").write_text(ENGINE.format(defect=f"--defect {defect}" if defect else ""), "utf-8")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def is_run(condition, environment, *, failed):
    """Evaluate the conditions that the workflow has."""
    expression = condition.removeprefix("${{").removesuffix("}}").strip()
    terms = [term.strip() for term in expression.split("&&")]
    needed = {match[1] for term in terms if (match := re.fullmatch(r"env\.(\w+) != ''", term))}
    assert len(needed) + terms.count("!cancelled()") == len([term for term in terms if term]), condition
    return all(environment[name] for name in needed) and (not failed or "!cancelled()" in terms)


def run_workflow(folder, **changed):
    """Execute the shell steps as GitHub does. Return the exit code and output of each, and the environment."""
    port = free_port()
    environment = {
        **{name: str(value) for name, value in JOB["env"].items()},
        "SERVE": f"./engine serve --port {port}",
        "TARGET": f"http://127.0.0.1:{port}/v1",
        "RUN_OPTIONS": RUN_OPTIONS,
        **changed,
    }
    whole = {
        **{name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")},
        **environment,
        "PATH": PATH,
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    assert JOB["defaults"] == {"run": {"shell": "bash"}}
    steps, failed = {}, False
    for step in JOB["jobs"]["harmony"]["steps"]:
        if "run" not in step or step["name"] == INSTALL or not is_run(step.get("if", ""), environment, failed=failed):
            continue
        script = folder / "step.sh"
        script.write_text(step["run"], "utf-8")
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        ran = subprocess.run(command, cwd=folder, env=whole, capture_output=True, text=True, check=False)
        steps[step["name"]] = (ran.returncode, ran.stdout + ran.stderr)
        failed = failed or ran.returncode != 0
    return steps


@pytest.fixture(scope="module")
def actionlint(request):
    """The path of actionlint."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed, which builds actionlint")
    folder = request.config.cache.mkdir("actionlint")
    linter = folder / ACTIONLINT.rpartition("@")[2]
    if not linter.exists():
        environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
        built = subprocess.run(
            ["go", "install", ACTIONLINT], env=environment, capture_output=True, text=True, check=False
        )
        if built.returncode and UNREACHABLE.search(built.stderr):
            pytest.skip("actionlint cannot be downloaded")
        assert built.returncode == 0, built.stderr
        (folder / "actionlint").rename(linter)
    return str(linter)


def lint(actionlint, workflow):
    linted = subprocess.run([actionlint, "-no-color", str(workflow)], capture_output=True, text=True, check=False)
    return linted.returncode, linted.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.name)
def test_workflow_is_valid(actionlint, workflow):
    assert lint(actionlint, workflow) == (0, "")


def test_workflow_of_the_page_is_valid(actionlint, tmp_path):
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    text = page.partition("## GitHub Actions\n\n```yaml\n")[2].partition("```")[0]
    assert "harmony-conformance run" in text
    (tmp_path / "harmony.yml").write_text(text, encoding="utf-8")
    assert lint(actionlint, tmp_path / "harmony.yml") == (0, "")


def test_actions_that_are_used_are_those_of_github():
    used = [step["uses"] for step in JOB["jobs"]["harmony"]["steps"] if "uses" in step]
    assert [name.partition("@")[0] for name in used] == [
        "actions/checkout",
        "actions/checkout",
        "actions/setup-python",
        "actions/cache",
        "actions/upload-artifact",
    ]
    assert not [
        step for step in JOB["jobs"]["harmony"]["steps"] if "${{" in step.get("run", "")
    ]  # no text of a pull request


@pytest.mark.slow
def test_change_that_breaks_nothing_passes(tmp_path):
    for side in ("base", "head"):
        write_engine(tmp_path / side, fault=WITHOUT_RECIPIENT)  # base has this fault too
    steps = run_workflow(tmp_path)
    assert {name: code for name, (code, _) in steps.items()} == dict.fromkeys(
        ("Build base and head", "Renderer and parser, without a server", "Server"), 0
    ), steps
    kept = {file.name for file in (tmp_path / "harmony").iterdir()}
    assert {"vectors.xml", "head.sarif", "comparison.txt", "base", "head"} <= kept
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert "    head breaks none of 835 vectors and fixes none; " in summary
    assert "    SAME " in summary


@pytest.mark.slow
def test_change_that_breaks_parser_and_server_fails_with_both_causes(tmp_path):
    write_engine(tmp_path / "base")
    write_engine(tmp_path / "head", fault=WITHOUT_RECIPIENT, defect="finish-stop-with-calls")
    steps = run_workflow(tmp_path)
    code, said = steps["Renderer and parser, without a server"]
    assert code == 1
    assert "\nNEW " in said
    assert "the recipient of a message is lost" in said
    code, said = steps["Server"]  # it runs although a step failed before
    assert code == 1, said
    assert "NEW MUST " in said
    assert "NEW MUST " in (tmp_path / "summary.md").read_text("utf-8")
    assert "::error title=Harmony" in said


def test_server_that_does_not_start_is_one_line(tmp_path):
    for side in ("base", "head"):
        write_engine(tmp_path / side)
    (tmp_path / "base" / "engine.sh").write_text("#!/bin/sh\necho no model >&2\nexit 3\n", "utf-8")
    steps = run_workflow(tmp_path, ADAPTER="")
    code, said = steps["Server"]
    assert code == 2
    assert said.splitlines() == ["no model", "the server of base ended"]
    assert "Renderer and parser, without a server" not in steps


def test_build_that_fails_ends_the_job(tmp_path):
    for side in ("base", "head"):
        write_engine(tmp_path / side)
    steps = run_workflow(tmp_path, BUILD="exit 4", SERVE="")
    assert {name: code for name, (code, _) in steps.items()} == {"Build base and head": 4}


@pytest.mark.slow
@pytest.mark.parametrize("is_wheel", [True, False], ids=["wheel", "tag"])
def test_install_step_takes_a_wheel_or_a_tag_of_a_repository(tmp_path, is_wheel):
    packed = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert packed.returncode == 0, packed.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    repository = next((tmp_path / "source").iterdir())
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A", "-f"], [*identity, "commit", "-q", "-m", "x"], ["tag", "v0.2.0"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    venv.create(tmp_path / "env", with_pip=False)
    site = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env"), "platbase": str(tmp_path / "env")})
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    source = JOB["env"]["HARMONY_SOURCE"] if is_wheel else f"git+file://{repository}@v0.2.0"
    if is_wheel:
        command = ["pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "base/ci", str(repository)]
        subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, check=True)
    step = next(step for step in JOB["jobs"]["harmony"]["steps"] if step.get("name") == INSTALL)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HARMONY_SOURCE": source,
        "PIP_NO_DEPS": "1",  # its dependencies and the build backend are those of this environment
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_COMPILE": "1",
    }
    installed = subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert installed.returncode == 0, installed.stderr
    listed = subprocess.run(
        [tmp_path / "env" / "bin" / "harmony-conformance", "golden", "list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "parse/headers/call-recipient-first" in listed.stdout.splitlines()
    assert Path(site, "harmony_conformance", "_golden", "parse").is_dir()


def compare_servers(tmp_path, *words):
    environment = {**os.environ, "PATH": PATH, "OUT": str(tmp_path / "out")}
    command = ["bash", str(ROOT / "examples" / "compare_servers.sh"), *words]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_script_compares_two_servers(tmp_path):
    with running() as base, running(defects=["finish-stop-with-calls"]) as head:
        ran = compare_servers(tmp_path, f"{base}/v1", f"{head}/v1", *RUN_OPTIONS.split())
    assert ran.returncode == 1, ran.stderr
    assert "NEW MUST " in ran.stdout
    assert {folder.name for folder in (tmp_path / "out").iterdir()} == {"base", "head"}


def test_script_stops_at_a_server_that_is_not_there(tmp_path):
    ran = compare_servers(tmp_path, f"http://127.0.0.1:{free_port()}/v1", "http://127.0.0.1:1/v1")
    assert ran.returncode == 2
    assert not (tmp_path / "out" / "head").exists()
    assert compare_servers(tmp_path, "one").returncode == 2

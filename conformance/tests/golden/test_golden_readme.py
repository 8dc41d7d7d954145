"""The runners of golden/README.md run: they name every vector that is answered otherwise, and none that is answered as expected.

Languages are skipped where they are not installed. What Rust, TypeScript and Java need is downloaded once, and kept in pytest's cache.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from harmony_conformance.golden import data as golden

README = (golden.root() / "README.md").read_text("utf-8")
KINDS = ("render", "parse", "stream", "typescript")
CARGO = """\
[package]
name = "runner"
version = "0.1.0"
edition = "2021"

[dependencies]
"""
UNREACHABLE = re.compile("download|resolve host|network|connect|timed out|spurious", re.IGNORECASE)
ECHO = {
    "go": """\
package main

import "encoding/json"

func yours(input json.RawMessage) any {
	var said any
	json.Unmarshal(input, &said)
	return said
}
""",
    "rust": """
fn yours(input: &Value) -> Value {
    input.clone()
}
""",
    "javascript": """
function yours(input) {
  return input;
}
""",
    "typescript": """
function yours(input: unknown): unknown {
  return input;
}
""",
    "java": """
class Yours {
    static JsonElement answer(JsonElement input) {
        return input;
    }
}
""",
    "python": """\
def yours(given):
    return given


""",
}
"""What stands in for the reader's implementation: it answers with the input."""


def block(language):
    """The first runner in this language."""
    return re.search(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)[1]


def dependency():
    """The line of Cargo.toml that the page gives."""
    return re.search(r"^Rust, with `(serde_json = .*)`:$", README, re.MULTILINE)[1] + "\n"


def put(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def told(*command, cwd):
    ran = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def python(folder, _):
    put(folder, {"run.py": ECHO["python"] + block("python")})
    return [sys.executable, folder / "run.py"]


def go(folder, _):
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    put(folder, {"go.mod": "module runner\n\ngo 1.18\n", "main.go": block("go"), "yours.go": ECHO["go"]})
    told("go", "build", "-o", "runner", ".", cwd=folder)
    return [folder / "runner"]


def rust(folder, cache):
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    put(folder, {"Cargo.toml": CARGO + dependency(), "src/main.rs": block("rust") + ECHO["rust"]})
    environment = {**os.environ, "CARGO_TARGET_DIR": str(cache), "CARGO_TERM_COLOR": "never"}
    for offline in (["--offline"], []):  # what was downloaded before is used without a look at the registry
        command = ["cargo", "build", "--quiet", *offline]
        built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if built.returncode == 0:
            return [shutil.copy(cache / "debug" / "runner", folder)]
    if UNREACHABLE.search(built.stderr):
        pytest.skip(f"serde_json cannot be downloaded: {built.stderr.splitlines()[-1].strip()}")
    return pytest.fail(built.stderr)


def download(package, *command, cwd):
    """Run a command. Skip the test if it cannot reach its registry."""
    ran = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    if ran.returncode == 0:
        return
    said = f"{ran.stdout}{ran.stderr}".strip()
    if UNREACHABLE.search(said):
        pytest.skip(f"{package} cannot be downloaded: {said.splitlines()[-1].strip()}")
    pytest.fail(said)


def typescript(folder, cache):
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node is not installed")
    if not (cache / "node_modules" / ".bin" / "tsc").exists():
        download("typescript", "npm", "install", "--prefix", cache, "typescript", "@types/node", cwd=cache)
    put(folder, {"run.ts": block("javascript") + ECHO["typescript"]})
    types = ("--types", "node", "--typeRoots", cache / "node_modules" / "@types")
    compiler = cache / "node_modules" / ".bin" / "tsc"
    told(compiler, "--strict", "--module", "commonjs", "--target", "es2022", *types, "run.ts", cwd=folder)
    return ["node", folder / "run.js"]


def java(folder, cache):
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("Java or Maven is not installed")
    artifact = re.search(r"^Java, with `(\S+)`", README, re.MULTILINE)[1]
    library = cache / "{1}-{2}.jar".format(*artifact.split(":"))
    if not library.exists():
        options = (f"-Dartifact={artifact}", f"-DoutputDirectory={cache}")
        download(artifact, "mvn", "-q", "-B", "dependency:copy", *options, cwd=cache)
    put(folder, {"Runner.java": block("java") + ECHO["java"]})
    return ["java", "-cp", library, folder / "Runner.java"]


def javascript(folder, _):
    if shutil.which("node") is None:
        pytest.skip("Node is not installed")
    put(folder, {"run.js": block("javascript") + ECHO["javascript"]})
    return ["node", folder / "run.js"]


@pytest.fixture(
    scope="module",
    params=[
        python,
        go,
        javascript,
        *(pytest.param(build, marks=pytest.mark.slow) for build in (rust, typescript, java)),
    ],
    ids=lambda build: build.__name__,
)
def runner(request, tmp_path_factory):
    cache = request.config.cache.mkdir(f"{request.param.__name__}-build")
    return request.param(tmp_path_factory.mktemp("runner"), cache)


@pytest.mark.parametrize("kind", KINDS)
def test_runner_names_what_is_answered_otherwise(runner, kind, tmp_path):
    tests = [test for file in (golden.root() / kind).iterdir() for test in json.loads(file.read_text("utf-8"))["tests"]]
    said = told(*runner, golden.root() / kind, cwd=tmp_path)
    named = re.findall(rf'^FAIL "?({kind}/[^ "]+)', said, re.MULTILINE)
    assert sorted(named) == sorted(test["id"] for test in tests if test["result"] != "acceptable")


@pytest.mark.parametrize("kind", KINDS)
def test_runner_is_silent_where_the_answer_is_the_expected_one(runner, kind, tmp_path):
    for file in (golden.root() / kind).iterdir():
        document = json.loads(file.read_text("utf-8"))
        for test in document["tests"]:
            test["expected"] = test["input"]
        (tmp_path / file.name).write_text(json.dumps(document), "utf-8")
    assert told(*runner, tmp_path, cwd=tmp_path) == ""


@pytest.mark.parametrize("language", ["go", "rust", "python", "javascript", "java"])
def test_runner_has_some_fifteen_lines(language):
    assert len([line for line in block(language).splitlines() if line.strip()]) <= 16


LIBRARY = """
from harmony_ref import Conversation, HarmonyError, Role, render_conversation
from harmony_ref import parse as parse_tokens


def render(messages, *, drop_analysis):
    return render_conversation(Conversation.from_dict({"messages": messages}), auto_drop_analysis=drop_analysis)


def parse(tokens, role):
    return [message.to_dict() for message in parse_tokens(tokens, role and Role(role))]
"""


def test_pytest_file_of_the_page_runs(tmp_path):
    text = next(text for text in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "assert_conforms" in text)
    put(tmp_path, {"my_library.py": LIBRARY, "test_harmony.py": text, "pytest.ini": "[pytest]\npythonpath = .\n"})
    said = told(
        sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", tmp_path, cwd=tmp_path
    )
    assert re.search(r"\d+ passed, \d+ skipped", said)


def test_requests_and_answers_of_the_page_are_those_of_vectors():
    lines = [(line[0], json.loads(line[2:])) for line in README.splitlines() if line.startswith(("→ {", "← {"))]
    files = [file for kind in KINDS for file in (golden.root() / kind).iterdir()]
    vectors = {test["id"]: test for file in files for test in json.loads(file.read_text("utf-8"))["tests"]}
    for (ask, request), (reply, answer) in zip(lines[::2], lines[1::2], strict=True):
        vector = vectors[request["id"]]
        assert (ask, reply, request["kind"], answer["id"]) == ("→", "←", vector["id"].partition("/")[0], vector["id"])
        assert set(request) - {"id", "kind"} == set(vector["input"])
        assert answer.get("messages") in (None, vector["expected"]["messages"])
        assert ("error" in answer) == ("error" in vector["expected"] and "unsupported" not in answer)
    assert len(lines) == 6

"""`harmony-conformance golden run|compare`: adapters that work, and processes that do everything wrong."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.grading import pipe_process, pipe_run
from harmony_ref.tokenizer import vocabulary

EXAMPLES = Path(__file__).parents[4] / "examples" / "adapters"
# answers as the vectors expect, unless it has a fault
ADAPTER = """\
import json, os, pathlib, sys, time
FILES = [file for kind in ("render", "parse", "stream", "typescript") for file in (pathlib.Path(sys.argv[1]) / kind).glob("*.json")]
ANSWERS = {test["id"]: test["expected"] for file in FILES for test in json.loads(file.read_text("utf-8"))["tests"]}

def change(kind, answer):
    return answer

def misbehave(number, request):
    pass

FAULT

for number, line in enumerate(sys.stdin):
    request = json.loads(line)
    name, kind = request.pop("id"), request.pop("kind")
    misbehave(number, name)
    print(json.dumps({"id": name, **change(kind, ANSWERS[name])}), flush=True)
"""
WITHOUT_RECIPIENT = """\
def change(kind, answer):
    for message in answer.get("messages", []):
        message.pop("recipient", None)
    return answer
"""
FEW = ("--select", "parse/well_formed/*")


@pytest.fixture
def adapter(tmp_path):
    """Write an adapter with a fault and return its command."""

    def written(fault="", name="adapter.py"):
        (tmp_path / name).write_text(ADAPTER.replace("FAULT", fault), "utf-8")
        return shlex.join([sys.executable, "-S", str(tmp_path / name), str(golden.root())])

    return written


@pytest.fixture
def run(capsys):
    """Exit code, standard output and standard error."""

    def ran(*words):
        try:
            code = main(["golden", *map(str, words)])
        except SystemExit as refused:
            code = refused.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return ran


def counts(text):
    """The counts of the last lines, by kind."""
    lines = [line.split(maxsplit=1) for line in text.splitlines()]
    return {line[0]: line[1] for line in lines if line and line[0] in ("render", "parse", "stream", "typescript")}


# implementations


def test_implementation_that_conforms(run, adapter):
    code, said, _ = run("run", "--command", adapter())
    assert (code, said.splitlines()[0].endswith("/golden: conforms")) == (0, True)
    assert all(value.endswith(" passed") for value in counts(said).values())
    assert len(counts(said)) == 4


def test_parser_that_drops_the_recipient_is_one_cause(run, adapter):
    code, said, _ = run("run", "--command", adapter(WITHOUT_RECIPIENT), "--kind", "parse", "--kind", "stream")
    assert code == 1
    assert said.splitlines()[0].endswith(": does not conform")
    page = (golden.root() / "README.md").read_text("utf-8")
    shown = re.search(r"^\./adapter: does not conform\n(.*?)```", page, re.DOTALL | re.MULTILINE)[1]
    assert f"\n{shown}" in said  # the page shows this report
    assert '     expected "functions.f"\n     got      nothing\n' in said
    assert "\n2. " not in said


def test_wrong_renderer_is_one_cause(run, adapter):
    fault = """\
def change(kind, answer):
    return {"text": answer["text"].replace("Knowledge cutoff", "Cutoff")} if "text" in answer else answer
"""
    code, said, _ = run("run", "--command", adapter(fault), "--kind", "render")
    assert code == 1
    assert (
        '1. 27 vectors (render): in the content of a system message: "Knowledge" is expected, and "Cut" is rendered'
        in said
    )
    assert "\n2. " not in said
    assert re.search(r'expected "Knowledge cutoff: .*\n +got +"Cutoff: ', said)


def test_json_and_junit(run, adapter, tmp_path):
    command = adapter(WITHOUT_RECIPIENT)
    file = tmp_path / "junit.xml"
    code, said, _ = run("run", "--command", command, "--kind", "parse", "--format", "json", "--junit", file)
    value = json.loads(said)
    assert code == value["exit_code"] == 1
    assert [cause["sentence"] for cause in value["causes"]] == ["the recipient of a message is lost"]
    suite = ET.parse(file).getroot()[0]
    assert (suite.get("name"), suite.get("failures")) == ("parse", str(value["counts"]["parse"]["failed"]))
    code, said, _ = run("run", "--command", command, "--format", "junit", *FEW)
    assert ET.fromstring(said)[0].get("tests") == "22"


def test_summary_of_a_step_of_github_actions(run, adapter, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    run("run", "--command", adapter(), *FEW)
    lines = (tmp_path / "summary.md").read_text("utf-8").splitlines()
    assert lines[1].startswith("    ")
    assert lines[1].endswith("golden: conforms")


# processes that misbehave: (fault, exit code, what is reported)

FAULTS = {
    "ends at one input": (
        "def misbehave(number, name):\n    if name.endswith('/nothing'): raise RuntimeError('no content')",
        1,
        "the process ended with exit code 1: RuntimeError: no content",
    ),
    "is killed": (
        "def misbehave(number, name):\n    if name.endswith('/nothing'): os.kill(os.getpid(), 9)",
        1,
        "the process was ended by SIGKILL",
    ),
    "hangs": (
        "def misbehave(number, name):\n    if name.endswith('/nothing'): time.sleep(100)",
        1,
        "no answer within 6 s; each answer must be one line, and flushed",
    ),
    "prints garbage": (
        "def misbehave(number, name):\n    if name.endswith('/nothing'): print('debug: here', flush=True)",
        2,
        "invalid answer: expected one line of JSON, got 'debug: here'",
    ),
    "prints other JSON": (
        "def misbehave(number, name):\n    if name.endswith('/nothing'): print('[1]', flush=True)",
        2,
        "invalid answer: expected a JSON object with the id, got '[1]'",
    ),
    "answers out of order": (
        "def misbehave(number, name):\n    if name.endswith('/nothing'): print(json.dumps({'id': 'x'}), flush=True)",
        2,
        "answer out of order: expected the id parse/well_formed/nothing, got x",
    ),
    "closes its output": (
        "def misbehave(number, name):\n    if name.endswith('/nothing'): os.close(1); time.sleep(100)",
        1,
        "the process closed its output and did not end",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_of_a_process_is_one_line_and_costs_one_vector(run, adapter, monkeypatch, name):
    fault, code, reported = FAULTS[name]
    if "os.close" in fault:
        monkeypatch.setattr(pipe_process, "_END_SECONDS", 1.0)
    timeout = "6" if name == "hangs" else "60"  # a busy machine can take a second for an answer
    exit_code, said, _ = run("run", "--command", adapter(fault), "--timeout", timeout, *FEW)
    assert exit_code == code
    assert len([line for line in said.splitlines() if reported in line]) == 1
    shown = counts(said)["parse"]
    numbers = [int(part.split()[0]) for part in shown.split(", ")]
    assert numbers == [21, 1]


def test_every_line_of_a_silent_process_is_not_waited_for(run, adapter, monkeypatch):
    monkeypatch.setattr(pipe_run, "START_SECONDS", 1.0)
    started = time.monotonic()
    code, said, _ = run("run", "--command", "sleep 100", "--timeout", "0.3")
    assert (code, time.monotonic() - started < 60) == (2, True)
    assert "stopped: no answer to 3 requests: no answer within 1 s" in said
    assert "nothing could be checked" in said.splitlines()[0]
    assert sum(int(value.split()[0]) for value in counts(said).values()) == 835


def test_time_in_a_message_does_not_depend_on_how_long_the_start_took():
    with (
        pipe_process.PipeProcess(["sleep", "100"]) as process,
        pytest.raises(pipe_process.SilentProcessError, match=r"^no answer within 1 s; "),
    ):
        process.ask({"id": "a"}, 1.0442)


def test_timeouts_end_the_run(run, adapter):
    fault = "def misbehave(number, name):\n    if number: time.sleep(100)"
    code, said, _ = run("run", "--command", adapter(fault), "--timeout", "3", *FEW)
    assert code == 2
    assert "stopped: no answer in time to 5 requests, the last one parse/well_formed/" in said
    assert counts(said) == {"parse": "5 passed, 5 failed, 12 not run"}


def test_unreadable_lines_end_the_run(run, adapter):
    patient = ("--timeout", "60", *FEW)  # on a busy machine, one of the eleven starts can take more than ten seconds
    fault = "def misbehave(number, name):\n    if number: print('x', flush=True)"
    code, said, _ = run("run", "--command", adapter(fault), *patient)
    assert code == 2
    assert counts(said) == {"parse": "11 passed, 11 unreadable"}
    fault = "def misbehave(number, name):\n    if not name.endswith('/answer'): print('x', flush=True)"
    code, said, _ = run("run", "--command", adapter(fault), *patient)
    assert code == 2
    assert "stopped: 5 unreadable lines in a row: invalid answer: expected one line of JSON, got 'x'" in said
    assert counts(said) == {"parse": "1 passed, 5 unreadable, 16 not run"}


@pytest.mark.parametrize(
    ("command", "reported"),
    [
        ("/nonexistent/adapter", "cannot start /nonexistent/adapter: No such file or directory"),
        ("'open", 'invalid command "\'open": No closing quotation'),
        ("", "invalid command: expected a program and its arguments, got nothing"),
    ],
)
def test_command_that_can_not_start_is_a_usage_error(run, command, reported):
    code, said, error = run("run", "--command", command)
    assert (code, said) == (2, "")
    assert error == f"harmony-conformance golden: {reported}\n"


@pytest.mark.parametrize("command", ["false", "true", "yes", "cat"])
def test_programs_that_are_no_adapter_are_not_judged(run, command):
    code, said, _ = run("run", "--command", command)
    assert (code, said.splitlines()[0]) == (2, f"{command}: nothing could be checked")


def test_flood_and_children_end_with_the_run(run, tmp_path):
    pids = tmp_path / "pids"
    script = tmp_path / "flood.sh"
    script.write_text(f"sleep 1000 & echo $! > {pids}\nwhile :; do echo '{{\"id\": 1}}'; done\n", "utf-8")
    code, _, _ = run("run", "--command", f"sh {script}")
    assert code == 2
    child = int(pids.read_text("utf-8"))
    deadline = time.monotonic() + 30
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text("utf-8").rpartition(")")[2].split()[0] == "Z")


def test_endless_line_is_bounded(run, monkeypatch):
    monkeypatch.setattr(pipe_process, "_LONGEST_LINE", 1000)
    code, said, _ = run("run", "--command", "tr '\\0' x < /dev/zero")  # no shell: these are arguments of tr
    assert code == 2
    code, said, _ = run("run", "--command", "sh -c \"tr '\\0' x < /dev/zero\"")
    assert code == 2
    assert "expected a line of at most 1000 bytes" in said


def test_extra_lines_and_exit_codes_at_the_end_are_reported(run, adapter):
    last = "import atexit\natexit.register(lambda: print('{}', flush=True))"
    code, said, _ = run("run", "--command", adapter(last), *FEW)
    assert (code, said.splitlines()[1]) == (0, "the process wrote more lines than answers: '{}'")
    code, said, _ = run("run", "--command", adapter("import atexit\natexit.register(lambda: os._exit(7))"), *FEW)
    assert (code, said.splitlines()[1]) == (0, "after the last answer, the process ended with exit code 7")


def test_output_of_a_process_can_not_steer_the_terminal(run, adapter):
    fault = "def misbehave(number, name):\n    if name.endswith('/nothing'): print('\\x1b[2J', flush=True)"
    _, said, _ = run("run", "--command", adapter(fault), *FEW)
    assert "\x1b" not in said


HOSTILE = """\
def change(kind, answer):
    text = "\\ud800 \\x1b[2J \\u2028 </failure> ]]>"
    if "text" in answer:
        return {"tokens": [-1, 2**70, 199998], "text": text}
    if "messages" in answer:
        return {"messages": [{text: text, "content": {text: [text]}}], "steps": [{"delta": text}], "error": None}
    return {"typescript": text, "error": {"kind": [text], "position": text, "text": 5}}
"""


def test_hostile_answers_are_failures(run, adapter, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    file = tmp_path / "junit.xml"
    code, said, error = run("run", "--command", adapter(HOSTILE), "--format", "json", "--junit", file)
    assert (code, error) == (1, "")
    value = json.loads(said)
    assert {outcome for one in value["counts"].values() for outcome, count in one.items() if count} == {
        "failed",
        "different",
    }
    assert len(ET.parse(file).getroot()) == 4
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert [line for line in summary.split("\n") if line and not line.startswith("    ")] == []
    _, said, _ = run("run", "--command", adapter(HOSTILE))
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("--select", "nosuch*"), "invalid --select: expected a pattern of ids (golden list), got nosuch*"),
        (("--data", "/nonexistent"), "not a directory: /nonexistent"),
        (("--junit", "/nonexistent/x.xml", *FEW), "/nonexistent/x.xml: cannot write: No such file or directory"),
        (("--timeout", "0"), "expected seconds above 0, got '0'"),
        (("--timeout", "nan"), "expected seconds above 0, got 'nan'"),
    ],
)
def test_usage_errors(run, adapter, words, reported):
    code, _, error = run("run", "--command", adapter(), *words)
    assert code == 2
    assert reported in error


# base and head


def test_comparison_of_two_builds(run, adapter):
    base, head = adapter(name="base.py"), adapter(WITHOUT_RECIPIENT, name="head.py")
    code, said, _ = run("compare", "--base", base, "--head", head, "--kind", "parse")
    assert code == 1
    assert said.startswith("head breaks ")
    assert "\nNEW " in said
    assert "the recipient of a message is lost" in said
    code, said, _ = run("compare", "--base", head, "--head", base, "--kind", "parse", "--format", "json")
    value = json.loads(said)
    assert (code, value["exit_code"], value["causes"]["new"]) == (0, 0, [])
    assert [cause["sentence"] for cause in value["causes"]["fixed"]] == ["the recipient of a message is lost"]


# the adapters in examples/


def test_official_library_passes_all_that_it_supports(run, tmp_path, monkeypatch):
    (tmp_path / "o200k_base.tiktoken").write_bytes(vocabulary.read_vocabulary_file())
    monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", str(tmp_path))
    command = shlex.join([sys.executable, str(EXAMPLES / "openai_harmony_adapter.py")])
    code, said, _ = run("run", "--command", command)
    assert code == 0
    assert counts(said) == {
        "parse": "221 passed, 70 unsupported",
        "render": "285 passed",
        "stream": "56 passed",
        "typescript": "203 unsupported",
    }


def test_go_adapter_conforms(run, tmp_path):
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    subprocess.run(["go", "build", "-o", str(tmp_path / "adapter"), "."], cwd=EXAMPLES / "go", check=True)
    code, said, _ = run("run", "--command", tmp_path / "adapter")
    assert (code, counts(said)["parse"]) == (0, "184 passed, 107 unsupported")


def test_go_adapter_with_a_fault_is_caught(run, tmp_path):
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    shutil.copytree(EXAMPLES / "go", tmp_path / "go")
    file = tmp_path / "go" / "main.go"
    source = file.read_text("utf-8")
    assert source.count("read.Recipient, words = &recipient, words[:last]") == 1
    file.write_text(
        source.replace("read.Recipient, words = &recipient, words[:last]", "_, words = recipient, words[:last]"),
        "utf-8",
    )
    subprocess.run(["go", "build", "-o", str(tmp_path / "adapter"), "."], cwd=tmp_path / "go", check=True)
    code, said, _ = run("run", "--command", tmp_path / "adapter")
    assert code == 1
    assert "the recipient of a message is lost\n" in said
    assert "\n2. " not in said


def test_javascript_adapter_conforms(run):
    if shutil.which("node") is None:
        pytest.skip("Node is not installed")
    code, said, _ = run("run", "--command", shlex.join(["node", str(EXAMPLES / "javascript" / "adapter.js")]))
    assert (code, counts(said)["render"]) == (0, "187 passed, 98 unsupported")
    assert "not compared, because the answers do not have it: render: tokens (168)" in said

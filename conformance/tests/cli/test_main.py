import gzip
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
from jsonschema import Draft202012Validator

import harmony_conformance.transport.client
from harmony_conformance.cli.main import main
from harmony_conformance.evidence.exchange_json import exchange_line, read_exchange
from harmony_conformance.golden import data as golden
from harmony_conformance.runner.options import OWN_MEMBERS

KEY = "sk-0123456789abcdef"
SKIPPED = [
    word
    for name in ("slow_stream", "rows_[!n]*", "broken_*", "odd_texts", "markers_*", "questionable_*", "wrong_requests")
    for word in ("--skip", name)
]
"""What takes long, or is many requests of one kind: of the rows one group is enough here, and the suite's own tests leave nothing out."""
QUICK = ["--select", "simple_answer", "--latency", "0"]
SUMMARY = r"\d+ passed, \d+ failed, \d+ variant, \d+ inconclusive, \d+ not applicable, \d+ error"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("EMPTY_KEY", "BLANK_KEY", "GOOD_KEY"):
        monkeypatch.delenv(name, raising=False)


def run(capsys, *words):
    """Exit code, standard output, standard error."""
    try:
        code = main(["run", *words])
    except SystemExit as refused:
        code = refused.code
    said = capsys.readouterr()
    return code, said.out, said.err


def shape_of(value):
    """The value with its words and lengths of lists left out, texts with and without blanks apart."""
    if isinstance(value, dict):
        return {name: shape_of(member) for name, member in value.items()}
    if isinstance(value, list):
        return sorted({repr(shape_of(item)) for item in value})
    return (" " in value, bool(value)) if isinstance(value, str) else value


def results(folder):
    lines = (json.loads(line) for line in (folder / "report.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "result"]


WRONG = {
    "no target": ([], "required: TARGET"),
    "an unknown target": (["vlm:http://h"], "invalid target 'vlm:http://h'"),
    "an unknown defect": (["reference:defect=nothing"], "serve --list-defects`, got 'nothing'"),
    "a URL with a password": (["http://u:p@h"], "--api-key-env"),
    "tries of zero": (["reference", "--tries", "0"], "--tries: expected a whole number from 1, got '0'"),
    "tries of a word": (["reference", "--tries", "two"], "--tries: expected a whole number from 1, got 'two'"),
    "a negative concurrency": (["reference", "--concurrency", "-1"], "--concurrency"),
    "a timeout of zero": (["reference", "--timeout", "0"], "--timeout: expected a number of seconds above 0, got '0'"),
    "a timeout that is no number": (["reference", "--timeout", "nan"], "above 0, got 'nan'"),
    "a rate of zero": (
        ["reference", "--max-rps", "0"],
        "--max-rps: expected a number of requests per second above 0, got '0'",
    ),
    "a seed that is no number": (["reference", "--seed", "x"], "--seed"),
    "a latency below zero": (["reference", "--latency=-1"], "--latency: expected a whole number from 0, got '-1'"),
    "an unknown way to script": (["reference", "--script", "magic"], "--script"),
    "an unknown severity": (["reference", "--fail-on", "may"], "--fail-on"),
    "a pattern without a match": (
        ["reference", "--select", "nothing.*"],
        "invalid pattern: expected a check or a scenario of --list, got 'nothing.*'",
    ),
    "a body that is no JSON": (["reference", "--extra-body", "{"], "invalid --extra-body: expected JSON"),
    "a body that is no object": (["reference", "--extra-body", "[]"], "invalid --extra-body: expected a JSON object"),
    "a body with the model": (
        ["reference", "--extra-body", '{"top_k": 1, "model": "m"}'],
        "got 'model'; use --model",
    ),
    **{
        f"a body with {name}": (
            ["reference", "--extra-body", f'{{"{name}": null}}'],
            f"does not set, got '{name}'",
        )
        for name in sorted(OWN_MEMBERS)
    },
    "a header without a colon": (
        ["reference", "--header", "x"],
        "invalid --header: expected 'name: value', got the name 'x'",
    ),
    "a header with a blank in its name": (
        ["reference", "--header", "a b: c"],
        "invalid --header: expected 'name: value', got the name 'a b'",
    ),
    "a header with a line break": (
        ["reference", "--header", "a: b\r\nc: d"],
        "invalid --header a: expected printable ASCII",
    ),
    "a variable that is not set": (
        ["reference", "--api-key-env", "NO_SUCH_KEY"],
        "expected a key in the variable NO_SUCH_KEY",
    ),
    "a key in place of its variable": (
        ["reference", "--api-key-env", KEY],
        "expected the name of an environment variable",
    ),
    "a key that could be a variable's name": (
        ["reference", "--api-key-env", KEY.replace("-", "_")],
        "expected a key in that variable",
    ),
    "a variable that is empty": (
        ["reference", "--api-key-env", "EMPTY_KEY"],
        "expected a key in the variable EMPTY_KEY",
    ),
    "a key with white space": (["reference", "--api-key-env", "BLANK_KEY"], "invalid key in BLANK_KEY"),
    "a key in the open": (["http://api.example.com", "--api-key-env", "GOOD_KEY"], "expected https"),
    "a recording that is not there": (["replay:nothing.jsonl"], "nothing.jsonl: no such file\n"),
    "a folder as a recording": (["replay:."], "exchanges.jsonl: no such file\n"),
    "a file as a folder": (["reference", "--out", "file"], "--out file: File exists"),
    "a folder below a file": (["reference", "--out", "file/run"], "--out file/run: Not a directory"),
    "an unknown option": (["reference", "--nothing"], "run: unrecognized arguments: --nothing (see"),
    "a misspelt option": (
        ["reference", "--slect", "x"],
        "unrecognized arguments: --slect x; did you mean --select? (see",
    ),
    "a misspelt value": (["reference", "--api", "respones"], "; did you mean responses? (see harmony-conformance run"),
    "a scenario about WebSockets without one": (
        ["http://127.0.0.1:9", "--api", "all", "--select", "responses_websocket"],
        "the scenario responses_websocket is about a WebSocket connection: expected a ws:// or wss:// URL with --api responses",
    ),
    "a URL without a scheme": (
        ["localhost:8000"],
        "'localhost:8000': expected a URL with its scheme, such as http://localhost:8000",
    ),
    "nobody there": (["openai:http://127.0.0.1:9"], "openai:http://127.0.0.1:9: no HTTP response"),
    "an unknown model": (["reference", "--model", "nothing"], "gpt-oss-reference"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_can_not_be_done_is_refused_in_one_line_and_leaves_nothing_behind(what, capsys, monkeypatch, tmp_path):
    words, said = WRONG[what]
    monkeypatch.setenv("EMPTY_KEY", "")
    monkeypatch.setenv("BLANK_KEY", f"{KEY}\n")
    monkeypatch.setenv("GOOD_KEY", KEY)
    Path("file").touch()
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert said in err
    assert KEY not in err
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize(("word", "meant"), [("rnu", "run"), ("explian", "explain"), ("zzz", "")])
def test_a_misspelt_command_is_refused_with_the_one_that_was_perhaps_meant(word, meant, capsys):
    with pytest.raises(SystemExit) as refused:
        main([word, "x"])
    err = capsys.readouterr().err
    assert (refused.value.code, err.count("\n")) == (2, 1)
    assert err.startswith("harmony-conformance: invalid COMMAND: expected one of run, run-all,")
    assert (f"got {word!r}; did you mean {meant}?" if meant else f"got {word!r} (see") in err


RECORDINGS = {
    "no JSON": b"{",
    "no exchange": b'{"kind":"other"}',
    "nothing": b"",
    "no UTF-8": b'{"kind":"exchange\xff"}',
    "a request that is none": b'{"kind":"exchange","request":7}',
    "a gzip that breaks off": gzip.compress(b"{" * 1000)[:20],
    "discovery alone": b'{"kind":"exchange","scenario":"discovery","request":{}}',
}


@pytest.mark.parametrize("what", RECORDINGS)
def test_a_recording_that_can_not_be_judged_is_refused_in_one_line(what, capsys):
    Path("exchanges.jsonl").write_bytes(RECORDINGS[what])
    code, _, err = run(capsys, "replay:exchanges.jsonl")
    assert (code, err.count("\n")) == (2, 1)
    assert "exchanges.jsonl" in err


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    codes = [
        main(["run", "reference", "--seed", "1", *SKIPPED, "--latency", "2", "--out", str(folder / name)])
        for name in ("one", "two")
    ]
    assert codes == [0, 0]
    return folder


def test_two_runs_of_the_same_server_and_seed_give_equal_results(reference):
    assert results(reference / "one") == results(reference / "two")


def test_results_are_sorted(reference):
    keys = [(line["check"], line["scenario"], line["api"]) for line in results(reference / "one")]
    assert keys == sorted(keys)


def test_the_run_directory_holds_all_files_and_they_are_valid(reference):
    folder = reference / "one"
    assert {path.name for path in folder.iterdir()} == {
        "exchanges.jsonl",
        "junit.xml",
        "report.html",
        "report.jsonl",
        "report.md",
    }
    schema = json.loads((golden.root() / "schema" / "report.schema.json").read_text(encoding="utf-8"))
    validator = Draft202012Validator(schema)
    lines = map(json.loads, (folder / "report.jsonl").read_text(encoding="utf-8").splitlines())
    shapes = {repr(shape_of(line)): line for line in lines}  # one line of each: a schema takes long
    assert len(shapes) > 30
    for line in shapes.values():
        validator.validate(line)
    first, *exchanges, last = (folder / "exchanges.jsonl").read_bytes().splitlines(keepends=True)
    assert (json.loads(first)["kind"], json.loads(last)["kind"]) == ("run", "end")
    for line in exchanges:
        assert json.loads(line)["kind"] == "sent" or exchange_line(read_exchange(json.loads(line))) == line


def test_a_recorded_run_is_judged_again_to_the_same_result_lines(reference, capsys, tmp_path):
    recording = reference / "one" / "exchanges.jsonl"
    code, _, _ = run(capsys, f"replay:{recording}", *SKIPPED, "--out", str(tmp_path / "again"))
    assert code == 0
    assert results(tmp_path / "again") == results(reference / "one")


def test_a_recorded_run_is_judged_again_over_the_api_that_it_went_over(capsys, tmp_path):
    first = run(capsys, "reference", "--api", "responses", *QUICK, "--out", str(tmp_path / "first"))
    again = run(capsys, f"replay:{tmp_path / 'first' / 'exchanges.jsonl'}", *QUICK, "--out", str(tmp_path / "again"))
    assert (first[0], again[0]) == (0, 0)
    assert results(tmp_path / "again") == results(tmp_path / "first")


def test_the_option_api_adds_up(capsys, tmp_path):
    both = ("--api", "messages", "--api", "chat")
    assert run(capsys, "reference:defect=calls-dropped", *both, "--select", "tool_call", "--out", str(tmp_path))[0] == 1
    found = [json.loads(line) for line in (tmp_path / "report.jsonl").read_text().splitlines()]
    assert {line["api"] for line in found if line["kind"] == "result"} == {"chat", "messages", "all"}
    (example,) = (line["example"]["reproduce"] for line in found if line["kind"] == "cause")
    assert "--api chat --api messages" in example


def test_a_recorded_run_is_judged_again_with_what_its_report_knows_of_the_endpoint(reference, capsys, tmp_path):
    recorded = tmp_path / "kept"
    recorded.mkdir()
    for name in ("exchanges.jsonl", "report.jsonl"):
        (recorded / name).write_bytes((reference / "one" / name).read_bytes())
    assert run(capsys, f"replay:{recorded / 'exchanges.jsonl'}", *QUICK, "--out", str(tmp_path / "again"))[0] == 0
    known = ("target", "capabilities", "tries", "seed", "started")
    headers = [
        json.loads((folder / "report.jsonl").read_text().splitlines()[0]) for folder in (recorded, tmp_path / "again")
    ]
    assert [headers[1][name] for name in known] == [headers[0][name] for name in known]
    (recorded / "report.jsonl").unlink()
    assert run(capsys, f"replay:{recorded / 'exchanges.jsonl'}", *QUICK, "--out", str(tmp_path / "bare"))[0] == 0
    bare = json.loads((tmp_path / "bare" / "report.jsonl").read_text().splitlines()[0])
    assert bare["capabilities"] == headers[0]["capabilities"]  # the recording begins with them


def test_a_folder_is_made_below_runs_where_none_is_named(capsys, tmp_path):
    code, out, _ = run(capsys, "reference", *QUICK)
    (folder,) = tmp_path.glob("runs/*-reference")
    assert code == 0
    assert f"report: runs/{folder.name}/report.html" in out
    assert (folder / "report.jsonl").is_file()


def test_a_run_that_finds_nobody_leaves_an_earlier_run_as_it_was(capsys, tmp_path):
    run(capsys, "reference", *QUICK, "--out", "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert run(capsys, "openai:http://127.0.0.1:9", "--out", "run")[0] == 2
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_the_last_line_counts_every_outcome(capsys, tmp_path):
    _, out, _ = run(capsys, "reference", *QUICK, "--out", "run")
    counts = json.loads((tmp_path / "run" / "report.jsonl").read_text().splitlines()[-1])["counts"]
    words = ("pass", "fail", "variant", "inconclusive", "not_applicable", "error")
    assert [int(part.split()[0]) for part in out.splitlines()[-1].split(", ")] == [counts[word] for word in words]
    assert sum(counts.values()) == len(results(tmp_path / "run"))


def test_a_run_that_replaces_another_says_so_and_leaves_what_is_not_its_own(capsys, tmp_path):
    assert "replaces" not in run(capsys, "reference", *QUICK, "--out", "run")[2]
    (tmp_path / "run" / "notes.txt").write_text("mine")
    before = {path.name for path in (tmp_path / "run").iterdir()}
    _, _, err = run(capsys, "reference", *QUICK, "--out", "run")
    assert "replaces the run in run\n" in err
    assert {path.name for path in (tmp_path / "run").iterdir()} == before
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    code, _, err = run(capsys, "replay:run/exchanges.jsonl", *QUICK, "--out", "run")
    assert code == 0
    assert "replaces the run in run\n" in err


@pytest.mark.parametrize("name", ["report.jsonl", "report.md", "report.html", "junit.xml", "exchanges.jsonl"])
def test_a_file_that_no_run_wrote_is_never_overwritten(capsys, tmp_path, name):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("# My own words\n")
    code, _, err = run(capsys, "reference", *QUICK, "--out", "mine")
    assert code == 2
    assert f"--out mine: {name} was not written by a run and is not overwritten: use another folder" in err
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["# My own words\n"]


@pytest.mark.parametrize("name", ["report.jsonl", "exchanges.jsonl", ".exchanges.part"])
def test_a_run_writes_through_no_link(capsys, tmp_path, name):
    folder, target = tmp_path / "mine", tmp_path / "elsewhere"
    folder.mkdir()
    (folder / name).symlink_to(target)
    code, _, err = run(capsys, "reference", *QUICK, "--out", "mine")
    assert code == 2
    assert f"--out mine: {name} is a link and is not overwritten: use another folder" in err
    assert not target.exists()


def test_a_key_that_was_refused_is_named_by_its_variable(raw_server, capsys, monkeypatch):
    def answer(connection, request):
        connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")

    monkeypatch.setenv("GOOD_KEY", KEY)
    url = raw_server(answer).url
    code, _, err = run(capsys, f"openai:{url}", "--api-key-env", "GOOD_KEY")
    assert (code, err.count("\n")) == (2, 1)
    assert "invalid API key in GOOD_KEY (HTTP 401)" in err
    assert "expected a valid key in the variable named by --api-key-env" in run(capsys, f"openai:{url}")[2]


def test_the_waits_of_discovery_are_reported_one_line_each(raw_server, capsys, monkeypatch):
    async def at_once(seconds):
        """No wait."""

    def answer(connection, request):
        head = b"HTTP/1.1 429 Busy\r\nretry-after: 150\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        connection.sendall(head)

    monkeypatch.setattr(harmony_conformance.transport.client, "_pause", at_once)
    code, _, err = run(capsys, f"openai:{raw_server(answer).url}")
    *waits, last = err.splitlines()
    assert code == 2
    assert waits == [f"the server asks to wait 150 s; waiting 60 s, {place} of 3" for place in (1, 2, 3)]
    assert last.endswith(": rate limited: HTTP 429 after 3 waits")


@pytest.mark.parametrize(
    "command",
    [("run",), ("rates", "--set", "effort"), ("load", "--clients", "1"), ("load", "--rate", "2")],
    ids=["run", "rates", "clients", "rate"],
)
def test_a_server_that_hangs_is_named_while_the_command_waits(command, raw_server, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(harmony_conformance.transport.client, "SLOW_SECONDS", 0.05)

    def silent(connection, request):
        server.closing.wait(30)

    server = raw_server(silent)
    name, *options = command
    monkeypatch.chdir(tmp_path)
    code = main([name, f"openai:{server.url}", "--timeout", "0.5", *options])
    err = capsys.readouterr().err
    lines = err.splitlines()
    assert code == 2
    assert lines[0].startswith("waiting: no answer to GET /v1/models for ")
    assert lines[0].endswith(" s (--timeout 0.5)")
    assert len(lines) == 2, "one report within half a minute, and the error"


def test_help_names_the_default_of_the_timeout(capsys):
    assert "maximum time without a byte, in seconds (default: 60)" in " ".join(run(capsys, "--help")[1].split())


STOPPED = {
    "within discovery": (0, ": stopped before anything was recorded"),
    "after discovery": (2, ": stopped before the first scenario response; discovery is in a run"),
    "within a scenario": (
        3,
        "exchanges recorded in a run; to judge them: harmony-conformance run 'replay:a run/exchanges.jsonl'; to continue: {command} --resume",
    ),
}


@pytest.fixture
def heard():
    """What is started hears SIGINT, though whoever started us in the background had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("stage", STOPPED)
def test_a_run_that_is_stopped_names_what_it_kept_and_how_to_judge_it(raw_server, tmp_path, stage, number, heard):
    """The server falls silent, and the user, or the CI, has had enough."""
    reached = Event()

    def silent(connection, request):
        reached.set()
        server.closing.wait(30)

    answered, said = STOPPED[stage]
    server = answers(raw_server, silent, before=answered)
    program = Path(sys.executable).with_name("harmony-conformance")
    words = [program, "run", f"openai:{server.url}", *QUICK, "--concurrency", "1", "--out", "a run"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        assert reached.wait(30)
        running.send_signal(number)
        _, err = running.communicate(timeout=30)
    assert running.returncode == 128 + number
    assert "Traceback" not in err
    command = shlex.join(["harmony-conformance", *map(str, words[1:])])
    assert err.splitlines()[-1].endswith(said.format(command=command))
    recording = tmp_path / "a run" / "exchanges.jsonl"
    assert (recording.read_bytes().count(b'{"kind":"exchange"') if recording.parent.exists() else 0) == answered


def test_the_command_that_continues_a_stopped_run_has_its_new_folder_and_no_secret(raw_server, tmp_path, heard):
    reached = Event()

    def silent(connection, request):
        reached.set()
        server.closing.wait(30)

    server = answers(raw_server, silent, before=3)
    program = Path(sys.executable).with_name("harmony-conformance")
    words = [program, "run", f"openai:{server.url}", *QUICK, "--concurrency", "1", "--header", f"X-Api-Key: {KEY}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        assert reached.wait(30)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    (folder,) = tmp_path.glob("runs/*")
    command = shlex.split(err.splitlines()[-1].rpartition("; to continue: ")[2])
    assert command[-3:] == ["--out", f"runs/{folder.name}", "--resume"]
    assert command[:3] == ["harmony-conformance", "run", f"openai:{server.url}"]
    assert KEY not in err


@pytest.fixture
def no_file_beyond():
    """Files that can not grow beyond a number of bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("size", "judged"), [(10_000, 2), (20_000, 0)], ids=["within the recording", "within the report"]
)
def test_a_disk_that_is_full_is_reported_in_one_line_and_what_was_recorded_can_be_judged(
    capsys, no_file_beyond, size, judged
):
    no_file_beyond(size)
    code, out, err = run(capsys, "reference", *QUICK, "--concurrency", "1", "--out", "full")
    again = "harmony-conformance run replay:full/exchanges.jsonl"
    no_file_beyond(resource.RLIM_INFINITY)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith(
        f"--out full: File too large; exchanges recorded in full; to judge them: {again}"
    )
    code, _, err = run(capsys, *again.split()[2:], "--select", "simple_answer")
    assert code == judged
    told = "recording incomplete: the recorded run did not end; only what it contains is judged\n"
    assert err.count(told) == (judged != 0)


@pytest.mark.parametrize(
    "words",
    [
        ["rates", "reference", "--set", "hierarchy", "--tries", "1"],
        ["load", "reference", "--clients", "1", "--requests", "9", "--warm-up", "0"],
    ],
    ids=lambda words: words[0],
)
def test_a_disk_that_is_full_names_a_command_that_judges_recordings_without_scenarios(capsys, no_file_beyond, words):
    no_file_beyond(10_000)
    assert main([*words, "--out", "full"]) == 2
    no_file_beyond(resource.RLIM_INFINITY)
    again = "harmony-conformance audit full/exchanges.jsonl"
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"exchanges recorded in full; to judge them: {again}")
    assert main(again.split()[1:]) == 0
    assert " judged; counts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "program"),
    [(["explain", "channels.no_marker_leak"], " explain"), (["explain", "--help"], ""), (["--version"], "")],
)
def test_a_full_disk_for_the_output_is_one_line_and_no_verdict(words, program, capfd, monkeypatch):
    with Path("/dev/full").open("w", buffering=1) as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        assert main(words) == 2
    line = f"harmony-conformance{program}: the output cannot be written: No space left on device\n"
    assert capfd.readouterr().err == line


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["explain", "M15"], 0, ""),
        (
            ["render", "-"],
            2,
            "harmony-conformance render: standard input: invalid JSON: Expecting value at the end of the text",
        ),
        (["audit", "-"], 2, "harmony-conformance audit: nothing could be checked: no exchange in the input"),
    ],
)
def test_closed_standard_streams_are_empty(words, code, error, capsys, monkeypatch):
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, None)
    assert main(words) == code
    said = capsys.readouterr().err
    assert said.startswith(error)
    assert len(said.splitlines()) == bool(error)


def test_help_names_the_variables_of_private_authorities(capsys):
    out = " ".join(run(capsys, "--help")[1].split())
    assert "SSL_CERT_FILE and SSL_CERT_DIR name trusted certificates" in out


CODES = {
    "conforms": (["reference", *QUICK], 0),
    "does not conform": (["reference:defect=stream-without-done", *QUICK], 1),
    "does not conform, and nothing counts": (["reference:defect=stream-without-done", "--fail-on", "never", *QUICK], 0),
    "nothing could be checked": (
        ["reference", "--select", "tool_calls.name_is_declared@simple_answer", "--latency", "0"],
        2,
    ),
}


@pytest.mark.parametrize("what", CODES)
def test_the_exit_code_says_what_came_of_it(what, capsys):
    words, expected = CODES[what]
    code, _, err = run(capsys, *words, "--out", "run")
    assert code == expected
    assert ("nothing could be checked: no MUST check was applicable (applies to" in err) is (expected == 2)
    assert "Traceback" not in err


def test_a_run_of_recommendations_alone_reports_that_no_must_check_was_selected(capsys):
    selected = ("reference", "--select", "hierarchy.current_date_is_sane@simple_answer", "--latency", "0")
    code, _, err = run(capsys, *selected, "--out", "run")
    assert code == 2
    assert "nothing could be checked: no MUST check was selected" in err.splitlines()


def test_a_run_that_was_cut_short_is_incomplete_and_says_what_was_left_open(capsys, tmp_path):
    words = ["--latency", "0", "--concurrency", "1", "--max-requests", "5"]
    code, _, err = run(capsys, "reference", *words, "--out", "run")
    open_ones = [line for line in results(tmp_path / "run") if line["outcome"] == "inconclusive"]
    again = f"harmony-conformance run reference {' '.join(words)} --out run --resume"
    assert (code, err.splitlines()[-2:]) == (
        2,
        ["run stopped early: --max-requests 5 was reached", f"to continue: {again}"],
    )
    (header, *_) = map(json.loads, (tmp_path / "run" / "report.jsonl").read_text().splitlines())
    assert header["incomplete"] == "--max-requests 5 was reached"
    assert "not sent: --max-requests 5 was reached" in {line["reason"] for line in open_ones}
    assert ": no failure found, " in (tmp_path / "run" / "report.md").read_text().splitlines()[0]


INCONCLUSIVE = ["reference", "--select", "simple_answer", "--max-requests", "1"]


@pytest.mark.parametrize(
    ("fail_on", "expected"), [("must", 0), ("never", 0), ("inconclusive", 1), ("should,inconclusive", 1)]
)
def test_inconclusive_results_fail_a_run_if_they_are_named(fail_on, expected, capsys):
    assert run(capsys, *INCONCLUSIVE, "--out", "cut")[0] == 2
    code, _, err = run(capsys, "replay:cut/exchanges.jsonl", "--fail-on", fail_on, "--out", "run")
    assert code == expected
    assert "inconclusive results, for example: " in err


def test_a_run_without_inconclusive_results_does_not_fail_for_them(capsys):
    assert run(capsys, "reference", *QUICK, "--fail-on", "inconclusive", "--out", "run")[0] == 0


@pytest.mark.parametrize("command", ["run", "rates", "load", "audit", "run-all"])
def test_an_empty_folder_name_is_refused(command, capsys):
    with pytest.raises(SystemExit) as refused:
        main([command, "reference", "--out", ""])
    assert refused.value.code == 2
    assert "--out: expected the path of a folder, got ''" in capsys.readouterr().err


@pytest.mark.parametrize("fail_on", ["must,should", "", "inconclusive,may", "must,"])
def test_other_values_of_fail_on_are_refused(fail_on, capsys):
    code, _, err = run(capsys, "reference", "--fail-on", fail_on)
    assert (code, "--fail-on: expected one of must, should, never, with or without inconclusive" in err) == (2, True)


@pytest.mark.parametrize(
    ("required", "missing"),
    [("reasoning,usage,streaming,token-ids,prompt-ids,output-ids", []), ("reasoning,tools", ["tools"])],
)
def test_a_required_feature_that_no_answer_has_fails_the_run(required, missing, capsys, tmp_path):
    code, out, err = run(capsys, "reference", *QUICK, "--require", required, "--out", "run")
    header = json.loads((tmp_path / "run" / "report.jsonl").read_text().splitlines()[0])
    assert (code, header.get("missing_features", [])) == (int(bool(missing)), missing)
    assert header["features"]["answers"] == 2
    assert [line for line in err.splitlines() if line.startswith("--require")] == [
        f"--require {name}: in none of 2 answers" for name in missing
    ]
    assert (": does not conform" in out) is bool(missing)


def test_calls_that_never_arrive_as_calls_are_named(capsys, tmp_path):
    asked = ["reference:defect=raw-call-in-content", "--select", "tool_call", "--out", "run"]
    _, out, _ = run(capsys, *asked)
    assert "not seen in 2 answers: tool calls\n" in out
    assert "| In no answer | tools |" in (tmp_path / "run" / "report.md").read_text("utf-8")


def test_an_unknown_feature_is_refused(capsys):
    code, _, err = run(capsys, "reference", "--require", "reasoning,thoughts")
    assert (code, "--require: expected names of reasoning, " in err, "got 'thoughts'" in err) == (2, True, True)


def test_a_quiet_run_prints_one_line(capsys):
    code, out, err = run(capsys, "reference:defect=stream-without-done", *QUICK, "-q", "--out", "run")
    assert (code, err) == (1, "")
    assert re.fullmatch(rf"gpt-oss-reference on reference [^:]+: does not conform; causes: 1; {SUMMARY}; run\n", out)


def test_a_quiet_run_as_json_prints_nothing_else(capsys):
    code, out, err = run(capsys, "reference", *QUICK, "-q", "--format", "json", "--out", "run")
    assert (code, json.loads(out)["verdict"], err) == (0, "conforms", "")


def test_a_run_as_json_is_one_document_on_standard_output(capsys):
    code, out, err = run(capsys, "reference:defect=stream-without-done", *QUICK, "--format", "json", "--out", "run")
    value = json.loads(out)
    assert (code, value["exit_code"], value["verdict"]) == (1, 1, "does not conform")
    assert [cause["id"] for cause in value["causes"]] == ["stream-without-done"]
    assert (value["folder"], value["report"]) == ("run", "run/report.html")
    assert "reference 0.2.0 at embedded" in err


def test_a_check_that_raises_is_an_error_of_our_own(capsys, monkeypatch, tmp_path):
    from harmony_conformance.checks.streaming import events

    def broken(x):
        raise ValueError("oops")

    monkeypatch.setitem(events.ends_with_done.__dict__, "run", broken)
    code, _, _ = run(capsys, "reference", *QUICK, "--out", "run")
    errors = [line for line in results(tmp_path / "run") if line["outcome"] == "error"]
    assert code == 3
    assert {line["check"] for line in errors} == {"streaming.ends_with_done"}
    assert "ValueError: oops" in errors[0]["reason"]


def test_list_names_checks_and_scenarios_and_sends_nothing(capsys):
    code, out, _ = run(capsys, "openai:http://127.0.0.1:9", "--list", "--select", "tool_calls.*")
    assert code == 0
    assert "tool_calls.name_is_declared: A called function is one that the request declared" in out
    assert "tool_call:" in out


def test_a_dry_run_prints_every_request_and_sends_nothing(capsys):
    asked = [
        "openai:http://127.0.0.1:9",
        "--dry-run",
        "-v",
        "--select",
        "simple_answer",
        "--tries",
        "3",
        "--latency",
        "20",
    ]
    code, out, _ = run(capsys, *asked)
    lines = out.splitlines()
    assert code == 0
    name, _, body = lines[1].partition(": ")
    assert name == "simple_answer/chat/answer+stream"
    assert json.loads(body)["stream"] is True
    known, total, scripted, assumption, untested = lines[-5:]
    assert re.fullmatch(r"latency: 51 requests, about \d{4} input tokens, at most 7293 output tokens", known)
    bound = r"57 requests, about \d{4} input tokens, at most 19581 output tokens, at most 1 min; plus a few requests for discovery"
    assert re.fullmatch(bound, total)
    assert scripted.startswith("if the server plays scripts, as `harmony-conformance serve` does: 57 requests, about ")
    assert assumption == "the time assumes that 8 requests at a time get 50 tokens a second each"
    assert untested == "nothing was sent: the URL, the key and the model were not tested"


def test_a_dry_run_has_a_line_for_each_scenario_and_none_if_quiet(capsys):
    asked = ["openai:http://127.0.0.1:9", "--dry-run", "--select", "simple_answer", "--select", "tool_call"]
    names = [line.partition(":")[0] for line in run(capsys, *asked)[1].splitlines()]
    assert names[:2] == ["simple_answer", "tool_call"]
    quiet = run(capsys, *asked, "-q")[1].splitlines()
    assert len(quiet) == len(names) - 2
    assert re.match(r"\d+ requests, ", quiet[0])


def test_a_dry_run_bounds_a_server_that_turns_out_to_play_scripts(capsys, url):
    words = ["--select", "unicode_answer", "--select", "simple_answer", "--latency", "0"]
    (unscripted, _, _), lines = dry_run(capsys, url, *words)
    most = int(re.search(r"does: (\d+) requests", "\n".join(lines))[1])
    assert run(capsys, url, *words, "--out", "run")[0] == 0
    recorded = Path("run/exchanges.jsonl").read_text("utf-8").splitlines()
    sent = sum(value.get("scenario") in {"unicode_answer", "simple_answer"} for value in map(json.loads, recorded))
    assert unscripted < sent == most


def test_a_selection_has_no_latency_probe_by_default(capsys):
    asked = ["openai:http://127.0.0.1:9", "--dry-run", "--select", "simple_answer"]
    _, out, _ = run(capsys, *asked)
    assert re.match(r"2 requests, about \d{3} input tokens, at most 4096 output tokens, ", out.splitlines()[-4])


def dry_run(capsys, *words):
    """Requests, input tokens and output tokens of the last lines of a dry run, and its lines."""
    code, out, _ = run(capsys, *words, "--dry-run", "--latency", "0")
    assert code == 0
    (total,) = (line for line in out.splitlines() if line.endswith("; plus a few requests for discovery"))
    return tuple(map(int, re.findall(r"\d+", total)[:3])), out.splitlines()


@pytest.mark.parametrize("target", ["reference", "http://127.0.0.1:9", "ollama:http://127.0.0.1:9"])
def test_the_bound_of_a_whole_run_is_sane(target, capsys):
    (requests, prompts, answers), _ = dry_run(capsys, target, "-q", "--api", "all")
    assert 300 < requests < 10_000
    assert 100 * requests < prompts < 3_000 * requests
    assert 10 * requests < answers < 4_000 * requests


def test_a_limit_beyond_the_context_is_bounded_by_it(capsys):
    (_, _, answers), _ = dry_run(capsys, "http://127.0.0.1:9", "-q", "--select", "questionable_requests")
    assert 131_072 <= answers < 500_000


def test_a_dry_run_sends_to_an_unscripted_model_only_what_needs_no_script(capsys):
    (unscripted, _, _), lines = dry_run(capsys, "http://127.0.0.1:9", "--select", "unicode_answer")
    (scripted, _, _), _ = dry_run(capsys, "reference", "--select", "unicode_answer")
    assert (unscripted, scripted > 0) == (0, True)
    assert lines[0] == "unicode_answer: not sent: needs a scripted model"


def test_limits_of_a_run_bound_a_dry_run(capsys):
    words = ["http://127.0.0.1:9", "--max-requests", "9", "--max-tokens", "999", "--max-time", "50"]
    (requests, _, answers), lines = dry_run(capsys, *words)
    assert (requests, answers) == (9, 999)
    assert ", at most 1 min; plus a few" in "\n".join(lines)


@pytest.mark.parametrize(("most", "unmeasured"), [(14, True), (15, False)])
def test_the_latency_probe_is_sent_within_the_requests_that_are_allowed(most, unmeasured, capsys, tmp_path):
    """Two requests come before it, three warm it up at most."""
    asked = ["reference", "--select", "simple_answer", "--latency", "10", "--concurrency", "1", "--out", str(tmp_path)]
    _, _, err = run(capsys, *asked, "--max-requests", str(most))
    told = "latency not measured: it takes up to 13 requests, but --max-requests leaves 12"
    assert (told in err) is unmeasured
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "report.jsonl").read_text("utf-8").splitlines()]
    assert ("latency" in kinds) is not unmeasured


def answers(raw_server, chat, before=2, model="m"):
    """An endpoint that answers so many requests, and leaves the others to `chat`."""
    completion = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    }
    chats = []

    def answer(connection, request):
        if b"/v1/chat/completions" in request.split(b"\r\n", 1)[0]:
            chats.append(request)
            if len(chats) > before:
                chat(connection, request)
                return
        data = json.dumps({"data": [{"id": model}], "version": model, **completion}).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(data) + data)

    return raw_server(answer)


def test_what_a_server_calls_itself_does_not_steer_the_terminal(raw_server, capsys):
    server = answers(raw_server, lambda connection, request: None, model="m\x1b[2Jn\x07")
    _, out, err = run(capsys, f"openai:{server.url}", *QUICK)
    assert r"openai m\u001b[2Jn\u0007 at " in err
    assert r", model m\u001b[2Jn\u0007; prompt evidence" in err
    assert not {"\x1b", "\x07"} & {*out, *err}


def test_a_server_that_dies_within_the_run_is_a_recorded_failure(raw_server, capsys, tmp_path):
    server = answers(raw_server, lambda connection, request: None)
    code, out, err = run(capsys, f"openai:{server.url}", *QUICK, "--out", "run")
    failed = [line for line in results(tmp_path / "run") if line["outcome"] == "fail"]
    assert code == 1
    assert [line["check"] for line in failed] == ["errors.valid_request_is_answered"]
    assert failed[0]["reproduce"].startswith(f"curl -sS -X POST {server.url}/v1/chat/completions")
    assert "Traceback" not in out + err


def test_a_key_that_a_server_echoes_stands_nowhere_in_what_is_written(raw_server, capsys, monkeypatch, tmp_path):
    """The server streams the key back in its headers, in one event, and spread over the deltas of an answer."""
    monkeypatch.setenv("GOOD_KEY", KEY)
    deltas = [KEY, " ", *KEY]
    events = [
        {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": delta}}]} for delta in deltas
    ]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()

    def chat(connection, request):
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-{KEY}: 1\r\nx-key: {KEY}\r\nconnection: close\r\n\r\n"
        connection.sendall(head.encode() + stream)

    server = answers(raw_server, chat)
    code, out, err = run(capsys, f"openai:{server.url}", *QUICK, "--api-key-env", "GOOD_KEY", "--out", "run")
    assert code == 1
    assert all(KEY.encode() in request for request in server.requests)
    for path in (tmp_path / "run").iterdir():
        assert KEY.encode() not in path.read_bytes(), path.name
    assert KEY not in out + err
    assert "$GOOD_KEY" in (tmp_path / "run" / "report.jsonl").read_text()


def test_the_program_is_installed_and_prints_no_traceback(tmp_path):
    program = Path(sys.executable).with_name("harmony-conformance")
    done = subprocess.run(
        [program, "run", "openai:http://127.0.0.1:9"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["hi", "hi " * 40_000], ids=["fits into the pipe", "does not"])
def test_what_nobody_reads_to_its_end_is_no_success(text, tmp_path):
    (tmp_path / "completion").write_text(f"<|channel|>final<|message|>{text}<|return|>", encoding="utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    command = ["parse", "--role", "assistant", str(tmp_path / "completion")]
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "harmony_conformance.cli.main", *command],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")

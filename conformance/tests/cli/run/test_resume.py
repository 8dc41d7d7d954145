"""A run that was killed is continued to the results of one that was not; a torn recording is no success; one run writes into a folder."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.reference_server import running

PROGRAM = Path(sys.executable).with_name("harmony-conformance")
CHOSEN = [
    word
    for name in ("simple_answer", "*@tool_c*", "cut_*", "side_by_side", "wrong_formats")
    for word in ("--select", name)
]
QUICK = ["--select", "simple_answer", "--latency", "0"]
COMPLETION = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(capsys, *words):
    """Exit code and standard error."""
    try:
        code = main(["run", *map(str, words)])
    except SystemExit as refused:
        code = refused.code
    return code, capsys.readouterr().err


def lines(folder):
    return [json.loads(line) for line in (Path(folder) / "exchanges.jsonl").read_text().splitlines()]


def results(folder):
    report = (Path(folder) / "report.jsonl").read_text().splitlines()
    return [line for line in report if '"kind":"result"' in line]


def steps(folder):
    return sorted(line["id"] for line in lines(folder) if line["kind"] == "exchange")


@pytest.fixture(scope="module")
def server():
    with running() as url:
        yield url


@pytest.fixture(scope="module")
def finished(server, tmp_path_factory):
    """The words of a run that nothing interrupted, and its folder."""
    folder = tmp_path_factory.mktemp("finished") / "whole"
    words = [f"reference:{server}", *CHOSEN, "--seed", "1", "--latency", "0", "--tries", "2"]
    assert main(["run", *words, "--out", str(folder)]) == 0
    return words, folder


@pytest.fixture
def whole(finished, tmp_path):
    """The words of that run; the test has a copy of its folder."""
    words, folder = finished
    shutil.copytree(folder, tmp_path / "whole")
    return words


def cut(source, target, share, tail=b""):
    """The recording of a run that was killed after a share of its lines."""
    Path(target).mkdir()
    recorded = (Path(source) / "exchanges.jsonl").read_bytes().splitlines(keepends=True)
    kept = recorded[: max(1, int(len(recorded) * share))]
    (Path(target) / "exchanges.jsonl").write_bytes(b"".join(kept) + tail)
    return kept


@pytest.mark.parametrize(
    ("share", "tail"),
    [(0.0, b""), (0.5, b""), (0.9, b'{"kind":"exchange","id":"x'), (0.9, bytes(999)), (1.0, b"")],
    ids=["the header", "half", "torn", "nulls", "all"],
)
def test_a_continued_run_equals_one_that_was_not_interrupted(whole, capsys, share, tail):
    kept = cut("whole", "killed", share, tail)
    finished = sum(b'"kind":"sent"' in line for line in kept)
    code, err = run(capsys, *whole, "--out", "killed", "--resume")
    assert code == 0
    assert (f"{finished} series taken from the recording in killed\n" in err) is (finished > 0)
    assert results("killed") == results("whole")
    assert steps("killed") == steps("whole")
    assert lines("killed")[-1]["kind"] == "end"
    assert run(capsys, "replay:killed/exchanges.jsonl", *CHOSEN, "--out", "again")[0] == 0
    assert results("again") == results("whole")


class Counted:
    """An endpoint that answers `count` chat requests and then none, until it may go on."""

    def __init__(self, raw_server, count):
        self.chats, self.count, self.is_reached = [], count, Event()
        self.server = raw_server(self.answer)
        self.url = f"openai:{self.server.url}"

    def answer(self, connection, request):
        body = {"data": [{"id": "m"}]}
        if request.split(b" ", 2)[1] == b"/v1/chat/completions":
            self.chats.append(request.partition(b"\r\n\r\n")[2])
            if len(self.chats) > self.count:
                self.is_reached.set()
                self.server.closing.wait()
            body = COMPLETION
        data = json.dumps(body).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
        connection.sendall(head + b"content-length: %d\r\n\r\n" % len(data) + data)


SENT = [
    word for name in ("simple_answer", "tool_call", "wrong_formats", "side_by_side") for word in ("--select", name)
] + ["--latency", "0", "--concurrency", "2"]


def test_only_missing_series_are_sent_after_a_kill(raw_server, capsys):
    endpoint = Counted(raw_server, 10)
    words = [endpoint.url, *SENT, "--out", "killed"]
    with subprocess.Popen([PROGRAM, "run", *words], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as killed:
        assert endpoint.is_reached.wait(60)
        killed.send_signal(signal.SIGKILL)
    finished = {(line["series"], line["try"]) for line in lines("killed") if line["kind"] == "sent"}
    assert finished
    reused = [
        line for line in lines("killed") if line["kind"] == "exchange" and (line["scenario"], line["try"]) in finished
    ]
    endpoint.count, sent_before = 10**6, len(endpoint.chats)
    run(capsys, *words, "--resume")
    again = endpoint.chats[sent_before:]
    everything = [line for line in lines("killed") if line["kind"] == "exchange"]
    discovery = [line for line in everything if line["scenario"] == "discovery"]
    assert len(again) == len([line for line in everything if "response" in line]) - len(reused)
    assert len(discovery) <= len(again) < len(everything)
    assert run(capsys, *words[:-1], "whole")[0] == run(capsys, "replay:killed/exchanges.jsonl", *SENT[:-4])[0]
    assert results("whole") == results("killed")


def test_a_run_that_stopped_at_its_limit_is_continued(raw_server, capsys):
    endpoint = Counted(raw_server, 10)
    words = [endpoint.url, *SENT]
    code, err = run(capsys, *words, "--max-time", "2", "--out", "o")
    assert code == 2
    assert "run stopped early: " in err
    endpoint.count = 10**6
    _, err = run(capsys, *words, "--out", "o", "--resume")
    assert "run stopped early: " not in err
    run(capsys, *words, "--out", "whole")
    assert results("o") == results("whole")
    assert steps("o") == steps("whole")


OTHER = {
    "another seed": (["--seed", "2"], "invalid --resume: expected seed 1 as in the recording, got 2"),
    "another selection": (["--skip", "cut_*"], "invalid --resume: expected skip [] as in the recording"),
    "another body": (["--extra-body", '{"top_k":1}'], "invalid --resume: expected extra-body {} as in the recording"),
    "another model": (["--model", "gpt-oss-reference"], "invalid --resume: expected model none as in the recording"),
}


@pytest.mark.parametrize("what", OTHER)
def test_other_options_than_those_of_the_recording_are_refused_in_one_line(whole, capsys, what):
    words, said = OTHER[what]
    cut("whole", "killed", 0.5)
    before = (Path("killed") / "exchanges.jsonl").read_bytes()
    code, err = run(capsys, *whole, *words, "--out", "killed", "--resume")
    assert (code, err.count("\n")) == (2, 1)
    assert said in err
    assert (Path("killed") / "exchanges.jsonl").read_bytes() == before


def test_another_target_or_another_server_behind_it_is_refused(whole, server, capsys):
    cut("whole", "killed", 0.5)
    code, err = run(capsys, "reference", *whole[1:], "--out", "killed", "--resume")
    assert (code, err.count("\n")) == (2, 1)
    assert f"expected target reference:{server} as in the recording, got reference" in err
    path = Path("killed") / "exchanges.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"model":"gpt-oss-reference"', b'"model":"other"', 1))
    before = path.read_bytes()
    code, err = run(capsys, *whole, "--out", "killed", "--resume")
    assert code == 2
    assert err.endswith("invalid --resume: expected model other as in the recording, got gpt-oss-reference\n")
    assert path.read_bytes() == before


REFUSED = {
    "no folder": (["reference", "--resume"], "expected --out with the folder of the earlier run, got none"),
    "a recording as target": (["replay:x", "--resume", "--out", "o"], "invalid --resume: expected an endpoint"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_continued_is_refused_in_one_line(what, capsys):
    words, said = REFUSED[what]
    code, err = run(capsys, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_a_recording_without_a_header_is_not_continued(capsys):
    run(capsys, "reference", *QUICK, "--out", "o")
    path = Path("o") / "exchanges.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    code, err = run(capsys, "reference", *QUICK, "--out", "o", "--resume")
    assert code == 2
    assert "expected a recording with a line `run`" in err


def test_a_folder_without_a_recording_is_begun(capsys):
    assert run(capsys, "reference", *QUICK, "--out", "new", "--resume")[0] == 0


def test_the_secrets_of_options_are_not_in_the_header(capsys, monkeypatch):
    monkeypatch.setenv("GOOD_KEY", "sk-0123456789abcdef")
    words = ["--header", "X-Team: teamsecret77", "--extra-body", '{"api_key":"EXTRASECRET999"}']
    with running() as url:
        run(capsys, f"reference:{url}", *QUICK, "--api-key-env", "GOOD_KEY", *words, "--out", "o")
        written = (Path("o") / "exchanges.jsonl").read_text().splitlines()[0]
        assert json.loads(written)["options"]["header"] == ["x-team"]
        assert not [word for word in ("sk-0123456789abcdef", "teamsecret77", "EXTRASECRET999") if word in written]
        again = run(capsys, f"reference:{url}", *QUICK, "--api-key-env", "GOOD_KEY", *words, "--out", "o", "--resume")
    assert again[0] == 0


TORN = {
    "cut between records": lambda data: b"".join(data.splitlines(keepends=True)[:-2]),
    "cut within a record": lambda data: data[: data.rindex(b'{"kind":"exchange"') + 200],
    "null bytes at the end": lambda data: data[: data.rindex(b'{"kind":"exchange"')] + bytes(1517),
    "null bytes before a record": lambda data: data.replace(
        b'\n{"kind":"sent"', b"\n" + bytes(99) + b'{"kind":"sent"', 1
    ),
}


@pytest.mark.parametrize("what", TORN)
def test_a_torn_recording_is_judged_and_is_no_success(capsys, what):
    run(capsys, "reference", *QUICK, "--out", "o")
    path = Path("o") / "exchanges.jsonl"
    path.write_bytes(TORN[what](path.read_bytes()))
    code, err = run(capsys, f"replay:{path}", *QUICK, "--out", "again")
    assert code == 2
    (told,) = [line for line in err.splitlines() if line.startswith("recording incomplete: ")]
    reason = told.removeprefix("recording incomplete: ").removesuffix("; only what it contains is judged")
    header = json.loads((Path("again") / "report.jsonl").read_text().splitlines()[0])
    assert header["incomplete"] == reason
    assert ": no failure found" in (Path("again") / "report.md").read_text().splitlines()[0]


def test_a_recording_that_is_torn_in_its_middle_is_refused_with_the_line(capsys):
    run(capsys, "reference", *QUICK, "--out", "o")
    path = Path("o") / "exchanges.jsonl"
    recorded = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([recorded[0], recorded[1][:50] + b"\n", *recorded[2:]]))
    code, err = run(capsys, f"replay:{path}", *QUICK)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{path}, line 2: " in err


def test_a_second_run_into_a_folder_is_refused_and_names_the_first(raw_server, capsys):
    endpoint = Counted(raw_server, 3)
    words = [PROGRAM, "run", endpoint.url, *QUICK, "--concurrency", "1", "--out", "o"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as first:
        try:
            assert endpoint.is_reached.wait(60)
            before = (Path("o") / "exchanges.jsonl").read_bytes()
            for target in ("reference", "replay:o/exchanges.jsonl"):
                code, err = run(capsys, target, *QUICK, "--out", "o")
                assert code == 2
                said = f"--out o: in use by process {first.pid}: wait for its end, or use another folder\n"
                assert err.endswith(said)
            assert (Path("o") / "exchanges.jsonl").read_bytes() == before
        finally:
            os.kill(first.pid, signal.SIGKILL)
    assert run(capsys, "reference", *QUICK, "--out", "o")[0] == 0
    assert ".lock" not in {path.name for path in Path("o").iterdir()}

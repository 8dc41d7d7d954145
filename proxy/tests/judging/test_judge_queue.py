"""What is handed over is judged by another process: bounded, counted, and never waited for."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.cli.main import main
from harmony_conformance.judge.check import MUST, Finding, check
from harmony_conformance.judge.conditions import has_response
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_proxy.capture.recorder import End, Recorder
from harmony_proxy.judging import judge_queue as handing_module
from harmony_proxy.judging.counters import Tally, from_json, summary_line, to_json
from harmony_proxy.judging.judge_process import ExchangeJudge
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings, read_settings
from harmony_proxy.judging.queue_codec import decode_frame, encode_exchanges, encode_frame

SECRET = "Sue"
KEY = "sk-123456"
LEAK = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": f"<|channel|>analysis<|message|>{SECRET} {KEY}<|end|>"},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 60, "completion_tokens": 5, "total_tokens": 65},
}
EVENT = b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{%b}}]}\n\n'
EVENTS = (EVENT % b'"reasoning_content":"Hm"', EVENT % b'"content":"Hi"', b"data: [DONE]\n\n")
ANSWER = (json.dumps(LEAK).encode(),)


def recorded(chunks=ANSWER, kind=b"application/json", end=End.COMPLETE):
    recorder = Recorder()
    recorder.request_head("POST", "/v1/chat/completions", [(b"authorization", f"Bearer {KEY}".encode())])
    recorder.request_body(json.dumps({"model": "m", "messages": [{"role": "user", "content": SECRET}]}).encode())
    recorder.response_head(200, [(b"content-type", kind)])
    for number, chunk in enumerate(chunks, start=1):
        recorder.feed(chunk, number / 10)
    recorder.abort(end, "", len(chunks) / 10)
    return recorder


def handed(number=1, **how):
    recorder = recorded(**how)
    return recorder.pack(f"run-{number}", 1_769_860_800.0), recorder.cost


def judged(settings=JudgeSettings(), checks=CHECKS, write=None, recorder=None):  # noqa: B008 - frozen
    lines = []
    counts: Tally = Counter()
    ExchangeJudge(settings, write or lines.append, checks).judge(
        (recorder or recorded()).to_record("run-1", 1.5), counts
    )
    return lines, counts


def test_the_log_names_checks_and_holds_nothing_of_the_content():
    (line,), counts = judged()
    assert "channels.no_marker_leak" in line["failed"]
    assert line["outcomes"]["fail"] == len(line["failed"])
    assert sum(line["outcomes"].values()) == len(CHECKS)
    assert (line["judged"], line["status"], line["path"], line["api"]) == (True, 200, "/v1/chat/completions", "chat")
    assert (line["id"], line["started"]) == ("run-1", "1970-01-01T00:00:01.500+00:00")
    assert SECRET not in json.dumps(line)
    assert "<|" not in json.dumps(line)
    assert summary_line(counts).startswith("1 exchange, 1 judged, 1 failed a MUST check; most frequent failures: ")


def test_the_last_line_counts_an_unreachable_upstream_apart():
    counts: Tally = Counter()
    judge = ExchangeJudge(JudgeSettings(), [].append, CHECKS)
    for end in (End.NO_CONNECTION, End.NO_CONNECTION, End.CUT):
        recorder = Recorder()
        recorder.request_head("POST", "/v1/chat/completions", [(b"content-type", b"application/json")])
        recorder.request_body(json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode())
        recorder.abort(end, "", 0.1)
        judge.judge(recorder.to_record("run-1", 1.5), counts)
    assert summary_line(counts) == (
        "3 exchanges, 3 judged, 1 failed a MUST check, 2 without a connection to the upstream;"
        " most frequent failures: errors.valid_request_is_answered 1"
    )


def test_an_exchange_that_takes_too_long_is_given_up_and_counted(monkeypatch):
    @check(MUST, spec="harmony#final", when=has_response)
    def never_ends(_):
        """A check that goes on for long."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            pass
        yield Finding(message="it ended")

    lines, counts = [], Counter()
    judge = ExchangeJudge(JudgeSettings(), lines.append, (never_ends,))
    monkeypatch.setattr("harmony_proxy.judging.judge_process.EXCHANGE_SECONDS", 0.1)
    before = signal.signal(signal.SIGALRM, judge.check_time_limit)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        judge.judge(recorded().to_record("run-1", 1.5), counts)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert counts == {("problems",): 1, ("exchanges", "", "complete"): 1}
    ((kept, reason),) = ((one["judged"], one["unjudged"]) for one in lines)
    assert not kept
    assert reason.startswith("internal error: _TimeLimitError in harmony_proxy/judging/judge_process.py, line ")
    judge.check_time_limit()  # between two exchanges nothing takes too long


def test_the_timer_is_off_when_there_is_no_more_to_judge():
    program = (
        "import signal; from harmony_proxy.judging.judge_process import main; from harmony_proxy.judging.judge_settings import JudgeSettings; "
        "print(main(JudgeSettings(priority='normal').argument()), signal.getitimer(signal.ITIMER_REAL))"
    )
    ended = subprocess.run([sys.executable, "-c", program], input=b"", capture_output=True, timeout=60, check=True)
    assert ended.stdout == b"0 (0.0, 0.0)\n"


@pytest.mark.parametrize("excerpts", ["redacted", "full"])
def test_excerpts_and_samples_are_redacted_or_full_and_never_hold_a_key(excerpts):
    (line,), _ = judged(JudgeSettings(excerpts=excerpts, capture=excerpts))
    assert "<|channel|>analysis<|message|>" in json.dumps(line["findings"])
    assert "<|channel|>analysis<|message|>" in json.dumps(line["sample"])
    for part in ("findings", "sample"):
        assert (SECRET in json.dumps(line[part])) is (excerpts == "full")
    assert KEY not in json.dumps(line)


@pytest.mark.parametrize("captures", [("redacted",), ("redacted", "full")], ids=["alone", "mixed"])
def test_an_audit_counts_redacted_samples_by_their_outcomes(tmp_path, capsys, captures):
    lines = [judged(JudgeSettings(capture=capture))[0][0] for capture in captures]
    (log := tmp_path / "guard.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    assert main(["audit", str(log), "--workers", "1", "--out", str(tmp_path / "out")]) == 1
    assert "1 exchange is counted by its outcomes in the log of the proxy" in capsys.readouterr().out
    header = json.loads((tmp_path / "out" / "audit.jsonl").read_text("utf-8").splitlines()[0])
    assert (header["exchanges"], header["counted"], header["unreadable"]) == (len(captures), 1, 0)


def test_a_sample_holds_no_credential_that_a_request_hands_on():
    recorder = Recorder()
    recorder.request_head("POST", "/v1/responses", [(b"cookie", b"sid=COOKIE1234; a=b")])
    tool = {"type": "mcp", "authorization": "HANDED-ON-1", "headers": {"Authorization": "Bearer HANDED-ON-2"}}
    recorder.request_body(json.dumps({"model": "m", "input": "Hi", "tools": [tool]}).encode())
    recorder.response_head(200, [(b"content-type", b"application/json")])
    text = {"type": "output_text", "text": "<|channel|>analysis<|message|>HANDED-ON-1 COOKIE1234", "annotations": []}
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
    answer = {"id": "r", "object": "response", "status": "completed", "output": [item], "tools": [tool]}
    recorder.feed(json.dumps(answer).encode(), 0.1)
    recorder.end(0.2)
    (line,), _ = judged(JudgeSettings(excerpts="full", capture="full"), recorder=recorder)
    assert "Hi" in json.dumps(line["sample"]["request"])
    assert "HANDED-ON" not in json.dumps(line)
    assert "COOKIE1234" not in json.dumps(line)


def test_what_was_done_to_an_answer_stands_in_the_log():
    recorder = recorded()
    recorder.repair_counts, recorder.unrepaired_reasons = {"tool_calls.x": 2}, {"channels.y": "held too long"}
    (line,), counts = judged(recorder=recorder)
    assert line["acted"] == {"repaired": {"tool_calls.x": 2}, "blocked": [], "left": {"channels.y": "held too long"}}
    assert counts["acted", "tool_calls.x", "repaired"] == 2


def test_times_are_counted_by_what_was_told_when():
    _, counts = judged(recorder=recorded(EVENTS, b"text/event-stream"))
    assert counts["ttft_sum",] == 100_000
    assert counts["answer_ttft_sum",] == 200_000
    assert counts["gap_sum",] == 200_000
    assert from_json(json.loads(json.dumps(to_json(counts)))) == counts


def test_a_check_that_breaks_is_an_error_of_ours():
    @check(MUST, spec=next(iter(CLAUSES)), when=has_response)
    def breaks(x):
        """A check that breaks."""
        yield Finding(message=str(1 / 0))

    (line,), counts = judged(checks=(breaks,))
    assert line["errors"] == ["test_judge_queue.breaks"]
    assert "1 internal error of checks" in summary_line(counts)


def test_not_even_a_panic_ends_the_judging():
    @check(MUST, spec=next(iter(CLAUSES)), when=has_response)
    def panics(x):
        """A check that panics."""
        raise BaseException("as a tokenizer written in Rust does")  # noqa: TRY002

    lines, counts = judged(checks=(panics,))
    assert ([line["judged"] for line in lines], counts["problems",]) == ([False], 1)
    assert lines[0]["unjudged"].startswith("internal error: BaseException in harmony_conformance/judge/judge.py, line ")


def test_a_log_that_cannot_be_written_does_not_end_the_judging():
    def full(line):
        raise OSError(28, "No space left on device")

    _, counts = judged(write=full)
    assert (counts["judged",], counts["problems",]) == (1, 1)


@pytest.mark.parametrize("problem", [ValueError("closed"), RecursionError("nested")], ids=repr)
def test_nor_does_a_line_that_cannot_be_written(problem):
    def write(_):
        raise problem

    _, counts = judged(write=write)
    assert (counts["judged",], counts["problems",]) == (1, 1)


def test_nor_does_what_cannot_be_counted_and_that_is_counted_once(monkeypatch):
    def count_times(*_):
        raise ValueError("as no stream is")

    monkeypatch.setattr("harmony_proxy.judging.counters._count_times", count_times)
    lines, counts = judged()
    assert (counts["problems",], counts["exchanges", "", "complete"], counts["judged",], len(lines)) == (1, 1, 0, 1)
    assert sum(times for name, times in counts.items() if name[0] == "exchanges") == 1


def test_settings_travel_as_an_argument():
    settings = JudgeSettings(log=Path("a b"), excerpts="full", capture="redacted", engine="vllm", priority="normal")
    assert read_settings(settings.argument()) == settings


@pytest.fixture
def begun(tmp_path):
    said = []
    one = JudgeQueue(JudgeSettings(log=tmp_path / "log", priority="normal"), on_message=said.append)
    one.said, one.log = said, tmp_path / "log"
    one.start()
    yield one
    one.close()


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_told_to_stop_it_judges_all_that_is_queued_in_the_order_of_ending(begun):
    with socket.create_server(("127.0.0.1", 0)):
        begun.enqueue(*handed(0))
        until(lambda: begun.tally["judged",] == 1)
        folder = Path(f"/proc/{begun.process_id}/fd")
        links = [str(entry.readlink()) for entry in folder.iterdir()] if folder.exists() else []
        assert not [link for link in links if link.startswith("socket:")], "it has none of our sockets"
    os.kill(begun.process_id, signal.SIGTERM)
    for number in range(1, 100):
        begun.enqueue(*handed(number))
    begun.close()
    lines = [json.loads(line) for line in begun.log.read_bytes().splitlines()]
    assert [line["id"] for line in lines] == [f"run-{number}" for number in range(100)]
    assert summary_line(begun.tally).startswith("100 exchanges, 100 judged, 100 failed a MUST check")
    assert not folder.exists(), "it ended with its stdin"


def test_large_exchanges_and_small_ones_arrive_whole(begun):
    large = json.dumps({**LEAK, "padding": "x" * 2_000_000}).encode()
    for number in range(6):
        begun.enqueue(*handed(number, chunks=(large,) if number % 2 else ANSWER))
    begun.close()
    lines = [json.loads(line) for line in begun.log.read_bytes().splitlines()]
    assert [line["response_bytes"] for line in lines] == [len(ANSWER[0]), len(large)] * 3


def test_a_process_that_dies_is_said_counted_and_begun_again(begun):
    begun.enqueue(*handed(1))
    until(lambda: begun.tally["judged",] == 1)
    os.kill(begun.process_id, signal.SIGKILL)
    time.sleep(0.1)
    begun.enqueue(*handed(2))
    until(lambda: begun.tally["judged",] == 2)
    assert begun.tally["restarts",] == 1
    (message,) = begun.said
    assert message.startswith("the judge process ended and is restarted in 0.2 s")
    assert "blocks of a policy go on" in message


def test_a_signal_to_reload_does_not_end_the_process(begun):
    begun.enqueue(*handed(1))
    until(lambda: begun.tally["judged",] == 1)
    os.kill(begun.process_id, signal.SIGHUP)
    begun.enqueue(*handed(2))
    until(lambda: begun.tally["judged",] == 2)
    assert (begun.tally["restarts",], begun.said) == (0, [])


def test_a_process_that_is_killed_often_comes_back_each_time(begun, monkeypatch):
    monkeypatch.setattr(handing_module, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(handing_module, "LONGEST_PAUSE_SECONDS", 0.02)
    for number in range(1, 8):
        until(lambda: begun.process_id is not None)
        os.kill(begun.process_id, signal.SIGKILL)
        until(lambda number=number: len(begun.said) == number)
    begun.enqueue(*handed(1))
    until(lambda: begun.tally["judged",] == 1)
    assert begun.is_judging
    assert "in 0.02 s" in begun.said[-1], "the pause has a limit"


@pytest.mark.parametrize("program", ["/bin/false", "/does/not/exist"])
def test_one_that_cannot_be_begun_is_told_and_everything_is_counted(monkeypatch, program):
    monkeypatch.setattr(handing_module.sys, "executable", program)
    said = []
    one = JudgeQueue(JudgeSettings(), on_message=said.append)
    assert one.is_judging, "it is not started yet"
    one.start()
    for number in range(3):
        one.enqueue(*handed(number))
    until(lambda: not one.is_judging and one.tally["restarts",] > 1)
    one.enqueue(*handed(3))
    one.close()
    assert one.tally["dropped",] + one.tally["lost",] == 4
    assert all("restarted in" in words for words in said)


@pytest.mark.parametrize(("bound", "count"), [({"queued_exchanges": 2}, 2), ({"queued_bytes": 1}, 0)])
def test_a_full_queue_is_counted_and_never_waited_for(bound, count):
    one = JudgeQueue(JudgeSettings(), **bound)  # not started: nobody takes anything out
    for number in range(5):
        one.enqueue(*handed(number))
    assert one.queue_length == count
    assert one.tally["dropped",] == 5 - count
    assert f"{5 - count} not judged: the queue was full" in summary_line(one.tally)


def test_a_full_queue_drops_some_at_a_time_and_says_when_to_ask_again():
    one = JudgeQueue(JudgeSettings(), queued_exchanges=640)
    for number in range(640):
        one.enqueue(*handed(number))
    assert (one.queue_length, one.tally["dropped",]) == (640, 0)
    for number in range(10):
        one.enqueue(*handed(number))
    assert (one.queue_length, one.tally["dropped",]) == (650, 0)
    one.enqueue(*handed(11))
    assert (one.queue_length, one.tally["dropped",]) == (640, 11)


def test_a_process_whose_parent_died_judges_what_it_has_and_says_nothing(tmp_path):
    """It is handed all there is and nobody listens to it: as where the process of the traffic was killed."""
    log = tmp_path / "log.jsonl"
    frames = b"".join(b"".join(encode_frame(encode_exchanges([handed(number)[0]])[0])) for number in range(3))
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "harmony_proxy.judging.judge_process", JudgeSettings(log=log).argument()],
        input=frames,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert len(log.read_bytes().splitlines()) == 3


def test_what_cannot_be_packed_is_counted_and_takes_no_other_with_it():
    one = JudgeQueue(JudgeSettings(), queued_exchanges=3)  # packed as soon as the queue would be full
    for number in range(3):
        recorder = recorded()
        if number == 1:
            recorder.response_head(200, [(b"x-own", object())])
        one.enqueue(recorder.pack(f"run-{number}", 1.5), recorder.cost)
    assert (one.queue_length, one.tally["problems",], one.tally["dropped",]) == (2, 1, 0)
    ((body, count),) = one._dequeue_batches()
    assert ([kept.id for kept in decode_frame(body)], count, one.queue_length) == (["run-0", "run-2"], 2, 0)


def test_what_is_dropped_is_not_counted_as_a_problem_too():
    one = JudgeQueue(JudgeSettings(), queued_bytes=64)
    for headers in ((), [(b"one", object())]):
        recorder = Recorder()
        recorder.response_head(200, headers)
        one.finished_exchanges.append(recorder.pack("run", 1.5))
    one.pack()
    assert one.tally == {("dropped",): 1, ("problems",): 1}


class _Odd(tuple):
    """A header of a kind of its own."""

    __slots__ = ()


def noted(*told, headers=()):
    return [b"run /v1/chat/completions", 1, headers, 1.5, *told]


def test_a_request_in_parts_is_packed_beside_what_is_of_a_kind_of_its_own():
    body, count = encode_exchanges([noted(b"{", ..., b"}", 200, 1.6, b"", None), noted(headers=[_Odd((b"a", b"b"))])])
    first, second = decode_frame(body)
    assert (count, first.request_body, first.end, second.request_headers) == (2, b"{}", "complete", ((b"a", b"b"),))


def test_one_that_cannot_be_read_ends_nothing_and_is_a_problem():
    body, _ = encode_exchanges(
        [noted(b"{}", 500, (b"of", b"three", b"parts"), 1.6, b"", None), noted(b"{}", 200, 1.6, b"", None)]
    )
    counts = Counter()
    for kept in decode_frame(body):
        ExchangeJudge(JudgeSettings(), [].append, ()).judge(kept, counts)
    assert (counts["problems",], counts["exchanges", "chat", "complete"]) == (1, 1)


def test_half_a_line_of_counts_leaves_the_counts_before_it():
    one = JudgeQueue(JudgeSettings())
    whole = handing_module.TOTALS + b'{"exchanges":1,"counts":[[["judged"],1]]}'
    one._listen(SimpleNamespace(stdout=io.BytesIO(whole + b"\n" + whole[:-9])))
    assert one.tally == {("judged",): 1}


def test_a_few_wait_as_they_are_and_many_are_packed_in_the_order_of_ending():
    one = JudgeQueue(JudgeSettings())
    for number in range(40):
        one.enqueue(*handed(number))
    assert (len(one._packed), len(one.finished_exchanges), one.queue_length) == (1, 8, 40)
    told = [
        kept.id
        for batches in (one._dequeue_batches(), one._dequeue_batches())
        for body, _ in batches
        for kept in decode_frame(body)
    ]
    assert (told, one.queue_length) == ([f"run-{number}" for number in range(40)], 0)
    one.enqueue(*handed(40, chunks=(b"x" * 20_000,)))
    assert (len(one._packed), len(one.finished_exchanges)) == (1, 0), "a large one does not wait for others"

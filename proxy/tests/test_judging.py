import json
from threading import Event

from harmony_conformance.audit.excerpt import Excerpts
from harmony_conformance.check import MUST, Finding, Outcome, check
from harmony_conformance.checks import CHECKS
from harmony_conformance.conditions import has_response
from harmony_conformance.spec import CLAUSES
from harmony_proxy.judging import Handed, Judging
from harmony_proxy.recorder import Recorder

SECRET = "Sue"
LEAK = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": f"<|channel|>analysis<|message|>{SECRET}<|end|>"},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 60, "completion_tokens": 5, "total_tokens": 65},
}


def handed(number=1):
    recorder = Recorder()
    recorder.request_head("POST", "/v1/chat/completions", [(b"authorization", b"Bearer sk-123456")])
    recorder.request_body(json.dumps({"model": "m", "messages": [{"role": "user", "content": SECRET}]}).encode())
    recorder.response_head(200, [(b"content-type", b"application/json")])
    recorder.feed(json.dumps(LEAK).encode(), 0.1)
    recorder.end(0.2)
    return Handed(recorder=recorder, number=number, started="2026-01-31T12:00:00.000+00:00")


def judged(*, excerpts=Excerpts.NONE, checks=CHECKS, count=1, write=None):
    lines = []
    judging = Judging(checks, write or lines.append, excerpts=excerpts)
    judging.start()
    for number in range(1, count + 1):
        judging.hand_over(handed(number))
    judging.close()
    return lines, judging.summary


def test_the_log_names_checks_and_holds_nothing_of_the_content():
    (line,), summary = judged()
    assert "channels.no_marker_leak" in line["failed"]
    assert line["outcomes"]["fail"] == len(line["failed"])
    assert sum(line["outcomes"].values()) == len(CHECKS)
    assert (line["judged"], line["status"], line["path"]) == (True, 200, "/v1/chat/completions")
    assert SECRET not in json.dumps(line)
    assert "<|" not in json.dumps(line)
    assert str(summary).startswith("1 exchanges went by, 1 judged, 1 broke a MUST; failed most: ")


def test_excerpts_are_redacted_or_full():
    (redacted,), _ = judged(excerpts=Excerpts.REDACTED)
    (full,), _ = judged(excerpts=Excerpts.FULL)
    assert "<|channel|>analysis<|message|>xxx" in json.dumps(redacted)
    assert SECRET not in json.dumps(redacted)
    assert SECRET in json.dumps(full)


def test_all_that_is_queued_is_judged_before_it_stops_in_the_order_of_ending():
    lines, summary = judged(count=50)
    assert [line["id"] for line in lines] == list(range(1, 51))
    assert summary.exchanges == 50


def test_a_full_queue_is_counted_and_never_waited_for():
    release = Event()
    begun = Event()

    @check(MUST, spec=next(iter(CLAUSES)), when=has_response)
    def waits(x):
        """A check that takes its time."""
        begun.set()
        assert release.wait(20)
        yield from ()

    lines = []
    judging = Judging((waits,), lines.append, queued_exchanges=2)
    judging.start()
    judging.hand_over(handed(1))
    assert begun.wait(20)
    for number in range(2, 6):
        judging.hand_over(handed(number))
    assert judging.summary.dropped == 3
    release.set()
    judging.close()
    assert [line["id"] for line in lines] == [1, 2]
    assert "3 not judged: the queue was full" in str(judging.summary)


def test_the_queue_is_bounded_in_bytes_too():
    judging = Judging(CHECKS, print, queued_bytes=handed().recorder.cost + 1)
    judging.hand_over(handed())
    judging.hand_over(handed())
    assert judging.summary.dropped == 1


def test_a_check_that_breaks_is_an_error_of_ours():
    @check(MUST, spec=next(iter(CLAUSES)), when=has_response)
    def breaks(x):
        """A check that breaks."""
        yield Finding(message=str(1 / 0))

    (line,), summary = judged(checks=(breaks,))
    assert line["errors"] == ["test_judging.breaks"]
    assert summary.outcomes[Outcome.ERROR] == 1
    assert "1 errors of our own checks" in str(summary)


def test_a_log_that_cannot_be_written_does_not_end_the_judging():
    def full(line):
        raise OSError(28, "No space left on device")

    _, summary = judged(count=3, write=full)
    assert (summary.exchanges, summary.problems) == (3, 3)
    assert "3 problems of our own" in str(summary)

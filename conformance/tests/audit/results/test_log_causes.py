"""Causes of the failures of a log: no likeness is claimed that the exchanges cannot show."""

import json

import pytest

from harmony_conformance.audit.results import log_causes
from harmony_conformance.cli.main import main
from harmony_conformance.judge.check import Finding, Outcome, Severity
from harmony_conformance.judge.judge import Result
from harmony_conformance.redactable_text import RedactableText


def streamed(number, *, cut):
    """Return a recorded stream of three events. One that was cut has the first event alone."""
    head = {"id": f"c{number}", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas = [({"role": "assistant", "content": "Hello."}, None), ({}, "stop")][: 1 if cut else 2]
    events = [{**head, "choices": [{"index": 0, "delta": one, "finish_reason": end}]} for one, end in deltas]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n" * (not cut)
    asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    return {
        "kind": "exchange",
        "id": f"traffic/chat/s/{number}",
        "api": "chat",
        "validity": "valid",
        "request": {"method": "POST", "path": "/v1/chat/completions", "headers": {}, "json": asked},
        "response": {"status": 200, "headers": {"content-type": "text/event-stream"}, "chunks": [[0.1, body]]},
        "failure": {"kind": "cut", "detail": "the connection ended"} if cut else None,
    }


def test_a_broken_stream_is_no_likeness_to_a_defect(tmp_path, capsys):
    (log := tmp_path / "log.jsonl").write_text("".join(json.dumps(streamed(n, cut=n == 0)) + "\n" for n in range(4)))
    main(["audit", str(log), "--out", str(tmp_path / "out"), "--workers", "1"])
    shown = capsys.readouterr().out
    assert "FAILED MUST errors.valid_request_is_answered: 1 of 4 exchanges" in shown
    assert "FAILED MUST streaming.ends_with_done: 1 of 4 exchanges" in shown
    rows = [json.loads(line) for line in (tmp_path / "out" / "audit.jsonl").read_text("utf-8").splitlines()]
    assert [row["defects"] for row in rows if row["kind"] == "cause"] == [[]]
    assert "no known cause fits" in shown
    assert "websocket" not in shown


@pytest.mark.parametrize(("judges_websocket", "seen"), [(False, False), (True, True)])
def test_a_cause_about_websockets_needs_a_check_of_websockets(judges_websocket, seen):
    finding = Finding(message=RedactableText("the exchange failed ({}): {}", "cut", "x"), exchange="0")
    checks = ["errors.valid_request_is_answered", *["responses.websocket_errors_are_events"] * judges_websocket]
    results = [
        Result(name, Severity.MUST, None, "traffic", "responses", Outcome.FAIL, findings=(finding,) * (not place))
        for place, name in enumerate(checks)
    ]
    results = [one._replace(applied=1, passed=int(place > 0)) for place, one in enumerate(results)]
    assert ("websocket-closes-after-error" in log_causes._signatures(results)) is seen

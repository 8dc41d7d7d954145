"""Exchanges of a page: which are shown, what is shown of them, and that no text becomes markup."""

import json

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import dumps
from harmony_conformance.report.pages.exchange_view import EventKind, exchange_views, shown_exchanges
from harmony_conformance.report.pages.html import html
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi <|start|>"}], "api_key": "sk-secret"}


def event(seconds, **delta):
    chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    return Chunk(arrival_time=seconds, data=f"data: {dumps(chunk)}\n\n".encode())


def exchange(name, *chunks, failure=None, content_type="text/event-stream"):
    response = Response(status=200, chunks=chunks, headers={"content-type": content_type}) if chunks else None
    request = Request(path="/v1/chat/completions", body=dumps(BODY).encode())
    return Exchange(id=name, request=request, response=response, failure=failure, script=(200005, 17196, 200008, 12194))


STREAM = exchange(
    "s/chat/answer+stream/0",
    event(0.1, role="assistant"),
    event(0.2, reasoning="Think."),
    event(0.3, content="Hi"),
    event(0.4, tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]),
    Chunk(arrival_time=0.4, data=b"data: [DONE]\n\n"),
)


def mask(text):
    return text.replace("sk-secret", "***")


def test_events_of_a_stream():
    view = exchange_views([STREAM.id, "unknown"], [STREAM], mask)[STREAM.id]
    assert [one.kind for one in view.events] == [
        EventKind.OTHER, EventKind.REASONING, EventKind.ANSWER, EventKind.CALL, EventKind.OTHER
    ]  # fmt: skip
    assert [round(one.milliseconds) for one in view.events] == [100, 200, 300, 400, 400]
    assert [one.place for one in view.events] == pytest.approx([0.25, 0.5, 0.75, 1, 1])
    assert view.script == "<|channel|>final<|message|>Hi"
    assert json.loads(view.request) == {**BODY, "api_key": "***"}
    assert (view.request_line, view.result) == ("POST /v1/chat/completions", "HTTP 200 after 0.400 s")


def test_answer_without_a_stream_and_no_answer():
    whole = exchange("s/chat/answer/0", Chunk(arrival_time=1.5, data=b"\xff no JSON"), content_type="text/plain")
    lost = exchange("s/chat/lost/0", failure=Failure(kind=FailureKind.TIMEOUT, detail="no byte for 60 s"))
    views = exchange_views([lost.id, whole.id], [whole, lost], mask)
    assert list(views) == [lost.id, whole.id]
    assert (views[whole.id].body, views[whole.id].events) == ("\N{REPLACEMENT CHARACTER} no JSON", ())
    assert views[lost.id].result == "no response; timeout: no byte for 60 s"


def test_page_links_failures_to_exchanges(samples):
    from dataclasses import replace

    from harmony_conformance.judge.check import Outcome

    finding = {**samples.finding("wrong <b>"), "exchange": STREAM.id}
    report = samples.report(samples.result(Outcome.FAIL, findings=(finding,)))
    example = {"check": "c.d", "exchange": STREAM.id, "scenario": "s", "at": "", "message": "m"}
    report = replace(
        report, causes=({"id": "x-y", "severity": "must", "sentence": "S.", "results": 1, "example": example},)
    )
    assert shown_exchanges(report) == (STREAM.id,)
    attack = Exchange(
        **{**vars_of(STREAM), "request": Request(path="/<script>", body=b'"<img src=x onerror=alert(1)>"')}
    )
    page = html(report, exchanges=exchange_views(shown_exchanges(report), [attack], mask))
    assert page.count('href="#exchange-1"') == 2  # the cause and the finding
    assert page.count('id="exchange-1"') == 1
    assert "<img" not in page
    assert page.count("<script>") == 1
    assert '<span class="chip">&lt;|channel|&gt;</span>' in page
    assert 'class="reasoning" style="left:50.00%"' in page


def vars_of(x):
    return {name: getattr(x, name) for name in ("id", "response", "script")}


def test_run_and_report_show_the_same_exchanges(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["--select", "tool_call", "--latency", "0", "--out", str(out)]
    assert main(["run", "reference:defect=output-unparsed", *words]) == 1
    capsys.readouterr()
    written = (out / "report.html").read_text("utf-8")
    assert main(["report", str(out)]) == 0
    assert capsys.readouterr().out == written + "\n"
    assert "Prompt that reached the model" in written


def test_secrets_of_a_request_are_masked_in_the_page(tmp_path, capsys):
    out = tmp_path / "run"
    secret = "canary-9d1f4c"
    extra = json.dumps({"api_key": secret})
    main(
        [
            "run",
            "reference:defect=output-unparsed",
            "--select",
            "simple_answer",
            "--extra-body",
            extra,
            "--out",
            str(out),
            "--latency",
            "0",
        ]
    )
    assert secret not in (out / "report.html").read_text("utf-8")
    assert "Exchanges</h2>" in (out / "report.html").read_text("utf-8")

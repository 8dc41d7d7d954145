"""What a client gets of a server that breaks a stream on the wire, and which checks say so: each way of breaking, byte by byte."""

import asyncio
import gzip
import json

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.judge import judge_one
from harmony_conformance.transport.client import Client, ConnectionSettings
from harmony_conformance.transport.messages import FailureKind, Request

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
ASK = Request(path="/v1/chat/completions", body=json.dumps(ASKED).encode())
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
RULES = tuple(rule for rule in CHECKS if rule.severity is Severity.MUST)


def event(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


ROLE = event({"role": "assistant", "content": ""})
TEXT = event({"content": "Où ça ? 🧑‍🚀"})
STOP = event({}, "stop")
DONE = b"data: [DONE]\n\n"
WHOLE = ROLE + TEXT + STOP + DONE
ERROR = b'data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\n'
LIMIT = b'data: {"error": {"message": "Too long.", "code": 400}}\n\n'


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def of_length(body, length=None, *headers):
    lines = b"".join(header + b"\r\n" for header in headers)
    return HEAD + lines + b"content-length: %d\r\n\r\n" % (len(body) if length is None else length) + body


def judged(url, timeout=5.0):
    """The exchange, and the MUST checks that fail on it."""

    async def once():
        async with Client(ConnectionSettings(base_url=url, headers={}, timeout=timeout)) as client:
            return await client.send(ASK)

    sent = asyncio.run(once())
    x = Exchange(id="x", step="x", request=ASK, response=sent.response, failure=sent.failure, validity=Validity.VALID)
    series = Series(name="s", exchanges={"x": x})
    results = [judge_one(rule, [series], exercised=False) for rule in RULES]
    assert [result.reason for result in results if result.outcome is Outcome.ERROR] == []
    return x, {result.check: result.findings[0] for result in results if result.outcome is Outcome.FAIL}


ANSWERED, ENDED = "errors.valid_request_is_answered", "streaming.ends_with_done"
UNFINISHED = {"streaming.one_finish_reason", "tool_calls.finish_reason_agrees"}
CUT_CHARACTER = TEXT.index("🧑".encode()) + 2
BROKEN = {
    "whole": (CHUNKED + chunk(WHOLE) + chunk(b""), None, set()),
    "one byte at a time": (CHUNKED + b"".join(chunk(bytes([b])) for b in WHOLE) + chunk(b""), None, set()),
    "of a known length": (of_length(WHOLE), None, set()),
    "packed": (of_length(gzip.compress(WHOLE), None, b"content-encoding: gzip"), None, set()),
    "closed as in HTTP/1.0": (HEAD.replace(b"1.1", b"1.0") + b"\r\n" + WHOLE, None, set()),
    "with comments to keep it alive": (CHUNKED + chunk(b": ping\n\n" + ROLE + b": ping\n\n" + TEXT + STOP + DONE) + chunk(b""), None, set()),
    "nothing but comments": (CHUNKED + chunk(b": ping\n\n" * 3) + chunk(b""), None, {ANSWERED, ENDED}),
    "empty": (CHUNKED + chunk(b""), None, {ANSWERED, ENDED}),
    "cut within an event": (CHUNKED + chunk(ROLE + TEXT[:20]), FailureKind.CUT, {ANSWERED, ENDED}),
    "cut within a character": (CHUNKED + chunk(ROLE + TEXT[:CUT_CHARACTER]), FailureKind.CUT, {ANSWERED, ENDED}),
    "cut between events": (CHUNKED + chunk(ROLE + TEXT), FailureKind.CUT, {ANSWERED, ENDED}),
    "ended between events": (CHUNKED + chunk(ROLE + TEXT) + chunk(b""), None, {ENDED, *UNFINISHED}),
    "cut before the end": (CHUNKED + chunk(ROLE + TEXT + STOP), FailureKind.CUT, {ANSWERED, ENDED}),
    "a chunk without its length": (CHUNKED + chunk(ROLE) + b"zz\r\n" + TEXT, FailureKind.MALFORMED_HTTP, {ANSWERED, ENDED}),
    "shorter than announced": (of_length(ROLE + TEXT, len(WHOLE)), FailureKind.CUT, {ANSWERED, ENDED}),
    "longer than announced": (of_length(WHOLE, len(ROLE + TEXT)), None, {ENDED, *UNFINISHED}),
    "packed and cut": (of_length(gzip.compress(WHOLE)[:60], None, b"content-encoding: gzip"), FailureKind.MALFORMED_HTTP, {ANSWERED, ENDED}),
    "an error first": (CHUNKED + chunk(ERROR + DONE) + chunk(b""), None, {ANSWERED}),
    "a refusal under 200": (CHUNKED + chunk(LIMIT + DONE) + chunk(b""), None, {ANSWERED}),
    "an error in the middle": (CHUNKED + chunk(ROLE + TEXT + ERROR) + chunk(b""), None, {ANSWERED}),
    "an error in the middle, and on": (CHUNKED + chunk(ROLE + ERROR + TEXT + STOP + DONE) + chunk(b""), None, {ANSWERED, ENDED}),
}  # fmt: skip


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_broken_is_reported_and_nothing_else(raw_server, how):
    data, kind, failing = BROKEN[how]
    x, failed = judged(raw_server(lambda connection, request: connection.sendall(data)).url)
    assert (x.failure.kind if x.failure else None) is kind
    assert set(failed) == failing


def test_json_where_a_stream_was_asked_for(raw_server):
    body = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}'
    data = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    _, failed = judged(raw_server(lambda connection, request: connection.sendall(data)).url)
    assert "streaming.is_a_stream" in failed


def test_a_stream_that_stalls_is_given_up_after_the_timeout_and_its_last_event_told(raw_server):
    held = []

    def answer(connection, request):
        connection.sendall(CHUNKED + chunk(ROLE + TEXT))
        held[0].closing.wait(30)

    held.append(raw_server(answer))
    x, failed = judged(held[0].url, timeout=0.3)
    assert x.failure.kind is FailureKind.TIMEOUT
    assert set(failed) == {ANSWERED}
    finding = failed[ANSWERED]
    assert "no byte arrived for 0.3 s" in finding.message
    assert finding.location == "after event 2"
    assert "Où ça ?" in finding.excerpt


@pytest.mark.parametrize(("events", "place"), [(ERROR, 0), (ROLE + ERROR, 1), (ROLE + TEXT + ERROR, 2)])
def test_the_event_with_the_error_is_reported(raw_server, events, place):
    data = CHUNKED + chunk(events) + chunk(b"")
    _, failed = judged(raw_server(lambda connection, request: connection.sendall(data)).url)
    assert failed[ANSWERED].location == f"event {place}"

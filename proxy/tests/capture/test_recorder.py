import gzip
import json
from http import HTTPStatus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.checks import CHECKS
from harmony_conformance.judge.applicability import build_index
from harmony_conformance.judge.judge import judge_split
from harmony_conformance.transport.messages import FailureKind
from harmony_proxy.capture.build_exchange import build_exchange
from harmony_proxy.capture.recorder import End, Recorder
from harmony_proxy.judging.judge_settings import LENGTH_BYTES
from harmony_proxy.judging.outcome_log import Samples, log_line
from harmony_proxy.judging.queue_codec import decode_frame, encode_exchanges, encode_frame

PATH = "/v1/chat/completions"
ASKED = b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": true}'
EVENTS = [b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\n', b"data: [DONE]\n\n"]
KEY = "sk-abcdef123456"


def read(recorder, name="x"):
    """What the other process makes of what is handed to it."""
    body, count = encode_exchanges([recorder.pack(name, 0.0)])
    assert count == 1
    return build_exchange(*decode_frame(b"".join(encode_frame(body))[LENGTH_BYTES:]))


def recorded(
    chunks=EVENTS, *, headers=((b"Content-Type", b"text/event-stream"),), limit=10_000, path=PATH, method="POST"
):
    recorder = Recorder(limit=limit)
    recorder.request_head(
        method, path, [(b"Authorization", f"Bearer {KEY}".encode()), (b"X-Request-Id", b"r1"), (b"Cookie", b"c=secret")]
    )
    recorder.request_body(ASKED)
    recorder.response_head(200, headers)
    for number, chunk in enumerate(chunks, start=1):
        recorder.feed(chunk, number / 10)
    return recorder


def test_an_exchange_is_put_together_as_it_went_by():
    recorder = recorded()
    recorder.end(0.5)
    told = read(recorder)
    x = told.exchange
    assert x is not None
    assert x.request.body == ASKED
    assert [(chunk.arrival_time, chunk.data) for chunk in x.response.chunks] == [(0.1, EVENTS[0]), (0.2, EVENTS[1])]
    assert x.turn.content == "Hi"
    assert x.failure is None
    assert (told.record.status, told.end, told.record.first_byte, told.record.seconds) == (200, End.COMPLETE, 0.1, 0.5)
    assert (told.record.chunks, told.record.response_bytes, told.record.request_bytes) == (
        2,
        sum(map(len, EVENTS)),
        len(ASKED),
    )
    assert told.request_id == "r1"


@pytest.mark.parametrize("cut", range(len(b"".join(EVENTS))))
def test_where_chunks_end_makes_no_difference_to_what_is_read(cut):
    whole = b"".join(EVENTS)
    recorder = recorded([whole[:cut], whole[cut:]])
    recorder.end(1.0)
    x = read(recorder).exchange
    assert [event.data for event in x.stream.events][-1] == "[DONE]"
    assert x.turn.content == "Hi"


def test_headers_that_count_tokens_are_kept_and_others_are_not():
    named = [(b"X-Prompt-Tokens", b"7"), (b"x-generated-tokens", b"6"), (b"x-compute-type", b"gpu")]
    recorder = recorded(headers=((b"Content-Type", b"text/event-stream"), *named))
    recorder.end(1.0)
    kept = read(recorder).exchange.response.headers
    assert (kept["x-prompt-tokens"], kept["x-generated-tokens"], "x-compute-type" in kept) == ("7", "6", False)


def test_credentials_and_queries_are_not_kept():
    recorder = recorded([f"your key {KEY} is wrong".encode()], path=f"{PATH}?key={KEY}")
    recorder.end(1.0)
    told = read(recorder)
    assert told.exchange.response.body == b"your key *** is wrong"
    assert KEY not in repr(told.exchange)
    assert "secret" not in repr(told.exchange)


TOKEN = "tk-abcdef123456"
MCP = {"type": "mcp", "server_label": "weather", "require_approval": "never"}
HELD = {
    "in the query": {"path": f"{PATH}?api_key={TOKEN}"},
    "in the user of the URL of a tool": {"tool": {**MCP, "server_url": f"https://{TOKEN}@mcp.example/sse"}},
    "in the query of the URL of a tool": {"tool": {**MCP, "server_url": f"https://mcp.example/sse?key={TOKEN}"}},
    "in a cookie that the server sets": {"headers": [(b"Set-Cookie", f"sid={TOKEN}; Path=/".encode())]},
    "in a header": {"asked": [(b"X-Api-Key", TOKEN.encode())]},
}


@pytest.mark.parametrize("place", HELD)
def test_a_secret_stands_nowhere_in_a_line_nor_in_its_sample(place):
    how = HELD[place]
    recorder = Recorder()
    recorder.request_head("POST", how.get("path", PATH), how.get("asked", []))
    recorder.request_body(json.dumps({**json.loads(ASKED), "tools": [how["tool"]] if "tool" in how else []}).encode())
    echo = [(b"x-request-id", TOKEN.encode()), (b"server", b"wsgi " + TOKEN.encode())]
    recorder.response_head(200, [(b"content-type", b"text/event-stream"), *how.get("headers", []), *echo])
    recorder.feed(f'data: {{"choices": [{{"index": 0, "delta": {{"content": "{TOKEN}"}}}}]}}\n\n'.encode(), 0.1)
    recorder.end(0.2)
    told = read(recorder)
    _, results = judge_split(told.exchange, build_index(CHECKS))
    sample = Samples(Excerpts.FULL).select_sample(told.exchange, results)
    line = log_line(told, "", results, 0, Excerpts.FULL)
    assert sample is not None
    assert TOKEN not in json.dumps([line, sample])
    assert "***" in json.dumps(sample["response"])


def test_a_key_that_is_echoed_across_chunks_is_masked_too():
    recorder = recorded([b"your key " + KEY[:5].encode(), KEY[5:].encode() + b" is wrong"])
    recorder.end(1.0)
    assert read(recorder).exchange.response.body == b"your key *** is wrong"


@pytest.mark.parametrize(
    ("header", "value", "echo"),
    [
        ("Api-Key", 'odd"key/1', rb'{"error": "odd\"key\/1"}'),
        ("X-Goog-Token", "abcdef-1", b"?token=abcdef-1"),
        ("Cookie", "session=aXbYcZ", b"session=aXbYcZ"),
    ],
    ids=["as JSON", "a header of another name", "a cookie"],
)
def test_any_credential_is_masked_however_it_is_written(header, value, echo):
    recorder = Recorder()
    recorder.request_head("POST", PATH, [(header.encode(), value.encode())])
    recorder.response_head(401, [])
    recorder.feed(echo, 0.1)
    recorder.end(0.2)
    body = read(recorder).exchange.response.body
    assert body != echo
    assert b"***" in body


GZIP = (b"content-encoding", b"gzip")
UNREADABLE = {
    "not judged": {"coding": b"lzma"},
    "named by the server": {"coding": TOKEN.encode()},
    "a body in another coding": {"asked": [GZIP]},
    "half a body": {"cut": -2},
    "a body that is not kept": {"limit": 2200},
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_secret_of_the_body_stands_in_no_line_of_an_exchange_that_is_not_judged(case):
    how = UNREADABLE[case]
    recorder = Recorder(limit=how.get("limit", 10_000))
    recorder.request_head("POST", PATH, how.get("asked", []))
    recorder.request_body(json.dumps({"model": "m" * 100, "api_key": TOKEN}).encode()[: how.get("cut")])
    recorder.response_head(200, [(b"x-request-id", TOKEN.encode()), (b"content-encoding", how.get("coding", b"lzma"))])
    recorder.feed(b"x" * 100, 0.1)
    recorder.abort(End.COMPLETE, "", 0.2)
    told = read(recorder)
    assert told.exchange is None
    assert TOKEN not in json.dumps(log_line(told, "", (), 0, Excerpts.FULL))


def test_a_secret_is_masked_in_the_reasons_for_what_was_not_done():
    recorder = recorded()
    recorder.unrepaired_reasons = {"*": f"no {KEY}"}
    recorder.abort(End.REFUSED, f"bad {KEY}", 0.2)
    told = read(recorder)
    assert told.unjudged_reason == "the proxy did not pass all of the request on: bad ***"
    assert log_line(told, "", (), 0, Excerpts.FULL)["acted"]["left"] == {"*": "no ***"}
    recorder = recorded()
    recorder.abort(End.CUT, f"bad {KEY}", 0.2)
    assert read(recorder).exchange.failure.detail == "bad ***"


@pytest.mark.parametrize(("number", "length", "is_judged"), [(64, 8, True), (65, 8, False), (2, 8193, False)])
def test_more_credentials_than_can_be_masked_leave_no_text(number, length, is_judged):
    recorder = Recorder()
    words = [f"{one:0{length}}" for one in range(number)]
    recorder.request_head("POST", PATH, [(b"authorization", word.encode()) for word in words])
    recorder.request_body(ASKED)
    recorder.response_head(200, [(b"content-type", b"text/event-stream"), (b"x-request-id", words[-1].encode())])
    recorder.feed(EVENTS[1], 0.1)
    recorder.unrepaired_reasons = {"*": words[0]}
    recorder.abort(End.CUT, words[0], 0.2)
    told = read(recorder)
    assert (told.exchange is not None) is is_judged
    assert told.unjudged_reason == ("" if is_judged else "too many credentials to mask")
    assert not any(word in repr((log_line(told, "", (), 0, Excerpts.FULL), told.exchange)) for word in words)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (End.NO_CONNECTION, FailureKind.NO_CONNECTION),
        (End.RESET, FailureKind.RESET),
        (End.CUT, FailureKind.CUT),
    ],
)
def test_what_the_server_did_is_a_failure_of_the_exchange(end, kind):
    recorder = recorded()
    recorder.abort(end, "detail", 0.4)
    failure = read(recorder).exchange.failure
    assert (failure.kind, failure.detail) == (kind, "detail")


UNJUDGED = [
    pytest.param({"path": "/v1/models"}, End.COMPLETE, "not a request of a supported API", id="another path"),
    pytest.param({"method": "GET"}, End.COMPLETE, "not a request of a supported API", id="another method"),
    pytest.param(
        {"chunks": EVENTS[:1]}, End.CLIENT_LEFT, "the client left before the answer was complete", id="the client left"
    ),
    pytest.param({}, End.SHUT_DOWN, "the proxy was stopped before the answer was complete", id="stopped"),
    pytest.param({"limit": 2200}, End.COMPLETE, "larger than the limit of 2200 bytes for an exchange", id="large"),
    pytest.param(
        {"headers": [(b"content-encoding", b"gzip")]},
        End.COMPLETE,
        "invalid gzip body: Error -3 while decompressing data: incorrect header check",
        id="wrongly packed",
    ),
    pytest.param(
        {"headers": [(b"content-encoding", b"lzma")]},
        End.COMPLETE,
        "unsupported content encoding: expected gzip, x-gzip, deflate, br, zstd",
        id="packed otherwise",
    ),
]


@pytest.mark.parametrize(("how", "end", "why"), UNJUDGED)
def test_what_is_not_judged_says_why(how, end, why):
    recorder = recorded(**how)
    recorder.abort(end, "", 1.0)
    told = read(recorder)
    assert told.exchange is None
    assert told.unjudged_reason == why
    assert told.record.response_bytes == sum(map(len, how.get("chunks", EVENTS)))


TOLD_TO_THE_END = [
    pytest.param(PATH, "text/event-stream", EVENTS, id="[DONE]"),
    pytest.param(
        "/v1/responses",
        "text/event-stream",
        [b'event: response.completed\ndata: {"type": "response.completed", "response": {"status": "completed"}}\n\n'],
        id="response.completed",
    ),
    pytest.param("/api/chat", "application/x-ndjson", [b'{"message": {"content": "Hi"}, "done": true}\n'], id="done"),
]


@pytest.mark.parametrize(("path", "kind", "events"), TOLD_TO_THE_END)
def test_a_client_that_leaves_with_the_last_event_had_all_of_the_answer(path, kind, events):
    """The official client closes its connection on `[DONE]`, and does not wait for the end of the body."""
    recorder = recorded(events, path=path, headers=[(b"content-type", kind.encode())])
    recorder.abort(End.CLIENT_LEFT, "", 1.0)
    told = read(recorder)
    assert (told.end, told.unjudged_reason) == (End.COMPLETE, "")
    assert told.exchange.failure is None


@pytest.mark.parametrize(("path", "kind", "events"), TOLD_TO_THE_END)
def test_a_client_that_leaves_before_the_last_event_is_whole_has_left(path, kind, events):
    recorder = recorded([b"".join(events)[:-2]], path=path, headers=[(b"content-type", kind.encode())])
    recorder.abort(End.CLIENT_LEFT, "", 1.0)
    told = read(recorder)
    assert (told.end, told.exchange) == (End.CLIENT_LEFT, None)


def test_a_packed_body_is_unpacked_for_judging():
    packed = gzip.compress(b"".join(EVENTS))
    recorder = recorded([packed], headers=[(b"content-encoding", b"gzip"), (b"content-type", b"text/event-stream")])
    recorder.end(1.0)
    assert read(recorder).exchange.turn.content == "Hi"


def test_memory_is_bounded_also_by_many_small_chunks():
    recorder = recorded([b"x"] * 1000, limit=10_000)
    assert recorder._parts == []
    assert recorder._request == []
    assert recorder.cost < 10_000
    recorder.end(1.0)
    assert read(recorder).record.response_bytes == 1000


def test_what_is_a_number_or_bytes_of_another_kind_is_handed_on_as_well():
    recorder = recorded([bytearray(EVENTS[0]), memoryview(EVENTS[1])])
    recorder.response_head(HTTPStatus.OK, ([name, value] for name, value in [(b"content-type", b"text/event-stream")]))
    recorder.end(0.5)
    told = read(recorder)
    assert (told.record.status, told.exchange.turn.content) == (200, "Hi")


def test_only_the_first_end_counts():
    recorder = recorded()
    recorder.end(1.0)
    recorder.abort(End.CUT, "late", 2.0)
    assert read(recorder).end is End.COMPLETE


HEADERS = st.lists(
    st.tuples(st.sampled_from([b"authorization", b"content-type", b"content-encoding"]), st.binary()), max_size=3
)
CALLS = st.one_of(
    st.tuples(st.just("request_head"), st.text(), st.text() | st.just(PATH), HEADERS),
    st.tuples(st.just("request_body"), st.binary(max_size=20) | st.just(ASKED)),
    st.tuples(st.just("response_head"), st.integers(100, 599), HEADERS),
    st.tuples(st.just("feed"), st.binary(max_size=20) | st.sampled_from(EVENTS), st.floats(0, 10)),
    st.tuples(st.just("end"), st.floats(0, 10)),
    st.tuples(st.just("abort"), st.sampled_from(End), st.text(), st.floats(0, 10)),
)


@settings(deadline=None)
@given(st.lists(CALLS, max_size=12), st.integers(0, 5000))
def test_it_never_raises_whatever_it_is_told(calls, limit):
    recorder = Recorder(limit=limit)
    for name, *arguments in calls:
        getattr(recorder, name)(*arguments)
    told = read(recorder)
    assert (told.exchange is None) is bool(told.unjudged_reason)
    assert json.dumps(told.request_id).isprintable()

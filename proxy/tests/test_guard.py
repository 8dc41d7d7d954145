import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.wire import FailureKind
from harmony_proxy.guard import End, Recorder

PATH = "/v1/chat/completions"
ASKED = b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": true}'
EVENTS = [b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\n', b"data: [DONE]\n\n"]
KEY = "sk-abcdef123456"


def recorded(
    chunks=EVENTS, *, headers=(("Content-Type", "text/event-stream"),), limit=10_000, path=PATH, method="POST"
):
    recorder = Recorder(limit=limit)
    recorder.request_head(
        method, path, [("Authorization", f"Bearer {KEY}"), ("X-Request-Id", "r1"), ("Cookie", "c=secret")]
    )
    recorder.request_body(ASKED)
    recorder.response_head(200, headers)
    for number, chunk in enumerate(chunks, start=1):
        recorder.feed(chunk, number / 10)
    return recorder


def test_an_exchange_is_put_together_as_it_went_by():
    recorder = recorded()
    recorder.end(0.5)
    passage = recorder.passage("exchange 1")
    x = passage.exchange
    assert x is not None
    assert x.request.body == ASKED
    assert [(chunk.at, chunk.data) for chunk in x.response.chunks] == [(0.1, EVENTS[0]), (0.2, EVENTS[1])]
    assert x.turn.content == "Hi"
    assert x.failure is None
    assert (passage.status, passage.end, passage.first_byte, passage.seconds) == (200, End.COMPLETE, 0.1, 0.5)
    assert (passage.chunks, passage.response_bytes, passage.request_bytes) == (2, sum(map(len, EVENTS)), len(ASKED))
    assert passage.request_id == "r1"


@pytest.mark.parametrize("cut", range(len(b"".join(EVENTS))))
def test_where_chunks_end_makes_no_difference_to_what_is_read(cut):
    whole = b"".join(EVENTS)
    recorder = recorded([whole[:cut], whole[cut:]])
    recorder.end(1.0)
    x = recorder.passage("x").exchange
    assert [event.data for event in x.stream.events][-1] == "[DONE]"
    assert x.turn.content == "Hi"


def test_credentials_and_queries_are_not_kept():
    recorder = recorded([f"your key {KEY} is wrong".encode()], path=f"{PATH}?key={KEY}")
    recorder.end(1.0)
    passage = recorder.passage("x")
    assert passage.exchange.response.body == b"your key *** is wrong"
    assert KEY not in repr(passage)
    assert "secret" not in repr(passage)


def test_a_key_that_is_echoed_across_chunks_is_masked_too():
    recorder = recorded([b"your key " + KEY[:5].encode(), KEY[5:].encode() + b" is wrong"])
    recorder.end(1.0)
    assert recorder.passage("x").exchange.response.body == b"your key *** is wrong"


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
    recorder.request_head("POST", PATH, [(header, value)])
    recorder.response_head(401, [])
    recorder.feed(echo, 0.1)
    recorder.end(0.2)
    body = recorder.passage("x").exchange.response.body
    assert body != echo
    assert b"***" in body


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
    failure = recorder.passage("x").exchange.failure
    assert (failure.kind, failure.detail) == (kind, "detail")


UNJUDGED = [
    pytest.param({"path": "/v1/models"}, End.COMPLETE, "not a request of Chat Completions", id="another path"),
    pytest.param({"method": "GET"}, End.COMPLETE, "not a request of Chat Completions", id="another method"),
    pytest.param({}, End.CLIENT_LEFT, "the client left before the answer was complete", id="the client left"),
    pytest.param({}, End.SHUT_DOWN, "the proxy was stopped before the answer was complete", id="stopped"),
    pytest.param({"limit": 400}, End.COMPLETE, "larger than the 400 bytes that are kept of an exchange", id="large"),
    pytest.param(
        {"headers": [("content-encoding", "gzip")]}, End.COMPLETE, "the body is not gzip: error", id="wrongly packed"
    ),
    pytest.param(
        {"headers": [("content-encoding", "lzma")]},
        End.COMPLETE,
        "the body is encoded as 'lzma', which is not unpacked here",
        id="packed otherwise",
    ),
]


@pytest.mark.parametrize(("how", "end", "why"), UNJUDGED)
def test_what_is_not_judged_says_why(how, end, why):
    recorder = recorded(**how)
    recorder.abort(end, "", 1.0)
    passage = recorder.passage("x")
    assert passage.exchange is None
    assert passage.unjudged == why
    assert passage.response_bytes == sum(map(len, EVENTS))


def test_a_packed_body_is_unpacked_for_judging():
    packed = gzip.compress(b"".join(EVENTS))
    recorder = recorded([packed], headers=[("content-encoding", "gzip"), ("content-type", "text/event-stream")])
    recorder.end(1.0)
    assert recorder.passage("x").exchange.turn.content == "Hi"


def test_memory_is_bounded_also_by_many_small_chunks():
    recorder = recorded([b"x"] * 1000, limit=10_000)
    assert recorder._chunks == []
    assert recorder._body == []
    recorder.end(1.0)
    assert recorder.passage("x").response_bytes == 1000


def test_only_the_first_end_counts():
    recorder = recorded()
    recorder.end(1.0)
    recorder.abort(End.CUT, "late", 2.0)
    assert recorder.passage("x").end is End.COMPLETE


HEADERS = st.lists(
    st.tuples(st.sampled_from(["authorization", "content-type", "content-encoding"]), st.text()), max_size=3
)
CALLS = st.one_of(
    st.tuples(st.just("request_head"), st.text(), st.text() | st.just(PATH), HEADERS),
    st.tuples(st.just("request_body"), st.binary(max_size=20) | st.just(ASKED)),
    st.tuples(st.just("response_head"), st.integers(100, 599), HEADERS),
    st.tuples(st.just("feed"), st.binary(max_size=20) | st.sampled_from(EVENTS), st.floats(0, 10)),
    st.tuples(st.just("end"), st.floats(0, 10)),
    st.tuples(st.just("abort"), st.sampled_from(End), st.text(), st.floats(0, 10)),
)


@given(st.lists(CALLS, max_size=12), st.integers(0, 2000))
def test_it_never_raises_whatever_it_is_told(calls, limit):
    recorder = Recorder(limit=limit)
    for name, *arguments in calls:
        getattr(recorder, name)(*arguments)
    passage = recorder.passage("x")
    assert (passage.exchange is None) is bool(passage.unjudged)
    assert json.dumps(passage.request_id).isprintable()

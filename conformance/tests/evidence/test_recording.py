import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import (
    InvalidRecordError,
    NotAnExchangeError,
    read_exchange,
    read_script,
    write_exchange,
)
from harmony_conformance.evidence.expected_output import Expectation, ExpectedOutput, FunctionCall
from harmony_conformance.evidence.levels import RenderedPrompt, Validity
from harmony_conformance.json_value import value_at
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response

HEADERS = st.dictionaries(st.sampled_from(["content-type", "retry-after", "x"]), st.text(max_size=8), max_size=3)
BODIES = st.binary(max_size=60) | st.sampled_from(
    [
        b"",
        b"{}",
        b'{"a": 1}',
        b'{"a":1}',
        b'{"a":1,"a":2}',
        b'"\\ud800"',
        b'{"a":"\xff"}',
        '"ü"'.encode(),
        b'"\\u00fc"',
        b"1e400",
    ]
)
CHUNKS = st.lists(st.tuples(st.integers(min_value=0, max_value=10**9), st.binary(max_size=20)), max_size=5)
IDS = st.lists(st.integers(min_value=0, max_value=201_088), max_size=6).map(tuple)
TEXTS = st.lists(st.text(max_size=8), max_size=2).map(tuple)
EXCHANGES = st.builds(
    Exchange,
    id=st.text(min_size=1, max_size=8),
    request=st.builds(
        Request,
        path=st.text(min_size=1, max_size=8),
        body=BODIES,
        method=st.sampled_from(["POST", "GET"]),
        headers=HEADERS,
    ),
    response=st.none()
    | st.builds(
        Response,
        status=st.integers(min_value=100, max_value=599),
        headers=HEADERS,
        chunks=CHUNKS.map(lambda pairs: tuple(Chunk(arrival_time=at / 10**6, data=data) for at, data in pairs)),
    ),
    failure=st.none() | st.builds(Failure, kind=st.sampled_from(FailureKind), detail=st.text(max_size=8)),
    scenario=st.text(min_size=1, max_size=8),
    step=st.text(max_size=8),
    api=st.sampled_from(["chat", "responses"]),
    attempt=st.integers(min_value=0, max_value=3),
    engine=st.sampled_from(["openai", "vllm"]),
    started=st.none() | st.just("2025-06-28T12:00:00Z"),
    validity=st.sampled_from(Validity),
    script=st.none() | IDS,
    expected=st.none()
    | st.builds(
        Expectation,
        required_output=st.builds(
            ExpectedOutput,
            reasoning=TEXTS,
            finals=TEXTS,
            calls=st.lists(
                st.builds(FunctionCall, name=st.text(max_size=4), arguments=st.text(max_size=4)), max_size=1
            ).map(tuple),
            finish_reason=st.none(),
        ),
        finish_reasons=st.just(()) | st.just(("stop",)),
    ),
    rendered_prompt=st.none() | st.builds(RenderedPrompt, source=st.text(max_size=8), ids=IDS),
    retry_waits=st.lists(st.floats(min_value=0, max_value=60), max_size=2).map(tuple),
    from_log=st.booleans(),
)


@given(EXCHANGES)
def test_an_exchange_is_read_as_it_was_written(exchange):
    line = json.dumps(write_exchange(exchange))
    assert read_exchange(json.loads(line)) == exchange


@given(st.binary(max_size=80), st.lists(st.integers(min_value=0, max_value=80), max_size=5))
def test_bytes_split_anywhere_survive(data, cuts):
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = tuple(Chunk(arrival_time=0.0, data=data[a:b]) for a, b in pairwise(places))
    response = Response(status=200, chunks=chunks)
    line = json.dumps(write_exchange(Exchange(id="x", request=Request(path="/", body=data), response=response)))
    read = read_exchange(json.loads(line))
    assert (read.request.body, read.response) == (data, response)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b'{"a":1}', {"json": {"a": 1}}, id="compact JSON is shown as JSON"),
        pytest.param(b'{"a": 1}', {"text": '{"a": 1}'}, id="other blanks are kept as text"),
        pytest.param(b"{", {"text": "{"}, id="what is no JSON is text"),
    ],
)
def test_the_form_of_a_body(body, expected):
    written = value_at(write_exchange(Exchange(id="x", request=Request(path="/", body=body))), "request")
    assert {name: written[name] for name in expected} == expected


def read_response(**members):
    response = read_exchange({"request": {"json": {}}, "response": members}).response
    assert response is not None
    return response


@pytest.mark.parametrize(
    ("members", "status", "content_type", "body"),
    [
        pytest.param({"json": {"a": 1}}, 200, "application/json", b'{"a":1}', id="JSON"),
        pytest.param({"status": 400, "text": "no"}, 400, "application/json", b"no", id="text"),
        pytest.param({"text": "no", "headers": {"Content-Type": "text/plain"}}, 200, "text/plain", b"no", id="headers"),
        pytest.param(
            {"events": [{"a": 1}, "[DONE]"]},
            200,
            "text/event-stream",
            b'data: {"a":1}\n\ndata: [DONE]\n\n',
            id="events",
        ),
        pytest.param(
            {"events": ["a\nb"]}, 200, "text/event-stream", b"data: a\ndata: b\n\n", id="an event of two lines"
        ),
        pytest.param({"chunks": [[0, "a"], [1, "b"]]}, 200, "", b"ab", id="chunks"),
        pytest.param({}, 200, "application/json", b"", id="nothing"),
    ],
)
def test_forms_of_a_response(members, status, content_type, body):
    response = read_response(**members)
    assert (response.status, response.content_type, response.body) == (status, content_type, body)


def test_events_arrive_one_after_the_other():
    assert [chunk.arrival_time for chunk in read_response(events=["a", "b", "c"]).chunks] == [0.0, 0.01, 0.02]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("<|end|>", (200007,), id="a text: markers are special"),
        pytest.param([200007, 27], (200007, 27), id="token ids"),
        pytest.param(["a", {"ordinary": "<|end|>"}, 7], (64, 27, 91, 419, 91, 29, 7), id="pieces"),
        pytest.param([], (), id="nothing"),
    ],
)
def test_scripts(script, expected):
    assert read_script(script) == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param({}, "no member `request`", id="no request"),
        pytest.param([], "no member `request`", id="no object"),
        pytest.param({"request": {"json": {}}, "script": 7}, "invalid script", id="a script that is a number"),
        pytest.param(
            {"request": {"json": {}}, "script": [None]}, "invalid piece of a script", id="a script of nothing"
        ),
        pytest.param(
            {"request": {"json": {}}, "rendered": {"source": "x", "ids": ["a"]}},
            "invalid token ids",
            id="ids that are texts",
        ),
        pytest.param({"request": {"json": {}}, "failure": {"kind": "bad luck"}}, "got 'bad luck'", id="a failure"),
        pytest.param({"request": {"text": "a\ud800"}}, "got U+D800", id="half of a pair in a request"),
        pytest.param(
            {"request": {"json": {}}, "response": {"events": ["\ud800"]}},
            "invalid text: expected no surrogates but U+DC80 to U+DCFF, got U+D800",
            id="half of a pair in an event",
        ),
        pytest.param(
            {"request": {"json": {}}, "response": {"chunks": [[0, "\udbff"]]}},
            "got U+DBFF",
            id="half of a pair in a chunk",
        ),
    ],
)
def test_what_is_no_recording_says_why(line, said):
    with pytest.raises(InvalidRecordError) as error:
        read_exchange(line)
    assert said in str(error.value)


def test_half_of_a_pair_in_json_by_hand_is_kept():
    x = read_exchange({"request": {"json": {"a": "\ud800"}}, "response": {"events": [{"a": "\ud800"}, "\udcff"]}})
    assert x.request.body == b'{"a":"\xed\xa0\x80"}'
    assert x.response.body == b'data: {"a":"\xed\xa0\x80"}\n\ndata: \xff\n\n'


def test_a_recording_by_hand_may_leave_everything_out():
    exchange = read_exchange({"request": {"json": {}}}, name="by hand")
    assert exchange == Exchange(id="by hand", request=Request(path="/v1/chat/completions", body=b"{}"))


@pytest.mark.parametrize(
    ("line", "may_be_shown"),
    [
        pytest.param({"kind": "other"}, True, id="no request"),
        pytest.param(
            {"request": {}, "script": ["text", {"secret": 1}]}, False, id="a message with a value of the line"
        ),
    ],
)
def test_only_errors_without_a_value_of_the_line_may_be_shown(line, may_be_shown):
    with pytest.raises(InvalidRecordError) as error:
        read_exchange(line)
    assert isinstance(error.value, NotAnExchangeError) is may_be_shown
    assert ("secret" in str(error.value)) is not may_be_shown

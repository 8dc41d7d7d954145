import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harmony_conformance.audit.readers.records.record import DiscoveryLine, LoggedExchange
from harmony_conformance.audit.readers.records.shapes import read_line
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import write_exchange
from harmony_conformance.evidence.file_lines import Line, UnreadableLine
from harmony_conformance.evidence.recording_file import BrokenRecordingError, read_recorded
from harmony_conformance.json_value import dumps
from harmony_conformance.transport.messages import Chunk, Request, Response

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
}
CHUNK = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hello"}}]}


def read(value, form="auto"):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    (record,) = read_line(Line(offset=7, number=1, data=data), form, name="log:7")
    return record


def recorded(scenario="one", step="first", attempt=0):
    return Exchange(
        id=f"{scenario}/chat/{step}/{attempt}",
        scenario=scenario,
        step=step,
        attempt=attempt,
        request=Request(path="/v1/chat/completions", body=dumps(ASKED).encode()),
        response=Response(status=200, chunks=(Chunk(arrival_time=0.1, data=dumps(ANSWER).encode()),)),
    )


ANSWERED = [
    pytest.param({"request": ASKED, "response": ANSWER}, "Hello", None, id="a completion"),
    pytest.param({"request": ASKED, "response": json.dumps(ANSWER)}, "Hello", None, id="a completion as text"),
    pytest.param({"request": ASKED, "response": [CHUNK, CHUNK]}, "HelloHello", 3, id="chunks, and the end they lack"),
    pytest.param({"request": ASKED, "response": [CHUNK, "[DONE]"]}, "Hello", 2, id="chunks with their end"),
    pytest.param(
        {"request": ASKED, "response": {"status": 200, "body": ANSWER}}, "Hello", None, id="a status and a body"
    ),
    pytest.param(
        {"request": ASKED, "response": {"status_code": 200, "body": json.dumps(ANSWER)}},
        "Hello",
        None,
        id="a body as text",
    ),
    pytest.param(
        {"request": ASKED, "response": {"body": f"data: {json.dumps(CHUNK)}\n\n"}}, "Hello", 1, id="a stream as text"
    ),
    pytest.param({"request": ASKED, "response": {"body": [CHUNK]}}, "Hello", 2, id="a stream as a body"),
    pytest.param({"request": {"body": ASKED}, "response": ANSWER}, "Hello", None, id="a request with its body inside"),
    pytest.param({"request": json.dumps(ASKED), "response": ANSWER}, "Hello", None, id="a request as text"),
]


@pytest.mark.parametrize(("line", "content", "events"), ANSWERED)
def test_a_plain_line_is_an_exchange(line, content, events):
    found = read(line)
    assert isinstance(found, LoggedExchange)
    assert found.exchange.id == "log:7"
    assert found.exchange.chat_request == ASKED
    assert found.exchange.turn is not None
    assert found.exchange.turn.content == content
    assert (len(found.exchange.stream.events) if found.exchange.stream else None) == events


@pytest.mark.parametrize(
    "line",
    [
        {"request": ASKED, "response": {"error": {"message": "no"}}, "status": 429},
        {"request": ASKED, "response": {"status": 429, "body": {"error": {"message": "no"}}}},
    ],
    ids=["beside the response", "within it"],
)
def test_a_status_is_read(line):
    assert read(line).exchange.response.status == 429


STATUSES = [("500", 500), (500.0, 500), ("500.0", 500), ("completed", 200), ("5000", 200), (None, 200)]


@pytest.mark.parametrize(("status", "expected"), STATUSES, ids=map(repr, STATUSES))
def test_a_status_of_a_table_is_a_text_or_a_fraction(status, expected):
    refused = {"error": {"message": "no"}}
    assert read({"request": ASKED, "response": refused, "status": status}).exchange.response.status == expected
    batch = {"custom_id": "1", "batch_request": {"url": "/v1/chat/completions", "body": ASKED}}
    within = {"status_code": status, "body": refused}
    assert read({**batch, "response": within}).exchange.response.status == expected
    manual = {"providerRequest": {"json": ASKED}, "providerResponse": {"status": status, "json": refused}}
    assert read(manual).exchange.response.status == expected


TIMES = [
    ("1753300000", "2025-07-23T19:46:40+00:00"),
    ("1753300000.5", "2025-07-23T19:46:40.500000+00:00"),
    ("1753300000000", "2025-07-23T19:46:40+00:00"),
    ("20250723", "20250723"),
    ("2025-07-23T19:46:40Z", "2025-07-23T19:46:40Z"),
]


@pytest.mark.parametrize(("written", "expected"), TIMES, ids=[time for time, _ in TIMES])
def test_a_time_of_digits_is_read_as_the_number(written, expected):
    assert read({"request": ASKED, "response": ANSWER, "timestamp": written}).exchange.started == expected


STREAM = f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["text/event-stream"], "text/event-stream"),
        (["a", 1, "b"], "a, 1, b"),
        (5, "5"),
        (True, None),
        (None, None),
        ([], None),
        ({"a": "b"}, None),
    ],
)
def test_the_value_of_a_header_is_a_text_a_number_or_a_list_as_in_go(value, expected):
    answered = {"status": 200, "headers": {"X-Any": value}, "body": ANSWER}
    assert read({"request": ASKED, "response": answered}).exchange.response.headers.get("x-any") == expected
    har = {"request": {"headers": {"X-Any": value}, "body": ASKED}, "response": ANSWER}
    assert read(har).exchange.request.headers.get("x-any") == expected


@pytest.mark.parametrize("kind", ["text/event-stream", ["text/event-stream"], [], None])
def test_a_stream_is_read_whatever_its_header_is(kind):
    answered = {"status": 200, "headers": {"Content-Type": kind}, "body": STREAM}
    x = read({"request": {**ASKED, "stream": True}, "response": answered}).exchange
    assert (x.response.is_event_stream, x.turn.content) == (True, "Hello")


@pytest.mark.parametrize("between", ["\u2028", "\u0085"])
def test_only_a_line_feed_ends_a_line_of_a_stream(between):
    chunk = {"model": "m", "message": {"role": "assistant", "content": f"a{between}b"}, "done": False}
    end = {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in (chunk, end))
    x = read({"path": "/api/chat", "request": {**ASKED, "stream": True}, "response": lines}).exchange
    assert (x.api, x.response.is_line_stream, x.turn.content) == ("ollama", True, f"a{between}b")
    body = json.dumps({**ANSWER, "id": between}, ensure_ascii=False)
    manual = read({"providerRequest": {"json": ASKED}, "providerResponse": {"textBody": body, "status": 200}})
    assert manual.exchange.turn.content == "Hello"


def test_a_merged_stream_is_judged_as_the_whole_answer_that_the_logger_made_of_it():
    merged = read({"request": {**ASKED, "stream": True, "stream_options": {}}, "response": ANSWER})
    assert merged.exchange.chat_request == ASKED


def test_a_whole_answer_that_crossed_the_wire_to_a_request_for_a_stream_stays_what_it_was():
    sent = read({"request": {**ASKED, "stream": True}, "response": {"status": 200, "body": ANSWER}})
    assert sent.exchange.wants_stream


def test_no_times_are_made_up_for_a_logged_stream():
    x = read({"request": ASKED, "response": [CHUNK] * 30}).exchange
    assert {event.arrival_time for event in x.stream.events} == {0.0}


def test_no_credential_is_kept():
    line = {
        "request": {
            "headers": {"Authorization": "Bearer s", "X-Goog-Api-Key": ["s"], "X-LiteLLM-Key": "s", "Accept": "a"},
            "body": ASKED,
        },
        "response": {"headers": {"Set-Cookie": "s", "X-Prompt-Tokens": "12"}, "body": ANSWER},
    }
    x = read(line).exchange
    assert x.request.headers == {"accept": "a"}
    assert x.response.headers == {"content-type": "application/json", "x-prompt-tokens": "12"}


NO_EXCHANGE = [
    pytest.param(b'{"request": {', "no JSON", id="cut JSON"),
    pytest.param(b"\x00\x01\x02", "no JSON", id="bytes"),
    pytest.param(b"\xff\xff", "no UTF-8", id="no text"),
    pytest.param(b"[" * 100_000, "no JSON", id="endless nesting"),
    pytest.param(b'{"a": NaN}', "no JSON", id="NaN"),
    pytest.param(b"9" * 10_000, "no JSON", id="a number too long to read"),
    pytest.param([], "no exchange: not a JSON object", id="a list"),
    pytest.param({"messages": []}, "no exchange: it has messages, but no answer", id="messages without an answer"),
    pytest.param(
        {"a": 1}, "no exchange: it has no member `request`, nor the members of another known format", id="other members"
    ),
    pytest.param({"request": ASKED}, "no exchange: it has no response", id="a request alone"),
    pytest.param({"request": ASKED, "response": None}, "no exchange: it has no response", id="no response"),
    pytest.param(
        {"request": 1, "response": {}}, "no exchange: its request is not a JSON object", id="a number as request"
    ),
    pytest.param(
        {"request": {"query": "x"}, "response": {}},
        "no exchange: its request is for no API that is known (see --explain-format)",
        id="another API",
    ),
    pytest.param(
        {"kind": "exchange", "request": 1},
        "no exchange: it has no member `request` that is an object",
        id="a broken recording",
    ),
    pytest.param(
        {"kind": "exchange", "request": {}, "failure": {"kind": "secret"}},
        "no exchange: a member has a value that cannot be read",
        id="an unknown failure, which is not quoted",
    ),
]


@pytest.mark.parametrize(("line", "kind"), NO_EXCHANGE)
def test_a_line_that_is_no_exchange_says_why_and_quotes_nothing(line, kind):
    problem = read(line)
    assert isinstance(problem, UnreadableLine)
    assert (problem.kind, problem.offset) == (kind, 7)
    assert "secret" not in str(problem)


@pytest.mark.parametrize("line", [{"kind": "discovery"}, {"kind": "exchange", "scenario": "discovery", "request": {}}])
def test_discovery_is_read_and_left_out(line):
    assert read(line, "exchanges") == DiscoveryLine()


def test_a_recorded_line_is_distinguished_from_a_plain_one():
    found = read(write_exchange(recorded()))
    assert (found.exchange.scenario, found.exchange.id) == ("one", "log:7")


def test_a_form_that_was_asked_for_is_kept_to():
    assert isinstance(read(write_exchange(recorded()), "openai"), UnreadableLine)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "request",
                    "response",
                    "messages",
                    "body",
                    "status",
                    "headers",
                    "json",
                    "kind",
                    "chunks",
                    "text",
                    "script",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(st.fixed_dictionaries({"request": JSON, "response": JSON}, optional={"kind": st.just("exchange"), "try": JSON}))
def test_no_json_value_breaks_the_reader(line):
    found = read(line)
    assert isinstance(found, LoggedExchange | DiscoveryLine | UnreadableLine)
    if isinstance(found, LoggedExchange):
        assert found.exchange.turn is None or found.exchange.turn is not None


def write_recording(path, lines):
    path.write_text(
        "".join((line if isinstance(line, str) else dumps(line)) + "\n" for line in lines), encoding="utf-8"
    )
    return path


def test_a_recorded_run_comes_back_by_scenario_and_try(tmp_path):
    xs = [recorded("b", "x"), recorded("a", "x"), recorded("b", "y"), recorded("b", "x", 1)]
    discovery = {**write_exchange(recorded("discovery")), "id": "d"}
    path = write_recording(tmp_path / "exchanges.jsonl", [discovery, *map(write_exchange, xs)])
    series = read_recorded(path)
    assert [(one.name, list(one.exchanges)) for one in series] == [("b", ["x", "y"]), ("a", ["x"]), ("b", ["x"])]
    assert series[0].exchanges["x"] == xs[0]


BROKEN = [
    pytest.param(["{"], "line 1: Expecting", id="cut JSON"),
    pytest.param([{"kind": "result"}], "line 1: invalid exchange", id="a line of another kind"),
    pytest.param([{"kind": "exchange"}], "line 1: no exchange: it has no member `request`", id="no request"),
    pytest.param(
        [write_exchange(recorded())] * 2,
        "line 2: duplicate step 'first' of scenario 'one', try 0",
        id="twice",
    ),
]


@pytest.mark.parametrize(("lines", "said"), BROKEN)
def test_a_broken_recording_is_refused_in_one_line(tmp_path, lines, said):
    path = write_recording(tmp_path / "exchanges.jsonl", lines)
    with pytest.raises(BrokenRecordingError) as raised:
        read_recorded(path)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, UsageError)
    assert isinstance(raised.value, ValueError)


def test_a_recording_that_is_no_text_is_said_to_be_none(tmp_path):
    path = tmp_path / "rnd"
    path.write_bytes(b"{}\xff\xfe")
    with pytest.raises(BrokenRecordingError) as raised:
        read_recorded(path)
    assert str(raised.value) == f"{path}, line 1: not UTF-8 text at byte 2"


@pytest.mark.parametrize(("name", "said"), [("absent", "no such file"), ("", "it is a folder, not a file")])
def test_what_is_no_file_has_no_lines(tmp_path, name, said):
    with pytest.raises(BrokenRecordingError) as raised:
        read_recorded(tmp_path / name)
    assert str(raised.value) == f"{tmp_path / name}: {said}"


def test_a_time_that_is_too_large_is_no_time():
    assert read({"request": ASKED, "response": ANSWER, "started": 10**400}).exchange.started is None


ODD = ("Hello", "\ud83d", "é \u2028 \r\n", "Infinity", "{}", "data: x")
PIECES = st.sampled_from([*ODD, 1, 1.5, 10**400, None, True, {}, ["x"], {"type": "a\nb"}])


def deep(levels):
    return json.loads("[" * levels + "]" * levels)


@given(
    response=st.lists(
        st.sampled_from([CHUNK, {**CHUNK, "type": "response.created"}, "[DONE]", json.dumps(CHUNK)])
        | st.dictionaries(st.sampled_from(["choices", "id", "type", "error"]), PIECES)
        | PIECES,
        max_size=6,
    ),
    form=st.sampled_from(["list", "text", "text without end", "body"]),
    said=PIECES,
)
@example(response=[CHUNK, {"id": deep(257)}], form="list", said=deep(257))
@example(response=[CHUNK] * 6, form="text", said="\ud83d")
def test_what_a_log_has_parsed_is_what_its_bytes_say(response, form, said):
    texts = [event if isinstance(event, str) else json.dumps(event) for event in response]
    stream = "".join(f"data: {text}\n\n" for text in texts)
    logged = {"list": response, "text": stream, "text without end": stream[:-1], "body": {**ANSWER, "id": said}}[form]
    asked = {**ASKED, "user": said, "stream": form != "body"}
    x = read({"request": asked, "response": logged, "path": "/v1/chat/completions"})
    if isinstance(x, LoggedExchange):
        known = x.exchange
        alone = replace(known, request=replace(known.request), response=known.response and replace(known.response))
        assert known.events == alone.events
        assert [event.value for event in (known.events.events if known.events else ())] == [
            event.value for event in (alone.events.events if alone.events else ())
        ]
        assert (known.request.json, known.response_json) == (alone.request.json, alone.response_json)

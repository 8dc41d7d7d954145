from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harmony_conformance.json_value import InvalidJsonError
from harmony_conformance.transport.messages import Chunk
from harmony_conformance.transport.sse import Event, EventDecoder, EventStream, parse_together, read_events, read_lines

NASTY = (
    "\ufeffdata: first\r\n\r\n"
    ": a comment\ndata: 🧑‍🚀 한국\ndata:  two blanks\n\n"
    "event: error\rid: 7\rdata: return\r\r"
    "retry: 10\n\ndata\n\ndata:\n\n"
    "data: mixed\r\n\n"
    "\n\n\r\n\r"
    "stray line\ndata: after a stray line\n\n"
    "data: [DONE]\r\n\r\n"
    "data: unfin"
).encode()
EVENTS = (
    ("first", "message"),
    ("🧑‍🚀 한국\n two blanks", "message"),
    ("return", "error"),
    ("", "message"),
    ("", "message"),
    ("mixed", "message"),
    ("after a stray line", "message"),
    ("[DONE]", "message"),
)


def seen(stream):
    return tuple((event.data, event.name) for event in stream.events), stream.unfinished_data, stream.unrecognized_lines


def fed(*pieces):
    return read_events(Chunk(arrival_time=float(index), data=piece) for index, piece in enumerate(pieces))


EXPECTED = (EVENTS, "data: unfin", ("stray line",))


def test_a_nasty_stream_fed_whole():
    assert seen(fed(NASTY)) == EXPECTED


@pytest.mark.parametrize("cut", range(len(NASTY) + 1))
def test_a_nasty_stream_cut_at_each_byte(cut):
    assert seen(fed(NASTY[:cut], NASTY[cut:])) == EXPECTED


def test_a_nasty_stream_byte_by_byte():
    assert seen(fed(*(NASTY[index : index + 1] for index in range(len(NASTY))))) == EXPECTED


BYTES = st.lists(
    st.sampled_from(
        [b"data", b":", b" ", b"\r", b"\n", b"\r\n", b"event", b"x", "ü".encode(), b"\xff", b"\xef\xbb\xbf", b""]
    ),
    max_size=30,
)


@given(BYTES, st.lists(st.integers(min_value=0, max_value=200), max_size=8))
def test_no_stream_depends_on_where_it_is_cut(words, cuts):
    whole = b"".join(words)
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[start:end] for start, end in pairwise(places)]
    assert seen(fed(*pieces)) == seen(fed(whole))


@given(BYTES)
def test_empty_chunks_change_nothing(words):
    pieces = [piece for word in words for piece in (word, b"")]
    assert seen(fed(*pieces)) == seen(fed(b"".join(words)))


@given(st.binary(max_size=200))
def test_no_bytes_raise(data):
    fed(data)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("data: a\n\n", (("a", "message"),), id="one event"),
        pytest.param("data:a\n\n", (("a", "message"),), id="no blank after the colon"),
        pytest.param("data:  a\n\n", ((" a", "message"),), id="only one blank is dropped"),
        pytest.param("data: a\ndata: b\n\n", (("a\nb", "message"),), id="lines of data are joined"),
        pytest.param(
            "event: x\ndata: a\n\ndata: b\n\n", (("a", "x"), ("b", "message")), id="a name holds for one event"
        ),
        pytest.param("event: x\n\n", (), id="a name without data is no event"),
        pytest.param(": comment\n\n", (), id="a comment is no event"),
        pytest.param("\n\n\n", (), id="empty lines are no events"),
        pytest.param("data: a\n", (), id="no empty line, no event"),
        pytest.param("data: a:b\n\n", (("a:b", "message"),), id="only the first colon counts"),
    ],
)
def test_the_grammar(body, expected):
    assert tuple((event.data, event.name) for event in fed(body.encode()).events) == expected


@pytest.mark.parametrize(
    ("body", "unfinished", "stray"),
    [
        pytest.param("data: a\n\n", "", (), id="a whole stream"),
        pytest.param("data: a\n\ndata: b", "data: b", (), id="a line without its end"),
        pytest.param("data: a\n\ndata: b\n", "b", (), id="an event without its empty line"),
        pytest.param("error: x\n\n", "", ("error: x",), id="a field nobody knows"),
        pytest.param('{"a":1}\n', "", ('{"a":1}',), id="JSON without a field"),
    ],
)
def test_what_is_no_event_is_reported(body, unfinished, stray):
    stream = fed(body.encode())
    assert (stream.unfinished_data, stream.unrecognized_lines) == (unfinished, stray)


def test_an_event_has_the_time_of_the_chunk_that_completed_it():
    stream = fed(b"data: a\n", b"\ndata: b\n\n", b"")
    assert [event.arrival_time for event in stream.events] == [1.0, 1.0]


def test_the_decoder_answers_as_it_is_fed():
    decoder = EventDecoder()
    assert [decoder.feed(piece, at) for piece, at in ((b"data: a\r", 1.0), (b"\n\r", 2.0), (b"\n", 3.0))] == [
        [],
        [Event(data="a", arrival_time=2.0)],
        [],
    ]
    assert decoder.unfinished_data() == ""


def test_nothing_is_an_empty_stream():
    assert read_events(()) == EventStream(events=())


@pytest.mark.parametrize(
    ("data", "is_done", "value"),
    [
        pytest.param("[DONE]", True, None, id="the end"),
        pytest.param(" [DONE] ", True, None, id="the end, with blanks"),
        pytest.param('{"a":1}', False, {"a": 1}, id="JSON"),
        pytest.param("{", False, None, id="no JSON"),
        pytest.param("null", False, None, id="null"),
    ],
)
def test_an_event_is_json_or_the_end(data, is_done, value):
    event = Event(data=data, arrival_time=0.0)
    assert (event.is_done, event.value) == (is_done, value)


def test_data_that_is_no_json_says_so():
    with pytest.raises(InvalidJsonError):
        _ = Event(data="{", arrival_time=0.0).json


@pytest.mark.parametrize(
    ("last", "events"), [('{"done": true}', 2), ('{"done": true', 1), ('{"a": 1}}', 1), ("}", 1), ("1", 1), ("", 1)]
)
def test_a_last_line_that_does_not_end_is_an_event_where_its_object_is_whole(last, events):
    stream = read_lines(
        [
            Chunk(arrival_time=1.0, data=b'{"done": false}\n' + last[:4].encode()),
            Chunk(arrival_time=2.0, data=last[4:].encode()),
        ]
    )
    assert len(stream.events) == events
    assert stream.unfinished_data == last
    assert stream.events[-1].arrival_time == float(events)


TEXTS = (
    '{"a":1}',
    '{"a":"\\u00e9 |"}',
    "{}",
    '{"a":[{}',
    "{}]}",
    '{"x":[1',
    '{"a":1},"|~|",{}',
    '{"a":1},"\\u007c~|",{}',
    '{"a":"x',
    '{"a":1},{"b":2}',
    '{"a":NaN}',
    "[DONE]",
    "{",
    '{"a":' + "[" * 250 + "]" * 250 + "}",
    '{"a":"' + "long " * 200 + '"}',
)


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=9))
@example(["{}", '{"a":1},"\\u007c~|",{}', '{"x":[1', "{}]}", "{}"])
@example(["{}", "{}", '{"x":[1', "{}]}", '{"a":1},{"b":2}'])
def test_texts_that_are_parsed_together_have_the_values_that_each_has_alone(texts):
    together = [Event(data=text, arrival_time=0.0) for text in texts]
    parse_together(together)
    assert [event.value for event in together] == [Event(data=text, arrival_time=0.0).value for text in texts]


def test_texts_are_parsed_together():
    events = [Event(data=f'{{"a":{number}}}', arrival_time=0.0) for number in range(5)]
    parse_together(events)
    assert [vars(event).get("value") for event in events] == [{"a": number} for number in range(5)]

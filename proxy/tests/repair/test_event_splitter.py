import pytest

from harmony_conformance.transport.sse import EventDecoder
from harmony_proxy.repair.stream_parts.event_splitter import LineSplitter, SseSplitter

STREAMS = {
    "the common form": b'data: {"a":1}\n\ndata: [DONE]\n\n',
    "carriage returns and line feeds": b'data: {"a":1}\r\n\r\ndata: {"b":2}\r\n\r\n',
    "carriage returns alone": b"data: 1\r\rdata: 2\r\r",
    "a comment between": b": ping\n\ndata: 1\n\n: ping\n: pong\n\n",
    "a byte order mark": b"\xef\xbb\xbfdata: 1\n\ndata: 2\n\n",
    "several lines of data": b"event: x\nid: 7\ndata: {\ndata: }\n\n",
    "no blank behind the colon": b"data:1\n\ndata\n\n",
    "an event that does not end": b"data: 1\n\ndata: 2\n",
    "letters of several bytes": 'data: {"a":"\u00e9\U0001f600"}\n\n'.encode(),
    "empty lines": b"\n\n\ndata: 1\n\n\n\ndata: 2\n\n",
}


def fed(splitter, pieces):
    return [piece for data in pieces for piece in splitter.feed(data)]


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_at_every_split_the_same_events_and_the_very_bytes(stream):
    expected = [event.data for event in EventDecoder().feed(stream)]
    for split in range(len(stream) + 1):
        splitter = SseSplitter()
        pieces = fed(splitter, (stream[:split], stream[split:]))
        assert [piece.data for piece in pieces if piece.data is not None] == expected
        assert b"".join(piece.raw for piece in pieces) + splitter.rest() == stream
    letters = SseSplitter()
    pieces = fed(letters, (bytes([byte]) for byte in stream))
    assert [piece.data for piece in pieces if piece.data is not None] == expected
    assert b"".join(piece.raw for piece in pieces) + letters.rest() == stream


def test_an_event_told_anew_keeps_its_other_lines_and_its_line_ends():
    (piece,) = SseSplitter().feed(b": ping\r\nid: 7\r\nevent: x\r\ndata: 1\r\n\r\n")
    assert piece.encode_value({"a": "\u00e9"}) == ': ping\r\nid: 7\r\nevent: x\r\ndata: {"a":"\u00e9"}\r\n\r\n'.encode()
    (line,) = LineSplitter().feed(b'{"a":1}\n')
    assert line.encode_value({"a": 2}) == b'{"a":2}\n'


def test_lines_at_every_split():
    stream = b'{"a":1}\n\n{"b":2}\r\n{"c"'
    for split in range(len(stream) + 1):
        splitter = LineSplitter()
        pieces = fed(splitter, (stream[:split], stream[split:]))
        assert [piece.value for piece in pieces if piece.data] == [{"a": 1}, {"b": 2}]
        assert b"".join(piece.raw for piece in pieces) + splitter.rest() == stream


@pytest.mark.parametrize("splitter", [SseSplitter, LineSplitter])
def test_an_event_is_bounded(splitter):
    one = splitter(limit=100)
    assert one.feed(b"data: " + b"x" * 90) == []
    assert not one.is_over_limit
    assert one.feed(b"x" * 20) == []
    assert one.is_over_limit
    assert one.rest() == b"data: " + b"x" * 110


@pytest.mark.parametrize("data", ["", "[1,", "NaN", '{"a":Infinity}', "[" * 100_000], ids=lambda data: data[:12])
def test_what_is_no_json_has_no_value(data):
    (piece,) = SseSplitter().feed(b"data: " + data.encode() + b"\n\n")
    assert piece.value is None


@pytest.mark.parametrize("kind", [SseSplitter, LineSplitter])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_empty_lines_by_the_thousand_are_one_piece_with_no_data(kind, end):
    one = kind()
    before = one.feed(b'data: {"a": 1}' + end + end)
    pieces = one.feed(end * 5000)
    assert b"".join(piece.raw for piece in pieces) + one.rest() == end * 5000
    assert [piece.data for piece in pieces] == [None] * len(pieces)
    assert len(pieces) == 1 or (kind, end) == (LineSplitter, b"\r\n")
    assert before
    assert one.feed(b'data: {"a": 2}' + end + end)[0].data is not None


def test_a_line_feed_that_comes_behind_the_carriage_return_of_an_event_is_a_piece_of_its_own():
    one = SseSplitter()
    first = one.feed(b"data: 1\r\n\r")
    second = one.feed(b"\ndata: 2\r\n\r\n")
    assert [(piece.raw, piece.data) for piece in first] == [(b"data: 1\r\n\r", "1")]
    assert [(piece.raw, piece.data) for piece in second] == [(b"\n", None), (b"data: 2\r\n\r\n", "2")]

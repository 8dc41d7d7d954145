"""Decode server-sent events incrementally (WHATWG HTML, section 9.2), and JSON lines.

The decoder never raises and never drops data. Data after the last complete event is reported as *unfinished*: browsers drop it silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from harmony_conformance.json_value import MAX_DEPTH, InvalidJsonError, Json, dumps, items, loads
from harmony_conformance.runtime.caching import cached_property
from harmony_conformance.transport.messages import Chunk

DONE = "[DONE]"
_VARYING = frozenset({"id", "created", "created_at", "system_fingerprint"})
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIELD, _END = b"data: ", b"\n\n"
_BETWEEN_EVENTS = "\n\ndata: "
_FEW = 4
_SHORT = 2 * MAX_DEPTH
"""The length below which no text has more than `MAX_DEPTH` levels."""
_MARK, _ESCAPED_MARK = "|~|", r"\u007"
_BETWEEN = f',"{_MARK}",'


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event: its data lines, joined by line breaks, and the arrival time of its last byte, in seconds after the request."""

    data: str
    arrival_time: float
    name: str = "message"

    @property
    def is_done(self) -> bool:
        """True for the `[DONE]` that ends a stream of OpenAI's APIs."""
        return self.data.strip() == DONE

    @property
    def json(self) -> Json:
        """The data as JSON.

        Raises:
            InvalidJsonError: The data is not JSON.
        """
        return self.value if self.value is not None else loads(self.data)

    @cached_property
    def value(self) -> Json:
        """The data as JSON, or None for invalid JSON."""
        if self.data == DONE:  # an exception costs as much as ten events
            return None
        try:
            return loads(self.data)
        except InvalidJsonError:
            return None

    @cached_property
    def stable_data(self) -> str:
        """The data without the members that differ between runs: ids, times and the fingerprint."""
        if not isinstance(self.value, dict):
            return self.data
        return dumps({name: member for name, member in self.value.items() if name not in _VARYING})


class EventDecoder:
    """Incremental decoder of server-sent events. `unrecognized_lines` lists lines that are not valid fields."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[str] = []
        self._name = ""
        self._first = True
        self._after_cr = False
        self.unrecognized_lines: list[str] = []

    def feed(self, data: bytes, arrival_time: float = 0.0) -> list[Event]:
        """Return the events that `data` completes. `arrival_time` is its arrival time, in seconds after the request."""
        if not data:
            return []
        if data.startswith(_FIELD) and data.endswith(_END) and not (self._line or self._data or self._name):
            # the fast path: complete events of one line each, as most servers send
            texts = data[len(_FIELD) : -len(_END)].decode("utf-8", "replace").split(_BETWEEN_EVENTS)
            if data.count(b"\n") == 2 * len(texts) and b"\r" not in data:
                self._first = self._after_cr = False
                return [_plain_event(text, arrival_time) for text in texts]
        ends_in_cr = data.endswith(b"\r")
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = ends_in_cr
        self._line += data
        if b"\n" not in data and b"\r" not in data:
            return []
        *lines, rest = bytes(self._line).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line = bytearray(rest)
        return [event for line in lines if (event := self._add_line(line, arrival_time)) is not None]

    def stream(self, events: Iterable[Event]) -> EventStream:
        """Return the stream of these events, with what was left over so far."""
        return EventStream(
            events=tuple(events),
            unfinished_data=self.unfinished_data(),
            unrecognized_lines=tuple(self.unrecognized_lines),
        )

    def unfinished_data(self) -> str:
        """Return the data after the last complete event, which is empty at the end of a valid stream."""
        return "\n".join([*self._data, *([bytes(self._line).decode("utf-8", "replace")] if self._line else [])])

    def _add_line(self, raw: bytes, at: float) -> Event | None:
        if self._first:
            raw, self._first = raw.removeprefix(_BYTE_ORDER_MARK), False
        if not raw:
            data, name, self._data, self._name = self._data, self._name, [], ""
            return Event(data="\n".join(data), name=name or "message", arrival_time=at) if data else None
        line = raw.decode("utf-8", "replace")
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "data":
                self._data.append(value)
            case "event":
                self._name = value
            case "" | "id" | "retry":
                pass
            case _:
                self.unrecognized_lines.append(line)
        return None


@dataclass(frozen=True, kw_only=True)
class EventStream:
    """A complete stream: its events, the unfinished data at the end, and lines that are not valid fields."""

    events: tuple[Event, ...]
    unfinished_data: str = ""
    unrecognized_lines: tuple[str, ...] = ()


def read_events(chunks: Iterable[Chunk]) -> EventStream:
    """Return the server-sent events of a recorded body, each with the time of the chunk that completed it."""
    decoder = EventDecoder()
    events: list[Event] = []
    for chunk in chunks:
        events += decoder.feed(chunk.data, chunk.arrival_time)
    parse_together(events)
    return decoder.stream(events)


def parse_together(events: Iterable[Event]) -> None:
    """Parse the values of short events by one call, and store each in its event. What this cannot parse stays as it is."""
    unread = [event for event in events if "value" not in vars(event)]
    short = [event for event in unread if len(event.data) < _SHORT and event.data.startswith("{")]
    document = _BETWEEN.join([event.data for event in short])
    if len(short) < _FEW or document.count(_MARK) != len(short) - 1 or _ESCAPED_MARK in document:
        return
    try:
        values = items(loads(f"[{document}]", max_depth=len(document)))
    except InvalidJsonError:
        return
    # if every mark is a value of the array, each text between two of them is one value or several
    if len(values) == 2 * len(short) - 1 and values[1::2] == [_MARK] * (len(short) - 1):
        for event, value in zip(short, values[::2], strict=True):
            vars(event)["value"] = value


def parsed_event(data: str, value: Json, *, name: str) -> Event:
    """Return an event with the value of its data, which saves parsing it."""
    event = object.__new__(Event)  # half the cost of a frozen value's initialization
    vars(event).update(data=data, arrival_time=0.0, name=name or "message", value=value)
    return event


def _plain_event(data: str, arrival_time: float) -> Event:
    """Return an event without a name."""
    event = object.__new__(Event)  # see above
    vars(event).update(data=data, arrival_time=arrival_time, name="message")
    return event


def read_lines(chunks: Iterable[Chunk]) -> EventStream:
    """Return the JSON lines of a recorded body as events, each with the time of the chunk that completed it.

    A last line without line end is unfinished. If it is a complete object it is also an event, since clients read it.
    """
    rest, events, last = b"", list[Event](), 0.0
    for chunk in chunks:
        *lines, rest = (rest + chunk.data).split(b"\n")
        events += (
            Event(data=line.decode("utf-8", "replace"), arrival_time=chunk.arrival_time)
            for line in lines
            if line.strip()
        )
        last = chunk.arrival_time
    unfinished = rest.decode("utf-8", "replace").strip()
    if unfinished.endswith("}") and (event := Event(data=unfinished, arrival_time=last)).value is not None:
        events.append(event)
    return EventStream(events=tuple(events), unfinished_data=unfinished)


def replace_values(stream: EventStream, values: Iterator[Json]) -> EventStream:
    """Return the stream with one new value per event. An event that is not JSON stays unchanged."""
    pairs = zip(stream.events, values, strict=True)
    events = (event if event.value is None else _with_value(event, value) for event, value in pairs)
    return replace(stream, events=tuple(events))


def _with_value(event: Event, value: Json) -> Event:
    changed = Event(data=dumps(value), arrival_time=event.arrival_time, name=event.name)
    if "Infinity" not in changed.data:  # too large a number, which is not JSON
        vars(changed)["value"] = value  # saves parsing the data
    return changed

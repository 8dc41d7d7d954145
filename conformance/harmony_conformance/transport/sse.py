"""Bytes to server-sent events (WHATWG HTML, section 9.2), incrementally: feed me chunks, I answer with the events they complete.

The decoder never raises and forgets nothing: what is left after the last chunk is an *unfinished* event, which the judge must hear of, since a
browser would drop it silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from harmony_conformance.json_value import InvalidJsonError, Json, dumps, loads
from harmony_conformance.runtime.caching import cached_property
from harmony_conformance.transport.messages import Chunk

DONE = "[DONE]"
_OF_THE_RUN = frozenset({"id", "created", "created_at", "system_fingerprint"})
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIELD, _END = b"data: ", b"\n\n"


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event: its data, its name (`message` unless the stream says otherwise), and when its last byte arrived (seconds after the request)."""

    data: str
    at: float
    name: str = "message"

    @property
    def is_done(self) -> bool:
        """Whether this is the `[DONE]` that ends an OpenAI stream."""
        return self.data.strip() == DONE

    @property
    def json(self) -> Json:
        """The data as JSON.

        Raises:
            NotJson: it is none.
        """
        value = self.value
        return value if value is not None else loads(self.data)

    @cached_property
    def value(self) -> Json:
        """The data as JSON, None where it is none."""
        try:
            return loads(self.data)
        except InvalidJsonError:
            return None

    @cached_property
    def telling(self) -> str:
        """The data without what differs from run to run: the server's id and its times."""
        value = self.value
        if not isinstance(value, dict):
            return self.data
        return dumps({name: member for name, member in value.items() if name not in _OF_THE_RUN})


class EventDecoder:
    """State: the bytes of the current line, the data lines and the name of the current event."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[str] = []
        self._name = ""
        self._first = True
        self._after_cr = False
        self.stray: list[str] = []  # lines that are no field of the grammar

    def feed(self, data: bytes, at: float = 0.0) -> list[Event]:
        """The events that `data` completes."""
        events: list[Event] = []
        if not data:
            return events
        if data.startswith(_FIELD) and data.endswith(_END) and not (self._line or self._data or self._name):
            # whole events of one line each, as nearly all servers send them
            lines = data[len(_FIELD) : -len(_END)].split(_END + _FIELD)
            together = b"".join(lines)
            if b"\n" not in together and b"\r" not in data:
                self._first = self._after_cr = False
                return [Event(data=line.decode("utf-8", "replace"), at=at) for line in lines]
        ends_in_cr = data.endswith(b"\r")
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = ends_in_cr
        self._line += data
        if b"\n" not in data and b"\r" not in data:
            return events
        lines = bytes(self._line).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line = bytearray(lines.pop())
        events.extend(event for line in lines if (event := self._take(line, at)) is not None)
        return events

    def unfinished(self) -> str:
        """What stands after the last complete event: empty at the end of a proper stream."""
        rest = [*self._data]
        if self._line:
            rest.append(bytes(self._line).decode("utf-8", "replace"))
        return "\n".join(rest)

    def _take(self, raw: bytes, at: float) -> Event | None:
        if self._first:
            raw, self._first = raw.removeprefix(_BYTE_ORDER_MARK), False
        if not raw:
            return self._dispatch(at)
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
                self.stray.append(line)
        return None

    def _dispatch(self, at: float) -> Event | None:
        data, name = self._data, self._name
        self._data, self._name = [], ""
        return Event(data="\n".join(data), name=name or "message", at=at) if data else None


@dataclass(frozen=True, kw_only=True)
class EventStream:
    """A whole stream: its events, what was left unfinished at the end, and lines that are no field."""

    events: tuple[Event, ...]
    unfinished: str = ""
    stray: tuple[str, ...] = ()


def read_events(chunks: Iterable[Chunk]) -> EventStream:
    """All events of a recorded body, each with the time of the chunk that completed it."""
    decoder = EventDecoder()
    events: list[Event] = []
    for chunk in chunks:
        events += decoder.feed(chunk.data, chunk.at)
    return EventStream(events=tuple(events), unfinished=decoder.unfinished(), stray=tuple(decoder.stray))


def read_lines(chunks: Iterable[Chunk]) -> EventStream:
    """The lines of a recorded body that is a JSON value a line, each as an event with the time of the chunk that completed it.

    A last line that does not end is unfinished, and yet an event where all of its object is there: clients read it.
    """
    rest, events, last = b"", list[Event](), 0.0
    for chunk in chunks:
        *lines, rest = (rest + chunk.data).split(b"\n")
        events += (Event(data=line.decode("utf-8", "replace"), at=chunk.at) for line in lines if line.strip())
        last = chunk.at
    unfinished = rest.decode("utf-8", "replace").strip()
    if unfinished.endswith("}") and (event := Event(data=unfinished, at=last)).value is not None:
        events.append(event)
    return EventStream(events=tuple(events), unfinished=unfinished)


def retold(stream: EventStream, values: Iterator[Json]) -> EventStream:
    """The stream with other values in the place of its events' own; an event that is no JSON stays as it is."""
    told = zip(stream.events, values, strict=True)
    return replace(stream, events=tuple(event if event.value is None else _with(event, value) for event, value in told))


def _with(event: Event, value: Json) -> Event:
    """The event with another value."""
    told = Event(data=dumps(value), at=event.at, name=event.name)
    if "Infinity" not in told.data:  # as one is written that is beyond all measure, and then it is no JSON
        vars(told)["value"] = value  # which it would be read as
    return told

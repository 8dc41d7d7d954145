"""A body cut into its events, each with the very bytes it came as: what is not touched goes out as it came in.

Server-sent events end with an empty line, lines of JSON with a line feed. Nothing is lost: all `raw` one after the other, and then `rest`, are the bytes
that were fed. An event is bounded: past the limit the splitter gives up (`is_lost`), and what it holds is its rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from harmony_conformance.json_value import InvalidJsonError, Json, at, dumps, loads
from harmony_conformance.transport.sse import DONE
from harmony_proxy.repair.text.api_dialects import ChoiceContent

EVENT_LIMIT = 1024 * 1024
"""The most bytes of one event."""

_LINE_END = re.compile(rb"\r\n|\n|\r")
_EMPTY_LINES = re.compile(rb"(?:\r?\n)+")
_LINES = re.compile(rb"\n+|[^\n]+\n")
_FIELD = re.compile(rb"(?:|:.*|(?:event|id|retry)(?::.*)?)\Z", re.DOTALL)
"""A line of an event that has no data."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(kw_only=True)
class RawEvent:
    """One event: its bytes, and its data (None where it has none: a comment, an empty line).

    `is_line`: one of a stream of lines. `parts` is what it says, and `source` which item it is about, as they were read when it came.
    """

    raw: bytes
    data: str | None = None
    is_line: bool = False
    parts: Sequence[ChoiceContent] = ()
    source: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether this is the `[DONE]` that ends a stream."""
        return self.data is not None and self.data.strip() == DONE

    @property
    def is_unread(self) -> bool:
        """Whether it says something that is no JSON object, or lines that are none of an event's."""
        if self.data is None:
            return any(_FIELD.match(line) is None for line in _LINE_END.split(self.raw.removeprefix(_BYTE_ORDER_MARK)))
        return bool(self.data.strip()) and not self.is_done and not isinstance(self.value, dict)

    @property
    def is_error(self) -> bool:
        """Whether the server says with it that something went wrong."""
        return at(self.value, "error") is not None or at(self.value, "type") in ("error", "response.failed")

    @cached_property
    def value(self) -> Json:
        """The data as JSON, None where it is none."""
        if not self.data:
            return None
        try:
            return loads(self.data)
        except InvalidJsonError:
            return None

    def told(self, value: Json) -> bytes:
        """The bytes of the same event with another value: the lines that are no data stay, and so does the form of the line ends."""
        data = dumps(value).encode("utf-8", "backslashreplace")
        if self.is_line:
            return data + b"\n"
        end = b"\r\n" if b"\r\n" in self.raw else b"\n"
        names = ((line, line.removeprefix(_BYTE_ORDER_MARK).partition(b":")[0]) for line in _LINE_END.split(self.raw))
        others = [line for line, name in names if line and name != b"data"]
        return b"".join(line + end for line in (*others, b"data: " + data)) + end


def _are_events(data: bytes) -> bool:
    """Whether the bytes are whole events, in the form that nearly all have: lines that end with a line feed, and one empty line behind each event."""
    return data.endswith(b"\n\n") and b"\r" not in data and b"\n\n\n" not in data and not data.startswith(b"\n")


def _simple(raw: bytes) -> RawEvent:
    """Such an event."""
    lines = [line for line in raw.split(b"\n") if line.startswith(b"data:") or line == b"data"]
    data = [line[5:].removeprefix(b" ") for line in lines]
    return RawEvent(raw=raw, data=b"\n".join(data).decode("utf-8", "replace") if data else None)


class Splitter(Protocol):
    """What cuts a body into events."""

    is_lost: bool
    end: bytes

    @property
    def is_between(self) -> bool:
        """Whether all bytes so far were complete events."""
        ...

    def feed(self, data: bytes) -> list[RawEvent]:
        """The events that `data` completes."""
        ...

    def rest(self) -> bytes:
        """What stands behind the last complete event."""
        ...

    def last(self) -> RawEvent | None:
        """The rest as the event that it is once it ends; None where there is none."""
        ...


class SseSplitter:
    """State: the bytes of the current event, where its current line begins, and its data so far. `end`: what ends an event, wherever it stops."""

    end = b"\n\n"

    def __init__(self, *, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._raw = bytearray()
        self._line: int = 0
        self._scanned: int = 0
        self._data: list[str] = []
        self._first = True
        self._after_cr = False
        self.is_lost = False

    @property
    def is_between(self) -> bool:
        """Whether all bytes so far were complete events, the last of which ended with a line feed."""
        return not self._raw and not self._after_cr and not self._first

    def feed(self, data: bytes) -> list[RawEvent]:
        """The events that `data` completes. An event ends with the carriage return of its last line; a line feed that comes later is a piece of its own."""
        if not data:
            return []
        if not self._raw and not self._after_cr and not self._first and _are_events(data):
            return [_simple(event + b"\n\n") for event in data[:-2].split(b"\n\n")]
        pieces: list[RawEvent] = []
        if self._after_cr and data.startswith(b"\n"):
            if self._raw:
                self._line = self._scanned = self._scanned + 1
            else:  # by itself: what goes out for the next event may be other bytes, or none
                pieces.append(RawEvent(raw=b"\n"))
                data = data[1:]
        self._raw += data
        self._after_cr = False
        while (found := _LINE_END.search(self._raw, self._scanned)) is not None:
            self._after_cr = found.group() == b"\r" and found.end() == len(self._raw)
            line = bytes(self._raw[self._line : found.start()])
            self._line = self._scanned = found.end()
            if self._take(line):
                if not self._data and (more := _EMPTY_LINES.match(self._raw, self._line)) is not None:
                    self._line = self._scanned = more.end()  # a server may send nothing else for long
                pieces.append(self._dispatch())
        self._scanned = max(self._scanned, len(self._raw))
        self.is_lost = self.is_lost or len(self._raw) > self._limit
        return pieces

    def rest(self) -> bytes:
        """What stands behind the last complete event."""
        return bytes(self._raw)

    def last(self) -> RawEvent | None:
        """The rest as the event that it is once it ends; None where there is none."""
        return next(iter(SseSplitter().feed(self.rest() + self.end)), None) if self._raw else None

    def _take(self, line: bytes) -> bool:
        """Whether the line ends the event."""
        if self._first:
            line, self._first = line.removeprefix(_BYTE_ORDER_MARK), False
        if not line:
            return True
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
        return False

    def _dispatch(self) -> RawEvent:
        piece = RawEvent(raw=bytes(self._raw[: self._line]), data="\n".join(self._data) if self._data else None)
        del self._raw[: self._line]
        self._line = self._scanned = 0
        self._data = []
        return piece


class LineSplitter:
    """State: the bytes of the current line. `end`: what ends it."""

    end = b"\n"

    def __init__(self, *, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._raw = bytearray()
        self.is_lost = False

    @property
    def is_between(self) -> bool:
        """Whether all bytes so far were complete lines."""
        return not self._raw

    def feed(self, data: bytes) -> list[RawEvent]:
        """The lines that `data` completes."""
        if b"\n" not in data:
            self._raw += data
            self.is_lost = self.is_lost or len(self._raw) > self._limit
            return []
        whole, end, rest = (bytes(self._raw) + data).rpartition(b"\n")
        self._raw = bytearray(rest)
        self.is_lost = self.is_lost or len(self._raw) > self._limit
        lines: list[bytes] = _LINES.findall(whole + end)
        return [_line(line) for line in lines]  # empty lines are one

    def rest(self) -> bytes:
        """What stands behind the last complete line."""
        return bytes(self._raw)

    def last(self) -> RawEvent | None:
        """The rest as the line that it is once it ends; None where there is none."""
        return _line(self.rest()) if self._raw else None


def _line(raw: bytes) -> RawEvent:
    return RawEvent(raw=raw, data=raw.decode("utf-8", "replace").strip() or None, is_line=True)

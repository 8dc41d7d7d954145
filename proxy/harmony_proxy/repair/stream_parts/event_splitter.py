"""Split a body into its events, each with its original bytes.

Server-sent events end with an empty line, lines of JSON with a line feed. No byte is lost: all `raw` in order, followed by `rest`,
are the input. Beyond the size limit of one event the splitter gives up (`is_over_limit`), and its buffer is the rest.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harmony_conformance.json_value import InvalidJsonError, Json, dumps, loads, value_at
from harmony_conformance.transport.sse import DONE
from harmony_proxy.repair.text.api_dialects import ChoiceContent
from harmony_proxy.repair.text.other_readings import JsonReadings, TooManyReadingsError, read_json

EVENT_LIMIT = 1024 * 1024
"""Maximum size of one event in bytes."""

_LINE_END = re.compile(rb"\r\n|\n|\r")
_EMPTY_LINES = re.compile(rb"(?:\r?\n)+")
_LINES = re.compile(rb"\n+|[^\n]+\n")
_FIELD = re.compile(rb"(?:|:.*|(?:event|id|retry)(?::.*)?)\Z", re.DOTALL)
"""A line of an event without data."""
_USUAL_EVENT = re.compile(rb"(?:event: [\w.-]{1,64}\n)?data: [^\r\n]*\n\n")
_PLAIN_LINE = re.compile(
    rb"(?:|:.*|data(?::.*)?|event(?:: ?[\w.-]{0,64})?|id(?:: ?[\w.:+/=-]{0,128})?|retry(?:: ?\d{0,9})?)\Z", re.DOTALL
)
"""A line of an event that shows no text but its data: names and ids are words, and no client reads comments."""
_UNUSUAL_DATA = re.compile(rb"(?!data:)(?:(?:\xef\xbb\xbf|\s)*(?i:data)\s*:)?\s*(?P<json>\{.*)", re.DOTALL)
"""A line that some clients read as data: after a mark or a blank, in another case, or without the name of its field."""
_FOREIGN_COMMENT = re.compile(
    rb"((?:\A(?:\xef\xbb\xbf)?|[\r\n]):)"
    rb"(?! ?(?:keep[-_ ]?alive|ping|heartbeat|(?:openrouter )?processing)?[- ]{0,3}[\d :.+TZ-]{0,40}(?:[\r\n]|\Z))[^\r\n]*",
    re.IGNORECASE,
)
"""A comment other than a keep-alive."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_NAME = 64


@dataclass(kw_only=True)
class RawEvent:
    """One event of a stream.

    Attributes:
        raw: Original bytes.
        data: Content of its data fields; None for a comment or an empty line.
        is_line: True if the stream consists of JSON lines.
        parts: Content by choice, read on arrival.
        source: Place of the item that the event belongs to (Responses API), read on arrival.
        is_strict: True if members are looked for that clients read differently.
        is_refused: True if an event with duplicate members has no value.
    """

    raw: bytes
    data: str | None = None
    is_line: bool = False
    parts: Sequence[ChoiceContent] = ()
    source: int | None = None
    is_strict: bool = False
    is_refused: bool = False

    @property
    def is_done(self) -> bool:
        """True for the `[DONE]` event that ends a stream."""
        return self.data is not None and self.data.strip() == DONE

    @property
    def is_unreadable(self) -> bool:
        """True if the data is not a JSON object, or a line is not a field of an event."""
        if self.data is None:
            return any(_FIELD.match(line) is None for line in _LINE_END.split(self.raw.removeprefix(_BYTE_ORDER_MARK)))
        return bool(self.data.strip()) and not self.is_done and not isinstance(self.value, dict)

    def reject_reason(self, *, is_answer: bool, is_strict: bool) -> str:
        """Return the reason why this event of an answer or of an error cannot be examined, or an empty text."""
        if is_answer and self.is_unreadable and not self.has_duplicates:
            return "an event that is not a JSON object"
        is_read = is_answer or self.value is not None or self.has_duplicates  # an error may be plain text
        return self._unread_reason() if is_strict and is_read else ""

    def _unread_reason(self) -> str:
        """Return the reason if a client may read more than the checks do, or an empty text."""
        if self.value is None and self.has_duplicates:
            return "an event with duplicate JSON members"
        is_plain = (
            self.raw.startswith(b"data: ") and self.raw.find(b"\n") == len(self.raw) - 2 and b"\r" not in self.raw
        )
        if not (self.is_line or is_plain or _USUAL_EVENT.fullmatch(self.raw)):
            lines = _LINE_END.split(self.raw.removeprefix(_BYTE_ORDER_MARK))
            if any(_PLAIN_LINE.match(line) is None for line in lines):
                return "an event with fields that are not read"
        return ""

    def unread_texts(self) -> Iterator[tuple[str, str]]:
        """Yield texts that the checks do not read, with the names of their fields: lines with more than words, data that is no JSON object."""
        if self.data is not None and not self.is_done and not isinstance(self.value, dict):
            yield "data", self.data
        if self.is_line or _USUAL_EVENT.fullmatch(self.raw) is not None:
            return
        for line in _LINE_END.split(self.raw.removeprefix(_BYTE_ORDER_MARK)):
            if _PLAIN_LINE.match(line) is None or _FOREIGN_COMMENT.match(line) is not None:
                name, _, text = line.decode("utf-8", "replace").partition(":")
                yield name if len(name) < _LONGEST_NAME else "", text or name

    def read_strictly(self) -> None:
        """Refuse duplicate members. Replace comments by empty ones, which keep a connection alive too; usual keep-alives stay."""
        self.is_strict = self.is_refused = True
        if not self.is_line and (
            self.raw.removeprefix(_BYTE_ORDER_MARK).startswith(b":") or b"\n:" in self.raw or b"\r:" in self.raw
        ):
            self.raw = _FOREIGN_COMMENT.sub(rb"\1", self.raw)

    @property
    def is_error(self) -> bool:
        """True if the server reports an error with this event."""
        return value_at(self.value, "error") is not None or value_at(self.value, "type") in ("error", "response.failed")

    @property
    def value(self) -> Json:
        """Return the data as JSON; None if it is not JSON."""
        return None if self._readings is None else self._readings.value

    @property
    def has_duplicates(self) -> bool:
        """True if an object has two members of one name."""
        return self._readings is not None and self._readings.has_duplicates

    @property
    def other_values(self) -> tuple[Json, ...]:
        """Return what other clients may read instead of `value`: of its members, or of lines that resemble data."""
        others = () if self._readings is None else self._readings.others
        return others if self._unusual_value is None else (*others, self._unusual_value)

    @cached_property
    def _unusual_value(self) -> Json:
        if not self.is_strict or self.is_line or _USUAL_EVENT.fullmatch(self.raw) is not None:
            return None
        data = [match["json"] for line in _LINE_END.split(self.raw) if (match := _UNUSUAL_DATA.match(line)) is not None]
        try:
            value = loads(b"\n".join(data)) if data else None
        except InvalidJsonError:
            return None
        return value if isinstance(value, dict) else None

    @cached_property
    def _readings(self) -> JsonReadings | None:
        if not self.data:
            return None
        try:
            if not self.is_strict:
                return JsonReadings(value=loads(self.data))
            readings = read_json(self.data)
        except InvalidJsonError:
            return None
        except TooManyReadingsError:
            return JsonReadings(value=None, has_duplicates=True)
        return replace(readings, value=None) if readings.has_duplicates and self.is_refused else readings

    def encode_value(self, value: Json) -> bytes:
        """Return the bytes of this event with another JSON value. Lines without data and the line ends are retained."""
        data = dumps(value).encode("utf-8", "backslashreplace")
        if self.is_line:
            return data + b"\n"
        end = b"\r\n" if b"\r\n" in self.raw else b"\n"
        names = ((line, line.removeprefix(_BYTE_ORDER_MARK).partition(b":")[0]) for line in _LINE_END.split(self.raw))
        others = [line for line, name in names if line and name != b"data"]
        return b"".join(line + end for line in (*others, b"data: " + data)) + end


def _are_events(data: bytes) -> bool:
    """Return True if the bytes are complete events in the usual form: lines end with a line feed, events with one empty line."""
    return data.endswith(b"\n\n") and b"\r" not in data and b"\n\n\n" not in data and not data.startswith(b"\n")


def _parse_simple(raw: bytes) -> RawEvent:
    lines = [line for line in raw.split(b"\n") if line.startswith(b"data:") or line == b"data"]
    data = [line[5:].removeprefix(b" ") for line in lines]
    return RawEvent(raw=raw, data=b"\n".join(data).decode("utf-8", "replace") if data else None)


class Splitter(ABC):
    """Splits a body into events. Stores the bytes of the current event. `end` ends an incomplete event."""

    end: bytes

    def __init__(self, *, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._raw: bytearray = bytearray()
        self.is_over_limit = False

    @property
    @abstractmethod
    def is_at_boundary(self) -> bool:
        """True if all bytes so far were complete events."""

    @abstractmethod
    def feed(self, data: bytes) -> list[RawEvent]:
        """Return the events that `data` completes."""

    def rest(self) -> bytes:
        """Return the bytes after the last complete event."""
        return bytes(self._raw)

    @abstractmethod
    def last(self) -> RawEvent | None:
        """Return the event that the rest would be if it ended here; None if there is no rest."""


class SseSplitter(Splitter):
    """Splits server-sent events. Stores the data of the current event, and the start of its current line."""

    end = b"\n\n"

    def __init__(self, *, limit: int = EVENT_LIMIT) -> None:
        super().__init__(limit=limit)
        self._line: int = 0
        self._scanned: int = 0
        self._data: list[str] = []
        self._first = True
        self._after_cr = False

    @property
    def is_at_boundary(self) -> bool:
        """True if all bytes so far were complete events, and the last one ended with a line feed."""
        return not self._raw and not self._after_cr and not self._first

    def feed(self, data: bytes) -> list[RawEvent]:
        """Return the events that `data` completes. An event ends with the carriage return of its last line; a later line feed is a separate event."""
        if not data:
            return []
        if self.is_at_boundary and _are_events(data):
            return [_parse_simple(event + b"\n\n") for event in data[:-2].split(b"\n\n")]
        pieces: list[RawEvent] = []
        if self._after_cr and data.startswith(b"\n"):
            if self._raw:
                self._line = self._scanned = self._scanned + 1
            else:  # separate, since the next event may be rewritten or dropped
                pieces.append(RawEvent(raw=b"\n"))
                data = data[1:]
        self._raw += data
        self._after_cr = False
        while (match := _LINE_END.search(self._raw, self._scanned)) is not None:
            self._after_cr = match.group() == b"\r" and match.end() == len(self._raw)
            line = bytes(self._raw[self._line : match.start()])
            self._line = self._scanned = match.end()
            if self._take(line):
                if not self._data and (empty_lines := _EMPTY_LINES.match(self._raw, self._line)) is not None:
                    self._line = self._scanned = empty_lines.end()  # a server may send only empty lines for a long time
                pieces.append(self._dispatch())
        self._scanned = max(self._scanned, len(self._raw))
        self.is_over_limit = self.is_over_limit or len(self._raw) > self._limit
        return pieces

    def last(self) -> RawEvent | None:
        """Return the event that the rest would be if it ended here; None if there is no rest."""
        return next(iter(SseSplitter().feed(self.rest() + self.end)), None) if self._raw else None

    def _take(self, line: bytes) -> bool:
        """Process a line, and return True if it ends the event."""
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


class LineSplitter(Splitter):
    """Splits lines of JSON."""

    end = b"\n"

    @property
    def is_at_boundary(self) -> bool:
        """True if all bytes so far were complete lines."""
        return not self._raw

    def feed(self, data: bytes) -> list[RawEvent]:
        """Return the lines that `data` completes."""
        if b"\n" not in data:
            self._raw += data
            self.is_over_limit = self.is_over_limit or len(self._raw) > self._limit
            return []
        whole, end, rest = (bytes(self._raw) + data).rpartition(b"\n")
        self._raw = bytearray(rest)
        self.is_over_limit = self.is_over_limit or len(self._raw) > self._limit
        lines: list[bytes] = _LINES.findall(whole + end)  # consecutive empty lines are one match
        return [_line(line) for line in lines]

    def last(self) -> RawEvent | None:
        """Return the line that the rest would be if it ended here; None if there is no rest."""
        return _line(self.rest()) if self._raw else None


def _line(raw: bytes) -> RawEvent:
    return RawEvent(raw=raw, data=raw.decode("utf-8", "replace").strip() or None, is_line=True)

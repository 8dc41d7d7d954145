"""Texts of a stream that only some clients show. For blocking, they are read too.

- These are read as they arrive: names, ids, comments, unknown fields, data that is no JSON, and members with rare texts.
- An event with other readings (see `other_readings`) is buffered with all that follows. At the end of the stream, each reading of it is judged.
- A stream with an error status is buffered too: some clients show it as an answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import strings
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.stream_judge import SIGNS, StreamJudge
from harmony_proxy.repair.text.rare_texts import (
    REASONING_NAMES,
    kind_of_call,
    rare_texts_of_event,
    whole_texts_of_event,
)

SEARCHED = 16 * 1024
"""Characters before a new text that are searched with it, in the joined texts of a field."""
_MOST_FIELDS = 64
"""Fields whose texts are joined for each; those of all further ones are joined."""
_STEPS = 8
"""A text is searched again once it has grown by this part."""


@dataclass
class _Text:
    """The first letter and the end of the joined texts of a field, and the number of characters that were not searched yet."""

    first: str = ""
    end: str = ""
    new: int = 0

    def add(self, text: str) -> bool:
        """Add a text, and return True if the joined text must be searched: not each time, since a server may send it in single letters."""
        self.first = self.first or text.lstrip()[:1]
        self.end = (self.end + text)[-SEARCHED - len(text) :]
        self.new += len(text)
        if self.new * _STEPS < len(self.end):
            return False
        self.new = 0
        return True


class OtherClientsView:
    """Reads one stream. Stores the texts of each field, and whether the stream is buffered until its end."""

    def __init__(self, judge: StreamJudge, checks: frozenset[str], *, blocked: frozenset[str], is_error: bool) -> None:
        self._judge, self._checks, self._blocked = judge, checks, blocked
        self._texts = defaultdict[str, _Text](_Text)
        self._is_error = is_error
        self.is_waiting = bool(checks) and is_error

    @property
    def is_reading(self) -> bool:
        """True if a check of leaks blocks."""
        return bool(self._checks)

    def read(self, piece: RawEvent) -> frozenset[str]:
        """Read an event, and return the checks that fail on its texts outside of the answer."""
        if not self._checks:
            return frozenset()
        self.is_waiting = self.is_waiting or bool(piece.other_values)
        texts = [*piece.unread_texts()]
        if piece.data is not None:
            texts += rare_texts_of_event(piece.value, self._judge.api)
            if piece.is_error or self._is_error:
                texts.append(("error", "\n".join((*strings(piece.value), ""))))
        found = frozenset[str]()
        for field, one in texts:
            place = field if field in self._texts or len(self._texts) < _MOST_FIELDS else ""
            found |= self._search(place) if self._texts[place].add(one) else frozenset[str]()
        return found | self._read_whole(piece) | self._read_call(piece)

    def _read_whole(self, piece: RawEvent) -> frozenset[str]:
        """Return the checks that fail on a complete text. What repeats the answer is read for checks that block: repairs rewrite it."""
        found = frozenset[str]()
        for checks, is_blocked in ((self._checks - self._blocked, False), (self._checks & self._blocked, True)):
            texts = whole_texts_of_event(piece.value, self._judge.api, with_repeated=is_blocked) if checks else ()
            for field, one in texts:
                found |= self._failures_of(field, one, one.lstrip()[:1], checks)
        return found

    def _read_call(self, piece: RawEvent) -> frozenset[str]:
        """Return the checks that fail on an event with a whole call, which clients run as soon as they have it. Repairs rewrite calls of functions."""
        kind = kind_of_call(piece.value, self._judge.api)
        checks = self._checks & self._blocked if kind == "function_call" else self._checks
        if not kind or not checks or SIGNS.search(piece.raw) is None:
            return frozenset()
        return frozenset(self._judge.failures_of(self._judge.with_body(piece.raw), checks))

    def _search(self, field: str) -> frozenset[str]:
        text = self._texts[field]
        return self._failures_of(field, text.end, text.first, self._checks)

    def _failures_of(self, field: str, text: str, first: str, checks: frozenset[str]) -> frozenset[str]:
        if field.endswith("/arguments") and first in ("{", "["):  # the checks read them
            return frozenset()
        is_reasoning = not REASONING_NAMES.isdisjoint(field.split("/"))
        return self._judge.failures_of_text(text, checks & {"channels.no_marker_leak"} if is_reasoning else checks)

    def failing_checks(self, emitted: Iterable[bytes], buffered: Sequence[RawEvent]) -> frozenset[str]:
        """Return the checks that fail on another reading of the stream so far."""
        found, before = frozenset[str](), b"".join(emitted)
        for field, one in self._texts.items():
            found |= self._search(field) if one.new else frozenset[str]()
        for place in range(max((len(piece.other_values) for piece in buffered), default=0)):
            data = before + b"".join(_with_reading(piece, place) for piece in buffered)
            found |= self._judge.failures_of(self._judge.with_body(data), self._checks).keys()
        return found


def _with_reading(piece: RawEvent, place: int) -> bytes:
    values = piece.other_values
    return piece.encode_value(values[min(place, len(values) - 1)]) if values else piece.raw

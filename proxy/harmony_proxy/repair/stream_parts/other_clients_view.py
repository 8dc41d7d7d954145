"""Texts of a stream that only some clients show. For blocking, they are read too.

- Texts outside of the data of an event (names, ids, comments, unknown fields), and data that is no JSON, are read as they arrive.
- An event with other readings (see `other_readings`) is buffered with all that follows. At the end of the stream, each reading of it is judged.
- A stream with an error status is buffered too: some clients show it as an answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain

from harmony_conformance.json_value import strings
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.stream_judge import StreamJudge

SEARCHED = 16 * 1024
"""Characters at the end of the joined texts of a field that are searched."""


class OtherClientsView:
    """Reads one stream. Stores the end of the texts of each field, and whether the stream is buffered until its end."""

    def __init__(self, judge: StreamJudge, checks: frozenset[str], *, is_error: bool) -> None:
        self._judge, self._checks = judge, checks
        self._texts = defaultdict[str, str](str)
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
        is_error = piece.is_error or self._is_error
        of_error = [("error", "\n".join((*strings(piece.value), "")))] if is_error else []
        found = frozenset[str]()
        for field, text in chain(piece.unread_texts(), of_error):
            joined = self._texts[field] = (self._texts[field] + text)[-SEARCHED:]
            found |= self._judge.failures_of_text(joined, self._checks, is_error=is_error)
        return found

    def failing_checks(self, emitted: Iterable[bytes], buffered: Sequence[RawEvent]) -> frozenset[str]:
        """Return the checks that fail on another reading of the stream so far."""
        found, before = frozenset[str](), b"".join(emitted)
        for place in range(max((len(piece.other_values) for piece in buffered), default=0)):
            data = before + b"".join(_with_reading(piece, place) for piece in buffered)
            found |= self._judge.failures_of(self._judge.with_body(data), self._checks).keys()
        return found


def _with_reading(piece: RawEvent, place: int) -> bytes:
    values = piece.other_values
    return piece.encode_value(values[min(place, len(values) - 1)]) if values else piece.raw

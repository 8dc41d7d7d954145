"""The events of a stream that wait for a verdict, in order, and how many bytes of them may."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from harmony_conformance.json_value import Json, items
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent

HOLD_LIMIT = 1024 * 1024
"""The most bytes that are held for one verdict: a thought of some 4,000 tokens, each an event of its own."""


class HoldBuffer:
    """State: the events, their bytes, and whether one of them has a call that is odd, or is to be judged in any case."""

    def __init__(self, *, limit: int) -> None:
        self.pieces: list[RawEvent] = []
        self.is_odd = self.is_suspect = False
        self._most = min(HOLD_LIMIT, limit)
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether no more may wait."""
        return self._size > self._most

    def add(self, piece: RawEvent, is_odd: Callable[[Json], bool] | None = None, *, is_suspect: bool) -> None:
        """One more waits. `is_odd` says so of a call."""
        self.pieces.append(piece)
        self._size += len(piece.raw)
        self.is_suspect = self.is_suspect or is_suspect
        if is_odd is not None and not self.is_odd:
            calls = (call for part in piece.parts for call in items(part.said.get("tool_calls")))
            self.is_odd = any(map(is_odd, calls))

    def take(self, waiting: Collection[int] = ()) -> list[RawEvent]:
        """Nothing waits any more, but for events that are of these choices alone."""
        stay, taken = list[RawEvent](), list[RawEvent]()
        for piece in self.pieces:
            is_theirs = bool(piece.parts) and all(part.choice in waiting for part in piece.parts)
            (stay if is_theirs else taken).append(piece)
        self.is_odd = self.is_suspect = False
        self.put_back(stay)
        return taken

    def put_back(self, pieces: list[RawEvent]) -> None:
        """They wait after all; what is odd of them was seen."""
        self.pieces = pieces
        self._size = sum(len(piece.raw) for piece in pieces)


def joined(out: Iterable[bytes]) -> list[bytes]:
    """As one piece, or none."""
    data = b"".join(out)
    return [data] if data else []

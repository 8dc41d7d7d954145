"""The buffer for events of a stream that wait for a verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from harmony_conformance.json_value import Json, items
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent

HOLD_LIMIT = 1024 * 1024
"""Maximum size of the buffer in bytes: reasoning of about 4,000 tokens, one event per token."""


class HoldBuffer:
    """Buffers events in order.

    Attributes:
        pieces: The events.
        has_unexpected_call: True if an event has an unexpected call.
        must_be_judged: True if an event must be judged regardless of its texts.
    """

    def __init__(self, *, limit: int) -> None:
        self.pieces: list[RawEvent] = []
        self.has_unexpected_call = self.must_be_judged = False
        self._most = min(HOLD_LIMIT, limit)
        self._size = 0

    @property
    def is_full(self) -> bool:
        """True if the buffer exceeds its limit."""
        return self._size > self._most

    def add(
        self, piece: RawEvent, is_unexpected_call: Callable[[Json], bool] | None = None, *, must_be_judged: bool
    ) -> None:
        """Add an event. `is_unexpected_call` returns True for an unexpected call."""
        self.pieces.append(piece)
        self._size += len(piece.raw)
        self.must_be_judged = self.must_be_judged or must_be_judged
        if is_unexpected_call is not None and not self.has_unexpected_call:
            calls = (call for part in piece.parts for call in items(part.message.get("tool_calls")))
            self.has_unexpected_call = any(map(is_unexpected_call, calls))

    def take(self, waiting: Collection[int] = ()) -> list[RawEvent]:
        """Remove and return all events, except those that belong only to the choices in `waiting`."""
        remaining, taken = list[RawEvent](), list[RawEvent]()
        for piece in self.pieces:
            waits = bool(piece.parts) and all(part.choice in waiting for part in piece.parts)
            (remaining if waits else taken).append(piece)
        self.has_unexpected_call = self.must_be_judged = False
        self.put_back(remaining)
        return taken

    def put_back(self, pieces: list[RawEvent]) -> None:
        """Buffer these events again. Their unexpected calls were judged already."""
        self.pieces = pieces
        self._size = sum(len(piece.raw) for piece in pieces)


def joined(out: Iterable[bytes]) -> list[bytes]:
    """Return the non-empty concatenation as a list of one, or an empty list."""
    data = b"".join(out)
    return [data] if data else []

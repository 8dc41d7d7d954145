"""The response that the client got, recorded next to the one that the upstream sent: for the log of repairs and blocks.

It takes memory as the recorder does. Past a limit it is dropped: that changes nothing for the traffic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from harmony_proxy.capture.memory_budget import FREE_BYTES, MemoryBudget

PART_COST = 128

PackedResponse = tuple[int, list[tuple[bytes, bytes]], list[bytes] | None, list[float]]
"""Status, headers, parts of the body (None: not retained) and their times."""


class RecordedResponse(NamedTuple):
    """A response as plain values. Times are seconds after the request was sent. `body` is None if it was not retained."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes | None
    times: list[float]
    sizes: list[int]


class SentResponse:
    """State: the head, the parts of the body while they are retained, and the memory.

    Attributes:
        status: the status that the client got; None before the head was sent.
    """

    def __init__(self, limit: int, memory: MemoryBudget) -> None:
        self.status: int | None = None
        self._limit, self._memory = limit, memory
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] | None = []
        self._times: list[float] = []
        self._used, self._granted, self._taken = 0, min(FREE_BYTES, limit), 0

    @property
    def cost(self) -> int:
        """The approximate memory in bytes."""
        return self._used

    def head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Record the status and headers."""
        self.status, self._headers = status, [*headers]

    def feed(self, data: bytes, at: float) -> None:
        """Record a part of the body, `at` seconds after the request was sent."""
        if not data or self._parts is None:
            return
        self._used += len(data) + PART_COST
        if not self._may_use():
            self.drop()
            return
        self._parts.append(data)
        self._times.append(at)

    def pack(self) -> PackedResponse | None:
        """Return the response as plain values; None without a head."""
        return None if self.status is None else (self.status, self._headers, self._parts, self._times)

    def drop(self) -> None:
        """Retain nothing of the body, from here on too."""
        self._parts, self._times, self._used = None, [], 0
        self.release()

    def release(self) -> None:
        """Give back the memory that was taken."""
        self._memory.give_back(self._taken)
        self._taken = 0

    def _may_use(self) -> bool:
        if self._used > self._limit:
            return False
        if self._used <= self._granted:
            return True
        taken = self._memory.take(self._used - self._granted)
        self._taken += taken
        self._granted += taken
        return taken > 0


def decode_response(packed: PackedResponse) -> RecordedResponse:
    """Decode a packed response, which may come from another process."""
    status, headers, parts, times = packed
    return RecordedResponse(
        status=status,
        headers=tuple((name, value) for name, value in headers),
        body=None if parts is None else b"".join(parts),
        times=times,
        sizes=[len(part) for part in parts or ()],
    )

"""The memory of all exchanges in flight: one limit, from which each exchange takes blocks as it grows.

A quarter of the limit is for the queue of finished exchanges. The first `FREE_BYTES` of an exchange are not counted, so that
small exchanges cost nothing here.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from threading import Lock

DEFAULT_LIMIT = 256 * 1024 * 1024
SMALLEST_LIMIT = 16 * 1024 * 1024
FREE_BYTES = 16 * 1024
_BLOCK_BYTES = 64 * 1024
_TRIM_BYTES = 16 * 1024 * 1024  # freed bytes after which memory is given back to the system
_QUEUE_SHARE = 4


class MemoryBudget:
    """State: the bytes that exchanges have taken, and the bytes that were freed since the last `trim`."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit, self.queue_limit = limit, limit // _QUEUE_SHARE
        self.used_bytes = self._freed = 0
        self._lock = Lock()

    @property
    def is_exhausted(self) -> bool:
        """True if no exchange can grow."""
        return self.used_bytes + _BLOCK_BYTES > self.limit - self.queue_limit

    def take(self, needed: int) -> int:
        """Take at least `needed` bytes, rounded up to blocks, and return the number taken; 0 if the limit does not allow it."""
        size = -(-needed // _BLOCK_BYTES) * _BLOCK_BYTES
        with self._lock:
            if self.used_bytes + size > self.limit - self.queue_limit:
                return 0
            self.used_bytes += size
        return size

    def give_back(self, size: int) -> None:
        """Give back bytes that were taken."""
        with self._lock:
            self.used_bytes -= size
        self.count_freed(size)

    def count_freed(self, size: int) -> None:
        """Count bytes that were freed, of exchanges or of the queue."""
        self._freed += size

    def trim(self) -> None:
        """Return freed memory to the system, if there is enough of it. The C library keeps it otherwise. Takes milliseconds."""
        if self._freed >= _TRIM_BYTES and self._freed >= self.used_bytes:
            self._freed = 0
            with suppress(OSError, AttributeError, TypeError):  # only glibc has it
                ctypes.CDLL(None).malloc_trim(0)

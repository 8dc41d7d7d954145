"""The bytes of a stream that were not sent yet. After an internal error they can pass, if those that were sent are the server's own."""

from __future__ import annotations


class UnsentBytes:
    """State: the unsent bytes, and whether the client has only bytes of the server.

    Attributes:
        is_unchanged: true as long as only bytes of the server were sent.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.is_unchanged = True

    def add(self, data: bytes) -> None:
        """Add bytes of the server."""
        self._bytes += data

    def mark_sent(self, sent: bytes) -> None:
        """Remove bytes that were sent."""
        if self.is_unchanged and self._bytes.startswith(sent):
            del self._bytes[: len(sent)]
        else:
            self.is_unchanged = False
            self._bytes.clear()

    def take(self) -> bytes:
        """Remove and return all bytes."""
        taken = bytes(self._bytes)
        self._bytes.clear()
        return taken

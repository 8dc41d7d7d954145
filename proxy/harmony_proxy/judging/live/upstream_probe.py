"""Readiness for the thread of the live page: whether the upstream accepts a TCP connection."""

from __future__ import annotations

import socket
import time
from threading import Lock
from urllib.parse import urlsplit

CONNECT_SECONDS = 1.0
FRESH_SECONDS = 1.0
_PORTS = {"http": 80, "https": 443}


class UpstreamProbe:
    """Tries to connect, at most once per `FRESH_SECONDS` for all viewers. State: the last result and its time."""

    def __init__(self, base: str) -> None:
        split = urlsplit(base)
        self._address = split.hostname or "", split.port or _PORTS.get(split.scheme, 0)
        self._lock = Lock()
        self._is_ready, self._expires_at = False, 0.0

    def __call__(self) -> bool:
        """Return True if the upstream accepts connections."""
        with self._lock:
            if time.monotonic() >= self._expires_at:
                self._is_ready = self._connects()
                self._expires_at = time.monotonic() + FRESH_SECONDS
            return self._is_ready

    def _connects(self) -> bool:
        try:
            socket.create_connection(self._address, CONNECT_SECONDS).close()
        except (OSError, UnicodeError):  # the last of an invalid host name
            return False
        return True

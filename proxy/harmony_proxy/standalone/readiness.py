"""Readiness: whether the upstream accepts connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from yarl import URL

CONNECT_SECONDS = 1.0
"""Time limit of an attempt to connect: what a probe of Kubernetes waits by default."""

FRESH_SECONDS = 1.0
"""Age up to which a result is reused, so that frequent probes do not load the upstream."""


class Readiness:
    """Tries to connect to the upstream by TCP, at most once per `FRESH_SECONDS`. State: the last result and its time."""

    def __init__(self, base: str) -> None:
        self._url = URL(base)
        self._lock = asyncio.Lock()
        self._is_ready, self._expires_at = False, 0.0

    async def is_ready(self) -> bool:
        """Return True if the upstream accepts connections. Concurrent calls share one attempt."""
        clock = asyncio.get_running_loop().time
        async with self._lock:
            if clock() >= self._expires_at:
                self._is_ready = await self._connects()
                self._expires_at = clock() + FRESH_SECONDS
            return self._is_ready

    async def _connects(self) -> bool:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(self._url.host, self._url.port)
        except (OSError, TimeoutError, UnicodeError):  # the last of an invalid host name
            return False
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return True

"""Requests in progress, and streams whose client disconnected."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import contextmanager

from harmony_conformance.reference_server.defects.stages import Changes


class Load:
    """Number of requests in progress; `is_down` is True if every request fails. `token_time`: seconds per token of a request that names none."""

    def __init__(self, changes: Changes, token_time: float = 0.0) -> None:
        self._changes = changes
        self.token_time = token_time
        self._abandoned: set[asyncio.Task[None]] = set()
        self.running = 0
        self.is_down = False

    @contextmanager
    def working(self) -> Generator[None]:
        """Count one request as running inside the block."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    async def serve_stream(self, pieces: Callable[[], AsyncIterator[bytes]]) -> AsyncGenerator[bytes]:
        """Yield the stream that `pieces` starts or continues; it ends with the connection, unless a defect is active."""
        has_ended = False
        try:
            with self.working():
                async for data in pieces():
                    yield data
                has_ended = True
        finally:
            if not has_ended:
                self._on_disconnect(pieces)

    def _on_disconnect(self, pieces: Callable[[], AsyncIterator[bytes]]) -> None:
        behaviour = self._changes.disconnect_behaviour()
        self.is_down = self.is_down or not behaviour.survives
        if not behaviour.stops:
            task = asyncio.get_running_loop().create_task(self._exhaust(pieces))
            self._abandoned.add(task)
            task.add_done_callback(self._abandoned.discard)

    async def _exhaust(self, pieces: Callable[[], AsyncIterator[bytes]]) -> None:
        """Generate the rest without a reader."""
        with self.working():
            async for _ in pieces():
                pass

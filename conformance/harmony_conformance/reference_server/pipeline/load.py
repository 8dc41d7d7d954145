"""What the server is working on, and what becomes of a stream whose client has left."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager

from harmony_conformance.reference_server.defects.stages import Changes


class Load:
    """State: how many requests are being answered, and whether the engine is down, so that none will be."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._abandoned: set[asyncio.Task[None]] = set()
        self.running = 0
        self.is_down = False

    @contextmanager
    def working(self) -> Generator[None]:
        """While a request is being answered."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    async def streamed(self, pieces: Callable[[], AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
        """A stream; what is left of it when the client leaves is not generated, unless a defect says otherwise. `pieces` are those to come."""
        has_ended = False
        try:
            with self.working():
                async for data in pieces():
                    yield data
                has_ended = True
        finally:
            if not has_ended:
                self._left(pieces)

    def _left(self, pieces: Callable[[], AsyncIterator[bytes]]) -> None:
        departure = self._changes.departure()
        self.is_down = self.is_down or not departure.survives
        if not departure.stops:
            going_on = asyncio.get_running_loop().create_task(self._go_on(pieces))
            self._abandoned.add(going_on)
            going_on.add_done_callback(self._abandoned.discard)

    async def _go_on(self, pieces: Callable[[], AsyncIterator[bytes]]) -> None:
        """Generate what nobody reads."""
        with self.working():
            async for _ in pieces():
                pass

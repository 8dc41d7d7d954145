"""Two clients whose requests alternate, so that a change of load or of network meets both endpoints alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from harmony_conformance.transport.client import ConnectionSettings, SendResult
from harmony_conformance.transport.messages import Request
from harmony_conformance.transport.waits import Notice, ignore_wait
from harmony_conformance.transport.websocket_client import WebSocketClient

MOST_WAIT = 2.0
"""Seconds that a request waits for the other endpoint's turn at most: an endpoint that is slow or waits does not stop the other."""


@dataclass(kw_only=True)
class Alternation:
    """Turns of two endpoints, 0 and 1. State: the number of requests that each has sent, and the endpoints that are done."""

    sent: list[int] = field(default_factory=lambda: [0, 0])
    done: set[int] = field(default_factory=set[int])
    most_wait: float = MOST_WAIT
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take_turn(self, side: int) -> None:
        """Return when an endpoint may send a request: not before the other has sent as many, unless that is done or takes too long."""
        other = 1 - side
        async with self._changed:
            try:
                async with asyncio.timeout(self.most_wait):
                    await self._changed.wait_for(lambda: other in self.done or self.sent[side] <= self.sent[other])
            except TimeoutError:
                pass
            self.sent[side] += 1
            self._changed.notify_all()

    async def end(self, side: int) -> None:
        """Note that an endpoint sends no more requests."""
        async with self._changed:
            self.done.add(side)
            self._changed.notify_all()


class InterleavedClient(WebSocketClient):
    """A client that takes turns with another one."""

    def __init__(self, settings: ConnectionSettings, alternation: Alternation, side: int) -> None:
        super().__init__(settings)
        self._alternation, self._side = alternation, side

    async def send(
        self, request: Request, on_wait: Callable[[Notice], None] = ignore_wait, leave_after: int | None = None
    ) -> SendResult:
        """Send a request when it is this client's turn; see `Client.send`."""
        await self._alternation.take_turn(self._side)
        return await super().send(request, on_wait, leave_after)

"""Limits on the requests of a run: concurrency, rate and number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count

from harmony_conformance.golden.scenario import Scenario, Step
from harmony_conformance.runner.limits.run_limits import RunLimits
from harmony_conformance.transport.client import Client, SendRequest, SendResult, now
from harmony_conformance.transport.messages import Request
from harmony_conformance.transport.waits import Notice, Wait, ignore_wait

slot_rank: ContextVar[int] = ContextVar("slot_rank", default=0)
"""The rank of a task's requests among those that wait for a slot: the lowest goes first."""
_TURNS_TO_SEND = 5
"""Turns of the event loop in which the next request is sent, as the locks of httpcore yield. Processing an answer first would leave the slot unused.

An answer that may end the run is processed first.
"""


class _Slots:
    """Slots for concurrent requests. A free one goes to the request with the lowest rank, and to the first of several."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._arrivals = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[None]:
        """Hold a slot while the context is active."""
        if self._free:
            self._free -= 1
        else:
            turn = asyncio.get_running_loop().create_future()
            heappush(self._waiting, (slot_rank.get(), next(self._arrivals), turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._release()
                raise
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        while self._waiting:
            *_, turn = heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class RateLimiter:
    """Limits concurrency, rate and number of requests. `crowd` is the concurrency within an exclusive scenario."""

    def __init__(
        self, concurrency: int, crowd: int, most: int | None, rate: float | None, limits: RunLimits | None = None
    ) -> None:
        self._limits = limits
        self._concurrency, self._burst_concurrency = concurrency, crowd
        self._slots = _Slots(concurrency)
        self._burst_slots = _Slots(crowd)
        self._interval = 1 / rate if rate else 0.0
        self._left = most
        self.reached_limit: int | None = None
        """The limit on requests, once a request exceeded it."""
        self._next = 0.0
        self._order = asyncio.Lock()
        self._most = most
        self._pauses = 0
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._is_closed = False

    @contextmanager
    def pause_others(self) -> Generator[None]:
        """Block all but urgent requests while the context is active."""
        self._pauses += 1
        self._is_free.clear()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._is_free.set()

    @property
    def requests_left(self) -> int | None:
        """Number of requests left, None if unlimited."""
        return self._left

    def close(self) -> None:
        """Send no more requests."""
        self._is_closed = True

    def group_concurrency(self, scenario: Scenario, group: Sequence[Step]) -> int:
        """Return the number of concurrent requests of a group."""
        return min(len(group), self._burst_concurrency if scenario.exclusive else self._concurrency)

    async def send(
        self, client: Client, request: Request, leave_after: int | None = None, together: int = 1
    ) -> SendResult | None:
        """Send a request; None if no more may be sent. `together`: number of concurrent requests of its group."""
        async with (self._burst_slots if together > self._concurrency else self._slots).take():
            await self._is_free.wait()
            is_stopped = self._is_closed or (self._limits is not None and self._limits.stop_reason is not None)
            result = await self._pass(client, request, leave_after) if not is_stopped else None
        if not self._ends_by(result):
            for _ in range(_TURNS_TO_SEND):
                await asyncio.sleep(0)
        return result

    def _ends_by(self, result: SendResult | None) -> bool:
        """Return True if an answer may end the run: an error, or one whose tokens are counted."""
        is_counted = self._limits is not None and self._limits.tokens_left is not None
        if is_counted or result is None or result.failure is not None:
            return True
        return result.response is None or not result.response.is_success

    async def send_urgently(self, client: Client, request: Request) -> SendResult | None:
        """Send a request without a slot, for the caller of `pause_others`, whose own request is finished."""
        return await self._pass(client, request, None)

    async def _pass(self, client: Client, request: Request, leave_after: int | None) -> SendResult | None:
        if self._limits is None:
            return await self._send_in_order(client, request, leave_after)
        return await self._limits.send(lambda: self._send_in_order(client, request, leave_after))

    async def _send_in_order(self, client: Client, request: Request, leave_after: int | None) -> SendResult | None:
        async with self._order:
            if self._left is not None:
                if self._left <= 0:
                    self.reached_limit = self._most
                    return None
                self._left -= 1
            await self.wait_for_rate()
        with ExitStack() as stack:

            def hold_others(notice: Notice) -> None:
                """Hold back new requests: they would take the place of this one's retry, which would give up."""
                if isinstance(notice, Wait):
                    stack.enter_context(self.pause_others())

            return await client.send(request, on_wait=hold_others, leave_after=leave_after)

    async def wait_for_rate(self) -> None:
        """Wait until the rate allows one more request."""
        started = now()
        due = self._next
        self._next = max(due, started) + self._interval  # before the wait, during which others enter
        if due > started:
            await asyncio.sleep(due - started)


def rate_limited_send(
    client: Client, rate: float | None, limits: RunLimits, waiting: Callable[[Notice], None] = ignore_wait
) -> SendRequest:
    """Return a function that sends a request within --max-rps and the limits of the run. `waiting`: callback for each wait that the endpoint requests."""
    limiter = RateLimiter(1, 1, None, rate)

    async def send(request: Request) -> SendResult:
        async def send_at_rate() -> SendResult:
            await limiter.wait_for_rate()
            return await client.send(request, waiting)

        return await limits.send(send_at_rate)

    return send

"""Limits of a whole run: its time, and the number of requests in a row without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.client import SendResult, now
from harmony_conformance.transport.messages import Failure, FailureKind

Sent = TypeVar("Sent", SendResult, SendResult | None)
MAX_TIMEOUTS = 5
"""Number of consecutive timeouts that stops a run. Concurrent requests count as one: a single pause of the server ends all of them."""

LEAST_BYTES, BYTES_PER_CONVERSATION = 64 * 1024 * 1024, 256 * 1024
"""Bytes of all answers that are kept in memory, whatever their number, and for each further conversation."""

MAX_REFUSALS = 5
"""Number of consecutive connections that could not be opened, and that stop a run of tasks or of a load."""


def count_output_tokens(x: Exchange) -> int:
    """Return the number of output tokens of an answer: as reported, else as returned, else a quarter of its characters."""
    turn = x.turn
    if turn is None:
        return 0
    if turn.usage is not None and (turn.usage.completion_tokens or 0) > 0:  # a negative count would extend the budget
        return turn.usage.completion_tokens or 0
    if turn.output_ids is not None:
        return len(turn.output_ids)
    texts = (turn.reasoning, turn.content, *(call.arguments for call in turn.tool_calls))
    return sum(len(one or "") for one in texts) // 4


class RunLimits:
    """State: `stop_reason` is the reason to send nothing more, None while the run may continue. Create it when the run starts."""

    def __init__(
        self, max_time: float | None, timeout: float, max_tokens: int | None = None, *, conversations: int | None = None
    ) -> None:
        """`max_time`: the time of the run in seconds, None for no limit. `timeout`: the timeout of one request in seconds.

        `max_tokens`: the number of output tokens of the run, None for no limit. `conversations`: the number of conversations whose
        answers are all kept in memory, which limits their bytes; None if none is kept.
        """
        self.stop_reason: Failure | None = None
        self._max_time, self._timeout = max_time, timeout
        self._deadline = None if max_time is None else now() + max_time
        self._timeouts, self._last_timeout = 0, -inf
        self._max_tokens, self._tokens = max_tokens, 0
        self._refused = 0
        self._max_bytes = None if conversations is None else max(LEAST_BYTES, conversations * BYTES_PER_CONVERSATION)
        self._bytes = 0

    async def send(self, send: Callable[[], Awaitable[Sent]]) -> Sent | SendResult:
        """Call `send` and return its result. At the end of the time it is cancelled, with all its waits, and the result is a failure."""
        if self.stop_reason is not None:
            return SendResult(failure=self.stop_reason)
        started = now()
        try:
            async with asyncio.timeout_at(self._deadline):
                result = await send()
        except TimeoutError:
            self._stop(f"the time limit of {self._max_time:g} s was reached")
            return SendResult(failure=self.stop_reason)
        if result is not None:
            self._count_timeouts(result, started)
            self._count_bytes(result)
        return result

    def _count_bytes(self, result: SendResult) -> None:
        self._bytes += sum(len(chunk.data) for chunk in result.response.chunks) if result.response is not None else 0
        if self._max_bytes is not None and self._bytes > self._max_bytes:
            self._stop(f"the answers have more than {self._max_bytes} bytes in all")

    def _count_timeouts(self, result: SendResult, started: float) -> None:
        if not self._is_timeout(result.failure, started):
            self._timeouts = 0 if result.response is not None else self._timeouts
        elif started >= self._last_timeout:
            self._timeouts, self._last_timeout = self._timeouts + 1, now()
        if self._timeouts >= MAX_TIMEOUTS:
            self._stop(f"the server did not answer {MAX_TIMEOUTS} requests in a row (--timeout {self._timeout:g} s)")

    def _is_timeout(self, failure: Failure | None, started: float) -> bool:
        if failure is None or failure.kind is not FailureKind.NO_CONNECTION:
            return failure is not None and failure.kind is FailureKind.TIMEOUT
        return now() - started >= self._timeout

    @property
    def tokens_left(self) -> int | None:
        """The number of output tokens left, None if unlimited."""
        return None if self._max_tokens is None else max(0, self._max_tokens - self._tokens)

    def count_tokens(self, count: int) -> None:
        """Count the output tokens of an answer."""
        self._tokens += count
        if self.tokens_left == 0:
            self._stop(f"--max-tokens {self._max_tokens} was reached")

    def count_refusals(self, x: Exchange) -> None:
        """Count connections in a row that could not be opened. Five of them stop the run: the server went away."""
        is_refused = x.failure is not None and x.failure.kind is FailureKind.NO_CONNECTION
        self._refused = self._refused + 1 if is_refused else 0
        if x.failure is not None and self._refused >= MAX_REFUSALS:
            self._stop(f"the server went away: {MAX_REFUSALS} connections in a row failed ({x.failure.detail})")

    def stop(self, reason: Failure) -> None:
        """Send nothing more. The first reason remains."""
        self.stop_reason = self.stop_reason or reason

    def _stop(self, detail: str) -> None:
        self.stop(Failure(kind=FailureKind.RUN_STOPPED, detail=detail))

"""A server that is still starting: requests of discovery are repeated until it answers, for a limited time."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable

from harmony_conformance.transport.client import SendRequest, SendResult, now
from harmony_conformance.transport.messages import Request
from harmony_conformance.transport.waits import NOTICE_INTERVAL, Notice, StartupWait

_STARTING = (502, 503, 504)
"""Statuses of a server that loads its model, and of a gateway in front of one."""
_INTERVAL = 1.0
"""Seconds between two attempts."""


def wait_for_start(send: SendRequest, seconds: float | None, notify: Callable[[Notice], None]) -> SendRequest:
    """Return a sender that repeats a request while the server is starting, `seconds` in all. None: `send` itself.

    Some servers list their models before they can answer. So the server has started with its first answer to a POST.
    """
    if seconds is None:
        return send
    deadline: float | None = None
    next_notice = 0.0
    is_started = False

    async def send_when_started(request: Request) -> SendResult:
        nonlocal deadline, next_notice, is_started
        deadline = now() + seconds if deadline is None else deadline
        while True:
            result = await send(request)
            reason = _reason(result)
            if is_started or reason is None or now() >= deadline:
                is_started = is_started or (reason is None and request.method == "POST")
                return result
            if now() >= next_notice:
                next_notice = now() + NOTICE_INTERVAL
                notify(StartupWait(reason=reason, seconds=seconds))
            await sleep(min(_INTERVAL, deadline - now()))

    return send_when_started


def _reason(result: SendResult) -> str | None:
    """Return why a server seems to be starting, or None if it answered."""
    if result.response is None:
        return result.failure.detail if result.failure is not None else "nothing was received"
    return f"HTTP {result.response.status}" if result.response.status in _STARTING else None

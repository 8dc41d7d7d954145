"""Waits that a busy server requests, and answers that do not come: what they are, and how they are reported."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from harmony_conformance.transport.messages import Response

TOO_MANY, _UNAVAILABLE = 429, 503
MOST_WAITS = 3
_LONGEST_WAIT, _UNREADABLE_WAIT = 60.0, 1.0  # seconds
MAX_TOTAL_WAIT = MOST_WAITS * _LONGEST_WAIT
SLOW_SECONDS = 5.0
"""Seconds without an answer until a slow answer is reported."""
NOTICE_INTERVAL = 30.0
"""Seconds between two reports of slow answers."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A wait of `seconds` before a retry that a busy server requested, by an unreadable Retry-After if `requested_seconds` is None.

    `attempt` counts from 1.
    """

    requested_seconds: float | None
    seconds: float
    attempt: int

    def __str__(self) -> str:
        """Return a description in one line."""
        seconds = self.requested_seconds
        reason = "the server is busy" if seconds is None else f"the server asks to wait {seconds:.0f} s"
        return f"{reason}; waiting {self.seconds:.0f} s, {self.attempt} of {MOST_WAITS}"


@dataclass(frozen=True, kw_only=True)
class SlowAnswer:
    """A request without an answer for some seconds."""

    method: str
    path: str
    timeout: float

    def __str__(self) -> str:
        """Return a description in one line."""
        return f"waiting: no answer to {self.method} {self.path} for {SLOW_SECONDS:.0f} s (--timeout {self.timeout:g})"


@dataclass(frozen=True, kw_only=True)
class StartupWait:
    """A server that did not answer yet, and gets up to `seconds` to start."""

    reason: str
    seconds: float

    def __str__(self) -> str:
        """Return a description in one line."""
        return f"waiting for the server to start: {self.reason} (--wait {self.seconds:g})"


Notice = Wait | SlowAnswer | StartupWait
"""A reason why nothing happens."""


def ignore_wait(notice: Notice) -> None:
    """Do nothing: the default callback for waits and slow answers."""


def has_excessive_retry_after(response: Response) -> bool:
    """Return True if a busy server asks for a longer wait than the client accepts."""
    return (wait := requested_wait(response, 1)) is not None and is_too_long(wait)


def has_reached_wait_limit(waited: Iterable[float]) -> bool:
    """Return True if the waits reach the longest total time."""
    return sum(waited) >= MAX_TOTAL_WAIT


def is_too_long(wait: Wait) -> bool:
    """Return True for a longer wait than the client accepts."""
    return wait.requested_seconds is not None and wait.requested_seconds > MAX_TOTAL_WAIT


def requested_wait(response: Response | None, attempt: int) -> Wait | None:
    """Return the wait that a busy server requests, or None. Retry-After is in seconds or a date."""
    if response is None or response.status not in (TOO_MANY, _UNAVAILABLE):
        return None
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return Wait(requested_seconds=float(value), seconds=min(float(value), _LONGEST_WAIT), attempt=attempt)
    try:
        until = parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return Wait(requested_seconds=None, seconds=_UNREADABLE_WAIT, attempt=attempt) if value else None
    seconds = max(until - time.time(), 0.0)
    return Wait(requested_seconds=seconds, seconds=min(seconds, _LONGEST_WAIT), attempt=attempt)

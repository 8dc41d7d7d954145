"""Time limit of a piece of pure work in this process."""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import current_thread, main_thread
from time import monotonic
from typing import TextIO

JUDGING_SECONDS = 60.0
"""Longest time to judge one line of a log, or one scenario of a run."""
GRACE_SECONDS = 5.0
"""Time after the limit in which work in C code can return and raise `TimeLimitError`."""
_REPEAT_SECONDS = 1.0
_exit_files: list[TextIO] = []


class TimeLimitError(BaseException):
    """A piece of work took too long. Not an `Exception`, so that no check catches it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"judging took longer than {seconds:g} s")


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """Abort the work in this context after `seconds`. See `time_limits`.

    Raises:
        TimeLimitError: The work took longer.
    """
    with time_limits(seconds) as limit, limit:
        yield


@contextmanager
def time_limits(seconds: float) -> Generator[TimeLimit]:
    """Give a context that aborts each piece of work in it after `seconds`. It costs two system calls a piece.

    Only the main thread on a system with `SIGALRM` has the limit, and only if no other timer of the process is active.
    C code is not interrupted. After `exit_after_limit`, the process ends `GRACE_SECONDS` after the limit or up to a second later, on any system.
    """
    try:
        with _alarm(seconds) as has_alarm:
            yield TimeLimit(seconds, has_alarm=has_alarm)
    finally:
        if _exit_files:
            faulthandler.cancel_dump_traceback_later()


class TimeLimit:
    """A context with a limit. State: when the timer that ends the process was set; the timers are those of the process."""

    def __init__(self, seconds: float, *, has_alarm: bool) -> None:
        self._seconds = seconds
        self._has_alarm = has_alarm
        self._was_set = -math.inf

    def __enter__(self) -> None:
        """Start the timers."""
        # not for each piece: it starts a thread
        if _exit_files and (now := monotonic()) - self._was_set > _REPEAT_SECONDS:
            self._was_set = now
            latest = self._seconds + GRACE_SECONDS + _REPEAT_SECONDS
            faulthandler.dump_traceback_later(latest, exit=True, file=_exit_files[0])
        if self._has_alarm and sys.platform != "win32":
            # repeated: an exception within a destructor is lost
            signal.setitimer(signal.ITIMER_REAL, self._seconds, _REPEAT_SECONDS)

    def __exit__(self, *_: object) -> None:
        """Stop the alarm."""
        if self._has_alarm and sys.platform != "win32":
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def _alarm(seconds: float) -> Generator[bool]:
    """Handle the alarm in this context. Give False if this process has none that is free."""
    if sys.platform == "win32" or current_thread() is not main_thread() or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield False
        return

    def stop(*_: object) -> None:
        raise TimeLimitError(seconds)

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield True
    finally:
        signal.signal(signal.SIGALRM, before)


def exit_after_limit() -> None:
    """Make every `time_limit` of this process end the process if its work does not return. For worker processes."""
    if not _exit_files:
        _exit_files.append(open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - open as long as the process

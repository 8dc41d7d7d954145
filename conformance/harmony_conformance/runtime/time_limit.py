"""Time limit of a piece of pure work in this process."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import current_thread, main_thread
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
    """Abort the work in this context after `seconds`.

    Only the main thread on a system with `SIGALRM` has the limit, and only if no other timer of the process is active.
    C code is not interrupted. After `exit_after_limit`, the process ends `GRACE_SECONDS` after the limit, on any system.

    Raises:
        TimeLimitError: The work took longer.
    """
    if _exit_files:
        faulthandler.dump_traceback_later(seconds + GRACE_SECONDS, exit=True, file=_exit_files[0])
    try:
        with _alarm(seconds):
            yield
    finally:
        if _exit_files:
            faulthandler.cancel_dump_traceback_later()


def exit_after_limit() -> None:
    """Make every `time_limit` of this process end the process if its work does not return. For worker processes."""
    if not _exit_files:
        _exit_files.append(open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - open as long as the process


@contextmanager
def _alarm(seconds: float) -> Generator[None]:
    if sys.platform == "win32" or current_thread() is not main_thread() or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def stop(*_: object) -> None:
        raise TimeLimitError(seconds)

    before = signal.signal(signal.SIGALRM, stop)
    try:
        # repeated: an exception within a destructor is lost
        signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_SECONDS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

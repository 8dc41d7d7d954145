"""SIGTERM as an interrupt: `timeout`, `docker stop` and a cancelled CI job send it. The user then learns what was kept, as after Ctrl+C."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from types import FrameType

_SHELL_OFFSET = 128  # shells add the number of the signal


@dataclass
class Interruption:
    """A handler of SIGTERM that interrupts like SIGINT. State: the signal that came last."""

    number: int = signal.SIGINT

    @property
    def exit_code(self) -> int:
        """The exit code of shells after the signal."""
        return _SHELL_OFFSET + self.number

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Do what SIGINT does at this moment: raise `KeyboardInterrupt`, or cancel the task that an event loop runs."""
        self.number = number
        handler = signal.getsignal(signal.SIGINT)
        assert callable(handler)
        handler(signal.SIGINT, frame)


@contextmanager
def interrupted_by_termination() -> Generator[Interruption]:
    """Let SIGTERM interrupt this process, not those that it forks. It ends one that ignores SIGINT, as background jobs of a shell do.

    An event loop that hears no SIGINT cannot be interrupted in order.
    """
    interruption = Interruption()
    is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and callable(signal.getsignal(signal.SIGINT))
    if current_thread() is not main_thread() or not is_free:
        yield interruption
        return
    signal.signal(signal.SIGTERM, interruption)
    try:
        yield interruption
    finally:
        if signal.getsignal(signal.SIGTERM) is interruption:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _forget_in_child() -> None:
    if isinstance(signal.getsignal(signal.SIGTERM), Interruption):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_in_child)

"""Processes beside this one, forked where that is safe: what is forked has every module and the vocabulary already."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread, active_count, current_thread, main_thread
from typing import ParamSpec

Given = ParamSpec("Given")


def may_fork() -> bool:
    """Whether a copy of this process would be whole: on Linux, while there is one thread, libraries' own among them, and no loop runs."""
    return sys.platform == "linux" and _threads() == 1 and not _is_in_a_loop()


def forking_if_whole() -> BaseContext:
    """For a pool: its processes are copies of this one where that `may_fork`, else they begin anew. What Python takes by itself differs by its version."""
    return get_context("fork" if may_fork() else "spawn")


def forked(work: Callable[Given, None], *args: Given.args, **named: Given.kwargs) -> BaseProcess:
    """A copy of this process that does some work and ends, or ends with this process. Only where `may_fork`."""

    def working() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who stops this process by the keyboard stops that one by it
        follow_parent()
        work(*args, **named)

    process = get_context("fork").Process(target=working, daemon=True)
    process.start()
    return process


@contextmanager
def starting() -> Generator[None]:
    """Within it processes are started that are not stopped by the keyboard while they still read their modules: who is, has a traceback to show for it.

    They inherit that; `be_stopped` takes it from them. What was pressed meanwhile is told at the end of it. On Windows nothing of this is known.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _told_later():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def be_stopped() -> None:
    """Have the keyboard end this process, without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def follow_parent() -> None:
    """Have this process end when the one that started it does."""
    Thread(target=_end_with_parent, daemon=True).start()


def cores() -> int:
    """On how many this process may run."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def _told_later() -> Generator[None]:
    """Keep the main thread from being told of a key within it: what one thread's mask holds back is taken by any other thread there is."""
    handler = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(handler):
        yield
        return
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pressed:
            signal.raise_signal(pressed[0])


def _threads() -> int:
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:  # nothing is mounted there
        return active_count()


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)

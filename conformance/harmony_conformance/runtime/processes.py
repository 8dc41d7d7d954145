"""Worker processes. They are forked if that is safe: a forked process has all modules and the vocabulary in memory already."""

import asyncio
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread, active_count, current_thread, main_thread
from typing import ParamSpec

Arguments = ParamSpec("Arguments")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def may_fork() -> bool:
    """Return True if forking is safe: on Linux, with a single thread (those of libraries count) and no running event loop."""
    return sys.platform == "linux" and _threads() == 1 and not _is_in_a_loop()


def process_context() -> BaseContext:
    """Return the context for a process pool: fork if `may_fork()`, else spawn. Python's default depends on its version."""
    return get_context("fork" if may_fork() else "spawn")


def forked(work: Callable[Arguments, None], *args: Arguments.args, **named: Arguments.kwargs) -> BaseProcess:
    """Fork a process that calls `work` and exits, at the latest with this process. Requires `may_fork()`."""

    def run() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C ends the parent, and with it this process
        follow_parent()
        work(*args, **named)

    process = get_context("fork").Process(target=run, daemon=True)
    process.start()
    return process


@contextmanager
def block_interrupts() -> Generator[None]:
    """Block SIGINT while processes start, since an interrupted import prints a traceback.

    Processes inherit the blocked signal until they call `restore_interrupts`. A Ctrl+C during the block is delivered at its end.
    On Windows this does nothing.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _deferred_interrupt():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def restore_interrupts() -> None:
    """Let Ctrl+C end this process without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def follow_parent() -> None:
    """End this process when its parent ends."""
    Thread(target=_end_with_parent, daemon=True).start()


def end_with_parent_process() -> None:
    """End this process when the process that started it ends. For a process that `multiprocessing` did not start.

    On Linux the kernel sends SIGTERM, so that no thread forbids forking. Elsewhere a thread looks for another parent.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended in between
            os._exit(1)
    elif sys.platform != "win32":
        Thread(target=_end_without, args=(parent,), daemon=True).start()


def _end_without(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def reduce_garbage_collection() -> None:
    """Reduce garbage collection, and exclude loaded objects from it. Scanning what a run retains, or parsed JSON, takes a tenth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def lower_priority() -> None:
    """Let other processes use the CPU first: those that send requests measure times. On Windows this does nothing."""
    if sys.platform != "win32":
        os.nice(10)


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def _deferred_interrupt() -> Generator[None]:
    """Defer SIGINT in the main thread. The signal mask alone is not enough, since other threads may receive the signal."""
    handler = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(handler):
        yield
        return
    signals: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: signals.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if signals:
            signal.raise_signal(signals[0])


def _threads() -> int:
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:  # /proc is not mounted
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

"""Processes beside this one, forked where that is safe: what is forked has every module and the vocabulary already."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread, active_count
from typing import ParamSpec

Given = ParamSpec("Given")


def may_fork() -> bool:
    """Whether a copy of this process would be whole: on Linux, while there is one thread and no loop runs."""
    return sys.platform == "linux" and active_count() == 1 and not _is_in_a_loop()


def forked(work: Callable[Given, None], *args: Given.args, **named: Given.kwargs) -> BaseProcess:
    """A copy of this process that does some work and ends, or ends with this process. Only where `may_fork`."""

    def working() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who stops this process by the keyboard stops that one by it
        follow_parent()
        work(*args, **named)

    process = get_context("fork").Process(target=working, daemon=True)
    process.start()
    return process


def follow_parent() -> None:
    """Have this process end when the one that started it does."""
    Thread(target=_end_with_parent, daemon=True).start()


def cores() -> int:
    """On how many this process may run."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


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

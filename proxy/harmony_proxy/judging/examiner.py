"""A process that examines large answers. A pattern holds the lock of its interpreter until it ends: here, no other exchange waits for it.

    examine = Examiner()
    examine(function, *arguments)   # function(*arguments), computed in the process

Functions of modules, arguments and results are passed by `pickle`, over private pipes. The process starts with the first call. It ends
after `IDLE_SECONDS` without a call, and with this process. A call that takes longer than `SECONDS` ends it and raises.
"""

from __future__ import annotations

import copyreg
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Timer
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

SECONDS = 60.0
IDLE_SECONDS = 60.0

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


class ExaminerError(Exception):
    """The process could not examine an answer. The message is its error, or that it ended."""


class Examiner:
    """Calls functions in another process, one at a time. State: the process while it runs, and the timer that ends it."""

    def __init__(self, *, seconds: float = SECONDS, idle_seconds: float = IDLE_SECONDS) -> None:
        self._seconds, self._idle_seconds = seconds, idle_seconds
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: Timer | None = None

    @property
    def process_id(self) -> int | None:
        """The id of the process, or None if it does not run."""
        return self._process.pid if self._process is not None else None

    def __call__(
        self, function: Callable[_Arguments, _Value], /, *args: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Value:
        """Call a function of a module in the process.

        Raises:
            ExaminerError: The function raised, the process ended, or the call took too long.
        """
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            try:
                is_result, value = self._ask((function, args, named))
            except BaseException as error:
                self._end()
                if isinstance(error, OSError | EOFError | pickle.UnpicklingError):
                    raise ExaminerError("the process ended, or took too long") from None
                raise
            self._idle = _start_timer(self._idle_seconds, self._end_idle)
        if not is_result:
            raise ExaminerError(value)
        return value  # type: ignore[no-any-return]

    def _ask(self, call: object) -> tuple[bool, Any]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = _start_process()
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise OSError("no pipes")
        limit = _start_timer(self._seconds, process.kill)
        try:
            pickle.dump(call, process.stdin, pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            return pickle.load(process.stdout)  # type: ignore[no-any-return]  # noqa: S301 - from the process, over a private pipe
        finally:
            limit.cancel()

    def _end_idle(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()


def _start_timer(seconds: float, act: Callable[[], object]) -> Timer:
    timer = Timer(seconds, act)
    timer.daemon = True
    timer.start()
    return timer


def _start_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - this interpreter; it inherits only two pipes
        [sys.executable, "-P", "-c", f"from {__name__} import answer_calls; answer_calls()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches only the parent, which then ends the input
    )


def _pickle_proxy(
    value: MappingProxyType[Any, Any],
) -> tuple[Callable[[dict[Any, Any]], MappingProxyType[Any, Any]], tuple[dict[Any, Any]]]:
    return _proxy, (dict(value),)


def _proxy(value: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(value)


copyreg.pickle(MappingProxyType, _pickle_proxy)


def answer_calls() -> None:
    """Answer the calls on stdin until its end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of a whole group: the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    while True:
        try:
            function, args, named = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent, over a private pipe
        except EOFError:
            return
        try:
            answer = pickle.dumps((True, function(*args, **named)), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 - reported to the parent
            answer = pickle.dumps((False, f"{type(error).__name__} in the process"))
        with suppress(BrokenPipeError):
            answers.write(answer)
            answers.flush()

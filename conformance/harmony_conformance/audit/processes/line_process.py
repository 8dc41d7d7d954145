"""A process that judges one line at a time, so that a line that ends its process costs no other line."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from harmony_conformance.audit.batches import Batch, BatchResult, join_results, unjudged_batch
from harmony_conformance.runtime.processes import block_interrupts, follow_parent, restore_interrupts
from harmony_conformance.runtime.time_limit import GRACE_SECONDS, TimeLimitError

KILLED = "the judging process was killed twice, for example for lack of memory"
"""Kind of the error of a line that ended two processes."""

Scan = Callable[[Batch], BatchResult]


def judge_by_line(batch: Batch, scan: Scan, seconds: float) -> BatchResult:
    """Judge the lines of a batch in a separate process, one by one.

    A line that ends two processes is an error, and so is a line that takes longer than `seconds`.
    """
    process = _LineProcess(scan)
    try:
        return join_results(batch, [_judge_line(process, part, seconds) for part in batch.single_records()])
    finally:
        process.close()


class _LineProcess:
    """A process and the pipe to it. State: both, or None before the first line and after the process ended."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._process: tuple[BaseProcess, Connection] | None = None

    def judge(self, part: Batch, seconds: float) -> BatchResult:
        """Return the result of one line.

        Raises:
            TimeLimitError: The line took longer than `seconds`.
            EOFError, OSError: The process ended.
        """
        pipe = self._start()
        pipe.send(part)
        if not pipe.poll(seconds + GRACE_SECONDS):
            raise TimeLimitError(seconds)
        return _receive_result(pipe)

    def close(self) -> None:
        """End the process. The next line starts a new one."""
        if self._process is not None:
            process, pipe = self._process
            self._process = None
            process.kill()
            process.join()
            pipe.close()

    def _start(self) -> Connection:
        """Return the pipe to the process, after the process has loaded its modules."""
        if self._process is None:
            context = get_context("spawn")  # not forked: the caller may have threads
            pipe, other = context.Pipe()
            process = context.Process(target=_judge_lines, args=(other, self._scan), daemon=True)
            with block_interrupts():
                process.start()
            other.close()
            self._process = process, pipe
            pipe.recv()
        return self._process[1]


def _judge_line(process: _LineProcess, part: Batch, seconds: float) -> BatchResult:
    for _ in range(2):
        try:
            return process.judge(part, seconds)
        except TimeLimitError as error:
            process.close()
            return unjudged_batch(part, str(error))
        except (EOFError, OSError):
            process.close()
    return unjudged_batch(part, KILLED)


def _receive_result(pipe: Connection) -> BatchResult:
    result = pipe.recv()
    if not isinstance(result, BatchResult):
        raise TypeError(f"invalid answer of a judging process: expected a result, got {type(result).__name__}")
    return result


def _judge_lines(pipe: Connection, scan: Scan) -> None:
    """Judge the lines that arrive on the pipe. The first message says that the process is ready."""
    restore_interrupts()
    follow_parent()
    pipe.send(None)
    with suppress(EOFError):
        while True:
            pipe.send(scan(pipe.recv()))

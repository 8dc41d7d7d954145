"""Judge the batches of a log in several processes, in the order of the log and in constant memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from enum import StrEnum
from functools import partial
from itertools import chain, islice
from multiprocessing import active_children

from harmony_conformance.audit.batches import Batch, BatchResult, ReadOptions, scan_batch
from harmony_conformance.audit.processes.line_process import Scan, judge_by_line
from harmony_conformance.audit.processes.ray_pool import RayPool
from harmony_conformance.runtime.processes import (
    block_interrupts,
    follow_parent,
    process_context,
    reduce_garbage_collection,
    restore_interrupts,
)
from harmony_conformance.runtime.time_limit import exit_after_limit

QUEUED_BATCHES_PER_PROCESS = 2
"""Queued batches for each process, so that no process is idle while a batch is read."""


class AuditEngine(StrEnum):
    """Values of `--engine`."""

    LOCAL = "local"
    RAY = "ray"


def scan_all(
    parts: Iterable[Batch], reading: ReadOptions, *, workers: int, engine: AuditEngine = AuditEngine.LOCAL
) -> Iterator[BatchResult]:
    """Yield the result of each batch, in order. A single batch is judged in this process: a new process starts more slowly.

    After a process was killed, the lines of its batch are judged one by one in another process. See `judge_by_line`.
    """
    if engine is AuditEngine.RAY:
        ray_pool = RayPool(reading, workers)
        try:
            yield from _in_order(ray_pool, parts, QUEUED_BATCHES_PER_PROCESS * workers)
        finally:
            ray_pool.close()
        return
    scan = partial(scan_batch, reading=reading)
    remaining = iter(parts)
    first = list(islice(remaining, 2))
    everything = chain(first, remaining)
    if workers < 2 or len(first) < 2:  # noqa: PLR2004 - one batch needs one process
        yield from map(scan, everything)
        return
    before = set(active_children())
    pool = WorkerPool(scan, workers, reading.line_seconds)
    try:
        yield from _in_order(pool, everything, QUEUED_BATCHES_PER_PROCESS * workers)
    except BaseException:
        for process in set(active_children()) - before:
            process.terminate()  # otherwise the pool waits forever after a second interrupt
        raise
    finally:
        pool.close()


class WorkerPool:
    """Processes that judge batches. State: the pool, or None before the first batch and after a process was killed."""

    def __init__(self, scan: Scan, workers: int, line_seconds: float) -> None:
        self._scan = scan
        self._workers = workers
        self._line_seconds = line_seconds
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, part: Batch) -> Future[BatchResult]:
        """Return the future result of a batch. If a process was killed, it raises `BrokenProcessPool`."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self._workers, process_context(), initializer=_start_worker)
        try:
            with block_interrupts():
                return self._pool.submit(self._scan, part)
        except BrokenProcessPool as error:
            failed: Future[BatchResult] = Future()
            failed.set_exception(error)
            return failed

    def judge_alone(self, part: Batch) -> BatchResult:
        """Judge a batch in a separate process, after a process was killed that may have judged it."""
        return judge_by_line(part, self._scan, self._line_seconds)

    def recover(self) -> None:
        """End the other processes after one was killed. The next batch starts new ones."""
        self.close()

    def close(self) -> None:
        """End the processes. The next batch starts new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _start_worker() -> None:
    restore_interrupts()
    follow_parent()
    reduce_garbage_collection()
    exit_after_limit()


def _in_order(pool: WorkerPool | RayPool, parts: Iterable[Batch], ahead: int) -> Iterator[BatchResult]:
    """Yield results like `Executor.map`, which would read the whole log before the first result."""
    pending: deque[tuple[Batch, Future[BatchResult]]] = deque()
    for part in parts:
        pending.append((part, pool.submit(part)))
        if len(pending) > ahead:
            yield _next_result(pool, pending)
    while pending:
        yield _next_result(pool, pending)


def _next_result(pool: WorkerPool | RayPool, pending: deque[tuple[Batch, Future[BatchResult]]]) -> BatchResult:
    """Return the result of the first pending batch. After a process was killed, judge each unfinished batch alone."""
    _, first = pending[0]
    if isinstance(first.exception(), BrokenProcessPool):
        pool.recover()
        for index, (part, future) in enumerate(pending):
            if isinstance(future.exception(), BrokenProcessPool):
                judged: Future[BatchResult] = Future()
                judged.set_result(pool.judge_alone(part))
                pending[index] = part, judged
    _, first = pending.popleft()
    return first.result()

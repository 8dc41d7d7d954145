"""Judge the batches of a log in several processes, in the order of the log and in constant memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from itertools import chain, islice
from multiprocessing import active_children, get_context

from harmony_conformance.audit.batches import Batch, BatchResult, ReadOptions, scan_batch
from harmony_conformance.runtime.processes import block_interrupts, restore_interrupts

QUEUED_BATCHES_PER_PROCESS = 2
"""Queued batches for each process, so that no process is idle while a batch is read."""


def scan_all(parts: Iterable[Batch], reading: ReadOptions, *, workers: int) -> Iterator[BatchResult]:
    """Yield the result of each batch, in order. A single batch is judged in this process: a new process starts more slowly.

    Raises:
        BrokenProcessPool: A process was killed, for example for lack of memory.
    """
    scan = partial(scan_batch, reading=reading)
    remaining = iter(parts)
    first = list(islice(remaining, 2))
    everything = chain(first, remaining)
    if workers < 2 or len(first) < 2:  # noqa: PLR2004 - one batch needs one process
        yield from map(scan, everything)
        return
    # spawned, not forked: the caller may have threads
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=restore_interrupts) as pool:
        before = set(active_children())
        try:
            yield from _in_order(pool, scan, everything, QUEUED_BATCHES_PER_PROCESS * workers)
        except BaseException:
            for process in set(active_children()) - before:
                process.terminate()  # otherwise the pool waits forever after a second interrupt
            raise


def _in_order(
    pool: ProcessPoolExecutor, scan: partial[BatchResult], parts: Iterable[Batch], ahead: int
) -> Iterator[BatchResult]:
    """Yield results like `Executor.map`, which would read the whole log before the first result."""
    pending: deque[Future[BatchResult]] = deque()
    for part in parts:
        with block_interrupts():
            pending.append(pool.submit(scan, part))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()

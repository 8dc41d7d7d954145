"""Batches of a log judged in several processes, in the order of the log and in constant memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from itertools import chain, islice
from multiprocessing import active_children, get_context

from harmony_conformance.audit.batches import Batch, ReadOptions, Scanned, scan_batch
from harmony_conformance.runtime.processes import be_stopped, starting

AHEAD = 2
"""Batches that wait for each process, so that none is idle while another one is read."""


def scan_all(parts: Iterable[Batch], reading: ReadOptions, *, workers: int) -> Iterator[Scanned]:
    """What came of each batch, in order. A log of a single batch is judged here: a process takes longer to begin than that takes.

    Raises:
        BrokenProcessPool: a process was ended from outside, for example for want of memory.
    """
    scan = partial(scan_batch, reading=reading)
    waiting = iter(parts)
    first = list(islice(waiting, 2))
    everything = chain(first, waiting)
    if workers < 2 or len(first) < 2:  # noqa: PLR2004 - there is nothing to share out
        yield from map(scan, everything)
        return
    # spawned, not forked: who calls may have threads
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=be_stopped) as pool:
        before = set(active_children())
        try:
            yield from _in_order(pool, scan, everything, AHEAD * workers)
        except BaseException:
            for process in set(active_children()) - before:
                process.terminate()  # a pool that waits for them never ends where it is stopped a second time
            raise


def _in_order(
    pool: ProcessPoolExecutor, scan: partial[Scanned], parts: Iterable[Batch], ahead: int
) -> Iterator[Scanned]:
    """As `Executor.map`, which would read the whole log before it gives the first result."""
    begun: deque[Future[Scanned]] = deque()
    for part in parts:
        with starting():
            begun.append(pool.submit(scan, part))
        if len(begun) > ahead:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()

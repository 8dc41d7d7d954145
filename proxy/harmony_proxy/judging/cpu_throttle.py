"""CPU throttle of the judge process on machines with few cores: while the parent is busy, judging gets a quarter of a CPU.

The lowest priority alone is not enough there: the judge still evicts the traffic's caches, and uses the second hardware
thread of the core. It never stops completely: queued exchanges are judged later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

FEW_CORES = 4  # machines with more cores are not throttled
SHARE = 0.25
BUSY_SHARE = 0.5  # share of one CPU from which on the parent counts as busy
POLL_SECONDS = 0.05
WORK_SECONDS = 0.01  # CPU time between two pauses
LONGEST_SECONDS = 0.2

Seconds = Callable[[], float]


class CpuThrottle:
    """State: whether the traffic was busy at the last look, and the CPU time since the last pause.

    `traffic` and `own` return the CPU seconds of the traffic and of this process so far.
    """

    def __init__(self, traffic: Seconds, *, own: Seconds = time.process_time, clock: Seconds = time.monotonic) -> None:
        self._traffic, self._own, self._clock = traffic, own, clock
        self._used, self._done, self._looked = traffic(), own(), clock()
        self._is_busy = False

    def pause_seconds(self) -> float:
        """Return the seconds to wait before the next exchange. Called after each exchange."""
        now = self._clock()
        since = now - self._looked
        if since >= POLL_SECONDS:
            used = self._traffic()
            is_busy = used - self._used >= BUSY_SHARE * since
            if is_busy and not self._is_busy:
                self._done = self._own()
            self._is_busy, self._used, self._looked = is_busy, used, now
        if not self._is_busy:
            return 0.0
        done = self._own()
        worked = done - self._done
        if worked < WORK_SECONDS:
            return 0.0
        self._done = done
        return min(worked / SHARE - worked, LONGEST_SECONDS)


def cpu_throttle() -> CpuThrottle | None:
    """Return a throttle for the parent of this process; None if there are enough cores, or outside Linux."""
    try:
        cores = len(os.sched_getaffinity(0))
        clock = (~os.getppid() << 3) | 2  # the clock id, as clock_getcpuclockid(3) returns it
        time.clock_gettime(clock)
    except (OSError, AttributeError):  # not Linux
        return None
    return CpuThrottle(lambda: _seconds(clock)) if cores <= FEW_CORES else None


def _seconds(clock: int) -> float:
    try:
        return time.clock_gettime(clock)
    except OSError:  # the process has ended
        return 0.0

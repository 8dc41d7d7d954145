"""How the process that judges gives way to the traffic on a machine of few cores.

The lowest priority is not enough there: it leaves the traffic its processor, but not its caches, nor the other half of a core that runs two threads. So
while the parent is busy, judging takes a quarter of a processor. It is never nothing: what waits is judged, later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

FEW_CORES = 4
"""With more of them there is one that nobody needs."""

SHARE = 0.25
BUSY = 0.5
"""Of a processor, used by the parent: then it has traffic to serve."""

LOOK_SECONDS = 0.05
WORK_SECONDS = 0.01
"""What is done in one go, before a rest."""

LONGEST_SECONDS = 0.2

Seconds = Callable[[], float]


class CpuThrottle:
    """State: whether the traffic is busy, as last seen, and what was done since the last rest.

    Args:
        traffic: the processor time that the traffic has used so far; `own`: the same of this process. `clock` is seconds since whenever.
    """

    def __init__(self, traffic: Seconds, *, own: Seconds = time.process_time, clock: Seconds = time.monotonic) -> None:
        self._traffic, self._own, self._clock = traffic, own, clock
        self._used, self._done, self._looked = traffic(), own(), clock()
        self._is_busy = False

    def rest(self) -> float:
        """Asked after each exchange: how many seconds to wait before the next."""
        now = self._clock()
        since = now - self._looked
        if since >= LOOK_SECONDS:
            used = self._traffic()
            is_busy = used - self._used >= BUSY * since
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
    """To the parent of this process; None where there are cores enough, or where the time of a process cannot be read."""
    try:
        cores = len(os.sched_getaffinity(0))
        number = (~os.getppid() << 3) | 2  # as clock_getcpuclockid(3) names the clock of a process
        time.clock_gettime(number)
    except (OSError, AttributeError):  # not Linux
        return None
    return CpuThrottle(lambda: _seconds(number)) if cores <= FEW_CORES else None


def _seconds(number: int) -> float:
    try:
        return time.clock_gettime(number)
    except OSError:  # it has ended
        return 0.0

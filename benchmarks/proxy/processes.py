"""The CPU time and memory of a process and its children, read from the system. Linux only."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

JUDGE = b"judge_process"
"""In the command line of the process that judges: its cost is not the path's."""

_PAGE = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True, kw_only=True)
class Cost:
    """CPU time in seconds, user and system."""

    path: float
    judge: float

    def since(self, other: "Cost") -> "Cost":
        return Cost(path=self.path - other.path, judge=self.judge - other.judge)


def cost(root: int) -> Cost:
    """Return the CPU time of a process and its children so far."""
    path = judge = 0.0
    for number in family(root):
        try:
            used = time.clock_gettime(_clock(number))
        except OSError:
            continue
        if _judges(number):
            judge += used
        else:
            path += used
    return Cost(path=path, judge=judge)


@contextmanager
def judge_stopped(root: int) -> Iterator[None]:
    """Stop the judge process during the block. Its exchanges wait, and are judged afterwards."""
    judges = [number for number in family(root) if _judges(number)]
    for number in judges:
        os.kill(number, signal.SIGSTOP)
    try:
        yield
    finally:
        for number in judges:
            os.kill(number, signal.SIGCONT)


def memory(root: int) -> tuple[float, float]:
    """Return MiB of resident memory of the proxy and of its judge."""
    found = [0.0, 0.0]
    for number in family(root):
        text = _read(number, "statm")
        if text:
            found[_judges(number)] += int(text.split()[1]) * _PAGE
    return found[0], found[1]


def family(root: int) -> list[int]:
    """Return a process and all its descendants."""
    parents = {int(entry.name): _parent(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    members = [root]
    for member in members:
        members += [number for number, parent in parents.items() if parent == member]
    return members


def settle(root: int, *, limit: float = 30) -> None:
    """Wait until deferred work is done and no process is busy."""
    stop = time.monotonic() + limit
    before = cost(root)
    while time.monotonic() < stop:
        time.sleep(0.1)
        now = cost(root)
        used = now.since(before)
        if used.path + used.judge < 0.004:
            return
        before = now


def _clock(number: int) -> int:
    """Return the CPU clock of another process, like clock_getcpuclockid(3). It is precise to the nanosecond; /proc/PID/stat counts ticks."""
    return (~number << 3) | 2


def _judges(number: int) -> bool:
    return JUDGE in _read(number, "cmdline")


def _parent(number: int) -> int:
    text = _read(number, "stat")
    return int(text.rpartition(b")")[2].split()[1]) if text else 0


def _read(number: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{number}/{name}").read_bytes()
    except OSError:
        return b""

"""Memory limit of a piece of work of a library in this process, on Linux alone."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "linux":
    import resource


@contextmanager
def memory_limit(size: int) -> Generator[None]:
    """Let the work in this context map at most `size` bytes more than the process has. Allocations beyond that fail with `MemoryError`.

    The limit is that of the process, so the work must be short, and start no other process.
    """
    if sys.platform != "linux":
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize() + size
    lowest = min(one for one in (soft, hard, most) if one != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

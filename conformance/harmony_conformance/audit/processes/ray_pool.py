"""Judge batches on a cluster of Ray, by the same function as the processes of one machine (extra `ray`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
from importlib import import_module
from typing import Any

from harmony_conformance.audit.batches import Batch, BatchResult, ReadOptions, scan_batch
from harmony_conformance.audit.processes.line_process import judge_by_line
from harmony_conformance.audit.readers.files.sources import require
from harmony_conformance.audit.readers.files.tables import choose_arrow_allocator
from harmony_conformance.errors import UsageError
from harmony_conformance.runtime.processes import reduce_garbage_collection
from harmony_conformance.runtime.time_limit import exit_after_limit

ADDRESS = "RAY_ADDRESS"
"""The variable with the address of a cluster. Without it, one is started on this machine for the audit alone."""

_RETRIES = 2
"""Further attempts of a batch whose process or node ended. After them, its lines are judged one by one."""
_STARTS = 3
_SLOW_START = "timed out during startup"
_CONNECT_SECONDS = 10
_UNREACHABLE = f"the cluster at {ADDRESS} cannot be reached"
_REMEDY = "--engine local needs no cluster"
_OBJECT_STORE = 256 * 1024 * 1024


class RayPool:
    """Tasks of Ray that judge batches. State: the connection to the cluster, None before the first batch."""

    def __init__(self, reading: ReadOptions, workers: int) -> None:
        require("ray", "--engine ray", "ray")
        self._reading = reading
        self._workers = workers
        self._submit: Callable[[Batch], Any] | None = None

    def submit(self, part: Batch) -> Future[BatchResult]:
        """Return the future result of a batch. If its process ended in all attempts, it raises `BrokenProcessPool`.

        Raises:
            UsageError: The cluster cannot be reached, or cannot be started.
        """
        if self._submit is None:
            self._submit = self._connect()
        result: Future[BatchResult] = Future()
        self._submit(part).future().add_done_callback(partial(_copy_result, result))
        return result

    def judge_alone(self, part: Batch) -> BatchResult:
        """Judge a batch line by line in a process of this machine, after its processes in the cluster ended."""
        return judge_by_line(part, partial(scan_batch, reading=self._reading), self._reading.line_seconds)

    def recover(self) -> None:
        """Ray replaces a process that ended: the other batches are not affected."""

    def close(self) -> None:
        """Leave the cluster, or end the one that was started."""
        if self._submit is not None:
            import_module("ray").shutdown()
            self._submit = None

    def _connect(self) -> Callable[[Batch], Any]:
        choose_arrow_allocator()  # Ray imports Arrow, and this process reads Parquet
        ray = import_module("ray")
        started = {"num_cpus": self._workers, "object_store_memory": _OBJECT_STORE, "include_dashboard": False}
        has_address = bool(address := os.environ.get(ADDRESS, ""))
        _check_address(address)
        start = partial(ray.init, log_to_driver=False, logging_level="ERROR", **({} if has_address else started))
        _start(start, ray.shutdown, has_address=has_address)
        reading = ray.put(self._reading)
        task = ray.remote(max_retries=_RETRIES)(_scan)
        return lambda part: task.remote(part, reading)


def _check_address(address: str) -> None:
    """Check that something listens at `HOST:PORT`: Ray itself would try for minutes. Other forms of an address are left to Ray.

    Raises:
        UsageError: Nothing does.
    """
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as problem:
        raise UsageError(f"--engine ray: {_UNREACHABLE}: {address}: {problem}; {_REMEDY}") from None


def _start(start: Callable[[], object], end: Callable[[], object], *, has_address: bool) -> None:
    """Connect to the cluster, or start one. A start that Ray gave up is repeated: its limit of 30 s is short on a busy machine.

    Raises:
        UsageError: It failed each time.
    """
    reason = ""
    for _ in range(1 if has_address else _STARTS):
        try:
            start()
        except Exception as problem:  # noqa: BLE001 - Ray raises its errors, those of Python, and plain ones
            end()  # a part of it may have started
            words = (str(problem).strip().splitlines() or [""])[0]
            reason = f"{type(problem).__name__}{words and f': {words}'}"
            if _SLOW_START not in words:
                break
        else:
            return
    failure = _UNREACHABLE if has_address else "Ray cannot start on this machine"
    raise UsageError(f"--engine ray: {failure}: {reason}; {_REMEDY}")


def _scan(part: Batch, reading: ReadOptions) -> BatchResult:
    _start_once()
    return scan_batch(part, reading)


@cache
def _start_once() -> None:
    reduce_garbage_collection()
    exit_after_limit()


def _copy_result(result: Future[BatchResult], done: Future[Any]) -> None:
    """Set the result of a task. The end of its process is the error that processes of this machine have."""
    error = done.exception()
    if error is None:
        result.set_result(done.result())
    elif isinstance(error, import_module("ray.exceptions").RayError):
        result.set_exception(BrokenProcessPool(str(error)))
    else:
        result.set_exception(error)

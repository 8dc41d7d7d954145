"""From the data path to the process that judges: a bounded queue and one thread. Handing over never blocks; what does not fit is counted and dropped.

An exchange is packed when it is handed over: what waits is bytes. The thread looks at the queue now and then instead of being woken for each exchange, and
writes what it finds at once. A process that ends is told
of, counted and begun again a bounded number of times; what it had and had not answered is lost, and counted as lost.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import IO

from harmony_conformance.json_value import NotJson, at, loads, number, text
from harmony_proxy.frames import framed, packed
from harmony_proxy.judge_settings import TOTALS, Settings
from harmony_proxy.recorder import Recorder
from harmony_proxy.tally import Tally, from_json

QUEUED_EXCHANGES = 10_000
QUEUED_BYTES = 64 * 1024 * 1024
RESTARTS = 5
_LOOK_SECONDS = 0.05
_BATCH_BYTES = 64 * 1024
"""What a pipe holds. Memory for more would be asked of the system for each batch, and each page of it anew."""
_CLOSE_SECONDS = 30.0


class Handing:
    """The queue, the thread and the process. `say` is given what the process wants said: lines without content."""

    def __init__(
        self,
        settings: Settings,
        *,
        say: Callable[[str], None] | None = None,
        queued_exchanges: int = QUEUED_EXCHANGES,
        queued_bytes: int = QUEUED_BYTES,
    ) -> None:
        self._settings = settings
        self._say = say
        self._queue: deque[bytes] = deque()
        self._most_exchanges, self._most_bytes = queued_exchanges, queued_bytes
        self._put = self._taken = 0
        # bytes: each is counted by one side only, so that neither has to wait for the other
        self._counts: Tally = Counter()
        self._lock = Lock()
        self._closing = Event()
        self._thread: Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: Thread | None = None
        self._sent = 0
        self._total = b""
        self._begun = 0
        self._is_given_up = False

    @property
    def tally(self) -> Tally:
        """The counts so far."""
        with self._lock:
            counts = Counter(self._counts)
            total = self._total
        counts.update(_counts_of(total))
        return counts

    @property
    def queued(self) -> int:
        """How many exchanges wait."""
        return len(self._queue)

    @property
    def process_id(self) -> int | None:
        """Of the process that judges, while there is one."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Begin. Doing so again changes nothing."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="handing", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def hand_over(self, recorder: Recorder, name: str, started: float) -> None:
        """Queue an exchange that is over, or count it as dropped where the queue is full. Never blocks. `name` is its id, `started` seconds since the epoch.

        Called by one thread: that of the traffic.
        """
        if self._put >= self._taken + self._most_bytes or len(self._queue) >= self._most_exchanges or self._is_given_up:
            self._count(("dropped",), 1)
            return
        try:
            exchange = packed(recorder, name, started)
        except Exception:  # noqa: BLE001 - what cannot be packed is ours to count
            self._count(("problems",), 1)
            return
        put = self._put + len(exchange)
        if put > self._taken + self._most_bytes:
            self._count(("dropped",), 1)
            return
        self._put = put
        self._queue.append(exchange)

    def problem(self) -> None:
        """Count something that went wrong on our side; the traffic was not touched by it."""
        self._count(("problems",), 1)

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Have what is queued judged, within a bound, then end."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        atexit.unregister(self.close)
        self._closing.set()
        thread.join(seconds)
        if thread.is_alive() and self._process is not None:
            self._process.kill()
            thread.join(seconds)

    def _run(self) -> None:
        self._begin()
        while True:
            batch = self._take()
            if batch:
                self._hand(batch)
            elif self._closing.is_set():
                break
            else:
                self._closing.wait(_LOOK_SECONDS)
                self._look()
        self._end(_CLOSE_SECONDS)

    def _look(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self._again()

    def _take(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        while self._queue and size < _BATCH_BYTES:
            exchange = self._queue.popleft()
            batch.append(exchange)
            size += len(exchange)
        self._taken += size
        return batch

    def _hand(self, batch: list[bytes]) -> None:
        while self._process is not None:
            try:
                self._sent += len(batch)
                self._write(batch)
            except OSError:
                self._sent -= len(batch)
                self._again()
            else:
                return
        self._count(("dropped",), len(batch))

    def _write(self, batch: list[bytes]) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise BrokenPipeError
        for piece in framed(batch):
            _all_of(process.stdin, piece)

    def _begin(self) -> None:
        self._begun += 1
        try:
            process = subprocess.Popen(  # noqa: S603 - this very interpreter; of our descriptors it gets two pipes
                [sys.executable, "-P", "-m", "harmony_proxy.judge_process", self._settings.argument()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the parent, which then says when there is no more
            )
        except OSError:
            self._process = None
            self._count(("problems",), 1)
            return
        self._process = process
        self._sent = 0
        self._reader = Thread(target=self._listen, args=(process,), name="handing-counts", daemon=True)
        self._reader.start()

    def _again(self) -> None:
        """The process has ended: say so, and begin another one, unless that was done too often."""
        self._end(1.0)
        if self._closing.is_set():
            return
        if self._begun > RESTARTS:
            self._is_given_up = True
            self._tell(f"the process that judges ended {self._begun} times; exchanges pass and are no longer judged")
            return
        self._count(("restarts",), 1)
        self._tell("the process that judges has ended and is begun again")
        self._closing.wait(0.1 * 2**self._begun)
        self._begin()

    def _end(self, seconds: float) -> None:
        process, reader = self._process, self._reader
        if process is None or reader is None:
            return
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        with suppress(OSError, AttributeError):
            os.sched_setscheduler(
                process.pid, os.SCHED_OTHER, os.sched_param(0)
            )  # there is someone who waits for it now
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(seconds)
        self._process = None
        with self._lock:
            total, self._total = self._total, b""
            self._counts.update(_counts_of(total))
        self._count(("lost",), max(self._sent - _judged_of(total), 0))

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            return
        with process.stdout as lines:
            for line in lines:
                if line.startswith(
                    TOTALS
                ):  # which is read when somebody asks, not here: this is the process of the traffic
                    self._total = line.removeprefix(TOTALS)
                    continue
                try:
                    self._tell(text(loads(line)))
                except NotJson:
                    self._count(("problems",), 1)

    def _tell(self, words: str) -> None:
        if self._say is not None:
            self._say(words)

    def _count(self, name: tuple[str, ...], times: int) -> None:
        if times:
            with self._lock:
                self._counts[name] += times


def _all_of(pipe: IO[bytes], data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(pipe.fileno(), left) :]


def _counts_of(total: bytes) -> Tally:
    try:
        return from_json(at(loads(total), "counts")) if total else Counter()
    except NotJson:  # cut off where the process ended
        return Counter()


def _judged_of(total: bytes) -> int:
    try:
        return number(at(loads(total), "exchanges")) or 0 if total else 0
    except NotJson:
        return 0

"""From the data path to the process that judges: a bounded queue and one thread. Handing over never blocks; what does not fit is counted and dropped.

Exchanges are packed some at a time by whoever hands over the last of them: what waits is bytes, but for a few. The thread looks now and then instead of being
woken for each, writes what is packed, and packs what has not become enough. A process that ends is told of, counted and begun again a bounded number of times;
what it had and had not answered is lost, and counted as lost.
"""

from __future__ import annotations

import atexit
import importlib
import os
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread

from harmony_conformance.json_value import InvalidJsonError, at, loads, number, text
from harmony_proxy.judging.counters import Tally, from_json
from harmony_proxy.judging.judge_settings import LENGTH_BYTES, TOTALS, JudgeSettings
from harmony_proxy.judging.queue_codec import Handed, framed, packed

QUEUED_EXCHANGES = 10_000
QUEUED_BYTES = 64 * 1024 * 1024
RESTARTS = 5
_LOOK_SECONDS = 0.05
_BATCH_EXCHANGES = 32
"""So many are packed at once: enough that what packs them is in the caches, few enough for these, and for the garbage collector."""
LARGE_BYTES = 16 * 1024
"""Or fewer, when one is as large as this: memory for more than some 100 KB would be asked of the system each time, and each page of it anew."""
_PIPE_BYTES = 1024 * 1024
"""What a pipe is asked to hold, where it can be asked: what is in it wakes nobody here."""
_WRITE_BYTES = 256 * 1024
_PIECES = 512
"""At most so many are written at once; systems allow 1024."""
_CLOSE_SECONDS = 30.0

_Batch = tuple[bytes, int]
"""The body of a frame, and how many exchanges are in it."""


class JudgeQueue:
    """The queue, the thread and the process. `say` is given what the process wants said: lines without content.

    Attributes:
        over: exchanges that are over and not packed yet. Who has many small ones appends them here and calls `pack` now and then: `hand_over`, called
            for each, would take as long as to note half an answer. Who takes them out holds `_taking`.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        *,
        say: Callable[[str], None] | None = None,
        queued_exchanges: int = QUEUED_EXCHANGES,
        queued_bytes: int = QUEUED_BYTES,
    ) -> None:
        self._settings = settings
        self._say = say
        self.over: list[Handed] = []
        self._batch = min(_BATCH_EXCHANGES, queued_exchanges)
        self._large = min(LARGE_BYTES, queued_bytes)
        self._packed: deque[_Batch] = deque()
        self._taking = Lock()
        self._most_exchanges, self._most_bytes = queued_exchanges, queued_bytes
        self._over_full = (
            1 + queued_exchanges // 64
        )  # so many are dropped at a time: each by itself would take as long as to pack it
        self._put = self._put_bytes = self._taken = self._taken_bytes = 0
        # packed ones: each is counted by one side only, so that neither has to wait for the other
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
        return len(self.over) + self._put - self._taken

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

    def hand_over(self, exchange: Handed, size: int) -> None:
        """Queue an exchange that is over and about as large as `size` bytes, or count it as dropped where the queue is full. Never blocks.

        Called by one thread: that of the traffic.
        """
        self.over.append(exchange)
        if size >= self._large or len(self.over) >= self._batch:
            self.pack()

    def pack(self) -> int:
        """Pack what is over, as far as there is room for it. After how many more exchanges this is to be called again, or at `LARGE_BYTES`.

        Called by the thread of the traffic.
        """
        if not self._taking.acquire(blocking=False):
            return self._batch  # the thread takes it just now
        try:
            exchanges = self._opened()
            room = self._most_exchanges - self._put + self._taken
            if self._put_bytes >= self._taken_bytes + self._most_bytes or self._is_given_up:
                room = 0
            body, count = self._as_frame(exchanges[:room]) if room > 0 else (b"", 0)
            dropped = max(len(exchanges) - max(room, 0), 0)
            if self._put_bytes + len(body) > self._taken_bytes + self._most_bytes:
                dropped += count  # and not what could not be packed, which is counted
                room = count = 0
            if count:
                self._packed.append((body, count))
                self._put += count
                self._put_bytes += len(body)
            self._batch = min(_BATCH_EXCHANGES, max(room - count, self._over_full))
        finally:
            self._taking.release()
        self._count(("dropped",), dropped)
        return self._batch

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
            batches = self._take()
            if batches:
                self._hand(batches)
            elif self._closing.is_set():
                break
            else:
                self._closing.wait(_LOOK_SECONDS)
                if self._process is not None and self._process.poll() is not None:
                    self._again()
        self._end(_CLOSE_SECONDS)

    def _take(self) -> deque[_Batch]:
        """What waits, the oldest first, as much as is written at once."""
        batches: deque[_Batch] = deque()
        size = 0
        with self._taking:
            while self._packed and size < _WRITE_BYTES:
                body, count = self._packed.popleft()
                self._taken += count
                self._taken_bytes += len(body)
                size += len(body)
                batches.append((body, count))
            exchanges = self._opened() if not batches else []
        if exchanges:
            batches.append(self._as_frame(exchanges))
        return batches

    def _opened(self) -> list[Handed]:
        exchanges = self.over[:]
        del self.over[: len(exchanges)]  # what the path has appended meanwhile stays
        return exchanges

    def _as_frame(self, exchanges: list[Handed]) -> _Batch:
        """What cannot be packed is ours to count."""
        try:
            body, count = packed(exchanges)
        except Exception:  # noqa: BLE001 - nothing of ours may reach the traffic
            body, count = b"", 0
        self._count(("problems",), len(exchanges) - count)
        return body, count

    def _hand(self, batches: deque[_Batch]) -> None:
        while self._process is not None and batches:
            try:
                self._write(batches)
            except OSError:
                self._again()
        self._count(("dropped",), sum(count for _, count in batches))

    def _write(self, batches: deque[_Batch]) -> None:
        """Write them, and take out what is written. All at once where that can be: after each write the thread has to ask the traffic for the interpreter."""
        process = self._process
        if process is None or process.stdin is None:
            raise BrokenPipeError
        pipe, begun = process.stdin.fileno(), 0
        while batches:
            pieces = [piece for body, _ in batches for piece in framed(body)]
            pieces[:2] = [b"".join(pieces[:2])[begun:]]
            begun += _written(pipe, pieces)
            while batches and begun >= LENGTH_BYTES + len(batches[0][0]):
                body, count = batches.popleft()
                begun -= LENGTH_BYTES + len(body)
                self._sent += count

    def _begin(self) -> None:
        self._begun += 1
        try:
            process = subprocess.Popen(  # noqa: S603 - this very interpreter; of our descriptors it gets two pipes
                [sys.executable, "-P", "-m", "harmony_proxy.judging.judge_process", self._settings.argument()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the parent, which then says when there is no more
            )
        except OSError:
            self._process = None
            self._count(("problems",), 1)
            return
        self._process = process
        with suppress(OSError, AttributeError, ImportError):
            fcntl = importlib.import_module("fcntl")  # not on Windows
            fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
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
                if line.startswith(TOTALS):
                    if line.endswith(b"\n"):  # else the process ended in its middle: then what it told before stands
                        self._total = line.removeprefix(TOTALS)
                        # read when somebody asks, not here: this is the process of the traffic
                    continue
                try:
                    self._tell(text(loads(line)))
                except InvalidJsonError:
                    self._count(("problems",), 1)

    def _tell(self, words: str) -> None:
        if self._say is not None:
            self._say(words)

    def _count(self, name: tuple[str, ...], times: int) -> None:
        if times:
            with self._lock:
                self._counts[name] += times


def _written(pipe: int, pieces: list[bytes]) -> int:
    """How many bytes of them could be written."""
    try:
        return os.writev(pipe, pieces[:_PIECES])
    except AttributeError:  # on Windows
        return os.write(pipe, pieces[0])


def _counts_of(total: bytes) -> Tally:
    try:
        return from_json(at(loads(total), "counts")) if total else Counter()
    except InvalidJsonError:  # cut off where the process ended
        return Counter()


def _judged_of(total: bytes) -> int:
    try:
        return number(at(loads(total), "exchanges")) or 0 if total else 0
    except InvalidJsonError:
        return 0

"""Queue from the data path to the judge process: bounded, with one thread. Enqueueing never blocks; overflow is dropped.

The caller that completes a batch packs it, so that the queue holds bytes rather than objects. The thread polls instead
of being woken for each exchange; it writes packed batches, and packs incomplete ones. A judge process that ends is
reported, counted and restarted after a pause, which doubles with each quick end up to `LONGEST_PAUSE_SECONDS`. Meanwhile
exchanges wait in the queue. The exchanges that the process had not reported are counted as lost.
"""

from __future__ import annotations

import atexit
import importlib
import os
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread

from harmony_conformance.json_value import InvalidJsonError, Json, integer, loads, text, value_at
from harmony_proxy.capture.memory_budget import DEFAULT_LIMIT, MemoryBudget
from harmony_proxy.judging.counters import Tally, from_json
from harmony_proxy.judging.judge_settings import LENGTH_BYTES, NONE, RECENT, TOTALS, JudgeSettings
from harmony_proxy.judging.queue_codec import QueuedExchange, encode_exchanges, encode_frame
from harmony_proxy.judging.recent_reports import RecentReports

QUEUED_EXCHANGES = 10_000
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 60.0
STABLE_SECONDS = 60.0
"""A process that ran this long does not count as one that ended quickly: the next pause is the first one again."""
_POLL_SECONDS = 0.05
_BATCH_EXCHANGES = 32
"""Exchanges per batch: enough to keep the packing code in the CPU caches, few enough for the garbage collector."""
LARGE_BYTES = 16 * 1024
"""A single exchange of this size completes a batch: blocks above about 100 KB are allocated and page-faulted each time."""
_PIPE_BYTES = 1024 * 1024  # requested capacity of the pipe, where it can be set: the thread can write more per wake-up
_WRITE_BYTES = 256 * 1024
_PIECES = 512  # largest number of buffers per `writev`; systems allow 1024
_CLOSE_SECONDS = 30.0

_Batch = tuple[bytes, int]  # the body of a frame, and its number of exchanges


class JudgeQueue:
    """The queue, its thread, the judge process, and the memory of the exchanges on their way to it.

    `on_message` gets messages of the process: lines without content.

    `finished_exchanges` has the finished exchanges that are not packed yet. A caller with many small exchanges appends to it and calls
    `pack` at intervals: `enqueue` for each costs half as much as recording an answer. Removing requires `_packing_lock`.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        *,
        on_message: Callable[[str], object] = lambda _line: None,
        queued_exchanges: int = QUEUED_EXCHANGES,
        queued_bytes: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.memory = MemoryBudget(memory_limit or DEFAULT_LIMIT)
        queued_bytes = self.memory.queue_limit if queued_bytes is None else queued_bytes
        self._settings = settings
        self._on_message = on_message
        self.finished_exchanges: list[QueuedExchange] = []
        self._batch = min(_BATCH_EXCHANGES, queued_exchanges)
        self._large = min(LARGE_BYTES, queued_bytes)
        self._packed: deque[_Batch] = deque()
        self._packing_lock = Lock()
        self._most_exchanges, self._most_bytes = queued_exchanges, queued_bytes
        # A full queue drops this many at a time: dropping one by one would take as long as packing.
        self._drop_batch = 1 + queued_exchanges // 64
        # Packed exchanges, put in and taken out. Each counter has one writer, so that neither thread waits for the other.
        self._put = self._put_bytes = self._taken = self._taken_bytes = 0
        self._counts: Tally = Counter()
        self._lock = Lock()
        self._closing = Event()
        self._thread: Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: Thread | None = None
        self._sent = 0
        self._total = b""
        self._recent = RecentReports()
        self._started_at = 0.0
        self._quick_ends = 0  # ends of the process that came soon after its start, in a row
        self._unsent: deque[_Batch] = deque()

    @property
    def tally(self) -> Tally:
        """The counts so far, including the last report of the process."""
        with self._lock:
            counts = Counter(self._counts)
            total = self._total
        counts.update(_parse(total)[0])
        return counts

    @property
    def captures(self) -> bool:
        """True if the log is to show what the upstream sent, and what the client got instead."""
        return self._settings.capture != NONE

    @property
    def queue_length(self) -> int:
        """The number of exchanges in the queue."""
        return len(self.finished_exchanges) + self._put - self._taken

    @property
    def recent_outcomes(self) -> list[Json]:
        """The last outcomes that were reported, the newest first, without content."""
        return self._recent.newest()

    @property
    def process_id(self) -> int | None:
        """The id of the judge process, or None if it does not run."""
        return self._process.pid if self._process is not None else None

    @property
    def is_judging(self) -> bool:
        """False while the judge process is down: it has ended, and the pause before its next start is not over."""
        return self._quick_ends == 0 or self._process is not None

    def start(self) -> None:
        """Start the thread and the process, unless they were started before."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="judge-queue", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def enqueue(self, exchange: QueuedExchange, size: int) -> None:
        """Enqueue a finished exchange of about `size` bytes, or count it as dropped if the queue is full. Never blocks.

        Called only by the thread of the traffic.
        """
        self.finished_exchanges.append(exchange)
        if size >= self._large or len(self.finished_exchanges) >= self._batch:
            self.pack()

    def pack(self) -> int:
        """Pack the finished exchanges into the free space of the queue, and drop the others.

        Return the number of exchanges after which to call this again; an exchange of `LARGE_BYTES` calls for it at once.
        Called only by the thread of the traffic.
        """
        if not self._packing_lock.acquire(blocking=False):
            return self._batch  # the other thread is packing them
        try:
            exchanges = self._remove_finished()
            room = self._most_exchanges - self._put + self._taken
            if self._put_bytes >= self._taken_bytes + self._most_bytes:
                room = 0
            body, count = self._as_frame(exchanges[:room]) if room > 0 else (b"", 0)
            dropped = max(len(exchanges) - max(room, 0), 0)
            if self._put_bytes + len(body) > self._taken_bytes + self._most_bytes:
                dropped += count  # without those that could not be packed, which are counted as problems
                room = count = 0
            if count:
                self._packed.append((body, count))
                self._put += count
                self._put_bytes += len(body)
            self._batch = min(_BATCH_EXCHANGES, max(room - count, self._drop_batch))
        finally:
            self._packing_lock.release()
        self._count(("dropped",), dropped)
        return self._batch

    def count_problem(self) -> None:
        """Count an internal error that did not affect the traffic."""
        self._count(("problems",), 1)

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Have the queue judged within a time limit, then stop the thread and the process."""
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
        self._start_process()
        while True:
            if self._process is None:
                if self._closing.wait(self._pause_seconds()):
                    break
                self._start_process()
            elif self._unsent or self._fill():
                self._send()
            elif self._closing.is_set():
                break
            else:
                self.memory.trim()
                self._closing.wait(_POLL_SECONDS)
                if self._process.poll() is not None:
                    self._report_end()
        self._end_process(_CLOSE_SECONDS)
        while self._unsent or self._fill():
            self._count(("dropped",), sum(count for _, count in self._unsent))
            self._unsent.clear()

    def _fill(self) -> bool:
        self._unsent = self._dequeue_batches()
        return bool(self._unsent)

    def _pause_seconds(self) -> float:
        return min(FIRST_PAUSE_SECONDS * 2.0 ** (self._quick_ends - 1), LONGEST_PAUSE_SECONDS)

    def _dequeue_batches(self) -> deque[_Batch]:
        """Remove the oldest batches, about as much as one write takes."""
        batches: deque[_Batch] = deque()
        size = 0
        with self._packing_lock:
            while self._packed and size < _WRITE_BYTES:
                body, count = self._packed.popleft()
                self._taken += count
                self._taken_bytes += len(body)
                size += len(body)
                batches.append((body, count))
            exchanges = self._remove_finished() if not batches else []
        if exchanges:
            batches.append(self._as_frame(exchanges))
        return batches

    def _remove_finished(self) -> list[QueuedExchange]:
        exchanges = self.finished_exchanges[:]
        del self.finished_exchanges[: len(exchanges)]  # without those that the data path appends meanwhile
        return exchanges

    def _as_frame(self, exchanges: list[QueuedExchange]) -> _Batch:
        """Pack exchanges, and count those that cannot be packed as problems."""
        try:
            body, count = encode_exchanges(exchanges)
        except Exception:  # noqa: BLE001 - no internal error may reach the traffic
            body, count = b"", 0
        self._count(("problems",), len(exchanges) - count)
        return body, count

    def _send(self) -> None:
        try:
            self._write(self._unsent)
        except OSError:
            self._report_end()

    def _write(self, batches: deque[_Batch]) -> None:
        """Write batches, and remove those that are written.

        One `writev` for many, if possible: after each write the thread has to get the GIL back from the traffic.
        """
        process = self._process
        if process is None or process.stdin is None:
            raise BrokenPipeError
        pipe, offset = process.stdin.fileno(), 0
        while batches:
            pieces = [piece for body, _ in batches for piece in encode_frame(body)]
            pieces[:2] = [b"".join(pieces[:2])[offset:]]
            try:
                offset += os.writev(pipe, pieces[:_PIECES])
            except AttributeError:  # on Windows
                offset += os.write(pipe, pieces[0])
            while batches and offset >= LENGTH_BYTES + len(batches[0][0]):
                body, count = batches.popleft()
                offset -= LENGTH_BYTES + len(body)
                self._sent += count
                self.memory.count_freed(len(body))

    def _start_process(self) -> None:
        if self._started_at:
            self._count(("restarts",), 1)
        self._started_at = time.monotonic()
        try:
            process = subprocess.Popen(  # noqa: S603 - this interpreter; it inherits only two pipes
                [sys.executable, "-P", "-m", "harmony_proxy.judging.judge_process", self._settings.argument()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches only the parent, which then ends the input
            )
        except OSError:
            self._quick_ends += 1
            self._count(("problems",), 1)
            return
        self._process = process
        with suppress(OSError, AttributeError, ImportError):
            fcntl = importlib.import_module("fcntl")  # not on Windows
            fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._sent = 0
        self._reader = Thread(target=self._listen, args=(process,), name="judge-queue-reports", daemon=True)
        self._reader.start()

    def _report_end(self) -> None:
        """Report that the process has ended. It is started again after a pause."""
        self._end_process(1.0)
        if self._closing.is_set():
            return
        if time.monotonic() - self._started_at >= STABLE_SECONDS:
            self._quick_ends = 0
        self._quick_ends += 1
        self._on_message(
            f"the judge process ended and is restarted in {self._pause_seconds():g} s; until then exchanges wait in the"
            " queue to be judged, and repairs and blocks of a policy go on"
        )

    def _end_process(self, seconds: float) -> None:
        process, reader = self._process, self._reader
        if process is None or reader is None:
            return
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        with suppress(OSError, AttributeError):  # the parent waits for it from here on
            os.sched_setscheduler(process.pid, os.SCHED_OTHER, os.sched_param(0))
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(seconds)
        self._process = None
        with self._lock:
            total, self._total = self._total, b""
            counts, judged = _parse(total)
            self._counts.update(counts)
        self._count(("lost",), max(self._sent - judged, 0))

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            return
        with process.stdout as lines:
            for line in lines:
                if line.startswith(TOTALS):
                    if line.endswith(b"\n"):  # else the process ended within the line: the previous report is valid
                        self._total = line.removeprefix(TOTALS)  # parsed on demand, not in the process of the traffic
                    continue
                if line.startswith(RECENT):
                    self._recent.add(line.removeprefix(RECENT))
                    continue
                try:
                    self._on_message(text(loads(line)))
                except InvalidJsonError:
                    self._count(("problems",), 1)

    def _count(self, name: tuple[str, ...], times: int) -> None:
        if times:
            with self._lock:
                self._counts[name] += times


def _parse(total: bytes) -> tuple[Tally, int]:
    """Return the counts of a report, and the number of judged exchanges."""
    try:
        report = loads(total) if total else None
    except InvalidJsonError:  # truncated when the process ended
        return Counter(), 0
    return from_json(value_at(report, "counts")), integer(value_at(report, "exchanges")) or 0

"""Judging beside the traffic: a bounded queue and one thread. The data path hands over and goes on; what does not fit is counted, never waited for."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock, Thread

from harmony_conformance.audit.excerpt import Excerpts
from harmony_conformance.audit.scan import judge_alone
from harmony_conformance.check import Check, Comparison
from harmony_conformance.json_value import JsonObject
from harmony_conformance.judge import Result
from harmony_proxy.outcome_log import Summary, log_line
from harmony_proxy.passage import passage
from harmony_proxy.recorder import Recorder

QUEUED_EXCHANGES = 1000
QUEUED_BYTES = 256 * 1024 * 1024

Write = Callable[[JsonObject], None]


@dataclass(frozen=True, kw_only=True)
class Handed:
    """An exchange that is over, its number, and when it began (UTC, ISO 8601)."""

    recorder: Recorder
    number: int
    started: str


class Judging:
    """The thread and its queue. `write` gets one line for each exchange, in the order in which they ended."""

    def __init__(
        self,
        checks: Iterable[Check | Comparison],
        write: Write,
        *,
        excerpts: Excerpts = Excerpts.NONE,
        queued_exchanges: int = QUEUED_EXCHANGES,
        queued_bytes: int = QUEUED_BYTES,
    ) -> None:
        self.summary = Summary()
        self._checks = tuple(checks)
        self._write = write
        self._excerpts = excerpts
        self._queue: queue.Queue[Handed | None] = queue.Queue()
        self._most = (queued_exchanges, queued_bytes)
        self._held = (0, 0)
        self._lock = Lock()
        self._thread = Thread(target=self._run, name="judging", daemon=True)

    def start(self) -> None:
        """Begin to judge."""
        self._thread.start()

    def hand_over(self, handed: Handed) -> None:
        """Queue an exchange that is over, or count it as dropped where the queue is full. Never blocks."""
        with self._lock:
            exchanges, size = self._held[0] + 1, self._held[1] + handed.recorder.cost
            if exchanges > self._most[0] or size > self._most[1]:
                self.summary.dropped += 1
                return
            self._held = (exchanges, size)
        self._queue.put_nowait(handed)

    def problem(self) -> None:
        """Count something that went wrong on our side; the traffic was not touched by it."""
        with self._lock:
            self.summary.problems += 1

    def close(self) -> None:
        """Judge what is queued, then stop."""
        self._queue.put_nowait(None)
        self._thread.join()

    def _run(self) -> None:
        while (handed := self._queue.get()) is not None:
            try:
                self._judge(handed)
            except Exception:  # noqa: BLE001 - one exchange that we cannot handle must not end the judging of others
                self.problem()
            finally:
                with self._lock:
                    self._held = (self._held[0] - 1, self._held[1] - handed.recorder.cost)

    def _judge(self, handed: Handed) -> None:
        told = passage(handed.recorder.kept(f"exchange {handed.number}", 0.0))
        results: tuple[Result, ...] = ()
        if told.exchange is not None:
            results = judge_alone(told.exchange, self._checks)
        self.summary.add(told, results)
        self._write(log_line(told, handed.number, handed.started, results, self._excerpts))

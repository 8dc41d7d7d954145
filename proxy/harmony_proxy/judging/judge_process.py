"""The judge process: read exchanges from the parent, run all checks on each, write the outcome log, report counts.

    python -m harmony_proxy.judging.judge_process SETTINGS

Input: frames (see `queue_codec`) on stdin, a private pipe from the parent. Output: lines with messages, and at intervals
the counts of everything judged so far. The process ends when stdin ends or the parent is gone. After SIGTERM it judges
its input for at most 10 seconds. It has the lowest CPU priority; `cpu_throttle` limits it further on few cores.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.checks import CHECKS
from harmony_conformance.errors import error_place
from harmony_conformance.json_value import JsonObject, dumps, items, text
from harmony_conformance.judge.applicability import build_index
from harmony_conformance.judge.check import Check, Comparison
from harmony_conformance.judge.judge import Result, judge_split
from harmony_conformance.runtime.terminal_text import escape_invisible
from harmony_proxy.capture.build_exchange import BuiltExchange, build_exchange
from harmony_proxy.capture.recorder import RecordedExchange
from harmony_proxy.judging.counters import Tally, count_exchange, to_json
from harmony_proxy.judging.cpu_throttle import cpu_throttle
from harmony_proxy.judging.judge_settings import LENGTH_BYTES, LOW, RECENT, TOTALS, JudgeSettings, read_settings
from harmony_proxy.judging.log_file import LogFile
from harmony_proxy.judging.model_names import ModelNames
from harmony_proxy.judging.outcome_log import Samples, before_and_after, error_line, log_line, without_exchange
from harmony_proxy.judging.queue_codec import decode_frame
from harmony_proxy.judging.recent_outcomes import RecentOutcomes
from harmony_ref import encode

DRAIN_SECONDS = 10.0
EXCHANGE_SECONDS = 30.0
_POLL_SECONDS = 5.0
_REPORT_SECONDS = 0.2
_NICE = 10


Emit = Callable[[BuiltExchange, Sequence[Result], int], None]


class _TimeLimitError(BaseException):
    """Judging an exchange took too long. Not an `Exception`, so that no check catches it."""


class ExchangeJudge:
    """Judges exchanges one by one, and passes the line of each to `write`. State: the samples, names of models, the start time.

    Each of `emit` gets each exchange with the results of the checks that applied, and how many did not apply.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        write: Callable[[JsonObject], None],
        checks: Iterable[Check | Comparison],
        *emit: Emit,
    ) -> None:
        self._settings = settings
        self._write = write
        self._emit = emit
        self._checks = build_index(tuple(checks))
        self._excerpts = Excerpts(settings.excerpts)
        self._capture = Excerpts(settings.capture)
        self._samples = Samples(self._capture)
        self._models = ModelNames()
        self._since: float | None = None

    def judge(self, record: RecordedExchange | None, counts: Tally) -> None:
        """Judge, log and count one exchange. None is one that could not be read."""
        if record is None:
            counts["problems",] += 1
            return
        started = _format_start(record.started)
        self._since = time.monotonic()
        try:
            built, applied, not_applicable = self._judge(record)
            count_exchange(counts, built, applied, not_applicable, self._models)
            line = self._log_line(built, started, applied, not_applicable, counts)
            self._emit_span(built, applied, not_applicable, counts)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - an internal error on one exchange must not end the judging of others
            counts["problems",] += 1
            counts["exchanges", "", record.end] += 1
            line = error_line(record, started, error_place(error))
            self._emit_span(without_exchange(record, error_place(error)), (), 0, counts)
        finally:
            self._since = None
        try:
            self._write(line)
        except OSError:  # the log is not writable
            counts["problems",] += 1
        except Exception as error:  # noqa: BLE001 - as above: the line cannot be encoded
            counts["problems",] += 1
            with suppress(Exception):
                self._write(error_line(record, started, error_place(error)))

    def check_time_limit(self, *_: object) -> None:
        """Abort an exchange that takes too long. For a periodic timer: one per exchange would cost more than a check."""
        if self._since is not None and time.monotonic() - self._since > EXCHANGE_SECONDS:
            raise _TimeLimitError

    def _judge(self, record: RecordedExchange) -> tuple[BuiltExchange, list[Result], int]:
        built = build_exchange(record, engine=self._settings.engine)
        if built.exchange is None:
            return built, [], 0
        closed, applied = judge_split(built.exchange, self._checks)
        return built, applied, len(closed)

    def _emit_span(self, built: BuiltExchange, applied: Sequence[Result], not_applicable: int, counts: Tally) -> None:
        """Emit a span, and the outcome. An error leaves one out, and neither the line nor the counts."""
        for emit in self._emit:
            try:
                emit(built, applied, not_applicable)
            except Exception:  # noqa: BLE001 - as above
                counts["problems",] += 1

    def _log_line(
        self, built: BuiltExchange, started: str, applied: list[Result], not_applicable: int, counts: Tally
    ) -> JsonObject:
        """Return the line of a judged exchange. After an error it has the outcomes, but neither findings nor sample."""
        try:
            line = log_line(built, started, applied, not_applicable, self._excerpts)
            line |= before_and_after(built, self._capture)
            sample = self._samples.select_sample(built.exchange, applied) if built.exchange is not None else None
        except Exception as error:  # noqa: BLE001 - names and texts of the traffic must not hide the outcomes
            counts["problems",] += 1
            line = log_line(built, started, applied, not_applicable, Excerpts.NONE)
            return {**line, "error": error_place(error)}
        return line if sample is None else {**line, "sample": sample}


class _Frames:
    """The frames on a pipe. State: the deadline after SIGTERM. `idle` is called when no input arrives for a while."""

    def __init__(self, file: int, idle: Callable[[], None]) -> None:
        self._file = file
        self._idle = idle
        self._parent = os.getppid()
        self._deadline: float | None = None

    def stop_soon(self, *_: object) -> None:
        """Handle SIGTERM: read for `DRAIN_SECONDS` more."""
        self._deadline = self._deadline or time.monotonic() + DRAIN_SECONDS

    @property
    def is_stopping(self) -> bool:
        return self._deadline is not None

    def __iter__(self) -> Iterator[list[RecordedExchange | None]]:
        while (head := self._read(LENGTH_BYTES)) and (body := self._read(int.from_bytes(head))):
            yield decode_frame(body)

    def _read(self, size: int) -> bytes:
        """Return exactly `size` bytes, or none at the end of the input."""
        parts = bytearray()
        while len(parts) < size:
            data = os.read(self._file, min(size - len(parts), 1 << 20)) if self._is_ready() else b""
            if not data:
                return b""
            parts += data
        return bytes(parts)

    def _is_ready(self) -> bool:
        wait = _REPORT_SECONDS
        while True:
            remaining = _POLL_SECONDS if self._deadline is None else self._deadline - time.monotonic()
            if remaining <= 0:
                return False
            if select.select([self._file], [], [], min(remaining, wait))[0]:
                return True
            if os.getppid() != self._parent:
                return False
            self._idle()
            wait = _POLL_SECONDS


def main(argument: str) -> int:
    """Judge the frames on stdin until its end. `argument` is the result of `JudgeSettings.argument`."""
    settings = read_settings(argument)
    recent = RecentOutcomes()
    totals = _Totals(recent)
    frames = _Frames(0, totals.report)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the parent decides
    signal.signal(signal.SIGTERM, frames.stop_soon)
    if hasattr(signal, "SIGHUP"):  # for the parent; the log is found again at its path without it
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log = LogFile(settings.log) if settings.log is not None else None
    reported: set[str] = set()

    def write(line: JsonObject) -> None:
        if log is not None:
            try:
                log.write(dumps(line).encode("utf-8", "backslashreplace") + b"\n")
            except OSError as problem:
                why = problem.strerror or str(problem)
                if why not in reported:  # once, and not through the parent, which may print no messages
                    reported.add(why)
                    problem_line = escape_invisible(f"harmony guard: cannot write the log {settings.log}: {why}")
                    sys.stderr.write(problem_line + "\n")
                raise
        elif items(line.get("failed")):
            failed = ", ".join(map(text, items(line["failed"])))
            _print(dumps(f"exchange {line['id']}: HTTP {line['status']}, {line['end']}, failed {failed}"))

    is_low = settings.priority == LOW
    if is_low:
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # the parent restores it at shutdown
        except (OSError, AttributeError):  # not Linux
            with suppress(OSError):
                os.nice(_NICE)
    emitter = _create_emitter(settings)
    judge = ExchangeJudge(settings, write, CHECKS, recent.add, *(() if emitter is None else (emitter.emit,)))
    encode(" ")  # loads the vocabulary now, not within the first exchange
    signal.signal(signal.SIGALRM, judge.check_time_limit)
    signal.setitimer(signal.ITIMER_REAL, _POLL_SECONDS, _POLL_SECONDS)
    gc.collect()
    gc.freeze()  # the loaded modules stay: exclude them from garbage collections
    throttle = cpu_throttle() if is_low else None
    for batch in frames:
        for record in batch:
            judge.judge(record, totals.counts)
            totals.count_one()
            if throttle is not None and not frames.is_stopping and (seconds := throttle.pause_seconds()):
                time.sleep(seconds)
    if emitter is not None:
        emitter.close()
    totals.report()
    signal.setitimer(signal.ITIMER_REAL, 0)  # a signal while the interpreter ends would kill it
    return 0


class _Emitter(Protocol):
    def emit(self, built: BuiltExchange, applied: Sequence[Result], not_applicable: int) -> None: ...

    def close(self) -> None: ...


def _create_emitter(settings: JudgeSettings) -> _Emitter | None:
    if not settings.otel:
        return None
    from harmony_proxy.judging.telemetry.emitter import OtlpEmitter  # noqa: PLC0415 - needs an extra

    return OtlpEmitter(settings)


class _Totals:
    """The counts so far, and the outcomes since the last report. Reported at intervals: each report costs time in both processes."""

    def __init__(self, recent: RecentOutcomes) -> None:
        self.counts: Tally = Counter()
        self._recent = recent
        self._exchanges = 0
        self._reported: int = 0
        self._reported_at = 0.0

    def count_one(self) -> None:
        """Count one exchange, and report if the last report is old enough."""
        self._exchanges += 1
        if time.monotonic() - self._reported_at >= _REPORT_SECONDS:
            self.report()

    def report(self) -> None:
        if self._exchanges == self._reported:
            return
        _print(TOTALS.decode() + dumps({"exchanges": self._exchanges, "counts": to_json(self.counts)}))
        if report := self._recent.take_report():
            _print(RECENT.decode() + report)
        self._reported = self._exchanges
        self._reported_at = time.monotonic()


def _format_start(started: float) -> str:
    second = int(started)
    return f"{_format_second(second)}.{int((started - second) * 1000):03d}+00:00"


@lru_cache(maxsize=16)  # many exchanges begin in the same second
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _print(line: str) -> None:
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError:  # the parent is gone: the remaining exchanges are still logged
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""The process that judges: reads exchanges from its parent, judges each with the whole table, writes the outcome log, tells counts back.

    python -m harmony_proxy.judging.judge_process SETTINGS

What comes in is `frames` on stdin, and only ever from the parent, over a pipe that nobody else has.
What goes out are lines: words to be said, and now and then the counts of all that was judged so far. It ends when its stdin ends or its parent is gone;
after SIGTERM it goes on for a while, to judge what was handed over, and no longer. It has low priority, so that judging takes only what the traffic leaves;
on a machine of few cores it gives way beyond that (`giving_way`).
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache

from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.checks import CHECKS
from harmony_conformance.json_value import JsonObject, dumps, items, text
from harmony_conformance.judge.applicability import build_index
from harmony_conformance.judge.check import Check, Comparison
from harmony_conformance.judge.judge import Result, judge_split
from harmony_proxy.capture.build_exchange import BuiltExchange, build_exchange
from harmony_proxy.capture.recorder import RecordedExchange
from harmony_proxy.judging.counters import Tally, count, to_json
from harmony_proxy.judging.cpu_throttle import cpu_throttle
from harmony_proxy.judging.judge_settings import LENGTH_BYTES, LOW, TOTALS, JudgeSettings, read_settings
from harmony_proxy.judging.log_file import LogFile
from harmony_proxy.judging.outcome_log import Samples, log_line
from harmony_proxy.judging.queue_codec import unframed

DRAIN_SECONDS = 10.0
EXCHANGE_SECONDS = 30.0
_LOOK_SECONDS = 5.0
_TELL_SECONDS = 0.2
_NICE = 10


class _TimeLimitError(BaseException):
    """An exchange takes too long to judge. No `Exception`: no check may take it for its own."""


class ExchangeJudge:
    """Judges exchanges one by one. State: the samples taken, and since when it is at one. `write` gets the line of each."""

    def __init__(
        self, settings: JudgeSettings, write: Callable[[JsonObject], None], checks: Iterable[Check | Comparison]
    ) -> None:
        self._settings = settings
        self._write = write
        self._checks = build_index(tuple(checks))
        self._excerpts = Excerpts(settings.excerpts)
        self._samples = Samples(Excerpts(settings.capture))
        self._since: float | None = None

    def judge(self, kept: RecordedExchange | None, counts: Tally) -> None:
        """Judge one, log it, and add it to the counts. None is one that could not be read."""
        if kept is None:
            counts["problems",] += 1
            return
        try:
            self._since = time.monotonic()
            try:
                told, line, applied, aside = self._judged(kept)
            finally:
                self._since = None
            count(counts, told, applied, aside)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - one exchange that we cannot handle must not end the judging of others
            counts["problems",] += 1
            counts["exchanges", "", kept.end] += 1
            return
        try:
            self._write(line)
        except Exception:  # noqa: BLE001 - as above: it cannot be written, or is nested too deeply
            counts["problems",] += 1

    def look_up(self, *_: object) -> None:
        """Give up an exchange that takes too long. For a timer that goes on and on: one for each exchange would cost more than many a check."""
        if self._since is not None and time.monotonic() - self._since > EXCHANGE_SECONDS:
            raise _TimeLimitError

    def _judged(self, kept: RecordedExchange) -> tuple[BuiltExchange, JsonObject, list[Result], int]:
        told = build_exchange(kept, engine=self._settings.engine)
        applied: list[Result] = []
        aside = 0
        if told.exchange is not None:
            closed, applied = judge_split(told.exchange, self._checks)
            aside = len(closed)
        line = log_line(told, _iso(kept.started), applied, aside, self._excerpts)
        if told.exchange is not None and (sample := self._samples.take(told.exchange, applied)) is not None:
            line["sample"] = sample
        return told, line, applied, aside


class _Frames:
    """What the parent hands over; `idle` is called when nothing comes for a while. State: until when, once we were told to stop."""

    def __init__(self, file: int, idle: Callable[[], None]) -> None:
        self._file = file
        self._idle = idle
        self._parent = os.getppid()
        self._until: float | None = None

    def stop_soon(self, *_: object) -> None:
        """Go on for a while and no longer."""
        self._until = self._until or time.monotonic() + DRAIN_SECONDS

    @property
    def is_to_stop(self) -> bool:
        """Whether we were told to stop."""
        return self._until is not None

    def __iter__(self) -> Iterator[list[RecordedExchange | None]]:
        while (head := self._read(LENGTH_BYTES)) and (body := self._read(int.from_bytes(head))):
            yield unframed(body)

    def _read(self, size: int) -> bytes:
        """So many bytes, none where there are no more."""
        parts = bytearray()
        while len(parts) < size:
            if not self._is_ready():
                return b""
            data = os.read(self._file, min(size - len(parts), 1 << 20))
            if not data:
                return b""
            parts += data
        return bytes(parts)

    def _is_ready(self) -> bool:
        wait = _TELL_SECONDS
        while True:
            left = _LOOK_SECONDS if self._until is None else self._until - time.monotonic()
            if left <= 0:
                return False
            if select.select([self._file], [], [], min(left, wait))[0]:
                return True
            if os.getppid() != self._parent:
                return False
            self._idle()
            wait = _LOOK_SECONDS


def _give_way(priority: str) -> None:
    """Run only when nobody else wants to; the parent takes that back when it wants us to come to an end."""
    if priority != LOW:
        return
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (OSError, AttributeError):  # not Linux
        with suppress(OSError):
            os.nice(_NICE)


def main(argument: str) -> int:
    """Until there is no more."""
    settings = read_settings(argument)
    totals = _Totals()
    frames = _Frames(0, totals.tell)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent decides
    signal.signal(signal.SIGTERM, frames.stop_soon)
    log = LogFile(settings.log) if settings.log is not None else None
    told: set[str] = set()

    def write(line: JsonObject) -> None:
        if log is not None:
            try:
                log.write(dumps(line).encode("utf-8", "backslashreplace") + b"\n")
            except OSError as problem:
                why = problem.strerror or str(problem)
                if why not in told:  # once, and not by way of the parent: it may have nobody to tell
                    told.add(why)
                    sys.stderr.write(f"harmony guard: the log {settings.log} cannot be written: {why}\n")
                raise
        elif items(line.get("failed")):
            failed = ", ".join(map(text, items(line["failed"])))
            _say(dumps(f"exchange {line['id']}: HTTP {line['status']}, {line['end']}, failed {failed}"))

    _give_way(settings.priority)
    judge = ExchangeJudge(settings, write, CHECKS)
    signal.signal(signal.SIGALRM, judge.look_up)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
    gc.collect()
    gc.freeze()  # what was loaded stays: no collection need look at it again
    way = cpu_throttle() if settings.priority == LOW else None
    for batch in frames:
        for kept in batch:
            judge.judge(kept, totals.counts)
            totals.told_of_one()
            if way is not None and not frames.is_to_stop and (seconds := way.rest()):
                time.sleep(seconds)
    totals.tell()
    signal.setitimer(signal.ITIMER_REAL, 0)  # an interpreter that ends handles no signal: it would die of it
    return 0


class _Totals:
    """What all that was judged comes to. Told now and then, not for each exchange: to read it is work, for us and for the parent."""

    def __init__(self) -> None:
        self.counts: Tally = Counter()
        self._exchanges: int = 0
        self._told: int = 0
        self._when = 0.0

    def told_of_one(self) -> None:
        """One more has been counted."""
        self._exchanges += 1
        if time.monotonic() - self._when >= _TELL_SECONDS:
            self.tell()

    def tell(self) -> None:
        if self._exchanges == self._told:
            return
        _say(TOTALS.decode() + dumps({"exchanges": self._exchanges, "counts": to_json(self.counts)}))
        self._told = self._exchanges
        self._when = time.monotonic()


def _iso(seconds: float) -> str:
    """A time since 1970, to the millisecond."""
    whole = int(seconds)
    return f"{_second(whole)}.{int((seconds - whole) * 1000):03d}+00:00"


@lru_cache(maxsize=16)  # exchanges begin close together
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _say(line: str) -> None:
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError:  # nobody listens any more: what was handed over is still logged
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

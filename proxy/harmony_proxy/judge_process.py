"""The process that judges: reads exchanges from its parent, judges each with the whole table, writes the outcome log, tells counts back.

    python -m harmony_proxy.judge_process SETTINGS

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
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import NoReturn

from harmony_conformance.audit.excerpt import Excerpts
from harmony_conformance.audit.scan import judge_alone
from harmony_conformance.check import Check, Comparison
from harmony_conformance.checks import CHECKS
from harmony_conformance.json_value import Json, JsonObject, dumps, items, text
from harmony_conformance.judge import Result
from harmony_proxy.frames import unframed
from harmony_proxy.giving_way import giving_way
from harmony_proxy.judge_settings import LENGTH_BYTES, LOW, TOTALS, Settings, read_settings
from harmony_proxy.log_file import LogFile
from harmony_proxy.outcome_log import Samples, log_line
from harmony_proxy.passage import passage
from harmony_proxy.recorder import Kept
from harmony_proxy.tally import Tally, tally_of, to_json

DRAIN_SECONDS = 10.0
_EXCHANGE_SECONDS = 30.0
_LOOK_SECONDS = 5.0
_TELL_SECONDS = 0.2
_NICE = 10


class _TooLong(BaseException):
    """An exchange takes too long to judge. No `Exception`: no check may take it for its own."""


class Judge:
    """Judges exchanges one by one. State: the samples taken. `write` gets the line of each."""

    def __init__(
        self, settings: Settings, write: Callable[[JsonObject], None], checks: Iterable[Check | Comparison]
    ) -> None:
        self._settings = settings
        self._write = write
        self._checks = tuple(checks)
        self._excerpts = Excerpts(settings.excerpts)
        self._samples = Samples(Excerpts(settings.capture))

    def counts(self, batch: Iterable[Kept]) -> Tally:
        """Judge a batch, and count."""
        counts: Tally = Counter()
        for kept in batch:
            try:
                with _limited(_EXCHANGE_SECONDS):
                    counts.update(self._judged(kept))
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # noqa: BLE001 - one exchange that we cannot handle must not end the judging of others
                counts["problems",] += 1
                counts["exchanges", "", kept.end] += 1
        return counts

    def _judged(self, kept: Kept) -> Tally:
        told = passage(kept, engine=self._settings.engine)
        results: tuple[Result, ...] = ()
        sample: JsonObject | None = None
        if told.exchange is not None:
            results = judge_alone(told.exchange, self._checks)
            sample = self._samples.take(told.exchange, results)
        counts = tally_of(told, results)
        started = datetime.fromtimestamp(kept.started, UTC).isoformat(timespec="milliseconds")
        line = log_line(told, started, results, self._excerpts)
        try:
            self._write({**line, "sample": sample} if sample is not None else line)
        except OSError:
            counts["problems",] += 1
        return counts


@contextmanager
def _limited(seconds: float) -> Generator[None]:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


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

    def __iter__(self) -> Iterator[list[Kept]]:
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


def _too_long(*_: object) -> NoReturn:
    raise _TooLong


def main(argument: str) -> int:
    """Until there is no more."""
    settings = read_settings(argument)
    totals = _Totals()
    frames = _Frames(0, totals.tell)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent decides
    signal.signal(signal.SIGTERM, frames.stop_soon)
    signal.signal(signal.SIGALRM, _too_long)
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
            _say(
                dumps(f"exchange {line['id']}: HTTP {line['status']}, {line['end']}, failed {_joined(line['failed'])}")
            )

    _give_way(settings.priority)
    judge = Judge(settings, write, CHECKS)
    gc.collect()
    gc.freeze()  # what was loaded stays: no collection need look at it again
    way = giving_way() if settings.priority == LOW else None
    for batch in frames:
        for kept in batch:
            totals.add(1, judge.counts((kept,)))
            if way is not None and not frames.is_to_stop and (seconds := way.rest()):
                time.sleep(seconds)
    totals.tell()
    return 0


class _Totals:
    """What all that was judged comes to. Told now and then, not for each exchange: to read it is work, for us and for the parent."""

    def __init__(self) -> None:
        self._exchanges: int = 0
        self._told: int = 0
        self._counts: Tally = Counter()
        self._when = 0.0

    def add(self, exchanges: int, counts: Tally) -> None:
        self._exchanges += exchanges
        self._counts.update(counts)
        if time.monotonic() - self._when >= _TELL_SECONDS:
            self.tell()

    def tell(self) -> None:
        if self._exchanges == self._told:
            return
        _say(TOTALS.decode() + dumps({"exchanges": self._exchanges, "counts": to_json(self._counts)}))
        self._told = self._exchanges
        self._when = time.monotonic()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _joined(names: Json) -> str:
    return ", ".join(text(name) for name in items(names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""Batches of log lines, and their judgement. Only `batches` does I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from zlib import crc32

from harmony_conformance.audit.log_readers import DiscoveryLine, LineFormat, LoggedExchange, read_line
from harmony_conformance.audit.redaction import Excerpts, apply_excerpts, apply_to_reason, function_names
from harmony_conformance.audit.tallies import JudgedExchange, Tally, TallyBuilder
from harmony_conformance.checks import CHECKS
from harmony_conformance.errors import error_place
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.file_lines import Line, LinePosition, UnreadableLine, read_lines
from harmony_conformance.json_value import Json, JsonObject, dumps
from harmony_conformance.judge.applicability import ConditionIndex, build_index
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import Result, judge_split
from harmony_conformance.report.model import finding_json
from harmony_conformance.runtime.time_limit import JUDGING_SECONDS, TimeLimitError, time_limit

MAX_BATCH_LINES, MAX_BATCH_BYTES = 200, 1024 * 1024
"""Maximum lines and bytes of a batch. A longer line forms one batch alone."""

_FAILED_OUTCOMES = frozenset({Outcome.FAIL, Outcome.ERROR})


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Line format, the quotations that the report may contain, and the longest time to judge a line."""

    form: LineFormat = LineFormat.AUTO
    excerpts: Excerpts = Excerpts.REDACTED
    line_seconds: float = JUDGING_SECONDS


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Consecutive lines of one file, with the unreadable ones."""

    file: str
    lines: tuple[Line | UnreadableLine, ...]

    @property
    def digest(self) -> str:
        """Place and checksum of the lines, by which a resumed audit recognizes a batch."""
        checksum = 0
        for line in self.lines:
            checksum = crc32(line.data if isinstance(line, Line) else str(line).encode(), checksum)
        return f"{self.file}@{self.lines[0].offset}: {len(self.lines)} lines, checksum {checksum:08x}"


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """Result of a batch: its tally, and the lines of `failures.jsonl` and `unreadable.jsonl` in the order of the log."""

    tally: Tally
    failures: bytes = b""
    unreadable: bytes = b""
    digest: str = ""


def batches(paths: Iterable[Path], *, lines: int = MAX_BATCH_LINES, size: int = MAX_BATCH_BYTES) -> Iterator[Batch]:
    """Yield the lines of files in order, in batches of at most `lines` lines and `size` bytes. A batch is of one file."""
    for path in paths:
        batch: list[Line | UnreadableLine] = []
        batch_size = 0
        for line in read_lines(path):
            length = len(line.data) if isinstance(line, Line) else 0
            if batch and (len(batch) >= lines or batch_size + length > size):
                yield Batch(file=str(path), lines=tuple(batch))
                batch, batch_size = [], 0
            batch.append(line)
            batch_size += length
        if batch:
            yield Batch(file=str(path), lines=tuple(batch))


def scan_batch(batch: Batch, reading: ReadOptions) -> BatchResult:
    """Judge each exchange of a batch alone, and tally the results. An internal error becomes the row of its line."""
    counting = TallyBuilder()
    checks = build_index(CHECKS)
    failures: list[str] = []
    unreadable: list[str] = []
    for line in batch.lines:
        place = LinePosition(file=batch.file, offset=line.offset)
        try:
            with time_limit(reading.line_seconds):
                record = line if isinstance(line, UnreadableLine) else read_line(line, reading.form, name=str(place))
                judged = _judge_line(record, place, checks, reading) if isinstance(record, LoggedExchange) else record
            match judged:
                case UnreadableLine():
                    unreadable.append(dumps(_unreadable_row(place, judged)))
                    counting.add_problem(place, judged)
                case DiscoveryLine():
                    counting.add_discovery()
                case one, rows:
                    counting.add(one)
                    failures += rows
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - an internal error, or a panic of a library, must not end the audit
            reason = str(error) if isinstance(error, TimeLimitError) else error_place(error)
            counting.add_error(place, reason)
            failures.append(dumps(_error_row(place, reason)))
    return BatchResult(
        tally=counting.tally(),
        failures=_encode_rows(failures),
        unreadable=_encode_rows(unreadable),
        digest=batch.digest,
    )


def join_results(batch: Batch, results: Iterable[BatchResult]) -> BatchResult:
    """Return the result of a batch whose parts were judged separately, in the order of the log."""
    parts = tuple(results)
    return BatchResult(
        tally=reduce(add, (part.tally for part in parts), Tally()),
        failures=b"".join(part.failures for part in parts),
        unreadable=b"".join(part.unreadable for part in parts),
        digest=batch.digest,
    )


def unjudged_batch(batch: Batch, kind: str) -> BatchResult:
    """Return the result of a batch that could not be judged: an error for each line, with the bytes of the whole batch."""
    counting = TallyBuilder()
    last = batch.lines[-1]
    end = last.offset + (len(last.data) if isinstance(last, Line) else 0)
    detail = f"bytes {batch.lines[0].offset} to {end}"
    places = [LinePosition(file=batch.file, offset=line.offset) for line in batch.lines]
    for place in places:
        counting.add_error(place, kind, detail)
    rows = [dumps(_error_row(place, f"{kind}: {detail}")) for place in places]
    return BatchResult(tally=counting.tally(), failures=_encode_rows(rows), digest=batch.digest)


def _judge_line(
    record: LoggedExchange, place: LinePosition, checks: ConditionIndex, reading: ReadOptions
) -> tuple[JudgedExchange, list[str]]:
    """Return a judged exchange, and its rows of `failures.jsonl`."""
    aside, results = judge_split(record.exchange, checks)
    redacted = _redact(record.exchange, results, reading.excerpts)
    rows = [dumps(_failure_row(place, one)) for one in redacted if one.outcome in _FAILED_OUTCOMES]
    return JudgedExchange(place=place, results=redacted, shared_results=aside), rows


def _redact(x: Exchange, results: Iterable[Result], excerpts: Excerpts) -> list[Result]:
    """Return the results with the findings and reasons that a report may show."""
    names = function_names(x) if any(result.findings for result in results) else frozenset[str]()
    return [
        result._replace(
            findings=tuple(apply_excerpts(finding, excerpts, names) for finding in result.findings),
            reason=apply_to_reason(result.reason, excerpts),
        )
        if result.findings or result.outcome is Outcome.ERROR
        else result
        for result in results
    ]


def _failure_row(place: LinePosition, result: Result) -> JsonObject:
    findings: list[Json] = [finding_json(finding) for finding in result.findings]
    return {
        "exchange": str(place),
        "check": result.check,
        "severity": result.severity.value,
        "outcome": result.outcome.value,
        "findings": findings,
        "reason": result.reason,
    }


def _error_row(place: LinePosition, reason: str) -> JsonObject:
    """Return the row of a line that was not judged: it has no check."""
    return {
        "exchange": str(place),
        "check": None,
        "severity": None,
        "outcome": Outcome.ERROR.value,
        "findings": [],
        "reason": reason,
    }


def _unreadable_row(place: LinePosition, problem: UnreadableLine) -> JsonObject:
    return {"file": place.file, "offset": place.offset, "kind": problem.kind, "detail": problem.detail}


def _encode_rows(rows: Iterable[str]) -> bytes:
    return "".join(row + "\n" for row in rows).encode("utf-8", "backslashreplace")

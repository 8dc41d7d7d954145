"""Batches of log lines, and their judgement. Only `batches` does I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harmony_conformance.audit.log_readers import DiscoveryLine, LineFormat, LoggedExchange, read_line
from harmony_conformance.audit.redaction import Excerpts, apply_excerpts, apply_to_reason, function_names
from harmony_conformance.audit.tallies import JudgedExchange, Tally, TallyBuilder
from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.file_lines import Line, LinePosition, UnreadableLine, read_lines
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.judge.applicability import build_index
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge_split
from harmony_conformance.report.model import finding_json

MAX_BATCH_LINES, MAX_BATCH_BYTES = 200, 1024 * 1024
"""Maximum lines and bytes of a batch. A longer line forms one batch alone."""

_FAILED_OUTCOMES = frozenset({Outcome.FAIL, Outcome.ERROR})


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Line format, and the quotations that the report may contain."""

    form: LineFormat = LineFormat.AUTO
    excerpts: Excerpts = Excerpts.REDACTED


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Consecutive lines of one file, with the unreadable ones."""

    file: str
    lines: tuple[Line | UnreadableLine, ...]


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """Result of a batch: its tally, and the rows of `failures.jsonl` and `unreadable.jsonl` in the order of the log."""

    tally: Tally
    failures: tuple[JsonObject, ...]
    unreadable: tuple[JsonObject, ...]


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
    """Judge each exchange of a batch alone, and tally the results."""
    counting = TallyBuilder()
    checks = build_index(CHECKS)
    failures: list[JsonObject] = []
    unreadable: list[JsonObject] = []
    for line in batch.lines:
        place = LinePosition(file=batch.file, offset=line.offset)
        record = line if isinstance(line, UnreadableLine) else read_line(line, reading.form, name=str(place))
        match record:
            case UnreadableLine():
                counting.add_problem(place, record)
                unreadable.append(
                    {"file": place.file, "offset": place.offset, "kind": record.kind, "detail": record.detail}
                )
            case DiscoveryLine():
                counting.add_discovery()
            case LoggedExchange():
                aside, results = judge_split(record.exchange, checks)
                judged = JudgedExchange(place=place, exchange=record.exchange, results=results, shared_results=aside)
                counting.add(judged)
                failures.extend(_failures(judged, reading.excerpts))
    return BatchResult(tally=counting.tally(), failures=tuple(failures), unreadable=tuple(unreadable))


def _failures(judged: JudgedExchange, excerpts: Excerpts) -> Iterator[JsonObject]:
    failed = [result for result in judged.results if result.outcome in _FAILED_OUTCOMES]
    names = function_names(judged.exchange) if failed else frozenset[str]()
    for result in failed:
        findings: list[Json] = [finding_json(apply_excerpts(one, excerpts, names)) for one in result.findings]
        yield {
            "exchange": str(judged.place),
            "check": result.check,
            "severity": result.severity.value,
            "outcome": result.outcome.value,
            "findings": findings,
            "reason": apply_to_reason(result.reason, excerpts),
        }

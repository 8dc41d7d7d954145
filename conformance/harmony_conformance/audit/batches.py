"""A log in parts that are judged by themselves: batches of lines, and what is said of each. Pure but for the reading of the lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harmony_conformance.audit.log_readers import Found, LeftOut, LineFormat, read_line
from harmony_conformance.audit.redaction import Excerpts, apply_excerpts, apply_to_reason, names_in
from harmony_conformance.audit.scan import Counting, Judged, Tally
from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.file_lines import Line, LinePosition, UnreadableLine, read_lines
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.judge.applicability import build_index
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge_split
from harmony_conformance.report.model import finding_json

LINES, BYTES = 200, 1024 * 1024
"""What a batch holds at most; one line of any length is always in it."""

_WRITTEN = frozenset({Outcome.FAIL, Outcome.ERROR})


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How lines are read, and what may be quoted of them."""

    form: LineFormat = LineFormat.AUTO
    excerpts: Excerpts = Excerpts.REDACTED


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Lines of one file that follow each other, and the problems between them."""

    file: str
    lines: tuple[Line | UnreadableLine, ...]


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """What came of a batch: its sum, and the lines of `failures.jsonl` and `unreadable.jsonl`, in the order of the log."""

    tally: Tally
    failures: tuple[JsonObject, ...]
    unreadable: tuple[JsonObject, ...]


def batches(paths: Iterable[Path], *, lines: int = LINES, size: int = BYTES) -> Iterator[Batch]:
    """The lines of files, in order, in parts of at most so many lines and bytes; no batch reaches over the end of a file."""
    for path in paths:
        gathered: list[Line | UnreadableLine] = []
        held = 0
        for line in read_lines(path):
            length = len(line.data) if isinstance(line, Line) else 0
            if gathered and (len(gathered) >= lines or held + length > size):
                yield Batch(file=str(path), lines=tuple(gathered))
                gathered, held = [], 0
            gathered.append(line)
            held += length
        if gathered:
            yield Batch(file=str(path), lines=tuple(gathered))


def scan_batch(batch: Batch, reading: ReadOptions) -> Scanned:
    """Judge each exchange of a batch by itself, and sum up."""
    counting = Counting()
    checks = build_index(CHECKS)
    failures: list[JsonObject] = []
    unreadable: list[JsonObject] = []
    for line in batch.lines:
        place = LinePosition(file=batch.file, offset=line.offset)
        found = line if isinstance(line, UnreadableLine) else read_line(line, reading.form, name=str(place))
        match found:
            case UnreadableLine():
                counting.add_problem(place, found)
                unreadable.append(
                    {"file": place.file, "offset": place.offset, "kind": found.kind, "detail": found.detail}
                )
            case LeftOut():
                counting.leave_out()
            case Found():
                aside, results = judge_split(found.exchange, checks)
                judged = Judged(place=place, exchange=found.exchange, results=results, aside=aside)
                counting.add(judged)
                failures.extend(_failures(judged, reading.excerpts))
    return Scanned(tally=counting.tally(), failures=tuple(failures), unreadable=tuple(unreadable))


def _failures(judged: Judged, excerpts: Excerpts) -> Iterator[JsonObject]:
    failed = [result for result in judged.results if result.outcome in _WRITTEN]
    names = names_in(judged.exchange) if failed else frozenset[str]()
    for result in failed:
        findings: list[Json] = [finding_json(apply_excerpts(told, excerpts, names)) for told in result.findings]
        yield {
            "exchange": str(judged.place),
            "check": result.check,
            "severity": result.severity.value,
            "outcome": result.outcome.value,
            "findings": findings,
            "reason": apply_to_reason(result.reason, excerpts),
        }

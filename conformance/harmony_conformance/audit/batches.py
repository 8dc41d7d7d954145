"""Batches of log records, and their judgement. Only `batches` does I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from operator import add
from pathlib import Path
from types import MappingProxyType
from zlib import crc32

from harmony_conformance.audit.answer_source import source_of, source_of_counted
from harmony_conformance.audit.plans.blocks import Block, Selection, read_block, select, split_file
from harmony_conformance.audit.plans.plan import AuditPlan, PlanName
from harmony_conformance.audit.readers.files.container import InputFile
from harmony_conformance.audit.readers.files.formats import open_logs
from harmony_conformance.audit.readers.records.pairs import PAIR
from harmony_conformance.audit.readers.records.record import CountedExchange, DiscoveryLine, LoggedExchange
from harmony_conformance.audit.readers.records.shapes import AUTO, SHAPES, Record, read_line
from harmony_conformance.audit.redaction import Excerpts, apply_excerpts, apply_to_reason, function_names
from harmony_conformance.audit.renamed_files import identities
from harmony_conformance.audit.repeats.memo import RepeatMemo, Sighting, learn
from harmony_conformance.audit.scopes import checks_of, left_out
from harmony_conformance.audit.tallies import JudgedExchange, Tally, TallyBuilder
from harmony_conformance.checks import CHECKS
from harmony_conformance.errors import error_place
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.file_lines import Line, LinePosition, UnreadableLine
from harmony_conformance.json_value import Json, JsonObject, dumps
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.judge import Result, judge_split
from harmony_conformance.plugins.loading import restore_plugins
from harmony_conformance.plugins.registry import PluginSource
from harmony_conformance.report.model import finding_json
from harmony_conformance.runtime.time_limit import JUDGING_SECONDS, TimeLimitError, time_limits

MAX_BATCH_LINES, MAX_BATCH_BYTES = 500, 2 * 1024 * 1024
"""Maximum lines and bytes of a batch. A longer line forms one batch alone."""

NO_CONTENT = "the log of the proxy names the check, and has no sample that can be read"
"""The reason of a failure that is counted by the outcomes in a line of the log of the proxy."""

_FAILED_OUTCOMES = frozenset({Outcome.FAIL, Outcome.ERROR})
_SEVERITIES = {rule.id: rule.severity for rule in CHECKS}


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Format and columns of the records, the quotations that the report may contain, and the longest time to judge a record.

    `user_key` is the key of the hash by which users are known, empty if they are left out. `plugins`: the sources of further checks.
    """

    form: str = AUTO
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    excerpts: Excerpts = Excerpts.REDACTED
    user_key: bytes = field(default=b"", repr=False)
    plan: AuditPlan = field(default_factory=AuditPlan)
    plugins: tuple[PluginSource, ...] = ()
    line_seconds: float = JUDGING_SECONDS


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Consecutive records of one file, with the unreadable ones.

    Attributes:
        file: The file.
        lines: The records. Of a block, those that its plan selects; none before it is read.
        mark: The sign before their offsets in places, see `LinePosition`.
        block: The block that has the records, None if they were read one by one.
        selection: The records that are judged, None before they are selected.
    """

    file: str
    lines: tuple[Line | UnreadableLine, ...]
    mark: str = "@"
    block: Block | None = None
    selection: Selection | None = None

    def place(self, line: Line | UnreadableLine) -> LinePosition:
        """Return the place of one of the records."""
        return LinePosition(file=self.file, offset=line.offset, mark=self.mark)

    @property
    def digest(self) -> str:
        """Place and checksum of the lines, by which a resumed audit recognizes a batch."""
        lines, checksum = self.lines if self.block is None else self.selected(self.block.plan).lines, 0
        for line in lines:
            checksum = crc32(line.data if isinstance(line, Line) else str(line).encode(), checksum)
        start = self.place(lines[0]) if self.block is None else f"{self.file}@{self.block.start} to {self.block.end}"
        return f"{start}: {len(lines)} lines, checksum {checksum:08x}"

    def selected(self, plan: AuditPlan) -> Selection:
        """Return the records that a plan judges. A block is read for it."""
        if self.selection is not None:
            return self.selection
        if self.block is not None:
            return read_block(self.block)
        return Selection(lines=self.lines) if plan.judges_all else select(self.lines, plan)

    def single_records(self) -> Iterator[Batch]:
        """Yield a batch for each record, and one for the number of those that the plan of a block passes over."""
        if self.block is None:
            yield from (replace(self, lines=(line,)) for line in self.lines)
            return
        selection = self.selected(self.block.plan)
        yield replace(self, selection=replace(selection, lines=()))
        for line in selection.lines:
            yield replace(self, lines=(line,), selection=replace(selection, lines=(line,), passed_over=0))


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """Result of a batch: its tally, and the lines of `failures.jsonl` and `unreadable.jsonl` in the order of the log."""

    tally: Tally
    failures: bytes = b""
    unreadable: bytes = b""
    digest: str = ""


def batches(  # noqa: PLR0913 - two sizes, for tests
    paths: Iterable[str | Path],
    form: str = AUTO,
    plan: AuditPlan | None = None,
    *,
    lines: int = MAX_BATCH_LINES,
    size: int = MAX_BATCH_BYTES,
    select: Callable[[InputFile], InputFile] | None = None,
    ends: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[Batch]:
    """Yield the records of files in order, in batches of at most `lines` records and `size` bytes. A batch is of one file.

    With the plan `needles`, the judging processes read plain files themselves, in blocks. `select` chooses the records of each file.
    Files are read until the byte offset in `ends`, see `open_logs`.
    """
    names = list(map(str, paths))
    known = identities(names)
    for log in open_logs(names, form, ends, known):
        if select is not None:
            yield from _batches_of(select(log), lines, size)
        elif plan is not None and plan.name is PlanName.NEEDLES and log.is_plain and Path(log.name).is_file():
            yield from _blocks_of(log.name, split_file(log.name, plan, ends.get(log.name), known.get(log.name)))
        else:
            yield from _batches_of(log, lines, size)


def _blocks_of(path: str, parts: Iterable[Block | UnreadableLine]) -> Iterator[Batch]:
    for part in parts:
        if isinstance(part, Block):
            yield Batch(file=path, lines=(), block=part)
        else:
            yield Batch(file=path, lines=(part,))


def _batches_of(log: InputFile, lines: int, size: int) -> Iterator[Batch]:
    batch: list[Line | UnreadableLine] = []
    batch_size = 0
    for line in log.records:
        length = len(line.data) if isinstance(line, Line) else 0
        if batch and (len(batch) >= lines or batch_size + length > size):
            yield Batch(file=log.name, lines=tuple(batch), mark=log.mark)
            batch, batch_size = [], 0
        batch.append(line)
        batch_size += length
    if batch:
        yield Batch(file=log.name, lines=tuple(batch), mark=log.mark)


def scan_batch(batch: Batch, reading: ReadOptions) -> BatchResult:
    """Judge each exchange of a batch alone, and tally the results. An internal error becomes the row of its line."""
    restore_plugins(reading.plugins)
    counting = TallyBuilder()
    failures: list[str] = []
    unreadable: list[str] = []
    digest = replace(batch, selection=(selection := batch.selected(reading.plan))).digest
    memo = _memo_of(reading)
    counting.add_passed_over(selection.passed_over)
    with time_limits(reading.line_seconds) as limit:
        for line in selection.lines:
            place = batch.place(line)
            by_needle = line.offset in selection.by_needle
            records: list[Record] = []
            seen: Sighting | None = None
            try:
                with limit:
                    seen = _find(line, None if by_needle else memo)
                    if seen is not None and seen.known is not None:
                        counting.add_known(seen.known, seen.day, seen.provider)
                        continue
                    records = (
                        [line]
                        if isinstance(line, UnreadableLine)
                        else read_line(line, reading.form, name=str(place), columns=reading.columns)
                    )
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - an internal error, or a panic of a library, must not end the audit
                failures.append(_count_error(counting, place, error))
            for part, record in enumerate(records):
                where = place if len(records) == 1 else replace(place, part=part)
                try:
                    with limit:
                        judged = _judge(record, where, reading, by_needle=by_needle)
                    match judged:
                        case UnreadableLine():
                            unreadable.append(dumps(_unreadable_row(where, judged)))
                            counting.add_problem(where, judged)
                        case DiscoveryLine():
                            counting.add_discovery()
                        case CountedExchange():
                            source = source_of_counted(judged, reading.user_key, is_full=_has_routes(reading))
                            must = any(_SEVERITIES[one] is Severity.MUST for one in judged.checks[Outcome.FAIL])
                            counting.add_counted(judged, source, must=must)
                            failures += _counted_rows(where, judged, source)
                        case one, rows:
                            counting.add(one)
                            failures += rows
                            learn(seen, one)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # noqa: BLE001 - see above
                    failures.append(_count_error(counting, where, error))
    return BatchResult(
        tally=counting.tally(),
        failures=_encode_rows(failures),
        unreadable=_encode_rows(unreadable),
        digest=digest,
    )


def _memo_of(reading: ReadOptions) -> RepeatMemo | None:
    """Return the memo of this process, None if the options read a record otherwise than as the pair that it is.

    Exchanges with the same features have the same outcomes of the checks of this package. Other checks may read other features.
    """
    reads_pairs = (
        not reading.plugins and (reading.form == PAIR.name or reading.form not in SHAPES) and not reading.columns
    )
    return _memo(_has_routes(reading)) if reads_pairs else None


@cache
def _memo(has_routes: bool) -> RepeatMemo:  # noqa: ARG001 - sources differ by it
    return RepeatMemo()


def _find(line: Line | UnreadableLine, memo: RepeatMemo | None) -> Sighting | None:
    return None if memo is None or isinstance(line, UnreadableLine) else memo.find(line.data)


def _count_error(counting: TallyBuilder, place: LinePosition, error: BaseException) -> str:
    """Count a record that was not judged, and return its row."""
    reason = str(error) if isinstance(error, TimeLimitError) else error_place(error)
    counting.add_error(place, reason)
    return dumps(_error_row(place, reason))


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
    detail = (
        f"bytes {batch.lines[0].offset} to {end}"
        if batch.mark == "@"
        else f"records {batch.lines[0].offset} to {last.offset}"
    )
    places = [batch.place(line) for line in batch.lines]
    for place in places:
        counting.add_error(place, kind, detail)
    rows = [dumps(_error_row(place, f"{kind}: {detail}")) for place in places]
    return BatchResult(tally=counting.tally(), failures=_encode_rows(rows), digest=batch.digest)


def _judge(
    record: Record, place: LinePosition, reading: ReadOptions, *, by_needle: bool
) -> tuple[JudgedExchange, list[str]] | CountedExchange | DiscoveryLine | UnreadableLine:
    """Return a judged exchange, and its rows of `failures.jsonl`. Any other record is returned."""
    if not isinstance(record, LoggedExchange):
        return record
    aside, results = judge_split(record.exchange, checks_of(record.scope, by_needle=by_needle))
    redacted = _redact(record.exchange, results, reading.excerpts)
    source = source_of(record, reading.user_key, is_full=_has_routes(reading))
    row_source: JsonObject = {name: value or None for name, value in source.items()}
    rows = [dumps({**_failure_row(place, one), **row_source}) for one in redacted if one.outcome in _FAILED_OUTCOMES]
    shared = (aside, left_out(record.exchange, record.scope, by_needle=by_needle))
    judged = JudgedExchange(place=place, results=redacted, shared_results=shared, source=source)
    return judged, rows


def _has_routes(reading: ReadOptions) -> bool:
    """Return True if a report may have each route. Otherwise it has those of APIs alone."""
    return reading.excerpts is not Excerpts.NONE


def _counted_rows(place: LinePosition, counted: CountedExchange, source: Mapping[str, str]) -> Iterator[str]:
    """Yield the rows of an exchange that is counted by the outcomes in its line. They have no findings."""
    row_source: JsonObject = {name: value or None for name, value in source.items()}
    for outcome in sorted(_FAILED_OUTCOMES):
        for check in counted.checks[outcome]:
            row: JsonObject = {"exchange": str(place), "check": check, "severity": _SEVERITIES[check].value}
            yield dumps({**row, "outcome": outcome.value, "findings": [], "reason": NO_CONTENT, **row_source})


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
    return {
        "file": place.file,
        "offset": place.offset,
        "place": str(place),
        "kind": problem.kind,
        "detail": problem.detail,
    }


def _encode_rows(rows: Iterable[str]) -> bytes:
    return "".join(row + "\n" for row in rows).encode("utf-8", "backslashreplace")

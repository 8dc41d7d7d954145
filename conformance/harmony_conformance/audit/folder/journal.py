"""Journal of an audit: a line for each judged batch, from which a killed audit continues.

The first line has the options of the audit. A line of a batch has its digest, its tally, and the sizes of the other files after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harmony_conformance.audit.batches import BatchResult
from harmony_conformance.audit.rates.groups import groups_json, read_groups
from harmony_conformance.audit.tallies import CheckTally, CountedLines, FindingExample, LineProblems, Tally
from harmony_conformance.evidence.file_lines import LinePosition
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, loads, members, text, value_at
from harmony_conformance.judge.check import Finding, Outcome, Verdict
from harmony_conformance.redactable_text import RedactableText, ReportText, quote
from harmony_conformance.report.model import finding_json


class InvalidEntryError(ValueError):
    """A line that is no entry of a journal, for example one that was cut by the end of a process."""


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """A judged batch: its digest, its tally, and the size of each file after its lines were appended."""

    digest: str
    tally: Tally
    sizes: tuple[int, ...]


def entry_line(entry: JournalEntry) -> bytes:
    """Return the line of a batch."""
    return (dumps(entry_json(entry)) + "\n").encode("utf-8", "backslashreplace")


def entry_json(entry: JournalEntry) -> JsonObject:
    """Return the JSON form of a batch."""
    sizes: list[Json] = [*entry.sizes]
    return {"digest": entry.digest, "sizes": sizes, "tally": _tally_json(entry.tally)}


def read_entry(line: bytes) -> JournalEntry:
    """Read the line of a batch.

    Raises:
        InvalidEntryError: The line is cut, or not of a journal.
    """
    try:
        value = loads(line)
        sizes = tuple(size for size in map(integer, items(value_at(value, "sizes"))) if size is not None)
        return JournalEntry(
            digest=text(value_at(value, "digest")), tally=_read_tally(value_at(value, "tally")), sizes=sizes
        )
    except ValueError as problem:
        raise InvalidEntryError(f"invalid line of a journal: {problem}") from None


def without_late_examples(result: BatchResult, total: Tally) -> Tally:
    """Return the tally of a batch with those examples alone that are among the first ones of the total."""
    return replace(
        result.tally,
        checks={
            name: replace(check, examples=_same_objects(check.examples, total.checks[name].examples))
            if check.examples
            else check
            for name, check in result.tally.checks.items()
        },
    )


def _same_objects(examples: Iterable[FindingExample], of_total: Iterable[FindingExample]) -> tuple[FindingExample, ...]:
    kept = set(map(id, of_total))
    return tuple(example for example in examples if id(example) in kept)


def _tally_json(tally: Tally) -> JsonObject:
    return {
        "exchanges": tally.exchanges,
        "discovery_exchanges": tally.discovery_exchanges,
        "passed_over": tally.passed_over,
        "checks": {name: _check_json(check) for name, check in tally.checks.items()},
        "unreadable": _problems_json(tally.unreadable_by_kind),
        "errors": _problems_json(tally.errors_by_kind),
        "groups": groups_json(tally.groups),
        "counted": {
            "exchanges": tally.counted.exchanges,
            "checks": {**tally.counted.checks},
            "outcomes": {outcome.value: count for outcome, count in tally.counted.outcomes.items()},
        },
    }


def _read_tally(value: Json) -> Tally:
    return Tally(
        exchanges=integer(value_at(value, "exchanges")) or 0,
        discovery_exchanges=integer(value_at(value, "discovery_exchanges")) or 0,
        passed_over=integer(value_at(value, "passed_over")) or 0,
        checks={name: _read_check(check) for name, check in members(value_at(value, "checks")).items()},
        unreadable_by_kind=_read_problems(value_at(value, "unreadable")),
        errors_by_kind=_read_problems(value_at(value, "errors")),
        groups=read_groups(value_at(value, "groups")),
        counted=CountedLines(
            exchanges=integer(value_at(value, "counted", "exchanges")) or 0,
            checks=_read_counts(value_at(value, "counted", "checks")),
            outcomes=_read_outcomes(value_at(value, "counted", "outcomes")),
        ),
    )


def _check_json(check: CheckTally) -> JsonObject:
    return {
        "counts": {outcome.value: count for outcome, count in check.counts.items()},
        "reasons": {**check.reasons},
        "evidence": [*sorted(check.evidence)],
        "examples": [
            {
                "place": _place_json(example.place),
                "outcome": example.outcome.value,
                "findings": [_finding_json(finding) for finding in example.findings],
                "reason": example.reason,
            }
            for example in check.examples
        ],
    }


def _read_check(value: Json) -> CheckTally:
    return CheckTally(
        counts=_read_outcomes(value_at(value, "counts")),
        reasons=_read_counts(value_at(value, "reasons")),
        evidence=frozenset(map(text, items(value_at(value, "evidence")))),
        examples=tuple(
            FindingExample(
                place=_read_place(value_at(example, "place")),
                outcome=Outcome(text(value_at(example, "outcome"))),
                findings=tuple(map(_read_finding, items(value_at(example, "findings")))),
                reason=text(value_at(example, "reason")),
            )
            for example in items(value_at(value, "examples"))
        ),
    )


def _finding_json(finding: Finding) -> JsonObject:
    """Return the finding with the template of its message, and with its ruling and clause, by which causes are found and shown."""
    message = finding.message
    parts: Json = [message.template, *map(str, message.values)] if isinstance(message, RedactableText) else message
    own = {name: value for name, value in (("ruling", finding.ruling), ("clause", finding.clause)) if value}
    return {**finding_json(finding), "message": parts, **own}


def _read_counts(value: Json) -> Mapping[str, int]:
    return {name: integer(count) or 0 for name, count in members(value).items()}


def _read_outcomes(value: Json) -> Mapping[Outcome, int]:
    return {Outcome(name): count for name, count in _read_counts(value).items()}


def _read_finding(value: Json) -> Finding:
    shown = {
        name: quote(content) for name in ("expected", "actual") if isinstance(content := value_at(value, name), str)
    }
    excerpt = value_at(value, "excerpt")
    return Finding(
        verdict=Verdict(text(value_at(value, "verdict"))),
        message=_read_message(value_at(value, "message")),
        exchange=text(value_at(value, "exchange")),
        location=text(value_at(value, "at")),
        excerpt=excerpt if isinstance(excerpt, str) else None,
        ruling=text(value_at(value, "ruling")),
        clause=text(value_at(value, "clause")),
        **shown,
    )


def _read_message(value: Json) -> ReportText:
    """Return the message, with its template if it has one."""
    parts: list[Any] = [*value] if isinstance(value, list) else []
    plain: Any = value
    return RedactableText(parts[0], *parts[1:]) if parts else plain


def _problems_json(problems: Mapping[str, LineProblems]) -> JsonObject:
    return {
        kind: {
            "count": found.count,
            "first": [{"place": _place_json(place), "detail": detail} for place, detail in found.examples],
        }
        for kind, found in problems.items()
    }


def _read_problems(value: Json) -> Mapping[str, LineProblems]:
    return {
        kind: LineProblems(
            count=integer(value_at(found, "count")) or 0,
            examples=tuple(
                (_read_place(value_at(one, "place")), text(value_at(one, "detail")))
                for one in items(value_at(found, "first"))
            ),
        )
        for kind, found in members(value).items()
    }


def _place_json(place: LinePosition) -> JsonObject:
    return {"file": place.file, "offset": place.offset, "part": place.part, "mark": place.mark}


def _read_place(value: Json) -> LinePosition:
    return LinePosition(
        file=text(value_at(value, "file")),
        offset=integer(value_at(value, "offset")) or 0,
        part=-1 if (part := integer(value_at(value, "part"))) is None else part,
        mark=text(value_at(value, "mark")) or "@",
    )

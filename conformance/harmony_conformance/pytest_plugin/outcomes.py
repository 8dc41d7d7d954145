"""Outcomes of pytest items: passed, failed, expected failure, skipped or error, with text and report properties."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from harmony_conformance.judge.check import Check, Comparison, Finding, Outcome, Severity, Verdict
from harmony_conformance.judge.judge import Result
from harmony_conformance.report.formats.terminal import visible
from harmony_conformance.runtime.plural import number_of

APPLIED = "applied"
SEVERITY = "severity"
_FINDINGS_SHOWN = 3


class ItemStatus(StrEnum):
    """Outcome of an item."""

    PASSED = "passed"
    FAILED = "failed"
    XFAILED = "xfailed"
    SKIPPED = "skipped"
    ERROR = "error"


def item_status(result: Result, fails_on: frozenset[Severity]) -> ItemStatus:
    """Return the outcome of a result's item; a failure of a severity outside `fails_on` is an expected failure."""
    match result.outcome:
        case Outcome.ERROR:
            return ItemStatus.ERROR
        case Outcome.FAIL if result.severity in fails_on:
            return ItemStatus.FAILED
        case Outcome.FAIL:
            return ItemStatus.XFAILED
        case Outcome.NOT_APPLICABLE | Outcome.INCONCLUSIVE:
            return ItemStatus.SKIPPED
        case _:
            return ItemStatus.PASSED


def properties(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the properties of an item's report: severity, clause, evidence, findings and variants."""
    yield SEVERITY, result.severity.value
    yield "clause", result.clause.id
    yield APPLIED, str(result.applied)
    yield from (("evidence", name) for name in result.evidence)
    for finding in result.findings:
        kind = "variant" if finding.verdict is Verdict.VARIANT else "finding"
        yield kind, visible(finding.message)


def failure_text(rule: Check | Comparison, result: Result, reproduce: str) -> str:
    """Return the findings, the first one in the first line, the quotation of the clause and the command to reproduce."""
    failures = [finding for finding in result.findings if finding.verdict is Verdict.FAIL]
    lines = [line for finding in failures[:_FINDINGS_SHOWN] for line in _finding_lines(finding)]
    if len(failures) > _FINDINGS_SHOWN:
        lines.append(f"… and {number_of(len(failures) - _FINDINGS_SHOWN, 'more finding')}")
    lines += [
        *([] if failures else [result.reason]),
        "",
        f"{rule.severity.value.upper()} {rule.id}: {rule.requirement}",
        f"  clause   {result.clause.id}: {result.clause.quotation}",
        f"  scenario {result.scenario}: {result.passed} of {result.applied} passed",
    ]
    if reproduce:
        lines.append(f"  to reproduce: {visible(reproduce)}")
    return "\n".join(lines)


def xfail_text(result: Result) -> str:
    """Return the reason of an expected failure: its severity and the first finding, in one line."""
    messages = (finding.message for finding in result.findings if finding.verdict is Verdict.FAIL)
    return visible(f"{result.severity.value.upper()}: {next(messages, result.reason)}")


def skip_text(result: Result) -> str:
    """Return the reason of a skipped item."""
    word = "inconclusive" if result.outcome is Outcome.INCONCLUSIVE else "not applicable"
    return f"{word}: {result.reason}"


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield visible(finding.message)
    place = f"{finding.exchange} at {finding.location}" if finding.location else finding.exchange
    values = (place, finding.expected, finding.actual, finding.excerpt)
    for name, value in zip(("exchange", "expected", "actual", "excerpt"), values, strict=True):
        if value is not None:
            yield f"  {name:8} {visible(value)}"

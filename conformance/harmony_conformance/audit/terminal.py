"""Terminal report of an audit: applicable checks, first examples of failures, unreadable lines, counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harmony_conformance.audit.rates.groups import DIMENSIONS
from harmony_conformance.audit.rates.rate import rates
from harmony_conformance.audit.readers.record import delivery_notes
from harmony_conformance.audit.report import COMPARISON_REASON, Audit, AuditLine
from harmony_conformance.audit.tallies import LineProblems
from harmony_conformance.errors import error_place
from harmony_conformance.json_value import items, text, value_at
from harmony_conformance.judge.check import Finding, Outcome, Severity
from harmony_conformance.report.model import WORDS, count_applied
from harmony_conformance.report.terminal import STYLE, visible
from harmony_conformance.runtime.plural import number_of

_EXAMPLES_SHOWN = 3
_UNREAD_SHOWN = 3
_GROUPS_SHOWN = 20


def print_audit(audit: Audit, console: Console) -> None:
    """Print the report; its last line has the counts."""
    console.print(_table(audit))
    for line in _lines(audit):
        console.print(line, soft_wrap=True, highlight=False)


def _table(audit: Audit) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("check", "severity", "outcome"):
        table.add_column(heading, no_wrap=True)
    table.add_column("exchanges", min_width=14)
    for line in audit.lines:
        outcome = line.result.outcome
        if outcome is not Outcome.NOT_APPLICABLE:
            table.add_row(
                line.result.check,
                line.result.severity.value,
                f"[{STYLE[outcome]}]{WORDS[outcome]}[/]",
                count_applied(line.counts) or escape(line.result.reason),
            )
    return table


def _lines(audit: Audit) -> Iterator[str]:
    idle = [line.result.reason for line in audit.lines if line.result.outcome is Outcome.NOT_APPLICABLE]
    if idle:
        comparing = idle.count(COMPARISON_REASON)
        yield (
            f"{number_of(len(idle), 'more check')} applied to no exchange"
            f" ({comparing} of them compare exchanges; each line is judged alone)"
        )
    for line in audit.lines:
        if line.result.outcome in (Outcome.FAIL, Outcome.ERROR):
            try:
                yield from list(_failure(line))
            except Exception as error:  # noqa: BLE001 - the other checks are still shown
                yield f"  {escape(line.result.check)} could not be shown: {error_place(error)}"
    yield from _causes(audit)
    yield from _variants(audit)
    yield from _rates(audit)
    yield ""
    yield from _unread(audit)
    failed = any(line.counts.get(outcome) for line in audit.lines for outcome in (Outcome.FAIL, Outcome.ERROR))
    if failed or audit.tally.unreadable_by_kind or audit.tally.errors_by_kind:
        yield "FILE@N: the record at byte N of FILE (after decompression); FILE#N: record N, from 0; /N: a part of it"
    yield str(audit.plan)
    if audit.tally.passed_over:
        yield f"{number_of(audit.tally.passed_over, 'record')} not judged"
    delivered = {name: group.exchanges for name, group in audit.tally.groups.get("delivery", {}).items()}
    yield from delivery_notes(delivered)
    yield f"{number_of(audit.tally.exchanges, 'exchange')} judged; counts are exchanges times checks"
    yield audit.summary()


def _failure(line: AuditLine) -> Iterator[str]:
    result, outcome = line.result, line.result.outcome
    word = "SHOULD" if result.severity is Severity.SHOULD else "MUST"
    yield ""
    yield (
        f"[{STYLE[outcome]}]{WORDS[outcome].upper()}[/] {word} [bold]{escape(result.check)}[/]:"
        f" {line.counts[outcome]} of {result.applied} exchanges"
    )
    if result.reason:
        yield f"  {escape(visible(result.reason))}"
    shown = [example for example in line.examples if example.outcome is outcome]
    for example in shown[:_EXAMPLES_SHOWN]:
        yield f"  - {escape(visible(str(example.place)))}"
        for finding in example.findings:
            if finding.verdict.value == outcome.value:
                yield from _finding(finding)
    if line.counts[outcome] > _EXAMPLES_SHOWN:
        yield f"  … and {number_of(line.counts[outcome] - _EXAMPLES_SHOWN, 'more exchange')}"
    yield f"  spec: {escape(result.quotation)}"


def _finding(finding: Finding) -> Iterator[str]:
    at = f" (at {finding.location})" if finding.location else ""
    yield f"    {escape(visible(finding.message + at))}"
    for name, value in (("expected", finding.expected), ("actual", finding.actual), ("excerpt", finding.excerpt)):
        if value is not None:
            yield f"      {name}: {escape(visible(value))}"


def _causes(audit: Audit) -> Iterator[str]:
    """Yield the causes that explain failures of several checks, or that are known."""
    named = [cause for cause in audit.causes if value_at(cause, "defects") or value_at(cause, "affected") is not None]
    if named:
        yield ""
        yield "likely causes of these failures"
    for cause in named:
        sentence, identity = (text(value_at(cause, name)) for name in ("sentence", "id"))
        checks = ", ".join(map(text, items(value_at(cause, "checks"))))
        yield f"  [bold]{escape(visible(identity))}[/]: {escape(visible(sentence))}"
        yield f"    {escape(checks)}"


def _variants(audit: Audit) -> Iterator[str]:
    variants = {
        line.result.check: (
            line.counts[Outcome.VARIANT],
            Counter(
                finding.message
                for example in line.examples
                if example.outcome is Outcome.VARIANT
                for finding in example.findings
            ),
        )
        for line in audit.lines
        if line.counts.get(Outcome.VARIANT)
    }
    if variants:
        yield ""
        yield "[yellow]variants[/] (legitimate differences, never failures)"
    for check, (times, messages) in variants.items():
        first = messages.most_common(1)[0][0] if messages else ""
        yield f"  {escape(check)}: {escape(visible(first))} ({number_of(times, 'exchange')})"


def _rates(audit: Audit) -> Iterator[str]:
    """Yield the share of exchanges with a failure by day, model and the like, where there are several."""
    for dimension in DIMENSIONS:
        found = list(rates({dimension: audit.tally.groups.get(dimension, {})}))
        if len(found) < 2:  # noqa: PLR2004 - several
            continue
        yield ""
        yield f"exchanges with a failure, by {dimension} (95 % intervals)"
        if dimension != "day":
            found.sort(key=lambda one: (-one.tally.exchanges, one.name))
        for one in found[-_GROUPS_SHOWN:] if dimension == "day" else found[:_GROUPS_SHOWN]:
            yield f"  {escape(visible(one.name)) or 'unknown'}: {one}"
        if len(found) > _GROUPS_SHOWN:
            yield f"  … and {len(found) - _GROUPS_SHOWN} more"


def _unread(audit: Audit) -> Iterator[str]:
    yield from _problems(f"[{STYLE[Outcome.ERROR]}]ERROR[/]", audit.tally.errors_by_kind)
    if audit.tally.errors:
        yield f"not judged because of internal errors: {number_of(audit.tally.errors, 'line')}"
    yield from _problems("[yellow]unreadable[/]", audit.tally.unreadable_by_kind)
    yield f"{number_of(audit.tally.unreadable, 'line')} could not be read as exchanges"
    if audit.tally.discovery_exchanges:
        yield f"{audit.tally.discovery_exchanges} discovery exchanges not judged"


def _problems(title: str, problems: Mapping[str, LineProblems]) -> Iterator[str]:
    for kind, found in sorted(problems.items()):
        yield f"{title} {found.count} x {escape(visible(kind))}"
        for place, detail in found.examples[:_UNREAD_SHOWN]:
            yield f"  - {escape(visible(str(place)))}{': ' + escape(visible(detail)) if detail else ''}"

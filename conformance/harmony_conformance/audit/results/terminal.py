"""Terminal report of an audit: verdict, first examples of failures, causes, rates, what passed, unreadable lines, counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.markup import escape

from harmony_conformance.audit.batches import NO_CONTENT
from harmony_conformance.audit.plans.plan import COUNTS_ONLY
from harmony_conformance.audit.rates.groups import DIMENSIONS
from harmony_conformance.audit.rates.rate import rates
from harmony_conformance.audit.readers.records.record import counted_note, delivery_notes
from harmony_conformance.audit.results.report import COMPARISON_REASON, NO_SHARE, Audit, AuditLine, exit_code
from harmony_conformance.audit.tallies import LineProblems
from harmony_conformance.errors import Exit, error_place
from harmony_conformance.json_value import items, text, value_at
from harmony_conformance.judge.check import Finding, Outcome, Severity
from harmony_conformance.report.formats.terminal import STYLE, visible
from harmony_conformance.report.model import WORDS
from harmony_conformance.report.summary import DEFAULT_FAILS_ON
from harmony_conformance.runtime.plural import number_of

_EXAMPLES_SHOWN = 3
_EXPECTED_SHOWN = 1
_UNREAD_SHOWN = 3
_EMPTY_SHOWN = 20
_GROUPS_SHOWN = 20


def print_audit(audit: Audit, console: Console, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON) -> None:
    """Print the report: the verdict, the failures, what else was found, and what passed. Its last line has the counts."""
    for line in _lines(audit, fails_on):
        console.print(line, soft_wrap=True, highlight=False)


def _lines(audit: Audit, fails_on: frozenset[Severity]) -> Iterator[str]:
    yield _verdict(audit, fails_on)
    shown = [line for line in audit.lines if line.result.outcome in (Outcome.FAIL, Outcome.ERROR)]
    for line in sorted(shown, key=lambda line: _rank(audit, line)):
        try:
            yield from list(_failure(audit, line))
        except Exception as error:  # noqa: BLE001 - the other checks are still shown
            yield f"  {escape(line.result.check)} could not be shown: {error_place(error)}"
    yield from _causes(audit)
    yield from _variants(audit)
    yield from _rates(audit)
    yield from _others(audit)
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
    if audit.tally.counted.exchanges:
        yield counted_note(audit.tally.counted.exchanges)
    yield f"{number_of(audit.tally.exchanges, 'exchange')} judged; counts are exchanges times checks"
    yield audit.summary()


def _verdict(audit: Audit, fails_on: frozenset[Severity]) -> str:
    """Return the first line: how many checks failed, in how many exchanges, and what the exit code says of it."""
    failed = [line for line in audit.lines if line.counts.get(Outcome.FAIL)]
    must = sum(line.result.severity is Severity.MUST for line in failed)
    counts = f"{audit.failed} of {number_of(audit.tally.exchanges, 'exchange')}"
    if not audit.plan.has_rates:
        records = number_of(audit.tally.exchanges + audit.tally.passed_over, "record")
        counts = f"{number_of(audit.failed, 'exchange')}; the plan judged {audit.tally.exchanges} of {records}"
    counts += "" if audit.has_share else f" ({NO_SHARE})"
    expected = [line for line in failed if _is_expected(audit, line)]
    match exit_code(audit, fails_on):
        case Exit.DIVERGES:
            style, word = STYLE[Outcome.FAIL], "FAIL"
        case Exit.CONFORMS:
            style, word = (
                ("yellow", "NO NEW FAILURE" if audit.baseline else "NO FAILURE THAT COUNTS")
                if failed
                else (
                    "green",
                    "NO FAILURE FOUND",
                )
            )
        case Exit.INTERNAL_ERROR:
            style, word = STYLE[Outcome.ERROR], "NOT ALL JUDGED"
        case _:
            style, word = "magenta", "NOTHING CHECKED"
    notes = [f"{number_of(len(failed), 'check')} failed, {must} of them MUST, in {counts}" if failed else counts]
    notes += [f"{len(expected)} as the baseline expects"] if expected else []
    notes += (
        [f"stale entries of the baseline: {len(audit.baseline.stale)}"]
        if audit.baseline and audit.baseline.stale
        else []
    )
    return f"[{style}]{word}[/]: {'; '.join(notes)}"


def _is_expected(audit: Audit, line: AuditLine) -> bool:
    """Return True if the baseline expects all failures of a check."""
    return audit.baseline is not None and line.result.check not in audit.baseline.unexpected


def _rank(audit: Audit, line: AuditLine) -> tuple[bool, bool, bool, float, str]:
    """Return the place of a failure: errors first, then what the baseline does not expect, MUST, and the highest rate."""
    result = line.result
    return (
        result.outcome is not Outcome.ERROR,
        _is_expected(audit, line),
        result.severity is not Severity.MUST,
        -line.counts.get(Outcome.FAIL, 0) / max(result.applied, 1),
        result.check,
    )


def _failure(audit: Audit, line: AuditLine) -> Iterator[str]:
    result, outcome = line.result, line.result.outcome
    word = "SHOULD" if result.severity is Severity.SHOULD else "MUST"
    is_expected = outcome is Outcome.FAIL and _is_expected(audit, line)
    mark = "[dim]EXPECTED[/]" if is_expected else f"[{STYLE[outcome]}]{WORDS[outcome].upper()}[/]"
    yield ""
    yield f"{mark} {word} [bold]{escape(result.check)}[/]: {line.counts[outcome]} of {audit.plan.records(result.check, result.applied)}"
    if result.reason:
        yield f"  {escape(visible(result.reason))}"
    shown = [example for example in line.examples if example.outcome is outcome]
    others = line.counts[outcome] - len(shown := shown[: _EXPECTED_SHOWN if is_expected else _EXAMPLES_SHOWN])
    for example in shown:
        yield f"  - {escape(visible(str(example.place)))}"
        for finding in example.findings:
            if finding.verdict.value == outcome.value:
                yield from _finding(finding)
    if others:
        yield f"  … and {number_of(others, 'more exchange')}" if shown else f"  {NO_CONTENT}"
    yield f"  spec: {escape(result.quotation)}"


def _others(audit: Audit) -> Iterator[str]:
    """Yield the checks that passed, by family, and the number of those that applied to nothing."""
    passed = [line.result.check for line in audit.lines if line.result.outcome in (Outcome.PASS, Outcome.VARIANT)]
    idle = [line.result.reason for line in audit.lines if line.result.outcome is Outcome.NOT_APPLICABLE]
    yield ""
    if passed:
        families = Counter(check.partition(".")[0] for check in passed)
        shown = ", ".join(f"{family} {count}" for family, count in sorted(families.items()))
        yield f"[{STYLE[Outcome.PASS]}]passed[/]: {number_of(len(passed), 'check')} ({shown}); --out DIR lists each"
    if idle:
        comparing = idle.count(COMPARISON_REASON)
        applied = "had no failure" if audit.tally.counted.exchanges else "applied to no exchange"
        yield (
            f"{number_of(len(idle), 'more check' if passed else 'check')} {applied}"
            f" ({comparing} of them compare exchanges; each line is judged alone)"
        )


def _finding(finding: Finding) -> Iterator[str]:
    at = f" (at {finding.location})" if finding.location else ""
    yield f"    {escape(visible(finding.message + at))}"
    for name, value in (("expected", finding.expected), ("actual", finding.actual), ("excerpt", finding.excerpt)):
        if value is not None:
            yield f"      {name}: {escape(visible(value))}"


def _causes(audit: Audit) -> Iterator[str]:
    """Yield the causes that are known, or the groups of like failures if none is."""
    named = [cause for cause in audit.causes if value_at(cause, "defects") or value_at(cause, "affected") is not None]
    if audit.causes:
        yield ""
        yield "likely causes of these failures" if named else "no known cause fits; failures that are alike"
    for cause in named or audit.causes:
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
        yield f"  {escape(check)}: {escape(visible(first)) or NO_CONTENT} ({number_of(times, 'exchange')})"


def _rates(audit: Audit) -> Iterator[str]:
    """Yield the share of exchanges with a failure by day, model and the like, where there are several."""
    for dimension in DIMENSIONS:
        found = list(rates({dimension: audit.tally.groups.get(dimension, {})}, has_share=audit.plan.has_rates))
        if len(found) < 2:  # noqa: PLR2004 - several
            continue
        yield ""
        yield f"exchanges with a failure, by {dimension} ({'95 % intervals' if audit.plan.has_rates else COUNTS_ONLY})"
        if dimension != "day":
            found.sort(key=lambda one: (-one.tally.exchanges, one.name))
        failing = [one for one in found if one.tally.failed]  # a first leak must not be hidden by the days after it
        shown = failing if dimension == "day" and len(found) > _GROUPS_SHOWN else found[:_GROUPS_SHOWN]
        yield from (f"  {escape(visible(one.name)) or 'unknown'}: {one}" for one in shown)
        if rest := len(found) - len(shown):
            word = "day without a failure" if dimension == "day" else "more"
            yield f"  … and {number_of(rest, word, 'days without a failure' if dimension == 'day' else word)}"


def _unread(audit: Audit) -> Iterator[str]:
    yield from _problems(f"[{STYLE[Outcome.ERROR]}]ERROR[/]", audit.tally.errors_by_kind)
    if audit.tally.errors:
        yield f"not judged because of internal errors: {number_of(audit.tally.errors, 'line')}"
    yield from _problems("[yellow]unreadable[/]", audit.tally.unreadable_by_kind)
    yield f"{number_of(audit.tally.unreadable, 'line')} could not be read as exchanges"
    if audit.empty_files:
        yield f"[yellow]empty[/] {number_of(len(audit.empty_files), 'file')}, without a record"
        yield from (f"  - {escape(visible(name))}" for name in audit.empty_files[:_EMPTY_SHOWN])
    if len(audit.empty_files) > _EMPTY_SHOWN:
        yield f"  … and {len(audit.empty_files) - _EMPTY_SHOWN} more"
    if audit.tally.discovery_exchanges:
        yield f"{number_of(audit.tally.discovery_exchanges, 'discovery exchange')} not judged"


def _problems(title: str, problems: Mapping[str, LineProblems]) -> Iterator[str]:
    for kind, found in sorted(problems.items()):
        yield f"{title} {found.count} x {escape(visible(kind))}"
        for place, detail in found.examples[:_UNREAD_SHOWN]:
            yield f"  - {escape(visible(str(place)))}{': ' + escape(visible(detail)) if detail else ''}"

"""The report in a terminal: verdict, causes, what was not checked, counts.

With `--verbose`, it begins with a line for each check and each failure with its evidence and how to reproduce it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from harmony_conformance.json_value import JsonObject, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.cause_summary import CauseSummary, cause_summaries
from harmony_conformance.report.latency_table import COLUMNS, rows
from harmony_conformance.report.model import WORDS, Report, ResultLine
from harmony_conformance.report.summary import (
    DEFAULT_FAILS_ON,
    by_check,
    failures,
    never_applied,
    run_verdict,
    title,
    variants,
)
from harmony_conformance.runtime.terminal_text import escape_invisible, unescaped

STYLE = {
    Outcome.PASS: "green",
    Outcome.FAIL: "bold red",
    Outcome.VARIANT: "yellow",
    Outcome.INCONCLUSIVE: "magenta",
    Outcome.NOT_APPLICABLE: "dim",
    Outcome.ERROR: "bold white on red",
}
"""Styles of the outcomes."""
_FINDINGS_SHOWN = 3
_CAUSES_SHOWN = 8
_REASONS_SHOWN = 3
_WIDE = 140  # a file has no edge; a table cut at 80 columns would lose words


class EscapingConsole(Console):
    """A console whose only control characters are its own colours and cursor movements."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of anything that is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_invisible(segment.text, keep="\n"))


def report_console(*, piped_width: int | None = _WIDE, stderr: bool = False) -> Console:
    """Return a console: as wide as the terminal; without a terminal, wide enough for every table."""
    file = unescaped(sys.stderr if stderr else sys.stdout)
    console = EscapingConsole(file=file, highlight=False)
    return console if console.is_terminal else EscapingConsole(file=file, highlight=False, width=piped_width)


def print_summary(report: Report, console: Console, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON) -> None:
    """Print the verdict, the causes, what was not checked, and the counts: at most 30 lines of 80 columns."""
    for line in (*_verdict(report, fails_on), *_causes(report), *_open_questions(report)):
        console.print(line, soft_wrap=True, highlight=False)
    console.print(report.summary(), soft_wrap=True, highlight=False)


def _verdict(report: Report, fails_on: frozenset[Severity]) -> Iterator[str]:
    verdict = run_verdict(report, fails_on)
    yield f"[bold]{escape(visible(title(report)))}: {escape(visible(verdict.headline))}[/]"
    yield escape(visible(verdict.sentence))


def _causes(report: Report) -> Iterator[str]:
    causes = cause_summaries(report)
    if not causes:
        return
    yield ""
    yield f"[bold]causes: {len(causes)}, for {report.counts[Outcome.FAIL]} failed results[/]"
    for cause in causes[:_CAUSES_SHOWN]:
        yield from _cause(cause)
    if len(causes) > _CAUSES_SHOWN:
        yield f"  … and {len(causes) - _CAUSES_SHOWN} more in report.md"
    yield "  more: harmony-conformance explain ID, harmony-conformance reproduce RUN ID"


def _cause(cause: CauseSummary) -> Iterator[str]:
    style = STYLE[Outcome.FAIL] if cause.severity is Severity.MUST else STYLE[Outcome.VARIANT]
    also = f" ({escape(visible(cause.also))})" if cause.also else ""
    yield f"  [{style}]{cause.severity.upper()}[/] [bold]{escape(visible(cause.name))}[/]{also}: {cause.extent}"
    yield f"    {escape(visible(cut_words(cause.sentence)))}"


def cut_words(sentence: str, most: int = 140) -> str:
    """Return a sentence of at most `most` characters."""
    return sentence if len(sentence) <= most else f"{sentence[: most - 2].rpartition(' ')[0]} …"


def _open_questions(report: Report) -> Iterator[str]:
    """Yield what the run could not judge: the number of checks, and the commonest reasons."""
    checks = by_check(report)
    reasons = never_applied(checks)
    judged = len(checks) - sum(map(len, reasons.values()))
    yield ""
    yield f"{judged} of {len(checks)} checks could judge this server"
    for reason, unapplied in sorted(reasons.items(), key=lambda one: -len(one[1]))[:_REASONS_SHOWN]:
        yield f"  {len(unapplied)} not: {escape(visible(cut_words(reason)))}"
    if reasons or report.counts[Outcome.INCONCLUSIVE]:
        yield "  all reasons: report.md, or --verbose"


def print_report(report: Report, console: Console, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON) -> None:
    """Print every check and every failure, then the summary."""
    console.print(_table(report))
    for outcome in (Outcome.FAIL, Outcome.ERROR):
        for result in report.results:
            if result.outcome is outcome:
                for line in _result_lines(result):
                    console.print(line, soft_wrap=True, highlight=False)
    for line in (*_inconclusive(report), *_variants(report), *_not_applied(report)):
        console.print(line, soft_wrap=True, highlight=False)
    if report.latency:
        console.print(_latency(report))
    print_summary(report, console, fails_on)


def _table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("check", "severity", "outcome", "scenarios"):
        table.add_column(name, no_wrap=name != "scenarios")
    for check in by_check(report):
        worst = check.outcome
        if worst is not Outcome.NOT_APPLICABLE:
            table.add_row(check.check, check.severity.value, f"[{STYLE[worst]}]{WORDS[worst]}[/]", check.tally())
    return table


def _not_applied(report: Report) -> Iterator[str]:
    """The checks that applied to nothing, below each reason."""
    reasons = never_applied(by_check(report))
    if reasons:
        yield ""
        yield "[dim]not applicable[/] (no request of this run gave them anything to judge)"
    for reason, checks in sorted(reasons.items()):
        yield f"  {escape(visible(reason))}: {escape(', '.join(checks))}"


def _latency(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title="latency", title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in COLUMNS[:2] else "right", no_wrap=True)
    for row in rows(report.latency):
        table.add_row(*map(escape, row))
    for line in report.latency:
        failed = value_at(line, "failed")
        if failed:
            table.caption = f"{failed} of {value_at(line, 'requests')} requests failed ({text(value_at(line, 'load'))})"
    return table


def _result_lines(result: ResultLine) -> Iterator[str]:
    word = "SHOULD" if result.severity is Severity.SHOULD else "MUST"
    kind = WORDS[result.outcome].upper()
    yield ""
    counted = f"({result.passed} of {result.applied} passed)"
    where = f"[bold]{escape(visible(result.check))}[/] in {escape(visible(result.scenario))}"
    yield f"[{STYLE[result.outcome]}]{kind}[/] {word} {where} {counted}"
    if result.reason:
        yield f"  {escape(visible(result.reason))}"
    failed = failures(result)
    for finding in failed[:_FINDINGS_SHOWN]:
        yield from _finding(finding)
    if len(failed) > _FINDINGS_SHOWN:
        yield f"  … and {len(failed) - _FINDINGS_SHOWN} more findings in report.jsonl"
    yield f"  spec: {escape(result.quotation)}"
    if result.reproduce:
        yield f"  reproduce: {escape(visible(result.reproduce))}"


def _finding(finding: JsonObject) -> Iterator[str]:
    yield f"  - {escape(visible(text(value_at(finding, 'message'))))}"
    yield f"    in {escape(visible(text(value_at(finding, 'exchange'))))} at {escape(visible(text(value_at(finding, 'at'))))}"
    for name in ("expected", "actual", "excerpt"):
        if (value := value_at(finding, name)) is not None:
            yield f"    {name}: {escape(visible(text(value)))}"


def _inconclusive(report: Report) -> Iterator[str]:
    """The checks that were left open, one line for each reason: a request that failed leaves many open."""
    reasons: dict[str, dict[str, None]] = {}
    for result in report.results:
        if result.outcome is Outcome.INCONCLUSIVE:
            reasons.setdefault(result.reason, {})[result.check] = None
    if reasons:
        yield ""
        yield f"[{STYLE[Outcome.INCONCLUSIVE]}]inconclusive[/] (neither passes nor failures)"
    for reason, checks in reasons.items():
        yield f"  {escape(visible(reason))}: {escape(', '.join(checks))}"


def _variants(report: Report) -> Iterator[str]:
    told = variants(report)
    if told:
        yield ""
        yield "[yellow]variants[/] (legitimate differences, never failures)"
    for (check, message), times in sorted(told.items()):
        yield f"  {escape(check)}: {escape(visible(message))} ({times} times)"


def visible(value: str) -> str:
    """Return the text on one line, with invisible characters as escapes: what a model wrote must not steer a terminal."""
    return escape_invisible(value)

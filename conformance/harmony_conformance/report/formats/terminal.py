"""The report in a terminal: verdict, causes, what was not checked, counts.

With `--verbose`, it begins with a line for each check and each failure with its evidence and how to reproduce it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from harmony_conformance.golden.clients import client_profiles
from harmony_conformance.json_value import JsonObject, integer, items, members, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.cause_summary import CauseSummary, cause_summaries
from harmony_conformance.report.client_rows import CLIENT, NeedState, client_rows
from harmony_conformance.report.evidence_grade import evidence_grade
from harmony_conformance.report.latency_table import COLUMNS, rows
from harmony_conformance.report.model import WORDS, Report, ResultLine, rate_limited
from harmony_conformance.report.plugins_used import plugin_options
from harmony_conformance.report.summary import (
    DEFAULT_FAILS_ON,
    by_check,
    failures,
    never_applied,
    ruling_note,
    run_verdict,
    title,
    variants,
)
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.runtime.terminal_text import escape_invisible, escape_line_commands, line_beginning, unescaped

STYLE = {
    Outcome.PASS: "green",
    Outcome.FAIL: "bold red",
    Outcome.VARIANT: "yellow",
    Outcome.INCONCLUSIVE: "magenta",
    Outcome.NOT_APPLICABLE: "dim",
    Outcome.ERROR: "bold white on red",
}
"""Styles of the outcomes."""
_NEED_STYLE: Mapping[str, str] = {
    NeedState.FAILS: STYLE[Outcome.FAIL],
    NeedState.UNKNOWN: STYLE[Outcome.INCONCLUSIVE],
    NeedState.WORKS: STYLE[Outcome.PASS],
}
_FEATURE_NAMES: Mapping[str, str] = {"tools": "tool calls", "usage": "token counts", "streaming": "streams"}
_FINDINGS_SHOWN = 3
_ROWS, _MIN_COLUMNS = 30, 80
_INDENT = "    "
_NARROW_COLUMNS = ("metric", "load", "n", "median", "max")
_WIDE = 140  # a table cut at 80 columns would lose words
NO_EDGE = 100_000
"""The width of a file: a line that is searched for a value, or cut by another tool, is neither wrapped nor cut."""


class EscapingConsole(Console):
    """A console whose only control characters are its own colours and cursor movements. No line is a command for a CI system."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of anything that is printed."""
        line = ""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
                continue
            shown = escape_line_commands(line + escape_invisible(segment.text, keep="\n"))[len(line) :]
            line = line_beginning(f"{line}{shown}")
            yield segment._replace(text=shown)


def report_console(*, piped_width: int | None = _WIDE, stderr: bool = False) -> Console:
    """Return a console: as wide as the terminal; without a terminal, as the variable COLUMNS, else wide enough for every table."""
    file = unescaped(sys.stderr if stderr else sys.stdout)
    console = EscapingConsole(file=file, highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return EscapingConsole(file=file, highlight=False, width=piped_width)


def print_summary(
    report: Report, console: Console, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON, folder: Path | None = None
) -> None:
    """Print the verdict, the causes, what was not checked, the path of the report and the counts: at most 30 rows of the console.

    `folder`: the folder of the run's files.
    """
    width = max(console.width, _MIN_COLUMNS)
    first = [row for line in _verdict(report, fails_on, width) for row in _wrap(Text.from_markup(line), width, console)]
    last = [row for line in _open_questions(report) for row in _wrap(Text.from_markup(line), width, console)]
    if folder is not None:
        path = escape_invisible(str(folder / "report.html"))
        last += [Text(f"report: {path}")] if len(path) + len("report: ") <= width else [Text("report:"), Text(path)]
    last += _wrap(Text(report.summary()), width, console)
    for line in (*first, *_causes(report, width, _ROWS - _rows([*first, *last], width)), *last):
        console.print(line, soft_wrap=True, highlight=False)


def summary_line(report: Report, fails_on: frozenset[Severity], folder: Path) -> str:
    """Return a run in one line: verdict, causes, counts, reason of an early end, folder."""
    causes = f"causes: {len(report.causes)}" if report.causes else ""
    incomplete = text(value_at(report.header, "incomplete"))
    limited = rate_limited(report.results)
    open_ = f"{limited} rate limited: --resume continues" if limited else ""
    stopped = f"incomplete: {incomplete}" if incomplete else ""
    client = text(value_at(report.header, CLIENT, "verdict")).removesuffix(".")
    parts = filter(
        None, (client, run_verdict(report, fails_on).headline, causes, report.summary(), open_, stopped, str(folder))
    )
    return visible(f"{title(report)}: {'; '.join(parts)}")


def _fit(line: str, width: int) -> Text:
    """Return a line of markup, cut to a width."""
    shown = Text.from_markup(line)
    shown.truncate(width, overflow="ellipsis")
    return shown


def _wrap(line: Text, width: int, console: Console) -> list[Text]:
    """Return a line in at most two rows of a width. No word is broken that fits into a row."""
    if line.cell_len <= width:
        return [line]
    first, *others = line.wrap(console, width - len(_INDENT), tab_size=1)
    first.rstrip()
    rest = Text(" ", style=line.style).join(others)
    rest.truncate(width - len(_INDENT), overflow="ellipsis")
    return [first, Text(_INDENT) + rest]


def _rows(lines: Iterable[Text], width: int) -> int:
    """Return the number of rows that lines take at a width."""
    return sum(max(1, -(-line.cell_len // width)) for line in lines)


def _verdict(report: Report, fails_on: frozenset[Severity], width: int) -> Iterator[str]:
    yield from _client(report)
    verdict = run_verdict(report, fails_on)
    headline = visible(verdict.headline)
    name = _without_middle(visible(title(report)), max(width - len(headline) - 2, _MIN_COLUMNS // 2))
    yield f"[bold]{escape(name)}: {escape(headline)}[/]"
    yield escape(visible(verdict.sentence))
    if stopped := text(value_at(report.header, "incomplete")):
        yield f"[{STYLE[Outcome.INCONCLUSIVE]}]incomplete[/]: {escape(visible(stopped))}"
    if never := items(value_at(report.header, "features", "never")):
        answers = integer(value_at(report.header, "features", "answers"))
        names = ", ".join(_FEATURE_NAMES.get(name, name) for name in map(text, never))
        yield f"[{STYLE[Outcome.INCONCLUSIVE]}]not seen in {number_of(answers or 0, 'answer')}[/]: {names}"


def _client(report: Report) -> Iterator[str]:
    """Yield the verdict for the client of the run, and its needs that fail or are unknown, then the others in one line."""
    rows = [*client_rows(report)]
    if not rows:
        return
    yield f"[bold]{escape(visible(text(value_at(report.header, CLIENT, 'verdict'))))}[/]"
    if {state for _, state, _ in rows} == {NeedState.UNKNOWN.value} and not _offers_api_of_client(report):
        return  # the verdict has the reason
    for need, state, explanation in rows:
        if state != NeedState.WORKS:
            yield f"  [{_NEED_STYLE[state]}]{state.upper()}[/] {escape(visible(need))}: {escape(visible(explanation))}"
    works = [need for need, state, _ in rows if state == NeedState.WORKS]
    if works:
        yield f"  [{_NEED_STYLE[NeedState.WORKS]}]{NeedState.WORKS.upper()}[/] {escape(', '.join(works))}"


def _offers_api_of_client(report: Report) -> bool:
    """Return False if the endpoint does not offer the API of the client, or if that is unknown."""
    profile = client_profiles().get(text(value_at(report.header, CLIENT, "name")))
    support = members(value_at(report.header, "capabilities", "apis", profile.api if profile is not None else ""))
    return support.get("offered", True) is True


def _causes(report: Report, width: int, rows: int) -> Iterator[Text]:
    """Yield the causes that fit into some rows."""
    causes = cause_summaries(report)
    if not causes:
        return
    number = sum(cause.is_expected for cause in causes)
    expected = f", {number} expected by the baseline" if number else ""
    words = f"causes: {len(causes)}, for {number_of(report.counts[Outcome.FAIL], 'failed result')}{expected}"
    heading = (Text(), Text(words, style="bold"))
    options = f" (with{visible(found)})" if (found := plugin_options(report.header)) else ""
    hint = _fit(f"  more: harmony-conformance explain ID, harmony-conformance reproduce RUN ID{escape(options)}", width)
    rows -= _rows([*heading, hint], width)
    yield from heading
    shown = 0
    for cause in causes:
        lines = [_fit(line, width) for line in _cause(cause, width)]
        rows -= _rows(lines, width)
        if rows < (shown + 1 < len(causes)):  # one row for the number of the others
            break
        shown += 1
        yield from lines
    if shown < len(causes):
        yield Text(f"  … and {len(causes) - shown} more in report.md")
    yield hint


def _cause(cause: CauseSummary, width: int) -> Iterator[str]:
    style = STYLE[Outcome.FAIL] if cause.severity is Severity.MUST else STYLE[Outcome.VARIANT]
    known = f"known as {cause.catalogued}" if cause.catalogued else ""
    words = "; ".join(filter(None, (cause.alternatives, known)))
    also = f" ({escape(visible(words))})" if words else ""
    mark = "[dim]EXPECTED[/] " if cause.is_expected else ""
    yield f"  {mark}[{style}]{cause.severity.upper()}[/] [bold]{escape(visible(cause.name))}[/]: {cause.extent}{also}"
    yield f"    {escape(visible(cut_words(cause.sentence, width - 4)))}"


def _without_middle(value: str, most: int) -> str:
    """Return a text of at most `most` characters: the end of a model's name has its engine."""
    half = (most - 1) // 2
    return value if len(value) <= most else f"{value[:half]}…{value[-half:]}"


def cut_words(sentence: str, most: int = 140) -> str:
    """Return a sentence of at most `most` characters."""
    return sentence if len(sentence) <= most else f"{sentence[: most - 2].rpartition(' ')[0]} …"


def _open_questions(report: Report) -> Iterator[str]:
    """Yield the number of checks that could judge the server, and what the others need."""
    grade = evidence_grade(report)
    yield ""
    yield f"{grade.judged} of {number_of(grade.checks, 'check')} could judge this server"
    for need, count in grade.missing:
        yield f"  {count} more {need}"
    if limited := rate_limited(report.results):
        yield f"  {limited} inconclusive because of the rate limit (HTTP 429): repeat the run with --resume, or with a lower --max-rps"
    if grade.missing or report.counts[Outcome.INCONCLUSIVE]:
        yield "  all reasons: report.md, or --verbose"


def print_report(
    report: Report, console: Console, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON, folder: Path | None = None
) -> None:
    """Print every check and every failure, then the summary. See `print_summary`."""
    for line in _checks(report):
        console.print(line, soft_wrap=True, highlight=False)
    for outcome in (Outcome.FAIL, Outcome.ERROR):
        for result in report.results:
            if result.outcome is outcome:
                for line in _result_lines(result):
                    console.print(line, soft_wrap=True, highlight=False)
    for line in (*_inconclusive(report), *_variants(report), *_not_applied(report)):
        console.print(line, soft_wrap=True, highlight=False)
    if report.latency:
        console.print(_latency(report, console.width))
    print_summary(report, console, fails_on, folder)


def _checks(report: Report) -> Iterator[str]:
    """Yield a line for each check that applied: the worst outcome, the severity, the scenarios by outcome."""
    for check in by_check(report):
        worst = check.outcome
        if worst is not Outcome.NOT_APPLICABLE:
            outcome = f"[{STYLE[worst]}]{WORDS[worst].upper():12}[/]"
            yield f"{outcome} {check.severity.upper():6} {check.check}: {check.tally()}"


def _not_applied(report: Report) -> Iterator[str]:
    """The checks that applied to nothing, below each reason."""
    reasons = never_applied(by_check(report))
    if reasons:
        yield ""
        yield "[dim]not applicable[/] (no request of this run gave them anything to judge)"
    for reason, checks in sorted(reasons.items()):
        yield f"  {escape(visible(reason))}: {escape(', '.join(checks))}"


def _latency(report: Report, width: int) -> Table:
    """Return the figures of the latency probe; on a narrow console the most important ones."""
    names = COLUMNS if width >= _WIDE else _NARROW_COLUMNS
    table = Table(box=None, pad_edge=False, header_style="bold", title="latency", title_justify="left")
    for name in names:
        table.add_column(name, justify="left" if name in COLUMNS[:2] else "right", no_wrap=True)
    for row in rows(report.latency):
        cells = dict(zip(COLUMNS, map(escape, row), strict=True))
        metric = cells["metric"] if width >= _WIDE else cells["metric"].partition(",")[0]
        table.add_row(*({**cells, "metric": metric}[name] for name in names))
    for line in report.latency:
        failed = value_at(line, "failed")
        if failed:
            table.caption = f"{failed} of {number_of(integer(value_at(line, 'requests')) or 0, 'request')} failed ({text(value_at(line, 'load'))})"
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
        yield f"  … and {number_of(len(failed) - _FINDINGS_SHOWN, 'more finding')} in report.jsonl"
    yield f"  spec: {escape(result.quotation)}"
    if result.reproduce:
        yield f"  reproduce: {escape(visible(result.reproduce))}"


def _finding(finding: JsonObject) -> Iterator[str]:
    yield f"  - {escape(visible(text(value_at(finding, 'message'))))}"
    yield f"    in {escape(visible(text(value_at(finding, 'exchange'))))} at {escape(visible(text(value_at(finding, 'at'))))}"
    if note := ruling_note(finding):
        yield f"    {note}"
    for name in ("expected", "actual", "excerpt"):
        if (value := value_at(finding, name)) is not None:
            yield f"    {name}: {escape(visible(text(value))) or '(empty)'}"
    if quotation := text(value_at(finding, "quotation")):
        yield f"    spec: {escape(quotation)}"


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
        yield f"  {escape(check)}: {escape(visible(message))} ({number_of(times, 'time')})"


def visible(value: str) -> str:
    """Return the text on one line, with invisible characters as escapes: what a model wrote must not steer a terminal."""
    return escape_invisible(value)

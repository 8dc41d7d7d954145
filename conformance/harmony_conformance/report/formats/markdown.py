"""A report as Markdown, for $GITHUB_STEP_SUMMARY: verdict, what was tested, counts, failures with their evidence, a table of all checks.

Text of a server or a model is in fenced blocks that it cannot leave, or is escaped for Markdown and HTML.
GitHub refuses summaries above 1 MiB, so failures that no longer fit are only counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from harmony_conformance.json_value import JsonObject, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.clause import Clause
from harmony_conformance.report.cause_summary import CauseSummary, cause_summaries
from harmony_conformance.report.client_rows import CLIENT, client_rows
from harmony_conformance.report.latency_table import COLUMNS, notes, rows
from harmony_conformance.report.model import ORDER, WORDS, Report, ResultLine
from harmony_conformance.report.pages.markup import is_web_address
from harmony_conformance.report.summary import (
    DEFAULT_FAILS_ON,
    CheckResults,
    FindingLocation,
    Standing,
    by_check,
    by_family,
    facts,
    failed_checks,
    failures,
    grouped,
    never_applied,
    own_clause,
    ruling_note,
    run_verdict,
    sides,
    title,
    variants,
    with_outcome,
)
from harmony_conformance.report.text_excerpt import COMMAND_LIMIT, Pieces, cut, line, plain
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.runtime.terminal_text import escape_line_commands

MOST_BYTES = 1024 * 1024
_FOR_CAUSES = 100 * 1024
_FOR_FAILURES = 500 * 1024
_FOR_THE_REST = 300 * 1024
_SCENARIOS = 2
_FINDINGS = 3
_THREADS = 4
_LONGEST = 1500

_SIGN = re.compile(r"""[\\`*_{}\[\]()#+\-.!|~:@$=]""")
_BAR = re.compile(r"(?<!\\)\|")
_ENTITIES = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;"})
_MARK = {
    Outcome.PASS: "✅",
    Outcome.FAIL: "❌",
    Outcome.VARIANT: "🔀",
    Outcome.INCONCLUSIVE: "❔",
    Outcome.NOT_APPLICABLE: "⏭",
    Outcome.ERROR: "💥",
}
_STANDING = {
    Standing.CONFORMS: "✅",
    Standing.DIVERGES: "❌",
    Standing.STALE_BASELINE: "❌",
    Standing.NOT_ALL_CHECKED: "❔",
    Standing.ONLY_IGNORED_FAILURES: "❔",
    Standing.ONLY_EXPECTED_FAILURES: "☑️",
    Standing.UNCHECKED: "❔",
    Standing.OUR_ERROR: "💥",
    Standing.PLUGIN_ERROR: "💥",
}


def markdown(report: Report, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON) -> str:
    """The document, without commands for a CI system; failures of the severities in `fails_on` decide the verdict."""
    checks = by_check(report)
    verdict = run_verdict(report, fails_on)
    needs = [(inline(need), state, prose(explanation)) for need, state, explanation in client_rows(report)]
    client = text(value_at(report.header, CLIENT, "verdict"))
    head = (
        *((f"## {inline(client)}", table(("need", "state", ""), needs)) if needs else ()),
        f"## {_STANDING[verdict.standing]} {inline(title(report))}: {verdict.headline}",
        verdict.sentence,
        table([WORDS[outcome] for outcome in ORDER], [[str(report.counts[outcome]) for outcome in ORDER]], "---:"),
        table(("tested", ""), [[name, inline(value)] for name, value in facts(report)]),
    )
    parts = (
        *head,
        *_bounded(_causes(report), _FOR_CAUSES, "cause"),
        *_bounded(_failures(checks), _FOR_FAILURES, "failed check"),
        *_bounded(_rest(report, checks), _FOR_THE_REST, "section"),
    )
    return escape_line_commands("\n\n".join(parts) + "\n")


def inline(value: str) -> str:
    """Text that Markdown, HTML and a table's cell leave as it is, on one line."""
    return _escaped(line(value)).strip()


def _escaped(value: str) -> str:
    return _SIGN.sub(r"\\\g<0>", value.translate(_ENTITIES))


def prose(value: str) -> str:
    """Return a trusted sentence, in which backticks mark code."""
    parts = line(value).split("`")
    if len(parts) % 2 == 0:
        return inline(value)
    return "".join(f"`{part}`" if place % 2 else _escaped(part) for place, part in enumerate(parts))


def fenced(value: str, language: str = "text") -> str:
    """A code block that its content can not end."""
    longest = max((len(run) for run in re.findall(r"`+", value)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{value}\n{fence}"


def _bounded(parts: Iterable[str], most: int, what: str) -> Iterator[str]:
    """The parts that fit, and how many did not."""
    left, dropped = most, 0
    for part in parts:
        left -= len(part.encode("utf-8", "replace")) + 2
        if left < 0:
            dropped += 1
        else:
            yield part
    if dropped:
        yield f"*{number_of(dropped, f'more {what}')} {'does' if dropped == 1 else 'do'} not fit here; all stand in report.jsonl and report.html.*"


def _causes(report: Report) -> Iterator[str]:
    causes = cause_summaries(report)
    if causes:
        failed = number_of(report.counts[Outcome.FAIL], "failed result")
        yield f"### Causes: {len(causes)}\n\nfor {failed}. A result with failures of several causes counts for each."
    yield from ("\n\n".join(_cause(cause)) for cause in causes)


def _cause(cause: CauseSummary) -> Iterator[str]:
    """The sentence first, then what is known about it, and the smallest example with its evidence."""
    also = f" ({inline(cause.also)})" if cause.also else ""
    expected = ", expected by the baseline" if cause.is_expected else ""
    yield f"#### {cause.severity.upper()} {inline(cause.name)}{also}: {cause.extent}{expected}"
    yield prose(cause.sentence)
    yield from (f"{name}: {prose(value)}" for name, value in cause.facts)
    if cause.threads:
        yield f"Reported as {', '.join(map(_thread, cause.threads[:_THREADS]))}"
    quotation, source = cause.clause
    yield f"> {prose(quotation)}\n>\n> — {inline(source)}"
    said = f": {inline(cause.message)}" if cause.message != cause.sentence else ""
    yield f"For example {inline(cause.example)}{said}"
    yield from _sides(cause.sides)
    if cause.script:
        yield "Output of the model:\n\n" + fenced(plain(cut(cause.script, _LONGEST)))
    if cause.reproduce:
        command = fenced(plain(cut(cause.reproduce, COMMAND_LIMIT)), "sh")
        yield f"<details><summary>Reproduce</summary>\n\n{command}\n\n</details>"


def _thread(address: str) -> str:
    return f"<{address}>" if is_web_address(address) else prose(f"`{address}`")


def _failures(checks: tuple[CheckResults, ...]) -> Iterator[str]:
    if failed := failed_checks(checks):
        yield "Where two texts are compared, a line with a minus was expected, a line with a plus was received."
    for check in with_outcome(checks, Outcome.ERROR):
        yield "\n\n".join(_failed_parts(check, Outcome.ERROR, "error of the suite"))
    for check in failed:
        yield "\n\n".join(_failed_parts(check, Outcome.FAIL, "failed"))


def _failed_parts(check: CheckResults, outcome: Outcome, words: str) -> Iterator[str]:
    """A check that failed: what it demands and why, the first scenarios with their evidence, the others by name."""
    results = check.with_outcome(outcome)
    name = f"{check.severity.upper()} {inline(check.check)}"
    yield f"### {_MARK[outcome]} {name}: {words} in {len(results)} of {number_of(check.applied, 'scenario')}"
    if check.requirement:
        yield prose(check.requirement)
    yield f"> {prose(check.clause.quotation)}\n>\n> — {inline(check.clause.source)}"
    for result in results[:_SCENARIOS]:
        yield from _result(result, check.clause)
    if others := results[_SCENARIOS:]:
        yield f"Also in {', '.join(inline(result.scenario) for result in others)}"


def _result(result: ResultLine, shown: Clause) -> Iterator[str]:
    yield f"**In {inline(result.scenario)}**, {result.passed} of {result.applied} passed:"
    if result.reason:
        yield inline(result.reason)
    told = grouped(failures(result))
    for finding, places in told[:_FINDINGS]:
        yield from _finding(finding, places)
        if clause := own_clause(finding, result, shown):
            yield f"> {prose(clause.quotation)}\n>\n> — {inline(clause.source)}"
    if len(told) > _FINDINGS:
        yield f"*… and {number_of(len(told) - _FINDINGS, 'more finding')} in report.jsonl.*"
    if result.reproduce:
        yield "Reproduce:\n\n" + fenced(plain(cut(result.reproduce, COMMAND_LIMIT)), "sh")


def _finding(finding: JsonObject, places: list[FindingLocation]) -> Iterator[str]:
    where = " at ".join(filter(None, places[0]))
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    yield inline(text(value_at(finding, "message"))) + (f" ({inline(where)}{more})" if where else "")
    if note := ruling_note(finding):
        yield inline(note)
    yield from _sides(sides(finding, _LONGEST))
    if isinstance(excerpt := value_at(finding, "excerpt"), str):
        yield "excerpt:\n\n" + fenced(plain(cut(excerpt, _LONGEST)))


def _sides(pieces: Iterable[tuple[str, Pieces]]) -> Iterator[str]:
    both = [(name, plain(value)) for name, value in pieces]
    if len(both) > 1:
        signed = (f"{sign} {one}" for sign, (_, value) in zip("-+", both, strict=True) for one in value.split("\n"))
        yield fenced("\n".join(signed), "diff")
    else:
        yield from (f"{name}:\n\n{fenced(value)}" for name, value in both)


def _rest(report: Report, checks: tuple[CheckResults, ...]) -> Iterator[str]:
    for family, members_of in by_family(checks).items():
        lines = [
            [
                inline(check.check),
                check.severity.value,
                f"{_MARK[check.outcome]} {WORDS[check.outcome]}",
                inline(check.tally()),
            ]
            for check in members_of
        ]
        yield _folded(f"Checks: {line(family)}", table(("check", "severity", "outcome", "scenarios"), lines))
    inconclusive = [
        [inline(result.check), inline(result.scenario), inline(result.reason)]
        for result in report.results
        if result.outcome is Outcome.INCONCLUSIVE
    ]
    if inconclusive:
        yield _folded(f"Inconclusive: {len(inconclusive)}", table(("check", "scenario", "why"), inconclusive))
    if told := variants(report):
        lines = [[inline(check), inline(message), str(times)] for (check, message), times in sorted(told.items())]
        yield _folded(
            "Variants: legitimate differences, never failures", table(("check", "difference", "times"), lines)
        )
    if report.latency:
        yield "### Latency\n\n" + table(COLUMNS, (map(inline, row) for row in rows(report.latency)))
        yield "\n".join(
            f"- {inline(text(value_at(load, 'load')))}: {'; '.join(map(inline, notes(load)))}"
            for load in report.latency
        )
    if unapplied := never_applied(checks):
        lines = [[inline(reason), ", ".join(inline(check) for check in ids)] for reason, ids in unapplied.items()]
        yield _folded("Checks that applied to nothing", table(("why", "checks"), lines))


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{summary.translate(_ENTITIES)}</summary>\n\n{content}\n\n</details>"


def table(head: Sequence[str], lines: Iterable[Iterable[str]], rule: str = "---") -> str:
    """Return a table of cells that are Markdown already. A bar within a cell is escaped, also within code."""
    rows = ((_BAR.sub(r"\|", cell) for cell in cells) for cells in (head, [rule] * len(head), *lines))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)

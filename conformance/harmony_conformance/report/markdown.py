"""A report as Markdown, for $GITHUB_STEP_SUMMARY: verdict, what was tested, counts, failures with their evidence, a table of all checks.

What a server or a model wrote stands in fenced blocks that it can not leave, or has every sign escaped that Markdown or HTML would read. GitHub refuses
summaries above 1 MiB, so the document stays below: failures that no longer fit are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from harmony_conformance.check import Outcome, Severity
from harmony_conformance.json_value import Json, JsonObject, at, items, members, text
from harmony_conformance.report.excerpt import COMMAND_LIMIT, contrast, cut, line, plain
from harmony_conformance.report.figures import COLUMNS, rows
from harmony_conformance.report.model import ORDER, WORDS, Report, ResultLine
from harmony_conformance.report.overview import (
    MUST_FAILS,
    CheckResults,
    Place,
    Standing,
    by_check,
    by_family,
    facts,
    failures,
    grouped,
    judged,
    never_applied,
    title,
    variants,
)

MOST_BYTES = 1024 * 1024
_FOR_FAILURES = 600 * 1024
_FOR_THE_REST = 300 * 1024
_SCENARIOS = 2
_FINDINGS = 3
_LONGEST = 1500

_SIGN = re.compile(r"""[\\`*_{}\[\]()#+\-.!|~:@$=]""")
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
    Standing.NOT_ALL_CHECKED: "❔",
    Standing.NOT_ALL_COUNTED: "❔",
    Standing.UNCHECKED: "❔",
    Standing.OUR_ERROR: "💥",
}


def markdown(report: Report, fails_on: frozenset[Severity] = MUST_FAILS) -> str:
    """The document; failures of the severities in `fails_on` decide the verdict."""
    checks = by_check(report)
    wrong = [_failed(check, Outcome.ERROR) for check in checks if check.counts[Outcome.ERROR]]
    failed = sorted((check for check in checks if check.counts[Outcome.FAIL]), key=_must_first)
    key = [
        "Where two texts are compared, the line with a minus is what was expected, the one with a plus is what came."
    ]
    told = [*(key if failed else ()), *wrong, *(_failed(check, Outcome.FAIL) for check in failed)]
    parts = [
        *_head(report, fails_on),
        *_bounded(told, _FOR_FAILURES, "failed checks"),
        *_bounded(_rest(report, checks), _FOR_THE_REST, "sections"),
    ]
    return "\n\n".join(parts) + "\n"


def inline(value: str) -> str:
    """Text that Markdown, HTML and a table's cell leave as it is, on one line."""
    return _escaped(line(value)).strip()


def _escaped(value: str) -> str:
    return _SIGN.sub(r"\\\g<0>", value.translate(_ENTITIES))


def prose(value: str) -> str:
    """A sentence of ours or of a source, in which backticks stand around code."""
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
        yield f"*{dropped} more {what} do not fit here; all stand in report.jsonl and report.html.*"


def _head(report: Report, fails_on: frozenset[Severity]) -> Iterator[str]:
    verdict = judged(report, fails_on)
    yield f"## {_STANDING[verdict.standing]} {inline(title(report))}: {verdict.headline}"
    yield verdict.sentence
    yield _table(
        (WORDS[outcome] for outcome in ORDER),
        [[str(report.counts[outcome]) for outcome in ORDER]],
        "r",
    )
    yield _table(("tested", ""), [[name, inline(value)] for name, value in facts(report)])


def _must_first(check: CheckResults) -> bool:
    return check.severity is not Severity.MUST


def _failed(check: CheckResults, outcome: Outcome) -> str:
    return "\n\n".join(_failed_parts(check, outcome, check.with_outcome(outcome)))


def _failed_parts(check: CheckResults, outcome: Outcome, results: tuple[ResultLine, ...]) -> Iterator[str]:
    """A check that failed: what it demands and why, the first scenarios with their evidence, the others by name."""
    word = "error of the suite" if outcome is Outcome.ERROR else "failed"
    yield f"### {_MARK[outcome]} {check.severity.value.upper()} {inline(check.check)}: {word} in {len(results)} of {check.applied} scenarios"
    if check.requirement:
        yield prose(check.requirement)
    yield f"> {prose(check.clause.quotation)}\n>\n> — {inline(check.clause.source)}"
    for result in results[:_SCENARIOS]:
        yield from _result(result)
    if others := results[_SCENARIOS:]:
        yield f"Also in {', '.join(inline(result.scenario) for result in others)}"


def _result(result: ResultLine) -> Iterator[str]:
    yield f"**In {inline(result.scenario)}**, {result.passed} of {result.applied} passed:"
    if result.reason:
        yield inline(result.reason)
    told = grouped(failures(result))
    for finding, places in told[:_FINDINGS]:
        yield from _finding(finding, places)
    if len(told) > _FINDINGS:
        yield f"*… and {len(told) - _FINDINGS} more findings in report.jsonl.*"
    if result.reproduce:
        yield "Reproduce:\n\n" + fenced(plain(cut(result.reproduce, COMMAND_LIMIT)), "sh")


def _finding(finding: JsonObject, places: list[Place]) -> Iterator[str]:
    where = " at ".join(filter(None, places[0]))
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    yield inline(text(at(finding, "message"))) + (f" ({inline(where)}{more})" if where else "")
    expected, actual, excerpt = (at(finding, name) for name in ("expected", "actual", "excerpt"))
    if isinstance(expected, str) and isinstance(actual, str):
        wanted, found = contrast(expected, actual, _LONGEST)
        yield fenced(f"{_signed('-', plain(wanted))}\n{_signed('+', plain(found))}", "diff")
    else:
        for name, value in (("expected", expected), ("actual", actual)):
            if isinstance(value, str):
                yield f"{name}:\n\n" + fenced(plain(cut(value, _LONGEST)))
    if isinstance(excerpt, str):
        yield "excerpt:\n\n" + fenced(plain(cut(excerpt, _LONGEST)))


def _signed(sign: str, value: str) -> str:
    return "\n".join(f"{sign} {one}" for one in value.split("\n"))


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
        yield _folded(f"Checks: {line(family)}", _table(("check", "severity", "outcome", "scenarios"), lines))
    inconclusive = [
        [inline(result.check), inline(result.scenario), inline(result.reason)]
        for result in report.results
        if result.outcome is Outcome.INCONCLUSIVE
    ]
    if inconclusive:
        yield _folded(f"Inconclusive: {len(inconclusive)}", _table(("check", "scenario", "why"), inconclusive))
    if told := variants(report):
        lines = [[inline(check), inline(message), str(times)] for (check, message), times in sorted(told.items())]
        yield _folded(
            "Variants: legitimate differences, never failures", _table(("check", "difference", "times"), lines)
        )
    if report.latency:
        yield (
            "### Latency\n\n"
            + _table(COLUMNS, [[inline(cell) for cell in row] for row in rows(report.latency)])
            + "\n\n"
            + _latency_notes(report.latency)
        )
    if unapplied := never_applied(checks):
        lines = [[inline(reason), ", ".join(inline(check) for check in ids)] for reason, ids in unapplied.items()]
        yield _folded("Checks that applied to nothing", _table(("why", "checks"), lines))


def _latency_notes(latency: Iterable[JsonObject]) -> str:
    return "\n".join(f"- {inline(text(at(load, 'load')))}: {'; '.join(_said(load))}" for load in latency)


def _said(load: JsonObject) -> Iterator[str]:
    yield f"{_plain(at(load, 'requests'))} requests, {_plain(at(load, 'failed'))} failed"
    yield from (f"{_plain(count)} times {inline(reason)}" for reason, count in members(at(load, "failures")).items())
    yield from (inline(text(note)) for note in items(at(load, "notes")))


def _plain(value: Json) -> str:
    return inline(str(value))


def _folded(summary: str, content: str) -> str:
    shown = summary.translate(_ENTITIES)
    return f"<details><summary>{shown}</summary>\n\n{content}\n\n</details>"


def _table(head: Iterable[str], lines: Iterable[Iterable[str]], align: str = "l") -> str:
    named = list(head)
    rule = ["---:" if align == "r" else "---"] * len(named)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (named, rule, *lines))

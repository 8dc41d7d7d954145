"""A report as one HTML page: nothing to load, no script, and under a policy that allows neither. Reads on a phone, in the dark and on paper.

Everything that came from a server or a model passes `markup.shown`; see there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from itertools import groupby, repeat

from harmony_conformance.check import Outcome, Severity
from harmony_conformance.json_value import JsonObject, at, items, members, number, text
from harmony_conformance.report.excerpt import COMMAND_LIMIT, Pieces, contrast, cut
from harmony_conformance.report.figures import NAMES, Figure, figures, told
from harmony_conformance.report.markup import Markup, anchor, join, pieces, prose, tag, words
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
    family_about,
    grouped,
    judged,
    never_applied,
    title,
    variants,
)

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_FINDINGS = 5
_OPEN = 1
_WORTH_A_LIST = 3
_PLACES = 4
_LONGEST_MESSAGE = 600
_STANDING = {
    Standing.CONFORMS: "pass",
    Standing.DIVERGES: "fail",
    Standing.NOT_ALL_CHECKED: "inconclusive",
    Standing.NOT_ALL_COUNTED: "inconclusive",
    Standing.UNCHECKED: "inconclusive",
    Standing.OUR_ERROR: "error",
}
_MEANING = {
    Outcome.PASS: "the requirement was met wherever it applied",
    Outcome.FAIL: "it was not met at least once",
    Outcome.VARIANT: "a legitimate difference, never a failure",
    Outcome.INCONCLUSIVE: "the scenario should have shown it and did not: neither a pass nor a failure",
    Outcome.NOT_APPLICABLE: "the conditions of the check do not hold, or the endpoint does not show enough",
    Outcome.ERROR: "this suite went wrong, not the endpoint",
}


def html(report: Report, fails_on: frozenset[Severity] = MUST_FAILS) -> str:
    """The page; failures of the severities in `fails_on` decide the verdict."""
    checks = by_check(report)
    sections = [section for section in _sections(report, checks) if section is not None]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", words(f"{title(report)}: {judged(report, fails_on).headline} (harmony-conformance)")),
        tag("style", Markup(_style())),
    )
    links = [tag("a", name, href=f"#{target}") for target, name, _ in sections]
    body = tag(
        "body",
        tag("header", _top(report, fails_on), tag("nav", *links, aria_label="Sections"), class_="top"),
        tag("main", *(tag("section", tag("h2", name), content, id=target) for target, name, content in sections)),
        tag("footer", _legend()),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


@cache
def _style() -> str:
    return (files("harmony_conformance.report") / "page.css").read_text(encoding="utf-8")


Section = tuple[str, str, Markup]


def _sections(report: Report, checks: tuple[CheckResults, ...]) -> Iterator[Section | None]:
    """The sections that have something to say: anchor, heading, content."""
    yield _section(
        "errors",
        "Errors of this suite",
        (_with_reasons(check, Outcome.ERROR) for check in checks if check.counts[Outcome.ERROR]),
    )
    failed = sorted((check for check in checks if check.counts[Outcome.FAIL]), key=_must_first)
    yield _section("failures", "Failures", (*_contents(failed), *(_failed(check) for check in failed)))
    doubtful = [check for check in checks if check.counts[Outcome.INCONCLUSIVE]]
    yield _section("inconclusive", "Inconclusive", (_with_reasons(check, Outcome.INCONCLUSIVE) for check in doubtful))
    families = by_family(checks)
    yield _section("checks", "All checks", (_family(family, of) for family, of in families.items()))
    yield _section("variants", "Variants", _variants(report))
    yield _section("latency", "Latency", _latency(report))
    yield _section("not-applicable", "Not applicable", _unapplied(checks))


def _section(target: str, name: str, contents: Iterable[Markup]) -> Section | None:
    content = join(contents)
    return (target, name, content) if content else None


def _contents(failed: list[CheckResults]) -> Iterator[Markup]:
    """The failed checks as links, where there are several."""
    if len(failed) < _WORTH_A_LIST:
        return
    links = [
        tag(
            "li",
            tag("span", check.severity.value.upper(), class_="severity"),
            " ",
            tag("a", tag("code", check.check), href=f"#failure-{anchor(check.check)}"),
            tag("span", f" in {check.counts[Outcome.FAIL]} of {check.applied} scenarios", class_="soft"),
        )
        for check in failed
    ]
    yield tag("div", tag("ul", *links, class_="list columns"), class_="card")


def _must_first(check: CheckResults) -> bool:
    return check.severity is not Severity.MUST


def _top(report: Report, fails_on: frozenset[Severity]) -> Markup:
    verdict = judged(report, fails_on)
    counts = [(outcome, report.counts[outcome]) for outcome in ORDER]
    bar = [tag("span", class_=outcome.value, style=f"flex:{count}") for outcome, count in counts if count]
    badges = [tag("li", _badge(outcome, f"{count} {WORDS[outcome]}", is_none=not count)) for outcome, count in counts]
    return join(
        (
            tag("div", "harmony-conformance", class_="brand"),
            tag("h1", title(report)),
            tag(
                "div",
                tag("strong", _sentence(verdict.headline)),
                verdict.sentence,
                tag("div", *bar, class_="bar", aria_hidden="true"),
                tag("ul", *badges, class_="counts"),
                class_=f"card verdict {_STANDING[verdict.standing]}",
            ),
            tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts(report)), class_="card facts"),
        )
    )  # fmt: skip


def _badge(outcome: Outcome, words: str, *, is_none: bool = False) -> Markup:
    return tag("span", words, class_=f"badge {outcome.value}" + (" none" if is_none else ""))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _heading(check: CheckResults, outcome: Outcome) -> Markup:
    """Outcome, severity and name of a check, and what it demands."""
    return join(
        (
            tag(
                "div",
                _badge(outcome, WORDS[outcome]),
                tag("span", check.severity.value.upper(), class_="severity"),
                tag("h3", tag("code", check.check)),
                class_="head",
            ),
            tag("p", prose(check.requirement)) if check.requirement else "",
        )
    )


def _failed(check: CheckResults) -> Markup:
    results = check.with_outcome(Outcome.FAIL)
    clause = check.clause
    return tag(
        "article",
        _heading(check, Outcome.FAIL),
        tag("p", prose(check.reason), class_="soft small") if check.reason else "",
        tag(
            "blockquote",
            prose(clause.quotation),
            tag("cite", clause.source),
            tag("cite", "Where sources differ: ", prose(clause.differs)) if clause.differs else "",
        ),
        *(_result(result, is_open=place < _OPEN) for place, result in enumerate(results)),
        class_="card",
        id=f"failure-{anchor(check.check)}",
    )


def _result(result: ResultLine, *, is_open: bool) -> Markup:
    told_of = grouped(failures(result))
    more = len(told_of) - _FINDINGS
    content = (
        tag(
            "summary",
            "in ",
            tag("strong", _place(result)),
            tag("span", f" · {result.passed} of {result.applied} passed{_tries(result)}", class_="soft"),
        ),
        tag("p", f"Rests on {'; '.join(result.evidence)}", class_="soft small") if result.evidence else "",
        *(_finding(*one) for one in told_of[:_FINDINGS]),
        _more(more, "findings"),
        _block("Reproduce", cut(result.reproduce, COMMAND_LIMIT)) if result.reproduce else "",
    )
    return tag("details", *content, open="") if is_open else tag("details", *content)


def _more(count: int, what: str) -> Markup:
    return tag("div", f"… and {count} more {what} in report.jsonl", class_="soft") if count > 0 else Markup()


def _place(result: ResultLine) -> str:
    return result.scenario if result.api == "chat" else f"{result.scenario} ({result.api})"


def _tries(result: ResultLine) -> str:
    return f" in {result.tries} tries" if result.tries > 1 else ""


def _finding(finding: JsonObject, places: list[Place]) -> Markup:
    expected, actual, excerpt = (at(finding, name) for name in ("expected", "actual", "excerpt"))
    where = [tag("div", join((tag("code", part) for part in place if part), " at ")) for place in places if any(place)]
    if isinstance(expected, str) and isinstance(actual, str):
        wanted, found = contrast(expected, actual)
        evidence = tag("div", _side("Expected", wanted), _side("Actual", found), class_="sides")
    else:
        one_sided = (("Expected", expected), ("Actual", actual))
        evidence = join(_side(name, cut(value)) for name, value in one_sided if isinstance(value, str))
    return tag(
        "div",
        tag("p", pieces(cut(text(at(finding, "message")), _LONGEST_MESSAGE))),
        tag("div", *where[:_PLACES], _more(len(where) - _PLACES, "exchanges"), class_="soft small") if where else "",
        evidence,
        _block("Excerpt", cut(excerpt)) if isinstance(excerpt, str) else "",
        class_="finding",
    )


def _side(name: str, value: Pieces) -> Markup:
    return tag("div", _block(name, value), class_=name.lower())


def _block(name: str, value: Pieces) -> Markup:
    content = pieces(value) if value else tag("span", "(empty)", class_="cut")
    return join((tag("p", name, class_="label"), tag("pre", content, tabindex="0")))


def _with_reasons(check: CheckResults, outcome: Outcome) -> Markup:
    """A check's results that ended in an error, or in no answer: each reason once, with the scenarios it was given for."""
    by_reason: dict[str, list[str]] = {}
    for result in check.with_outcome(outcome):
        by_reason.setdefault(result.reason, []).append(_place(result))
    told_of = [
        tag("li", pieces(cut(reason, _LONGEST_MESSAGE)), tag("div", "in ", ", ".join(places), class_="soft"))
        for reason, places in by_reason.items()
    ]
    return tag("article", _heading(check, outcome), tag("ul", *told_of, class_="list"), class_="card")


def _family(family: str, checks: list[CheckResults]) -> Markup:
    head = tag("tr", *(tag("th", name, scope="col") for name in ("Check", "Severity", "Outcome", "Scenarios")))
    return tag(
        "div",
        tag("h3", _sentence(family.replace("_", " "))),
        tag("p", prose(family_about(family)), class_="soft small"),
        tag("table", tag("thead", head), tag("tbody", *(_row(check) for check in checks))),
        class_="card checks",
    )


def _row(check: CheckResults) -> Markup:
    name = tag("code", check.check)
    linked = tag("a", name, href=f"#failure-{anchor(check.check)}") if check.counts[Outcome.FAIL] else name
    return tag(
        "tr",
        tag("td", linked, tag("div", prose(check.requirement), class_="small")),
        tag("td", tag("span", check.severity.value.upper(), class_="severity")),
        tag("td", _badge(check.outcome, WORDS[check.outcome])),
        tag("td", _scenarios(check), class_="small"),
    )


def _scenarios(check: CheckResults) -> Markup:
    applied = [result for result in check.results if result.outcome is not Outcome.NOT_APPLICABLE]
    if not applied:
        return tag("span", pieces(cut(check.tally(), _LONGEST_MESSAGE)), class_="soft")
    listed = [
        tag("li", _place(result), ": ", WORDS[result.outcome], tag("span", f" ({result.passed} of {result.applied})", class_="soft"))
        for result in applied
    ]  # fmt: skip
    return tag("details", tag("summary", check.tally()), tag("ul", *listed, class_="list"))


def _variants(report: Report) -> Iterator[Markup]:
    counted = sorted(variants(report).items())
    if not counted:
        return
    lines = [
        tag("tr", tag("td", tag("code", check)), tag("td", pieces(cut(message, _LONGEST_MESSAGE))), tag("td", str(times), class_="number"))
        for (check, message), times in counted
    ]  # fmt: skip
    head = tag("tr", tag("th", "Check"), tag("th", "Difference"), tag("th", "Times", class_="number"))
    about = tag("p", "Legitimate differences: reported and counted, never a failure.", class_="soft small")
    yield tag(
        "div", about, tag("div", tag("table", tag("thead", head), tag("tbody", *lines)), class_="scroll"), class_="card"
    )


def _unapplied(checks: tuple[CheckResults, ...]) -> Iterator[Markup]:
    reasons = never_applied(checks)
    if not reasons:
        return
    entries = [_with_reason(reason, ids) for reason, ids in reasons.items()]
    about = tag("p", "These checks applied to nothing. They are neither passes nor failures.", class_="soft small")
    yield tag("div", about, *entries, class_="card")


def _with_reason(reason: str, ids: list[str]) -> Markup:
    listed = tag("ul", *(tag("li", tag("code", check)) for check in ids), class_="list")
    return tag("div", tag("p", pieces(cut(reason, _LONGEST_MESSAGE))), listed, class_="finding")


def _latency(report: Report) -> Iterator[Markup]:
    if not report.latency:
        return
    names = ("Load", "n", "Median", "Min", "Max", "p95", "p99", "Range and median")
    head = tag("tr", *(tag("th", name, scope="col", class_="number" if name in names[1:7] else "") for name in names))
    measured = figures(report.latency)
    bodies = [
        tag(
            "tbody",
            tag("tr", tag("th", NAMES.get(metric, metric), colspan="8", scope="rowgroup")),
            *map(_figure, of, repeat(max(figure.max for figure in of))),
        )
        for metric, of in ((metric, list(of)) for metric, of in groupby(measured, key=lambda figure: figure.metric))
    ]
    about = tag(
        "p",
        "From a probe of its own after the checks. p95 stands from 60 values on, p99 from 300.",
        class_="soft small",
    )
    table = tag("div", tag("table", tag("thead", head), *bodies, class_="latency"), class_="scroll", tabindex="0")
    notes = tag("ul", *(_load(load) for load in report.latency), class_="list")
    yield tag("div", about, table if bodies else "", notes, class_="card")


def _figure(figure: Figure, scale: float) -> Markup:
    """A metric under one load; its range is drawn to `scale`, the metric's largest value under any load."""
    numbers = (figure.median, figure.min, figure.max, figure.p95, figure.p99)
    return tag(
        "tr",
        tag("td", figure.load),
        tag("td", str(figure.n), class_="number"),
        *(tag("td", "" if value is None else told(value, figure.unit), class_="number") for value in numbers),
        tag("td", _range(figure, scale) if scale > 0 else "", class_="range"),
    )


def _range(figure: Figure, scale: float) -> Markup:
    left, right, middle = (100 * max(value, 0) / scale for value in (figure.min, figure.max, figure.median))
    bar = tag("i", style=f"left:{left:.2f}%;width:{max(right - left, 0):.2f}%")
    return tag("div", bar, tag("b", style=f"left:{middle:.2f}%"), aria_hidden="true")


def _load(load: JsonObject) -> Markup:
    counted = f"{number(at(load, 'requests'))} requests, {number(at(load, 'failed'))} failed"
    failed = [f"{number(count)} times {reason}" for reason, count in members(at(load, "failures")).items()]
    notes = [text(note) for note in items(at(load, "notes"))]
    return tag("li", tag("strong", text(at(load, "load"))), ": ", join((counted, *failed, *notes), "; "))


def _legend() -> Markup:
    entries = [tag("li", _badge(outcome, WORDS[outcome]), " ", _MEANING[outcome]) for outcome in ORDER]
    severities = (
        "MUST: the Harmony guide, the API reference or HTTP states it, and a client or the model is harmed when it is broken. "
        "SHOULD: the sources disagree about it, or only imply it."
    )
    return join((tag("h2", "How to read this"), tag("ul", *entries, class_="list"), tag("p", severities)))

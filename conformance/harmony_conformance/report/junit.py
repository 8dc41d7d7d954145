"""A report as JUnit XML: a suite for each family, a case for each check and scenario.

A failure is one that counts; any other finding is told in `system-out` and in the property `outcome`. What did not apply, and what was inconclusive, is
skipped with its reason. The document is valid XML 1.0 whatever a server sent: characters that XML has no place for are spelled out.

It is written as text, since a run of all APIs has 40,000 cases and ElementTree takes 4 s to write them; that it is what ElementTree would write is tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from xml.sax.saxutils import escape

from harmony_conformance.json_value import JsonObject, at, text
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.model import Report, ResultLine
from harmony_conformance.report.summary import (
    MUST_FAILS,
    CheckResults,
    by_check,
    by_family,
    case_name,
    facts,
    failures,
    sides,
)
from harmony_conformance.report.text_excerpt import COMMAND_LIMIT, cut, line, plain

_FINDINGS = 20
_SKIPPED = (Outcome.NOT_APPLICABLE, Outcome.INCONCLUSIVE)


def junit(report: Report, fails_on: frozenset[Severity] = MUST_FAILS) -> str:
    """The document. Failures of the severities in `fails_on` are failures, others are told beside a passed case."""
    total = Counter[str]()
    suites: list[str] = []
    for family, checks in by_family(by_check(report)).items():
        written, counts = _suite(family, report, checks, fails_on)
        suites.append(written)
        total += counts
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_element("testsuites", {"name": "harmony-conformance", **_counted(total)}, suites)}\n'


def _element(name: str, attributes: dict[str, str], children: Iterable[str] = (), depth: int = 0) -> str:
    """An element in which elements stand, each on lines of its own and further to the right; or none."""
    inside = "".join(f"\n{child}" for child in children)
    begin = "  " * depth + "<" + name + "".join(f' {word}="{_quoted(value)}"' for word, value in attributes.items())
    return f"{begin}>{inside}\n{'  ' * depth}</{name}>" if inside else f"{begin} />"


def _told_in(name: str, attributes: dict[str, str], told: str) -> str:
    """An element of a case in which a text stands."""
    return _element(name, attributes, depth=3).removesuffix(" />") + f">{escape(told)}</{name}>"


@lru_cache(maxsize=4096)
def _quoted(value: str) -> str:
    """The text as the value of an attribute: the same few thousand times."""
    return escape(line(value), {'"': "&quot;"})


def _counted(counts: Counter[str]) -> dict[str, str]:
    return {name: str(counts[name]) for name in ("tests", "failures", "errors", "skipped")}


def _suite(
    family: str, report: Report, checks: list[CheckResults], fails_on: frozenset[Severity]
) -> tuple[str, Counter[str]]:
    """A suite, and how many cases of it ended how."""
    counts = Counter[str]()
    cases: list[str] = []
    for check in checks:
        for result in check.results:
            counted_as, inside = _ending(check, result, fails_on)
            counts.update(("tests", counted_as))
            properties = _result_properties(result.severity.value, result.outcome.value, result.spec, result.evidence)
            named = {"classname": check.family, "name": case_name(result)}
            cases.append(_element("testcase", named, (properties, *inside), depth=2))
    started = text(at(report.header, "started"))
    about = {"name": family, **({"timestamp": started} if started else {}), **_counted(counts)}
    return _element("testsuite", about, (_properties(dict(facts(report)), depth=2), *cases), depth=1), counts


def _ending(check: CheckResults, result: ResultLine, fails_on: frozenset[Severity]) -> tuple[str, tuple[str, ...]]:
    """What a case counts as, and what says so in it."""
    if result.outcome in _SKIPPED:
        word = "inconclusive: " if result.outcome is Outcome.INCONCLUSIVE else ""
        return "skipped", (_element("skipped", {"message": word + result.reason}, depth=3),)
    if result.outcome is Outcome.ERROR:
        return "errors", (_told_in("error", {"message": result.reason, "type": "error"}, _told(check, result)),)
    if result.outcome is Outcome.FAIL and result.severity in fails_on:
        named = {"message": _message(result), "type": result.severity.value}
        return "failures", (_told_in("failure", named, _told(check, result)),)
    return "passed", (_told_in("system-out", {}, _told(check, result)),) if result.findings else ()


@lru_cache(maxsize=4096)
def _result_properties(severity: str, outcome: str, spec: str, evidence: tuple[str, ...]) -> str:
    told = {"severity": severity, "outcome": outcome, "spec": spec, "evidence": "; ".join(evidence)}
    return _properties(told, depth=3)


def _properties(named: dict[str, str], depth: int) -> str:
    told = (_element("property", {"name": name, "value": value}, depth=depth + 1) for name, value in named.items())
    return _element("properties", {}, told, depth)


def _message(result: ResultLine) -> str:
    told = failures(result)
    first = line(text(at(told[0], "message"))) if told else "failed"
    return f"{first} (and {len(told) - 1} more)" if len(told) > 1 else first


def _told(check: CheckResults, result: ResultLine) -> str:
    return "\n".join(_lines(check, result))


def _lines(check: CheckResults, result: ResultLine) -> Iterator[str]:
    if check.requirement:
        yield f"{result.severity.value.upper()}: {check.requirement}"
    yield f"{result.passed} of {result.applied} passed"
    if result.reason:
        yield plain(cut(result.reason))
    for finding in result.findings[:_FINDINGS]:
        yield from _finding(finding)
    if len(result.findings) > _FINDINGS:
        yield f"… and {len(result.findings) - _FINDINGS} more in report.jsonl"
    yield f"says: {line(check.clause.quotation)} ({line(check.clause.source)})"
    if result.reproduce:
        yield f"reproduce: {plain(cut(result.reproduce, COMMAND_LIMIT))}"


def _finding(finding: JsonObject) -> Iterator[str]:
    yield f"- {line(text(at(finding, 'message')))}"
    where = " at ".join(filter(None, (text(at(finding, "exchange")), text(at(finding, "at")))))
    if where:
        yield f"  in {line(where)}"
    both = sides(finding)
    width = len("expected: ") if len(both) > 1 else 0
    yield from (f"  {f'{name}: '.ljust(width)}{plain(value)}" for name, value in both)
    if isinstance(excerpt := at(finding, "excerpt"), str):
        yield f"  excerpt:  {plain(cut(excerpt))}"

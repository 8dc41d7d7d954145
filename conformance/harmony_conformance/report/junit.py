"""A report as JUnit XML: a suite for each family, a case for each check and scenario.

A failure is one that counts; any other finding is told in `system-out` and in the property `outcome`. What did not apply, and what was inconclusive, is
skipped with its reason. The document is valid XML 1.0 whatever a server sent: characters that XML has no place for are spelled out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from harmony_conformance.check import Outcome, Severity
from harmony_conformance.json_value import JsonObject, at, text
from harmony_conformance.report.excerpt import COMMAND_LIMIT, contrast, cut, line, plain
from harmony_conformance.report.model import Report, ResultLine
from harmony_conformance.report.overview import (
    MUST_FAILS,
    CheckResults,
    by_check,
    by_family,
    case_name,
    facts,
    failures,
)

_FINDINGS = 20
_SKIPPED = (Outcome.NOT_APPLICABLE, Outcome.INCONCLUSIVE)


def junit(report: Report, fails_on: frozenset[Severity] = MUST_FAILS) -> str:
    """The document. Failures of the severities in `fails_on` are failures, others are told beside a passed case."""
    root = Element("testsuites", name="harmony-conformance")
    total = Counter[str]()
    for family, checks in by_family(by_check(report)).items():
        suite = SubElement(root, "testsuite", name=line(family))
        counts = _suite(suite, report, checks, fails_on)
        _count(suite, counts)
        total += counts
    _count(root, total)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _count(element: Element, counts: Counter[str]) -> None:
    for name in ("tests", "failures", "errors", "skipped"):
        element.set(name, str(counts[name]))


def _suite(suite: Element, report: Report, checks: list[CheckResults], fails_on: frozenset[Severity]) -> Counter[str]:
    if started := text(at(report.header, "started")):
        suite.set("timestamp", line(started))
    _properties(suite, dict(facts(report)))
    counts = Counter[str]()
    for check in checks:
        for result in check.results:
            counts["tests"] += 1
            counts[_case(suite, check, result, fails_on)] += 1
    return counts


def _case(suite: Element, check: CheckResults, result: ResultLine, fails_on: frozenset[Severity]) -> str:
    """Add a case; what it counts as."""
    case = SubElement(suite, "testcase", classname=line(check.family), name=line(case_name(result)))
    _properties(
        case,
        {
            "severity": result.severity.value,
            "outcome": result.outcome.value,
            "spec": result.spec,
            "evidence": "; ".join(result.evidence),
        },
    )
    if result.outcome in _SKIPPED:
        word = "inconclusive: " if result.outcome is Outcome.INCONCLUSIVE else ""
        SubElement(case, "skipped", message=line(word + result.reason))
        return "skipped"
    if result.outcome is Outcome.ERROR:
        SubElement(case, "error", message=line(result.reason), type="error").text = _told(check, result)
        return "errors"
    if result.outcome is Outcome.FAIL and result.severity in fails_on:
        SubElement(case, "failure", message=_message(result), type=result.severity.value).text = _told(check, result)
        return "failures"
    if result.findings:
        SubElement(case, "system-out").text = _told(check, result)
    return "passed"


def _properties(element: Element, named: dict[str, str]) -> None:
    properties = SubElement(element, "properties")
    for name, value in named.items():
        SubElement(properties, "property", name=name, value=line(value))


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
    expected, actual, excerpt = (at(finding, name) for name in ("expected", "actual", "excerpt"))
    if isinstance(expected, str) and isinstance(actual, str):
        wanted, found = contrast(expected, actual)
        yield f"  expected: {plain(wanted)}"
        yield f"  actual:   {plain(found)}"
    else:
        yield from (
            f"  {name}: {plain(cut(value))}"
            for name, value in (("expected", expected), ("actual", actual))
            if isinstance(value, str)
        )
    if isinstance(excerpt, str):
        yield f"  excerpt:  {plain(cut(excerpt))}"

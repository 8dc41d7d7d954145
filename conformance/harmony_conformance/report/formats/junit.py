"""JUnit XML report: a suite for each family, a case for each check and scenario.

Failures of a severity in `fails_on` become `failure`. Other failures are `skipped`, as pytest writes an `xfail`, with `system-out` and the property `outcome`.
A stale entry of the baseline and a missing feature fail a case of the suite `gate`.
Inconclusive results are `skipped`, with their reason. So are those that did not apply, if they are asked for.
Characters that XML 1.0 does not allow are escaped.

The XML is written as text: a run of all APIs has 40,000 cases, for which ElementTree needs 4 s. A test compares both outputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from xml.sax.saxutils import escape

from harmony_conformance.json_value import JsonObject, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.model import Report, ResultLine
from harmony_conformance.report.summary import (
    DEFAULT_FAILS_ON,
    CheckResults,
    by_check,
    by_family,
    case_name,
    facts,
    failures,
    gate_failures,
    own_clause,
    sides,
)
from harmony_conformance.report.text_excerpt import COMMAND_LIMIT, cut, line, plain

_FINDINGS = 20
_SKIPPED = {Outcome.NOT_APPLICABLE: "", Outcome.INCONCLUSIVE: "inconclusive: "}


def junit(report: Report, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON, *, with_unapplied: bool = False) -> str:
    """Return the document. Failures of other severities than `fails_on`, and those that a baseline expects, are skipped cases with `system-out`."""
    if not with_unapplied:
        applied = (result for result in report.results if result.outcome is not Outcome.NOT_APPLICABLE)
        report = replace(report, results=tuple(applied))
    total = Counter[str]()
    suites: list[str] = []
    for family, checks in by_family(by_check(report)).items():
        suite, counts = _suite(family, report, checks, fails_on)
        suites.append(suite)
        total += counts
    if gates := gate_failures(report):
        suites.append(_gate_suite(gates))
        total.update(tests=len(gates), failures=len(gates))
    root = _element("testsuites", {"name": "harmony-conformance", **_count_attributes(total)}, suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{root}\n'


def _element(name: str, attributes: dict[str, str], children: Iterable[str] = (), depth: int = 0) -> str:
    """Return an element with indented child elements, or an empty one."""
    inside = "".join(f"\n{child}" for child in children)
    begin = "  " * depth + "<" + name + "".join(f' {word}="{_quoted(value)}"' for word, value in attributes.items())
    return f"{begin}>{inside}\n{'  ' * depth}</{name}>" if inside else f"{begin} />"


def _text_element(name: str, attributes: dict[str, str], content: str) -> str:
    """Return a child element of a case with text content."""
    return _element(name, attributes, depth=3).removesuffix(" />") + f">{escape(content)}</{name}>"


@lru_cache(maxsize=4096)
def _quoted(value: str) -> str:
    """Return the text as an attribute value. Cached, since a few thousand values repeat."""
    return escape(line(value), {'"': "&quot;"})


def _count_attributes(counts: Counter[str]) -> dict[str, str]:
    return {name: str(counts[name]) for name in ("tests", "failures", "errors", "skipped")}


def _suite(
    family: str, report: Report, checks: list[CheckResults], fails_on: frozenset[Severity]
) -> tuple[str, Counter[str]]:
    """Return a suite, and the counts of its cases by kind."""
    counts = Counter[str]()
    cases: list[str] = []
    for check in checks:
        for result in check.results:
            kind, inside = _case_content(check, result, fails_on, is_expected=result.name in report.expected)
            counts.update(("tests", kind))
            properties = _result_properties(result.severity.value, result.outcome.value, result.spec, result.evidence)
            attributes = {"classname": check.family, "name": case_name(result)}
            cases.append(_element("testcase", attributes, (properties, *inside), depth=2))
    started = text(value_at(report.header, "started"))
    attributes = {"name": family, **({"timestamp": started} if started else {}), **_count_attributes(counts)}
    return _element("testsuite", attributes, (_properties(dict(facts(report)), depth=2), *cases), depth=1), counts


def _gate_suite(gates: Sequence[tuple[str, str]]) -> str:
    """Return a suite with a failed case for each missing feature and each stale entry of the baseline: they fail the run, too."""
    cases = [
        _element(
            "testcase",
            {"classname": "gate", "name": f"gate.{name}"},
            (_element("failure", {"message": sentence, "type": "gate"}, depth=3),),
            depth=2,
        )
        for name, sentence in gates
    ]
    counts = Counter(tests=len(gates), failures=len(gates))
    return _element("testsuite", {"name": "gate", **_count_attributes(counts)}, cases, depth=1)


def _case_content(
    check: CheckResults, result: ResultLine, fails_on: frozenset[Severity], *, is_expected: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the kind of a case for the counts, and its child elements apart from the properties."""
    if (prefix := _SKIPPED.get(result.outcome)) is not None:
        return "skipped", (_element("skipped", {"message": prefix + result.reason}, depth=3),)
    if result.outcome is Outcome.ERROR:
        return "errors", (_text_element("error", {"message": result.reason, "type": "error"}, _details(check, result)),)
    if result.outcome is Outcome.FAIL and result.severity in fails_on and not is_expected:
        attributes = {"message": _message(result), "type": result.severity.value}
        return "failures", (_text_element("failure", attributes, _details(check, result)),)
    details = (_text_element("system-out", {}, _details(check, result)),) if result.findings else ()
    if result.outcome is Outcome.FAIL:
        why = "expected by the baseline" if is_expected else f"{result.severity.value}, not counted"
        return "skipped", (_element("skipped", {"message": f"{why}: {_message(result)}"}, depth=3), *details)
    return "passed", details


@lru_cache(maxsize=4096)
def _result_properties(severity: str, outcome: str, spec: str, evidence: tuple[str, ...]) -> str:
    values = {"severity": severity, "outcome": outcome, "spec": spec, "evidence": "; ".join(evidence)}
    return _properties(values, depth=3)


def _properties(values: dict[str, str], depth: int) -> str:
    children = (_element("property", {"name": name, "value": value}, depth=depth + 1) for name, value in values.items())
    return _element("properties", {}, children, depth)


def _message(result: ResultLine) -> str:
    failed = failures(result)
    first = line(text(value_at(failed[0], "message"))) if failed else "failed"
    return f"{first} (and {len(failed) - 1} more)" if len(failed) > 1 else first


def _details(check: CheckResults, result: ResultLine) -> str:
    return "\n".join(_detail_lines(check, result))


def _detail_lines(check: CheckResults, result: ResultLine) -> Iterator[str]:
    if check.requirement:
        yield f"{result.severity.value.upper()}: {check.requirement}"
    yield f"{result.passed} of {result.applied} passed"
    if result.reason:
        yield plain(cut(result.reason))
    for finding in result.findings[:_FINDINGS]:
        yield from _finding(finding)
        if text(value_at(finding, "verdict")) == "fail" and (clause := own_clause(finding, result, check.clause)):
            yield f"  spec: {line(clause.quotation)} ({line(clause.source)})"
    if len(result.findings) > _FINDINGS:
        yield f"… and {len(result.findings) - _FINDINGS} more in report.jsonl"
    yield f"spec: {line(check.clause.quotation)} ({line(check.clause.source)})"
    if result.reproduce:
        yield f"reproduce: {plain(cut(result.reproduce, COMMAND_LIMIT))}"


def _finding(finding: JsonObject) -> Iterator[str]:
    yield f"- {line(text(value_at(finding, 'message')))}"
    where = " at ".join(filter(None, (text(value_at(finding, "exchange")), text(value_at(finding, "at")))))
    if where:
        yield f"  in {line(where)}"
    both = sides(finding)
    width = len("expected: ") if len(both) > 1 else 0
    yield from (f"  {f'{name}: '.ljust(width)}{plain(value)}" for name, value in both)
    if isinstance(excerpt := value_at(finding, "excerpt"), str):
        yield f"  excerpt:  {plain(cut(excerpt))}"

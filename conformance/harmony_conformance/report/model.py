"""A report: header, results, latency, footer; one JSON object a line. All renderers read this form, so a report is drawn again at any time.

No clock and no id of a server stands in a result, so two runs of the same server and seed differ in the header's `started` and in nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from harmony_conformance.json_value import (
    InvalidJsonError,
    Json,
    JsonObject,
    at,
    dumps,
    items,
    loads,
    members,
    number,
    text,
)
from harmony_conformance.judge.check import Finding, Outcome, Severity
from harmony_conformance.judge.judge import Result

ORDER = (Outcome.PASS, Outcome.FAIL, Outcome.VARIANT, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE, Outcome.ERROR)
WORDS = {
    Outcome.PASS: "passed",
    Outcome.FAIL: "failed",
    Outcome.VARIANT: "variant",
    Outcome.INCONCLUSIVE: "inconclusive",
    Outcome.NOT_APPLICABLE: "not applicable",
    Outcome.ERROR: "error",
}


class InvalidReportError(ValueError):
    """A file that is no report, or a part of one; says what is missing."""


@dataclass(frozen=True, kw_only=True)
class ResultLine:
    """A result as it stands in a report: the judge's, and how to reproduce it."""

    check: str
    severity: Severity
    outcome: Outcome
    scenario: str
    api: str
    spec: str
    quotation: str
    evidence: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()
    passed: int = 0
    applied: int = 0
    tries: int = 1
    findings: tuple[JsonObject, ...] = ()
    reproduce: str = ""
    reason: str = ""

    def line(self) -> JsonObject:
        """The JSON form."""
        return {
            "kind": "result",
            "check": self.check,
            "severity": self.severity.value,
            "outcome": self.outcome.value,
            "scenario": self.scenario,
            "api": self.api,
            "evidence": list(self.evidence),
            "exchanges": list(self.exchanges),
            "passed": self.passed,
            "applied": self.applied,
            "tries": self.tries,
            "findings": list(self.findings),
            "reproduce": self.reproduce,
            "spec": self.spec,
            "quotation": self.quotation,
            "reason": self.reason,
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """Header and footer as JSON objects, results sorted by check, scenario and API."""

    header: JsonObject
    results: tuple[ResultLine, ...]
    latency: tuple[JsonObject, ...] = ()
    counts: Counter[Outcome] = field(default_factory=Counter[Outcome])

    def lines(self) -> Iterator[str]:
        """The file's lines."""
        yield dumps({"kind": "header", **self.header})
        yield from (dumps(result.line()) for result in self.results)
        yield from (dumps({"kind": "latency", **measured}) for measured in self.latency)
        counts: JsonObject = {outcome.value: self.counts[outcome] for outcome in ORDER}
        yield dumps({"kind": "footer", "counts": counts, "complete": True})

    def summary(self) -> str:
        """The last line a user reads."""
        return ", ".join(f"{self.counts[outcome]} {WORDS[outcome]}" for outcome in ORDER)


def make_report(header: JsonObject, results: Iterable[ResultLine], latency: Iterable[JsonObject] = ()) -> Report:
    """A report of results in any order."""
    ordered = tuple(sorted(results, key=lambda result: (result.check, result.scenario, result.api)))
    return Report(
        header=header, results=ordered, latency=tuple(latency), counts=Counter(result.outcome for result in ordered)
    )


def result_line(result: Result, reproduce: str) -> ResultLine:
    """The report's form of a judge's result."""
    return ResultLine(
        check=result.check,
        severity=result.severity,
        outcome=result.outcome,
        scenario=result.scenario,
        api=result.api,
        spec=result.clause.id,
        quotation=result.clause.quotation,
        evidence=result.evidence,
        exchanges=result.exchanges,
        passed=result.passed,
        applied=result.applied,
        tries=result.tries,
        findings=tuple(finding_json(finding) for finding in result.findings),
        reproduce=reproduce,
        reason=result.reason,
    )


def masked(report: Report, mask: Callable[[str], str]) -> Report:
    """The report with `mask` applied to all that it says."""
    lines = "\n".join(report.lines())
    return read_report(shown) if (shown := mask(lines)) != lines else report


def finding_json(finding: Finding) -> JsonObject:
    """A finding's JSON form, without the members that are empty."""
    told: JsonObject = {
        "verdict": finding.verdict.value,
        "message": finding.message,
        "exchange": finding.exchange,
        "at": finding.at,
    }
    for name, value in (("expected", finding.expected), ("actual", finding.actual), ("excerpt", finding.excerpt)):
        if value is not None:
            told[name] = value
    return told


def read_report(document: str) -> Report:
    """A report from its lines.

    Raises:
        BadReport: a line is no JSON, or header or footer is missing (a run that was cut is no report).
    """
    header: JsonObject | None = None
    complete = False
    results: list[ResultLine] = []
    latency: list[JsonObject] = []
    for position, line in enumerate(document.removesuffix("\n").split("\n"), start=1):
        try:
            value = loads(line)
        except InvalidJsonError as problem:
            raise InvalidReportError(f"line {position} is no JSON: {problem}") from None
        match at(value, "kind"):
            case "header":
                header = {name: member for name, member in members(value).items() if name != "kind"}
            case "result":
                results.append(_read_result(value))
            case "latency":
                latency.append({name: member for name, member in members(value).items() if name != "kind"})
            case "footer":
                complete = at(value, "complete") is True
            case other:
                raise InvalidReportError(f"line {position} is of unknown kind {other!r}")
    if header is None:
        raise InvalidReportError("no header line: this is no report.jsonl")
    if not complete:
        raise InvalidReportError("no footer line: the run was cut off, its results are not all there")
    return make_report(header, results, latency)


def _read_result(value: Json) -> ResultLine:
    return ResultLine(
        check=text(at(value, "check")),
        severity=Severity(text(at(value, "severity"))),
        outcome=Outcome(text(at(value, "outcome"))),
        scenario=text(at(value, "scenario")),
        api=text(at(value, "api")),
        spec=text(at(value, "spec")),
        quotation=text(at(value, "quotation")),
        evidence=tuple(text(item) for item in items(at(value, "evidence"))),
        exchanges=tuple(text(item) for item in items(at(value, "exchanges"))),
        passed=number(at(value, "passed")) or 0,
        applied=number(at(value, "applied")) or 0,
        tries=number(at(value, "tries")) or 1,
        findings=tuple(members(item) for item in items(at(value, "findings"))),
        reproduce=text(at(value, "reproduce")),
        reason=text(at(value, "reason")),
    )

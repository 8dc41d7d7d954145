"""Model of a report and its file `report.jsonl`: header, causes, results, latency, footer; one JSON object per line.

All renderers read this model, so a report can be rendered again from its file. Results have no times and no server ids.
So two runs of the same server and seed differ only in the header's `started`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import TypeVar

from harmony_conformance.json_value import (
    InvalidJsonError,
    Json,
    JsonObject,
    dumps,
    integer,
    items,
    loads,
    members,
    text,
    value_at,
)
from harmony_conformance.judge.check import Finding, Outcome, Severity, Verdict
from harmony_conformance.judge.clause import Clause
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.judge.judge import Result
from harmony_conformance.judge.result_name import result_name
from harmony_conformance.judge.rulings import RULINGS

ORDER = (Outcome.PASS, Outcome.FAIL, Outcome.VARIANT, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE, Outcome.ERROR)
WORDS = {
    Outcome.PASS: "passed",
    Outcome.FAIL: "failed",
    Outcome.VARIANT: "variant",
    Outcome.INCONCLUSIVE: "inconclusive",
    Outcome.NOT_APPLICABLE: "not applicable",
    Outcome.ERROR: "error",
}


def count_all(counts: Mapping[Outcome, int]) -> str:
    """Return the count of every outcome in words, as printed on the last line of a report."""
    return ", ".join(f"{counts[outcome]} {WORDS[outcome]}" for outcome in ORDER)


def count_applied(counts: Mapping[Outcome, int]) -> str:
    """Return the counts above 0 in words, without "not applicable"."""
    shown = (outcome for outcome in ORDER if counts.get(outcome) and outcome is not Outcome.NOT_APPLICABLE)
    return ", ".join(f"{counts[outcome]} {WORDS[outcome]}" for outcome in shown)


class InvalidReportError(ValueError):
    """An invalid or incomplete report. The message names the line or the missing part."""


@dataclass(frozen=True, kw_only=True)
class ResultLine:
    """Result of a check on a scenario, with the command that reproduces it."""

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
    script: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """The unique name in the run."""
        return result_name(self.check, self.scenario, self.api)

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
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
            **({"script": self.script} if self.script else {}),
            "spec": self.spec,
            "quotation": self.quotation,
            "reason": self.reason,
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """Header, causes and footer as JSON objects, results sorted by check, scenario and API."""

    header: JsonObject
    results: tuple[ResultLine, ...]
    latency: tuple[JsonObject, ...] = ()
    counts: Counter[Outcome] = field(default_factory=Counter[Outcome])
    causes: tuple[JsonObject, ...] = ()

    @cached_property
    def expected(self) -> frozenset[str]:
        """The names of the failures that the baseline of the run expects."""
        return frozenset(map(text, items(value_at(self.header, "baseline", "expected"))))

    @cached_property
    def causes_of(self) -> Mapping[str, tuple[str, ...]]:
        """The ids of the causes of each failed result, by its name."""
        causes: dict[str, tuple[str, ...]] = {}
        for cause in self.causes:
            for name in map(text, items(value_at(cause, "failed"))):
                causes[name] = (*causes.get(name, ()), text(value_at(cause, "id")))
        return causes

    def lines(self) -> Iterator[str]:
        """Yield the lines of `report.jsonl`."""
        yield dumps({"kind": "header", **self.header})
        yield from (dumps({"kind": "cause", **cause}) for cause in self.causes)
        yield from (dumps(result.to_json()) for result in self.results)
        yield from (dumps({"kind": "latency", **measured}) for measured in self.latency)
        counts: JsonObject = {outcome.value: self.counts[outcome] for outcome in ORDER}
        yield dumps({"kind": "footer", "counts": counts, "complete": True})

    def summary(self) -> str:
        """Return the last line of the printed report."""
        return count_all(self.counts)


def make_report(
    header: JsonObject,
    results: Iterable[ResultLine],
    latency: Iterable[JsonObject] = (),
    causes: Iterable[JsonObject] = (),
) -> Report:
    """Return the report of results in any order."""
    ordered = tuple(sorted(results, key=attrgetter("check", "scenario", "api")))
    counts = Counter(result.outcome for result in ordered)
    return Report(header=header, results=ordered, latency=tuple(latency), counts=counts, causes=tuple(causes))


def result_line(result: Result, reproduce: str, script: str = "") -> ResultLine:
    """Return the report's form of a judge's result. `script`: the scripted output of the model in the exchange to reproduce."""
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
        findings=tuple(
            {**finding_json(one), **_ruling_json(one), **_clause_json(one, result.clause)} for one in result.findings
        ),
        reproduce=reproduce,
        script=script,
        reason=result.reason,
    )


def mask_report(report: Report, mask: Callable[[str], str]) -> Report:
    """Return the report with `mask` applied to its whole JSON text."""
    lines = "\n".join(report.lines())
    return read_report(masked_lines) if (masked_lines := mask(lines)) != lines else report


def finding_json(finding: Finding) -> JsonObject:
    """Return the JSON form of a finding, without optional members that are None."""
    optional = {"expected": finding.expected, "actual": finding.actual, "excerpt": finding.excerpt}
    return {
        "verdict": finding.verdict.value,
        "message": finding.message,
        "exchange": finding.exchange,
        "at": finding.location,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _ruling_json(finding: Finding) -> JsonObject:
    """Return the ruling of a finding and the severity that it settles, nothing without a ruling."""
    ruling = RULINGS.get(finding.ruling)
    return {"severity": ruling.severity.value, "ruling": ruling.subject} if ruling and ruling.severity else {}


def _clause_json(finding: Finding, clause: Clause) -> JsonObject:
    """Return the clause of a failure if it is another one than that of its result."""
    own = CLAUSES.get(finding.clause, clause) if finding.verdict is Verdict.FAIL else clause
    return {"spec": own.id, "quotation": own.quotation} if own.id != clause.id else {}


def read_report(document: str) -> Report:
    """Read the lines of `report.jsonl`.

    Raises:
        InvalidReportError: A line is not JSON, of unknown kind or damaged, there are two headers, or header or footer is missing,
            as after an interrupted run.
    """
    header: JsonObject | None = None
    complete = False
    results: list[ResultLine] = []
    latency: list[JsonObject] = []
    causes: list[JsonObject] = []
    for position, line in enumerate(document.removesuffix("\n").split("\n"), start=1):
        try:
            value = loads(line)
        except InvalidJsonError as problem:
            raise InvalidReportError(f"line {position}: invalid JSON: {problem}") from None
        match value_at(value, "kind"):
            case "header" if header is not None:
                raise InvalidReportError(
                    f"line {position}: invalid report.jsonl: expected one header line, got a second"
                )
            case "header":
                header = _without_kind(value)
            case "cause":
                causes.append(_without_kind(value))
                _member_of(_SEVERITIES, value, "severity", position)
            case "result":
                results.append(_read_result(value, position))
            case "latency":
                latency.append(_without_kind(value))
            case "rate":  # of an audit, see harmony_conformance.audit.results
                pass
            case "footer":
                complete = value_at(value, "complete") is True
            case other:
                raise InvalidReportError(
                    f"line {position}: invalid kind: expected header, cause, result, latency or footer, got {other!r}"
                )
    if header is None:
        raise InvalidReportError("invalid report.jsonl: expected a header line, got none")
    if not complete:
        raise InvalidReportError("incomplete report.jsonl: expected a footer line, got none (interrupted run)")
    return make_report(header, results, latency, causes)


def _without_kind(value: Json) -> JsonObject:
    return {name: member for name, member in members(value).items() if name != "kind"}


_SEVERITIES = {severity.value: severity for severity in Severity}
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_Member = TypeVar("_Member", Severity, Outcome)


def _member_of(known: Mapping[str, _Member], value: Json, name: str, position: int) -> _Member:
    """Return the member of an enumeration that a line names."""
    if (found := known.get(text(value_at(value, name)))) is None:
        got = value_at(value, name)
        raise InvalidReportError(
            f"line {position}: invalid {name}: expected one of {', '.join(known)}, got {dumps(got)}"
        )
    return found


def _read_result(value: Json, position: int) -> ResultLine:
    read = members(value).get
    return ResultLine(
        check=text(read("check")),
        severity=_member_of(_SEVERITIES, value, "severity", position),
        outcome=_member_of(_OUTCOMES, value, "outcome", position),
        scenario=text(read("scenario")),
        api=text(read("api")),
        spec=text(read("spec")),
        quotation=text(read("quotation")),
        evidence=tuple(map(text, items(read("evidence")))),
        exchanges=tuple(map(text, items(read("exchanges")))),
        passed=integer(read("passed")) or 0,
        applied=integer(read("applied")) or 0,
        tries=integer(read("tries")) or 1,
        findings=tuple(map(members, items(read("findings")))),
        reproduce=text(read("reproduce")),
        script=text(read("script")),
        reason=text(read("reason")),
    )


def rate_limited(results: Iterable[Result | ResultLine]) -> int:
    """Return the number of results that a rate limit left open."""
    return sum(one.outcome is Outcome.INCONCLUSIVE and "rate limited" in one.reason for one in results)

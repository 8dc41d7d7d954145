"""A check: one requirement, one pure function, one sentence.

    @check(MUST, spec="harmony#function-calling", when=called_a_tool)
    def name_is_declared(x: Exchange) -> Iterator[Finding]:
        \"\"\"A called function is one that the request declared.\"\"\"

The id consists of module and function. `when` names the conditions under which the check applies; there is no other way to skip.
A check that yields nothing has passed. Each `Finding` is a failure, or a variant if the difference is legitimate.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.judge.clause import Clause
from harmony_conformance.judge.condition import Condition, Subject
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.redactable_text import ReportText


class Severity(StrEnum):
    """MUST: a source requires it and a violation harms a client or the model. SHOULD: sources disagree or only imply it."""

    MUST = "must"
    SHOULD = "should"


MUST, SHOULD = Severity.MUST, Severity.SHOULD


class Reads(StrEnum):
    """The part of an exchange that a check of a plug-in needs. A log may have no more than that.

    EXCHANGE: request and response. ANSWER: the response. TEXT: its texts, in `turn.content` and `turn.reasoning`.
    """

    EXCHANGE = "exchange"
    ANSWER = "answer"
    TEXT = "text"


class Verdict(StrEnum):
    """The result of a check on one exchange or series."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    VARIANT = "variant"
    NOT_APPLICABLE = "not_applicable"


class Outcome(StrEnum):
    """The result of a check on one scenario of a run."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    VARIANT = "variant"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not_applicable"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One divergence, with both values and its place: a JSON pointer, an event number, or a prompt message.

    `exchange` is the id of the exchange; empty means the judged one. `ruling`: the key in `RULINGS` that has its severity, if not the check's.
    `clause`: the id of the clause that demands it, if not the check's.
    """

    message: ReportText
    location: str = ""
    expected: ReportText | None = None
    actual: ReportText | None = None
    excerpt: str | None = None
    verdict: Verdict = Verdict.FAIL
    exchange: str = ""
    ruling: str = ""
    clause: str = ""


def clause_of(finding: Finding, clause: Clause, api: str) -> Clause:
    """Return the clause of a failure: its own, or that of the check, from the reference of the API where this has one."""
    demanded = CLAUSES.get(finding.clause, clause)
    return CLAUSES.get(demanded.id.replace(_REASONING, f"{api}#reasoning").replace("chat#", f"{api}#"), demanded)


_REASONING = "raw-cot#output"


def clause_of_failure(clause: Clause, api: str, findings: Iterable[Finding]) -> Clause:
    """Return the clause of the first failure."""
    return clause_of(next(finding for finding in findings if finding.verdict is Verdict.FAIL), clause, api)


def with_clauses(findings: Iterable[Finding], clause: Clause, api: str) -> tuple[list[Finding], Clause]:
    """Return the findings, each failure with the id of the clause that demands it, and the clause of the first failure."""
    told = [cited(one, clause_of(one, clause, api).id) if one.verdict is Verdict.FAIL else one for one in findings]
    return told, clause_of_failure(clause, api, told)


def cited(finding: Finding, clause: str) -> Finding:
    """Return the finding with the id of the clause that demands it. Empty: that of the check."""
    return replace(finding, clause=clause)


def ruled(finding: Finding, ruling: str) -> Finding:
    """Return the finding with the severity of a ruling."""
    return replace(finding, ruling=ruling)


def mismatch(message: ReportText, at: str, expected: ReportText, actual: ReportText, exchange: str = "") -> Finding:
    """Return a failure: at a place, another value than the expected one."""
    return Finding(message=message, location=at, expected=expected, actual=actual, exchange=exchange)


def variant(
    message: ReportText, *, where: str = "", expected: ReportText | None = None, actual: ReportText | None = None
) -> Finding:
    """Return a finding for a legitimate difference: it is reported, and never a failure."""
    return Finding(message=message, location=where, expected=expected, actual=actual, verdict=Verdict.VARIANT)


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckBase(Generic[Subject]):
    """A check on an exchange (`Check`) or on a series (`Comparison`)."""

    id: str
    severity: Severity
    clause: Clause
    when: tuple[Condition[Subject], ...]
    run: Callable[[Subject], Iterator[Finding]]
    requirement: str
    reason: str
    subject: type[Exchange | Series]
    reads: Reads = Reads.EXCHANGE

    @property
    def family(self) -> str:
        """The name of its module, or of its package of modules."""
        return self.id.partition(".")[0]

    def first_unmet(self, subject: Subject) -> Condition[Subject] | None:
        """Return the first condition that does not hold, None if the check applies."""
        return next((needed for needed in self.when if not needed.holds(subject)), None)


Check = CheckBase[Exchange]
Comparison = CheckBase[Series]
CheckFunction = Callable[[Subject], Iterator[Finding]]
ConditionSpec = Condition[Subject] | tuple[Condition[Subject], ...]


def check(
    severity: Severity, *, spec: str | Clause, when: ConditionSpec[Exchange], reads: Reads = Reads.EXCHANGE
) -> Callable[[CheckFunction[Exchange]], Check]:
    """Turn a function on one exchange into a check.

    `spec`: the key of a clause in `CLAUSES`, or a clause of a document of your own. `reads` is for plug-ins: the part of an exchange that a log must have.
    """
    return lambda body: replace(_make_check(severity, spec, when, body, Exchange), reads=reads)


def comparison(
    severity: Severity, *, spec: str | Clause, when: ConditionSpec[Series]
) -> Callable[[CheckFunction[Series]], Comparison]:
    """Turn a function on a series into a check. `spec`: as in `check`."""
    return lambda body: _make_check(severity, spec, when, body, Series)


def _make_check(
    severity: Severity,
    spec: str | Clause,
    when: ConditionSpec[Subject],
    body: CheckFunction[Subject],
    subject: type[Exchange | Series],
) -> CheckBase[Subject]:
    requirement, _, reason = inspect.cleandoc(body.__doc__ or "").partition("\n")
    clause = CLAUSES.get(spec) if isinstance(spec, str) else spec
    if clause is None:
        raise ValueError(f"invalid spec: expected a clause, or the key of one in CLAUSES, got {spec!r}")
    names = body.__module__.split(".")
    family = names[names.index("checks") + 1] if "checks" in names[:-1] else names[-1]
    return CheckBase(
        id=f"{family}.{body.__name__}",
        severity=severity,
        clause=clause,
        when=when if isinstance(when, tuple) else (when,),
        run=body,
        requirement=requirement,
        reason=" ".join(reason.split()),
        subject=subject,
    )

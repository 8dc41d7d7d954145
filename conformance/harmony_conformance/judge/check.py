"""What a check is: one requirement, one pure function, one sentence.

    @check(MUST, spec="harmony#function-calling", when=called_a_tool)
    def name_is_declared(x: Exchange) -> Iterator[Finding]:
        \"\"\"A called function is one that the request declared.\"\"\"

The id is module and function. `when` names the conditions under which it applies; there is no other way to skip. A check that yields nothing has
passed; each `Finding` is a failure, or a variant where the difference is legitimate.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.judge.clause import Clause
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.redactable_text import ReportText

Subject = TypeVar("Subject", Exchange, Series)


class Severity(StrEnum):
    """MUST: a source states it and a client or the model is harmed. SHOULD: the sources disagree or only imply it."""

    MUST = "must"
    SHOULD = "should"


MUST, SHOULD = Severity.MUST, Severity.SHOULD


class Verdict(StrEnum):
    """What a check says of one exchange or series."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    VARIANT = "variant"
    NOT_APPLICABLE = "not_applicable"


class Outcome(StrEnum):
    """What a run says of a check and a scenario."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    VARIANT = "variant"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not_applicable"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One divergence: what it is, where (JSON pointer, event number, prompt message), what was expected and what is there."""

    message: ReportText
    at: str = ""
    expected: ReportText | None = None
    actual: ReportText | None = None
    excerpt: str | None = None
    verdict: Verdict = Verdict.FAIL
    exchange: str = ""


def variant(
    message: ReportText, *, where: str = "", expected: ReportText | None = None, actual: ReportText | None = None
) -> Finding:
    """A legitimate difference, reported and never a failure."""
    return Finding(message=message, at=where, expected=expected, actual=actual, verdict=Verdict.VARIANT)


class UnmetReason(StrEnum):
    """Why a condition may not hold: the exchange is about something else, the endpoint does not show enough, or it declares that it does not go so far."""

    BEHAVIOUR = "behaviour"
    EVIDENCE = "evidence"
    LIMIT = "limit"


@dataclass(frozen=True, eq=False)
class Condition(Generic[Subject]):
    """A named predicate; `about` completes the sentence "applies to …". Two are the same only where they are one object, which is quick to tell."""

    holds: Callable[[Subject], bool]
    description: str
    unmet_reason: UnmetReason
    is_series_only: bool = False
    """Whether it takes several exchanges: of a series of one it does not hold, and need not be asked."""
    apis: frozenset[str] | None = None
    """The names of the APIs on which it may hold: of exchanges on others it need not be asked. None: it may on all."""


def condition(function: Callable[[Subject], bool]) -> Condition[Subject]:
    """A condition on what an exchange is about."""
    return Condition(function, _first_line(function), UnmetReason.BEHAVIOUR)


def evidence(function: Callable[[Subject], bool]) -> Condition[Subject]:
    """A condition on what the endpoint shows: where it does not hold, the check is not applicable for want of evidence."""
    return Condition(function, _first_line(function), UnmetReason.EVIDENCE)


def series_only(needed: Condition[Series]) -> Condition[Series]:
    """A condition that takes several exchanges, such as one on pairs of them."""
    return replace(needed, is_series_only=True)


def only_on(*apis: str) -> Callable[[Condition[Exchange]], Condition[Exchange]]:
    """A condition that holds on these APIs alone."""
    return lambda needed: replace(needed, apis=frozenset(apis))


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

    @property
    def family(self) -> str:
        """The module, or package of modules, it stands in."""
        return self.id.partition(".")[0]

    def first_unmet(self, subject: Subject) -> Condition[Subject] | None:
        """Return the first condition that does not hold, None where the check applies."""
        return next((needed for needed in self.when if not needed.holds(subject)), None)


Check = CheckBase[Exchange]
Comparison = CheckBase[Series]
Body = Callable[[Subject], Iterator[Finding]]
When = Condition[Subject] | tuple[Condition[Subject], ...]


def check(severity: Severity, *, spec: str, when: When[Exchange]) -> Callable[[Body[Exchange]], Check]:
    """Make a check of a function on one exchange."""
    return lambda body: _rule(severity, spec, when, body, Exchange)


def comparison(severity: Severity, *, spec: str, when: When[Series]) -> Callable[[Body[Series]], Comparison]:
    """Make a check of a function on a series."""
    return lambda body: _rule(severity, spec, when, body, Series)


def _rule(
    severity: Severity, spec: str, when: When[Subject], body: Body[Subject], subject: type[Exchange | Series]
) -> CheckBase[Subject]:
    requirement, _, reason = inspect.cleandoc(body.__doc__ or "").partition("\n")
    names = body.__module__.split(".")
    family = names[names.index("checks") + 1] if "checks" in names[:-1] else names[-1]
    return CheckBase(
        id=f"{family}.{body.__name__}",
        severity=severity,
        clause=CLAUSES[spec],
        when=when if isinstance(when, tuple) else (when,),
        run=body,
        requirement=requirement,
        reason=" ".join(reason.split()),
        subject=subject,
    )


def within_limits(function: Callable[[Subject], bool]) -> Condition[Subject]:
    """A condition on what the endpoint declares: where it does not hold, the check is not applicable for the limit that was named."""
    return Condition(function, _first_line(function), UnmetReason.LIMIT)


def _first_line(function: Callable[[Subject], bool]) -> str:
    return inspect.cleandoc(function.__doc__ or "").partition("\n")[0].rstrip(".")

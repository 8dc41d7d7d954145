"""Judging: series and checks in, results out. Pure.

An exception of a check is an `error` result of that check: our fault, counted, never an endpoint's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from harmony_conformance.agenda import RAISED, Agenda, Branch, Unmet, agenda_of, settled, stopped
from harmony_conformance.apis import CHAT_COMPLETIONS
from harmony_conformance.check import Check, Comparison, Finding, Outcome, Severity
from harmony_conformance.exchange import Exchange, Series
from harmony_conformance.once import cached_property
from harmony_conformance.spec_clause import Clause
from harmony_conformance.trial import Subject, applies_to, has_failure, outcome_of, placed, tried


class Result(NamedTuple):
    """What one check says of one scenario on one API, over all tries: how many exchanges (or series) it applied to, and how many of them passed."""

    # a tuple, since there is one for each check and exchange: to make a frozen object of so many fields costs more than many a check
    check: str
    severity: Severity
    clause: Clause
    scenario: str
    api: str
    outcome: Outcome
    exchanges: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    passed: int = 0
    applied: int = 0
    tries: int = 1
    findings: tuple[Finding, ...] = ()
    reason: str = ""


class Said(NamedTuple):
    """Of a result, what is said of the exchanges themselves."""

    check: str
    severity: Severity
    outcome: Outcome
    findings: tuple[Finding, ...]


class _ToldOf(NamedTuple):
    exchanges: tuple[str, ...]
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """The series of all tries of a scenario. Made once for all checks: what they share, such as conditions, is then evaluated once."""

    series: Sequence[Series]

    @cached_property
    def name(self) -> str:
        """The scenario."""
        return self.series[0].name if self.series else ""

    @cached_property
    def api(self) -> str:
        """The API that it went over."""
        return self.series[0].api if self.series else CHAT_COMPLETIONS.name

    def subjects(self, kind: type[Exchange | Series]) -> tuple[Subject, ...]:
        """What a check is asked about, one by one: the series, or every choice of every exchange."""
        return self._as_series if kind is Series else self._as_exchanges

    def told_of(self, subjects: tuple[Subject, ...]) -> _ToldOf:
        """What a result tells of the subjects that a check applied to: the same of all checks that applied to the same ones."""
        known = self._told.get(subjects)
        if known is None:
            known = self._told[subjects] = _ToldOf(
                exchanges=tuple(dict.fromkeys(name for subject in subjects for name in subject.ids)),
                evidence=tuple(sorted(frozenset[str]().union(*(subject.evidence for subject in subjects)))),
            )
        return known

    @cached_property
    def _told(self) -> dict[tuple[Subject, ...], _ToldOf]:
        return {}

    @cached_property
    def _as_series(self) -> tuple[Subject, ...]:
        return tuple(Subject(whole=one, exchanges=tuple(one.exchanges.values())) for one in self.series)

    @cached_property
    def _as_exchanges(self) -> tuple[Subject, ...]:
        return tuple(
            Subject(whole=x, exchanges=(x,))
            for one in self.series
            for whole in one.exchanges.values()
            for x in (whole, *whole.others)
        )


def judge(
    series: Sequence[Series], checks: Iterable[Check | Comparison], exercises: frozenset[str] = frozenset()
) -> Iterator[Result]:
    """Results of every check on one scenario, given the series of all its tries.

    `exercises` names the checks that the scenario was made for: where one of them does not apply because the model or the endpoint did something else,
    the outcome is inconclusive, not "not applicable".
    """
    return iter(judge_rules(tuple(checks), Case(series), exercises))


def judge_rules(
    rules: tuple[Check | Comparison, ...], case: Case, exercises: frozenset[str] = frozenset()
) -> list[Result]:
    """Results of several checks on the series of a scenario."""
    settled, left = _left_open(agenda_of(rules), case, exercises)
    results = list(settled.results)
    for place, subjects in left:
        rule = rules[place]
        results[place] = _applied(rule, case, subjects) or _judged(rule, case, exercised=rule.id in exercises)
    return results


def judge_apart(agenda: Agenda, case: Case) -> tuple[tuple[Result, ...], list[Result]]:
    """The results of the rules that apply to nothing, and those of the others. The former are one and the same tuple for all cases that are alike."""
    settled, left = _left_open(agenda, case, frozenset())
    rules = agenda.rules
    told = [
        _applied(rules[place], case, subjects) or _judged(rules[place], case, exercised=False)
        for place, subjects in left
    ]
    return settled.aside, told


def judge_applied(agenda: Agenda, case: Case) -> list[Said]:
    """What those say that have something to say: few of all, of one exchange."""
    said: list[Said] = []
    for place, subjects in _left_open(agenda, case, frozenset())[1]:
        rule = agenda.rules[place]
        found = _found(rule, subjects)
        if found is not None:
            said.append(Said(rule.id, rule.severity, _of_findings(found[0]), found[0]))
            continue
        result = _judged(rule, case, exercised=False)
        if result.outcome is not Outcome.NOT_APPLICABLE:
            said.append(Said(rule.id, rule.severity, result.outcome, result.findings))
    return said


def _left_open(
    agenda: Agenda, case: Case, exercises: frozenset[str]
) -> tuple[_Settled, list[tuple[int, tuple[Subject, ...]]]]:
    """What is said of the rules that apply to nothing; the places of the others, and what each applies to, where that is settled."""
    rules = agenda.rules
    stops = tuple([_stops(agenda, case.subjects(kind)) for kind in _KINDS])
    settled = _told_of_none(agenda, case.name, case.api, len(case.series), stops)
    left = {kind: _left(case.subjects(kind), of_kind) for kind, of_kind in zip(_KINDS, stops, strict=True)}
    exercised = [place for place, rule in enumerate(rules) if rule.id in exercises] if exercises else ()
    return settled, [
        (place, tuple([subject for subject, closed in left[rules[place].subject] if place not in closed]))
        for place in (sorted({*settled.open, *exercised}) if exercised else settled.open)
    ]


def judge_one(rule: Check | Comparison, series: Sequence[Series], *, exercised: bool) -> Result:
    """The result of one check on the series of a scenario."""
    return judge_case(rule, Case(series), exercised=exercised)


def judge_case(rule: Check | Comparison, case: Case, *, exercised: bool) -> Result:
    """The result of one of several checks on the series of a scenario."""
    return judge_rules((rule,), case, frozenset({rule.id} if exercised else ()))[0]


def _left(subjects: Sequence[Subject], stops: _Stops) -> list[tuple[Subject, frozenset[int]]]:
    """Each subject, with the places of the rules that do not apply to it; none, where that is not settled for all."""
    is_settled = stops and not any(RAISED in subject.known for subject in subjects)
    return list(zip(subjects, map(stopped, stops), strict=True)) if is_settled else []


def _found(rule: Check | Comparison, subjects: tuple[Subject, ...]) -> tuple[tuple[Finding, ...], int] | None:
    """What a rule finds in those that it applies to, and in how many a failure. None where there are none, or it raises: then there is more to tell."""
    if not subjects:
        return None
    findings: list[Finding] = []
    failed = 0
    run = rule.run
    for subject in subjects:
        try:
            told = list(run(subject.whole))  # type: ignore[arg-type]  # a check asks about what its kind of subject is
        except Exception:  # noqa: BLE001 - it will be raised again where it is reported
            return None
        if told:
            findings += placed(told, subject)
            failed += has_failure(told)
    return tuple(findings), failed


def _applied(rule: Check | Comparison, case: Case, subjects: tuple[Subject, ...]) -> Result | None:
    """The result of a rule that applies to these; None where there is more to tell."""
    found = _found(rule, subjects)
    if found is None:
        return None
    findings, failed = found
    passed = len(subjects) - failed
    return _result(rule, case, subjects, findings, passed=passed, outcome=(_of_findings(findings), ""))


def _of_findings(findings: Sequence[Finding]) -> Outcome:
    """What the findings of a check that applied come to."""
    if not findings:
        return Outcome.PASS
    return Outcome.FAIL if has_failure(findings) else Outcome.VARIANT


def _judged(rule: Check | Comparison, case: Case, *, exercised: bool) -> Result:
    trials = [tried(rule, subject) for subject in case.subjects(rule.subject)]
    applied = [trial for trial in trials if not trial.unmet]
    findings: list[Finding] = []
    for trial in applied:
        findings += trial.findings
    subjects, passed = tuple([trial.subject for trial in applied]), sum([trial.passed for trial in applied])
    outcome = outcome_of(applied, findings, trials, exercised=exercised)
    return _result(rule, case, subjects, findings, passed=passed, outcome=outcome)


def _result(  # noqa: PLR0913
    rule: Check | Comparison,
    case: Case,
    subjects: tuple[Subject, ...],
    findings: Sequence[Finding],
    *,
    passed: int,
    outcome: tuple[Outcome, str],
) -> Result:
    exchanges, evidence = case.told_of(subjects)
    came_to, reason = outcome
    # in the order of its fields, since names cost as much as the rest
    return Result(
        rule.id,
        rule.severity,
        rule.clause,
        case.name,
        case.api,
        came_to,
        exchanges,
        evidence,
        passed,
        len(subjects),
        len(case.series),
        tuple(findings),
        reason,
    )


@dataclass(frozen=True, kw_only=True)
class _Settled:
    """What is said of the checks that apply to nothing, each in its place, and the places of the others: of those there is more to tell."""

    results: tuple[Result, ...]
    open: tuple[int, ...]

    @cached_property
    def aside(self) -> tuple[Result, ...]:
        """The results of those that apply to nothing."""
        is_open = frozenset(self.open)
        return tuple(result for place, result in enumerate(self.results) if place not in is_open)


_KINDS: tuple[type[Exchange | Series], ...] = (Exchange, Series)
_Stops = tuple[tuple[Branch, ...], ...]
"""Where the rules of an agenda stop, for each of some subjects; for none, where the endpoint refused one for its rate limit: then it takes more to tell."""


def _stops(rules: Agenda, subjects: Sequence[Subject]) -> _Stops:
    if any(subject.refused for subject in subjects):
        return ()
    return tuple(rules.stops(subject.whole, subject.known) for subject in subjects)


@lru_cache(maxsize=512)
def _told_of_none(rules: Agenda, scenario: str, api: str, tries: int, stops: tuple[_Stops, ...]) -> _Settled:
    """What is said of the checks that apply to nothing of a case: most of them, so that they are asked together.

    Open are those that do apply, and those with a condition that raises. Mostly the same of every exchange of a log, so that it is remembered.
    """
    missing = {place: lacking for of_a_kind in stops for place, lacking in settled(of_a_kind).items()}
    results = tuple(
        _not_applicable(rule, scenario, api, tries, missing.get(place, ())) for place, rule in enumerate(rules.rules)
    )
    return _Settled(results=results, open=tuple(place for place in range(len(results)) if place not in missing))


@lru_cache(maxsize=4096)
def _not_applicable(
    rule: Check | Comparison, scenario: str, api: str, tries: int, missing: tuple[Unmet, ...]
) -> Result:
    return Result(
        check=rule.id,
        severity=rule.severity,
        clause=rule.clause,
        scenario=scenario,
        api=api,
        outcome=Outcome.NOT_APPLICABLE,
        tries=tries,
        reason=applies_to(needed.about for needed in missing),
    )


def worst(results: Iterable[Result], fails_on: frozenset[Severity]) -> Outcome:
    """What a run comes to: error, fail (of the severities that count), or pass."""
    outcomes = {(result.outcome, result.severity) for result in results}
    if any(outcome is Outcome.ERROR for outcome, _ in outcomes):
        return Outcome.ERROR
    if any(outcome is Outcome.FAIL and severity in fails_on for outcome, severity in outcomes):
        return Outcome.FAIL
    return Outcome.PASS


def is_comparison(rule: Check | Comparison) -> bool:
    """Whether it judges a series as a whole."""
    return rule.subject is Series

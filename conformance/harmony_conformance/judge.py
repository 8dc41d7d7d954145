"""Judging: series and checks in, results out. Pure; the only place where a verdict becomes an outcome.

An exception of a check is an `error` result of that check: our fault, counted, never an endpoint's.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from harmony_conformance.agenda import Agenda, Branch, Unmet, agenda, settled
from harmony_conformance.apis import CHAT_COMPLETIONS
from harmony_conformance.check import Check, Comparison, Finding, Ground, Outcome, Severity, Verdict
from harmony_conformance.conditions import ODD, is_chat, is_completion, is_told_when_done
from harmony_conformance.exchange import AnsweredBy, Exchange, Series
from harmony_conformance.gauge import API as METRICS
from harmony_conformance.spec_clause import Clause
from harmony_conformance.wire import FailureKind


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one check says of one scenario on one API, over all tries: how many exchanges (or series) it applied to, and how many of them passed."""

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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Subject:
    """What one check is asked about, and what every check asks of it again: computed once."""

    whole: Exchange | Series
    exchanges: tuple[Exchange, ...]
    known: dict[object, bool] = field(default_factory=dict[object, bool])
    """Which conditions hold, of those that a check had to know so far."""

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The exchanges, by their ids."""
        return tuple(x.id for x in self.exchanges)

    @cached_property
    def evidence(self) -> frozenset[str]:
        """What is known of their prompts and outputs."""
        return frozenset(name for x in self.exchanges for name in _evidence(x))

    @cached_property
    def refused(self) -> tuple[str, ...]:
        """The exchanges that the endpoint kept refusing for its rate limit."""
        return tuple(
            x.id for x in self.exchanges if x.failure is not None and x.failure.kind is FailureKind.RATE_LIMITED
        )


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

    def subjects(self, kind: type[Exchange | Series]) -> tuple[_Subject, ...]:
        """What a check is asked about, one by one: the series, or every choice of every exchange."""
        return self._as_series if kind is Series else self._as_exchanges

    def told_of(self, subjects: tuple[_Subject, ...]) -> _ToldOf:
        """What a result tells of the subjects that a check applied to: the same of all checks that applied to the same ones."""
        known = self._told.get(subjects)
        if known is None:
            known = self._told[subjects] = _ToldOf(
                exchanges=tuple(dict.fromkeys(name for subject in subjects for name in subject.ids)),
                evidence=tuple(sorted(frozenset[str]().union(*(subject.evidence for subject in subjects)))),
            )
        return known

    @cached_property
    def _told(self) -> dict[tuple[_Subject, ...], _ToldOf]:
        return {}

    @cached_property
    def _as_series(self) -> tuple[_Subject, ...]:
        return tuple(_Subject(whole=one, exchanges=tuple(one.exchanges.values())) for one in self.series)

    @cached_property
    def _as_exchanges(self) -> tuple[_Subject, ...]:
        return tuple(
            _Subject(whole=x, exchanges=(x,))
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
    settled = _inapplicable(agenda(rules), case)
    results: list[Result | None] = list(settled.results)
    exercised = [place for place, rule in enumerate(rules) if rule.id in exercises] if exercises else ()
    for place in sorted({*settled.open, *exercised}):
        rule = rules[place]
        results[place] = _judged(rule, case, exercised=rule.id in exercises)
    return [result for result in results if result is not None]


def judge_one(rule: Check | Comparison, series: Sequence[Series], *, exercised: bool) -> Result:
    """The result of one check on the series of a scenario."""
    return judge_case(rule, Case(series), exercised=exercised)


def judge_case(rule: Check | Comparison, case: Case, *, exercised: bool) -> Result:
    """The result of one of several checks on the series of a scenario."""
    return judge_rules((rule,), case, frozenset({rule.id} if exercised else ()))[0]


def _judged(rule: Check | Comparison, case: Case, *, exercised: bool) -> Result:
    trials = [_try(rule, subject) for subject in case.subjects(rule.subject)]
    applied = [trial for trial in trials if not trial.unmet]
    findings: list[Finding] = []
    for trial in applied:
        findings += trial.findings
    outcome, reason = _outcome(applied, findings, trials, exercised=exercised)
    told = case.told_of(tuple([trial.subject for trial in applied]))
    return Result(
        check=rule.id,
        severity=rule.severity,
        clause=rule.clause,
        scenario=case.name,
        api=case.api,
        outcome=outcome,
        exchanges=told.exchanges,
        evidence=told.evidence,
        passed=sum([trial.passed for trial in applied]),
        applied=len(applied),
        tries=len(case.series),
        findings=tuple(findings),
        reason=reason,
    )


@dataclass(frozen=True, kw_only=True)
class _Settled:
    """What is said of the checks that apply to nothing, each in its place, and the places of the others."""

    results: tuple[Result | None, ...]
    open: tuple[int, ...]


def _inapplicable(rules: Agenda, case: Case) -> _Settled:
    """What is said of the checks that apply to nothing of a case: most of them, so that they are asked together.

    Open are those that do apply, those with a condition that raises, and those of which the endpoint refused something for its rate limit: then it takes
    more to tell what came of it.
    """
    stops = tuple(_stops(rules, case.subjects(kind)) for kind in (Exchange, Series))
    return _told_of_none(rules, case.name, case.api, len(case.series), stops)


_Stops = tuple[tuple[Branch, ...], ...]
"""Where the rules of an agenda stop, for each of some subjects."""


def _stops(rules: Agenda, subjects: Sequence[_Subject]) -> _Stops:
    if any(subject.refused for subject in subjects):
        return ()
    return tuple(rules.stops(subject.whole, subject.known) for subject in subjects)


@lru_cache(maxsize=512)
def _told_of_none(rules: Agenda, scenario: str, api: str, tries: int, stops: tuple[_Stops, ...]) -> _Settled:
    """Mostly the same of every exchange of a log, so that it is remembered."""
    missing = {place: lacking for of_a_kind in stops for place, lacking in settled(of_a_kind).items()}
    results = tuple(
        _not_applicable(rule, scenario, api, tries, missing[place]) if place in missing else None
        for place, rule in enumerate(rules.rules)
    )
    return _Settled(results=results, open=tuple(place for place, told in enumerate(results) if told is None))


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
        reason=_applies_to(needed.about for needed in missing),
    )


def _applies_to(unmet: Iterable[str]) -> str:
    return "applies to " + "; ".join(dict.fromkeys(unmet))


def _evidence(x: Exchange) -> Iterator[str]:
    yield f"prompt: {x.prompt.level}"
    yield f"output: {x.output.level}"
    if x.together is not None:
        yield f"side by side: {x.together}"


class _Trial(NamedTuple):
    subject: _Subject
    unmet: str = ""
    ground: Ground = Ground.BEHAVIOUR
    findings: tuple[Finding, ...] = ()
    error: str = ""

    @property
    def passed(self) -> bool:
        return not self.error and not (self.findings and _has_failure(self.findings))


def _has_failure(findings: Iterable[Finding]) -> bool:
    return any(finding.verdict is Verdict.FAIL for finding in findings)


def _try(rule: Check | Comparison, subject: _Subject) -> _Trial:
    exchanges = subject.exchanges
    try:
        unmet = _unmet(rule, subject)
        if unmet is not None:
            return _Trial(subject=subject, unmet=unmet.about, ground=_ground(unmet, subject))
        own, choice = (exchanges[0].id, exchanges[0].choice) if len(exchanges) == 1 else ("", 0)
        findings = tuple([_placed(finding, own, choice) for finding in _run(rule, subject.whole)])
    except Exception as error:  # noqa: BLE001 - whatever a check raises is our error, and is reported as one
        where = traceback.extract_tb(error.__traceback__)[-1]
        return _Trial(subject=subject, error=f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")
    return _Trial(subject=subject, findings=findings)


def _placed(finding: Finding, exchange: str, choice: int) -> Finding:
    """The finding with the exchange it is about, and with the choice where that is not the first."""
    where = f"choice {choice}: {finding.at}" if choice else finding.at
    return replace(finding, at=where, exchange=finding.exchange or exchange)


def _unmet(rule: Check | Comparison, subject: _Subject) -> Unmet | None:
    return rule.unmet(subject.whole, subject.known)  # type: ignore[arg-type]


def _ground(unmet: Unmet, subject: _Subject) -> Ground:
    """Why a condition does not hold. Where it would, had the API itself answered, the endpoint just does not show it."""
    exchanges = subject.exchanges
    if exchanges and all(x.answered_by is AnsweredBy.RENDER for x in exchanges):
        return Ground.EVIDENCE
    if all(x.answered_by is AnsweredBy.API for x in exchanges):
        return unmet.ground
    return Ground.EVIDENCE if unmet.holds(_served(subject.whole)) else unmet.ground  # type: ignore[arg-type]


def _served(subject: Exchange | Series) -> Exchange | Series:
    """The same, as if the API itself had answered."""
    if isinstance(subject, Series):
        api = {step: replace(x, answered_by=AnsweredBy.API) for step, x in subject.exchanges.items()}
        return replace(subject, exchanges=api)
    return replace(subject, answered_by=AnsweredBy.API)


def _run(rule: Check | Comparison, subject: Exchange | Series) -> Iterator[Finding]:
    return rule.run(subject)  # type: ignore[arg-type]


def _outcome(
    applied: Sequence[_Trial], findings: Sequence[Finding], trials: Sequence[_Trial], *, exercised: bool
) -> tuple[Outcome, str]:
    errors = [trial.error for trial in applied if trial.error]
    if errors:
        return Outcome.ERROR, errors[0]
    if findings and _has_failure(findings):
        return Outcome.FAIL, ""
    if findings:
        return Outcome.VARIANT, ""
    if applied:
        return Outcome.PASS, ""
    limited = [name for trial in trials for name in trial.subject.refused]
    if limited:
        return Outcome.INCONCLUSIVE, f"rate limited: {limited[0]}"
    reason = _applies_to(trial.unmet for trial in trials) if trials else "nothing was sent"
    if not exercised:
        return Outcome.NOT_APPLICABLE, reason
    if all(trial.unmet in _OF_ONE_API for trial in trials) and all(
        x.api != CHAT_COMPLETIONS.name for trial in trials for x in trial.subject.exchanges
    ):
        return Outcome.NOT_APPLICABLE, reason  # made for another API than this one
    if any(trial.ground is Ground.LIMIT for trial in trials):
        return Outcome.NOT_APPLICABLE, "the endpoint declares a limit: " + reason
    sent = [x for trial in trials for x in trial.subject.exchanges]
    unanswered = [x.id for x in sent if x.turn is None and _wants_an_answer(x)]
    only_shown = any(x.answered_by is AnsweredBy.DERENDER for x in sent)
    if unanswered and not (only_shown and all(trial.ground is Ground.EVIDENCE for trial in trials)):
        return Outcome.INCONCLUSIVE, f"no usable answer to {unanswered[0]} (see errors.valid_request_is_answered)"
    unscripted = [why for x in sent if (why := _kept_back(x) or x.unplayed)]
    if unscripted:
        return Outcome.NOT_APPLICABLE, unscripted[0]
    if any(trial.ground is Ground.EVIDENCE for trial in trials):
        return Outcome.NOT_APPLICABLE, "not enough evidence: " + reason
    return Outcome.INCONCLUSIVE, "the endpoint did not do what the scenario asks for: " + reason


_OF_ONE_API = (is_chat.about, is_completion.about, is_told_when_done.about)


def _wants_an_answer(x: Exchange) -> bool:
    was_only_shown = x.answered_by is AnsweredBy.RENDER and x.rendered is not None
    return x.api != METRICS and x.validity not in ODD and not was_only_shown and not _kept_back(x)


def _kept_back(x: Exchange) -> str:
    """Why we did not send it, empty where we did."""
    return x.failure.detail if x.failure is not None and x.failure.kind is FailureKind.NOT_SENT else ""


def applied_of(results: Iterable[Result]) -> list[Result]:
    """The results of the checks that had something to say: few of all, of one exchange."""
    aside = Outcome.NOT_APPLICABLE
    return [result for result in results if result.outcome is not aside]


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

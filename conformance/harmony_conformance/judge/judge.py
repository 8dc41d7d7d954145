"""Judging: series and checks in, results out. Pure.

An exception of a check is an `error` result of that check: a fault of the check, never of the endpoint.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from harmony_conformance.apis.registry import CHAT_COMPLETIONS
from harmony_conformance.evidence.exchange import ODD, AnsweredBy, Exchange, Series
from harmony_conformance.evidence.levels import METRICS_API as METRICS
from harmony_conformance.judge.applicability import (
    RAISED,
    ConditionIndex,
    ConditionNode,
    Unmet,
    build_index,
    unmet_rules,
)
from harmony_conformance.judge.check import Check, Comparison, Finding, Outcome, Severity, UnmetReason, Verdict
from harmony_conformance.judge.clause import Clause
from harmony_conformance.judge.conditions import is_chat, is_completion, is_told_when_done
from harmony_conformance.runtime.caching import cached_property
from harmony_conformance.transport.messages import FailureKind

NOT_SHOWN = "not enough evidence: "
"""The first words of the reason where an endpoint does not show what a check examines."""
_OF_ONE_API = (is_chat, is_completion, is_told_when_done)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedSubject:
    """An exchange or a series that checks are evaluated on, and which conditions hold of it, as far as evaluated."""

    whole: Exchange | Series
    exchanges: tuple[Exchange, ...]
    known: dict[object, bool] = field(default_factory=dict[object, bool])


@dataclass(frozen=True)
class ScenarioSeries:
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

    @cached_property
    def subjects(self) -> Mapping[type[Exchange | Series], tuple[JudgedSubject, ...]]:
        """The subjects of each kind of check: every choice of every exchange, and the series."""
        choices = [x for one in self.series for whole in one.exchanges.values() for x in (whole, *whole.other_choices)]
        return {
            Exchange: tuple([JudgedSubject(whole=x, exchanges=(x,)) for x in choices]),
            Series: tuple([JudgedSubject(whole=one, exchanges=tuple(one.exchanges.values())) for one in self.series]),
        }

    @cached_property
    def refused(self) -> tuple[str, ...]:
        """The exchanges that the endpoint refused for its rate limit to the end."""
        return tuple(
            x.id
            for one in self.series
            for x in one.exchanges.values()
            if x.failure is not None and x.failure.kind is FailureKind.RATE_LIMITED
        )

    def basis(self, subjects: tuple[JudgedSubject, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the exchanges and the evidence that a result rests on: the same for all checks that applied to the same subjects."""
        if subjects not in self._bases:
            exchanges = [x for subject in subjects for x in subject.exchanges]
            levels = {f"prompt: {x.prompt.level}" for x in exchanges} | {f"output: {x.output.level}" for x in exchanges}
            levels |= {f"side by side: {x.concurrency}" for x in exchanges if x.concurrency is not None}
            self._bases[subjects] = tuple(dict.fromkeys(x.id for x in exchanges)), tuple(sorted(levels))
        return self._bases[subjects]

    @cached_property
    def _bases(self) -> dict[tuple[JudgedSubject, ...], tuple[tuple[str, ...], tuple[str, ...]]]:
        return {}


def judge(
    series: Sequence[Series], checks: Iterable[Check | Comparison], exercises: frozenset[str] = frozenset()
) -> list[Result]:
    """Return the results of every check on one scenario, given the series of all its tries. See `judge_case`."""
    return judge_case(ScenarioSeries(series), tuple(checks), exercises)


def judge_one(rule: Check | Comparison, series: Sequence[Series], *, exercised: bool) -> Result:
    """Return the result of one check on the series of a scenario."""
    return judge(series, (rule,), frozenset({rule.id} if exercised else ()))[0]


def judge_case(
    case: ScenarioSeries, rules: tuple[Check | Comparison, ...], exercises: frozenset[str] = frozenset()
) -> list[Result]:
    """Return the results of several checks on a scenario, in their order.

    `exercises` names the checks that the scenario was made for: where one of them does not apply because the model or the endpoint did something else,
    the outcome is inconclusive, not "not applicable".
    """
    aside, judged = _evaluate(build_index(rules), case, exercises)
    results = list(aside.results)
    for place, result in judged:
        results[place] = result
    return results


def judge_alone(x: Exchange, checks: Iterable[Check | Comparison]) -> list[Result]:
    """Return the results of every check on one exchange by itself."""
    return judge([Series(name=x.scenario, exchanges={x.step: x})], checks)


def judge_split(x: Exchange, agenda: ConditionIndex) -> tuple[tuple[Result, ...], list[Result]]:
    """Return the same in two parts: the results of the checks that do not apply, and the others.

    The former are one and the same tuple for all exchanges that are alike.
    """
    aside, judged = _evaluate(agenda, ScenarioSeries([Series(name=x.scenario, exchanges={x.step: x})]), frozenset())
    return aside.closed, [result for _, result in judged]


_Asked = tuple[JudgedSubject, Mapping[int, Unmet]]
"""A subject, and the places of the rules that do not apply to it, each with the unmet condition."""


class _Aside(NamedTuple):
    """The results of all rules as if they did not apply, the places of the rules that do apply, and the results of the others."""

    results: tuple[Result, ...]
    open: tuple[int, ...]
    closed: tuple[Result, ...]


def _evaluate(
    agenda: ConditionIndex, case: ScenarioSeries, exercises: frozenset[str]
) -> tuple[_Aside, list[tuple[int, Result]]]:
    """Evaluate rules on a scenario: return the results of those that apply to nothing, and each of the others with its place."""
    stops = {
        kind: tuple([agenda.unmet_nodes(subject.whole, subject.known) for subject in subjects])
        for kind, subjects in case.subjects.items()
    }
    # after a rate limit, each rule by itself finds out why it does not apply
    every = tuple(stops.values()) if not case.refused else ()
    aside = _not_applicable(agenda, case.name, case.api, len(case.series), every)
    asked = {kind: list(zip(case.subjects[kind], map(unmet_rules, many), strict=True)) for kind, many in stops.items()}
    rules = agenda.rules
    places: Iterable[int] = aside.open
    if exercises:
        places = sorted({*places, *(place for place, rule in enumerate(rules) if rule.id in exercises)})
    return aside, [
        (place, _judged(rules[place], place, case, asked[rules[place].subject], exercises)) for place in places
    ]


@lru_cache(maxsize=512)
def _not_applicable(
    agenda: ConditionIndex,
    scenario: str,
    api: str,
    tries: int,
    stops: tuple[tuple[tuple[ConditionNode, ...], ...], ...],
) -> _Aside:
    """Return the results of the rules that apply to nothing. Most exchanges of a log are alike, so it is remembered."""
    missing = {
        place: [lacking[place] for lacking in of_each]
        for of_each in [list(map(unmet_rules, of_a_kind)) for of_a_kind in stops]
        for place in (of_each[0] if of_each else ())
        if all(place in lacking for lacking in of_each)
    }
    results = tuple(
        Result(rule.id, rule.severity, rule.clause, scenario, api, Outcome.NOT_APPLICABLE, tries=tries, reason=reason)
        for place, rule in enumerate(agenda.rules)
        for reason in [_applies_to(missing.get(place, ()))]
    )
    return _Aside(
        results=results,
        open=tuple(place for place in range(len(results)) if place not in missing),
        closed=tuple(result for place, result in enumerate(results) if place in missing),
    )


def _applies_to(unmet: Iterable[Unmet]) -> str:
    return "applies to " + "; ".join(dict.fromkeys(needed.description for needed in unmet))


def _judged(
    rule: Check | Comparison, place: int, case: ScenarioSeries, asked: Sequence[_Asked], exercises: frozenset[str]
) -> Result:
    applied: list[JudgedSubject] = []
    findings: list[Finding] = []
    errors: list[str] = []
    failed = 0
    run = rule.run
    for subject, closed in asked:
        if place in closed:
            continue
        applied.append(subject)
        try:
            if RAISED in subject.known:
                rule.first_unmet(subject.whole)  # type: ignore[arg-type]  # raises again where it is a condition of this rule
            found = list(run(subject.whole))  # type: ignore[arg-type]  # a check runs on subjects of its kind
        except Exception as error:  # noqa: BLE001 - whatever a check raises is reported as an error of that check
            errors.append(_error_text(error))
            continue
        if found:
            findings += [_placed(finding, subject.exchanges) for finding in found]
            failed += any(finding.verdict is Verdict.FAIL for finding in found)
    reason = ""
    if errors:
        outcome, reason = Outcome.ERROR, errors[0]
    elif findings:
        outcome = Outcome.FAIL if failed else Outcome.VARIANT
    elif applied:
        outcome = Outcome.PASS
    else:
        try:
            outcome, reason = _without_subject(case, asked, place, exercised=rule.id in exercises)
        except Exception as error:  # noqa: BLE001 - as above: a condition raised
            outcome, reason = Outcome.ERROR, _error_text(error)
    exchanges, evidence = case.basis(tuple(applied))
    # in the order of its fields, since names cost as much as the rest
    return Result(
        rule.id,
        rule.severity,
        rule.clause,
        case.name,
        case.api,
        outcome,
        exchanges,
        evidence,
        len(applied) - failed - len(errors),
        len(applied),
        len(case.series),
        tuple(findings),
        reason,
    )


def _error_text(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.name}, line {frame.lineno})"


def _placed(finding: Finding, exchanges: tuple[Exchange, ...]) -> Finding:
    """Return the finding with its exchange, and with its choice where that is not the first."""
    if len(exchanges) != 1:
        return finding
    (x,) = exchanges
    where = f"choice {x.choice}: {finding.at}" if x.choice else finding.at
    return replace(finding, at=where, exchange=finding.exchange or x.id)


def _without_subject(
    case: ScenarioSeries, asked: Sequence[_Asked], place: int, *, exercised: bool
) -> tuple[Outcome, str]:
    """Return the outcome of a check that applied to nothing, and the reason."""
    if case.refused:
        return Outcome.INCONCLUSIVE, f"rate limited: {case.refused[0]}"
    lacking = [closed[place] for _, closed in asked]
    reason = _applies_to(lacking) if asked else "nothing was sent"
    sent = [x for subject, _ in asked for x in subject.exchanges]
    is_of_another_api = all(needed in _OF_ONE_API for needed in lacking) and all(
        x.api != CHAT_COMPLETIONS.name for x in sent
    )
    if not exercised or is_of_another_api:
        return Outcome.NOT_APPLICABLE, reason
    grounds = [_ground(closed[place], subject) for subject, closed in asked]
    if UnmetReason.LIMIT in grounds:
        return Outcome.NOT_APPLICABLE, "the endpoint declares a limit: " + reason
    for x in sent:
        if x.failure is not None and x.failure.kind is FailureKind.ACCESS_REFUSED:
            return Outcome.INCONCLUSIVE, x.failure.detail
    unanswered = [
        x.id
        for x in sent
        if x.turn is None
        and x.api != METRICS
        and x.validity not in ODD
        and not (x.answered_by is AnsweredBy.RENDER and x.rendered_prompt is not None)
        and not _why_not_sent(x)
    ]
    only_shown = any(x.answered_by is AnsweredBy.DERENDER for x in sent)
    if unanswered and not (only_shown and all(ground is UnmetReason.EVIDENCE for ground in grounds)):
        return Outcome.INCONCLUSIVE, f"no usable answer to {unanswered[0]} (see errors.valid_request_is_answered)"
    unscripted = [why for x in sent if (why := _why_not_sent(x) or x.script_not_played)]
    if unscripted:
        return Outcome.NOT_APPLICABLE, unscripted[0]
    if UnmetReason.EVIDENCE in grounds:
        return Outcome.NOT_APPLICABLE, NOT_SHOWN + reason
    return Outcome.INCONCLUSIVE, "the endpoint did not do what the scenario asks for: " + reason


def _ground(unmet: Unmet, subject: JudgedSubject) -> UnmetReason:
    """Return why a condition does not hold. Where it would, had the API itself answered, the endpoint just does not show it."""
    ways = {x.answered_by for x in subject.exchanges}
    if ways <= {AnsweredBy.API}:
        return unmet.unmet_reason
    served = subject.whole
    if isinstance(served, Series):
        exchanges = {step: replace(x, answered_by=AnsweredBy.API) for step, x in served.exchanges.items()}
        served = replace(served, exchanges=exchanges)
    else:
        served = replace(served, answered_by=AnsweredBy.API)
    return UnmetReason.EVIDENCE if ways == {AnsweredBy.RENDER} or unmet.holds(served) else unmet.unmet_reason  # type: ignore[arg-type]


def _why_not_sent(x: Exchange) -> str:
    """Return why the client did not send a request, empty where it did."""
    return x.failure.detail if x.failure is not None and x.failure.kind is FailureKind.NOT_SENT else ""


def worst(results: Iterable[Result], fails_on: frozenset[Severity]) -> Outcome:
    """Return the outcome of a run: error, fail (of the severities that count), or pass."""
    outcomes = {one.outcome for one in results if one.outcome is Outcome.ERROR or one.severity in fails_on}
    return next((outcome for outcome in (Outcome.ERROR, Outcome.FAIL) if outcome in outcomes), Outcome.PASS)


def is_comparison(rule: Check | Comparison) -> bool:
    """Return true for a check that judges a series as a whole."""
    return rule.subject is Series

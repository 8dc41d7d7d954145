"""Evaluate checks on series of exchanges, without side effects.

An exception in a check, or a panic of a library, becomes an `error` result of that check. It is a fault of the check, never of the endpoint.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from harmony_conformance.apis.registry import CHAT_COMPLETIONS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import METRICS_API as METRICS
from harmony_conformance.evidence.levels import REFUSABLE_VALIDITIES, SPLIT_IN_DOUBT, AnsweredBy
from harmony_conformance.judge import applicability
from harmony_conformance.judge.check import Check, Comparison, Finding, Outcome, Severity, Verdict, with_clauses
from harmony_conformance.judge.clause import Clause
from harmony_conformance.judge.condition import UnmetReason
from harmony_conformance.judge.conditions import api_has_finish_reason, api_sends_done, is_chat, is_completion
from harmony_conformance.judge.rulings import RULINGS
from harmony_conformance.judge.scenario_series import JudgedSubject, ScenarioSeries
from harmony_conformance.judge.stream_conditions import api_streams_events, api_streams_on_request
from harmony_conformance.transport.messages import FailureKind

NOT_ENOUGH_EVIDENCE = "not enough evidence: "
"""The beginning of the reason if an endpoint does not expose what a check examines."""
_RUN_ENDED = (FailureKind.ACCESS_REFUSED, FailureKind.RUN_STOPPED, FailureKind.SERVER_GONE)
_OF_STREAMS = (api_streams_events, api_streams_on_request)
_API_CONDITIONS = (is_chat, is_completion, api_sends_done, api_has_finish_reason, *_OF_STREAMS)


class Result(NamedTuple):
    """The result of one check for one scenario on one API, over all tries.

    `severity` is that of the check. For a failure it is that of the severest finding, which a ruling may lower.
    `applied` counts the exchanges (or series) that the check applied to, and `passed` those that passed.
    """

    # a tuple, since there is one for each check and exchange: creating a frozen dataclass costs more than many a check
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


def judge(
    series: Sequence[Series], checks: Iterable[Check | Comparison], exercises: frozenset[str] = frozenset()
) -> list[Result]:
    """Return the results of all checks on one scenario, given the series of all its tries. See `judge_scenario_series`."""
    return judge_scenario_series(ScenarioSeries(series), tuple(checks), exercises)


def judge_one(rule: Check | Comparison, series: Sequence[Series], *, exercised: bool) -> Result:
    """Return the result of one check on the series of a scenario."""
    return judge(series, (rule,), frozenset({rule.id} if exercised else ()))[0]


def judge_scenario_series(
    case: ScenarioSeries, rules: tuple[Check | Comparison, ...], exercises: frozenset[str] = frozenset()
) -> list[Result]:
    """Return the results of several checks on a scenario, in their order.

    `exercises`: the ids of the checks that the scenario was made for. If one of them does not apply because the model or the
    endpoint did something else, the outcome is "inconclusive" instead of "not applicable".
    """
    prepared, applied = _evaluate(applicability.build_index(rules), case, exercises)
    results = list(prepared.results)
    for place, result in applied:
        results[place] = result
    return results


def judge_exchange(x: Exchange, checks: Iterable[Check | Comparison]) -> list[Result]:
    """Return the results of all checks on one exchange."""
    return judge([Series(name=x.scenario, exchanges={x.step: x})], checks)


def judge_split(x: Exchange, index: applicability.ConditionIndex) -> tuple[tuple[Result, ...], list[Result]]:
    """Return the results of all checks on one exchange: first those that do not apply, then the others.

    Similar exchanges share the first tuple.
    """
    prepared, applied = _evaluate(index, ScenarioSeries([Series(name=x.scenario, exchanges={x.step: x})]), frozenset())
    return prepared.not_applicable, [result for _, result in applied]


_SubjectUnmet = tuple[JudgedSubject, Mapping[int, applicability.AnyCondition]]
"""A subject, and the places of the checks that do not apply to it, each with the unmet condition."""


class _CaseSummary(NamedTuple):
    """The members of a result that do not depend on its exchanges."""

    scenario: str
    api: str
    tries: int
    is_rate_limited: bool


class _PreparedResults(NamedTuple):
    """Results before any check runs.

    Attributes:
        results: a "not applicable" result for each check.
        applicable: the places of the checks that apply.
        not_applicable: the results of the others.
        unmet: for each subject of each kind, the places of the checks that do not apply to it, each with the unmet condition.
    """

    results: tuple[Result, ...]
    applicable: tuple[int, ...]
    not_applicable: tuple[Result, ...]
    unmet: tuple[tuple[Mapping[int, applicability.AnyCondition], ...], ...]


def _evaluate(
    index: applicability.ConditionIndex, case: ScenarioSeries, exercises: frozenset[str]
) -> tuple[_PreparedResults, list[tuple[int, Result]]]:
    """Evaluate checks on a scenario. Return the prepared results, and the place and result of each check that was run."""
    nodes = tuple(
        [
            tuple([index.unmet_nodes(subject.exchange_or_series, subject.condition_values) for subject in subjects])
            for subjects in case.subjects.values()
        ]
    )
    about = _CaseSummary(case.name, case.api, len(case.series), bool(case.rate_limited_ids))
    prepared = _prepare_results(index, about, nodes)
    pairs = {
        kind: list(zip(subjects, unmet, strict=True))
        for (kind, subjects), unmet in zip(case.subjects.items(), prepared.unmet, strict=True)
    }
    rules = index.rules
    places: Iterable[int] = prepared.applicable
    if exercises:
        places = sorted({*places, *(place for place, rule in enumerate(rules) if rule.id in exercises)})
    run = ((place, rules[place]) for place in places)
    single = (
        {} if exercises else {kind: one for kind, many in pairs.items() if (one := _only_subject(many)) is not None}
    )
    return prepared, [
        (
            place,
            _run_on_one(rule, place, case, subject)
            if (subject := single.get(rule.subject)) is not None
            else _run_check(rule, place, case, pairs[rule.subject], exercises),
        )
        for place, rule in run
    ]


def _only_subject(pairs: Sequence[_SubjectUnmet]) -> _SubjectUnmet | None:
    """Return the subject and its unmet conditions if there is one alone, on which no condition raised an exception."""
    return pairs[0] if len(pairs) == 1 and applicability.CONDITION_RAISED not in pairs[0][0].condition_values else None


@lru_cache(maxsize=512)  # most exchanges of a log are alike
def _prepare_results(
    index: applicability.ConditionIndex,
    case: _CaseSummary,
    unmet_nodes: tuple[tuple[tuple[applicability.UnmetNode, ...], ...], ...],
) -> _PreparedResults:
    scenario, api, tries, is_rate_limited = case
    unmet_by_kind = tuple(tuple(map(applicability.unmet_rules, of_kind)) for of_kind in unmet_nodes)
    # after a rate limit, the reason is determined for each check separately
    unmet = {
        place: [conditions[place] for conditions in by_subject]
        for by_subject in (() if is_rate_limited else unmet_by_kind)
        for place in (by_subject[0] if by_subject else ())
        if all(place in conditions for conditions in by_subject)
    }
    results = tuple(
        Result(rule.id, rule.severity, rule.clause, scenario, api, Outcome.NOT_APPLICABLE, tries=tries, reason=reason)
        for place, rule in enumerate(index.rules)
        for reason in [_applies_to(unmet.get(place, ()))]
    )
    return _PreparedResults(
        results=results,
        applicable=tuple(place for place in range(len(results)) if place not in unmet),
        not_applicable=tuple(result for place, result in enumerate(results) if place in unmet),
        unmet=unmet_by_kind,
    )


def _applies_to(unmet: Iterable[applicability.AnyCondition]) -> str:
    return "applies to " + "; ".join(dict.fromkeys(needed.description for needed in unmet))


def _run_on_one(rule: Check | Comparison, place: int, case: ScenarioSeries, pair: _SubjectUnmet) -> Result:
    """Return what `_run_check` returns. Most results of a log are those of one subject that passes: these cost half as much here."""
    subject, unmet = pair
    run = rule.run
    try:
        has_passed = place not in unmet and not list(run(subject.exchange_or_series))  # type: ignore[arg-type]  # a check runs on subjects of its kind
    except BaseException as error:
        if not applicability.is_error_of_check(error):
            raise
        has_passed = False
    if not has_passed:
        return _run_check(rule, place, case, (pair,), frozenset())
    ids, evidence = subject.ids_and_evidence
    tries = len(case.series)
    return Result(
        rule.id, rule.severity, rule.clause, case.name, case.api, Outcome.PASS, ids, evidence, 1, 1, tries, (), ""
    )


def _run_check(
    rule: Check | Comparison,
    place: int,
    case: ScenarioSeries,
    pairs: Sequence[_SubjectUnmet],
    exercises: frozenset[str],
) -> Result:
    applied: list[JudgedSubject] = []
    findings: list[Finding] = []
    errors: list[str] = []
    failed = 0
    run = rule.run
    for subject, unmet in pairs:
        if place in unmet:
            continue
        applied.append(subject)
        try:
            if applicability.CONDITION_RAISED in subject.condition_values:
                rule.first_unmet(subject.exchange_or_series)  # type: ignore[arg-type]  # raises again if it is a condition of this check
            divergences = list(run(subject.exchange_or_series))  # type: ignore[arg-type]  # a check runs on subjects of its kind
        except BaseException as error:
            if not applicability.is_error_of_check(error):
                raise
            errors.append(_error_text(error))
            continue
        if divergences:
            findings += [_locate(finding, subject.exchanges) for finding in divergences]
            failed += any(finding.verdict is Verdict.FAIL for finding in divergences)
    is_exercised = rule.id in exercises
    reason = case.unplayed_reason if is_exercised else ""
    gone = _reasons_without_server(pairs, place) if is_exercised else []
    if errors:
        outcome, reason = Outcome.ERROR, errors[0]
    elif applied and (failed or not gone):
        outcome = Outcome.FAIL if failed else Outcome.VARIANT if findings else Outcome.PASS
    elif applied:
        outcome, reason = Outcome.INCONCLUSIVE, gone[0]
    else:
        try:
            outcome, reason = _explain_unapplied(case, pairs, place, exercised=is_exercised)
        except BaseException as error:
            if not applicability.is_error_of_check(error):
                raise
            outcome, reason = Outcome.ERROR, _error_text(error)
    exchanges, evidence = case.ids_and_evidence(tuple(applied))
    told, clause = with_clauses(findings, rule.clause, case.api) if failed else (findings, rule.clause)
    # positional, since keywords would double the cost
    return Result(
        rule.id,
        _severity(rule.severity, findings) if failed else rule.severity,
        clause,
        case.name,
        case.api,
        outcome,
        exchanges,
        evidence,
        len(applied) - failed - len(errors),
        len(applied),
        len(case.series),
        tuple(told),
        reason,
    )


def _severity(severity: Severity, findings: Iterable[Finding]) -> Severity:
    """Return the highest severity of the failures: that of the check, unless all of them have rulings."""
    of_rulings = {
        RULINGS[one.ruling].severity if one.ruling else severity for one in findings if one.verdict is Verdict.FAIL
    }
    return Severity.MUST if Severity.MUST in of_rulings else Severity.SHOULD


def _reasons_without_server(pairs: Sequence[_SubjectUnmet], place: int) -> list[str]:
    """Return the reasons why exchanges got no answer that a check could judge: the server was gone."""
    unmet = [x.failure for subject, conditions in pairs if place in conditions for x in subject.exchanges]
    return [one.detail for one in unmet if one is not None and one.kind is FailureKind.SERVER_GONE]


def _error_text(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.name}, line {frame.lineno})"


def _locate(finding: Finding, exchanges: tuple[Exchange, ...]) -> Finding:
    """Return the finding with its exchange, and with its choice if that is not the first."""
    if len(exchanges) != 1:
        return finding
    (x,) = exchanges
    where = f"choice {x.choice}: {finding.location}" if x.choice else finding.location
    return replace(finding, location=where, exchange=finding.exchange or x.id)


def _explain_unapplied(
    case: ScenarioSeries, pairs: Sequence[_SubjectUnmet], place: int, *, exercised: bool
) -> tuple[Outcome, str]:
    """Return the outcome of a check that applied to no subject, and the reason."""
    if case.rate_limited_ids:
        return Outcome.INCONCLUSIVE, f"rate limited: {case.rate_limited_ids[0]}"
    conditions = [unmet[place] for _, unmet in pairs]
    reason = _applies_to(conditions) if pairs else "nothing was sent"
    sent = [x for subject, _ in pairs for x in subject.exchanges]
    has_api_reason = all(needed in _API_CONDITIONS for needed in conditions)
    is_of_another_api = has_api_reason and all(x.api != CHAT_COMPLETIONS.name for x in sent)
    if not exercised or is_of_another_api:
        return Outcome.NOT_APPLICABLE, reason
    reasons = [_unmet_reason(unmet[place], subject) for subject, unmet in pairs]
    if UnmetReason.LIMIT in reasons:
        return Outcome.NOT_APPLICABLE, "the endpoint declares a limit: " + reason
    for x in sent:
        if x.failure is not None and x.failure.kind in _RUN_ENDED:
            return Outcome.INCONCLUSIVE, x.failure.detail
    unanswered = [
        x.id
        for x in sent
        if x.turn is None
        and x.api != METRICS
        and x.validity not in REFUSABLE_VALIDITIES
        and not (x.answered_by is AnsweredBy.RENDER and x.rendered_prompt is not None)
        and not _not_sent_reason(x)
        and SPLIT_IN_DOUBT not in x.script_not_played
    ]
    is_derendered = any(x.answered_by is AnsweredBy.DERENDER for x in sent)
    if unanswered and not (is_derendered and all(one is UnmetReason.EVIDENCE for one in reasons)):
        return Outcome.INCONCLUSIVE, f"no usable answer to {unanswered[0]} (see errors.valid_request_is_answered)"
    if case.unplayed_reason and (UnmetReason.EVIDENCE not in reasons or all(x.script_not_played for x in sent)):
        return Outcome.INCONCLUSIVE, case.unplayed_reason
    unscripted = [detail for x in sent if (detail := _not_sent_reason(x) or x.script_not_played)]
    if unscripted:
        return Outcome.NOT_APPLICABLE, unscripted[0]
    if UnmetReason.EVIDENCE in reasons:
        return Outcome.NOT_APPLICABLE, NOT_ENOUGH_EVIDENCE + reason
    return Outcome.INCONCLUSIVE, "the endpoint did not do what the scenario asks for: " + reason


def _unmet_reason(unmet: applicability.AnyCondition, subject: JudgedSubject) -> UnmetReason:
    """Return the reason of an unmet condition: `EVIDENCE` if it would hold for an answer of the API itself."""
    sources = {x.answered_by for x in subject.exchanges}
    if sources <= {AnsweredBy.API}:
        return unmet.unmet_reason
    target = subject.exchange_or_series
    if isinstance(target, Series):
        exchanges = {step: replace(x, answered_by=AnsweredBy.API) for step, x in target.exchanges.items()}
        target = replace(target, exchanges=exchanges)
    else:
        target = replace(target, answered_by=AnsweredBy.API)
    return UnmetReason.EVIDENCE if sources == {AnsweredBy.RENDER} or unmet.holds(target) else unmet.unmet_reason  # type: ignore[arg-type]


def _not_sent_reason(x: Exchange) -> str:
    """Return the reason why the client did not send a request, empty if it did."""
    return x.failure.detail if x.failure is not None and x.failure.kind is FailureKind.NOT_SENT else ""


def run_outcome(results: Iterable[Result], fails_on: frozenset[Severity]) -> Outcome:
    """Return the outcome of a run: error, fail (at the severities in `fails_on`), or pass."""
    outcomes = {one.outcome for one in results if one.outcome is Outcome.ERROR or one.severity in fails_on}
    return next((outcome for outcome in (Outcome.ERROR, Outcome.FAIL) if outcome in outcomes), Outcome.PASS)


def is_comparison(rule: Check | Comparison) -> bool:
    """Return True for a check that judges a whole series."""
    return rule.subject is Series

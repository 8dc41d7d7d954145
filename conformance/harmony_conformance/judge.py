"""Judging: series and checks in, results out. Pure; the only place where a verdict becomes an outcome.

An exception of a check is an `error` result of that check: our fault, counted, never an endpoint's.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from harmony_conformance.apis import CHAT_COMPLETIONS
from harmony_conformance.check import Check, Comparison, Condition, Finding, Ground, Outcome, Severity, Verdict
from harmony_conformance.conditions import ODD, is_chat
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


def judge(
    series: Sequence[Series], checks: Iterable[Check | Comparison], exercises: frozenset[str] = frozenset()
) -> Iterator[Result]:
    """Results of every check on one scenario, given the series of all its tries.

    `exercises` names the checks that the scenario was made for: where one of them does not apply because the model or the endpoint did something else,
    the outcome is inconclusive, not "not applicable".
    """
    for rule in checks:
        yield judge_one(rule, series, exercised=rule.id in exercises)


def judge_one(rule: Check | Comparison, series: Sequence[Series], *, exercised: bool) -> Result:
    """The result of one check on the series of a scenario."""
    if rule.subject is Series:
        trials = [_try(rule, one, tuple(one.exchanges.values())) for one in series]
    else:
        trials = [
            _try(rule, x, (x,)) for one in series for whole in one.exchanges.values() for x in (whole, *whole.others)
        ]
    applied = [trial for trial in trials if trial.applied]
    findings = tuple(finding for trial in applied for finding in trial.findings)
    outcome, reason = _outcome(applied, findings, trials, exercised=exercised)
    seen = [x for trial in applied for x in trial.exchanges]
    return Result(
        check=rule.id,
        severity=rule.severity,
        clause=rule.clause,
        scenario=series[0].name if series else "",
        api=series[0].api if series else "chat",
        outcome=outcome,
        exchanges=tuple(dict.fromkeys(x.id for x in seen)),
        evidence=tuple(sorted({name for x in seen for name in _evidence(x)})),
        passed=sum(trial.passed for trial in applied),
        applied=len(applied),
        tries=len(series),
        findings=findings,
        reason=reason,
    )


def _evidence(x: Exchange) -> Iterator[str]:
    yield f"prompt: {x.prompt.level}"
    yield f"output: {x.output.level}"
    if x.together is not None:
        yield f"side by side: {x.together}"


@dataclass(frozen=True, kw_only=True)
class _Trial:
    exchanges: tuple[Exchange, ...]
    unmet: str = ""
    ground: Ground = Ground.BEHAVIOUR
    findings: tuple[Finding, ...] = ()
    error: str = ""

    @property
    def applied(self) -> bool:
        return not self.unmet

    @property
    def passed(self) -> bool:
        return not self.error and not any(finding.verdict is Verdict.FAIL for finding in self.findings)


def _try(rule: Check | Comparison, subject: Exchange | Series, exchanges: tuple[Exchange, ...]) -> _Trial:
    try:
        unmet = _unmet(rule, subject)
        if unmet is not None:
            return _Trial(exchanges=exchanges, unmet=unmet.about, ground=_ground(unmet, subject, exchanges))
        own, choice = (exchanges[0].id, exchanges[0].choice) if len(exchanges) == 1 else ("", 0)
        findings = tuple(_placed(finding, own, choice) for finding in _run(rule, subject))
    except Exception as error:  # noqa: BLE001 - whatever a check raises is our error, and is reported as one
        where = traceback.extract_tb(error.__traceback__)[-1]
        return _Trial(exchanges=exchanges, error=f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")
    return _Trial(exchanges=exchanges, findings=findings)


def _placed(finding: Finding, exchange: str, choice: int) -> Finding:
    """The finding with the exchange it is about, and with the choice where that is not the first."""
    where = f"choice {choice}: {finding.at}" if choice else finding.at
    return replace(finding, at=where, exchange=finding.exchange or exchange)


def _unmet(rule: Check | Comparison, subject: Exchange | Series) -> Condition[Exchange] | Condition[Series] | None:
    return rule.unmet(subject)  # type: ignore[arg-type]


def _ground(
    unmet: Condition[Exchange] | Condition[Series], subject: Exchange | Series, exchanges: Sequence[Exchange]
) -> Ground:
    """Why a condition does not hold. Where it would, had the API itself answered, the endpoint just does not show it."""
    if exchanges and all(x.answered_by is AnsweredBy.RENDER for x in exchanges):
        return Ground.EVIDENCE
    if all(x.answered_by is AnsweredBy.API for x in exchanges):
        return unmet.ground
    return Ground.EVIDENCE if unmet.holds(_served(subject)) else unmet.ground  # type: ignore[arg-type]


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
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        return Outcome.FAIL, ""
    if findings:
        return Outcome.VARIANT, ""
    if applied:
        return Outcome.PASS, ""
    limited = [
        x.id
        for trial in trials
        for x in trial.exchanges
        if x.failure is not None and x.failure.kind is FailureKind.RATE_LIMITED
    ]
    if limited:
        return Outcome.INCONCLUSIVE, f"rate limited: {limited[0]}"
    reason = "applies to " + "; ".join(dict.fromkeys(trial.unmet for trial in trials)) if trials else "nothing was sent"
    if not exercised:
        return Outcome.NOT_APPLICABLE, reason
    if all(trial.unmet == is_chat.about for trial in trials) and all(
        x.api != CHAT_COMPLETIONS.name for trial in trials for x in trial.exchanges
    ):
        return Outcome.NOT_APPLICABLE, reason  # made for another API than this one
    if any(trial.ground is Ground.LIMIT for trial in trials):
        return Outcome.NOT_APPLICABLE, "the endpoint declares a limit: " + reason
    sent = [x for trial in trials for x in trial.exchanges]
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


def _wants_an_answer(x: Exchange) -> bool:
    was_only_shown = x.answered_by is AnsweredBy.RENDER and x.rendered is not None
    return x.api != METRICS and x.validity not in ODD and not was_only_shown and not _kept_back(x)


def _kept_back(x: Exchange) -> str:
    """Why we did not send it, empty where we did."""
    return x.failure.detail if x.failure is not None and x.failure.kind is FailureKind.NOT_SENT else ""


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

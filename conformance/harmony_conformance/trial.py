"""One check tried on one exchange or series, and what its trials come to. Pure; the only place where a verdict becomes an outcome, but for plain ones.

An exception of a check is an error of that check: our fault, counted, never an endpoint's.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from harmony_conformance.agenda import Unmet
from harmony_conformance.apis import CHAT_COMPLETIONS
from harmony_conformance.check import Check, Comparison, Finding, Ground, Outcome, Verdict
from harmony_conformance.conditions import ODD, is_chat, is_completion, is_told_when_done
from harmony_conformance.exchange import AnsweredBy, Exchange, Series
from harmony_conformance.gauge import API as METRICS
from harmony_conformance.once import cached_property
from harmony_conformance.wire import FailureKind


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
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


def applies_to(unmet: Iterable[str]) -> str:
    """What a check applies to, of all that was missing."""
    return "applies to " + "; ".join(dict.fromkeys(unmet))


def _evidence(x: Exchange) -> Iterator[str]:
    yield f"prompt: {x.prompt.level}"
    yield f"output: {x.output.level}"
    if x.together is not None:
        yield f"side by side: {x.together}"


class Trial(NamedTuple):
    """What came of trying a check: what it lacks where it does not apply, and why; else its findings, or the error that it raised."""

    subject: Subject
    unmet: str = ""
    ground: Ground = Ground.BEHAVIOUR
    findings: tuple[Finding, ...] = ()
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether the check found nothing that is a failure."""
        return not self.error and not (self.findings and has_failure(self.findings))


def has_failure(findings: Iterable[Finding]) -> bool:
    """Whether one of them is a failure, and no variant."""
    return any(finding.verdict is Verdict.FAIL for finding in findings)


def tried(rule: Check | Comparison, subject: Subject) -> Trial:
    """Try a check."""
    try:
        unmet = _unmet(rule, subject)
        if unmet is not None:
            return Trial(subject=subject, unmet=unmet.about, ground=_ground(unmet, subject))
        findings = placed(run(rule, subject.whole), subject)
    except Exception as error:  # noqa: BLE001 - whatever a check raises is our error, and is reported as one
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Trial(subject=subject, error=f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")
    return Trial(subject=subject, findings=findings)


def placed(findings: Iterable[Finding], subject: Subject) -> tuple[Finding, ...]:
    """The findings, each with the exchange and the choice that it is about."""
    exchanges = subject.exchanges
    own, choice = (exchanges[0].id, exchanges[0].choice) if len(exchanges) == 1 else ("", 0)
    return tuple([_with_place(finding, own, choice) for finding in findings])


def _with_place(finding: Finding, exchange: str, choice: int) -> Finding:
    """The finding with the exchange it is about, and with the choice where that is not the first."""
    where = f"choice {choice}: {finding.at}" if choice else finding.at
    return replace(finding, at=where, exchange=finding.exchange or exchange)


def _unmet(rule: Check | Comparison, subject: Subject) -> Unmet | None:
    return rule.unmet(subject.whole, subject.known)  # type: ignore[arg-type]


def _ground(unmet: Unmet, subject: Subject) -> Ground:
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


def run(rule: Check | Comparison, subject: Exchange | Series) -> Iterator[Finding]:
    """The findings of a check that applies."""
    return rule.run(subject)  # type: ignore[arg-type]


def outcome_of(
    applied: Sequence[Trial], findings: Sequence[Finding], trials: Sequence[Trial], *, exercised: bool
) -> tuple[Outcome, str]:
    """What the trials of a check come to, and why where it did not apply. `applied`: those of them where it did."""
    errors = [trial.error for trial in applied if trial.error]
    if errors:
        return Outcome.ERROR, errors[0]
    if findings and has_failure(findings):
        return Outcome.FAIL, ""
    if findings:
        return Outcome.VARIANT, ""
    if applied:
        return Outcome.PASS, ""
    limited = [name for trial in trials for name in trial.subject.refused]
    if limited:
        return Outcome.INCONCLUSIVE, f"rate limited: {limited[0]}"
    reason = applies_to(trial.unmet for trial in trials) if trials else "nothing was sent"
    if not exercised:
        return Outcome.NOT_APPLICABLE, reason
    if all(trial.unmet in _OF_ONE_API for trial in trials) and all(
        x.api != CHAT_COMPLETIONS.name for trial in trials for x in trial.subject.exchanges
    ):
        return Outcome.NOT_APPLICABLE, reason  # made for another API than this one
    if any(trial.ground is Ground.LIMIT for trial in trials):
        return Outcome.NOT_APPLICABLE, "the endpoint declares a limit: " + reason
    sent = [x for trial in trials for x in trial.subject.exchanges]
    turned_away = [x.failure.detail for x in sent if x.failure is not None and x.failure.kind is _TURNED_AWAY]
    if turned_away:
        return Outcome.INCONCLUSIVE, turned_away[0]
    unanswered = [x.id for x in sent if x.turn is None and _wants_an_answer(x)]
    only_shown = any(x.answered_by is AnsweredBy.DERENDER for x in sent)
    if unanswered and not (only_shown and all(trial.ground is Ground.EVIDENCE for trial in trials)):
        return Outcome.INCONCLUSIVE, f"no usable answer to {unanswered[0]} (see errors.valid_request_is_answered)"
    unscripted = [why for x in sent if (why := _kept_back(x) or x.unplayed)]
    if unscripted:
        return Outcome.NOT_APPLICABLE, unscripted[0]
    if any(trial.ground is Ground.EVIDENCE for trial in trials):
        return Outcome.NOT_APPLICABLE, NOT_SHOWN + reason
    return Outcome.INCONCLUSIVE, "the endpoint did not do what the scenario asks for: " + reason


NOT_SHOWN = "not enough evidence: "
"""How the reason begins where an endpoint does not show what a check looks at."""
_TURNED_AWAY = FailureKind.ACCESS_REFUSED
_OF_ONE_API = (is_chat.about, is_completion.about, is_told_when_done.about)


def _wants_an_answer(x: Exchange) -> bool:
    was_only_shown = x.answered_by is AnsweredBy.RENDER and x.rendered is not None
    return x.api != METRICS and x.validity not in ODD and not was_only_shown and not _kept_back(x)


def _kept_back(x: Exchange) -> str:
    """Why we did not send it, empty where we did."""
    return x.failure.detail if x.failure is not None and x.failure.kind is FailureKind.NOT_SENT else ""

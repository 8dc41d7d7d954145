"""Causes of the failures of a log: known defects of the engines that answered, and defects whose failures fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from harmony_conformance.audit.tallies import CheckTally, Tally
from harmony_conformance.causes.attribution import find_causes
from harmony_conformance.causes.cause import Cause
from harmony_conformance.causes.known import KnownCause, causes_of_version
from harmony_conformance.causes.signatures import FailureKey, Signature, message_kind, read_signatures
from harmony_conformance.engines.answer_signature import FINGERPRINTS
from harmony_conformance.judge.check import Check, Comparison, Finding, Outcome
from harmony_conformance.judge.judge import Result
from harmony_conformance.plugins.registry import all_checks, plugin_of
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.reference_server.defects.stages import OnWebSocket

SCENARIO = "traffic"
_WEBSOCKET_CHECKS = "responses.websocket_"
"""The beginning of the names of checks that judge WebSocket connections alone."""
_USUAL = 0.5
"""The smallest share of the steps, or of the exchanges, in which a usual failure of a defect occurs."""


def log_causes(tally: Tally) -> tuple[Cause, ...]:
    """Return the causes of the failures of a log, by the examples of each check.

    A log does not know which scenario an exchange is like. So signatures are compared by check and message alone.
    """
    places: list[str] = []
    results = [
        result for rule in all_checks() for result in _results(rule, tally.checks.get(rule.id, CheckTally()), places)
    ]
    if not places:  # reading the signatures takes a third of a second
        return ()
    broken = _broken(results, places)
    known = list(_known(tally.groups.get("engine", {})))
    whole, cut = ([_only(one, places, broken, is_broken=is_broken) for one in results] for is_broken in (False, True))
    signatures = _signatures([one for one in whole if plugin_of(one.check) is None])
    found = (*find_causes(whole, signatures=signatures, known=known), *find_causes(cut, signatures={}, known=known))
    return tuple(
        replace(cause, example=replace(cause.example, exchange=places[int(cause.example.exchange)])) for cause in found
    )


def _broken(results: Iterable[Result], places: Sequence[str]) -> frozenset[str]:
    """Return the places of exchanges without a whole answer. What they lack is no likeness to a defect of the server."""
    return frozenset(
        places[int(finding.exchange)]
        for result in results
        for finding in result.findings
        if result.check == _NO_ANSWER.check and message_kind(finding.message).startswith(_NO_ANSWER.message)
    )


def _only(result: Result, places: Sequence[str], broken: frozenset[str], *, is_broken: bool) -> Result:
    """Return a result with the findings of the broken exchanges alone, or of the others."""
    found = (one for one in result.findings if (places[int(one.exchange)] in broken) is is_broken)
    return result._replace(findings=tuple(found))


def _results(rule: Check | Comparison, tallied: CheckTally, places: list[str]) -> Iterator[Result]:
    """Yield the result of a check that judged something. An exchange is its number in `places`: a path would be read as a step."""
    judged = {outcome: tallied.counts.get(outcome, 0) for outcome in (Outcome.PASS, Outcome.VARIANT, Outcome.FAIL)}
    applied = sum(judged.values())
    if not applied:
        return
    findings: list[Finding] = []
    for example in tallied.examples:
        for finding in example.findings if example.outcome is Outcome.FAIL else ():
            findings.append(replace(finding, exchange=str(len(places))))
            places.append(finding.exchange)
    yield Result(
        check=rule.id,
        severity=rule.severity,
        clause=rule.clause,
        scenario=SCENARIO,
        api="chat",
        outcome=Outcome.FAIL if judged[Outcome.FAIL] else Outcome.PASS,
        passed=applied - judged[Outcome.FAIL],
        applied=applied,
        findings=tuple(findings),
    )


class _Kind(NamedTuple):
    """A check, and a message without its values: a failure as a log shows it, without scenario and step."""

    check: str
    message: str


_NO_ANSWER = _Kind("errors.valid_request_is_answered", "the exchange failed (")
"""The check, and the beginning of its message, of an exchange that was cut, had no connection or the like."""


@dataclass(frozen=True, kw_only=True)
class _Defect:
    """The failures of a defect in a run with it.

    Attributes:
        steps: The number of steps of scenarios that it makes fail. A defect with few of them needs a condition that is rare.
        kinds: The kinds of failures by level.
        usual: The kinds that occur in most of these steps.
    """

    steps: int
    kinds: Mapping[str, frozenset[_Kind]]
    usual: frozenset[_Kind]

    def seen(self, kinds: frozenset[_Kind]) -> frozenset[_Kind]:
        """Return those of the kinds that the defect explains."""
        return kinds & frozenset[_Kind]().union(*self.kinds.values())


@cache
def _defects() -> Mapping[str, _Defect]:
    return {name: _defect(levels) for name, levels in read_signatures().items()}


def _defect(levels: Mapping[str, frozenset[FailureKey]]) -> _Defect:
    steps: dict[_Kind, set[tuple[str, str]]] = {}
    for one in frozenset[FailureKey]().union(*levels.values()):
        steps.setdefault(_Kind(one.check, one.message), set()).add((one.scenario, one.step))
    count = len(set[tuple[str, str]]().union(*steps.values()))
    return _Defect(
        steps=count,
        kinds={level: frozenset(_Kind(one.check, one.message) for one in found) for level, found in levels.items()},
        usual=frozenset(kind for kind, of_kind in steps.items() if len(of_kind) >= _USUAL * count),
    )


def _signatures(results: Sequence[Result]) -> Mapping[str, Signature]:
    """Return the signatures of the defects that a log can show.

    A log does not say which conditions its requests meet. So the defect that explains all failures is preferred, if its usual failures
    occur in most exchanges and no other defect explains as much. Otherwise a defect is left out if one of more steps explains the same.
    """
    kinds = frozenset(
        _Kind(result.check, message_kind(finding.message)) for result in results for finding in result.findings
    )
    failed = {one.check: (one.applied - one.passed) / one.applied for one in results}
    has_websocket = any(one.check.startswith(_WEBSOCKET_CHECKS) for one in results)
    seen = {
        name: found
        for name, defect in _defects().items()
        if (found := defect.seen(kinds)) and (has_websocket or not isinstance(DEFECTS[name].change, OnWebSocket))
    }
    if whole := [name for name, found in seen.items() if found == kinds]:
        return {name: {"log": _keys(kinds)} for name in _likeliest(whole, failed, kinds)}
    return {
        name: {level: _keys(found) for level, found in _defects()[name].kinds.items()}
        for name in seen
        if not any(seen[name] <= seen[other] and _defects()[other].steps > _defects()[name].steps for other in seen)
    }


def _likeliest(names: Sequence[str], failed: Mapping[str, float], kinds: frozenset[_Kind]) -> Sequence[str]:
    """Return the defect whose usual failures occur in most exchanges, none if several are likely."""
    usual = {name: [kind for kind in _defects()[name].usual if kind.check in failed] for name in names}
    fitting = [
        name
        for name, expected in usual.items()
        if expected and all(kind in kinds and failed[kind.check] >= _USUAL for kind in expected)
    ]
    fitting.sort(key=lambda name: -_defects()[name].steps)
    first = fitting[:1]
    return first if all(2 * _defects()[name].steps <= _defects()[first[0]].steps for name in fitting[1:]) else []


def _keys(kinds: Iterable[_Kind]) -> frozenset[FailureKey]:
    return frozenset(FailureKey(kind.check, SCENARIO, "", kind.message) for kind in kinds)


def _known(fingerprints: Iterable[str]) -> Iterable[KnownCause]:
    named = {
        (engine, found[1] or "")
        for fingerprint in fingerprints
        for engine, form in FINGERPRINTS.items()
        if (found := form.match(fingerprint))
    }
    causes = (cause for engine, version in sorted(named) for cause in causes_of_version(engine, version))
    return {cause.id: cause for cause in causes}.values()

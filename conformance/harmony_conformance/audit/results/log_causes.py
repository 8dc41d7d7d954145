"""Causes of the failures of a log: known defects of the engines that answered, and defects whose failures fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from harmony_conformance.audit.tallies import CheckTally, Tally
from harmony_conformance.causes.attribution import find_causes
from harmony_conformance.causes.cause import Cause
from harmony_conformance.causes.known import KnownCause, causes_of_version
from harmony_conformance.causes.signatures import FailureKey, Signature, read_signatures
from harmony_conformance.checks import CHECKS
from harmony_conformance.engines.answer_signature import FINGERPRINTS
from harmony_conformance.judge.check import Check, Comparison, Finding, Outcome
from harmony_conformance.judge.judge import Result

SCENARIO = "traffic"


def log_causes(tally: Tally) -> tuple[Cause, ...]:
    """Return the causes of the failures of a log, by the examples of each check.

    A log does not know which scenario an exchange is like. So signatures are compared by check and message alone, and fit if most of
    their kinds of failures occur in the log.
    """
    places: list[str] = []
    results = [result for rule in CHECKS for result in _results(rule, tally.checks.get(rule.id, CheckTally()), places)]
    if not places:  # reading the signatures takes a third of a second
        return ()
    found = find_causes(results, signatures=_signatures(), known=list(_known(tally.groups.get("engine", {}))))
    return tuple(
        replace(cause, example=replace(cause.example, exchange=places[int(cause.example.exchange)])) for cause in found
    )


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


@cache
def _signatures() -> Mapping[str, Signature]:
    """Return the signatures of defects as a log shows them: without scenario and step."""
    return {
        defect: {
            level: frozenset(FailureKey(one.check, SCENARIO, "", one.message) for one in failures)
            for level, failures in levels.items()
        }
        for defect, levels in read_signatures().items()
    }


def _known(fingerprints: Iterable[str]) -> Iterable[KnownCause]:
    named = {
        (engine, found[1] or "")
        for fingerprint in fingerprints
        for engine, form in FINGERPRINTS.items()
        if (found := form.match(fingerprint))
    }
    causes = (cause for engine, version in sorted(named) for cause in causes_of_version(engine, version))
    return {cause.id: cause for cause in causes}.values()

"""Verdicts of the checks on an exchange, complete or partial. The proxy has no other source for failures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.check import Check, Finding, Outcome, Severity, Verdict
from harmony_conformance.judge.judge import Result, is_comparison, judge_exchange
from harmony_conformance.judge.rulings import RULINGS
from harmony_proxy.repair.answer.strict_leaks import find_unexplained_leaks

_ALONE: Mapping[str, Check] = MappingProxyType({rule.id: rule for rule in CHECKS if not is_comparison(rule)})  # type: ignore[misc]
_MUST: Mapping[str, Check] = MappingProxyType(
    {name: rule for name, rule in _ALONE.items() if rule.severity is Severity.MUST}
)


class CheckError(Exception):
    """A check that is repaired or blocked raised an exception."""


def run_checks(x: Exchange, checks: Collection[str] | None = None) -> tuple[Result, ...]:
    """Return the results of the named checks, by default of all checks.

    Raises:
        CheckError: a named check raised, so nothing is known about what it protects.
    """
    rules = _ALONE.values() if checks is None else [_ALONE[name] for name in checks if name in _ALONE]
    results = tuple(judge_exchange(x, rules))
    broken = next((result for result in results if result.outcome is Outcome.ERROR), None)
    if checks is not None and broken is not None:
        raise CheckError(f"{broken.check} raised an exception")
    return results


def failures_of_results(results: Iterable[Result]) -> Mapping[str, tuple[Finding, ...]]:
    """Return the failed MUST checks with their failing findings."""
    return {
        result.check: without_duplicates(
            result.check, [finding for finding in result.findings if finding.verdict is Verdict.FAIL]
        )
        for result in results
        if result.outcome is Outcome.FAIL and result.severity is Severity.MUST
    }


def find_failures(
    x: Exchange, checks: Collection[str] | None = None, blocked: Collection[str] = ()
) -> Mapping[str, tuple[Finding, ...]]:
    """Return those of these MUST checks that fail, with their findings. Streams call it often, so it builds no full results.

    `blocked` are the checks that are read more strictly, because they block (see `strict_leaks`).
    An exception of a named check is raised: it protects nothing. Without names, a check that raises counts as one that does not fail.
    """
    rules = _MUST.values() if checks is None else [_MUST[name] for name in checks if name in _MUST]
    exchanges = (x, *x.other_choices)
    failures = {
        rule.id: [finding for one in exchanges for finding in _failures(rule, one, is_named=checks is not None)]
        for rule in rules
    }
    for check in blocked:
        if failures.get(check) == []:
            failures[check] = list(find_unexplained_leaks(x, check))
    return {
        check: without_duplicates(check, findings)
        for check, findings in failures.items()
        if any(not one.ruling or RULINGS[one.ruling].severity is Severity.MUST for one in findings)
    }


def without_duplicates(check: str, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings without duplicates of other choices.

    A leak check reads all choices at once, and each further choice alone. A finding in a further choice is thus reported twice,
    the second time as one of the first choice.
    """
    findings = tuple(findings)
    if check not in _OF_ALL_CHOICES:
        return findings
    duplicates = Counter(_identity(one) for one in findings if _CHOICE.match(one.location))
    own: list[Finding] = []
    for one in findings:
        if _CHOICE.match(one.location) is None and duplicates[_identity(one)]:
            duplicates[_identity(one)] -= 1
        else:
            own.append(one)
    return tuple(own)


def choice_of(finding: Finding) -> int:
    """Return the index of the choice that a finding refers to."""
    match = _CHOICE.match(finding.location)
    return int(match[1]) if match is not None else 0


def _identity(finding: Finding) -> tuple[str, str, str | None]:
    return finding.message, _CHOICE.sub("", finding.location), finding.excerpt


_CHOICE = re.compile(r"\Achoice (\d+): ")
_OF_ALL_CHOICES = frozenset(
    {"channels.no_marker_leak", "channels.no_channel_words", "channels.no_reasoning_in_content"}
)


def _failures(rule: Check, x: Exchange, *, is_named: bool) -> Iterator[Finding]:
    """Yield the failing findings of a check."""
    try:
        findings = list(rule.run(x)) if rule.first_unmet(x) is None else []
    except Exception:
        if is_named:
            raise
        return
    prefix = f"choice {x.choice}: " if x.choice else ""
    yield from (replace(one, location=prefix + one.location) for one in findings if one.verdict is Verdict.FAIL)

"""What the checks say of an exchange, as far as it is there. The only place from which the proxy knows that something fails."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.check import Check, Finding, Outcome, Severity, Verdict
from harmony_conformance.judge.judge import Result, is_comparison, judge_alone

_ALONE: Mapping[str, Check] = MappingProxyType({rule.id: rule for rule in CHECKS if not is_comparison(rule)})  # type: ignore[misc]
_MUST: Mapping[str, Check] = MappingProxyType(
    {name: rule for name, rule in _ALONE.items() if rule.severity is Severity.MUST}
)


def judged(x: Exchange, checks: Collection[str] | None = None) -> tuple[Result, ...]:
    """The results of these checks, of all where none are named."""
    rules = _ALONE.values() if checks is None else [_ALONE[name] for name in checks if name in _ALONE]
    return tuple(judge_alone(x, rules))


def failing(results: Iterable[Result]) -> Mapping[str, tuple[Finding, ...]]:
    """The checks that fail with what the guide or an API demands, and what they found."""
    return {
        result.check: of_their_choice(
            result.check, [finding for finding in result.findings if finding.verdict is Verdict.FAIL]
        )
        for result in results
        if result.outcome is Outcome.FAIL and result.severity is Severity.MUST
    }


def fails(x: Exchange, checks: Collection[str] | None = None) -> Mapping[str, tuple[Finding, ...]]:
    """Which of these checks fail, and what they found: the same without the rest of a result, for streams, which ask often."""
    rules = _MUST.values() if checks is None else [_MUST[name] for name in checks if name in _MUST]
    exchanges = (x, *x.other_choices)
    found = {rule.id: [finding for one in exchanges for finding in _found(rule, one)] for rule in rules}
    return {check: of_their_choice(check, findings) for check, findings in found.items() if findings}


def of_their_choice(check: str, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, each under the choice that it is of.

    A check of leaks looks at all choices at once, and at each of the further ones alone: what it finds in one of those is told a second time, as of the first.
    """
    findings = tuple(findings)
    if check not in _OF_ALL_CHOICES:
        return findings
    twice = Counter(_told(one) for one in findings if _CHOICE.match(one.at))
    own: list[Finding] = []
    for one in findings:
        if _CHOICE.match(one.at) is None and twice[_told(one)]:
            twice[_told(one)] -= 1
        else:
            own.append(one)
    return tuple(own)


def choice_of(finding: Finding) -> int:
    """Which choice it is of."""
    found = _CHOICE.match(finding.at)
    return int(found[1]) if found is not None else 0


def _told(finding: Finding) -> tuple[str, str, str | None]:
    return finding.message, _CHOICE.sub("", finding.at), finding.excerpt


_CHOICE = re.compile(r"\Achoice (\d+): ")
_OF_ALL_CHOICES = frozenset(
    {"channels.no_marker_leak", "channels.no_channel_words", "channels.no_reasoning_in_content"}
)


def _found(rule: Check, x: Exchange) -> Iterator[Finding]:
    """What a check finds that fails; nothing where it can not be asked, which is our fault and no one else's."""
    try:
        findings = list(rule.run(x)) if rule.first_unmet(x) is None else []
    except Exception:  # noqa: BLE001 - a check that breaks proves nothing
        return
    before = f"choice {x.choice}: " if x.choice else ""
    yield from (replace(one, at=before + one.at) for one in findings if one.verdict is Verdict.FAIL)

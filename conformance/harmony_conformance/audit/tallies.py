"""Tallies of judged exchanges: pure, in any order. Tallies of the parts of a log add up to the tally of the log.

Each line is judged alone, so comparisons of several exchanges are not applicable; `run replay:` judges them for a recorded run.
Memory is bounded: counts, and the first examples of each check by file and offset.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from harmony_conformance.audit.rates.groups import GroupCounter, Groups, GroupTally, add_each, add_groups
from harmony_conformance.audit.readers.records.record import CountedExchange
from harmony_conformance.evidence.file_lines import LinePosition, UnreadableLine
from harmony_conformance.judge.check import Finding, Outcome, Severity
from harmony_conformance.judge.judge import Result

Key = TypeVar("Key", bound=str)
Value = TypeVar("Value")

MAX_EXAMPLES = 10
"""Maximum examples of each check and outcome."""

_FINDINGS = 5
_MOST_ASIDES = 256
_PLACE = attrgetter("place")
_WITH_EXAMPLES = frozenset({Outcome.FAIL, Outcome.VARIANT, Outcome.ERROR})


@dataclass(frozen=True, kw_only=True)
class FindingExample:
    """An exchange with findings of a check, at most five of them."""

    place: LinePosition
    outcome: Outcome
    findings: tuple[Finding, ...]
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckTally:
    """Results of one check over all exchanges.

    Attributes:
        counts: Exchanges by outcome.
        reasons: Exchanges by the reason why the check was not applicable.
        evidence: Evidence that the results depend on.
        examples: The first examples of each outcome.
    """

    counts: Mapping[Outcome, int] = field(default_factory=dict[Outcome, int])
    reasons: Mapping[str, int] = field(default_factory=dict[str, int])
    evidence: frozenset[str] = frozenset()
    examples: tuple[FindingExample, ...] = ()

    def __add__(self, other: CheckTally) -> CheckTally:
        """Return the sum."""
        return CheckTally(
            counts=add_each(self.counts, other.counts),
            reasons=add_each(self.reasons, other.reasons),
            evidence=self.evidence if other.evidence <= self.evidence else self.evidence | other.evidence,
            examples=_first_examples((*self.examples, *other.examples)) if other.examples else self.examples,
        )


@dataclass(frozen=True, kw_only=True)
class CountedLines:
    """Exchanges without content, counted by the outcomes in the log of the proxy.

    Attributes:
        exchanges: Number of exchanges.
        checks: Exchanges whose line names the check, by check id. A line does not name the checks that passed.
        outcomes: Exchanges times checks that no line names, by outcome.
    """

    exchanges: int = 0
    checks: Mapping[str, int] = field(default_factory=dict[str, int])
    outcomes: Mapping[Outcome, int] = field(default_factory=dict[Outcome, int])

    def __add__(self, other: CountedLines) -> CountedLines:
        """Return the sum."""
        return CountedLines(
            exchanges=self.exchanges + other.exchanges,
            checks=add_each(self.checks, other.checks),
            outcomes=add_each(self.outcomes, other.outcomes),
        )


@dataclass(frozen=True, kw_only=True)
class LineProblems:
    """Lines with the same kind of problem: their number, and position and detail of the first ones."""

    count: int
    examples: tuple[tuple[LinePosition, str], ...]

    def __add__(self, other: LineProblems) -> LineProblems:
        """Return the sum."""
        return LineProblems(
            count=self.count + other.count, examples=tuple(nsmallest(MAX_EXAMPLES, (*self.examples, *other.examples)))
        )


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Results of a log, or of a part of it. `+` is associative and commutative, with `Tally()` as neutral element.

    Attributes:
        exchanges: Number of judged exchanges.
        discovery_exchanges: Number of exchanges of discovery, which are not judged.
        checks: Results by check id.
        unreadable_by_kind: Unreadable lines by kind.
        errors_by_kind: Lines that were not judged because of an internal error, by kind.
        groups: Exchanges by model, day and the like.
        passed_over: Number of records that the plan did not judge.
        counted: The exchanges without content, which are in the other members too.
    """

    exchanges: int = 0
    discovery_exchanges: int = 0
    checks: Mapping[str, CheckTally] = field(default_factory=dict[str, CheckTally])
    unreadable_by_kind: Mapping[str, LineProblems] = field(default_factory=dict[str, LineProblems])
    errors_by_kind: Mapping[str, LineProblems] = field(default_factory=dict[str, LineProblems])
    groups: Groups = field(default_factory=dict[str, Mapping[str, GroupTally]])
    passed_over: int = 0
    counted: CountedLines = field(default_factory=CountedLines)

    def __add__(self, other: Tally) -> Tally:
        """Return the sum."""
        return Tally(
            exchanges=self.exchanges + other.exchanges,
            discovery_exchanges=self.discovery_exchanges + other.discovery_exchanges,
            checks=add_each(self.checks, other.checks),
            unreadable_by_kind=add_each(self.unreadable_by_kind, other.unreadable_by_kind),
            errors_by_kind=add_each(self.errors_by_kind, other.errors_by_kind),
            groups=add_groups(self.groups, other.groups),
            passed_over=self.passed_over + other.passed_over,
            counted=self.counted + other.counted,
        )

    @property
    def unreadable(self) -> int:
        """Number of unreadable lines."""
        return sum(unread.count for unread in self.unreadable_by_kind.values())

    @property
    def errors(self) -> int:
        """Number of lines that were not judged because of an internal error."""
        return sum(failed.count for failed in self.errors_by_kind.values())


@dataclass(frozen=True, kw_only=True)
class JudgedExchange:
    """Position and results of an exchange of a log.

    `shared_results` has results of checks that do not apply, in tuples that many exchanges share. Other such results are in `results`.
    `source` has the names of the groups that the exchange belongs to.
    """

    place: LinePosition
    results: Sequence[Result]
    shared_results: tuple[tuple[Result, ...], ...] = ()
    source: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownExchange:
    """The common part of exchanges without a finding: the checks that they pass with their evidence, and their source.

    Day and provider of the source are those of one of them.

    Exchanges with the same passes share one tuple.
    """

    passes: tuple[tuple[str, tuple[str, ...]], ...]
    shared_results: tuple[tuple[Result, ...], ...]
    source: Mapping[str, str]


class TallyBuilder:
    """Tally of exchanges that are added one at a time, in constant memory."""

    def __init__(self) -> None:
        self._exchanges = 0
        self._left_out = self._passed_over = 0
        self._asides: dict[int, tuple[tuple[Result, ...], int]] = {}
        self._known: dict[tuple[int, str, str], tuple[KnownExchange, int]] = {}
        self._passes: Counter[tuple[str, tuple[str, ...]]] = Counter()  # apart, since the hash of an outcome costs more
        self._counts: Counter[tuple[str, Outcome]] = Counter()
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._evidence: dict[str, set[str]] = {}
        self._examples: dict[tuple[str, Outcome], list[FindingExample]] = {}
        self._unread: dict[str, LineProblems] = {}
        self._errors: dict[str, LineProblems] = {}
        self._groups = GroupCounter()
        self._counted = 0
        self._counted_checks: Counter[str] = Counter()
        self._counted_outcomes: Counter[Outcome] = Counter()

    def add(self, judged: JudgedExchange) -> None:
        """Count an exchange."""
        self._exchanges += 1
        for shared in judged.shared_results:
            self._add_shared(shared, 1)
        if len(self._asides) > _MOST_ASIDES:
            self._count_shared()
        failed = [one for one in judged.results if one.outcome is Outcome.FAIL]
        self._groups.add(judged.source, [one.check for one in failed], must=any(map(_is_must, failed)))
        for result in judged.results:
            if result.outcome is Outcome.PASS:
                self._passes[result.check, result.evidence] += 1
                continue
            self._counts[result.check, result.outcome] += 1
            if result.outcome is Outcome.NOT_APPLICABLE:
                self._reasons[result.check, result.reason] += 1
                continue
            self._evidence.setdefault(result.check, set()).update(result.evidence)
            if result.outcome in _WITH_EXAMPLES:
                self._add_example(judged, result)

    def add_known(self, known: KnownExchange, day: str, provider: str) -> None:
        """Count an exchange whose outcomes are those of one that was judged."""
        self._exchanges += 1
        key = id(known), day, provider
        _, times = self._known.get(key, (known, 0))
        self._known[key] = known, times + 1
        if len(self._known) > _MOST_ASIDES:
            self._count_known()

    def _count_known(self) -> None:
        passes: dict[int, tuple[KnownExchange, int]] = {}
        for (_, day, provider), (known, times) in self._known.items():
            self._groups.add({**known.source, "day": day, "provider": provider}, (), times)
            _, sum_of_times = passes.get(id(known.passes), (known, 0))
            passes[id(known.passes)] = known, sum_of_times + times
            for shared in known.shared_results:
                self._add_shared(shared, times)
        for known, times in passes.values():
            for passed in known.passes:
                self._passes[passed] += times
        self._known.clear()

    def _add_shared(self, shared: tuple[Result, ...], more: int) -> None:
        # counted by identity: most exchanges of a log share one of a few tuples of hundreds of results
        _, times = self._asides.get(id(shared), ((), 0))
        self._asides[id(shared)] = shared, times + more

    def add_counted(self, counted: CountedExchange, source: Mapping[str, str], *, must: bool) -> None:
        """Count an exchange by the outcomes that the log has instead of its content. `must`: whether a MUST check failed."""
        self._exchanges += 1
        self._counted += 1
        self._groups.add(source, counted.checks[Outcome.FAIL], must=must)
        for outcome, checks in counted.checks.items():
            self._counted_checks.update(checks)
            self._counts.update((check, outcome) for check in checks)
        self._counted_outcomes.update(counted.outcomes)

    def _count_shared(self) -> None:
        not_applicable: Counter[str] = Counter()
        for aside, times in self._asides.values():
            for result in aside:
                not_applicable[result.check] += times
                self._reasons[result.check, result.reason] += times
        for check, times in not_applicable.items():
            self._counts[check, Outcome.NOT_APPLICABLE] += times
        self._asides.clear()
        for (check, evidence), times in self._passes.items():
            self._counts[check, Outcome.PASS] += times
            self._evidence.setdefault(check, set()).update(evidence)
        self._passes.clear()

    def add_passed_over(self, records: int) -> None:
        """Count records that the plan does not judge."""
        self._passed_over += records

    def add_discovery(self) -> None:
        """Count an exchange of discovery."""
        self._left_out += 1

    def add_problem(self, place: LinePosition, problem: UnreadableLine) -> None:
        """Count an unreadable line."""
        _count(self._unread, problem.kind, place, problem.detail)

    def add_error(self, place: LinePosition, kind: str, detail: str = "") -> None:
        """Count a line that was not judged because of an internal error."""
        _count(self._errors, kind, place, detail)

    def tally(self) -> Tally:
        """Return the tally of everything added so far."""
        self._count_known()
        self._count_shared()
        counts, reasons, examples = _by_check(self._counts), _by_check(self._reasons), _by_check(self._examples)
        checks = {
            check: CheckTally(
                counts=of_check,
                reasons=reasons.get(check, {}),
                evidence=frozenset(self._evidence.get(check, ())),
                examples=_first_examples(chain.from_iterable(examples[check].values())) if check in examples else (),
            )
            for check, of_check in counts.items()
        }
        return Tally(
            exchanges=self._exchanges,
            discovery_exchanges=self._left_out,
            checks=checks,
            unreadable_by_kind=dict(self._unread),
            errors_by_kind=dict(self._errors),
            groups=self._groups.groups(),
            passed_over=self._passed_over,
            counted=CountedLines(
                exchanges=self._counted, checks=dict(self._counted_checks), outcomes=dict(self._counted_outcomes)
            ),
        )

    def _add_example(self, judged: JudgedExchange, result: Result) -> None:
        examples = self._examples.setdefault((result.check, result.outcome), [])
        if len(examples) >= MAX_EXAMPLES and examples[-1].place < judged.place:
            return
        examples.append(
            FindingExample(
                place=judged.place,
                outcome=result.outcome,
                findings=tuple(replace(finding, exchange=str(judged.place)) for finding in result.findings[:_FINDINGS]),
                reason=result.reason,
            )
        )
        examples.sort(key=_PLACE)
        del examples[MAX_EXAMPLES:]


def _is_must(result: Result) -> bool:
    return result.severity is Severity.MUST


def _by_check(values: Mapping[tuple[str, Key], Value]) -> dict[str, dict[Key, Value]]:
    """Return the values of each check, by the second part of their keys."""
    found: defaultdict[str, dict[Key, Value]] = defaultdict(dict)
    for (check, key), value in values.items():
        found[check][key] = value
    return {**found}


def _first_examples(examples: Iterable[FindingExample]) -> tuple[FindingExample, ...]:
    by_outcome: dict[Outcome, list[FindingExample]] = {}
    for example in examples:
        by_outcome.setdefault(example.outcome, []).append(example)
    return tuple(
        example
        for outcome in sorted(by_outcome)
        for example in nsmallest(MAX_EXAMPLES, by_outcome[outcome], key=_PLACE)
    )


def _count(problems: dict[str, LineProblems], kind: str, place: LinePosition, detail: str) -> None:
    one = LineProblems(count=1, examples=((place, detail),))
    problems[kind] = problems[kind] + one if kind in problems else one

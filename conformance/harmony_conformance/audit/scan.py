"""Tallies of judged exchanges: pure, in any order. Tallies of the parts of a log add up to the tally of the log.

Each line is judged alone, so comparisons of several exchanges are not applicable; `run replay:` judges them for a recorded run.
Memory is bounded: counts, and the first examples of each check by file and offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from operator import attrgetter
from typing import TypeVar

from harmony_conformance.audit.redaction import names_in
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.file_lines import LinePosition, UnreadableLine
from harmony_conformance.judge.check import Finding, Outcome
from harmony_conformance.judge.judge import Result

Key = TypeVar("Key", bound=str)

EXAMPLES = 10
"""Maximum examples of each check and outcome."""

_FINDINGS = 5
_MOST_ASIDES = 256
_PLACE = attrgetter("place")
_WITH_EXAMPLES = frozenset({Outcome.FAIL, Outcome.VARIANT, Outcome.ERROR})


@dataclass(frozen=True, kw_only=True)
class FindingExample:
    """An exchange with findings of a check, at most five of them. `names` are the functions in the exchange."""

    place: LinePosition
    outcome: Outcome
    findings: tuple[Finding, ...]
    reason: str = ""
    names: frozenset[str] = frozenset()


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
            counts=_sum(self.counts, other.counts),
            reasons=_sum(self.reasons, other.reasons),
            evidence=self.evidence | other.evidence,
            examples=_first_examples((*self.examples, *other.examples)),
        )


@dataclass(frozen=True, kw_only=True)
class Unread:
    """Unreadable lines of one kind: their number, and position and detail of the first ones."""

    count: int
    first: tuple[tuple[LinePosition, str], ...]

    def __add__(self, other: Unread) -> Unread:
        """Return the sum."""
        return Unread(count=self.count + other.count, first=tuple(nsmallest(EXAMPLES, (*self.first, *other.first))))


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Results of a log, or of a part of it. `+` is associative and commutative, with `Tally()` as neutral element.

    Attributes:
        exchanges: Number of judged exchanges.
        left_out: Number of exchanges of discovery, which are not judged.
        checks: Results by check id.
        unread: Unreadable lines by kind.
    """

    exchanges: int = 0
    left_out: int = 0
    checks: Mapping[str, CheckTally] = field(default_factory=dict[str, CheckTally])
    unread: Mapping[str, Unread] = field(default_factory=dict[str, Unread])

    def __add__(self, other: Tally) -> Tally:
        """Return the sum."""
        no_check, no_line = CheckTally(), Unread(count=0, first=())
        return Tally(
            exchanges=self.exchanges + other.exchanges,
            left_out=self.left_out + other.left_out,
            checks={
                name: self.checks.get(name, no_check) + other.checks.get(name, no_check)
                for name in {*self.checks, *other.checks}
            },
            unread={
                kind: self.unread.get(kind, no_line) + other.unread.get(kind, no_line)
                for kind in {*self.unread, *other.unread}
            },
        )

    @property
    def unreadable(self) -> int:
        """Number of unreadable lines."""
        return sum(unread.count for unread in self.unread.values())


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An exchange of a log, its position, and its results.

    `aside` has results of checks that do not apply, one tuple that many exchanges share. Other such results are in `results`.
    """

    place: LinePosition
    exchange: Exchange
    results: Sequence[Result]
    aside: tuple[Result, ...] = ()


def tally(judged: Iterable[Judged], problems: Iterable[tuple[LinePosition, UnreadableLine]] = ()) -> Tally:
    """Tally judged exchanges and unreadable lines."""
    counting = Counting()
    for one in judged:
        counting.add(one)
    for place, problem in problems:
        counting.add_problem(place, problem)
    return counting.tally()


class Counting:
    """Tally of exchanges that are added one at a time, in constant memory."""

    def __init__(self) -> None:
        self._exchanges = 0
        self._left_out = 0
        self._asides: dict[int, tuple[tuple[Result, ...], int]] = {}
        self._counts: Counter[tuple[str, Outcome]] = Counter()
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._evidence: dict[str, set[str]] = {}
        self._examples: dict[tuple[str, Outcome], list[FindingExample]] = {}
        self._unread: dict[str, Unread] = {}

    def add(self, judged: Judged) -> None:
        """Count an exchange."""
        self._exchanges += 1
        if (
            judged.aside
        ):  # counted by identity: most exchanges of a log share one of a few tuples of hundreds of results
            _, times = self._asides.get(id(judged.aside), ((), 0))
            self._asides[id(judged.aside)] = judged.aside, times + 1
            if len(self._asides) > _MOST_ASIDES:
                self._count_asides()
        for result in judged.results:
            self._counts[result.check, result.outcome] += 1
            if result.outcome is Outcome.NOT_APPLICABLE:
                self._reasons[result.check, result.reason] += 1
                continue
            self._evidence.setdefault(result.check, set()).update(result.evidence)
            if result.outcome in _WITH_EXAMPLES:
                self._add_example(judged, result)

    def _count_asides(self) -> None:
        for aside, times in self._asides.values():
            for result in aside:
                self._counts[result.check, result.outcome] += times
                self._reasons[result.check, result.reason] += times
        self._asides.clear()

    def leave_out(self) -> None:
        """Count an exchange of discovery."""
        self._left_out += 1

    def add_problem(self, place: LinePosition, problem: UnreadableLine) -> None:
        """Count an unreadable line."""
        one = Unread(count=1, first=((place, problem.detail),))
        before = self._unread.get(problem.kind)
        self._unread[problem.kind] = one if before is None else before + one

    def tally(self) -> Tally:
        """Return the tally of everything added so far."""
        self._count_asides()
        checks = {
            check: CheckTally(
                counts={outcome: n for (name, outcome), n in self._counts.items() if name == check},
                reasons={reason: n for (name, reason), n in self._reasons.items() if name == check},
                evidence=frozenset(self._evidence.get(check, ())),
                examples=_first_examples(
                    example for (name, _), examples in self._examples.items() if name == check for example in examples
                ),
            )
            for check, _ in self._counts
        }
        return Tally(exchanges=self._exchanges, left_out=self._left_out, checks=checks, unread=dict(self._unread))

    def _add_example(self, judged: Judged, result: Result) -> None:
        examples = self._examples.setdefault((result.check, result.outcome), [])
        if len(examples) >= EXAMPLES and examples[-1].place < judged.place:
            return
        examples.append(
            FindingExample(
                place=judged.place,
                outcome=result.outcome,
                findings=tuple(replace(finding, exchange=str(judged.place)) for finding in result.findings[:_FINDINGS]),
                reason=result.reason,
                names=names_in(judged.exchange),
            )
        )
        examples.sort(key=_PLACE)
        del examples[EXAMPLES:]


def _first_examples(examples: Iterable[FindingExample]) -> tuple[FindingExample, ...]:
    by_outcome: dict[Outcome, list[FindingExample]] = {}
    for example in examples:
        by_outcome.setdefault(example.outcome, []).append(example)
    return tuple(
        example for outcome in sorted(by_outcome) for example in nsmallest(EXAMPLES, by_outcome[outcome], key=_PLACE)
    )


def _sum(one: Mapping[Key, int], other: Mapping[Key, int]) -> Mapping[Key, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}

"""Exchanges to tallies. Pure, and in any order: tallies of the parts of a log add up to the tally of the log.

Each line is judged alone, as a series of one, so a comparison of several exchanges is not applicable here; `run replay:` judges those of a recorded
run. What is kept is bounded: counts, and the first few examples of each check by file and offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import TypeVar

from harmony_conformance.audit.redaction import names_in
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.file_lines import LinePosition, UnreadableLine
from harmony_conformance.judge.check import Finding, Outcome
from harmony_conformance.judge.judge import Result

Key = TypeVar("Key", bound=str)

EXAMPLES = 10
"""How many examples of each check and outcome are kept."""

_FINDINGS = 5
_MOST_ASIDES = 256
_TOLD = frozenset({Outcome.FAIL, Outcome.VARIANT, Outcome.ERROR})


@dataclass(frozen=True, kw_only=True)
class FindingExample:
    """An exchange on which a check had something to say; at most five of its findings. `names` are the functions it mentions."""

    place: LinePosition
    outcome: Outcome
    findings: tuple[Finding, ...]
    reason: str = ""
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class CheckTally:
    """What one check said of all exchanges. `reasons` counts why it was not applicable, `evidence` on what it rested."""

    counts: Mapping[Outcome, int] = field(default_factory=dict[Outcome, int])
    reasons: Mapping[str, int] = field(default_factory=dict[str, int])
    evidence: frozenset[str] = frozenset()
    examples: tuple[FindingExample, ...] = ()

    def __add__(self, other: CheckTally) -> CheckTally:
        """Both together."""
        return CheckTally(
            counts=_sum(self.counts, other.counts),
            reasons=_sum(self.reasons, other.reasons),
            evidence=self.evidence | other.evidence,
            examples=_first((*self.examples, *other.examples)),
        )


@dataclass(frozen=True, kw_only=True)
class Unread:
    """Lines that are no exchange, by kind: how many, and where the first of them stand."""

    count: int
    first: tuple[tuple[LinePosition, str], ...]

    def __add__(self, other: Unread) -> Unread:
        """Both together."""
        return Unread(count=self.count + other.count, first=tuple(nsmallest(EXAMPLES, (*self.first, *other.first))))


@dataclass(frozen=True, kw_only=True)
class Tally:
    """A log, or a part of one, summed up. Tallies add up: `+` is associative and commutative, and `Tally()` changes nothing.

    `left_out` counts the exchanges of discovery: they were read, and are not judged.
    """

    exchanges: int = 0
    left_out: int = 0
    checks: Mapping[str, CheckTally] = field(default_factory=dict[str, CheckTally])
    unread: Mapping[str, Unread] = field(default_factory=dict[str, Unread])

    def __add__(self, other: Tally) -> Tally:
        """Both together."""
        checks = {
            name: self.checks.get(name, CheckTally()) + other.checks.get(name, CheckTally())
            for name in {*self.checks, *other.checks}
        }
        nothing = Unread(count=0, first=())
        unread = {
            kind: self.unread.get(kind, nothing) + other.unread.get(kind, nothing)
            for kind in {*self.unread, *other.unread}
        }
        return Tally(
            exchanges=self.exchanges + other.exchanges,
            left_out=self.left_out + other.left_out,
            checks=checks,
            unread=unread,
        )

    @property
    def unreadable(self) -> int:
        """How many lines could not be read."""
        return sum(unread.count for unread in self.unread.values())


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An exchange of a log, where it stands, and what was said of it.

    `aside`: the results of checks that do not apply, which are one value for many exchanges; they may stand in `results` as well.
    """

    place: LinePosition
    exchange: Exchange
    results: Sequence[Result]
    aside: tuple[Result, ...] = ()


def tally(judged: Iterable[Judged], problems: Iterable[tuple[LinePosition, UnreadableLine]] = ()) -> Tally:
    """Sum up judged exchanges and unread lines."""
    counting = Counting()
    for one in judged:
        counting.add(one)
    for place, problem in problems:
        counting.add_problem(place, problem)
    return counting.tally()


class Counting:
    """Sums up one exchange at a time, in constant memory; `tally()` is the sum so far."""

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
        if judged.aside:
            self._put_aside(judged.aside)
        for result in judged.results:
            self._counts[result.check, result.outcome] += 1
            if result.outcome is Outcome.NOT_APPLICABLE:
                self._reasons[result.check, result.reason] += 1
                continue
            self._evidence.setdefault(result.check, set()).update(result.evidence)
            if result.outcome in _TOLD:
                self._keep(judged, result)

    def _put_aside(self, aside: tuple[Result, ...]) -> None:
        """Count them as one, by what they are: most exchanges of a log are alike, and there are hundreds of checks."""
        _, times = self._asides.get(id(aside), ((), 0))
        self._asides[id(aside)] = aside, times + 1
        if len(self._asides) > _MOST_ASIDES:
            self._sum_up_asides()

    def _sum_up_asides(self) -> None:
        for aside, times in self._asides.values():
            for result in aside:
                self._counts[result.check, result.outcome] += times
                self._reasons[result.check, result.reason] += times
        self._asides.clear()

    def leave_out(self) -> None:
        """Count an exchange of discovery."""
        self._left_out += 1

    def add_problem(self, place: LinePosition, problem: UnreadableLine) -> None:
        """Count a line that is no exchange."""
        one = Unread(count=1, first=((place, problem.detail),))
        before = self._unread.get(problem.kind)
        self._unread[problem.kind] = one if before is None else before + one

    def tally(self) -> Tally:
        """The sum."""
        self._sum_up_asides()
        checks = {
            check: CheckTally(
                counts={outcome: n for (name, outcome), n in self._counts.items() if name == check},
                reasons={reason: n for (name, reason), n in self._reasons.items() if name == check},
                evidence=frozenset(self._evidence.get(check, ())),
                examples=_first(
                    example for (name, _), kept in self._examples.items() if name == check for example in kept
                ),
            )
            for check, _ in self._counts
        }
        return Tally(
            exchanges=self._exchanges,
            left_out=self._left_out,
            checks=checks,
            unread=dict(self._unread),
        )

    def _keep(self, judged: Judged, result: Result) -> None:
        kept = self._examples.setdefault((result.check, result.outcome), [])
        if len(kept) >= EXAMPLES and kept[-1].place < judged.place:
            return
        kept.append(
            FindingExample(
                place=judged.place,
                outcome=result.outcome,
                findings=tuple(replace(finding, exchange=str(judged.place)) for finding in result.findings[:_FINDINGS]),
                reason=result.reason,
                names=names_in(judged.exchange),
            )
        )
        kept.sort(key=_by_place)
        del kept[EXAMPLES:]


def _first(examples: Iterable[FindingExample]) -> tuple[FindingExample, ...]:
    by_outcome: dict[Outcome, list[FindingExample]] = {}
    for example in examples:
        by_outcome.setdefault(example.outcome, []).append(example)
    return tuple(
        example for outcome in sorted(by_outcome) for example in nsmallest(EXAMPLES, by_outcome[outcome], key=_by_place)
    )


def _by_place(example: FindingExample) -> LinePosition:
    return example.place


def _sum(one: Mapping[Key, int], other: Mapping[Key, int]) -> Mapping[Key, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}

"""Mutation score of the checks: blind mutants that no check detects, and the known reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import JsonObject, items, loads, text, value_at
from harmony_conformance.judge.check import Check, Comparison, Outcome
from harmony_conformance.judge.judge import is_comparison, judge_scenario_series
from harmony_conformance.judge.scenario_series import ScenarioSeries
from harmony_conformance.runtime.processes import process_context
from harmony_conformance.selftest.exchange_mutants import Mutant, mutant_to_json, mutants

_KILLED = frozenset({Outcome.FAIL, Outcome.ERROR})


@dataclass(frozen=True, kw_only=True)
class SurvivorReason:
    """A reason why some mutants may survive: shell patterns of their kind, place and exchange id, and a sentence."""

    kind: str
    where: str
    exchange: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class MutationScore:
    """Numbers of mutants.

    Attributes:
        killed: Mutants that a check fails on.
        reported_as_variant: Mutants that no check fails on but one reports as a variant.
        excused: Survivors by their known reason.
        unexplained: Survivors without a known reason.
    """

    made: int
    killed: int
    reported_as_variant: int
    excused: Counter[str]
    unexplained: tuple[JsonObject, ...]

    def __add__(self, other: MutationScore) -> MutationScore:
        """Add two scores."""
        return MutationScore(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "made": self.made,
            "killed": self.killed,
            "reported_as_variant": self.reported_as_variant,
            "survivors": dict(sorted(self.excused.items())),
            "unexplained": list(self.unexplained),
        }


def read_reasons() -> tuple[SurvivorReason, ...]:
    """Read the known reasons for survivors from `golden/switches.json`."""
    document = loads((golden.root() / "switches.json").read_text(encoding="utf-8"))
    return tuple(
        SurvivorReason(
            kind=text(value_at(row, "kind")),
            where=text(value_at(row, "where")),
            exchange=text(value_at(row, "exchange")) or "*",
            sentence=text(value_at(row, "reason")),
        )
        for row in items(value_at(document, "survivors"))
    )


def judge_mutants_of(series: Sequence[Series], workers: int) -> MutationScore:
    """Judge all mutants of a correct run by all checks, in `workers` processes."""
    size = {place: sum(len(x.request.body) for x in one.exchanges.values()) for place, one in enumerate(series)}
    longest_first = sorted(size, key=lambda place: -size[place])
    with ProcessPoolExecutor(workers, process_context(), initializer=_inherit, initargs=(tuple(series),)) as pool:
        scores = dict(zip(longest_first, pool.map(_judge_series, longest_first), strict=True))
    nothing = MutationScore(made=0, killed=0, reported_as_variant=0, excused=Counter(), unexplained=())
    return sum((scores[place] for place in sorted(scores)), nothing)


_SERIES: list[Series] = []
"""The series of the correct run, in each worker process."""


def _inherit(series: Sequence[Series]) -> None:
    _SERIES[:] = series


def _judge_series(place: int) -> MutationScore:
    return judge_mutants([_SERIES[place]], CHECKS, read_reasons())


def judge_mutants(
    series: Sequence[Series], checks: Sequence[Check | Comparison], reasons: Iterable[SurvivorReason]
) -> MutationScore:
    """Judge all mutants of a correct run."""
    known_reasons, killer = tuple(reasons), _Killer(checks)
    made = killed = varied = 0
    excused: Counter[str] = Counter()
    unexplained: list[JsonObject] = []
    for mutant, origin in ((one, run) for run in series for x in run.exchanges.values() for one in mutants(x)):
        made += 1
        outcomes = frozenset(killer.outcomes(mutant, origin))
        if outcomes & _KILLED:
            killed += 1
        elif Outcome.VARIANT in outcomes:
            varied += 1
        elif (reason := _reason(mutant, known_reasons)) is not None:
            excused[reason] += 1
        else:
            unexplained.append(mutant_to_json(mutant))
    return MutationScore(
        made=made, killed=killed, reported_as_variant=varied, excused=excused, unexplained=tuple(unexplained)
    )


class _Killer:
    """The checks in an order for each kind of mutant: most recent killer first."""

    def __init__(self, checks: Sequence[Check | Comparison]) -> None:
        self._checks = tuple(checks)
        self._by_kind: dict[str, list[Check | Comparison]] = {}

    def outcomes(self, mutant: Mutant, origin: Series) -> Iterator[Outcome]:
        """Yield the outcome of each check up to the first failure."""
        ordered = self._by_kind.setdefault(mutant.kind, [*self._checks])
        x = mutant.exchange
        single = ScenarioSeries([Series(name=origin.name, exchanges={x.step: x})])
        whole = ScenarioSeries([replace(origin, exchanges={**origin.exchanges, x.step: x})])
        for place, rule in enumerate(ordered):
            outcome = judge_scenario_series(whole if is_comparison(rule) else single, (rule,))[0].outcome
            yield outcome
            if outcome in _KILLED:
                ordered.insert(0, ordered.pop(place))
                return


def _reason(mutant: Mutant, reasons: Sequence[SurvivorReason]) -> str | None:
    parts = (mutant.kind, mutant.where, mutant.exchange.id)
    matching = (one for one in reasons if all(map(fnmatchcase, parts, (one.kind, one.where, one.exchange))))
    return next((one.sentence for one in matching), None)

"""Blind mutants judged: which of them no check notices, and the reasons known for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import JsonObject, at, items, loads, text
from harmony_conformance.judge.check import Check, Comparison, Outcome
from harmony_conformance.judge.judge import ScenarioSeries, is_comparison, judge_case
from harmony_conformance.runtime.processes import forking_if_whole
from harmony_conformance.selftest.mutants import Mutant, described, mutants

_NOTICED = (Outcome.FAIL, Outcome.ERROR)


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why mutants of a kind may live: patterns of kind, place and exchange, and the sentence."""

    kind: str
    where: str
    exchange: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class BlindScore:
    """How many mutants were made, killed, and reported as a variant; survivors by reason, and those without one."""

    made: int
    killed: int
    varied: int
    excused: Counter[str]
    unexplained: tuple[JsonObject, ...]

    def __add__(self, other: BlindScore) -> BlindScore:
        """Both together."""
        return BlindScore(
            made=self.made + other.made,
            killed=self.killed + other.killed,
            varied=self.varied + other.varied,
            excused=self.excused + other.excused,
            unexplained=self.unexplained + other.unexplained,
        )

    def line(self) -> JsonObject:
        """The JSON form."""
        return {
            "made": self.made,
            "killed": self.killed,
            "reported_as_variant": self.varied,
            "survivors": dict(sorted(self.excused.items())),
            "unexplained": list(self.unexplained),
        }


def read_reasons() -> tuple[Reason, ...]:
    """The table of `golden/switches.json`: why some mutants live."""
    document = loads((golden.root() / "switches.json").read_text(encoding="utf-8"))
    return tuple(
        Reason(
            kind=text(at(row, "kind")),
            where=text(at(row, "where")),
            exchange=text(at(row, "exchange")) or "*",
            sentence=text(at(row, "reason")),
        )
        for row in items(at(document, "survivors"))
    )


def judge_mutants_of(series: Sequence[Series], workers: int) -> BlindScore:
    """Judge every mutant of every exchange of a correct run by all checks, in `workers` processes."""
    size = {place: sum(len(x.request.body) for x in one.exchanges.values()) for place, one in enumerate(series)}
    longest_first = sorted(size, key=lambda place: -size[place])
    with ProcessPoolExecutor(workers, forking_if_whole(), initializer=_inherit, initargs=(tuple(series),)) as pool:
        scores = dict(zip(longest_first, pool.map(_judged, longest_first), strict=True))
    nothing = BlindScore(made=0, killed=0, varied=0, excused=Counter(), unexplained=())
    return sum((scores[place] for place in sorted(scores)), nothing)


_SERIES: list[Series] = []
"""What mutants are made of, in each process."""


def _inherit(series: Sequence[Series]) -> None:
    _SERIES[:] = series


def _judged(place: int) -> BlindScore:
    return judge_mutants([_SERIES[place]], CHECKS, read_reasons())


def judge_mutants(
    series: Sequence[Series], checks: Sequence[Check | Comparison], reasons: Iterable[Reason]
) -> BlindScore:
    """Judge every mutant of every exchange of a correct run."""
    known = tuple(reasons)
    hunt = _Hunt(checks)
    made = killed = varied = 0
    excused: Counter[str] = Counter()
    unexplained: list[JsonObject] = []
    of_each = ((mutant, one) for one in series for x in one.exchanges.values() for mutant in mutants(x))
    for mutant, home in of_each:
        made += 1
        outcomes = frozenset(hunt.outcomes(mutant, home))
        if outcomes & frozenset(_NOTICED):
            killed += 1
        elif Outcome.VARIANT in outcomes:
            varied += 1
        elif (reason := _reason(mutant, known)) is not None:
            excused[reason] += 1
        else:
            unexplained.append(described(mutant))
    return BlindScore(made=made, killed=killed, varied=varied, excused=excused, unexplained=tuple(unexplained))


class _Hunt:
    """State: the checks, for each kind of mutant those first that noticed one of its kind last."""

    def __init__(self, checks: Sequence[Check | Comparison]) -> None:
        self._checks = tuple(checks)
        self._by_kind: dict[str, list[Check | Comparison]] = {}

    def outcomes(self, mutant: Mutant, home: Series) -> Iterator[Outcome]:
        """The outcomes of all checks; the first failure ends the search."""
        ordered = self._by_kind.setdefault(mutant.kind, [*self._checks])
        x = mutant.exchange
        alone = ScenarioSeries([Series(name=home.name, exchanges={x.step: x})])
        whole = ScenarioSeries([replace(home, exchanges={**home.exchanges, x.step: x})])
        for place, rule in enumerate(ordered):
            outcome = judge_case(whole if is_comparison(rule) else alone, (rule,))[0].outcome
            yield outcome
            if outcome in _NOTICED:
                ordered.insert(0, ordered.pop(place))
                return


def _reason(mutant: Mutant, reasons: Sequence[Reason]) -> str | None:
    return next(
        (
            reason.sentence
            for reason in reasons
            if fnmatchcase(mutant.kind, reason.kind)
            and fnmatchcase(mutant.where, reason.where)
            and fnmatchcase(mutant.exchange.id, reason.exchange)
        ),
        None,
    )

"""Blind mutants judged: which of them no check notices, and the reasons known for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from harmony_conformance import golden
from harmony_conformance.check import Check, Comparison, Outcome
from harmony_conformance.exchange import Exchange, Series
from harmony_conformance.json_value import JsonObject, at, items, loads, text
from harmony_conformance.judge import is_comparison, judge_one
from harmony_conformance.mutants import Mutant, described, mutants

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


def judge_mutants(
    series: Sequence[Series], checks: Sequence[Check | Comparison], reasons: Iterable[Reason]
) -> BlindScore:
    """Judge every mutant of every exchange of a correct run."""
    known = tuple(reasons)
    made = killed = varied = 0
    excused: Counter[str] = Counter()
    unexplained: list[JsonObject] = []
    for mutant, home in _all(series):
        made += 1
        outcomes = frozenset(_outcomes(mutant, home, checks))
        if outcomes & frozenset(_NOTICED):
            killed += 1
        elif Outcome.VARIANT in outcomes:
            varied += 1
        elif (reason := _reason(mutant, known)) is not None:
            excused[reason] += 1
        else:
            unexplained.append(described(mutant))
    return BlindScore(made=made, killed=killed, varied=varied, excused=excused, unexplained=tuple(unexplained))


def _all(series: Sequence[Series]) -> Iterator[tuple[Mutant, Series]]:
    for one in series:
        for x in one.exchanges.values():
            yield from ((mutant, one) for mutant in mutants(x))


def _outcomes(mutant: Mutant, home: Series, checks: Sequence[Check | Comparison]) -> Iterator[Outcome]:
    """The outcomes of all checks, the first failure ends the search."""
    alone = Series(name=home.name, exchanges={mutant.exchange.step: mutant.exchange})
    for rule in checks:
        subject = _replaced(home, mutant.exchange) if is_comparison(rule) else alone
        outcome = judge_one(rule, [subject], exercised=False).outcome
        yield outcome
        if outcome in _NOTICED:
            return


def _replaced(home: Series, x: Exchange) -> Series:
    return replace(home, exchanges={**home.exchanges, x.step: x})


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

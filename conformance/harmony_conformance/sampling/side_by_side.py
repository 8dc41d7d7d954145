"""Rates of several endpoints as rows of a matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from harmony_conformance.report.comparison.matrix import MatrixRow
from harmony_conformance.report.intervals import SIGNIFICANCE, adjust_discrete, fisher, smallest_fisher
from harmony_conformance.sampling.rates import Rate
from harmony_conformance.sampling.rates_file import SampledRates

_Column = dict[str, Rate]


def rate_rows(sampled: Sequence[SampledRates | None]) -> Iterator[MatrixRow]:
    """Yield a row for each rate. A cell is marked if it is significantly worse than the best of its row.

    Every pair of cells is one of the tests, since the best is known only afterwards.
    """
    columns: list[_Column] = [
        {rate.name: rate for rate in one.rates if rate.of} if one is not None else {} for one in sampled
    ]
    names = list(dict.fromkeys(name for column in columns for name in column))
    differing = _differing(columns, names)
    for name in names:
        rates = [column.get(name) for column in columns]
        best = max((place for place, rate in enumerate(rates) if rate is not None), key=lambda one: _rank(rates[one]))
        worse = tuple(
            place
            for place, rate in enumerate(rates)
            if _rank(rate)[0] < _rank(rates[best])[0] and (name, min(place, best), max(place, best)) in differing
        )
        about = next(rate.about for rate in rates if rate is not None)
        cells = tuple(_cell(rate, is_worse=place in worse) for place, rate in enumerate(rates))
        yield MatrixRow(name=name, meaning=about, cells=cells, worse=worse)


def _rank(rate: Rate | None) -> tuple[float, int]:
    return (rate.share or 0.0, rate.of) if rate is not None else (1.0, 0)


def _differing(columns: Sequence[_Column], names: Sequence[str]) -> frozenset[tuple[str, int, int]]:
    """Return the rates that differ significantly between two columns, each with the places of these."""
    pairs = [
        (name, one, other)
        for name in names
        for one, other in combinations([place for place, column in enumerate(columns) if name in column], 2)
    ]
    counts = [_counts(columns[one][name], columns[other][name]) for name, one, other in pairs]
    values = adjust_discrete([fisher(*one) for one in counts], [smallest_fisher(*one) for one in counts])
    return frozenset(pair for pair, p in zip(pairs, values, strict=True) if p < SIGNIFICANCE)


def _counts(one: Rate, other: Rate) -> tuple[int, int, int, int]:
    return one.count, one.of, other.count, other.of


def _cell(rate: Rate | None, *, is_worse: bool) -> str:
    if rate is None:
        return ""
    low, high = rate.interval
    return f"{rate.share:.2f} ({low:.2f} to {high:.2f}){', worse' if is_worse else ''}"

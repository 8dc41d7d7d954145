"""Rates of several endpoints as rows of a matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harmony_conformance.report.comparison.matrix import MatrixRow
from harmony_conformance.report.intervals import SIGNIFICANCE, fisher, holm
from harmony_conformance.sampling.rates import Rate
from harmony_conformance.sampling.rates_file import SampledRates


def rate_rows(sampled: Sequence[SampledRates | None]) -> Iterator[MatrixRow]:
    """Yield a row for each rate. A cell is marked if it is significantly worse than the best: Fisher's test, adjusted by Holm for all of them."""
    columns = [{rate.name: rate for rate in one.rates if rate.of} if one is not None else {} for one in sampled]
    names = list(dict.fromkeys(name for column in columns for name in column))
    pairs = [(name, place) for name in names for place in _below_best([column.get(name) for column in columns])]
    values = holm([_p_value([column.get(name) for column in columns], place) for name, place in pairs])
    worse = {pair for pair, p in zip(pairs, values, strict=True) if p < SIGNIFICANCE}
    for name in names:
        rates = [column.get(name) for column in columns]
        marked = tuple(place for place in range(len(rates)) if (name, place) in worse)
        about = next(rate.about for rate in rates if rate is not None)
        cells = tuple(_cell(rate, is_worse=place in marked) for place, rate in enumerate(rates))
        yield MatrixRow(name=name, meaning=about, cells=cells, worse=marked)


def _best(rates: Sequence[Rate | None]) -> Rate:
    return max((rate for rate in rates if rate is not None), key=lambda rate: (rate.share or 0.0, rate.of))


def _below_best(rates: Sequence[Rate | None]) -> list[int]:
    best = _best(rates)
    return [place for place, rate in enumerate(rates) if rate is not None and (rate.share or 0.0) < (best.share or 0.0)]


def _p_value(rates: Sequence[Rate | None], place: int) -> float:
    best, rate = _best(rates), rates[place]
    assert rate is not None, "of a column that has the rate"
    return fisher(rate.count, rate.of, best.count, best.of)


def _cell(rate: Rate | None, *, is_worse: bool) -> str:
    if rate is None:
        return ""
    low, high = rate.interval
    return f"{rate.share:.2f} ({low:.2f} to {high:.2f}){', worse' if is_worse else ''}"

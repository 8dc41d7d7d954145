"""Latencies of two runs or two loads compared: each percentile with the 95 % interval of its difference.

The interval is made of those of the two percentiles (Zou and Donner 2008, the method of variance estimates recovery), so it assumes no distribution.
Its variance also gives the p value of equal percentiles. One comparison tests many percentiles, so Holm's method adjusts their p values (`intervals.holm`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, inf
from statistics import NormalDist

from harmony_conformance.json_value import Json, JsonObject, items, members, number, text, value_at
from harmony_conformance.report.intervals import SIGNIFICANCE, holm, p_words

_NORMAL = NormalDist()
_Z = _NORMAL.inv_cdf(0.975)
_MILLI = 1000


@dataclass(frozen=True, kw_only=True)
class LatencyFigure:
    """A percentile of a metric in seconds with its interval, whose ends are infinite where the sample is too small."""

    value: float
    low: float
    high: float


FigureName = tuple[str, str, str]
"""Load, metric and percentile, such as `4 requests/s, 128 to 128 tokens`, `ttft`, `p95`."""


@dataclass(frozen=True, kw_only=True)
class LatencyChange:
    """A percentile before and after.

    Attributes:
        p: The p value of equal percentiles, adjusted for the number of percentiles that are compared.
    """

    load: str
    metric: str
    percentile: str
    before: LatencyFigure
    after: LatencyFigure
    p: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference in seconds, the later less the earlier."""
        one, two = self.after, self.before
        change = one.value - two.value
        low = change - hypot(one.value - one.low, two.high - two.value)
        high = change + hypot(one.high - one.value, two.value - two.low)
        return low, high

    @property
    def word(self) -> str:
        """The certain direction: slower, faster, or `no certain difference`."""
        if self.p >= SIGNIFICANCE:
            return "no certain difference"
        return "slower" if self.after.value > self.before.value else "faster"

    def __str__(self) -> str:
        """Return the change in words."""
        low, high = (_milliseconds(end) for end in self.interval)
        values = f"{_milliseconds(self.before.value)} before, {_milliseconds(self.after.value)} after"
        return f"{self.metric} {self.percentile}, {self.load}: {values}; difference {low} to {high} ms, {p_words(self.p)}: {self.word}"

    def to_json(self) -> JsonObject:
        """Return the JSON form. An infinite end of an interval is null."""
        ends: list[Json] = [None if abs(end) == inf else end for end in self.interval]
        return {
            "load": self.load,
            "metric": self.metric,
            "percentile": self.percentile,
            "before": self.before.value,
            "after": self.after.value,
            "interval": ends,
            "p": self.p,
            "change": self.word,
        }


def _milliseconds(seconds: float) -> str:
    return "?" if abs(seconds) == inf else f"{_MILLI * seconds:.4g}"


def compare_latency(
    before: Mapping[FigureName, LatencyFigure], after: Mapping[FigureName, LatencyFigure]
) -> tuple[LatencyChange, ...]:
    """Return the changes of the figures that both have, in the order of the later ones."""
    both = [name for name in after if name in before]
    values = holm([p_value(before[name], after[name]) for name in both])
    return tuple(
        LatencyChange(load=name[0], metric=name[1], percentile=name[2], before=before[name], after=after[name], p=p)
        for name, p in zip(both, values, strict=True)
    )


def p_value(before: LatencyFigure, after: LatencyFigure, share: float = 0.0) -> float:
    """Return the two-sided p value of a later percentile that exceeds the earlier one by a share of it.

    It is below 0.05 if the 95 % interval of the difference excludes 0.
    """
    factor = 1 + share
    change = after.value - factor * before.value
    if change > 0:
        width = hypot(after.value - after.low, factor * (before.high - before.value))
    else:
        width = hypot(after.high - after.value, factor * (before.value - before.low))
    if not change:
        return 1.0
    return 2 * _NORMAL.cdf(-_Z * abs(change) / width) if width else 0.0


def are_slower_by(share: float, pairs: Sequence[tuple[LatencyFigure, LatencyFigure]]) -> tuple[bool, ...]:
    """Return which later percentiles are certainly slower by more than a share of the earlier ones, adjusted for their number."""
    values = holm([p_value(before, after, share) for before, after in pairs])
    return tuple(
        p < SIGNIFICANCE and after.value > (1 + share) * before.value
        for p, (before, after) in zip(values, pairs, strict=True)
    )


def is_any_slower_by(share: float, changes: Iterable[LatencyChange]) -> bool:
    """Return True if a percentile is certainly slower by more than a share of the earlier one."""
    return any(are_slower_by(share, [(one.before, one.after) for one in changes]))


def probe_figures(latency: Iterable[JsonObject]) -> dict[FigureName, LatencyFigure]:
    """Return the medians of a run's latency probe. Reports of older versions have no intervals, and so no figures."""
    return {
        (text(value_at(load, "load")), metric, "median"): figure
        for load in latency
        for metric, values in members(value_at(load, "metrics")).items()
        if value_at(values, "unit") == "s"
        for figure in _figure([value_at(values, "median"), *items(value_at(values, "median_interval"))])
    }


def load_figures(loads: Iterable[Json]) -> dict[FigureName, LatencyFigure]:
    """Return the percentiles of the loads of a `load.json`."""
    return {
        (text(value_at(load, "load")), metric, name): figure
        for load in loads
        for metric, values in members(value_at(load, "metrics")).items()
        for name, value in members(values).items()
        if name in {"p50", "p95", "p99"}
        for figure in _figure(items(value))
    }


def _figure(values: Sequence[Json]) -> Iterator[LatencyFigure]:
    """Yield the figure of a value and the ends of its interval, nothing for other values."""
    if len(values) == 3 and (value := number(values[0])) is not None:  # noqa: PLR2004 - a value and two ends
        low, high = number(values[1]), number(values[2])
        yield LatencyFigure(value=value, low=-inf if low is None else low, high=inf if high is None else high)

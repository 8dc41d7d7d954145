"""Statistics of samples: the median and the range, and tail percentiles of samples that are large enough.

Percentiles are interpolated linearly between the two nearest values: type 7 of Hyndman and Fan 1996. NumPy, R and `vllm bench` have the same default,
so their figures are comparable. Intervals are those of order statistics: no distribution is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, exp, lgamma, log

_CERTAINTY = 0.95
ENOUGH_FOR_P95 = 60
"""Smallest sample with three values above its 95th percentile."""
ENOUGH_FOR_P99 = 300
"""Smallest sample with three values above its 99th percentile."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Figures of a sample; `p95` and `p99` need a sample of sufficient size, else None."""

    n: int
    median: float
    min: float
    max: float
    p95: float | None
    p99: float | None
    median_interval: tuple[float | None, float | None]
    """95 % interval of the median. An end is None where the sample is too small for it."""


@dataclass(frozen=True)
class Sample:
    """Measured values in ascending order. Samples can be merged in any order."""

    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        """Return a sample of values in any order.

        Raises:
            ValueError: A value is not finite.
        """
        ordered = sorted(values)
        if not all(map(math.isfinite, ordered)):
            raise ValueError("invalid sample: expected finite numbers, got NaN or infinity")
        return cls(tuple(ordered))

    def __len__(self) -> int:
        return len(self.values)

    def __add__(self, other: Sample) -> Sample:
        """Merge two samples."""
        return Sample(tuple(sorted(self.values + other.values)))

    def summary(self) -> Summary | None:
        """Return the figures, None for an empty sample."""
        if not self.values:
            return None
        n = len(self.values)
        return Summary(
            n=n,
            median=percentile(self.values, 50),
            min=self.values[0],
            max=self.values[-1],
            p95=percentile(self.values, 95) if n >= ENOUGH_FOR_P95 else None,
            p99=percentile(self.values, 99) if n >= ENOUGH_FOR_P99 else None,
            median_interval=percentile_interval(self.values, 50).finite_ends,
        )


def percentile(ascending: Sequence[float], share: int) -> float:
    """Return the percentile `share` of an ascending, non-empty sequence, interpolated linearly."""
    whole, hundredths = divmod((len(ascending) - 1) * share, 100)
    lower = ascending[whole]
    if not hundredths:
        return lower
    upper = ascending[whole + 1]
    return min(max(lower + (upper - lower) * hundredths / 100, lower), upper)


@dataclass(frozen=True, kw_only=True)
class Percentile:
    """A percentile of a sample with its 95 % interval, whose ends are infinite where the sample is too small."""

    value: float
    low: float
    high: float

    @property
    def finite_ends(self) -> tuple[float | None, float | None]:
        """The ends of the interval, None for infinity."""
        return (self.low if math.isfinite(self.low) else None), (self.high if math.isfinite(self.high) else None)


def percentile_interval(ascending: Sequence[float], percent: int) -> Percentile:
    """Return a percentile of an ascending sample, with an interval of order statistics that assumes no distribution."""
    n, share = len(ascending), percent / 100
    value = ascending[ceil(share * (n - 1))] if ascending[-1] == float("inf") else percentile(ascending, percent)
    logs = (
        lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(share) + (n - k) * log(1 - share)
        for k in range(n + 1)
    )
    chances = [exp(one) for one in logs]
    tail = (1 - _CERTAINTY) / 2
    low, total = 0, chances[0]
    while total <= tail and low < n:  # the chance that at most `low` values are below the percentile
        low += 1
        total += chances[low]
    high, total = n, chances[n]
    while total <= tail and high > 0:
        high -= 1
        total += chances[high]
    return Percentile(
        value=value,
        low=ascending[low - 1] if low > 0 else float("-inf"),
        high=ascending[high] if high < n else float("inf"),
    )

"""Statistics of samples: the median and the range, and tail percentiles of samples that are large enough.

Percentiles are interpolated linearly between the two nearest values: type 7 of Hyndman and Fan 1996. NumPy, R and `vllm bench` have the same default,
so their figures are comparable. Intervals are those of order statistics: no distribution is assumed. Values of one request, such as its gaps,
are not independent. For them, the design effect divides the size of the sample (Korn and Graubard 1998, after Woodruff 1952).
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


def percentile_interval(ascending: Sequence[float], percent: int, independent: int | None = None) -> Percentile:
    """Return a percentile of an ascending sample, with an interval of order statistics that assumes no distribution.

    Args:
        ascending: The sample, not empty.
        percent: The percentile.
        independent: The number of independent values that know as much as the sample (default: its size).
    """
    share = percent / 100
    n = independent or len(ascending)
    value = _value(ascending, percent)
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
        low=ascending[max(low * len(ascending) // n - 1, 0)] if low > 0 else float("-inf"),
        high=ascending[ceil((high + 1) * len(ascending) / n) - 1] if high < n else float("inf"),
    )


def _value(ascending: Sequence[float], percent: int) -> float:
    if ascending[-1] == float("inf"):
        return ascending[ceil(percent * (len(ascending) - 1) / 100)]
    return percentile(ascending, percent)


def grouped_interval(groups: Sequence[Sequence[float]], percent: int) -> Percentile:
    """Return a percentile of all values, with an interval for groups whose values depend on each other, such as the gaps of a request."""
    ascending = sorted(value for group in groups for value in group)
    return percentile_interval(ascending, percent, _independent(groups, _value(ascending, percent)))


def _independent(groups: Sequence[Sequence[float]], value: float) -> int:
    """Return the size of an independent sample in which the share of values up to `value` would vary as much."""
    counts = [(sum(one <= value for one in group), len(group)) for group in groups if group]
    size, below = sum(of for _, of in counts), sum(count for count, _ in counts)
    if len(counts) in (1, size):  # a single group has no variance, and groups of one value each are independent
        return len(counts)
    share = below / size
    spread = sum((count - share * of) ** 2 for count, of in counts) * len(counts) / (len(counts) - 1)
    if not spread or share in (0, 1):
        return len(counts)
    return max(1, min(size, round(share * (1 - share) * size * size / spread)))

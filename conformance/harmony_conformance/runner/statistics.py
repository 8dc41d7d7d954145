"""Statistics of samples: the median and the range, and tail percentiles of samples that are large enough.

Percentiles are interpolated linearly between the two nearest values: type 7 of Hyndman and Fan 1996. NumPy, R and `vllm bench` have the same default,
so their figures are comparable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

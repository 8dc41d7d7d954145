"""Samples that add up, and what is honest to say of them: the median with the range; a tail percentile only where enough values stand behind it.

Percentiles are interpolated linearly between the two nearest values (type 7 of Hyndman and Fan 1996, the default of NumPy, R and `vllm bench`), so
that figures can be laid side by side with other tools'.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ENOUGH_FOR_P95 = 60
"""The smallest sample with three values beyond its 95th percentile."""
ENOUGH_FOR_P99 = 300
"""The smallest sample with three values beyond its 99th percentile."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A sample in a few figures; `p95` and `p99` are None where the sample is too small for them."""

    n: int
    median: float
    min: float
    max: float
    p95: float | None
    p99: float | None


@dataclass(frozen=True)
class Sample:
    """Measured values, ascending. Samples merge in any order; a sample is a bag, it does not know when each value came."""

    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        """A sample of values in any order.

        Raises:
            ValueError: one of them is no finite number.
        """
        ordered = sorted(values)
        if not all(math.isfinite(value) for value in ordered):
            raise ValueError("a measured value is a finite number")
        return cls(tuple(ordered))

    def __len__(self) -> int:
        return len(self.values)

    def __add__(self, other: Sample) -> Sample:
        """Both samples as one."""
        return Sample(tuple(sorted(self.values + other.values)))

    def summary(self) -> Summary | None:
        """The sample's figures, None where it holds nothing."""
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
    """The value below which `share` percent of an ascending, non-empty sequence lie, interpolated linearly."""
    whole, hundredths = divmod((len(ascending) - 1) * share, 100)
    lower = ascending[whole]
    if not hundredths:
        return lower
    upper = ascending[whole + 1]
    return min(max(lower + (upper - lower) * hundredths / 100, lower), upper)

"""Statistics of counts: intervals of a share, pass@k and pass^k, and the comparison of two shares.

Sources: Wilson 1927 for the interval; Newcombe 1998, method 10, for the difference; Fisher's exact test, two-sided, for its significance.
For several tests: Holm 1979, and Tarone 1990 for tests of few cases, which cannot be significant. pass@k is the unbiased estimator of Chen et al. 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, exp, hypot, lgamma, log, log1p, sqrt
from statistics import NormalDist

_Z = NormalDist().inv_cdf(0.975)
_EXACT = 2000
_SMALLEST_P = 0.0001
SIGNIFICANCE = 0.05
"""A p value, adjusted for the number of tests, that is below it is a certain difference."""


def wilson(count: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share. Of 0 attempts, nothing is known: 0 to 1."""
    if not of:
        return 0.0, 1.0
    share, square = count / of, _Z * _Z
    centre = (share + square / (2 * of)) / (1 + square / of)
    half = _Z / (1 + square / of) * sqrt(share * (1 - share) / of + square / (4 * of * of))
    return (0.0 if count == 0 else centre - half), (1.0 if count == of else centre + half)


def difference(count: int, of: int, other: int, of_other: int) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two shares, the first less the second."""
    if not of or not of_other:
        return -1.0, 1.0
    (low, high), (other_low, other_high) = wilson(count, of), wilson(other, of_other)
    one, two = count / of, other / of_other
    return one - two - hypot(one - low, other_high - two), one - two + hypot(high - one, two - other_low)


def fisher(count: int, of: int, other: int, of_other: int) -> float:
    """Return the two-sided p value of equal shares."""
    total, marked = of + of_other, count + other
    ways = [
        comb(of, one) * comb(of_other, marked - one) for one in range(max(0, marked - of_other), min(of, marked) + 1)
    ]
    seen = comb(of, count) * comb(of_other, other)
    return min(1.0, sum(way for way in ways if way <= seen) / comb(total, marked))


def smallest_fisher(count: int, of: int, other: int, of_other: int) -> float:
    """Return the smallest p value that `fisher` has for any division of the same cases: that of the most extreme one."""
    total, marked = of + of_other, count + other
    least, most = max(0, marked - of_other), min(of, marked)
    return min(fisher(one, of, marked - one, of_other) for one in (least, most)) if total else 1.0


def shares_differ(count: int, of: int, other: int, of_other: int) -> float:
    """Return the two-sided p value of equal shares, for counts of any size.

    Few exchanges: Fisher's exact test. Few marked ones among many: the exact binomial test of how they divide, which is its limit.
    Otherwise: the normal approximation of the difference.
    """
    total, marked = of + of_other, count + other
    if not of or not of_other or marked in (0, total):
        return 1.0
    if total <= _EXACT:
        return fisher(count, of, other, of_other)
    if marked <= _EXACT and marked * 10 <= total:
        return _binomial(count, marked, of / total)
    pooled = marked / total
    z = (count / of - other / of_other) / sqrt(pooled * (1 - pooled) * (1 / of + 1 / of_other))
    return 2 * NormalDist().cdf(-abs(z))


def _binomial(count: int, of: int, share: float) -> float:
    """Return the two-sided p value of a count of a binomial distribution: the sum of the probabilities that are not larger."""
    odds = log(share) - log1p(-share)
    ways = [lgamma(of + 1) - lgamma(one + 1) - lgamma(of - one + 1) + one * odds for one in range(of + 1)]
    base = of * log1p(-share)
    return min(1.0, sum(exp(way + base) for way in ways if way <= ways[count] + 1e-7))


def p_words(p: float, equals: str = " ") -> str:
    """Return a p value in words. Below 0.0001, only the bound."""
    return f"p < {_SMALLEST_P:.4f}" if p < _SMALLEST_P else f"p{equals}{p:.2g}"


def holm(values: Sequence[float]) -> tuple[float, ...]:
    """Return the p values of several tests, adjusted for their number, in the same order."""
    adjusted = [0.0] * len(values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, values[place] * (len(values) - rank)))
        adjusted[place] = largest
    return tuple(adjusted)


def adjust_discrete(values: Sequence[float], smallest: Sequence[float]) -> tuple[float, ...]:
    """Return the p values of several tests, adjusted as by `holm` for the number of those that can be significant.

    A test that no data could make significant can raise no false alarm, so the others need no adjustment for it.

    Args:
        values: The p value of each test.
        smallest: The smallest p value that each test can have, such as `smallest_fisher`. It must not depend on the difference itself.
    """
    number = next(
        number
        for number in range(1, len(values) + 2)
        if sum(least * number < SIGNIFICANCE for least in smallest) <= number
    )
    able = [place for place, least in enumerate(smallest) if least * number < SIGNIFICANCE]
    adjusted = [min(1.0, value * number) for value in values]
    for place, p in zip(able, holm([values[place] for place in able]), strict=True):
        adjusted[place] = p
    return tuple(adjusted)


def pass_at_k(solved: int, tries: int, k: int) -> float:
    """Return the probability that at least one of k tries solves a task."""
    return 1 - comb(tries - solved, k) / comb(tries, k)


def pass_hat_k(solved: int, tries: int, k: int) -> float:
    """Return the probability that all of k tries solve a task."""
    return comb(solved, k) / comb(tries, k)

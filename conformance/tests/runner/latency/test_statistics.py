import math
import statistics as reference
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.runner.latency.statistics import Sample, percentile

SECONDS = st.floats(min_value=0, max_value=1e6, allow_nan=False)
SAMPLES = st.lists(SECONDS, max_size=400)


def exact_percentile(values, share):
    """Type 7 of Hyndman and Fan, in exact arithmetic: the value at position (n - 1) * share, between neighbours in proportion."""
    ordered = sorted(Fraction(value) for value in values)
    position = Fraction((len(ordered) - 1) * share, 100)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


@given(st.lists(SECONDS, min_size=1, max_size=400), st.sampled_from([0, 1, 50, 95, 99, 100]))
def test_a_percentile_is_the_exact_one(values, share):
    assert percentile(sorted(values), share) == pytest.approx(
        float(exact_percentile(values, share)), rel=1e-9, abs=1e-300
    )


@given(st.lists(SECONDS, min_size=2, max_size=400))
def test_percentiles_are_those_of_the_standard_library(values):
    cut = reference.quantiles(values, n=100, method="inclusive")
    found = [percentile(sorted(values), share) for share in (50, 95, 99)]
    assert found == pytest.approx([cut[49], cut[94], cut[98]], rel=1e-9, abs=1e-300)


@given(SAMPLES)
def test_the_summary_is_ordered_and_counts_every_value(values):
    summary = Sample.of(values).summary()
    if not values:
        assert summary is None
        return
    assert summary is not None
    assert summary.n == len(values)
    assert (summary.min, summary.max) == (min(values), max(values))
    assert summary.median == pytest.approx(reference.median(values))
    figures = [summary.min, summary.median, summary.p95, summary.p99, summary.max]
    present = [figure for figure in figures if figure is not None]
    assert present == sorted(present)


@pytest.mark.parametrize(
    ("n", "has_p95", "has_p99"),
    [
        pytest.param(1, False, False, id="one value has no tail"),
        pytest.param(59, False, False, id="59 are too few for p95"),
        pytest.param(60, True, False, id="60 are enough for p95"),
        pytest.param(299, True, False, id="299 are too few for p99"),
        pytest.param(300, True, True, id="300 are enough for p99"),
    ],
)
def test_a_tail_is_reported_only_of_a_sample_that_has_one(n, has_p95, has_p99):
    summary = Sample.of(float(value) for value in range(n)).summary()
    assert summary is not None
    assert (summary.p95 is not None, summary.p99 is not None) == (has_p95, has_p99)


@given(SAMPLES, st.randoms(use_true_random=False))
def test_order_does_not_matter(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    assert Sample.of(values) == Sample.of(shuffled)


@given(SAMPLES, SAMPLES, SAMPLES)
def test_samples_merge_in_any_grouping_and_order(first, second, third):
    a, b, c = Sample.of(first), Sample.of(second), Sample.of(third)
    whole = Sample.of([*first, *second, *third])
    assert (a + b) + c == a + (b + c) == c + b + a == whole
    assert a + Sample() == a


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_measured(value):
    with pytest.raises(ValueError, match="finite"):
        Sample.of([1.0, value])

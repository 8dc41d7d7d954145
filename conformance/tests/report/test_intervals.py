"""Intervals and tests equal those of scipy, on stored values and on all small tables."""

import random
from itertools import product
from math import comb

import pytest

from harmony_conformance.report.intervals import (
    adjust_discrete,
    difference,
    fisher,
    holm,
    p_words,
    pass_at_k,
    pass_hat_k,
    smallest_fisher,
    wilson,
)

# by scipy: the interval "wilson" of binomtest
SCIPY_WILSON = [
    (0, 1, 0.0, 0.7934506856227626),
    (1, 1, 0.20654931437723745, 1.0),
    (0, 10, 0.0, 0.27753279986288926),
    (3, 10, 0.10779126740630102, 0.6032218525388546),
    (10, 10, 0.7224672001371109, 1.0),
    (57, 60, 0.8629948352365148, 0.9828504978356044),
    (140, 150, 0.881637644883941, 0.9633881433303925),
    (1, 1000, 0.00017654637062607809, 0.0056425585979579355),
    (999, 1000, 0.9943574414020421, 0.9998234536293739),
]
# by scipy: the p value of fisher_exact
SCIPY_FISHER = [
    (8, 10, 1, 10, 0.005477494641581329),
    (140, 150, 120, 150, 0.0010418168500013966),
    (0, 5, 5, 5, 0.007936507936507938),
    (3, 7, 2, 9, 0.596153846153846),
    (50, 50, 49, 50, 1.0),
    (500, 1000, 460, 1000, 0.08086663232111979),
]


@pytest.mark.parametrize(
    ("p", "words"),
    [(0.0, "p < 0.0001"), (9.9e-05, "p < 0.0001"), (0.0001, "p 0.0001"), (0.0456, "p 0.046"), (1.0, "p 1")],
)
def test_a_p_value_is_no_zero(p, words):
    assert p_words(p) == words


@pytest.mark.parametrize(("count", "of", "low", "high"), SCIPY_WILSON)
def test_wilson_equals_scipy(count, of, low, high):
    assert wilson(count, of) == pytest.approx((low, high), abs=1e-9)


@pytest.mark.parametrize(("count", "of", "other", "of_other", "p"), SCIPY_FISHER)
def test_fisher_equals_scipy(count, of, other, of_other, p):
    assert fisher(count, of, other, of_other) == pytest.approx(p, rel=1e-9)


def test_nothing_known_of_no_attempts():
    assert wilson(0, 0) == (0.0, 1.0)
    assert difference(0, 0, 3, 4) == (-1.0, 1.0)


def test_interval_covers_the_share_in_about_95_percent():
    chance = random.Random(7)
    shares = [
        (share, sum(chance.random() < share for _ in range(40))) for share in (0.1, 0.5, 0.9) for _ in range(1000)
    ]
    covered = sum(wilson(count, 40)[0] <= share <= wilson(count, 40)[1] for share, count in shares)
    assert 0.93 < covered / len(shares) < 0.98


def test_difference_is_newcombe_example():
    """56/70 against 48/80: the published interval of method 10."""
    assert difference(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_the_smallest_p_value_is_that_of_every_division_of_the_same_cases():
    for of, of_other in ((3, 3), (4, 7), (6, 2), (0, 0)):
        for marked in range(of + of_other + 1):
            divisions = range(max(0, marked - of_other), min(of, marked) + 1)
            least = min(fisher(one, of, marked - one, of_other) for one in divisions)
            assert all(smallest_fisher(one, of, marked - one, of_other) == pytest.approx(least) for one in divisions)


def test_tests_that_cannot_be_significant_need_no_adjustment():
    counts = [(0, 6, 6, 6), (3, 3, 0, 3), *[(12, 12, 12, 12)] * 31]
    values = [fisher(*one) for one in counts]
    adjusted = adjust_discrete(values, [smallest_fisher(*one) for one in counts])
    assert adjusted[0] == pytest.approx(values[0])  # 0.0022; times 33, it would be 0.07
    assert adjusted[1:] == pytest.approx(values[1:])
    assert adjust_discrete([0.01, 0.04, 0.03], [0.0] * 3) == pytest.approx(holm([0.01, 0.04, 0.03]))
    assert adjust_discrete([], []) == ()


def test_adjusted_tests_of_few_cases_raise_false_alarms_in_at_most_five_percent():
    chance = random.Random(3)
    shares = [0.5, 0.7, 0.9, 0.97, 1.0] * 4
    alarms = 0
    for _ in range(600):
        counts = [
            (sum(chance.random() < share for _ in range(9)), 9, sum(chance.random() < share for _ in range(9)), 9)
            for share in shares
        ]
        smallest = [smallest_fisher(*one) for one in counts]
        alarms += min(adjust_discrete([fisher(*one) for one in counts], smallest)) < 0.05
    assert alarms <= 30


def test_holm_adjusts_in_order():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert holm([]) == ()


def test_holm_equals_statsmodels():
    """Eleven tests, as of two loads; by statsmodels 0.15: multipletests(method="holm")."""
    values = [0.0004, 0.0031, 0.2, 0.0049, 0.012, 0.9, 0.0051, 0.0499, 0.01, 0.6, 0.031]
    adjusted = [0.0044, 0.031, 0.6, 0.0441, 0.072, 1.0, 0.0441, 0.1996, 0.07, 1.0, 0.155]
    assert holm(values) == pytest.approx(adjusted)


def test_pass_rates_equal_enumeration():
    for tries, solved, k in product((4, 5), range(5), (1, 2, 3)):
        outcomes = [True] * solved + [False] * (tries - solved)
        draws = [
            [outcomes[place] for place in range(tries) if mask >> place & 1]
            for mask in range(2**tries)
            if mask.bit_count() == k
        ]
        assert len(draws) == comb(tries, k)
        assert pass_at_k(solved, tries, k) == pytest.approx(sum(map(any, draws)) / len(draws))
        assert pass_hat_k(solved, tries, k) == pytest.approx(sum(map(all, draws)) / len(draws))

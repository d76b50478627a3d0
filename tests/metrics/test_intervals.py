"""Intervals against exact ones, and their coverage by simulation."""

import math
import tracemalloc

import mpmath
import numpy as np
import pytest

from proofmill.metrics.uncertainty import intervals
from proofmill.metrics.uncertainty.intervals import NEAR, ends_of_mean, interval, of_mean, quotient


def right(successes, n):
    """Return a value for each of n problems, as many of them 1 as there are successes."""
    return np.repeat([1.0, 0.0], [successes, n - successes])


def sums(values_P):
    return np.column_stack([values_P, np.ones(len(values_P))])


@pytest.mark.parametrize(("successes", "n"), [(0, 3), (1, 3), (2, 30), (15, 30), (60, 60), (455, 1319)])
def test_interval_of_right_and_wrong_is_that_of_a_beta_distribution(successes, n):
    """Its tails are those of Beta(x + 1 - NEAR, n - x + NEAR) and Beta(x + NEAR, n - x + 1 - NEAR)."""
    low, high = of_mean(right(successes, n), (0, 1), resamples=100_000)
    below = mpmath.betainc(successes + 1 - NEAR, n - successes + NEAR, 0, low, regularized=True)
    above = mpmath.betainc(successes + NEAR, n - successes + 1 - NEAR, high, 1, regularized=True)
    assert (low == 0) if successes == 0 else float(below) == pytest.approx(0.025, abs=0.002)
    assert (high == 1) if successes == n else float(above) == pytest.approx(0.025, abs=0.002)


@pytest.mark.parametrize("value", [0.0, 3.0, 7.0])
def test_problems_without_spread_are_no_certainty(value):
    """The interval contains the value and narrows as problems are added; it never leaves the range."""
    widths = []
    for problems in (1, 3, 30, 300):
        low, high = of_mean(np.full(problems, value), (0, 7))
        assert 0 <= low <= value <= high <= 7
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True) and widths[-1] < 0.2


def test_order_of_problems_has_little_effect_and_the_seed_decides():
    """The same seed gives the same interval; another order or seed moves the ends by a fraction of the width."""
    values_P = np.random.default_rng(0).choice([0.0, 1.0, 6.0, 7.0], size=200)
    first = of_mean(values_P, (0, 7), seed=3)
    assert first == of_mean(values_P, (0, 7), seed=3)
    for other in (of_mean(values_P, (0, 7), seed=4), of_mean(np.sort(values_P), (0, 7), seed=3)):
        assert other != first and other == pytest.approx(first, abs=0.1 * (first[1] - first[0]))


def test_scale_stretches_the_interval():
    """Grades out of 7 have seven times the interval of the same grades out of 1, also for differences around 0."""
    values_P = np.random.default_rng(1).random(25)
    assert of_mean(7 * values_P, (0, 7)) == pytest.approx([7 * end for end in of_mean(values_P, (0, 1))])
    low, high = of_mean(values_P, (0, 1))
    assert of_mean(values_P - 0.5, (-0.5, 0.5)) == pytest.approx((low - 0.5, high - 0.5))


@pytest.mark.parametrize("problems", [6, 8, 12, 50])
def test_unbounded_value_has_the_width_of_a_t_interval(problems):
    """Of values from a normal distribution, whatever their number; with fewer than six there is no interval."""
    values_P = np.random.default_rng(problems).normal(100, 10, size=problems)
    low, high = of_mean(values_P, None, resamples=100_000)
    width = 2 * intervals.t_quantile(0.975, problems - 1) * values_P.std(ddof=1) / math.sqrt(problems)
    assert high - low == pytest.approx(width, rel=0.12)
    assert of_mean(values_P[:5], None) == (None, None)


def test_without_bounds_no_spread_is_no_interval():
    """One problem, or problems that are all equal, say nothing about others; no problem says nothing at all."""
    assert of_mean(np.array([5.0]), None) == of_mean(np.full(9, 5.0), None) == (None, None)
    assert of_mean(np.array([]), (0, 1)) == of_mean(np.array([]), None) == (None, None)


def test_problem_counts_with_all_its_attempts():
    """A ratio of sums weighs each problem by its attempts, and the additional problems by the mean number."""
    sums_PD = np.array([[3.0, 1.0], [20.0, 10.0], [0.0, 4.0], [7.0, 1.0]])
    ends_2D = ends_of_mean((0, 7), sums_PD)
    assert ends_2D.tolist() == [[0.0, 4.0], [28.0, 4.0]]
    low, high = interval(sums_PD, quotient, ends_2D)
    assert low < 30 / 16 < high


def test_resamples_without_a_value_are_left_out():
    """NaN does not count; if all are NaN there is no interval."""

    def value(totals_RD):
        means_R = totals_RD[:, 0] / np.maximum(totals_RD[:, 1], 1)
        return np.where(means_R > 4.5, means_R, np.nan)

    low, high = interval(sums(np.arange(1.0, 9.0)), value)  # about half of the resamples
    assert 4.5 < low < high < 8
    assert interval(np.zeros((8, 2)), value) == (None, None)
    assert interval(np.zeros((8, 2)), quotient, np.zeros((2, 2))) == (None, None)


@pytest.mark.parametrize(("problems", "rate"), [(6, 0.2), (30, 0.03), (60, 0.97), (100, 0.5)])
@pytest.mark.parametrize("attempts", [1, 4])
def test_interval_covers_low_and_high_rates_of_few_problems(problems, rate, attempts):
    """Of 300 simulated benchmarks at least 91 % have the true rate in the interval (95 % is the aim)."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(300):
        means_P = rng.binomial(attempts, rng.beta(2 * rate, 2 * (1 - rate), size=problems)) / attempts
        low, high = of_mean(means_P, (0, 1), resamples=1000)
        covered += low <= rate <= high
    assert covered >= 0.91 * 300


def test_many_problems_need_little_memory():
    """10,000 problems and 2,000 resamples need less than 50 MB; all weights at once would take 160 MB."""
    values_P = np.random.default_rng(0).random(10_000)
    tracemalloc.start()
    low, high = of_mean(values_P, (0, 1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    assert (high - low) / 2 == pytest.approx(1.96 * values_P.std() / 100, rel=0.1)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (1e6, 1.960)])
def test_quantiles_of_t_are_those_of_the_tables(freedom, quantile):
    """The two-sided 95 % points of Student's t, and back."""
    assert intervals.t_quantile(0.975, freedom) == pytest.approx(quantile, abs=5e-4)
    assert intervals.t_tails(-quantile, freedom) == pytest.approx(0.05, abs=1e-3)


@pytest.mark.parametrize(
    ("errors", "problems", "bound"), [(0, 20, 0.139), (0, 60, 0.049), (1, 60, 0.077), (0, 250, 0.012)]
)
def test_upper_bound_of_rare_errors_is_that_of_clopper_and_pearson(errors, problems, bound):
    """Bounds of qbeta(0.95, errors + 1, problems - errors)."""
    values_P = np.repeat([1.0, 0.0], [errors, problems - errors])
    assert intervals.at_most(values_P, 1.0) == pytest.approx(bound, rel=0.05)
    assert intervals.at_most(np.zeros(0), 1.0) is None

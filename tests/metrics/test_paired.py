"""Differences of two models: p against enumeration, intervals against p, coverage over seeds."""

from itertools import product
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.metrics.uncertainty import paired
from proofmill.metrics.uncertainty.intervals import t_quantile
from proofmill.metrics.uncertainty.paired import over_problems, over_seeds

UNTIMED = settings(deadline=None)
DIFFERENCES = st.lists(st.integers(-7, 7), min_size=1, max_size=9).map(lambda some: np.array(some, dtype=float))


def enumerated(differences_P):
    """Return p by a loop over all sign patterns."""
    sums = [
        sum(s * d for s, d in zip(signs, differences_P, strict=True))
        for signs in product((1, -1), repeat=len(differences_P))
    ]
    return fmean(abs(total) >= abs(sum(differences_P)) - 1e-9 for total in sums)


@UNTIMED
@given(DIFFERENCES)
def test_p_is_the_share_of_sign_flips_as_extreme(differences_P):
    """Up to 14 differences, p is the share of all sign patterns with a mean at least as far from 0."""
    assert over_problems(differences_P, None).p == pytest.approx(enumerated(differences_P))
    # Tenths, whose sums are inexact in floating point, have the same p.
    assert over_problems(differences_P / 10, None).p == over_problems(differences_P, None).p
    assert over_problems(differences_P, 7).p >= enumerated(differences_P) - 1e-9  # other problems are possible


@UNTIMED
@given(DIFFERENCES, st.sampled_from([0.5, 0.8, 0.95]))
def test_interval_without_bounds_has_the_differences_that_are_not_rejected(differences_P, confidence):
    """Inside of each end the test of that difference has p of at least 1 - confidence, outside less."""
    low, high, _ = over_problems(differences_P, None, confidence)
    step = 1e-6
    for end, inward in ((low, step), (high, -step)):
        if end is not None and low != high:
            assert enumerated(differences_P - end - inward) >= 1 - confidence - 1e-9
            assert enumerated(differences_P - end + inward) < 1 - confidence
    if low is None or high is None:
        assert 2 / 2 ** len(differences_P) >= 1 - confidence


@pytest.mark.parametrize("bound", [7, None])
@pytest.mark.parametrize("problems", [5, 12, 40, 200])
def test_interval_and_p_never_contradict_each_other(problems, bound):
    """The interval contains 0 exactly if p is at least 5 %, for small, skewed and rare differences."""
    rng, shown = np.random.default_rng(problems), 0
    for shift in np.linspace(0, 2.5, 40):
        rare_P = rng.random(problems) < rng.choice([0.1, 0.5, 1])
        differences_P = np.clip(np.round(rng.normal(shift, 2, size=problems)), -7, 7) * rare_P
        low, high, p = over_problems(differences_P, bound, draws=2000)
        excludes = (low is not None and low > 0) or (high is not None and high < 0)
        assert excludes == (p < 0.05), (differences_P, low, high, p)
        shown += excludes
    assert 0 < shown < 40 or problems == 5


def test_ten_gains_have_two_of_1024_patterns():
    """Ten gains of any size: only equal signs are as extreme; problems without a difference have no effect on p."""
    gains = [0.1, 0.2, 0.3, 1, 2, 3, 4, 5, 6, 7]
    assert over_problems(np.array(gains), None).p == over_problems(np.array(gains + [0] * 30), None).p == 2 / 1024


def test_p_by_draws_is_near_the_exact_one_and_never_zero():
    """For 22 differences it is within four standard errors of all patterns; a hundred gains have 1 of the draws."""
    differences_P = np.random.default_rng(2).integers(-5, 9, size=40).astype(float)
    differences_P = differences_P[differences_P != 0][:22]
    sums = np.zeros(1)
    for d in differences_P:
        sums = np.concatenate([sums + d, sums - d])
    exact = np.mean(np.abs(sums) >= abs(differences_P.sum()))
    found = over_problems(differences_P, None, seed=1).p
    assert 0.001 < exact < 0.5 and abs(found - exact) < 4 * np.sqrt(exact * (1 - exact) / paired.DRAWS)
    assert found == over_problems(differences_P, None, seed=1).p
    assert over_problems(np.ones(100), None, draws=999).p == over_problems(np.ones(100), 7, draws=999).p == 1 / 1000


def test_no_difference_at_few_problems_excludes_no_small_one():
    """Two models that fail at all six problems may still differ; with more problems by less."""
    six, sixty = (over_problems(np.zeros(n), 1) for n in (6, 60))
    assert six.p == sixty.p == 1
    assert six.low < -0.3 and six.high > 0.3
    assert -0.1 < sixty.low < 0 < sixty.high < 0.1


def test_equal_gains_leave_other_gains_possible():
    """Ten gains of all points are shown, and problems not drawn may be without gain."""
    low, high, p = over_problems(np.full(10, 7.0), 7)
    assert p < 0.05 and 3 < low < 6 and high == 7


def test_too_few_problems_to_test_have_the_whole_range():
    """With four problems no pattern of signs is rare enough, so every difference is possible."""
    assert over_problems(np.array([1.0, 2.0, 1.0, 2.0]), 7)[:2] == (-7, 7)
    assert over_problems(np.array([1.0, 2.0, 1.0, 2.0]), None) == (None, None, 0.125)
    assert over_problems(np.array([]), 7) == (None, None, 1.0)


@pytest.mark.parametrize(("low_rate", "high_rate"), [(0.02, 0.06), (0.1, 0.25), (0.9, 0.95)])
@pytest.mark.parametrize("problems", [10, 30])
def test_interval_covers_the_difference_of_low_rates(problems, low_rate, high_rate):
    """Of 200 simulated pairs at least 91 % have the true difference in the interval."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        hard_P = rng.random(problems)
        ours_P, theirs_P = ((hard_P < rate).astype(float) for rate in (high_rate, low_rate))
        low, high, _ = over_problems(ours_P - theirs_P, 1, resamples=500, draws=1000)
        covered += low <= high_rate - low_rate <= high
    assert covered >= 0.91 * 200


@pytest.mark.parametrize("seeds", [1, 5])
@pytest.mark.parametrize(("problems", "attempts", "rate"), [(10, 8, 0.9), (20, 8, 0.95), (60, 16, 0.97)])
def test_gains_at_many_problems_do_not_hide_losses_at_few(seeds, problems, attempts, rate):
    """A model that always solves most problems and never the others is as good as one that solves all of them as often.

    The differences are skewed, and the sample may have none of the problems that it loses.
    """
    rng, covered = np.random.default_rng(0), 0
    for _ in range(150):
        solved_P = (rng.random(problems) < rate).astype(float)
        differences_SP = solved_P - rng.binomial(attempts, rate, size=(seeds, problems)) / attempts
        options = {"resamples": 500, "draws": 1000} if seeds == 1 else {"resamples": 500}
        test = (
            over_problems(differences_SP[0], 1, **options) if seeds == 1 else over_seeds(differences_SP, 1, **options)
        )
        covered += test.low <= 0 <= test.high
        assert (test.low > 0 or test.high < 0) == (test.p < 0.05)
    assert covered >= 0.91 * 150


# ---------------------------------------------------------------------------------------------------------------- seeds


def trainings(rng, seeds, problems, mean=0.0, by_seed=1.0, by_problem=1.0, rest=1.0):
    """Return differences_SP with these standard deviations."""
    return (
        mean
        + rng.normal(0, by_seed, (seeds, 1))
        + rng.normal(0, by_problem, (1, problems))
        + rng.normal(0, rest, (seeds, problems))
    )


def test_seeds_that_agree_have_the_interval_of_the_problems():
    """If seeds do not differ, t over problems remains, and more seeds do not narrow it."""
    differences_P = np.random.default_rng(0).normal(0.3, 1, size=50)
    low, high, p = over_seeds(np.tile(differences_P, (3, 1)), None)
    margin = t_quantile(0.975, 49) * differences_P.std(ddof=1) / np.sqrt(50)
    assert (low, high) == pytest.approx((differences_P.mean() - margin, differences_P.mean() + margin))
    assert (p < 0.05) == (low > 0)


def test_seeds_alone_are_a_t_test_of_their_means():
    """If problems do not differ, the seeds' means are tested: three seeds far apart show nothing, whatever their p alone."""
    means_S = np.array([0.15, 0.47, 1.0])
    low, high, p = over_seeds(np.tile(means_S[:, None], (1, 384)), None)
    margin = t_quantile(0.975, 2) * means_S.std(ddof=1) / np.sqrt(3)
    assert (low, high) == pytest.approx((means_S.mean() - margin, means_S.mean() + margin))
    assert 0.05 < p < 0.2


@pytest.mark.parametrize("gain", [0.0, 0.1, 1.0])
def test_equal_differences_over_seeds_are_those_over_problems(gain):
    """Without any variance, rounding decides nothing: five seeds are worth one, which is no certainty."""
    assert over_seeds(np.full((5, 30), gain), 1) == over_problems(np.full(30, gain), 1)
    assert (over_seeds(np.full((5, 30), gain), 1).p < 0.05) == (gain > 0)


def test_one_problem_says_nothing_of_others():
    """However well the seeds agree about it."""
    assert over_seeds(np.array([[0.5], [0.55], [0.45], [0.5], [0.52]]), 1) == (-1, 1, 1.0)
    assert over_seeds(np.array([[0.5], [0.55]]), None) == (None, None, 1.0)


def test_seeds_leave_problems_not_drawn_possible():
    """If all seeds gain at no problem but one, the ends are no nearer than those over problems."""
    differences_SP = np.zeros((5, 30))
    differences_SP[0, 0] = 1
    over, of_problems = over_seeds(differences_SP, 1), over_problems(differences_SP.mean(axis=0), 1)
    assert over.low <= of_problems.low + 0.02 and over.high >= of_problems.high - 0.02


def test_reach_is_the_largest_difference_of_a_problem():
    """A problem that counts as twenty in an average leaves more possible than its bound says."""
    near, far = over_problems(np.zeros(30), 1), over_problems(np.zeros(30), 1, reach=20)
    assert far.high > 5 * near.high and far.high <= 1


def test_thirds_and_tenths_are_no_contradiction():
    """Sums that are 0 but for rounding count as 0 for the ends, too."""
    tenths_P = np.array([0.1, 0.5, 0.4, 0.1, 0.1, 0.4, 0.2, -0.6, -0.3, 1, 0.2, 0.8, 0.5])
    low, _, p = over_problems(tenths_P, 1)
    assert p > 0.05 and low <= 0
    rng = np.random.default_rng(0)
    for attempts in (3, 5, 6, 7, 10):
        for _ in range(40):
            differences_P = (rng.binomial(attempts, 0.5, 14) - rng.binomial(attempts, 0.3, 14)) / attempts
            low, high, p = over_problems(differences_P, 1)
            assert (low > 0 or high < 0) == (p < 0.05)


@pytest.mark.parametrize("seeds", [2, 5])
@pytest.mark.parametrize(("by_seed", "by_problem"), [(0.0, 1.0), (0.2, 1.0), (1.0, 1.0), (1.0, 0.0)])
def test_interval_over_seeds_covers_the_mean(seeds, by_seed, by_problem):
    """At least 91 % of 200 simulated experiments, whether seeds or problems vary more; p agrees with the interval."""
    rng, covered = np.random.default_rng(seeds), 0
    for _ in range(200):
        low, high, p = over_seeds(trainings(rng, seeds, 30, 0.5, by_seed, by_problem), None)
        covered += low <= 0.5 <= high
        assert (low > 0 or high < 0) == (p < 0.05)
    assert covered >= 0.91 * 200


def test_missing_verdicts_of_a_seed_leave_the_others():
    """A problem without a verdict in one seed counts by its other seeds."""
    whole_SP = trainings(np.random.default_rng(3), 5, 60)
    some_SP = whole_SP.copy()
    some_SP[0, :6] = np.nan
    whole, some = over_seeds(whole_SP, 7), over_seeds(some_SP, 7)
    assert some.low == pytest.approx(whole.low, abs=0.3) and some.p == pytest.approx(whole.p, abs=0.2)


def test_one_seed_is_refused():
    """One training says nothing about others."""
    with pytest.raises(ValueError, match="over seeds: one seed; expected at least two"):
        over_seeds(np.zeros((1, 5)), 7)


# ----------------------------------------------------------------------------------------------------------------- Holm


def test_holm_adjusts_as_by_hand():
    """0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 are 0.02, 0.03, 0.06, 0.04, and the last may not be below 0.06."""
    assert paired.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert paired.holm([0.7, 0.6]) == [1.0, 1.0]
    assert paired.holm([]) == []


@UNTIMED
@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0.001, 0.5))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values, alpha):
    """Adjusted values at most alpha are those rejected by stepping down from the smallest until one fails."""
    rejected = set()
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[i] * (len(p_values) - rank) > alpha:
            break
        rejected.add(i)
    assert {i for i, p in enumerate(paired.holm(p_values)) if p <= alpha} == rejected

"""Estimates against enumeration, errors against simulation, plans against both."""

import math
from collections import Counter
from itertools import combinations, product
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.metrics import estimates
from proofmill.metrics.estimates import Variance, _components
from proofmill.metrics.uncertainty import intervals, paired

CLOSE = {"rel": 1e-9, "abs": 1e-12}
POINTS = st.integers(0, 7)
UNTIMED = settings(deadline=None)


# ---------------------------------------------------------------------------------------------- k attempts of a problem


@UNTIMED
@given(st.lists(st.booleans(), min_size=1, max_size=9), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_success(successes, data):
    """pass@k equals the share of all draws of k attempts that contain a success."""
    k = data.draw(st.integers(1, len(successes)))
    expected = fmean(any(draw) for draw in combinations(successes, k))
    assert estimates.pass_at_k(sum(successes), len(successes), k) == pytest.approx(expected, **CLOSE)


@UNTIMED
@given(st.integers(1, 2000), st.data())
def test_pass_at_1_is_the_mean_for_any_number_of_attempts(attempts, data):
    """pass@1 is successes / attempts, to the last digit, however many attempts there are."""
    successes = data.draw(st.integers(0, attempts))
    assert estimates.pass_at_k(successes, attempts, 1) == successes / attempts


def test_pass_at_1_of_a_benchmark_with_more_attempts_than_k_is_its_mean():
    """110 successes in 30 x 8 attempts are 0.4583 (lighteval issue 771: such a mean was printed as 0.0547)."""
    successes_P = np.bincount(np.random.default_rng(0).permutation(240)[:110] // 8, minlength=30)
    found = fmean(estimates.pass_at_k(int(c), 8, 1) for c in successes_P)
    assert round(found, 4) == 0.4583


@pytest.mark.parametrize(("successes", "k", "expected"), [(1, 100, 0.5), (2, 1, 0.01), (0, 50, 0.0), (150, 51, 1.0)])
def test_pass_at_k_of_200_attempts_has_the_closed_form(successes, k, expected):
    """Of 200 attempts, one success is in half of the draws of 100, and 150 successes are in every draw of 51."""
    assert estimates.pass_at_k(successes, 200, k) == expected


def test_pass_at_k_agrees_with_the_product_of_chen_et_al():
    """For hundreds of attempts it equals 1 - prod(1 - k / i), i from n - c + 1 to n (Chen et al. 2021, figure 3)."""
    for n, c, k in product((200, 777), (1, 5, 60, 199), (1, 10, 100)):
        expected = 1 - np.prod(1 - k / np.arange(n - c + 1, n + 1)) if n - c >= k else 1.0
        assert estimates.pass_at_k(c, n, k) == pytest.approx(expected, abs=1e-12)


@UNTIMED
@given(st.lists(st.tuples(st.integers(0, 3), POINTS), min_size=1, max_size=8), st.data())
def test_best_at_k_is_the_mean_over_draws_and_ties(attempts, data):
    """best@k equals the mean over all draws of k attempts of the mean value of those with the highest score."""
    k = data.draw(st.integers(1, len(attempts)))

    def best(draw):
        highest = max(score for score, _ in draw)
        return fmean(value for score, value in draw if score == highest)

    expected = fmean(best(draw) for draw in combinations(attempts, k))
    scores, values = zip(*attempts, strict=True)
    assert estimates.best_at_k(scores, values, k) == pytest.approx(expected, **CLOSE)


@UNTIMED
@given(st.lists(POINTS, min_size=1, max_size=8), st.data())
def test_best_at_k_by_the_value_itself_is_the_expected_maximum(values, data):
    """Selected by its own value, the best of k has the mean over all draws of their maximum."""
    k = data.draw(st.integers(1, len(values)))
    expected = fmean(max(draw) for draw in combinations(values, k))
    assert estimates.best_at_k(values, values, k) == pytest.approx(expected, **CLOSE)


@UNTIMED
@given(st.lists(st.booleans(), min_size=1, max_size=400), st.data())
def test_best_at_k_of_right_and_wrong_is_pass_at_k(right, data):
    """For attempts that are correct or wrong, the expected maximum is pass@k."""
    k = data.draw(st.integers(1, len(right)))
    expected = estimates.pass_at_k(sum(right), len(right), k)
    assert estimates.best_at_k(right, right, k) == pytest.approx(expected, **CLOSE)


def slow_majority(answers, values, k):
    """Average over all draws the mean value of the answers that tie for most votes; 0 without answers."""
    value = {a: fmean(v for b, v in zip(answers, values, strict=True) if a == b) for a in set(answers)}

    def winner(draw):
        votes = Counter(answers[i] for i in draw if answers[i] is not None)
        most = max(votes.values(), default=0)
        return fmean(value[a] for a, n in votes.items() if n == most) if votes else 0.0

    return fmean(winner(draw) for draw in combinations(range(len(answers)), k))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([None, "1", "2", "3", "4"]), POINTS), min_size=1, max_size=9), st.data())
def test_majority_at_k_is_the_mean_over_draws_and_ties(attempts, data):
    """majority@k equals the mean over all draws of k attempts of the mean value of the most frequent answers."""
    k = data.draw(st.integers(1, len(attempts)))
    answers, values = zip(*attempts, strict=True)
    assert estimates.majority_at_k(answers, values, k) == pytest.approx(slow_majority(answers, values, k), **CLOSE)


def test_majority_at_k_agrees_with_draws_of_32_from_64():
    """For 64 attempts with 20 answers and k = 32, 40,000 random draws give the exact value within 4 errors."""
    rng = np.random.default_rng(1)
    answers = np.minimum(rng.geometric(0.12, size=64), 20)
    values = (answers == 2) * 7.0 + (answers == 1) * 1.0
    found = []
    for _ in range(40_000):
        votes = np.bincount(rng.choice(answers, size=32, replace=False), minlength=21)
        tied = np.flatnonzero(votes == votes.max())
        found.append(7.0 * np.mean(tied == 2) + np.mean(tied == 1))
    exact = estimates.majority_at_k(answers.tolist(), values.tolist(), 32)
    assert abs(exact - np.mean(found)) < 4 * np.std(found) / math.sqrt(len(found))
    assert np.std(found) > 0.1


def test_majority_at_k_of_all_attempts_is_the_vote_itself():
    """With k = n of 1,100 attempts there is one draw, and the winner is the answer that leads by one vote."""
    answers = ["a"] * 401 + ["b"] * 400 + [None] * 299
    values = [1.0] * 201 + [0.0] * 200 + [7.0] * 699
    assert estimates.majority_at_k(answers, values, 1100) == pytest.approx(201 / 401)


def test_majority_without_any_answer_is_worth_nothing():
    """If no attempt has an answer the value is 0, whatever the values of the attempts."""
    assert estimates.majority_at_k([None, None, None], [7, 7, 7], 2) == 0.0


@pytest.mark.parametrize("k", [0, 5])
def test_draw_of_more_attempts_than_there_are_is_refused(k):
    """k above the number of attempts, or below 1, is an error in each of the three."""
    for name, call in (
        ("pass", lambda: estimates.pass_at_k(2, 4, k)),
        ("best", lambda: estimates.best_at_k([1, 2, 3, 4], [0, 0, 7, 7], k)),
        ("majority", lambda: estimates.majority_at_k(list("aabb"), [0, 0, 7, 7], k)),
    ):
        with pytest.raises(ValueError, match=rf"{name}@{k}: 4 attempts; expected k from 1 to 4\. Set a smaller k"):
            call()


def test_more_successes_than_attempts_are_refused():
    """Five successes in four attempts are an error, not a chance above 1."""
    with pytest.raises(ValueError, match="5 successes in 4 attempts; expected 0 to 4"):
        estimates.pass_at_k(5, 4, 2)


# ------------------------------------------------------------------------------------------------------------- variance


def verdicts_of(rng, counts, problem, sample, judge):
    """Draw verdicts with known components; `counts` has, per problem, the number of verdicts on each sample."""
    for p, sizes in enumerate(counts):
        true = rng.normal(0, problem**0.5)
        for s, size in enumerate(sizes):
            value = true + rng.normal(0, sample**0.5)
            for _ in range(size):
                yield p, s, value + rng.normal(0, judge**0.5)


def test_variance_of_a_balanced_table_is_as_by_hand():
    """Two problems, two samples, two verdicts: mean squares 72, 10 and 2 give (72-10)/4, (10-2)/2 and 2."""
    table = {(0, 0): (1, 3), (0, 1): (5, 7), (1, 0): (8, 10), (1, 1): (10, 12)}
    found = estimates.split_variance((p, s, v) for (p, s), values in table.items() for v in values)
    assert found == Variance(15.5, 4.0, 2.0, 2, 4, 8)


@UNTIMED
@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), max_size=4), st.randoms())
def test_variance_of_any_design_is_estimated_without_bias(counts, random):
    """Each component answers its own variance with exactly 1 and the others with 0, however unequal the numbers are.

    The expectation of a quadratic form is the sum of its values at the columns of the covariance's root; here these are
    the indicators of problems, of samples and of verdicts.
    """
    counts = [[2, 1], [3], *counts]  # all three components are identified
    cells = [(p, s) for p, sizes in enumerate(counts) for s, size in enumerate(sizes) for _ in range(size)]
    random.shuffle(cells)
    problem_N, sample_N = np.array([p for p, _ in cells]), np.array([sorted(set(cells)).index(c) for c in cells])
    roots = [np.eye(problem_N.max() + 1)[problem_N].T, np.eye(sample_N.max() + 1)[sample_N].T, np.eye(len(cells))]
    for component, columns in enumerate(roots):
        answer = sum(np.array(_components(problem_N, sample_N, column)) for column in columns)
        assert answer == pytest.approx(np.eye(3)[component], abs=1e-9)


def test_variance_of_simulated_verdicts_is_near_the_truth():
    """800 problems with one to six samples and one to three verdicts: 4, 2 and 1 come out within 12 %."""
    rng = np.random.default_rng(0)
    counts = [rng.integers(1, 4, size=rng.integers(1, 7)).tolist() for _ in range(800)]
    found = estimates.split_variance(verdicts_of(rng, counts, 4, 2, 1))
    assert (found.problem, found.sample, found.judge) == pytest.approx((4, 2, 1), rel=0.12)
    assert (found.n_problems, found.n_verdicts) == (800, sum(map(sum, counts)))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([[1, 1, 1]] * 3000, (4, 3, None)),  # the sample holds the judge's noise
        ([[2]] * 3000, (6, None, 1)),  # the problem holds the sample's
        ([[1]] * 3000, (7, None, None)),
        ([[2] * 3000], (None, 2, 1)),
    ],
)
def test_variance_that_a_design_cannot_tell_is_none(counts, expected):
    """Without repetition at a level its component is None and is part of the one above, if there is one."""
    found = estimates.split_variance(verdicts_of(np.random.default_rng(0), counts, 4, 2, 1))
    for component, truth in zip((found.problem, found.sample, found.judge), expected, strict=True):
        assert component is None if truth is None else component == pytest.approx(truth, rel=0.1)


def test_variance_below_zero_is_reported_as_zero():
    """Problems with means more alike than their samples allow have variance 0, not less."""
    found = estimates.split_variance([(0, 0, 0), (0, 1, 7), (1, 0, 7), (1, 1, 0)])
    assert (found.problem, found.sample, found.judge) == (0.0, 24.5, None)


def test_variance_of_nothing_is_unknown():
    """Without verdicts every component is None."""
    assert estimates.split_variance([]) == Variance(None, None, None, 0, 0, 0)


@UNTIMED
@given(st.lists(st.floats(0, 7), min_size=1))
def test_worst_variance_bounds_all_values_in_the_scale(values):
    """No values in [0, 7] vary more than worst_variance(7), and half at each end reach it."""
    assert np.var(values) <= estimates.worst_variance(7) + 1e-9
    assert np.var([0, 7]) == estimates.worst_variance(7)


# ----------------------------------------------------------------------------------------------------- errors and plans


def simulated_means(rng, true_RP, samples, verdicts, sample, judge):
    """Simulate the means of R benchmarks from their problems' true means."""
    noise_RPS = rng.normal(0, sample**0.5, size=(*true_RP.shape, samples))
    noise_RPSV = rng.normal(0, judge**0.5, size=(*noise_RPS.shape, verdicts))
    return (true_RP[:, :, None, None] + noise_RPS[..., None] + noise_RPSV).mean(axis=(1, 2, 3))


def test_difference_error_is_the_spread_of_simulated_differences():
    """Two models with independent true means, in 6,000 simulated benchmarks: within 4 %."""
    rng = np.random.default_rng(1)
    one_R, other_R = (simulated_means(rng, true_RP, 3, 2, 3.0, 6.0) for true_RP in rng.normal(0, 1.5, (2, 6000, 12)))
    found = estimates.difference_error(Variance(2.25, 3.0, 6.0), 12, 3, 2)
    assert found == pytest.approx((one_R - other_R).std(), rel=0.04)


def test_difference_error_counts_an_unknown_component_where_it_is_contained():
    """Unidentified judge noise is part of the sample's component, and more verdicts do not reduce it."""
    variance = Variance(4.0, 4.5, None)
    assert estimates.difference_error(variance, 12, 3, 9) == math.sqrt(2 * (4 + 4.5 / 3) / 12)
    assert estimates.difference_error(Variance(4.0, 4.5, 0.0), 12, 3, 9) == math.sqrt(2 * (4 + 4.5 / 3) / 12)


def test_difference_error_from_one_problem_is_refused():
    """One problem does not determine the variance between problems."""
    variance = estimates.split_variance([(0, 0, 1.0), (0, 1, 2.0)])
    with pytest.raises(ValueError, match=r"unknown, from 1 problems; expected at least 2\. Grade more problems"):
        estimates.difference_error(variance, 10, 2)


def test_worst_variance_gives_the_largest_error_of_all_splits():
    """No split of the worst variance has a larger standard error than all of it between problems."""
    worst = estimates.worst_variance(7)
    most = estimates.difference_error(Variance(worst, 0.0, 0.0), 60, 3)
    assert most == pytest.approx(3.5 * math.sqrt(2 / 60))
    for parts in product(range(5), repeat=3):
        if sum(parts):
            split = Variance(*(worst * part / sum(parts) for part in parts))
            assert estimates.difference_error(split, 60, 3) <= most + 1e-12


def test_detectable_difference_is_found_as_often_as_the_power_says():
    """Of 20,000 normal estimates of such a difference, 80 % are significant at 5 %, within a point."""
    difference = estimates.detectable(0.5, 1_000_000, None)
    found = np.random.default_rng(0).normal(difference, 0.5, size=20_000)
    assert difference == pytest.approx((1.959964 + 0.841621) * 0.5, rel=1e-6)
    assert np.mean(np.abs(found) > 1.959964 * 0.5) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("confidence", "fewest"), [(0.95, 6), (0.99, 8), (0.5, 3)])
def test_no_difference_is_detectable_where_none_can_be_shown(confidence, fewest):
    """With fewer problems no pattern of signs is rare enough; no difference exceeds the scale."""
    assert estimates.fewest_problems(confidence) == fewest
    assert 2 / 2**fewest < 1 - confidence <= 2 / 2 ** (fewest - 1)
    assert estimates.detectable(0.01, fewest - 1, 1, confidence) is None
    assert 0 < estimates.detectable(0.01, fewest, 1, confidence) < 1
    assert estimates.detectable(0.4, 20, 1) is None and estimates.detectable(0.4, 20, 7) > 1


# ----------------------------------------------------------------------------------------------------------------- runs


@UNTIMED
@given(st.lists(st.lists(POINTS, min_size=1, max_size=5), min_size=2, max_size=5))
def test_runs_are_merged_by_their_means(runs):
    """Mean, largest and smallest run mean, and the root of their squared deviations over one less than their number."""
    means = [sum(run) / len(run) for run in runs]
    middle = sum(means) / len(means)
    std = math.sqrt(sum((m - middle) ** 2 for m in means) / (len(means) - 1))
    for how, expected in (("mean", middle), ("max", max(means)), ("min", min(means))):
        found = estimates.merge_runs(runs, how)
        assert (found.value, found.std) == pytest.approx((expected, std), abs=1e-9)
        assert found.means == pytest.approx(means)


def test_one_run_has_no_standard_deviation():
    """The deviation of a single run is None, not 0."""
    assert estimates.merge_runs([[7, 0]]) == (3.5, None, [3.5])


def test_runs_that_cannot_be_merged_are_refused():
    """An unknown statistic and a run without values raise an error."""
    with pytest.raises(ValueError, match="runs by `median`; expected mean, max, min"):
        estimates.merge_runs([[1]], "median")
    for runs in ([], [[1], []]):
        with pytest.raises(ValueError, match="a run without values, or no run; expected values in each run"):
            estimates.merge_runs(runs)


# ---------------------------------------------------------------------------------------------------- published figures


@pytest.mark.parametrize(
    ("successes", "percent"),
    [
        *[(126, 9.55), (455, 34.50), (453, 34.34), (461, 34.95), (467, 35.41)],  # correct
        *[(875, 66.34), (1305, 98.94), (1314, 99.62), (1310, 99.32), (1317, 99.85)],  # in the right format
    ],
)
def test_published_counts_of_1319_give_the_published_percentages(successes, percent):
    """Each count of the GSM8K length study over 1,319 problems is its percentage, to two decimals."""
    assert round(100 * estimates.pass_at_k(successes, 1319, 1), 2) == percent


def test_published_accuracies_lie_within_the_error_of_one_run():
    """At 455 of 1,319 the standard error is 1.31 points; 467 is not a detectable gain, and the intervals overlap."""
    rate = 455 / 1319
    variance = Variance(rate * (1 - rate), None, None)
    assert round(100 * estimates.difference_error(variance, 1319, 1) / math.sqrt(2), 2) == 1.31
    assert estimates.detectable(estimates.difference_error(variance, 1319, 1), 1319, 1) > (467 - 455) / 1319
    first, second = (intervals.of_mean(np.repeat([1.0, 0.0], [n, 1319 - n]), (0, 1)) for n in (455, 467))
    assert first[1] > second[0]


def runs_with(rng, base_P, means):
    """Build values_RP in percent: problems of different difficulty, noise of attempts, exactly these run means."""
    noise_RP = rng.normal(0, 22, size=(len(means), len(base_P)))
    return base_P + noise_RP - (base_P + noise_RP).mean(axis=1, keepdims=True) + np.array(means)[:, None]


def test_half_a_point_at_a_deviation_of_2_9_is_not_called_significant():
    """39.5 (2.9) to 40.0 (0.6) over 3 runs of 60 problems: p is large and the interval contains 0."""
    rng = np.random.default_rng(0)
    base_P = rng.choice([0.0, 14.3, 85.7, 100.0], size=60)
    before_RP = runs_with(rng, base_P, [39.5 - 2.9, 39.5, 39.5 + 2.9])
    after_RP = runs_with(rng, base_P, [40.0 - 0.6, 40.0, 40.0 + 0.6])
    before, after = estimates.merge_runs(before_RP), estimates.merge_runs(after_RP)
    assert (before.value, before.std, after.value, after.std) == pytest.approx((39.5, 2.9, 40.0, 0.6))

    gains_P = after_RP.mean(axis=0) - before_RP.mean(axis=0)
    assert gains_P.mean() == pytest.approx(0.5)
    test = paired.over_problems(gains_P, 100)
    assert test.p > 0.5 and test.low < 0 < test.high
    variance = estimates.split_variance((p, r, before_RP[r, p]) for r in range(3) for p in range(60))
    assert estimates.detectable(estimates.difference_error(variance, 60, 3), 60, 100) > 4


def test_ten_points_on_the_same_problems_are_called_significant():
    """The same construction with a gain of 10 points is found by the test and by the interval."""
    rng = np.random.default_rng(0)
    base_P = rng.choice([0.0, 14.3, 85.7, 100.0], size=60)
    before_RP, after_RP = (runs_with(rng, base_P, [mean] * 3) for mean in (39.5, 49.5))
    gains_P = after_RP.mean(axis=0) - before_RP.mean(axis=0)
    test = paired.over_problems(gains_P, 100)
    assert test.p < 0.01 and test.low > 0

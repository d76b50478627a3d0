"""Agreement of graders with humans: each metric equals loops written from its definition."""

import itertools
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.metrics.agreement import (
    AGREEMENTS,
    DECISIONS,
    Agreement,
    build_balanced_accuracy,
    build_spearman,
    cohen_kappa,
)
from proofmill.metrics.uncertainty import intervals

HALF_POINTS = st.integers(0, 14).map(lambda n: n / 2)
PROBLEMS = st.lists(
    st.lists(st.tuples(HALF_POINTS, HALF_POINTS), max_size=5), max_size=5
)  # (grader, human) of each proof
UNTIMED = settings(deadline=None)
SYMMETRIC = sorted(set(AGREEMENTS) - {"local-consistency"})


def sums_of(agreement: Agreement, problems) -> np.ndarray:
    """Return sums_PD of the problems that count."""
    grades = [np.array(proofs, dtype=float).reshape(-1, 2) for proofs in problems]
    return np.array([s for m in grades if (s := agreement.sums(m[:, 0], m[:, 1])) is not None])


def value_of(agreement: Agreement, problems) -> float | None:
    """Return the value over problems; None if undefined."""
    sums_PD = sums_of(agreement, problems)
    value = agreement.value(sums_PD.sum(axis=0, keepdims=True))[0] if len(sums_PD) else np.nan
    return None if np.isnan(value) else float(value)


# ----------------------------------------------------------------------------------------------------- slow definitions


def mean(numbers):
    numbers = [Fraction(n) for n in numbers]
    return sum(numbers) / len(numbers) if numbers else None


def sign(number):
    return (number > 0) - (number < 0)


def bucket(grade):
    for low, high in ((0, 0), (1, 3), (4, 6), (7, 7)):
        if low <= grade <= high:
            return low
    return None


def rounded_bucket(grade):
    return 0 if grade < 0.5 else 1 if grade < 3.5 else 4 if grade < 6.5 else 7


def over_proofs(score):
    return lambda problems: mean(score(g, h) for proofs in problems for g, h in proofs)


def over_problems(scores):
    """Average the numbers that `scores` gives per proof or pair of a problem's (grader, human) grades."""
    return lambda problems: mean(mean(scores(proofs)) for proofs in problems if len(proofs) >= 2)


def advantages(proofs):
    grader, human = (mean(grades) for grades in zip(*proofs, strict=True))
    return [(Fraction(g) - grader, Fraction(h) - human) for g, h in proofs]


def squared_errors(pairs):
    """Return the mean squared error within proofs, and between the grader's grade of any proof and the human's of any."""
    return mean((g - h) ** 2 for g, h in pairs), mean((g - h) ** 2 for g, _ in pairs for _, h in pairs)


def one_minus_quotient(observed, expected):
    return 1 - observed / expected if expected else None


def krippendorff(pairs):
    """Compare errors within proofs with those between any two of all grades, by whomever."""
    every = [grade for pair in pairs for grade in pair]
    observed = mean((g - h) ** 2 for g, h in pairs)
    expected = mean((a - b) ** 2 for i, a in enumerate(every) for j, b in enumerate(every) if i != j)
    return one_minus_quotient(observed, expected)


SLOW = {
    "mae": over_proofs(lambda g, h: abs(g - h)),
    "bias": over_proofs(lambda g, h: g - h),
    "bucket-accuracy": over_proofs(lambda g, h: bucket(g) is not None and bucket(g) == bucket(h)),
    "bucket-accuracy-rounded": over_proofs(lambda g, h: rounded_bucket(g) == rounded_bucket(h)),
    "local-consistency": over_problems(
        lambda proofs: [(a <= b) == (x <= y) for (a, x), (b, y) in combinations(proofs, 2)]
    ),
    "pairwise-agreement": over_problems(
        lambda proofs: [sign(a - b) == sign(x - y) for (a, x), (b, y) in combinations(proofs, 2)]
    ),
    "advantage-difference": over_problems(lambda proofs: [abs(g - h) for g, h in advantages(proofs)]),
    "advantage-sign-agreement": over_problems(lambda proofs: [sign(g) == sign(h) for g, h in advantages(proofs)]),
    "quadratic-kappa": lambda problems: one_minus_quotient(*squared_errors([p for proofs in problems for p in proofs])),
    "krippendorff-alpha": lambda problems: krippendorff([p for proofs in problems for p in proofs]),
}


def slow_balanced_accuracy(pairs):
    right, wrong = [g for g, h in pairs if h], [not g for g, h in pairs if not h]
    return (mean(right) + mean(wrong)) / 2 if right and wrong else None


def slow_kappa(pairs):
    if not pairs:
        return None
    grader, human = mean(g for g, _ in pairs), mean(h for _, h in pairs)
    chance = grader * human + (1 - grader) * (1 - human)
    return (mean(g == h for g, h in pairs) - chance) / (1 - chance) if chance != 1 else None


# ---------------------------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("name", AGREEMENTS)
@UNTIMED
@given(problems=PROBLEMS)
def test_agreement_is_its_definition(name, problems):
    """Each metric equals loops over proofs or pairs in exact fractions, and is undefined without any."""
    expected = SLOW[name](problems)
    found = value_of(AGREEMENTS[name], problems)
    assert found is None if expected is None else found == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize(("name", "slow"), [("balanced-accuracy", slow_balanced_accuracy), ("cohen-kappa", slow_kappa)])
@UNTIMED
@given(problems=PROBLEMS, threshold=HALF_POINTS, human_threshold=HALF_POINTS)
def test_agreement_of_decisions_is_its_definition(name, slow, problems, threshold, human_threshold):
    """Each metric of decisions equals its formula in fractions over all proofs, and is undefined if it is 0/0."""
    pairs = [(g >= threshold, h >= human_threshold) for proofs in problems for g, h in proofs]
    expected = slow(pairs)
    found = value_of(DECISIONS[name](threshold, human_threshold), problems)
    assert found is None if expected is None else found == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize("name", SYMMETRIC)
@UNTIMED
@given(problems=PROBLEMS, random=st.randoms())
def test_agreement_does_not_depend_on_row_order(name, problems, random):
    """Shuffling the proofs of each problem changes no metric except the original's local consistency."""
    shuffled = [random.sample(proofs, len(proofs)) for proofs in problems]
    expected = value_of(AGREEMENTS[name], problems)
    assert value_of(AGREEMENTS[name], shuffled) == (None if expected is None else pytest.approx(expected, abs=1e-9))


@pytest.mark.parametrize(
    "agreement",
    [*(AGREEMENTS[name] for name in SYMMETRIC if name != "bias"), cohen_kappa(6, 6)],
    ids=[*(name for name in SYMMETRIC if name != "bias"), "cohen-kappa"],
)
@UNTIMED
@given(problems=PROBLEMS)
def test_agreement_of_grader_with_human_is_that_of_human_with_grader(agreement, problems):
    """Exchanging the two sides changes no value."""
    exchanged = [[(h, g) for g, h in proofs] for proofs in problems]
    assert value_of(agreement, exchanged) == value_of(agreement, problems)


def test_local_consistency_of_a_tie_depends_on_row_order():
    """A grader's tie is a miss if the better proof comes first and a hit if second; pairwise-agreement misses both."""
    better_first, better_second = [[(3, 5), (3, 2)]], [[(3, 2), (3, 5)]]
    assert value_of(AGREEMENTS["local-consistency"], better_first) == 0
    assert value_of(AGREEMENTS["local-consistency"], better_second) == 1
    assert (
        value_of(AGREEMENTS["pairwise-agreement"], better_first)
        == value_of(AGREEMENTS["pairwise-agreement"], better_second)
        == 0
    )


@UNTIMED
@given(PROBLEMS)
def test_agreement_of_equal_grades_is_perfect_where_it_is_corrected(problems):
    """A grader that gives the human grades has errors of 0 and, in every corrected metric, shares of 1."""
    same = [[(h, h) for _, h in proofs] for proofs in problems]
    for name in ("mae", "bias", "advantage-difference"):
        assert value_of(AGREEMENTS[name], same) in (0, None), name
    for name in ("bucket-accuracy-rounded", "pairwise-agreement", "advantage-sign-agreement"):
        assert value_of(AGREEMENTS[name], same) in (1, None), name


def test_bucket_accuracy_of_equal_half_grades_is_zero_as_in_the_original():
    """3.5 against 3.5 is in no bucket of the original and so wrong; rounded it is right."""
    same = [[(0.5, 0.5), (3.5, 3.5), (6.5, 6.5)]]
    assert value_of(AGREEMENTS["bucket-accuracy"], same) == 0
    assert value_of(AGREEMENTS["bucket-accuracy-rounded"], same) == 1


@UNTIMED
@given(st.lists(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=5), max_size=5))
def test_bucket_accuracies_are_one_for_whole_grades(problems):
    """Rounding the buckets has no effect on whole numbers of points."""
    assert value_of(AGREEMENTS["bucket-accuracy"], problems) == value_of(
        AGREEMENTS["bucket-accuracy-rounded"], problems
    )


def test_agreement_by_pairs_and_advantages_leaves_single_proofs_out():
    """A problem with one proof has no effect; if all have one, there is no value."""
    pair, single = [(7, 6), (1, 3)], [(7, 0)]
    for name in ("local-consistency", "pairwise-agreement", "advantage-difference", "advantage-sign-agreement"):
        assert value_of(AGREEMENTS[name], [pair, single]) == value_of(AGREEMENTS[name], [pair]), name
        assert value_of(AGREEMENTS[name], [single, single]) is None, name


def test_advantage_sign_at_the_mean_agrees_only_with_the_mean():
    """Grader 0, 3, 6 puts the second proof at the mean, the human (0, 4, 6) above it: two of three agree."""
    assert value_of(AGREEMENTS["advantage-sign-agreement"], [[(0, 0), (3, 4), (6, 6)]]) == pytest.approx(2 / 3)
    assert value_of(AGREEMENTS["advantage-sign-agreement"], [[(0, 0), (3, 3), (6, 6)]]) == 1


def test_advantage_sign_takes_rounding_for_the_mean():
    """Three equal grades of 0.1 are at their mean, though it is not 0.1 in floating point."""
    grades = np.array([0.1, 0.1, 0.1])
    assert grades.mean() != 0.1
    agreement = AGREEMENTS["advantage-sign-agreement"]
    assert agreement.sums(grades, np.array([5.0, 5.0, 5.0])).tolist() == [1.0, 1.0]


def test_kappa_of_a_known_table_is_as_by_hand():
    """20 accepted by both, 5 and 10 by one, 15 by none: kappa (0.7 - 0.5) / 0.5; balanced accuracy 17/24."""
    problems = [[(7, 1)] * 20, [(7, 0)] * 5, [(2, 1)] * 10, [(2, 0)] * 15]
    assert value_of(cohen_kappa(6, 1), problems) == pytest.approx(0.4)
    assert value_of(build_balanced_accuracy(6, 1), problems) == pytest.approx((20 / 30 + 15 / 20) / 2)


def test_decisions_of_one_class_only_are_not_defined():
    """If all proofs are correct there is no balanced accuracy; kappa is undefined if the grader accepts all."""
    all_right = [[(7, 7), (7, 7)], [(7, 6)]]
    assert value_of(build_balanced_accuracy(6, 6), all_right) is None
    assert value_of(cohen_kappa(6, 6), all_right) is None
    assert value_of(cohen_kappa(6, 6), [*all_right, [(0, 7)]]) == 0


def test_value_of_many_totals_is_each_value():
    """`value` maps R rows of totals to R numbers, as a loop over them does, undefined ones as NaN."""
    totals_RD = np.array([[20.0, 5, 10, 15], [3, 0, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    for agreement in (cohen_kappa(6, 6), build_balanced_accuracy(6, 6)):
        one_by_one = [agreement.value(row[None])[0] for row in totals_RD]
        np.testing.assert_array_equal(agreement.value(totals_RD), one_by_one)
        assert np.isnan(agreement.value(totals_RD)).tolist() == [False, True, False, False]


def test_agreement_has_an_interval_by_problems():
    """The interval of a metric over problems is that of the mean of their values, with one more at each end."""
    rng = np.random.default_rng(0)
    human = rng.integers(0, 8, size=(40, 4))
    grader = np.clip(human + rng.integers(-2, 3, size=(40, 4)), 0, 7)
    problems = [list(zip(g, h, strict=True)) for g, h in zip(grader.tolist(), human.tolist(), strict=True)]
    agreement = AGREEMENTS["pairwise-agreement"]
    sums_PD = sums_of(agreement, problems)
    found = intervals.interval(sums_PD, agreement.value, agreement.ends(7, 4))
    assert found == pytest.approx(intervals.of_mean(sums_PD[:, 0], (0, 1)))
    assert found[0] < value_of(agreement, problems) < found[1]


EVERY = {
    **AGREEMENTS,
    **{name: build(6, 6) for name, build in DECISIONS.items()},
    "spearman": build_spearman([*itertools.product((0, 2, 7), repeat=2)]),
}


@pytest.mark.parametrize("name", EVERY)
def test_full_agreement_at_few_problems_is_no_certainty(name):
    """Three problems with equal grades have the highest value, and an interval that contains less and nothing more."""
    agreement, problems = EVERY[name], [[(7, 7), (0, 0)], [(0, 0), (2, 2)], [(7, 7), (2, 2)]]
    value = value_of(agreement, problems)
    low, high = intervals.interval(sums_of(agreement, problems), agreement.value, agreement.ends(7, 2))
    assert high - low > 0.2 and low <= value <= high + 1e-12


@pytest.mark.parametrize("name", EVERY)
def test_ends_are_the_lowest_and_the_highest_agreement(name):
    """A problem at either end alone has the value at that end; no agreement of grades is beyond."""
    agreement = EVERY[name]
    lowest, highest = agreement.value(agreement.ends(7, 4))
    assert lowest < highest
    rng = np.random.default_rng(1)
    for _ in range(200):
        levels = rng.choice([0, 2, 7], size=(2, 4))
        if (sums := agreement.sums(*levels)) is not None and not np.isnan(value := agreement.value(sums[None])[0]):
            assert lowest - 1e-9 <= value <= highest + 1e-9


def spearman(pairs):
    """Compute the correlation of midranks, with loops."""
    ranks = []
    for place in (0, 1):
        grades = [pair[place] for pair in pairs]
        ranks.append(
            [sum(other < g for other in grades) + (sum(other == g for other in grades) + 1) / 2 for g in grades]
        )
    if any(len(set(rank)) == 1 for rank in ranks):
        return None
    return np.corrcoef(ranks)[0, 1]


@UNTIMED
@given(PROBLEMS)
def test_spearman_is_the_correlation_of_midranks(problems):
    """For grades with half points and any number of ties; undefined if a side has one grade."""
    pairs = [pair for proofs in problems for pair in proofs]
    agreement = build_spearman({*pairs})
    expected = spearman(pairs) if pairs else None
    assert value_of(agreement, problems) == (None if expected is None else pytest.approx(expected, abs=1e-9))


def test_spearman_of_many_grades_needs_one_number_per_pair():
    """Grades that nearly all differ, as means of a jury do, take memory by their number and not by its square."""
    rng = np.random.default_rng(0)
    pairs = [(float(g), float(h)) for g, h in rng.uniform(0, 7, size=(600, 2))]
    agreement = build_spearman({*pairs})
    assert agreement.ends(7, 4).shape == (2, 604)
    assert value_of(agreement, [pairs[:300], pairs[300:]]) == pytest.approx(spearman(pairs), abs=1e-9)


def test_every_agreement_says_what_it_is():
    """Each has a distinct sentence; those for grades out of 7 state it, and decisions state their thresholds."""
    docs = [agreement.doc for agreement in AGREEMENTS.values()]
    assert len(set(docs)) == len(docs)
    assert {name for name, a in AGREEMENTS.items() if "out of 7 only" in a.doc} == {
        "bucket-accuracy",
        "bucket-accuracy-rounded",
    }
    for made in DECISIONS.values():
        assert ">= 5" in made(5, 1).doc and ">= 1" in made(5, 1).doc

"""Test length rewards: every reward against its formula written out attempt by attempt, and by hand."""

import math
from statistics import fmean, median, pstdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.rewards import lengths
from proofmill.rewards.lengths import OPEN_R1_CLI_WRONG_RANGE, WRONG_RANGE

NAN = float("nan")
UNTIMED = settings(deadline=None)
ATTEMPTS = st.lists(st.tuples(st.integers(0, 2000), st.sampled_from([True, False, None])), max_size=9)
WEIGHTS = st.floats(0, 4)
GROUP_REWARDS = [
    lambda tokens, right: lengths.reference_penalty(tokens, right, 120, 0.5),
    lambda tokens, right: lengths.group_penalty(tokens, right, 0.5, 2.0, "mean"),
    lambda tokens, right: lengths.lead_reward(tokens, right, 0.05),
    lengths.kimi_reward,
    lambda tokens, right: lengths.cosine_reward(tokens, right, 1000),
]


def split(attempts):
    return [tokens for tokens, _ in attempts], [right for _, right in attempts]


def close(found, expected):
    """Return whether two lists of rewards are the same; NaN equals None in `expected`."""
    expected = [NAN if value is None else value for value in expected]
    assert found.shape == (len(expected),)
    assert found == pytest.approx(np.array(expected, dtype=float), nan_ok=True, rel=1e-9, abs=1e-12)


def per_attempt(attempts, reward):
    """Return `reward(tokens, right)` of each scored attempt, None for the others."""
    return [None if right is None else reward(tokens, right) for tokens, right in attempts]


# --------------------------------------------------------------------------------------------- with the other attempts


@UNTIMED
@given(ATTEMPTS, st.integers(1, 500), WEIGHTS)
def test_reference_penalty_is_the_formula(attempts, reference, weight):
    """-weight |L - L*| over the largest |L - L*| of the scored attempts; 0 where all have the reference's length."""
    largest = max((abs(tokens - reference) for tokens, right in attempts if right is not None), default=0)
    expected = per_attempt(
        attempts, lambda tokens, _: -weight * (abs(tokens - reference) / largest if largest else 0.0)
    )
    close(lengths.reference_penalty(*split(attempts), reference, weight), expected)


def test_reference_penalty_by_hand():
    """Lengths 100, 130 and 60 against a reference of 110 are 10, 20 and 50 apart: -0.1, -0.2 and -0.5 at weight 0.5."""
    close(lengths.reference_penalty([100, 130, 60], [True, False, True], 110, 0.5), [-0.1, -0.2, -0.5])


def test_reference_penalty_without_a_reference_is_unknown():
    """Without a reference length no attempt has a penalty, and none has 0."""
    close(lengths.reference_penalty([100, 130], [True, False], None, 0.5), [None, None])


BASES = {
    "shortest": min,
    "median": median,
    "mean": fmean,
    0.0: min,
    0.5: median,
    1.0: max,
}


@UNTIMED
@given(ATTEMPTS, WEIGHTS, st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.sampled_from(list(BASES)))
def test_group_penalty_is_the_formula(attempts, weight, power, base):
    """-weight c^p e / max e, e the tokens beyond the base of the right ones; 0 for all if no attempt is right or longer."""
    scored = [(tokens, right) for tokens, right in attempts if right is not None]
    right_lengths = [tokens for tokens, right in scored if right]

    def penalty(tokens, _):
        if not right_lengths:
            return 0.0
        origin = BASES[base](right_lengths)
        largest = max(max(0, other - origin) for other, _ in scored)
        share = len(right_lengths) / len(scored)
        return -weight * share**power * max(0, tokens - origin) / largest if largest else 0.0

    close(lengths.group_penalty(*split(attempts), weight, power, base), per_attempt(attempts, penalty))


def test_group_penalty_by_hand():
    """Two of four right, the shorter with 80 tokens: 40 beyond it is 0.4 of the largest excess, times 0.5."""
    tokens, right = [80, 120, 180, 50], [True, True, False, False]
    close(lengths.group_penalty(tokens, right, 1.0), [0.0, -0.2, -0.5, 0.0])
    close(lengths.group_penalty(tokens, right, 1.0, power=2), [0.0, -0.1, -0.25, 0.0])
    close(lengths.group_penalty(tokens, right, 1.0, base="mean"), [0.0, -0.5 * 20 / 80, -0.5, 0.0])


def test_group_penalty_quantile_lies_between_the_right_lengths():
    """The quarter quantile of 100, 200 and 300 is 150."""
    close(lengths.group_penalty([100, 200, 300], [1, 1, 1], 1.0, base=0.25), [0.0, -50 / 150, -1.0])


@pytest.mark.parametrize("base", ["longest", -0.1, 1.5])
def test_group_penalty_of_an_unknown_base_is_refused(base):
    """A base that is no name and no quantile is named in the error."""
    with pytest.raises(ValueError, match=r"base: found .*; expected shortest, median, mean, or a quantile"):
        lengths.group_penalty([1, 2], [True, True], 1.0, base=base)


@UNTIMED
@given(ATTEMPTS, st.floats(0.01, 1), st.sampled_from([0.0, -1.0]))
def test_lead_reward_is_the_formula(attempts, alpha, wrong):
    """exp(-alpha z) with mean and population deviation of the right lengths; the value of a wrong answer otherwise."""
    right_lengths = [tokens for tokens, right in attempts if right]

    def reward(tokens, right):
        if not right:
            return wrong
        return math.exp(-alpha * (tokens - fmean(right_lengths)) / (pstdev(right_lengths) + 1e-8))

    close(lengths.lead_reward(*split(attempts), alpha, wrong=wrong), per_attempt(attempts, reward))


def test_lead_reward_by_hand():
    """Right lengths 100 and 300 have mean 200 and deviation 100, so z is -1 and 1; the wrong answer has no say and 0."""
    found = lengths.lead_reward([100, 300, 5000], [True, True, False], 0.05, epsilon=0)
    close(found, [math.exp(0.05), math.exp(-0.05), 0.0])


def test_lead_reward_of_a_single_right_attempt_is_one():
    """With one right attempt there is nothing to compare, and its reward is that of being right: 1."""
    close(lengths.lead_reward([100, 300], [True, False], 0.05), [1.0, 0.0])


@UNTIMED
@given(ATTEMPTS)
def test_kimi_reward_is_the_formula(attempts):
    """lambda if right, at most 0 if wrong, and 0 for all if the scored lengths are equal."""
    scored = [tokens for tokens, right in attempts if right is not None]

    def reward(tokens, right):
        if min(scored) == max(scored):
            return 0.0
        value = 0.5 - (tokens - min(scored)) / (max(scored) - min(scored))
        return value if right else min(0.0, value)

    close(lengths.kimi_reward(*split(attempts)), per_attempt(attempts, reward))


def test_kimi_reward_by_hand():
    """From 100 to 300 tokens lambda goes from 0.5 to -0.5; a short wrong answer gets 0, a long one what a long right one gets."""
    found = lengths.kimi_reward([100, 150, 300, 100, 250], [True, True, True, False, False])
    close(found, [0.5, 0.25, -0.5, 0.0, -0.25])


@pytest.mark.parametrize("reward", GROUP_REWARDS)
@UNTIMED
@given(attempts=ATTEMPTS, seed=st.randoms(use_true_random=False))
def test_group_reward_does_not_depend_on_the_order_of_attempts(reward, attempts, seed):
    """Shuffled attempts have the same rewards, shuffled alike."""
    order = list(range(len(attempts)))
    seed.shuffle(order)
    close(reward(*split([attempts[place] for place in order])), reward(*split(attempts))[order].tolist())


@pytest.mark.parametrize("reward", GROUP_REWARDS)
@UNTIMED
@given(attempts=ATTEMPTS)
def test_group_reward_of_the_scored_is_as_if_the_unscored_were_not_there(reward, attempts):
    """An unscored attempt has no reward, and changes no other reward."""
    found = reward(*split(attempts))
    unscored = np.array([right is None for _, right in attempts], dtype=bool)
    assert np.isnan(found[unscored]).all()
    close(found[~unscored], reward(*split([a for a in attempts if a[1] is not None])).tolist())


def test_penalty_of_nothing_is_shown_without_a_sign():
    """The attempt that pays nothing has 0.0, not -0.0."""
    found = [*lengths.reference_penalty([9, 9], [1, 0], 9, 1.0), *lengths.group_penalty([9, 12], [1, 1], 1.0)]
    assert [f"{value:.1f}" for value in found] == ["0.0", "0.0", "0.0", "-1.0"]


@pytest.mark.parametrize("reward", GROUP_REWARDS)
def test_group_reward_takes_nan_as_unscored(reward):
    """NaN, as an array of numbers holds it, is the None of a list."""
    mixed = reward([10, 900, 30, 70], [True, None, False, True])
    close(reward(np.array([10, 900, 30, 70]), np.array([1.0, NAN, 0.0, 1.0])), mixed.tolist())
    assert np.isnan(mixed).tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("tokens", "right", "said"),
    [
        ([1, 2], [True], "lengths of shape .*expected one of each"),
        ([[1, 2]], [[True, False]], "expected one of each for each attempt"),
        ([1, 2], [True, 7], "verdicts .*expected true, false or none"),
    ],
)
def test_group_of_other_arrays_is_refused(tokens, right, said):
    """Arrays that are no group, and grades in place of verdicts, stop with what was found."""
    with pytest.raises(ValueError, match=said):
        lengths.kimi_reward(tokens, right)


# -------------------------------------------------------------------------------------------------------- of one attempt


@UNTIMED
@given(ATTEMPTS, st.integers(1, 1500))
def test_cosine_reward_is_the_formula(attempts, most):
    """lo + (hi - lo)(1 + cos(pi L / M)) / 2 up to M and lo beyond; right (0.5, 1), wrong (-0.5, -1)."""

    def reward(tokens, right):
        low, high = (0.5, 1.0) if right else (-0.5, -1.0)
        return low + 0.5 * (high - low) * (1 + math.cos(math.pi * min(1, tokens / most)))

    close(lengths.cosine_reward(*split(attempts), most), per_attempt(attempts, reward))


def test_cosine_reward_by_hand():
    """Empty, half and full length: 1, 0.75, 0.5 if right and -1, -0.75, -0.5 if wrong; twice the length is the full length."""
    tokens = [0, 500, 1000, 2000]
    close(lengths.cosine_reward(tokens, [True] * 4, 1000), [1.0, 0.75, 0.5, 0.5])
    close(lengths.cosine_reward(tokens, [False] * 4, 1000), [-1.0, -0.75, -0.5, -0.5])


def test_cosine_reward_of_open_r1s_command_line_punishes_long_wrong_answers():
    """With `min_value_wrong` 0 an empty wrong answer gets 0 and a full-length one -0.5; right ones are as before."""
    found = lengths.cosine_reward([0, 500, 1000], [False] * 3, 1000, wrong_range=OPEN_R1_CLI_WRONG_RANGE)
    close(found, [0.0, -0.25, -0.5])
    assert WRONG_RANGE == (-1.0, -0.5)


def test_cosine_reward_without_a_longest_length_is_refused():
    """A maximum of 0 tokens would divide by it."""
    with pytest.raises(ValueError, match="expected more than 0"):
        lengths.cosine_reward([1], [True], 0)


@UNTIMED
@given(st.integers(0, 400), st.integers(0, 300), st.data())
def test_soft_overlong_is_the_formula(tokens, most, data):
    """0 up to M - C, (M - C - L) / C up to M, -1 beyond."""
    buffer = data.draw(st.integers(0, most))
    if tokens <= most - buffer:
        expected = 0.0
    elif tokens <= most:
        expected = (most - buffer - tokens) / buffer
    else:
        expected = -1.0
    close(lengths.soft_overlong([tokens], most, buffer), [expected])


def test_soft_overlong_by_hand():
    """With DAPO's 16,384 and 4,096: free up to 12,288, -0.5 in the middle of the buffer, -1 from its end on."""
    close(lengths.soft_overlong([12_288, 14_336, 16_384, 16_385]), [0.0, -0.5, -1.0, -1.0])


@pytest.mark.parametrize(("most", "buffer"), [(20, 0), (20, 1), (20, 7), (20, 20)])
def test_soft_overlong_is_trls(most, buffer):
    """TRL's reward of the same name gives the same numbers at every length."""
    from trl.rewards import get_soft_overlong_punishment

    theirs = get_soft_overlong_punishment(most, buffer)([[0] * length for length in range(most + 5)])
    close(lengths.soft_overlong(range(most + 5), most, buffer), theirs)


@pytest.mark.parametrize("penalty", [lengths.soft_overlong])
@pytest.mark.parametrize("buffer", [-1, 101])
def test_overlong_buffer_beyond_the_maximum_is_refused(penalty, buffer):
    """A buffer is a part of the length allowed."""
    with pytest.raises(ValueError, match=f"a buffer of {buffer} of 100 tokens; expected 0 to 100"):
        penalty([1], 100, buffer)


def test_discount_by_hand():
    """0.9 to the power of 0, 1 and 2 tokens; a rate of 1 discounts nothing."""
    close(lengths.discount([0, 1, 2], 0.9), [1.0, 0.9, 0.81])
    close(lengths.discount([5, 100_000], 1), [1.0, 1.0])


@pytest.mark.parametrize("rate", [0, 1.1, -0.5])
def test_discount_that_is_none_is_refused(rate):
    """A rate above 1 would pay for length, and one of 0 for nothing."""
    with pytest.raises(ValueError, match="expected more than 0 and at most 1"):
        lengths.discount([1], rate)


# -------------------------------------------------------------------------------------------------------------- measures

MAYBE = st.one_of(st.none(), st.integers(0, 30))


@UNTIMED
@given(st.lists(st.tuples(MAYBE, MAYBE), max_size=12))
def test_length_correlation_is_pearsons(pairs):
    """Covariance over the product of deviations, of the pairs that are known; NaN where it is not defined."""
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    found = lengths.length_correlation([a for a, _ in pairs], [b for _, b in pairs])
    if len(known) < 2 or any(len(set(column)) == 1 for column in zip(*known, strict=True)):
        assert math.isnan(found)
        return
    a, b = (np.array(column) for column in zip(*known, strict=True))
    covariance = fmean((a - a.mean()) * (b - b.mean()))
    assert found == pytest.approx(covariance / (pstdev(a.tolist()) * pstdev(b.tolist())))


def test_length_correlation_by_hand():
    """Responses that fall as questions grow have -1; 1, 2, 3 against 1, 3, 2 have 0.5."""
    assert lengths.length_correlation([1, 2, 3], [9, 7, 5]) == pytest.approx(-1)
    assert lengths.length_correlation([1, 2, 3], [1, 3, 2]) == pytest.approx(0.5)


def test_out_of_limit_counts_less_than_three_tokens_short_of_it():
    """Of 509, 510, 512 and 600 tokens with a maximum of 512, three reach it; of none, the share is unknown."""
    assert lengths.near_limit([509, 510, 512, 600], 512) == 0.75
    assert math.isnan(lengths.near_limit([], 512))


@UNTIMED
@given(st.lists(st.tuples(MAYBE, st.integers(1, 30), st.sampled_from([True, False, None])), max_size=8))
def test_model_efficiency_is_the_formula(attempts):
    """Reference tokens over response tokens, both summed over right attempts with a reference."""
    counted = [(reference, tokens) for reference, tokens, right in attempts if right and reference is not None]
    found = lengths.model_efficiency(*([a[place] for a in attempts] for place in range(3)))
    if counted:
        assert found == pytest.approx(sum(a for a, _ in counted) / sum(b for _, b in counted))
    else:
        assert math.isnan(found)


def test_model_efficiency_by_hand():
    """Correct answers of 50 and 100 tokens to references of 100 and 50 are as long as these; the wrong one is left out."""
    assert lengths.model_efficiency([100, 50, 500], [50, 100, 1], [True, True, False]) == 1


def test_model_efficiency_without_a_right_token_is_unknown():
    """A correct answer of no tokens has no efficiency, and it is not infinite."""
    assert math.isnan(lengths.model_efficiency([5], [0], [True]))

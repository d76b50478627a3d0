"""Advantages: the formula written out attempt by attempt, TRL's own in float32, and numbers by hand."""

import math
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.training.advantages import EPSILON, advantages, centred, divisors, total

NAN = float("nan")
UNTIMED = settings(deadline=None)
NUMBER = st.integers(-400_000, 400_000).map(lambda n: n / 100_000)
REWARD = st.one_of(st.none(), st.sampled_from([0.0, 1 / 7, 0.5, 6 / 7, 1.0]), NUMBER)
SCALE = st.sampled_from(["group", "batch", "none"])


@st.composite
def batches(draw):
    """Some groups of one size; None is an attempt without a reward."""
    size = draw(st.integers(1, 6))
    return draw(st.lists(st.lists(REWARD, min_size=size, max_size=size), min_size=1, max_size=5))


def array(batch):
    return np.array([[NAN if reward is None else reward for reward in group] for group in batch])


def scored(rewards):
    return [reward for reward in rewards if reward is not None]


def by_definition(batch, scale):
    """Reward less the mean of the group's scored attempts, by the sample deviation plus 1e-4; 0 where either is unknown."""
    everything = [reward for group in batch for reward in scored(group)]
    found = []
    for group in batch:
        some = scored(group)
        around = {"group": some, "batch": everything, "none": [0.0, 0.0]}[scale]
        divisor = 1.0 if scale == "none" else stdev(around) + 1e-4 if len(around) > 1 else None
        found.append(
            [0.0 if reward is None or divisor is None else (reward - fmean(some)) / divisor for reward in group]
        )
    return found


def as_trl(rewards_PG, scale):
    """TRL 1.16's `sum_then_normalize` of summed rewards, in its float32 and its order."""

    def deviation(values, dim):
        around = torch.nanmean(values, dim=dim, keepdim=True)
        count = (~values.isnan()).sum(dim=dim, keepdim=True)
        variance = torch.nanmean((values - around) ** 2, dim=dim, keepdim=True)
        variance = variance * torch.where(count > 1, count / (count - 1), torch.tensor(NAN))
        return variance.sqrt()

    rewards = torch.tensor(rewards_PG, dtype=torch.float32)
    found = rewards - torch.nanmean(rewards, dim=1, keepdim=True)
    if scale != "none":
        spread = deviation(rewards, 1) if scale == "group" else deviation(rewards.view(-1), 0)
        found = found / (spread + 1e-4)
    return torch.nan_to_num(found, nan=0.0).numpy()


@UNTIMED
@given(batches(), SCALE)
def test_advantages_are_the_formula(batch, scale):
    """Every attempt's advantage is that of the definition, whatever is unscored."""
    found = advantages(array(batch), scale)
    assert found == pytest.approx(np.array(by_definition(batch, scale)), rel=1e-6, abs=1e-8)


@UNTIMED
@given(batches(), SCALE)
def test_advantages_equal_trl_to_its_rounding(batch, scale):
    """In reward units the difference from TRL's float32 is below two millionths of the batch's largest reward."""
    rewards_PG = array(batch)
    apart = np.abs(advantages(rewards_PG, scale) - as_trl(rewards_PG, scale))
    units = apart * np.nan_to_num(divisors(rewards_PG, scale), nan=1.0)
    largest = max((abs(reward) for group in batch for reward in scored(group)), default=0.0)
    assert units.max() <= 2e-6 * largest


def test_advantages_by_hand():
    """Rewards 1, 0, 0.5 and none: the mean is 0.5, the deviation 0.5."""
    rewards = [[1.0, 0.0, 0.5, NAN]]
    by_group = 0.5 / (0.5 + 1e-4)
    assert advantages(rewards, "group").tolist() == [[pytest.approx(by_group), pytest.approx(-by_group), 0.0, 0.0]]
    assert advantages(rewards, "none").tolist() == [[0.5, -0.5, 0.0, 0.0]]


def test_advantages_by_the_batch_share_a_divisor_and_not_a_mean():
    """Groups (0, 1) and (2, 3): centred by themselves, divided by the deviation of 0, 1, 2, 3."""
    spread = math.sqrt(5 / 3) + EPSILON
    expected = [[-0.5 / spread, 0.5 / spread]] * 2
    assert advantages([[0.0, 1.0], [2.0, 3.0]], "batch").tolist() == pytest.approx(np.array(expected))


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantage_of_the_only_scored_attempt_is_0(scale):
    """One scored attempt in a group has nobody to be compared with; a group without any has no advantage either."""
    found = advantages([[0.7, NAN, NAN], [NAN, NAN, NAN], [1.0, 0.0, 0.2]], scale)
    assert not found[:2].any() and found[2].all()


@UNTIMED
@given(batches(), SCALE)
def test_advantages_of_a_group_add_up_to_nothing(batch, scale):
    """Whatever is unscored, no group is pushed as a whole."""
    assert np.abs(advantages(array(batch), scale).sum(axis=1)).max() < 1e-8


@UNTIMED
@given(batches(), st.data())
def test_unscored_attempt_changes_nothing_for_the_others(batch, data):
    """A group with a further unscored attempt has the advantages that it has without it."""
    group = data.draw(st.sampled_from(batch))
    alone, beside = advantages(array([group]), "group"), advantages(array([[*group, None]]), "group")
    assert beside[0, :-1] == pytest.approx(alone[0], rel=1e-9, abs=1e-12)
    assert beside[0, -1] == 0


def test_centred_rewards_keep_what_is_missing():
    """A missing reward stays missing until it becomes an advantage."""
    assert np.array_equal(centred([[1.0, 3.0, NAN], [NAN] * 3]), [[-1, 1, NAN], [NAN] * 3], equal_nan=True)


def test_unknown_scale_is_refused():
    """A scale that nobody knows is an error that names the three."""
    with pytest.raises(ValueError, match="expected group, batch, none"):
        advantages([[1.0, 0.0]], "token")


# ------------------------------------------------------------------------------------------------------------- the sum

REWARDS = st.integers(1, 4).flatmap(
    lambda k: st.lists(st.lists(st.tuples(REWARD, st.booleans()), min_size=k, max_size=k), min_size=1, max_size=6)
)


@UNTIMED
@given(REWARDS, st.data())
def test_total_is_the_weighted_sum_of_what_applies(cells, data):
    """None where nothing applies or something that does is missing; else the sum of weight times reward."""
    weights = data.draw(st.lists(st.floats(-2, 2), min_size=len(cells[0]), max_size=len(cells[0])))
    expected = []
    for row in cells:
        due = [(reward, weight) for (reward, applies), weight in zip(row, weights, strict=True) if applies]
        known = due and all(reward is not None for reward, _ in due)
        expected.append(math.fsum(reward * weight for reward, weight in due) if known else NAN)
    values, applies = array([[r for r, _ in row] for row in cells]), [[does for _, does in row] for row in cells]
    assert total(values, weights, applies) == pytest.approx(np.array(expected), nan_ok=True, rel=1e-9, abs=1e-12)


def test_total_without_a_word_on_what_applies_needs_every_reward():
    """Rewards 1 and 0.5 at weights 1 and 2 are 2; with either missing, or both, there is none."""
    found = total([[1.0, 0.5], [1.0, NAN], [NAN, 0.5], [NAN, NAN]], [1, 2])
    assert np.array_equal(found, [2, NAN, NAN, NAN], equal_nan=True)

"""Advantages: the formula written out attempt by attempt, TRL's own in float32, and numbers by hand."""

import math
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trl.trainer.utils import nanstd

from proofmill.training.advantages import (
    EPSILON,
    VARIANCE_EPSILON,
    WHITENED,
    advantages,
    center,
    divisors,
    task_advantages,
    total,
)

NAN = float("nan")
UNTIMED = settings(deadline=None)
NUMBER = st.integers(-400_000, 400_000).map(lambda n: n / 100_000)
REWARD = st.one_of(st.none(), st.sampled_from([0.0, 1 / 7, 0.5, 6 / 7, 1.0]), NUMBER)
SCALE = st.sampled_from(["group", "batch", "none"])


@st.composite
def batches(draw):
    """Draw some groups of one size; None is an attempt without a reward."""
    size = draw(st.integers(1, 6))
    return draw(st.lists(st.lists(REWARD, min_size=size, max_size=size), min_size=1, max_size=5))


def array(batch):
    return np.array([[NAN if reward is None else reward for reward in group] for group in batch])


def scored(rewards):
    return [reward for reward in rewards if reward is not None]


def by_definition(batch, scale):
    """Compute reward less mean, over sample deviation plus 1e-4, of the group's scored attempts; 0 if either is
    unknown."""
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
    """Compute TRL 1.16's `sum_then_normalize` of summed rewards, in its float32 and its order."""
    rewards = torch.tensor(rewards_PG, dtype=torch.float32)
    found = rewards - torch.nanmean(rewards, dim=1, keepdim=True)
    if scale != "none":
        spread = nanstd(rewards, dim=1)[:, None] if scale == "group" else nanstd(rewards)
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


@UNTIMED
@given(batches(), SCALE)
def test_advantages_of_float32_tensors_equal_trl_bit_for_bit(batch, scale):
    """Tensors are computed in their precision, in TRL's order of operations."""
    found = advantages(torch.tensor(array(batch), dtype=torch.float32), scale)
    assert found.dtype == torch.float32 and np.array_equal(found.numpy(), as_trl(array(batch), scale))


def test_total_of_a_tensor_is_that_of_the_array():
    """Rewards that do not apply are left out, and a rollout without any has no total."""
    rewards, applies = [[1.0, NAN], [0.5, 2.0], [NAN, NAN]], [[True, False], [True, True], [False, False]]
    found = total(torch.tensor(rewards), torch.tensor([1.0, 0.25]), torch.tensor(applies))
    assert found.tolist() == pytest.approx(total(rewards, [1.0, 0.25], applies).tolist(), nan_ok=True)
    assert found.tolist() == pytest.approx([1.0, 1.0, NAN], nan_ok=True)


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
    """One scored attempt in a group has no other to be compared with; a group without any has no advantage either."""
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
    alone, together = advantages(array([group]), "group"), advantages(array([[*group, None]]), "group")
    assert together[0, :-1] == pytest.approx(alone[0], rel=1e-9, abs=1e-12)
    assert together[0, -1] == 0


def test_centred_rewards_keep_what_is_missing():
    """A missing reward stays missing until it becomes an advantage."""
    assert np.array_equal(center([[1.0, 3.0, NAN], [NAN] * 3]), [[-1, 1, NAN], [NAN] * 3], equal_nan=True)


def test_unknown_scale_is_refused():
    """An unknown scale is an error that names the three."""
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
    """Rewards 1 and 0.5 at weights 1 and 2 are 2; with either or both missing, there is no total."""
    found = total([[1.0, 0.5], [1.0, NAN], [NAN, 0.5], [NAN, NAN]], [1, 2])
    assert np.array_equal(found, [2, NAN, NAN, NAN], equal_nan=True)


# --------------------------------------------------------------------------------------------------------------- TRR++

GROUPS = [(task, role) for task in ("deduce", "abduce", "induce") for role in ("propose", "solve")]
TASK_REWARD = st.one_of(st.just(NAN), st.sampled_from([-1.0, -0.5, 0.0, 0.125, 0.875, 1.0]))
REPLIES = st.lists(st.tuples(TASK_REWARD, st.sampled_from(GROUPS), st.integers(1, 30)), min_size=1, max_size=40)


def columns(replies):
    """Return rewards, groups and lengths."""
    return [list(column) for column in zip(*replies, strict=True)]


def slow(rewards, groups, lengths):
    """Compute the definition over lists: each reward as often as its reply has tokens, or once."""
    found = []
    for reward, group in zip(rewards, groups, strict=True):
        here = [(r, n) for r, g, n in zip(rewards, groups, lengths, strict=True) if g == group and not math.isnan(r)]
        everything = [r for r, n in here for _ in range(n)]
        if math.isnan(reward) or len(here) < 2:
            found.append(0.0)
        else:
            found.append((reward - fmean(everything)) / math.sqrt(stdev(everything) ** 2 + VARIANCE_EPSILON))
    return found


@UNTIMED
@given(REPLIES)
def test_advantages_by_reply_are_the_paper_s(replies):
    """Each group has its own mean and deviation, every reply the same weight."""
    rewards, groups, lengths = columns(replies)
    expected = slow(rewards, groups, [1] * len(lengths))
    assert task_advantages(rewards, groups) == pytest.approx(np.array(expected), abs=1e-9)


@UNTIMED
@given(REPLIES)
def test_advantages_by_token_weigh_replies_by_their_length(replies):
    """As if each reward occurred once for every token of its reply."""
    rewards, groups, lengths = columns(replies)
    expected = slow(rewards, groups, lengths)
    assert task_advantages(rewards, groups, lengths) == pytest.approx(np.array(expected), abs=1e-9)


def test_task_advantages_by_hand():
    """Rewards 1 and 0 in one group, -0.5 and -0.5 in another: one above, one below, and two that are alike."""
    groups = ["a", "b", "a", "b"]
    spread = math.sqrt(0.5 + VARIANCE_EPSILON)
    assert task_advantages([1, -0.5, 0, -0.5], groups) == pytest.approx([0.5 / spread, 0, -0.5 / spread, 0])
    weighted = task_advantages([1, -0.5, 0, -0.5], groups, [3, 1, 1, 1])  # mean 3/4, variance (3/16 + 9/16) / 3
    assert weighted == pytest.approx([0.25 / 0.5, 0, -0.75 / 0.5, 0], rel=1e-6)


@UNTIMED
@given(REPLIES, st.sampled_from(GROUPS), st.floats(0.5, 4), st.floats(-3, 3))
def test_group_does_not_know_of_the_others(replies, group, factor, shift):
    """Rewards of one group on another scale change nothing for the rest: that is what six baselines are for."""
    rewards, groups, lengths = columns(replies)
    other = [r * factor + shift if g == group else r for r, g in zip(rewards, groups, strict=True)]
    before, after = (task_advantages(some, groups, lengths) for some in (rewards, other))
    rest = [place for place, each in enumerate(groups) if each != group]
    assert after[rest] == pytest.approx(before[rest])


def test_reply_without_a_reward_changes_nothing_and_gets_nothing():
    """NaN is in no mean, and a reply that is then alone has no other to be compared with."""
    assert task_advantages([1, NAN, 0], ["a"] * 3)[[0, 2]] == pytest.approx(task_advantages([1, 0], ["a"] * 2))
    assert task_advantages([1, NAN], ["a", "a"]).tolist() == [0, 0]
    assert task_advantages([NAN], ["a"]).tolist() == [0]


@UNTIMED
@given(REPLIES)
def test_task_advantages_are_whitened_as_in_verl(replies):
    """Over the tokens of a group: mean and unbiased variance under a mask, 1e-8 under the root."""
    rewards, _, lengths = columns([reply for reply in replies if not math.isnan(reply[0])] or [(1.0, "a", 1)])
    values = torch.tensor([reward for reward, length in zip(rewards, lengths, strict=True) for _ in range(length)])
    found = advantages([rewards], WHITENED, [lengths])[0]
    if len(rewards) > 1:
        whitened = (values - values.mean()) * torch.rsqrt(values.var() + 1e-8)
        places = np.cumsum([0, *lengths[:-1]])
        assert found == pytest.approx(whitened[places].numpy(), abs=2e-3)
    else:
        assert found.tolist() == [0]


def test_equal_rewards_have_no_advantage_by_rounding():
    """Eight equal thirds, as float32 has them: the trainer computes in float64, where their mean is one of them."""
    totals_PG = torch.full((3, 8), 1 / 3)
    assert advantages(totals_PG.double(), "group").abs().max() < 1e-6

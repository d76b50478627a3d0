"""TRR++: advantages of replies over those of their task and role, against slow sums."""

import math
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proofmill.tasks.advantages import EPSILON, baselines, discounted_advantages, task_advantages

NAN = math.nan
GROUPS = [(task, role) for task in ("deduce", "abduce", "induce") for role in ("propose", "solve")]
UNTIMED = settings(deadline=None)
REWARD = st.one_of(st.just(NAN), st.sampled_from([-1.0, -0.5, 0.0, 0.125, 0.875, 1.0]))
REPLIES = st.lists(st.tuples(REWARD, st.sampled_from(GROUPS), st.integers(1, 30)), min_size=1, max_size=40)


def columns(replies):
    """Rewards, groups, lengths."""
    return [list(column) for column in zip(*replies, strict=True)]


def slow(rewards, groups, lengths):
    """The definition over lists: each reward as often as its reply has tokens, or once."""
    found = []
    for reward, group in zip(rewards, groups, strict=True):
        here = [(r, n) for r, g, n in zip(rewards, groups, lengths, strict=True) if g == group and not math.isnan(r)]
        everything = [r for r, n in here for _ in range(n)]
        if math.isnan(reward) or len(here) < 2:
            found.append(0.0)
        else:
            found.append((reward - fmean(everything)) / math.sqrt(stdev(everything) ** 2 + EPSILON))
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
    """As if each reward stood there once for every token of its reply."""
    rewards, groups, lengths = columns(replies)
    expected = slow(rewards, groups, lengths)
    assert task_advantages(rewards, groups, lengths) == pytest.approx(np.array(expected), abs=1e-9)


def masked_whiten(values, mask):
    """veRL's, as its documentation has it: mean and unbiased variance under a mask, 1e-8 under the root."""
    mean = (values * mask).sum() / mask.sum()
    variance = ((values - mean) ** 2 * mask).sum() / mask.sum() * (mask.sum() / (mask.sum() - 1))
    return (values - mean) * torch.rsqrt(variance + 1e-8) * mask


@UNTIMED
@given(REPLIES, st.sampled_from([1.0, 0.9]))
def test_discounted_advantages_are_reinforce_plus_plus_on_each_group(replies, discount):
    """Returns token by token from the end, whitened as veRL does it, one batch after the other."""
    replies = [reply for reply in replies if not math.isnan(reply[0])]
    assume(replies)
    rewards, groups, lengths = columns(replies)
    width = max(lengths)
    mask = torch.tensor([[float(place < length) for place in range(width)] for length in lengths], dtype=torch.float64)
    returns = torch.zeros(mask.shape, dtype=torch.float64)
    for row, (reward, length) in enumerate(zip(rewards, lengths, strict=True)):
        running = 0.0
        for place in reversed(range(length)):
            running = (reward if place == length - 1 else 0.0) + discount * running
            returns[row, place] = running
    found = discounted_advantages(rewards, groups, mask.numpy(), discount)
    for group in {*groups}:
        rows = [row for row, each in enumerate(groups) if each == group]
        expected = masked_whiten(returns[rows], mask[rows]).numpy() if len(rows) > 1 else np.zeros((1, width))
        assert found[rows] == pytest.approx(expected, abs=1e-6)
        if discount == 1 and len(rows) > 1:
            by_reply = task_advantages(rewards, groups, lengths)[rows]
            assert found[rows] == pytest.approx(by_reply[:, None] * mask[rows].numpy(), abs=1e-6)


def test_advantages_by_hand():
    """Rewards 1 and 0 in one group, -0.5 and -0.5 in another: one above, one below, and two that are alike."""
    groups = ["a", "b", "a", "b"]
    spread = math.sqrt(0.5 + EPSILON)
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
    """NaN is in no mean, and a reply that is alone then has nobody to be compared with."""
    assert task_advantages([1, NAN, 0], ["a"] * 3)[[0, 2]] == pytest.approx(task_advantages([1, 0], ["a"] * 2))
    assert task_advantages([1, NAN], ["a", "a"]).tolist() == [0, 0]
    assert task_advantages([NAN], ["a"]).tolist() == [0]
    assert not discounted_advantages([1, NAN], ["a", "a"], [[1, 1], [1, 0]]).any()


def test_baselines_say_what_was_subtracted():
    """Mean, deviation and number of replies, by reply or by token."""
    found = baselines([1, 0, NAN, 0.5], ["a", "a", "a", "b"])
    assert (found["a"].mean, found["a"].deviation, found["a"].replies) == (0.5, pytest.approx(math.sqrt(0.5)), 2)
    assert found["b"].mean == 0.5 and math.isnan(found["b"].deviation) and found["b"].replies == 1
    by_token = baselines([1, 0], ["a", "a"], [3, 1])["a"]
    assert by_token.mean == 0.75 and by_token.deviation == pytest.approx(0.5)

"""Distribution of rollouts over the micro-batches of a step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.training.asynchronous.packing import TrainedRollout, _cost, distribute, tree


def learned(group: int, place: int, prompt: int, tokens: int) -> TrainedRollout:
    ids = 100 * place + np.arange(tokens, dtype=np.int32)
    return TrainedRollout(group, np.full(prompt, group, np.int32), ids, -np.ones(tokens, np.float32), float(place), 0.5)


@st.composite
def steps(draw):
    """Draw the rollouts of a step without those that have no gradient, in micro-batches that the plan allows."""
    groups, size = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    most = draw(st.sampled_from([rows for rows in range(1, groups * size + 1) if groups * size % rows == 0]))
    passes = groups * size // most
    every = [
        learned(g, p, draw(st.integers(1, 9)), draw(st.integers(1, 40))) for g in range(groups) for p in range(size)
    ]
    kept = draw(st.integers(passes, len(every)))
    return draw(st.permutations(every))[:kept], passes, most


@settings(deadline=None)
@given(steps())
def test_each_rollout_is_in_one_pass_and_none_is_larger_than_planned(step):
    """No pass is empty: a device without one would leave the others waiting."""
    rollouts, passes, most = step
    distributed = distribute(rollouts, passes, most)
    assert len(distributed) == passes and all(0 < len(some) <= most for some in distributed)
    found = sorted((one.group, one.advantage) for some in distributed for one in some)
    assert found == sorted((one.group, one.advantage) for one in rollouts)


@pytest.mark.parametrize(("groups", "size", "most", "split"), [(4, 4, 4, 0), (4, 4, 8, 0), (2, 8, 4, 2), (3, 8, 12, 1)])
def test_groups_stay_together_where_they_can(groups, size, most, split):
    """`split` groups are in more than one pass: those that are larger than one, or that fill what others left."""
    distributed = distribute(
        [learned(g, p, 5, 10) for g in range(groups) for p in range(size)], groups * size // most, most
    )
    homes = [{place for place, some in enumerate(distributed) for one in some if one.group == g} for g in range(groups)]
    assert sum(len(home) > 1 for home in homes) == split


def test_passes_cost_about_the_same():
    """One long group and three short ones, in two passes."""
    rollouts = [learned(g, p, 10, 300 if g == 0 else 150) for g in range(4) for p in range(4)]
    one, other = (sum(_cost([rollout]) for rollout in some) for some in distribute(rollouts, 2, 16))
    assert 0.6 < one / other < 1.7


def test_tree_has_each_common_beginning_once():
    """Prompts of a group are read once; what is learned is each rollout's own tokens."""
    row = tree([learned(1, 0, 5, 3), learned(1, 1, 5, 4), learned(2, 0, 6, 2)])
    batch = row.pack()
    assert len(batch["input_ids"]) == (5 + 3 + 1 + 4) + (6 + 2)  # the first differing token is read for each
    assert len(batch["token_index"]) == 3 + 4 + 2 and batch["old_log_probs"].tolist() == [-1.0] * 9

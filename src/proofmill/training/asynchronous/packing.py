"""Distribution of a step's rollouts over its micro-batches, before any device computes.

A micro-batch computes the shared prefix of rollouts once (TRL's `TreeRow`), so a group stays together if it can.

Differences from TRL 1.16's FixedCountBatcher:
1. No micro-batch has more rollouts than the memory plan allows; in TRL, as many as a group has.
2. Micro-batches are planned by lengths alone, and each device builds the trees of its own, one at a time. A tree takes some
   hundred bytes a token: those of a step of 1,024 long rollouts would be several GB on every device.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from trl.experimental.async_grpo.packing import TreeRow


class TrainedRollout(NamedTuple):
    """A rollout of a step: P tokens of its prompt, T of its own, and the `weight` of each of the latter in the loss."""

    group: int
    prompt_P: np.ndarray  # int32
    ids_T: np.ndarray  # int32
    logprobs_T: np.ndarray  # float32, with which they were drawn
    advantage: float
    weight: float
    fresh: bool = False  # sampled with the weights that the step begins with


TrainedStep = tuple[list[list[TrainedRollout]], float]  # the micro-batches of a step, and its trained tokens


def distribute(rollouts: Sequence[TrainedRollout], count: int, most: int) -> list[list[TrainedRollout]]:
    """Split rollouts into micro-batches of similar cost, with at most `most` each and none empty.

    There must be at least as many rollouts as micro-batches, and at most `most` times as many.
    """
    groups: dict[int, list[TrainedRollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    pieces = [group[start : start + most] for group in groups.values() for start in range(0, len(group), most)]
    while len(pieces) < count:
        largest = pieces.pop(max(range(len(pieces)), key=lambda place: len(pieces[place])))
        pieces += [largest[: len(largest) // 2], largest[len(largest) // 2 :]]
    micro_batches: list[list[TrainedRollout]] = [[] for _ in range(count)]
    costs = [0.0] * count
    pieces.sort(key=_cost)
    while pieces:  # the costliest first, each to the cheapest micro-batch
        piece = pieces.pop()
        place = min((place for place in range(count) if len(micro_batches[place]) < most), key=costs.__getitem__)
        room = most - len(micro_batches[place])
        if rest := piece[room:]:
            pieces.append(rest)
        micro_batches[place] += piece[:room]
        costs[place] += _cost(piece[:room])
    return micro_batches


def _cost(rollouts: Sequence[TrainedRollout]) -> float:
    """Return the pairs of tokens that attend to each other in rollouts of one group."""
    prompt = len(rollouts[0].prompt_P)
    return prompt**2 / 2 + sum(len(one.ids_T) * (prompt + len(one.ids_T) / 2) for one in rollouts)


def tree(rollouts: Sequence[TrainedRollout]) -> TreeRow:
    """Pack a micro-batch's rollouts so that a common prefix occurs once."""
    row = TreeRow()
    for one in rollouts:
        row.add(
            {
                "input_ids": np.concatenate([one.prompt_P, one.ids_T]).astype(np.int64),
                "completion_mask": np.repeat([0, 1], [len(one.prompt_P), len(one.ids_T)]),
                "old_log_probs": np.concatenate([np.zeros(len(one.prompt_P), np.float32), one.logprobs_T]),
                "advantage": one.advantage,
                "group_id": one.group,
                "weight": one.weight,
            }
        )
    return row

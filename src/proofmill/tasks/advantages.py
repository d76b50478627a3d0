"""TRR++: the advantage of a reply over the replies to tasks of its kind in its role, in one batch.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3.5, equation 8): a baseline for each of the six pairs of task
and role, A = (r - mean) / deviation. Its code whitens over tokens (veRL's `masked_whiten`), so that long replies weigh
more in mean and deviation than the paper's notation has it; here one says which.

How we differ: a reply without a reward (NaN) is in no mean and no deviation and has the advantage 0, as has a reply that
is alone in its group.

Axes: N replies, T tokens. A discount of 1 gives every token the reply's reward.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

Weighting = Literal["sample", "token"]
EPSILON = 1e-8  # added to the variance, as in veRL


@dataclass(frozen=True)
class Baseline:
    """Mean and deviation of a group's rewards, and how many replies have one."""

    mean: float
    deviation: float
    replies: int


def baselines(
    rewards_N: ArrayLike, groups_N: Sequence[Hashable], lengths_N: ArrayLike | None = None
) -> dict[Hashable, Baseline]:
    """The baseline of each group: by reply, or by token with the lengths of the replies in tokens.

    The variance is that of a sample (divided by n - 1 replies or tokens); NaN where there is nothing to take it of.
    """
    rewards_N = np.asarray(rewards_N, dtype=float)
    weights_N = np.ones(len(rewards_N)) if lengths_N is None else np.asarray(lengths_N, dtype=float)
    return {group: _baseline(rewards_N, weights_N, _members(groups_N, group)) for group in dict.fromkeys(groups_N)}


def task_advantages(
    rewards_N: ArrayLike, groups_N: Sequence[Hashable], lengths_N: ArrayLike | None = None
) -> np.ndarray:
    """Advantages N of a batch: rewards less their group's mean, divided by its deviation.

    With `lengths_N`, in tokens, mean and deviation are over tokens; every token of a reply has its advantage.
    """
    rewards_N = np.asarray(rewards_N, dtype=float)
    advantages_N = np.zeros(len(rewards_N))
    for group, baseline in baselines(rewards_N, groups_N, lengths_N).items():
        here = _members(groups_N, group)
        if baseline.replies > 1:
            advantages_N[here] = (rewards_N[here] - baseline.mean) / np.sqrt(baseline.deviation**2 + EPSILON)
    return np.nan_to_num(advantages_N, nan=0.0)


def discounted_advantages(
    rewards_N: ArrayLike, groups_N: Sequence[Hashable], mask_NT: ArrayLike, discount: float = 1.0
) -> np.ndarray:
    """Advantages NT of REINFORCE++: the reward stands at a reply's last token, returns are whitened over a group's tokens.

    `mask_NT` is 1 for the tokens of a reply. R_t = sum over s >= t of discount^(s - t) r_s.
    """
    rewards_N, mask_NT = np.asarray(rewards_N, dtype=float), np.asarray(mask_NT, dtype=bool)
    left_NT = mask_NT[:, ::-1].cumsum(axis=1)[:, ::-1] - 1
    returns_NT = rewards_N[:, None] * np.where(mask_NT, float(discount) ** np.maximum(left_NT, 0), 0.0)
    advantages_NT = np.zeros(returns_NT.shape)
    for group in dict.fromkeys(groups_N):
        here_NT = mask_NT & (_members(groups_N, group) & ~np.isnan(rewards_N))[:, None]
        if here_NT.any(axis=1).sum() > 1:
            values = returns_NT[here_NT]
            advantages_NT[here_NT] = (values - values.mean()) / np.sqrt(values.var(ddof=1) + EPSILON)
    return advantages_NT


def _members(groups_N: Sequence[Hashable], group: Hashable) -> np.ndarray:
    return np.array([each == group for each in groups_N], dtype=bool)


def _baseline(rewards_N: np.ndarray, weights_N: np.ndarray, members_N: np.ndarray) -> Baseline:
    here = members_N & ~np.isnan(rewards_N) & (weights_N > 0)
    rewards, weights = rewards_N[here], weights_N[here]
    total = weights.sum()
    if not here.any():
        return Baseline(np.nan, np.nan, 0)
    mean = float((weights * rewards).sum() / total)
    variance = (weights * (rewards - mean) ** 2).sum() / (total - 1) if total > 1 else np.nan
    return Baseline(mean, float(np.sqrt(variance)), int(here.sum()))

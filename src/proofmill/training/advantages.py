"""Advantages: the reward of an attempt relative to its group, as the policy gradient weights it.

From: GRPO (DeepSeekMath, section 4.1): the reward minus its group's mean, divided by the group's standard deviation.
QED-Nano's trainer and Dr. GRPO do not divide. Equal to TRL's `sum_then_normalize` bit for bit in float32; tests check this.
TRR++ (Absolute Zero Reasoner, arXiv 2505.03335, section 3.3.5, equation 8): the same for the replies to one task in one
role. Its code whitens over tokens (veRL's `masked_whiten`), so long replies count more than in the paper's equation.

Differences from the original:
1. The deviation is that of a sample (divided by n - 1) plus 1e-4, as in TRL and PipelineRL; the paper leaves both open.
   `whitened` adds 1e-8 to the variance instead, as in veRL.
2. An attempt without a reward does not enter mean or deviation and has the advantage 0. So does the only scored attempt
   of a group.

Axes: P problems with G attempts each, N attempts, K rewards. NaN is a missing reward. Tensors are computed by torch in
their own precision, everything else by numpy in float64.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

SCALES = ("group", "batch", "none")
WHITENED = "whitened"  # TRR++
EPSILON = 1e-4  # added to the deviation, as in TRL and PipelineRL
VARIANCE_EPSILON = 1e-8  # added to the variance, as in veRL


def mask_uncounted(rewards_NK: ArrayLike, applies_NK: ArrayLike, unscored: str) -> np.ndarray:
    """Mask the rewards NK with NaN where one does not apply to the attempt or must not count.

    If an attempt lacks a reward that applies, `drop` discards all its rewards; `zero` counts 0 for the missing one.
    """
    applies_NK = np.asarray(applies_NK, dtype=bool)
    rewards_NK = np.where(applies_NK, np.asarray(rewards_NK, dtype=float), np.nan)
    missing_NK = applies_NK & np.isnan(rewards_NK)
    if unscored == "zero":
        return np.where(missing_NK, 0.0, rewards_NK)
    return np.where(missing_NK.any(axis=1, keepdims=True), np.nan, rewards_NK)


def total(rewards_NK: Any, weights_K: Any, applies_NK: Any = None) -> Any:
    """Return the weighted sum of rewards, shape (N,); NaN if a reward that applies is missing, or none applies.

    By default all rewards apply.
    """
    rewards_NK = _array(rewards_NK)
    weighted_NK = rewards_NK * _array(weights_K)
    if applies_NK is None:
        return weighted_NK.sum(1)
    library = _library(rewards_NK)
    applies_NK = applies_NK if library is not np else np.asarray(applies_NK, dtype=bool)
    sums_N = library.where(applies_NK, weighted_NK, 0.0).sum(1)
    return library.where(applies_NK.any(1), sums_N, np.nan)


def center(rewards_PG: Any, weights_PG: Any = None) -> Any:
    """Subtract the mean of each group's scored attempts from the rewards PG."""
    rewards_PG = _array(rewards_PG)
    return rewards_PG - _mean(rewards_PG, _mask_weights(rewards_PG, weights_PG))


def divisors(rewards_PG: Any, scale: str, weights_PG: Any = None) -> Any:
    """Return the divisor of each group, shape (P, 1); NaN if a standard deviation has fewer than two scored attempts.

    `group` is the group's deviation, `batch` that of all rewards around their own mean, each plus 1e-4; `none` is 1;
    `whitened` is the root of the group's variance plus 1e-8. Raises ValueError for another `scale`.
    """
    rewards_PG = _array(rewards_PG)
    library = _library(rewards_PG)
    if scale == "none":
        return library.ones_like(rewards_PG[:, :1])
    if scale == "batch":
        deviation = library.sqrt(_variance(rewards_PG.reshape(1, -1), None))
        return library.ones_like(rewards_PG[:, :1]) * (deviation + EPSILON)
    if scale == WHITENED:
        return library.sqrt(_variance(rewards_PG, weights_PG) + VARIANCE_EPSILON)
    if scale != "group":
        raise ValueError(f"advantages: scaled by {scale!r}; expected {', '.join(SCALES)}. Set one of these.")
    return library.sqrt(_variance(rewards_PG, weights_PG)) + EPSILON


def advantages(rewards_PG: Any, scale: str, weights_PG: Any = None) -> Any:
    """Return the advantages PG of a batch: centred rewards divided by `divisors`, 0 for an attempt without a reward.

    `weights_PG` are the weights of the attempts in mean and deviation (default: equal), such as their tokens.
    """
    rewards_PG = _array(rewards_PG)
    scaled_PG = center(rewards_PG, weights_PG) / divisors(rewards_PG, scale, weights_PG)
    return _library(rewards_PG).nan_to_num(scaled_PG, nan=0.0)


def task_advantages(
    rewards_N: ArrayLike, groups_N: Sequence[Hashable], lengths_N: ArrayLike | None = None
) -> np.ndarray:
    """Return the whitened advantages N of TRR++ for groups of any size.

    With `lengths_N`, in tokens, mean and deviation are over tokens; every token of a reply has its advantage.
    """
    members = {group: np.array([each == group for each in groups_N], dtype=bool) for group in dict.fromkeys(groups_N)}
    shape = len(members), max((members_N.sum() for members_N in members.values()), default=0)
    rewards_PG, weights_PG = np.full(shape, np.nan), np.ones(shape)
    for row, members_N in enumerate(members.values()):
        size = members_N.sum()
        rewards_PG[row, :size] = np.asarray(rewards_N, dtype=float)[members_N]
        if lengths_N is not None:
            weights_PG[row, :size] = np.asarray(lengths_N, dtype=float)[members_N]
    advantages_N = np.zeros(len(groups_N))
    for members_N, advantages_G in zip(members.values(), advantages(rewards_PG, WHITENED, weights_PG), strict=True):
        advantages_N[members_N] = advantages_G[: members_N.sum()]
    return advantages_N


def _array(values: Any) -> Any:
    """Return a tensor as it is, and anything else as a float64 array."""
    return values if hasattr(values, "requires_grad") else np.asarray(values, dtype=float)


def _library(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return np
    import torch  # commands that only read tables do without it

    return torch


def _mask_weights(rewards_PG: Any, weights_PG: Any) -> Any:
    """Return the weights PG of scored attempts (default: 1), and 0 for the others."""
    library = _library(rewards_PG)
    weights_PG = library.ones_like(rewards_PG) if weights_PG is None else _array(weights_PG)
    return library.where(library.isnan(rewards_PG), 0.0, weights_PG)


def _mean(values_PG: Any, weights_PG: Any) -> Any:
    """Return the weighted mean of each row, shape (P, 1); NaN if no weight is positive."""
    library = _library(values_PG)
    sums_P1 = library.where(weights_PG > 0, values_PG * weights_PG, 0.0).sum(1, keepdims=True)
    weights_P1 = weights_PG.sum(1, keepdims=True)
    return sums_P1 / library.where(weights_P1 > 0, weights_P1, np.nan)


def _variance(values_PG: Any, weights_PG: Any) -> Any:
    """Return the weighted variance of each row (divided by n - 1), shape (P, 1); NaN for fewer than two values."""
    library = _library(values_PG)
    weights_PG = _mask_weights(values_PG, weights_PG)
    squares_P1 = _mean((values_PG - _mean(values_PG, weights_PG)) ** 2, weights_PG)
    total_P1 = library.where((weights_PG > 0).sum(1, keepdims=True) > 1, weights_PG.sum(1, keepdims=True), np.nan)
    return squares_P1 * (total_P1 / (total_P1 - 1))

"""Advantages: how much more an attempt earned than the other attempts at its problem, as a policy gradient weighs it.

From: GRPO (DeepSeekMath, section 4.1): the reward minus its group's mean, divided by the group's standard deviation;
QED-Nano's trainer and Dr. GRPO do not divide. Equal to TRL's `sum_then_normalize`, which tests check.

How we differ:
1. The deviation is that of a sample (divided by n - 1) plus 1e-4, as in TRL and PipelineRL; the paper does not say
   which.
2. An attempt without a reward is left out of mean and deviation and has the advantage 0. So has the only scored attempt
   of a group.

Axes: P problems with G attempts at each, N attempts, K rewards. NaN is a missing reward.
"""

import numpy as np
from numpy.typing import ArrayLike

SCALES = ("group", "batch", "none")
EPSILON = 1e-4  # added to the deviation, as in TRL and PipelineRL


def counted(rewards_NK: ArrayLike, applies_NK: ArrayLike, unscored: str) -> np.ndarray:
    """The rewards NK that are added up; NaN where a reward does not apply or does not count.

    If an attempt lacks a reward that applies, `drop` discards all its rewards, `zero` counts 0 for the missing one.
    """
    applies_NK = np.asarray(applies_NK, dtype=bool)
    rewards_NK = np.where(applies_NK, np.asarray(rewards_NK, dtype=float), np.nan)
    missing_NK = applies_NK & np.isnan(rewards_NK)
    if unscored == "zero":
        return np.where(missing_NK, 0.0, rewards_NK)
    return np.where(missing_NK.any(axis=1, keepdims=True), np.nan, rewards_NK)


def total(rewards_NK: ArrayLike, weights_K: ArrayLike, applies_NK: ArrayLike | None = None) -> np.ndarray:
    """The weighted sum N of the rewards that apply (default: all); NaN if one of them is missing, or none applies."""
    rewards_NK = np.asarray(rewards_NK, dtype=float)
    applies_NK = np.ones(rewards_NK.shape, dtype=bool) if applies_NK is None else np.asarray(applies_NK, dtype=bool)
    weighted_NK = np.where(applies_NK, rewards_NK * np.asarray(weights_K, dtype=float), 0.0)
    return np.where(applies_NK.any(axis=1), weighted_NK.sum(axis=1), np.nan)


def centred(rewards_PG: ArrayLike) -> np.ndarray:
    """Rewards PG minus the mean of their group's scored attempts."""
    rewards_PG = np.asarray(rewards_PG, dtype=float)
    return rewards_PG - _mean(rewards_PG)


def divisors(rewards_PG: ArrayLike, scale: str) -> np.ndarray:
    """The divisor of each group's centred rewards, shape (P, 1); NaN for a deviation of fewer than two scored attempts.

    `group` is the group's deviation, `batch` that of all rewards around their own mean, each plus 1e-4; `none` is 1.
    Raises ValueError for another `scale`.
    """
    rewards_PG = np.asarray(rewards_PG, dtype=float)
    if scale not in SCALES:
        raise ValueError(f"advantages: scaled by {scale!r}; expected {', '.join(SCALES)}. Name one of these.")
    if scale == "none":
        return np.ones((len(rewards_PG), 1))
    if scale == "group":
        return _deviation(rewards_PG) + EPSILON
    return np.repeat(_deviation(rewards_PG.reshape(1, -1)) + EPSILON, len(rewards_PG), axis=0)


def advantages(rewards_PG: ArrayLike, scale: str) -> np.ndarray:
    """Advantages PG of one batch: centred rewards divided by `divisors`, 0 for an attempt without a reward."""
    return np.nan_to_num(centred(rewards_PG) / divisors(rewards_PG, scale), nan=0.0)


def _mean(values_PG: np.ndarray) -> np.ndarray:
    """Mean of each row's numbers, shape (P, 1); NaN without any."""
    counts_P1 = (~np.isnan(values_PG)).sum(axis=1, keepdims=True)
    sums_P1 = np.nansum(values_PG, axis=1, keepdims=True)
    return np.divide(sums_P1, counts_P1, out=np.full(sums_P1.shape, np.nan), where=counts_P1 > 0)


def _deviation(values_PG: np.ndarray) -> np.ndarray:
    """Deviation of each row's numbers (divided by n - 1), shape (P, 1); NaN for fewer than two."""
    counts_P1 = (~np.isnan(values_PG)).sum(axis=1, keepdims=True)
    squares_P1 = np.nansum((values_PG - _mean(values_PG)) ** 2, axis=1, keepdims=True)
    return np.sqrt(np.divide(squares_P1, counts_P1 - 1, out=np.full(squares_P1.shape, np.nan), where=counts_P1 > 1))

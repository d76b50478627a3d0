"""Differences of two models by problem: an interval with the p of the same test, over problems or over trainings.

From: the sign-flip permutation test (Fisher 1935, "The Design of Experiments", section 21; Phipson and Smyth 2010,
"Permutation P-values Should Never Be Zero"); crossed random effects (Searle, Casella and McCulloch 1992); margins whose
squares add up (Zou, Huang and Zhang 2009); Holm (1979).

Differences from a bootstrap interval next to such a p:
1. The interval contains 0 exactly if p is at least 1 - confidence: it has all differences that the test does not reject.
2. Neither test knows of problems that were not drawn, and sign flips assume that gains and losses have one shape. If few
   problems differ, or if a model gains a little at many problems and loses much at few, both would reject differences that
   other problems could well give. So each end is at least as far as that of intervals.of_mean, and p at least its p.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from proofmill.metrics.uncertainty.intervals import batches, t_quantile, test_mean

EXACT = 14  # differences whose sign flips are enumerated, if no others differ from 0
DRAWS = 2**15  # sign flips, if not all are enumerated
ROUNDING = 1e-9  # sums that differ by less than this share of their terms count as equal


class Test(NamedTuple):
    """A difference's interval, and the two-sided p of no difference. An end without a limit is None."""

    low: float | None
    high: float | None
    p: float


def over_problems(
    differences_P: np.ndarray,
    bound: float | None,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    draws: int = DRAWS,
    reach: float | None = None,
) -> Test:
    """Test the mean difference by problem under random sign flips; the mean is within -`bound` and `bound`.

    `reach` is the largest difference that a problem may have, `bound` by default.

    A flip of set S leaves the mean at least as extreme as observed, for a supposed difference, if that lies between the
    means of S and of the other problems. So the ends are quantiles of the smaller and of the larger of these means. Exact
    for up to EXACT differences that are not 0; otherwise the observed signs count as one more flip, so p is never 0.
    """
    if len(differences_P) == 0:
        return Test(None, None, 1.0)
    smaller_F, larger_F = _means_of_parts(differences_P, seed, draws)
    flips, total = len(smaller_F), differences_P.sum()
    slack = ROUNDING * np.abs(differences_P).mean()
    for means_F in (smaller_F, larger_F):
        means_F[np.abs(means_F) <= slack] = 0.0
    p = float(np.count_nonzero(smaller_F <= 0 if total >= 0 else larger_F >= 0)) / flips
    place = math.ceil((1 - confidence) * flips) - 1
    low, high = float(np.partition(smaller_F, place)[place]), float(np.partition(larger_F, -1 - place)[-1 - place])
    return _allow_for_others(low, high, p, differences_P, bound, reach, confidence, resamples, seed)


def _allow_for_others(
    low: float,
    high: float,
    p: float,
    differences_P: np.ndarray,
    bound: float | None,
    reach: float | None,
    confidence: float,
    *options: Any,
) -> Test:
    """Return a test that allows for problems that were not drawn, unless a difference has no bound."""
    alpha = 1 - confidence
    if bound is not None:
        below, above, least = test_mean(differences_P, reach or bound, confidence, *options)
        low, high, p = max(min(low, below), -bound), min(max(high, above), bound), max(p, least)
        # The quantile of an end and the share of resamples beyond 0 may disagree by one resample.
        p = max(p, alpha) if low <= 0 <= high else min(p, alpha * (1 - ROUNDING))
    return Test(low if np.isfinite(low) else None, high if np.isfinite(high) else None, p)


def _means_of_parts(differences_P: np.ndarray, seed: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the smaller and the larger mean of the flipped and the other problems, by flip; infinite if none is flipped.

    One of a flip and its reverse is enumerated: they have the same two means.
    """
    ordered_P = differences_P[np.argsort(differences_P == 0, kind="stable")]
    problems, nonzero = len(ordered_P), np.count_nonzero(ordered_P)
    rng, total = np.random.default_rng(seed), ordered_P.sum()
    listed = min(problems, EXACT) if nonzero <= EXACT else 0
    rows_of = [min(draws, 2 ** (listed - 1))] if listed == problems else batches(draws, problems)
    smaller, larger = [], []
    start = 0
    for rows in rows_of:
        flipped_FP = rng.integers(2, size=(rows, problems), dtype=np.int8)
        if listed:
            number_F = np.arange(start, start + rows) % 2 ** (listed - 1)
            flipped_FP[:, :listed] = number_F[:, None] >> np.arange(listed) & 1
        start += rows
        flipped_FP = flipped_FP.astype(float)
        counts_F, sums_F = flipped_FP.sum(axis=1), flipped_FP @ ordered_P
        whole_F = (counts_F == 0) | (counts_F == problems)
        flipped_F = sums_F / np.where(whole_F, 1, counts_F)
        others_F = (total - sums_F) / np.where(whole_F, 1, problems - counts_F)
        smaller.append(np.where(whole_F, -np.inf, np.minimum(flipped_F, others_F)))
        larger.append(np.where(whole_F, np.inf, np.maximum(flipped_F, others_F)))
    if not listed:
        smaller.append(np.array([-np.inf]))
        larger.append(np.array([np.inf]))
    return np.concatenate(smaller), np.concatenate(larger)


def over_seeds(
    differences_SP: np.ndarray,
    bound: float | None,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    reach: float | None = None,
) -> Test:
    """Test the mean difference of two trainings, over other seeds and other problems; S seeds, P problems, NaN is missing.

    Seeds and problems are crossed random effects, so the error's variance is V_S/S + (V_P - V/S)/P, from the variances of
    the seeds' means, of the problems' means and of the rest. Each of the two parts has its own t-quantile, because few seeds
    say little about their variance; the margin is the root of the summed squares. Without any variance the test is that
    over problems. Raises ValueError for one seed.
    """
    seeds, problems = differences_SP.shape
    if seeds < 2:
        raise ValueError("over seeds: one seed; expected at least two. Repeat the trainings with other seeds.")
    mean_S, mean_P = np.nanmean(differences_SP, axis=1), np.nanmean(differences_SP, axis=0)
    if problems < 2:  # nothing is known of other problems
        return Test(None, None, 1.0) if bound is None else Test(-bound, bound, 1.0)
    mean = float(mean_P.mean())
    rest_SP = differences_SP - mean_S[:, None] - mean_P[None, :] + mean
    rest = float(np.nansum(rest_SP**2)) / ((seeds - 1) * (problems - 1))
    by_seed = float(mean_S.var(ddof=1)) / seeds
    by_problem = max(0.0, float(mean_P.var(ddof=1)) - rest / seeds) / problems
    if by_seed + by_problem <= (ROUNDING * float(np.nanmean(np.abs(differences_SP)))) ** 2:
        return over_problems(mean_P, bound, confidence, resamples, seed, reach=reach)

    def margin(tails: float) -> float:
        parts = ((seeds, by_seed), (problems, by_problem))
        return math.sqrt(sum(part and t_quantile(1 - tails / 2, number - 1) ** 2 * part for number, part in parts))

    fewest, most = 1e-15, 1.0  # p is the share in both tails whose margin ends at 0
    for _ in range(50):
        tails = (fewest + most) / 2
        fewest, most = (fewest, tails) if margin(tails) < abs(mean) else (tails, most)
    half = margin(1 - confidence)
    return _allow_for_others(mean - half, mean + half, most, mean_P, bound, reach, confidence, resamples, seed)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values in the given order, each comparable with alpha for all tests together (Holm 1979)."""
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = least
    return adjusted

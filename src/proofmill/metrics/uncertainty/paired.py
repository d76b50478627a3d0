"""Differences of two models by problem: an interval with the p of the same test, over problems or over trainings.

From: the sign-flip permutation test (Fisher 1935, "The Design of Experiments", section 21; Phipson and Smyth 2010,
"Permutation P-values Should Never Be Zero"); crossed random effects (Searle, Casella and McCulloch 1992); margins whose
squares add up (Zou, Huang and Zhang 2009); Holm (1979).

Differences from a bootstrap interval next to such a p:
1. The interval has the differences that the test does not reject, so it contains 0 exactly if p is at least 1 -
   confidence.
2. The test takes a difference of all problems by one amount for chance in their signs. If few problems differ, it rejects
   amounts that problems not drawn could well give. So each end is at least as far as that of intervals.of_mean, unless
   it would cross a 0 that the test rejects.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from proofmill.metrics.uncertainty.intervals import batches, of_mean, t_quantile

FEW = 3  # differences that are not 0, below which they do not show how large others may be
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
) -> Test:
    """Test the mean difference by problem under random sign flips; each difference is within -`bound` and `bound`.

    A flip of set S leaves the mean at least as extreme as observed, for a supposed difference, if that lies between the
    means of S and of the other problems. So the ends are quantiles of the smaller and of the larger of these means. Exact
    for up to EXACT differences that are not 0; otherwise the observed signs count as one more flip, so p is never 0.
    """
    if len(differences_P) == 0:
        return Test(None, None, 1.0)
    smaller_F, larger_F = _means_of_parts(differences_P, seed, draws)
    flips, total = len(smaller_F), differences_P.sum()
    slack = ROUNDING * np.abs(differences_P).mean()
    extreme = smaller_F <= slack if total >= 0 else larger_F >= -slack
    p = float(np.count_nonzero(extreme)) / flips
    place = math.ceil((1 - confidence) * flips) - 1
    low, high = float(np.partition(smaller_F, place)[place]), float(np.partition(larger_F, -1 - place)[-1 - place])
    side = 0 if p >= 1 - confidence else 1 if total > 0 else -1
    # The largest difference that a problem not drawn may have: one such as these, if some problems differ.
    most = float(np.abs(differences_P).max()) if np.count_nonzero(differences_P) >= FEW else bound
    if most is not None:
        below, above = of_mean(differences_P, (-most, most), confidence, resamples, seed)
        assert below is not None and above is not None, "a bounded value has an interval"
        # If the test shows a difference, no end crosses 0.
        low = low if side == 1 and below <= 0 else min(low, below)
        high = high if side == -1 and above >= 0 else max(high, above)
    if bound is not None:
        low, high = max(low, -bound), min(high, bound)
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


def over_seeds(differences_SP: np.ndarray, bound: float | None, confidence: float = 0.95) -> Test:
    """Test the mean difference of two trainings, over other seeds and other problems; S seeds, P problems, NaN is missing.

    Seeds and problems are crossed random effects, so the error's variance is V_S/S + (V_P - V/S)/P, from the variances of
    the seeds' means, of the problems' means and of the rest. Each of the two parts has its own t-quantile, because few seeds
    say little about their variance; the margin is the root of the summed squares. Raises ValueError for one seed.
    """
    seeds, problems = differences_SP.shape
    if seeds < 2:
        raise ValueError("over seeds: one seed; expected at least two. Repeat the trainings with other seeds.")
    mean_S, mean_P = np.nanmean(differences_SP, axis=1), np.nanmean(differences_SP, axis=0)
    mean = float(mean_P.mean())
    rest_SP = differences_SP - mean_S[:, None] - mean_P[None, :] + mean
    rest = float(np.nansum(rest_SP**2)) / max(1, (seeds - 1) * (problems - 1))
    by_seed = float(mean_S.var(ddof=1)) / seeds
    by_problem = max(0.0, float(mean_P.var(ddof=1)) - rest / seeds) / problems if problems > 1 else 0.0
    if by_seed + by_problem == 0:  # equal differences are no certainty
        return Test(None, None, 1.0) if bound is None else Test(-bound, bound, 1.0)

    def margin(tails: float) -> float:
        by = t_quantile(1 - tails / 2, seeds - 1) ** 2 * by_seed
        return math.sqrt(by + (t_quantile(1 - tails / 2, problems - 1) ** 2 * by_problem if by_problem else 0.0))

    half = margin(1 - confidence)
    low, high = mean - half, mean + half
    if bound is not None:
        low, high = max(low, -bound), min(high, bound)
    least, most = 1e-15, 1.0  # p is the share in both tails whose margin ends at 0
    for _ in range(40):
        tails = (least + most) / 2
        least, most = (least, tails) if margin(tails) < abs(mean) else (tails, most)
    return Test(low, high, most)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values in the given order, each comparable with alpha for all tests together (Holm 1979)."""
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = least
    return adjusted

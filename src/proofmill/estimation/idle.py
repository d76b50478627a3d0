"""The share of groups without a learning signal that a group size would give, from counts of attempts by their value.

The values of the attempts at a problem (grades, or sums of rewards) are draws from the problem's own distribution, and
these distributions are draws from one Dirichlet distribution, which is fitted to all problems (empirical Bayes, Robbins
1956; Minka 2000, "Estimating a Dirichlet distribution"). Given its counts, the chance that all attempts of a new group
have one value is a product of a few fractions, for any group size.

Rewards by length have nearly as many values as attempts. So only the MOST frequent values are counted apart; attempts
with another value count as different from all others.

Axes: P problems, V values, the last of which stands for all rare ones.
"""

from collections.abc import Iterable, Sequence

import numpy as np

MOST = 64
# Concentrations that are tried, from problems with one value each to problems that are all alike.
CONCENTRATIONS = np.exp(np.linspace(-5, 9, 57))


def count_values(attempts: Iterable[Sequence[float]]) -> np.ndarray:
    """Count the attempts PV at each problem by value; `attempts` has the values of each problem, without missing ones."""
    kept = [values for values in attempts if len(values)]
    problem_N = np.repeat(np.arange(len(kept)), [len(values) for values in kept])
    flat_N = np.concatenate(kept) if kept else np.empty(0)
    _, value_N, times_V = np.unique(flat_N, return_inverse=True, return_counts=True)
    rank_V = np.minimum(np.argsort(np.argsort(-times_V, kind="stable")), MOST)
    counts_PV = np.zeros((len(kept), min(len(times_V), MOST) + 1), dtype=int)
    np.add.at(counts_PV, (problem_N, rank_V[value_N]), 1)
    return counts_PV


def forecast_idle(counts_PV: np.ndarray, size: int) -> float:
    """Return the expected share of groups of `size` attempts whose values are all equal.

    It is NaN if no problem has two attempts, which would show whether attempts at a problem are alike.
    """
    total_P = counts_PV.sum(axis=1)
    if not (total_P > 1).any():
        return float("nan")
    prior_V, largest = fit(counts_PV), int(total_P.max())
    rises_VC = rise(prior_V, largest + size)
    drawn_VC = rises_VC[:, size:] - rises_VC[:, : largest + 1]  # of `size` further attempts, by the count so far
    rises_C = rise(prior_V.sum(), largest + size)
    all_P = (rises_C[size:] - rises_C[: largest + 1])[total_P]
    each_PV = drawn_VC[np.arange(len(prior_V) - 1), counts_PV[:, :-1]]
    return float(np.exp(each_PV - all_P[:, None]).sum(axis=1).mean())


def fit(counts_PV: np.ndarray) -> np.ndarray:
    """Return the parameters V of the Dirichlet distribution: the mean shares times the most likely concentration."""
    shares_V, total_P = counts_PV.sum(axis=0) / counts_PV.sum(), counts_PV.sum(axis=1)
    largest = int(total_P.max())
    problems_VC = np.stack([np.bincount(column_P, minlength=largest + 1) for column_P in counts_PV.T])
    problems_C = np.bincount(total_P, minlength=largest + 1)

    def log_likelihood(concentration: float) -> float:
        by_value = (problems_VC * rise(concentration * shares_V, largest)).sum()
        return float(by_value - (problems_C * rise(concentration, largest)).sum())

    return max(CONCENTRATIONS, key=log_likelihood) * shares_V


def rise(start: np.ndarray | float, most: int) -> np.ndarray:
    """Return the logarithms of start (start + 1) ... (start + n - 1) for n from 0 to `most`, along a new last axis."""
    factors = np.maximum(
        np.asarray(start)[..., None] + np.arange(most), 1e-300
    )  # a value without attempts has no share
    return np.concatenate([np.zeros((*factors.shape[:-1], 1)), np.cumsum(np.log(factors), axis=-1)], axis=-1)

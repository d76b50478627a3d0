"""The share of groups without a learning signal that a group size would give, from counts of attempts by their value.

The values of the attempts at a problem (grades, or sums of rewards) are draws from the problem's own distribution, and
these distributions are draws from one Dirichlet distribution, which is fitted to all problems (empirical Bayes, Robbins
1956; Minka 2000, "Estimating a Dirichlet distribution"). Given its counts, the chance that all attempts of a new group
have one value is a product of a few fractions, for any group size.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

CONCENTRATIONS = np.exp(
    np.linspace(-5, 9, 57)
)  # that are tried: from problems with one value each to all problems alike


def count_values(attempts: Iterable[Sequence[Hashable]]) -> np.ndarray:
    """Count the attempts PV at each problem by value; `attempts` has the values of each problem, without missing ones."""
    counters = [Counter(values) for values in attempts if len(values)]
    values = sorted({value for counter in counters for value in counter}, key=repr)
    return np.array([[counter[value] for value in values] for counter in counters], dtype=float)


def forecast_idle(counts_PV: np.ndarray, size: int) -> float:
    """Return the expected share of groups of `size` attempts whose values are all equal; NaN without attempts."""
    if not counts_PV.size:
        return float("nan")
    prior_V = fit(counts_PV)
    posterior_PV, drawn_G = counts_PV + prior_V, np.arange(size)
    totals_P = posterior_PV.sum(axis=1)
    chances_PVG = (posterior_PV[:, :, None] + drawn_G) / (totals_P[:, None, None] + drawn_G)
    return float(chances_PVG.prod(axis=2).sum(axis=1).mean())


def fit(counts_PV: np.ndarray) -> np.ndarray:
    """Return the parameters V of the Dirichlet distribution: the mean shares times the most likely concentration."""
    shares_V = counts_PV.sum(axis=0) / counts_PV.sum()
    rows_RV, times_R = np.unique(counts_PV, axis=0, return_counts=True)

    def log_likelihood(concentration: float) -> float:
        prior_V = concentration * shares_V
        drawn_R = rise(prior_V, rows_RV).sum(axis=1) - rise(np.array(concentration), rows_RV.sum(axis=1))
        return float((times_R * drawn_R).sum())

    return max(CONCENTRATIONS, key=log_likelihood) * shares_V


def rise(start: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the logarithm of start (start + 1) ... (start + steps - 1)."""
    return np.vectorize(math.lgamma)(start + steps) - np.vectorize(math.lgamma)(start)

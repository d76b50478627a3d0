"""Interval of a mean over problems: exact, bootstrapped, or a bound for values without spread."""

import math

import numpy as np

from proofmill.metrics import estimates


def interval(
    means_P: np.ndarray, scale: float | None, confidence: float, resamples: int, seed: int
) -> tuple[float | None, float | None]:
    """Return the interval of the mean over problems; (None, None) without problems, or if all are equal and `scale` is None.

    Exact if each problem is 0 or `scale` (Clopper-Pearson), Hoeffding's bound if all are equal, else the bootstrap.
    """
    if len(means_P) == 0:
        return None, None
    if scale is not None and np.all((means_P == 0) | (means_P == scale)):
        low, high = estimates.clopper_pearson(int((means_P == scale).sum()), len(means_P), confidence)
        return scale * low, scale * high
    if np.all(means_P == means_P[0]):
        return _without_spread(float(means_P[0]), len(means_P), scale, 1 - confidence)
    sums_PD = np.column_stack([means_P, np.ones(len(means_P))])
    return estimates.bootstrap(
        sums_PD, lambda totals_RD: totals_RD[:, 0] / totals_RD[:, 1], confidence, resamples, seed
    )


def _without_spread(mean: float, n: int, scale: float | None, alpha: float) -> tuple[float | None, float | None]:
    """Compute the interval by Hoeffding's inequality (1963, theorem 2); (None, None) without a scale."""
    if scale is None:
        return None, None
    margin = scale * math.sqrt(math.log(2 / alpha) / (2 * n))
    return max(0.0, mean - margin), min(scale, mean + margin)

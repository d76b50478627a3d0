"""Intervals of numbers over problems: problems are resampled, and each end allows for problems that were not drawn.

From: the Bayesian bootstrap (Rubin 1981, "The Bayesian Bootstrap"), clustered by problem (for benchmarks Miller 2024,
"Adding Error Bars to Evals", section 3). A resample weighs each problem, with all its attempts, by an independent
exponential number.

Differences from the usual bootstrap:
1. Resamples of problems with equal values are equal, and few problems seldom have rare values. So a bounded value has
   one more problem at each end of its range. For the upper end the problem at the top has the weight NEAR and the one at
   the bottom 1 - NEAR; for the lower end the reverse. For problems that are all right or wrong, these are the ends of
   Beta(x + NEAR, n - x + 1 - NEAR) and Beta(x + 1 - NEAR, n - x + NEAR): with 1/2 Jeffreys' interval (Brown, Cai and
   DasGupta 2001), with 1 Clopper and Pearson's (1934), and for other values the bound of Learned-Miller and Thomas (2019,
   "A New Confidence Interval for the Mean of a Bounded Random Variable"). `benchmarks/intervals.py` chose NEAR.
2. A value without bounds has longer tails for few problems, as a t-interval has ("expanded percentile", Hesterberg 2015,
   "What Teachers Should Know About the Bootstrap", section 3.4).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from proofmill.estimation import sequential

NEAR = 0.6  # weight of the additional problem at the top for the upper end, at the bottom for the lower end
LEAST = 6  # problems: with fewer, resamples of a value without bounds are not wide enough
CELLS = 2**20  # of a working array (8 MB), which bounds a batch of resamples
NORMAL = NormalDist()
MANY = 10_000  # degrees of freedom, from which Student's t is taken as normal

Ends = tuple[float | None, float | None]


def of_mean(
    values_P: np.ndarray, bounds: Sequence[float] | None, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Ends:
    """Return the interval of the mean of a value per problem, which is within `bounds` (lowest, highest)."""
    sums_PD = np.column_stack([values_P, np.ones(len(values_P))])
    return interval(sums_PD, quotient, ends_of_mean(bounds, sums_PD), confidence, resamples, seed)


def at_most(values_P: np.ndarray, highest: float, confidence: float = 0.95, resamples: int = 10_000) -> float | None:
    """Return the value that the mean is at most, with this confidence, of values between 0 and `highest`.

    A whole problem at the top is added: for values of 0 and `highest` this is Clopper and Pearson's one-sided bound.
    """
    if len(values_P) == 0:
        return None
    sums_PD = np.column_stack([values_P, np.ones(len(values_P))])
    ends_2D = np.array([(0.0, 1.0), (highest, 1.0)])
    _, high_R = _with_others(sums_PD, quotient, ends_2D, resamples, 0, near=1.0)
    return float(np.quantile(high_R, confidence))


def of_mean_at_any_time(values_P: np.ndarray, bounds: Sequence[float] | None, confidence: float = 0.95) -> Ends:
    """Return the interval of the mean that holds at any number of problems, also if the values ended their drawing.

    (None, None) for a value without bounds, or without problems.
    """
    if bounds is None or len(values_P) == 0:
        return None, None
    lowest, highest = bounds
    ends = sequential.interval((values_P - lowest) / (highest - lowest), 1 - confidence)
    low, high = (lowest + end * (highest - lowest) for end in ends)
    return low, high


def ends_of_mean(bounds: Sequence[float] | None, sums_PD: np.ndarray) -> np.ndarray | None:
    """Return the sums of a problem at each bound that has as many values as the others on average."""
    if bounds is None or len(sums_PD) == 0:
        return None
    return np.column_stack([bounds, (1.0, 1.0)]) * sums_PD[:, 1].mean()


def quotient(totals_RD: np.ndarray) -> np.ndarray:
    """Divide the first total by the second: a mean; NaN for 0 / 0."""
    sums_R, counts_R = totals_RD.T
    return np.divide(sums_R, counts_R, out=np.full(len(sums_R), np.nan), where=counts_R != 0)


def interval(
    sums_PD: np.ndarray,
    value: Callable[[np.ndarray], np.ndarray],
    ends_2D: np.ndarray | None = None,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Ends:
    """Return the interval of `value`, which maps totals_RD, one row per resample, to R numbers.

    Each problem has D sums (for a mean: the sum and number of its values). `ends_2D` are the sums of a problem with the
    lowest and with the highest value. Resamples with a NaN are left out. (None, None) without problems or resamples, and
    without `ends_2D` for fewer than LEAST problems or for problems that do not differ.
    """
    if len(sums_PD) == 0:
        return None, None
    tail, problems = (1 - confidence) / 2, len(sums_PD)
    if ends_2D is None:
        if problems < LEAST:
            return None, None
        totals_RD, weights_R1 = _resample(sums_PD, resamples, seed)
        low_R = high_R = value(totals_RD * problems / weights_R1)
        tail = _expand_tail(tail, problems)
    else:
        low_R, high_R = _with_others(sums_PD, value, ends_2D, resamples, seed)
    low, high = _quantile(low_R, tail), _quantile(high_R, 1 - tail)
    if low is None or high is None or (ends_2D is None and math.isclose(low, high)):
        return None, None
    # No interval excludes the estimate: additional problems are no evidence against a value at the end of its range.
    estimate = float(value(sums_PD.sum(axis=0, keepdims=True))[0])
    return (low, high) if math.isnan(estimate) else (min(low, estimate), max(high, estimate))


def test_mean(
    values_P: np.ndarray, reach: float, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Return the ends of `of_mean` for values within -`reach` and `reach`, and the two-sided p of a mean of 0.

    p is twice the share of the resamples, of the end that is nearer to 0, that are not on the mean's side of 0.
    """
    sums_PD = np.column_stack([values_P, np.ones(len(values_P))])
    ends_2D = np.array([(-reach, 1.0), (reach, 1.0)])
    low_R, high_R = _with_others(sums_PD, quotient, ends_2D, resamples, seed)
    low, high = (float(np.quantile(*end)) for end in ((low_R, (1 - confidence) / 2), (high_R, (1 + confidence) / 2)))
    p = min(1.0, 2 * float(min(np.mean(low_R <= 0), np.mean(high_R >= 0))))
    return min(low, float(values_P.mean())), max(high, float(values_P.mean())), p


def _with_others(
    sums_PD: np.ndarray,
    value: Callable[[np.ndarray], np.ndarray],
    ends_2D: np.ndarray,
    resamples: int,
    seed: int,
    near: float = NEAR,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of the resamples for the lower and for the upper end, each with one more problem at both bounds.

    `near` is the weight of the problem at the end in question.
    """
    totals_RD, weights_R1 = _resample(sums_PD, resamples, seed)
    rng = np.random.default_rng([seed, len(sums_PD)])
    near_R1, far_R1 = (rng.standard_gamma(weight, size=(resamples, 1)) for weight in (near, 1 - near))
    scale_R1 = len(sums_PD) / (weights_R1 + near_R1 + far_R1)  # so that a resample has as many problems
    lowest_D, highest_D = ends_2D
    low_R = value((totals_RD + near_R1 * lowest_D + far_R1 * highest_D) * scale_R1)
    return low_R, value((totals_RD + near_R1 * highest_D + far_R1 * lowest_D) * scale_R1)


def _quantile(values_R: np.ndarray, share: float) -> float | None:
    values_R = values_R[~np.isnan(values_R)]
    return float(np.quantile(values_R, share)) if len(values_R) else None


def _resample(sums_PD: np.ndarray, resamples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the totals and the sum of weights of the resamples.

    Small sets of weights are kept for the next metric of the same problems.
    """
    problems, rng = len(sums_PD), np.random.default_rng(seed)
    weighed: Iterable[np.ndarray]
    if resamples * problems <= CELLS:
        weighed = [_weights(resamples, problems, seed)]
    else:
        weighed = (rng.standard_exponential((rows, problems)) for rows in batches(resamples, problems))
    parts = [(weights_RP @ sums_PD, weights_RP.sum(axis=1, keepdims=True)) for weights_RP in weighed]
    totals, sums = zip(*parts, strict=True)
    return np.concatenate(totals), np.concatenate(sums)


@lru_cache(maxsize=2)
def _weights(resamples: int, problems: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_exponential((resamples, problems))


def batches(rows: int, width: int) -> Iterator[int]:
    """Yield batch sizes that add up to `rows`; a batch with `width` columns has at most CELLS cells."""
    at_once = max(1, CELLS // width)
    for start in range(0, rows, at_once):
        yield min(at_once, rows - start)


def _expand_tail(tail: float, problems: int) -> float:
    """Return the tail of a normal distribution at a t-quantile: with it a percentile interval has a t-interval's width."""
    return NORMAL.cdf(-math.sqrt((problems + 1) / (problems - 1)) * t_quantile(1 - tail, problems - 1))


# --------------------------------------------------------------------------------------------------- Student's t


def t_tails(t: float, freedom: int) -> float:
    """Return the probability that Student's t with these degrees of freedom is farther from 0 than `t`.

    The finite series of Abramowitz and Stegun (1964), 26.7.3 and 26.7.4; the normal distribution above MANY.
    """
    if freedom > MANY:
        return 2 * NORMAL.cdf(-abs(t))
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    steps_K = np.arange(odd + 1, freedom - 2, 2)  # each term is the one before times k / (k + 1) cos^2
    terms_K = np.cumprod(np.concatenate([[1.0], steps_K / (steps_K + 1) * cosine**2]))
    inside = float(sine * terms_K.sum())
    if odd:
        inside = 2 / math.pi * (angle + (inside * cosine if freedom > 1 else 0.0))
    return max(0.0, 1 - inside)


def t_quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t at a share of at least 1/2, by Newton's method.

    The tails are convex, so steps from the smaller quantile of the normal distribution never go too far.
    """
    t, tails = NORMAL.inv_cdf(share), 2 * (1 - share)
    if freedom > MANY:
        return t
    constant = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    for _ in range(100):
        density = math.exp(constant - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = (t_tails(t, freedom) - tails) / (2 * density)
        t += step
        if abs(step) <= 1e-10 * abs(t):
            break
    return t

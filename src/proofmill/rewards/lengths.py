"""Length rewards: by the tokens of an attempt, alone or relative to the other attempts at its problem.

From: a length study on GSM8K (methods 1 and 2 and its metrics), GRPO-LEAD (length-dependent accuracy), Kimi k1.5
(length reward), "Demystifying Long Chain-of-Thought Reasoning" (appendix C.1, cosine), DAPO (equation 13, soft
over-long punishment), QED-Nano (discount), and open-r1's `rewards.py`.

Differences from the originals:
1. An attempt without a verdict has no reward (NaN), and the group's extremes, means and shares leave it out. open-r1
   counts an answer whose gold cannot be read as right.
2. Lengths are tokens (open-r1 counts characters in its cosine and Kimi rewards).
3. A group is the attempts at one problem. open-r1 takes the shortest and longest of Kimi's reward over the full call,
   where all attempts at a long problem are long.
4. The cosine stays at its end beyond `max_tokens`; in open-r1 it turns back up. open-r1's command line gives
   `min_value_wrong` as 0, which reverses the reward of wrong answers: here that is OPEN_R1_CLI_WRONG_RANGE, no default.
5. 0 / 0 is 0: where lengths do not differ, length earns nothing.

Axes: G attempts at one problem, S those of them that are scored, R those that are right, N attempts at any problems.
right_G holds true, false, or None (NaN) for an unscored attempt. Every reward has the shape of its lengths; rewards are
numbers to be added to others, with weights.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

BASES: dict[str, Callable[[np.ndarray], Any]] = {"shortest": np.min, "median": np.median, "mean": np.mean}
RIGHT_RANGE = (0.5, 1.0)  # open-r1's cosine for correct answers: of the longest and of the shortest
WRONG_RANGE = (-1.0, -0.5)  # and for wrong ones: of the shortest and of the longest
OPEN_R1_CLI_WRONG_RANGE = (0.0, -0.5)  # the range by its command line: a short wrong answer costs nothing
MARGIN = 3  # tokens; an attempt closer to the maximum has reached it (GSM8K length study)


# ----------------------------------------------------------------------------------------- relative to the other attempts


def reference_penalty(tokens_G: ArrayLike, right_G: ArrayLike, reference: float | None, weight: float) -> np.ndarray:
    """Compute -weight * |L_i - L*| / max_j |L_j - L*|, in [-weight, 0] (GSM8K length study, method 1).

    L* is `reference`, the tokens of the reference solution; without one every reward is NaN. The maximum runs over the
    group. The study does not publish its weight.
    """
    tokens_S, _, scored_G = _select_scored(tokens_G, right_G)
    apart_S = np.abs(tokens_S - (np.nan if reference is None else reference))
    return _place(-weight * _share_of_largest(apart_S), scored_G)


def group_penalty(
    tokens_G: ArrayLike, right_G: ArrayLike, weight: float, power: float = 1.0, base: str | float = "shortest"
) -> np.ndarray:
    """Compute -weight * c^power * e_i / max_j e_j, e_i = max(0, L_i - o), in [-weight, 0] (the same study, method 2).

    c is the share of right attempts, o the length of the shortest right one; or, by `base`, the `median`, the `mean` or
    a quantile in [0, 1] of the right ones' lengths. Wrong attempts pay as well. If no attempt is right, or none is
    longer than o, all get 0. Raises ValueError for another `base`.
    """
    tokens_S, right_S, scored_G = _select_scored(tokens_G, right_G)
    if not right_S.any():
        return _place(np.zeros(len(tokens_S)), scored_G)
    excess_S = np.maximum(0.0, tokens_S - _base(tokens_S[right_S], base))
    return _place(-weight * right_S.mean() ** power * _share_of_largest(excess_S), scored_G)


def lead_reward(
    tokens_G: ArrayLike, right_G: ArrayLike, alpha: float, epsilon: float = 1e-8, wrong: float = 0.0
) -> np.ndarray:
    """Compute exp(-alpha z) if right, else `wrong`, with z = (L - mu) / (sigma + epsilon) (GRPO-LEAD).

    mu and sigma are mean and standard deviation of the right attempts' tokens. The paper does not say which deviation
    it means; here it is the population's (divided by n), so that a single right attempt has z = 0. This reward includes
    the reward for correctness.
    """
    tokens_S, right_S, scored_G = _select_scored(tokens_G, right_G)
    rewards_S = np.full(len(tokens_S), float(wrong))
    if right_S.any():
        lengths_R = tokens_S[right_S]
        rewards_S[right_S] = np.exp(-alpha * (lengths_R - lengths_R.mean()) / (lengths_R.std() + epsilon))
    return _place(rewards_S, scored_G)


def kimi_reward(tokens_G: ArrayLike, right_G: ArrayLike) -> np.ndarray:
    """Compute l_i = 0.5 - (L_i - min) / (max - min) if right, else min(0, l_i), in [-0.5, 0.5] (Kimi k1.5).

    Minimum and maximum are the group's; if they are equal, 0 for all.
    """
    tokens_S, right_S, scored_G = _select_scored(tokens_G, right_G)
    if not len(tokens_S) or tokens_S.min() == tokens_S.max():
        return _place(np.zeros(len(tokens_S)), scored_G)
    lambda_S = 0.5 - (tokens_S - tokens_S.min()) / (tokens_S.max() - tokens_S.min())
    return _place(np.where(right_S, lambda_S, np.minimum(0.0, lambda_S)), scored_G)


def _select_scored(tokens_G: ArrayLike, right_G: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return tokens_S and right_S of the scored attempts, and their mask scored_G. Raises ValueError for other arrays."""
    tokens_G, right_G = np.asarray(tokens_G, dtype=float), np.asarray(right_G, dtype=float)  # None becomes NaN
    if tokens_G.ndim != 1 or tokens_G.shape != right_G.shape:
        raise ValueError(
            f"group: lengths of shape {tokens_G.shape}, verdicts of shape {right_G.shape}; expected one of each for each "
            "attempt. Give a group's attempts as two lists."
        )
    scored_G = ~np.isnan(right_G)
    right_S = right_G[scored_G]
    if not np.isin(right_S, (0, 1)).all():
        raise ValueError(
            f"group: verdicts {sorted(set(right_S.tolist()))}; expected true, false or none. Decide what is right first."
        )
    return tokens_G[scored_G], right_S.astype(bool), scored_G


def _place(rewards_S: np.ndarray, scored_G: np.ndarray) -> np.ndarray:
    """Return the rewards at the indices of their attempts, NaN elsewhere."""
    rewards_G = np.full(len(scored_G), np.nan)
    rewards_G[scored_G] = rewards_S + 0.0  # no -0.0
    return rewards_G


def _share_of_largest(values_S: np.ndarray) -> np.ndarray:
    """Divide the values by their maximum; return 0 for all if it is 0."""
    largest = values_S.max(initial=0.0)
    return values_S / largest if largest != 0 else values_S


def _base(lengths_R: np.ndarray, base: str | float) -> float:
    """Return the length that a correct attempt may have without a penalty."""
    if isinstance(base, str) and base in BASES:
        return float(BASES[base](lengths_R))
    if isinstance(base, str) or not 0 <= base <= 1:
        raise ValueError(
            f"base: found {base!r}; expected {', '.join(BASES)}, or a quantile from 0 to 1. Name one of them."
        )
    return float(np.quantile(lengths_R, base))


# ------------------------------------------------------------------------------------------------------- of one attempt


def cosine_reward(
    tokens_N: ArrayLike,
    right_N: ArrayLike,
    max_tokens: float,
    right_range: tuple[float, float] = RIGHT_RANGE,
    wrong_range: tuple[float, float] = WRONG_RANGE,
) -> np.ndarray:
    """Compute lo + (hi - lo) (1 + cos(pi progress)) / 2, progress = min(1, L / max_tokens): open-r1's cosine reward.

    Both ranges are (minimum, maximum). A right attempt falls from the maximum when it is empty to the minimum at
    `max_tokens`. A wrong attempt rises from the minimum to the maximum: the longer it thought before it failed, the
    less it is punished. With `wrong_range=OPEN_R1_CLI_WRONG_RANGE` it is punished more, as with open-r1's command line.
    """
    tokens_S, right_S, scored_N = _select_scored(tokens_N, right_N)
    if max_tokens <= 0:
        raise ValueError(f"cosine: max_tokens {max_tokens:g}; expected more than 0. Give the longest length allowed.")
    (least_right, most_right), (least_wrong, most_wrong) = right_range, wrong_range
    end_S, start_S = np.where(right_S, least_right, most_wrong), np.where(right_S, most_right, least_wrong)
    fallen_S = 0.5 * (1 + np.cos(np.pi * np.minimum(1.0, tokens_S / max_tokens)))
    return _place(end_S + (start_S - end_S) * fallen_S, scored_N)


def soft_overlong(tokens_N: ArrayLike, max_tokens: int = 16_384, buffer: int = 4_096) -> np.ndarray:
    """Compute 0 up to M - C tokens, then (M - C - L) / C down to -1 at M, and -1 beyond (DAPO, equation 13).

    M is `max_tokens`, C is `buffer`, with open-r1's defaults; with C = 0 the reward is 0 up to M and -1 beyond.
    """
    tokens_N = np.asarray(tokens_N, dtype=float)
    return np.where(tokens_N > max_tokens, -1.0, _into_buffer(tokens_N, max_tokens, buffer))


def _into_buffer(tokens_N: np.ndarray, max_tokens: int, buffer: int) -> np.ndarray:
    """Return minus the share of the buffer before the maximum that a length reaches into."""
    if not 0 <= buffer <= max_tokens:
        raise ValueError(
            f"over-long: a buffer of {buffer} of {max_tokens} tokens; expected 0 to {max_tokens}. Make it smaller."
        )
    return np.minimum(0.0, max_tokens - buffer - tokens_N) / max(buffer, 1)


def discount(tokens_N: ArrayLike, rate: float) -> np.ndarray:
    """Compute rate^L, a factor for a reward (QED-Nano: 1, no discount). Raises ValueError for a rate outside (0, 1]."""
    if not 0 < rate <= 1:
        raise ValueError(
            f"discount: a rate of {rate:g}; expected more than 0 and at most 1. Choose one such as 0.9999."
        )
    return np.power(float(rate), np.asarray(tokens_N, dtype=float))


# -------------------------------------------------------------------------------------------------------------- metrics


def length_correlation(input_N: ArrayLike, response_N: ArrayLike) -> float:
    """Compute Pearson's r of two lengths: of the question or reference answer, and of the response (GSM8K length
    study).

    Pairs with an unknown length (NaN) are left out. NaN for fewer than two pairs, and where either length is constant.
    """
    input_N, response_N = np.asarray(input_N, dtype=float), np.asarray(response_N, dtype=float)
    known_N = ~(np.isnan(input_N) | np.isnan(response_N))
    if known_N.sum() < 2 or np.ptp(input_N[known_N]) == 0 or np.ptp(response_N[known_N]) == 0:
        return float("nan")
    return float(np.corrcoef(input_N[known_N], response_N[known_N])[0, 1])


def near_limit(tokens_N: ArrayLike, max_tokens: int, margin: int = MARGIN) -> float:
    """Return the share of attempts with more than max_tokens - margin tokens (GSM8K length study); NaN without any."""
    tokens_N = np.asarray(tokens_N)
    return float((tokens_N > max_tokens - margin).mean()) if len(tokens_N) else float("nan")


def model_efficiency(reference_N: ArrayLike, tokens_N: ArrayLike, right_N: ArrayLike) -> float:
    """Return tokens of the reference solutions over tokens of the responses, of right attempts (GSM8K length study).

    More than 1: shorter than the references. A problem counts as often as it is answered right. Attempts with an
    unknown reference (NaN) are left out. NaN when no attempt is left.
    """
    tokens_S, right_S, scored_N = _select_scored(tokens_N, right_N)
    reference_S = np.asarray(reference_N, dtype=float)[scored_N]
    counts_S = right_S & ~np.isnan(reference_S)
    written = tokens_S[counts_S].sum()
    return float(reference_S[counts_S].sum() / written) if written else float("nan")

"""Estimates of a model's quality from its attempts at a benchmark, variance components, and what a run can detect.

From: pass@k (Chen et al. 2021, "Evaluating Large Language Models Trained on Code", section 2.1), variance components of
nested data (Searle 1961; Searle, Casella and McCulloch 1992, "Variance Components").

Differences from the originals:
1. best@k and majority@k are exact expectations over all draws of k attempts (verl simulates them).
2. A draw of more attempts than available raises ValueError; MultiPL-E returned 1 (its issue 40).
3. A component that a design cannot identify is None: with one verdict per sample, the judge's noise is unknown, not 0.
4. The caller handles and reports missing values; these functions receive none.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np

from proofmill.metrics.uncertainty.intervals import t_quantile

ROUNDING = 1e-9  # a number of problems that is larger than needed by less than this share counts as enough

# ---------------------------------------------------------------------------------------------- k attempts of a problem


def pass_at_k(successes: int, attempts: int, k: int) -> float:
    """Compute the chance of a success among k attempts, drawn without replacement: 1 - C(n-c, k) / C(n, k).

    Unbiased for a model's chance to succeed in k attempts (Chen et al. 2021, section 2.1). Integer arithmetic until the
    last division, so exact to the last digit for any n. Raises ValueError if k exceeds the attempts.
    """
    _check_draw("pass", attempts, k)
    if not 0 <= successes <= attempts:
        raise ValueError(
            f"pass@{k}: {successes} successes in {attempts} attempts; expected 0 to {attempts}. Fix the counts."
        )
    ways = math.comb(attempts, k)
    return (ways - math.comb(attempts - successes, k)) / ways


def best_at_k(chosen_by: Sequence[float], values: Sequence[float], k: int) -> float:
    """Compute the expected value of the attempt that `chosen_by` ranks first among k, drawn without replacement.

    Best-of-k by a grader; with chosen_by = values it is the expected maximum. Ties are broken at random. The best of a draw
    has the score s if all its attempts score at most s and not all score below s.
    """
    _check_draw("best", len(values), k)
    tied_by_score: dict[float, list[float]] = defaultdict(list)
    for score, value in zip(chosen_by, values, strict=True):
        tied_by_score[score].append(value)
    ways, expected, below = math.comb(len(values), k), 0.0, 0
    for score in sorted(tied_by_score):
        tied = tied_by_score[score]
        upto = below + len(tied)
        expected += (math.comb(upto, k) - math.comb(below, k)) / ways * fmean(tied)
        below = upto
    return expected


def majority_at_k(answers: Sequence[Hashable | None], values: Sequence[float], k: int) -> float:
    """Compute the expected value of the most frequent answer among k attempts, drawn without replacement.

    Ties are broken at random. None is no answer and never wins; a draw without any answer has the value 0. The value of an
    answer is the mean of `values` over all attempts that give it.

    Exact, by generating functions. A draw without replacement equals independent binomial counts of the answers, given
    that they add up to k. Probabilities stay in range for any n; binomial coefficients would not.
    """
    _check_draw("majority", len(values), k)
    values_by_answer: dict[Hashable, list[float]] = defaultdict(list)
    for answer, value in zip(answers, values, strict=True):
        values_by_answer[answer].append(value)
    share = k / (len(values) + 1)  # any share in (0, 1) is exact; near k / n the sum is likely to be k
    silent_K = np.zeros(k + 1)
    silent = _binomial(len(values_by_answer.pop(None, ())), share)[: k + 1]
    silent_K[: len(silent)] = silent
    tallies = [(fmean(some), _binomial(len(some), share)) for some in values_by_answer.values()]
    most = min(k, max((len(chances) - 1 for _, chances in tallies), default=0))
    won = sum(_won_with(votes, tallies, silent_K) for votes in range(1, most + 1))
    return float(won / _binomial(len(values), share)[k])


def _won_with(votes: int, tallies: Sequence[tuple[float, np.ndarray]], silent_K: np.ndarray) -> float:
    """Compute the expected value over draws whose winner has `votes`, times the chance that the draw has k attempts.

    The state after each answer has two arrays [T, K]. The first is the chance that T answers have `votes`, none has more,
    and K attempts are drawn. The second is that chance times the sum of the T answers' values.
    """
    k = len(silent_K) - 1
    most_tied = min(k // votes, sum(len(chances) > votes for _, chances in tallies))
    chance_and_sum_2TK = np.zeros((2, most_tied + 1, k + 1))
    chance_and_sum_2TK[0, 0] = silent_K
    for value, chances in tallies:
        after_2TK = np.zeros_like(chance_and_sum_2TK)
        for drawn, chance in enumerate(chances[:votes]):
            after_2TK[:, :, drawn:] += chance * chance_and_sum_2TK[:, :, : k + 1 - drawn]
        if len(chances) > votes:
            with_votes_2TK = chances[votes] * chance_and_sum_2TK[:, :-1, : k + 1 - votes]
            after_2TK[:, 1:, votes:] += with_votes_2TK
            after_2TK[1, 1:, votes:] += value * with_votes_2TK[0]
        chance_and_sum_2TK = after_2TK
    sums_T = chance_and_sum_2TK[1, 1:, k]
    return float((sums_T / np.arange(1, len(sums_T) + 1)).sum())


def _binomial(n: int, share: float) -> np.ndarray:
    """Return the probabilities of 0 to n successes."""
    yes, no = math.log(share), math.log1p(-share)
    return np.exp([math.log(math.comb(n, j)) + j * yes + (n - j) * no for j in range(n + 1)])


def _check_draw(name: str, attempts: int, k: int) -> None:
    if not 1 <= k <= attempts:
        raise ValueError(
            f"{name}@{k}: {attempts} attempts; expected k from 1 to {attempts}. Set a smaller k, or sample more attempts."
        )


# ------------------------------------------------------------------------------------------------------------- variance


@dataclass(frozen=True)
class Variance:
    """Variance of one verdict's value, split in three; the counts are 0 if it was assumed.

    `problem`: between the problems' true means. `sample`: between the true values of a problem's samples (attempts).
    `judge`: between verdicts on one sample. None: the design cannot identify it, and the previous component contains it.
    """

    problem: float | None
    sample: float | None
    judge: float | None
    n_problems: int = 0
    n_samples: int = 0
    n_verdicts: int = 0


def split_variance(rows: Iterable[tuple[Hashable, Hashable, float]]) -> Variance:
    """Estimate variance components of verdicts (problem, sample, value); the design may be unbalanced.

    Nested random effects, by equating the mean squares of the analysis of variance to their expectations (Searle 1961;
    Searle, Casella and McCulloch 1992). Unbiased before negative estimates are reported as 0. Sample names are local to
    their problem: two problems may both have a sample 0.
    """
    problems: dict[Hashable, int] = {}
    samples: dict[tuple[Hashable, Hashable], int] = {}
    problem_N, sample_N, value_N = [], [], []
    for problem, sample, value in rows:
        problem_N.append(problems.setdefault(problem, len(problems)))
        sample_N.append(samples.setdefault((problem, sample), len(samples)))
        value_N.append(value)
    if not value_N:
        return Variance(None, None, None)
    components = _components(np.array(problem_N), np.array(sample_N), np.array(value_N, dtype=float))
    problem, sample, judge = (None if part is None else max(0.0, float(part)) for part in components)
    return Variance(problem, sample, judge, len(problems), len(samples), len(value_N))


def _components(
    problem_N: np.ndarray, sample_N: np.ndarray, value_N: np.ndarray
) -> tuple[float | None, float | None, float | None]:
    """Estimate problem, sample and judge, negative ones unchanged; N runs over verdicts, S samples, P problems.

    With n_s verdicts on sample s, n_p on problem p and n in all, the sums of squares are expected to be
        judge:    (n - S) judge
        sample:   (S - P) judge + (n - sum_s n_s^2 / n_p) sample
        problem:  (P - 1) judge + (sum_s n_s^2 / n_p - sum_s n_s^2 / n) sample + (n - sum_p n_p^2 / n) problem
    """
    verdicts_P, verdicts_S = np.bincount(problem_N), np.bincount(sample_N)
    n, n_problems, n_samples = len(value_N), len(verdicts_P), len(verdicts_S)
    problem_S = problem_N[np.unique(sample_N, return_index=True)[1]]
    value_N = value_N - value_N.mean()
    mean_P = np.bincount(problem_N, value_N) / verdicts_P
    mean_S = np.bincount(sample_N, value_N) / verdicts_S
    shares = (verdicts_S**2 / verdicts_P[problem_S]).sum()
    judge = sample = problem = None
    if n > n_samples:
        judge = ((value_N - mean_S[sample_N]) ** 2).sum() / (n - n_samples)
    if n_samples > n_problems:
        squares = (verdicts_S * (mean_S - mean_P[problem_S]) ** 2).sum()
        sample = (squares - (n_samples - n_problems) * (judge or 0.0)) / (n - shares)
    if n_problems > 1:
        squares = (verdicts_P * mean_P**2).sum() - (n_problems - 1) * (judge or 0.0)
        squares -= (shares - (verdicts_S**2).sum() / n) * (sample or 0.0)
        problem = squares / (n - (verdicts_P**2).sum() / n)
    return problem, sample, judge


def worst_variance(scale: float) -> float:
    """Return the largest variance of values in [0, scale]: scale^2 / 4 (Popoviciu 1935), half of them at each end.

    For a plan without results: the three components add up to at most this. The error is largest if all of it is between
    problems, `Variance(worst_variance(7), 0.0, 0.0)`.
    """
    return scale**2 / 4


# ----------------------------------------------------------------------------------------------------- errors and plans


def difference_error(variance: Variance, problems: int, samples: int, verdicts: int = 1) -> float:
    """Return the standard error of the difference of two models' means over `problems`, a random sample of all problems.

    Each model has this variance, `samples` of each problem and `verdicts` on each sample, and the true means of the two by
    problem are independent. A component that is None counts in the one that contains it: more verdicts then do not reduce
    the judge's noise, and more samples not the sample's. So the error is never too small. Raises ValueError if
    `variance.problem` is None.
    """
    return math.sqrt(2 * (_between(variance) + _within(variance, samples, verdicts)) / problems)


def _between(variance: Variance) -> float:
    if variance.problem is None:
        raise ValueError(
            f"standard error: variance between problems unknown, from {variance.n_problems} problems; expected at least 2. "
            "Grade more problems, or assume `worst_variance`."
        )
    return variance.problem


def _within(variance: Variance, samples: int, verdicts: int) -> float:
    """Return the variance of a problem's measured mean around its true mean."""
    return (variance.sample or 0.0) / samples + (variance.judge or 0.0) / (samples * verdicts)


def fewest_problems(confidence: float = 0.95) -> int:
    """Return the fewest problems at which a test by sign flips (uncertainty/paired.py) can show a difference."""
    return math.floor(math.log2(2 / (1 - confidence)) + ROUNDING) + 1


def detectable(
    error: float, problems: int, scale: float | None, confidence: float = 0.95, power: float = 0.8
) -> float | None:
    """Return about the smallest true difference that a comparison of this standard error detects with this power.

    None if no difference up to `scale` is detected, such as with fewer than `fewest_problems`. (t-quantiles of the
    problems; of the normal distribution they would promise too much for few.)
    """
    if problems < fewest_problems(confidence):
        return None
    found = (t_quantile(1 - (1 - confidence) / 2, problems - 1) + t_quantile(power, problems - 1)) * error
    return None if scale is not None and found > scale else found


# ----------------------------------------------------------------------------------------------------------------- runs


class Merged(NamedTuple):
    """Statistics of the runs' means."""

    value: float  # of the run means
    std: float | None  # of the run means, ddof = 1; None for one run
    means: list[float]  # one for each run


MERGE: dict[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "max": max, "min": min}


def merge_runs(values_by_run: Sequence[Sequence[float]], how: str = "mean") -> Merged:
    """Return the mean, maximum or minimum of the runs' means, and their sample standard deviation (QED-Nano's `stats`).

    `max` is the best run, not the best attempt at each problem (`best_at_k`). The original counts a missing grade as 0 with
    several runs and leaves it out with one; here the caller leaves it out.
    """
    if how not in MERGE:
        raise ValueError(f"merged: runs by `{how}`; expected {', '.join(MERGE)}. Set one of these.")
    if min(map(len, values_by_run), default=0) == 0:
        raise ValueError("merged: a run without values, or no run; expected values in each run. Remove empty runs.")
    means = [fmean(values) for values in values_by_run]
    return Merged(MERGE[how](means), float(np.std(means, ddof=1)) if len(means) > 1 else None, means)

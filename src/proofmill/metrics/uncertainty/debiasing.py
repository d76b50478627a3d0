"""Debias a judge's grades by a few human ones: an honest mean of all attempts, and which attempts to grade next.

From: prediction-powered inference with power tuning (Angelopoulos, Duchi and Zrnic 2023, "PPI++", section 6), by strata
(Fisch et al. 2024, "Stratified Prediction-Powered Inference"). The mean of the judge's grades, times a weight, is corrected
by the mean difference between human and weighted judge's grades in the attempts that have both.

    value = weight * mean(judge) + sum over strata of share * mean(human - weight * judge)

Differences from the originals:
1. Problems are clusters with equal weight, as in all scores; the error is that of the sums of each problem's terms.
2. The strata are the attempts to which the judge gives no points, some, or all. Within a stratum the attempts with human
   grades must be like a random draw; how many a stratum has may be chosen (`propose`).
3. Labels that agree with each other leave room for one that does not (LEAST, chosen by benchmarks/debiasing.py). The
   interval is Student's, with as many degrees of freedom as labelled problems minus strata.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from proofmill.metrics.uncertainty.intervals import Ends, t_quantile, t_tails
from proofmill.schema.ids import digest

LEAST = 0.25  # sum of squared deviations of a stratum, at least: one label that differs by half of the points
FEWEST = 5  # problems with human grades: with fewer there is no interval
SMALLEST = 3  # human grades of a stratum: one with fewer joins its neighbor


@dataclass(frozen=True)
class Debiased:
    """A debiased mean as a share of the points, with what each problem adds to its error."""

    value: float
    weight: float  # of the judge's grades, 0 to 1
    terms: dict[str, float]  # by problem; the sum of their squares is the variance, except for `beyond`
    beyond: float  # variance that labels which agree do not show
    labels: int
    problems: int  # with human grades
    freedom: int

    @property
    def error(self) -> float:
        """The standard error."""
        return math.sqrt(math.fsum(term**2 for term in self.terms.values()) + self.beyond)

    def ends(self, confidence: float) -> Ends:
        """Return the interval within 0 and 1; none with fewer than FEWEST problems."""
        if self.problems < FEWEST:
            return None, None
        half = t_quantile((1 + confidence) / 2, self.freedom) * self.error
        return max(0.0, self.value - half), min(1.0, self.value + half)


def debias(
    problems: Sequence[str],
    judged_N: np.ndarray,
    human_N: np.ndarray,
    weight: float | None = None,
    share_N: np.ndarray | None = None,
) -> Debiased | None:
    """Return the debiased mean of N attempts; None without human grades.

    `judged_N` and `human_N` are shares of the points, or another value from 0 to 1; NaN is an attempt without a human grade.
    `weight` is chosen for the least error by default. `share_N` are the judge's shares of the points, which decide the
    strata, if `judged_N` is another value: `propose` draws by them. Raises ValueError for values outside of 0 to 1.
    """
    labelled_N = ~np.isnan(human_N)
    both = np.concatenate([judged_N, human_N[labelled_N]])
    if not labelled_N.any():
        return None
    if not 0 <= both.min() <= both.max() <= 1:
        raise ValueError(f"grades from {both.min():g} to {both.max():g}; expected shares of the points, from 0 to 1.")
    names, number_N = np.unique(np.asarray(problems), return_inverse=True)
    plan = _Plan(number_N, len(names), _strata(judged_N if share_N is None else share_N, labelled_N), labelled_N)
    without, of_judge = plan.terms(np.zeros(len(judged_N)), human_N), plan.terms(judged_N, -judged_N)
    if weight is None:  # the error is that of `without` + weight * `of_judge`
        square = float((of_judge.terms_P**2).sum())
        best = -float((without.terms_P * of_judge.terms_P).sum()) / square if square else 0.0
        weight = min(1.0, max(0.0, best))
    final = plan.terms(weight * judged_N, human_N - weight * judged_N)
    with_labels = len(np.unique(number_N[labelled_N]))
    return Debiased(
        value=min(1.0, max(0.0, final.value)),
        weight=weight,
        terms=dict(zip(names.tolist(), final.terms_P.tolist(), strict=True)),
        beyond=final.beyond,
        labels=int(labelled_N.sum()),
        problems=with_labels,
        freedom=max(1, with_labels - len(plan.shares_S)),
    )


@dataclass(frozen=True)
class _Terms:
    value: float
    terms_P: np.ndarray
    beyond: float


class _Plan:
    """The weights of attempts, and which have labels; they are the same for any grades."""

    def __init__(self, number_N: np.ndarray, problems: int, stratum_N: np.ndarray, labelled_N: np.ndarray):
        self.number_N, self.stratum_N, self.labelled_N = number_N, stratum_N, labelled_N
        self.problems, self.strata = problems, int(stratum_N.max()) + 1
        self.weight_N = 1 / np.bincount(number_N)[number_N]  # attempts at a problem share its weight
        self.shares_PS = self._sum(self.weight_N)
        self.shares_S = self.shares_PS.sum(axis=0) / problems
        self.labels_S = np.bincount(stratum_N[labelled_N], minlength=self.strata)
        self.labelled_weight_S = self._sum(np.where(labelled_N, self.weight_N, 0)).sum(axis=0)

    def _sum(self, values_N: np.ndarray) -> np.ndarray:
        """Add up values by problem and stratum."""
        place_N = self.number_N * self.strata + self.stratum_N
        return np.bincount(place_N, values_N, self.problems * self.strata).reshape(self.problems, self.strata)

    def terms(self, judged_N: np.ndarray, rest_N: np.ndarray) -> _Terms:
        """Return the mean of `judged_N` plus the stratified mean of the labelled `rest_N`, with its terms by problem."""
        share_N = np.where(self.labelled_N, self.weight_N, 0) / self.labelled_weight_S[self.stratum_N]
        rest_N = np.where(self.labelled_N, rest_N, 0)
        rest_S = self._sum(share_N * rest_N).sum(axis=0)
        judged_P = np.bincount(self.number_N, self.weight_N * judged_N, self.problems)
        drawn_P = judged_P + self.shares_PS @ rest_S
        value = float(drawn_P.mean())
        deviations_PS = self.shares_S * self._sum(share_N * (rest_N - rest_S[self.stratum_N]))
        enough_S = np.sqrt(self.labels_S / np.maximum(1, self.labels_S - 1))
        least_S = LEAST * (self.shares_S / self.labels_S) ** 2
        beyond = np.maximum(0, least_S - (deviations_PS**2).sum(axis=0)).sum()
        return _Terms(value, (drawn_P - value) / self.problems + deviations_PS @ enough_S, float(beyond))


def stratify(share_N: np.ndarray) -> np.ndarray:
    """Return 0 for no points, 1 for some, 2 for all."""
    return np.where(share_N <= 0, 0, np.where(share_N < 1, 1, 2))


def _strata(share_N: np.ndarray, labelled_N: np.ndarray) -> np.ndarray:
    """Return the strata, numbered: no points, some, all. One with few labels joins its neighbor with fewer."""
    stratum_N = stratify(share_N)
    while True:
        present, stratum_N = np.unique(stratum_N, return_inverse=True)
        labels_S = np.bincount(stratum_N[labelled_N], minlength=len(present))
        if len(present) == 1 or labels_S.min() >= SMALLEST:
            return stratum_N
        least = int(labels_S.argmin())
        others = [other for other in (least - 1, least + 1) if 0 <= other < len(present)]
        stratum_N = np.where(stratum_N == least, min(others, key=labels_S.__getitem__), stratum_N)


# ------------------------------------------------------------------------------------------------------------ comparisons


def difference(one: Debiased, other: Debiased, confidence: float) -> tuple[float, Ends, float]:
    """Return the difference of two models at the same problems, its interval, and the p of no difference."""
    value = one.value - other.value
    terms = [one.terms.get(name, 0.0) - other.terms.get(name, 0.0) for name in {*one.terms, *other.terms}]
    error = math.sqrt(math.fsum(term**2 for term in terms) + one.beyond + other.beyond)
    freedom = min(one.freedom, other.freedom)
    if min(one.problems, other.problems) < FEWEST:
        return value, (None, None), 1.0
    half = t_quantile((1 + confidence) / 2, freedom) * error
    return value, (max(-1.0, value - half), min(1.0, value + half)), t_tails(value / error, freedom)


# -------------------------------------------------------------------------------------------------------------- proposals


def propose(
    names: Sequence[str], judged_N: np.ndarray, human_N: np.ndarray, number: int = 30, seed: int = 0
) -> list[str]:
    """Return the attempts whose human grades would narrow the interval most, by name.

    Each goes to the stratum whose variance it lowers most, as `debias` computes it (Neyman's allocation, with at least LEAST
    in each stratum). Within a stratum it is a random draw, so the mean stays unbiased.
    """
    labelled_N, stratum_N = ~np.isnan(human_N), stratify(judged_N)
    share_S = np.bincount(stratum_N, minlength=3) / len(names)
    labels_S = np.bincount(stratum_N[labelled_N], minlength=3)
    squares_S = np.full(3, LEAST)
    for stratum in np.flatnonzero(labels_S):
        errors = (human_N - judged_N)[labelled_N & (stratum_N == stratum)]
        squares_S[stratum] = max(LEAST, errors.var() * len(errors))
    order = sorted(np.flatnonzero(~labelled_N).tolist(), key=lambda place: digest(seed, names[place]))
    waiting = [[place for place in order if stratum_N[place] == stratum] for stratum in range(3)]
    chosen: list[str] = []
    while len(chosen) < number and any(waiting):
        gain_S = share_S**2 * squares_S / (np.maximum(0.5, labels_S) ** 2 * (labels_S + 1))
        stratum = max((s for s in range(3) if waiting[s]), key=gain_S.__getitem__)
        chosen.append(names[waiting[stratum].pop(0)])
        labels_S[stratum] += 1
        squares_S[stratum] *= labels_S[stratum] / max(1, labels_S[stratum] - 1)
    return chosen

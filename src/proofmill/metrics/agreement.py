"""Agreement of a grader's grades for proofs with human grades for the same proofs.

From: the meta-evaluation of graders in QED-Nano (`stats --grader`); balanced accuracy (Brodersen et al. 2010) and kappa
(Cohen 1960) for the decision that a proof is correct.

Differences from the original:
1. The caller leaves out proofs without a verdict and reports them; the original counts them as 0 points.
2. Two metrics of the original are wrong at half points and at ties. They are kept, to compare with published numbers,
   and each has a corrected metric of another name.
3. Each metric is a function of sums by problem, so its interval comes from resampling problems, not proofs.

Grades of one problem's proofs are grader_N and human_N, in row order and out of 7.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

TIE = 1e-9  # grades, and means of grades, that are closer than this are equal
EDGES = (0.5, 3.5, 6.5)  # points out of 7: halfway between the buckets 0, 1 to 3, 4 to 6, and 7

Score = Callable[[np.ndarray, np.ndarray], np.ndarray]  # grader_N, human_N -> a number per proof, or per pair


@dataclass(frozen=True)
class Agreement:
    """`sums` maps a problem's grader_N and human_N to D sums (None: it does not count), `value` totals_RD to R numbers.

    A value over problems is `value(sums_PD.sum(axis=0, keepdims=True))[0]`, its interval `estimates.bootstrap(sums_PD,
    value)`. The value is NaN if undefined.
    """

    sums: Callable[[np.ndarray, np.ndarray], np.ndarray | None]
    value: Callable[[np.ndarray], np.ndarray]
    doc: str


def _quotient(above_R: np.ndarray, below_R: np.ndarray) -> np.ndarray:
    """Divide; NaN for 0 / 0, the only division by 0 here."""
    return np.divide(above_R, below_R, out=np.full(len(above_R), np.nan), where=below_R != 0)


def _mean(totals_RD: np.ndarray) -> np.ndarray:
    return _quotient(totals_RD[:, 0], totals_RD[:, 1])


def _over_proofs(score: Score, doc: str) -> Agreement:
    """Build the mean of a score over all proofs of all problems."""

    def sums(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray | None:
        scores_N = score(grader_N, human_N)
        return np.array([scores_N.sum(), len(scores_N)], dtype=float) if len(scores_N) else None

    return Agreement(sums, _mean, doc)


def _over_problems(score: Score, doc: str) -> Agreement:
    """Build the mean of the problems' means; problems with one proof do not count."""

    def sums(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray | None:
        return np.array([score(grader_N, human_N).mean(), 1.0]) if len(grader_N) > 1 else None

    return Agreement(sums, _mean, doc)


# ---------------------------------------------------------------------------------------------------------- every proof


def _absolute_error(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray:
    return np.abs(grader_N - human_N)


def _error(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray:
    return grader_N - human_N


def _same_bucket(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray:
    grader, human = _bucket(grader_N), _bucket(human_N)
    return (grader == human) & (grader > 0)


def _bucket(grades_N: np.ndarray) -> np.ndarray:
    """Return the bucket: 1 to 4 for {0}, [1, 3], [4, 6] and {7}; 0 for grades between these."""
    return np.select(
        [grades_N == 0, (grades_N >= 1) & (grades_N <= 3), (grades_N >= 4) & (grades_N <= 6), grades_N == 7],
        [1, 2, 3, 4],
    )


def _same_rounded_bucket(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray:
    return np.digitize(grader_N, EDGES) == np.digitize(human_N, EDGES)


# ------------------------------------------------------------------------------------------------ proofs of one problem


def _consistent(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray:
    i, j = np.triu_indices(len(grader_N), 1)
    return (grader_N[i] <= grader_N[j]) == (human_N[i] <= human_N[j])


def _same_order(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray:
    i, j = np.triu_indices(len(grader_N), 1)
    return _sign(grader_N[i] - grader_N[j]) == _sign(human_N[i] - human_N[j])


def _advantage_error(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray:
    return np.abs(_advantage(grader_N) - _advantage(human_N))


def _same_advantage_sign(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray:
    return _sign(_advantage(grader_N)) == _sign(_advantage(human_N))


def _advantage(grades_N: np.ndarray) -> np.ndarray:
    return grades_N - grades_N.mean()


def _sign(numbers: np.ndarray) -> np.ndarray:
    return np.where(np.abs(numbers) <= TIE, 0.0, np.sign(numbers))


AGREEMENTS: dict[str, Agreement] = {
    "mae": _over_proofs(_absolute_error, "mean over proofs of |grader - human|, in points"),
    "bias": _over_proofs(_error, "mean over proofs of grader - human, in points; above 0 is lenient"),
    "bucket-accuracy": _over_proofs(
        _same_bucket,
        "share of proofs with both grades in one of {0}, [1, 3], [4, 6], {7}; as in the original, grades between these (0.5, "
        "3.5, 6.5 of merged verdicts) are in no bucket and count as wrong even if they are equal; for grades out of 7 only",
    ),
    "bucket-accuracy-rounded": _over_proofs(
        _same_rounded_bucket,
        "share of proofs with both grades in one of [0, 0.5), [0.5, 3.5), [3.5, 6.5), [6.5, 7]; equal grades are never wrong, and "
        "for whole numbers of points it equals bucket-accuracy; for grades out of 7 only",
    ),
    "local-consistency": _over_problems(
        _consistent,
        "share of a problem's pairs of proofs, the first before the second in row order, with (grader of the first <= of the "
        "second) the same as for human grades, averaged over problems; as in the original, a pair that only the grader finds "
        "equal is right or wrong by its row order",
    ),
    "pairwise-agreement": _over_problems(
        _same_order,
        "share of a problem's pairs of proofs with the same order by grader and human, averaged over problems; a tie is right "
        "only if both have it",
    ),
    "advantage-difference": _over_problems(
        _advantage_error,
        "mean over a problem's proofs of |(grader - mean grader) - (human - mean human)|, averaged over problems: the "
        "error of advantages that are not divided by a standard deviation",
    ),
    "advantage-sign-agreement": _over_problems(
        _same_advantage_sign,
        "share of a problem's proofs that grader and human both put above, at or below the problem's mean, averaged over "
        "problems; a proof at one mean is right only if it is at both",
    ),
}

# ------------------------------------------------------------------------------------------------------------ decisions


def build_balanced_accuracy(threshold: float, human_threshold: float) -> Agreement:
    """Build the balanced accuracy of the decision that a proof is correct; human grades of 0 and 1 have the threshold 1."""
    return Agreement(
        _decisions(threshold, human_threshold),
        _compute_balanced_accuracy,
        f"mean of the share of correct proofs (human >= {human_threshold:g}) that the grader accepts (>= {threshold:g}) and the "
        "share of wrong proofs that it rejects, over all proofs; undefined if all are correct or all are wrong",
    )


def cohen_kappa(threshold: float, human_threshold: float) -> Agreement:
    """Build Cohen's kappa of the decision that a proof is correct: 1 for full agreement, 0 for chance agreement."""
    return Agreement(
        _decisions(threshold, human_threshold),
        _cohen_kappa,
        f"(agreement - chance) / (1 - chance) of the decisions grader >= {threshold:g} and human >= {human_threshold:g} over all "
        "proofs; undefined if both accept all or both reject all",
    )


DECISIONS: dict[str, Callable[[float, float], Agreement]] = {
    "balanced-accuracy": build_balanced_accuracy,
    "cohen-kappa": cohen_kappa,
}


def _decisions(threshold: float, human_threshold: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray | None]:
    """Build the four sums of a problem: proofs accepted by both, only by the grader, only by the human, by neither."""

    def sums(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray | None:
        grader, human = grader_N >= threshold - TIE, human_N >= human_threshold - TIE
        four = [grader & human, grader & ~human, ~grader & human, ~grader & ~human]
        return np.sum(four, axis=1, dtype=float) if len(grader_N) else None

    return sums


def _compute_balanced_accuracy(totals_R4: np.ndarray) -> np.ndarray:
    both, grader, human, neither = totals_R4.T
    return (_quotient(both, both + human) + _quotient(neither, neither + grader)) / 2


def _cohen_kappa(totals_R4: np.ndarray) -> np.ndarray:
    """Compute kappa in counts, so that 0 / 0 is exact: (n * agreeing - chance) / (n^2 - chance)."""
    both, grader, human, neither = totals_R4.T
    n = both + grader + human + neither
    chance = (both + grader) * (both + human) + (neither + human) * (neither + grader)
    return _quotient(n * (both + neither) - chance, n**2 - chance)

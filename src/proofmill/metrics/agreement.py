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

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from proofmill.metrics.uncertainty.intervals import quotient

TIE = 1e-9  # grades, and means of grades, that are closer than this are equal
EDGES = (0.5, 3.5, 6.5)  # points out of 7: halfway between the buckets 0, 1 to 3, 4 to 6, and 7

Score = Callable[[np.ndarray, np.ndarray], np.ndarray]  # grader_N, human_N -> a number per proof, or per pair


@dataclass(frozen=True)
class Agreement:
    """`sums` maps a problem's grader_N and human_N to D sums (None: it does not count), `value` totals_RD to R numbers.

    A value over problems is `value(sums_PD.sum(axis=0, keepdims=True))[0]`; it is NaN if undefined. `ends` are the D sums of
    a problem with the lowest and with the highest agreement, from the largest grade and the number of its proofs; its
    interval is `intervals.interval(sums_PD, value, ends(scale, proofs))`.
    """

    sums: Callable[[np.ndarray, np.ndarray], np.ndarray | None]
    value: Callable[[np.ndarray], np.ndarray]
    ends: Callable[[float, float], np.ndarray]
    doc: str


def _quotient(above_R: np.ndarray, below_R: np.ndarray) -> np.ndarray:
    return quotient(np.column_stack([above_R, below_R]))


def _over_proofs(score: Score, doc: str, low: float = 0.0, high: float | None = None) -> Agreement:
    """Build the mean of a score over all proofs; it is within `low` and `high`, in grades if `high` is None."""

    def ends(scale: float, proofs: float) -> np.ndarray:
        return proofs * np.array([[low * scale if high is None else low, 1.0], [scale if high is None else high, 1.0]])

    def sums(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray | None:
        scores_N = score(grader_N, human_N)
        return np.array([scores_N.sum(), len(scores_N)], dtype=float) if len(scores_N) else None

    return Agreement(sums, quotient, ends, doc)


def _over_problems(score: Score, doc: str, high: float | None = 1.0) -> Agreement:
    """Build the mean of the problems' means, from 0 to `high` (the largest grade if None); one proof does not count."""

    def ends(scale: float, proofs: float) -> np.ndarray:
        return np.array([[0.0, 1.0], [scale if high is None else high, 1.0]])

    def sums(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray | None:
        return np.array([score(grader_N, human_N).mean(), 1.0]) if len(grader_N) > 1 else None

    return Agreement(sums, quotient, ends, doc)


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


# ------------------------------------------------------------------------------------------------------- squared errors


def _moments(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray | None:
    """Return the sums of 1, x, y, x^2, y^2 and xy over a problem's proofs, with the grader's grade x and the human's y."""
    x, y = grader_N.astype(float), human_N.astype(float)
    return np.array([len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y]) if len(x) else None


def _moment_ends(scale: float, proofs: float) -> np.ndarray:
    """Return the moments if the two grades of each proof are 0 and `scale`, and if both are 0, or both `scale`."""
    half = [1.0, scale / 2, scale / 2, scale**2 / 2, scale**2 / 2]
    return proofs * np.array([[*half, 0.0], [*half, scale**2 / 2]])


def _without_rounding(difference_R: np.ndarray, term_R: np.ndarray) -> np.ndarray:
    """Return a difference, as 0 where it is only the rounding of its terms."""
    return np.where(np.abs(difference_R) <= TIE * term_R, 0.0, difference_R)


def _compute_weighted_kappa(totals_R6: np.ndarray) -> np.ndarray:
    """Compute 1 - D_o / D_e with squared errors: D_o within proofs, D_e between any two proofs."""
    n, x, y, xx, yy, xy = totals_R6.T
    return _quotient(2 * (n * xy - x * y), _without_rounding(n * (xx + yy) - 2 * x * y, n * (xx + yy)))


def _compute_alpha(totals_R6: np.ndarray) -> np.ndarray:
    """Compute 1 - D_o / D_e: D_e is between any two of the 2n grades, of a grader or a human."""
    n, x, y, xx, yy, xy = totals_R6.T
    expected = _without_rounding(2 * n * (xx + yy) - (x + y) ** 2, 2 * n * (xx + yy))
    return _quotient(expected - (2 * n - 1) * (xx + yy - 2 * xy), expected)


AGREEMENTS: dict[str, Agreement] = {
    "mae": _over_proofs(_absolute_error, "mean over proofs of |grader - human|, in points"),
    "bias": _over_proofs(_error, "mean over proofs of grader - human, in points; above 0 is lenient", -1.0),
    "bucket-accuracy": _over_proofs(
        _same_bucket,
        "share of proofs with both grades in one of {0}, [1, 3], [4, 6], {7}; as in the original, grades between these (0.5, "
        "3.5, 6.5 of merged verdicts) are in no bucket and count as wrong even if they are equal; for grades out of 7 only",
        high=1.0,
    ),
    "bucket-accuracy-rounded": _over_proofs(
        _same_rounded_bucket,
        "share of proofs with both grades in one of [0, 0.5), [0.5, 3.5), [3.5, 6.5), [6.5, 7]; equal grades are never wrong, and "
        "for whole numbers of points it equals bucket-accuracy; for grades out of 7 only",
        high=1.0,
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
        high=None,
    ),
    "advantage-sign-agreement": _over_problems(
        _same_advantage_sign,
        "share of a problem's proofs that grader and human both put above, at or below the problem's mean, averaged over "
        "problems; a proof at one mean is right only if it is at both",
    ),
    "quadratic-kappa": Agreement(
        _moments,
        _compute_weighted_kappa,
        _moment_ends,
        "Cohen's kappa with squared errors as weights, over all proofs: 1 for equal grades, 0 for the agreement of independent "
        "grades; undefined if all grades are equal",
    ),
    "krippendorff-alpha": Agreement(
        _moments,
        _compute_alpha,
        _moment_ends,
        "Krippendorff's alpha of the two grades of each proof, for intervals: as quadratic-kappa, but two graders of unequal "
        "severity agree less; undefined if all grades are equal",
    ),
}

# -------------------------------------------------------------------------------------------------------------- order


def build_spearman(pairs: Collection[tuple[float, float]]) -> Agreement:
    """Build Spearman's rank correlation of grades, given the different pairs of a grader's and a human's grade.

    A problem's sums are its numbers of proofs by pair, since the ranks of grades depend on the problems that are drawn.
    """
    grades = {grade for pair in pairs for grade in pair}
    low, high = min(grades, default=0.0), max(grades, default=0.0)
    kinds = sorted({*pairs, (low, low), (low, high), (high, low), (high, high)})
    places = {pair: place for place, pair in enumerate(kinds)}
    sides = [np.unique(side_D, return_inverse=True, return_counts=True)[1:] for side_D in zip(*kinds, strict=True)]

    def count(pairs: Iterable[tuple[float, float]]) -> np.ndarray:
        return np.bincount([places[pair] for pair in pairs], minlength=len(kinds)).astype(float)

    def sums(grader_N: np.ndarray, human_N: np.ndarray) -> np.ndarray | None:
        return count(zip(grader_N.tolist(), human_N.tolist(), strict=True)) if len(grader_N) else None

    def value(totals_RD: np.ndarray) -> np.ndarray:
        """Compute the correlation of midranks, the means of the ranks of equal grades."""
        ranks = []
        for level_D, size_L in sides:
            sorted_RD = totals_RD[:, level_D.argsort(kind="stable")]
            level_RL = np.add.reduceat(sorted_RD, size_L.cumsum() - size_L, axis=1)
            rank_RD = (level_RL.cumsum(axis=1) - level_RL / 2)[:, level_D]
            mean_R1 = (rank_RD * totals_RD).sum(axis=1, keepdims=True) / totals_RD.sum(axis=1, keepdims=True)
            ranks.append(rank_RD - mean_R1)
        x_RD, y_RD = ranks
        x_R, y_R = ((rank_RD**2 * totals_RD).sum(axis=1) for rank_RD in ranks)
        return _quotient((totals_RD * x_RD * y_RD).sum(axis=1), np.sqrt(x_R * y_R))

    def ends(_: float, proofs: float) -> np.ndarray:
        return np.array([count([(low, high), (high, low)]), count([(low, low), (high, high)])]) * proofs / 2

    return Agreement(
        sums,
        value,
        ends,
        "Spearman's rank correlation of grader and human over all proofs; undefined if one's are equal",
    )


ORDERS: dict[str, Callable[[Collection[tuple[float, float]]], Agreement]] = {"spearman": build_spearman}

# ------------------------------------------------------------------------------------------------------------ decisions


def build_balanced_accuracy(threshold: float, human_threshold: float) -> Agreement:
    """Build the balanced accuracy of the decision that a proof is correct; human grades of 0 and 1 have the threshold 1."""
    return Agreement(
        _decisions(threshold, human_threshold),
        _compute_balanced_accuracy,
        _decision_ends,
        f"mean of the share of correct proofs (human >= {human_threshold:g}) that the grader accepts (>= {threshold:g}) and the "
        "share of wrong proofs that it rejects, over all proofs; undefined if all are correct or all are wrong",
    )


def cohen_kappa(threshold: float, human_threshold: float) -> Agreement:
    """Build Cohen's kappa of the decision that a proof is correct: 1 for full agreement, 0 for chance agreement."""
    return Agreement(
        _decisions(threshold, human_threshold),
        _cohen_kappa,
        _decision_ends,
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


def _decision_ends(_: float, proofs: float) -> np.ndarray:
    return proofs / 2 * np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]])


def _compute_balanced_accuracy(totals_R4: np.ndarray) -> np.ndarray:
    both, grader, human, neither = totals_R4.T
    return (_quotient(both, both + human) + _quotient(neither, neither + grader)) / 2


def _cohen_kappa(totals_R4: np.ndarray) -> np.ndarray:
    """Compute kappa in counts, so that 0 / 0 is exact: (n * agreeing - chance) / (n^2 - chance)."""
    both, grader, human, neither = totals_R4.T
    n = both + grader + human + neither
    chance = (both + grader) * (both + human) + (neither + human) * (neither + grader)
    return _quotient(n * (both + neither) - chance, n**2 - chance)

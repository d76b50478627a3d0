"""Rewards of self-play: of a proposal, by the difficulty of its task; of a solution, by its correctness.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.1, equations 4 to 6) and its code.

Differences from the original:
1. An unknown reward is None, and the reply is skipped instead of punished.
2. Attempts are sampled at the temperature of training, by the caller. Greedy attempts would all be equal, and the reward
   of every proposal 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from proofmill.selfplay_tasks.tasks import Invalid, Task

Learnability = Literal["one-minus", "inverse"]
Admits = Literal["all", "non-one", "non-extremes"]
Combine = Literal["sum", "multiply", "sum-multiply", "multiply-sum"]


def accuracy(grades: Sequence[float | None]) -> float | None:
    """Compute the mean grade, in [0, 1], of the attempts that have one; None without any."""
    known = [grade for grade in grades if grade is not None]
    return sum(known) / len(known) if known else None


def learnability(accuracy: float, form: Learnability = "one-minus") -> float:
    """Compute the worth of a task for a solver of this accuracy: 1 - accuracy, and with `one-minus` 0 if never solved.

    Equation 4. With n attempts, `one-minus` is at most 1 - 1/n, for one success.
    """
    return 0.0 if form == "one-minus" and accuracy == 0 else 1.0 - accuracy


def admits(accuracy: float, rule: Admits = "all") -> bool:
    """Return whether a valid task enters its buffer (`valid_program_filter`)."""
    return rule == "all" or (accuracy < 1 and (rule == "non-one" or accuracy > 0))


@dataclass(frozen=True)
class Scale:
    """Rewards of replies without success: with a wrong form, and with the right form (equation 6)."""

    malformed: float = -1.0
    nothing: float = -0.5


def proposer_reward(
    task: Task | Invalid,
    formed: bool,
    worth: float | None,
    terms: Sequence[float] = (),
    combine: Combine = "sum",
    scale: Scale = Scale(),
) -> float | None:
    """Compute the reward of a proposal: its worth (learnability) with intrinsic terms.

    Instead, the default `scale` gives -0.5 to a valid task of worth 0, and -1 to an invalid task or a wrong form. The
    reward is None if the worth is unknown.
    """
    if not formed or isinstance(task, Invalid):
        return scale.malformed
    if worth is None:
        return None
    return combine_terms(worth, terms, combine) if worth > 0 else scale.nothing


def solver_reward(grade: float | None, formed: bool, scale: Scale = Scale()) -> float | None:
    """Compute the reward of a solution: its grade, -0.5 for 0, -1 for a wrong form; None without a grade."""
    if not formed:
        return scale.malformed
    return grade if grade is None or grade > 0 else scale.nothing


def term(value: float, weight: float, most: float = 0.5) -> float:
    """Compute an intrinsic term: weight times value, at most `most`."""
    return min(weight * value, most)


def combine_terms(worth: float, terms: Sequence[float], combine: Combine = "sum") -> float:
    """Combine the worth with intrinsic terms (`intrinsic_combine_method`); without any, return the worth.

    `sum`: worth + sum; `multiply`: worth * product; `sum-multiply`: worth + product; `multiply-sum`: worth * sum.
    """
    if not terms:
        return worth
    forms: Mapping[str, float] = {
        "sum": worth + sum(terms),
        "multiply": worth * math.prod(terms),
        "sum-multiply": worth + math.prod(terms),
        "multiply-sum": worth * sum(terms),
    }
    return forms[combine]

"""Rewards of self-play: what a proposal earns by how hard it is to solve, what a solution earns by being right.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.1, equations 4 to 6) and its code.

How we differ:
1. A reward that is not known is None: such a reply is left out, and not punished.
2. Attempts are drawn at the temperature of training; where they are drawn greedily, all are the same, and the reward of
   every proposal is 0. That is for the caller to keep.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from proofmill.tasks.tasks import Invalid, Task

Learnability = Literal["one-minus", "inverse"]
Admits = Literal["all", "non-one", "non-extremes"]
Combine = Literal["sum", "multiply", "sum-multiply", "multiply-sum"]


def accuracy(marks: Sequence[float | None]) -> float | None:
    """The mean mark of the attempts that have one; None without any."""
    known = [mark for mark in marks if mark is not None]
    return sum(known) / len(known) if known else None


def learnability(accuracy: float, form: Learnability = "one-minus") -> float:
    """What a task is worth to a solver of that accuracy: 1 - accuracy, and with `one-minus` 0 where nobody solves it.

    Equation 4. With n attempts the most is 1 - 1/n, for one success.
    """
    return 0.0 if form == "one-minus" and accuracy == 0 else 1.0 - accuracy


def admits(accuracy: float, rule: Admits = "all") -> bool:
    """Whether a valid task enters its buffer (`valid_program_filter`)."""
    return rule == "all" or (accuracy < 1 and (rule == "non-one" or accuracy > 0))


@dataclass(frozen=True)
class Scale:
    """What replies earn that earn nothing: with a wrong form, and with the right one (equation 6)."""

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
    """The reward of a proposal: its worth (learnability) with intrinsic terms, if it is well-formed, valid and worth > 0.

    -0.5 for a valid task of no worth, -1 for an invalid one or a wrong form; None where its worth is not known.
    """
    if not formed or isinstance(task, Invalid):
        return scale.malformed
    if worth is None:
        return None
    return combined(worth, terms, combine) if worth > 0 else scale.nothing


def solver_reward(mark: float | None, formed: bool, scale: Scale = Scale()) -> float | None:
    """The reward of a solution in training: its mark, -0.5 for 0, -1 for a wrong form; None where there is no mark."""
    if not formed:
        return scale.malformed
    return mark if mark is None or mark > 0 else scale.nothing


def solver_score(mark: float | None, formed: bool) -> float | None:
    """The score of a solution in a test: its mark if it is well-formed, else 0."""
    return mark if formed else 0.0


def term(value: float, weight: float, most: float = 0.5) -> float:
    """An intrinsic term: weight times value, at most `most`."""
    return min(weight * value, most)


def combined(worth: float, terms: Sequence[float], combine: Combine = "sum") -> float:
    """Worth with intrinsic terms (`intrinsic_combine_method`); the worth alone without any.

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

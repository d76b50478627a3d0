"""One reward judges one rollout of reinforcement learning: a number, or None when it cannot be known.

None is not zero: with `unscored: drop` such a rollout gets no gradient and is left out of its group's mean.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proofmill.named import Named


@dataclass(frozen=True)
class Rollout:
    """What a reward may look at: what was written, whether it ended, and the grader's verdict."""

    script: Any  # grades.Script
    verdict: Any  # grades.Verdict
    tokens: int


Reward = Callable[[Rollout], float | None]


def grade(rollout: Rollout) -> float | None:
    """Marks as a share of full marks (QED-Nano: score / 7)."""
    verdict = rollout.verdict
    return None if verdict.grade is None else verdict.grade / verdict.out_of


def full_marks(rollout: Rollout) -> float | None:
    verdict = rollout.verdict
    return None if verdict.grade is None else float(verdict.grade == verdict.out_of)


def well_formed(rollout: Rollout) -> float:
    return float(rollout.script.well_formed)


REWARDS: dict[str, Named] = {
    "grade": Named(grade, "marks as a share of full marks"),
    "full-marks": Named(full_marks, "1 for full marks, else 0"),
    "format": Named(well_formed, "1 for closed reasoning, one box and an end, else 0"),
}

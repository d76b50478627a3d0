"""Retirement: problems that the policy solves too often or too seldom are not drawn, and others take their places.

From: the difficulty pools of prime-rl (its orchestrator's curriculum), which sort problems by the mean reward of a group.

Differences from the original:
1. The grade decides, as a share of the points, not the sum of rewards. A problem without a grade is never retired.
2. A retired problem can return after some steps, by its next group for good or until it is retired again.
3. Grades of earlier attempts, by any model, can retire problems before the first step (`known-grades`).
4. If too few problems are left, those that were retired first return early. So a training never lacks problems.
"""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from proofmill.schema.entries.grpo_entry import Grpo


class Retirement:
    """The problems of a training that are retired now. It depends on entry, problems and rollouts alone."""

    def __init__(self, entry: Grpo, problems: Sequence[Mapping[str, Any]], kept_rollouts: Iterable[Mapping[str, Any]]):
        """Take the problems, each with its `known_grade`, and the rollouts of the training so far."""
        self.entry, self.problems = entry, problems
        self._since: dict[str, int] = {}  # retired problems, and the steps whose grades retired them
        if entry.retires:
            for problem in problems:
                self._decide(problem["problem"], 0, problem["known_grade"])
            self.learn(kept_rollouts)

    def learn(self, rollouts: Iterable[Mapping[str, Any]]) -> None:
        """Update which problems are retired by rows of the rollout log; each group decides on its problem."""
        if self.entry.retires:
            for (step, _), group in groupby(rollouts, key=lambda row: (row["step"], row["group"])):
                rows = [*group]
                shares = [row["grade"] / row["max_points"] for row in rows if row["grade"] is not None]
                self._decide(rows[0]["problem"], step, float(np.mean(shares)) if shares else None)

    def _decide(self, problem: str, step: int, grade: float | None) -> None:
        if grade is None:
            return
        solved, unsolved = self.entry.retire_solved, self.entry.retire_unsolved
        if (solved is not None and grade >= solved) or (unsolved is not None and grade <= unsolved):
            self._since[problem] = step
        else:
            self._since.pop(problem, None)

    def is_retired(self, problem: str, step: int) -> bool:
        """Return whether a problem is not to be drawn in a step."""
        since, after = self._since.get(problem), self.entry.return_after
        return since is not None and (after is None or step - since <= after)

    def share(self, step: int) -> float:
        """Return the share of the problems that are retired in a step."""
        return float(np.mean([self.is_retired(problem["problem"], step) for problem in self.problems]))

    def draw(self, used: Collection[str], count: int, step: int, seed: str) -> list[int]:
        """Draw the indices of `count` problems that were not `used`: others before retired ones; else some twice."""
        rng = random.Random(seed)
        order = rng.sample(range(len(self.problems)), len(self.problems))
        names = [problem["problem"] for problem in self.problems]
        fresh = [place for place in order if names[place] not in used]
        fresh.sort(key=lambda place: self._since[names[place]] if self.is_retired(names[place], step) else -1)
        chosen = fresh[:count]
        return chosen + rng.choices(order, k=count - len(chosen))

    def exchange(self, drawn: Iterable[str], step: int, others: Collection[str] = ()) -> dict[str, int]:
        """Return for each retired problem of a step the index of the one to attempt in its place; `others` are in use."""
        names = [*dict.fromkeys(drawn)]
        retired = [name for name in names if self.is_retired(name, step)]
        used = {*names, *others}.difference(retired)
        places = self.draw(used, len(retired), step, f"{self.entry.seed} {step} {' '.join(retired)}")
        return dict(zip(retired, places, strict=True))

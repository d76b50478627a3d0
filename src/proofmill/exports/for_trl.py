"""Build a dataset and a reward function for TRL's trainers from an exported package.

    GRPOTrainer(model, reward_funcs=[reward], train_dataset=dataset(), ...)

A reward is the share of the points. An attempt without a verdict is None. TRL 1.16 leaves None out of the sum of rewards,
so an attempt without any other reward counts as 0 there: set `max-unscored` of your own, or add a reward that always has a
value.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from proofmill.exports.graded_tasks import open_tasks


def build_dataset(folder: Path) -> Any:
    """Return the tasks as a `datasets.Dataset` with the columns `prompt` (a conversation) and `problem`."""
    from datasets import Dataset

    tasks = open_tasks(folder).tasks
    return Dataset.from_list([{"prompt": task["messages"], "problem": problem} for problem, task in tasks.items()])


def build_reward(folder: Path) -> Callable[..., list[float | None]]:
    """Return the reward function; it reads the column `problem`."""

    def grade(completions: Sequence[Any], problem: Sequence[str], **_: Any) -> list[float | None]:
        texts = [each if isinstance(each, str) else each[-1]["content"] for each in completions]
        verdicts = open_tasks(folder).grade_all(list(zip(problem, texts, strict=True)))
        return [None if verdict.grade is None else verdict.grade / verdict.max_points for verdict in verdicts]

    return grade

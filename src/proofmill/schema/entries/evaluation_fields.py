"""Describe and check the fields of evaluations on held-out problems, which `grpo` and `selfplay` have."""

from collections.abc import Callable, Iterator
from typing import Any

EVALUATE = "Held-out problems that the policy attempts during training, without effect on its weights."
EVALUATE_EVERY = "Steps between two evaluations on `evaluate`. The initial and the final weights are evaluated too."
EVALUATE_ATTEMPTS = "Attempts at each problem in one evaluation."
EVALUATE_TEMPERATURE = "Sampling temperature of an evaluation; 0 takes the most likely token. Default: `temperature`."
KEEP_BEST = "Keep the weights with the highest mean grade on `evaluate`, the first of equal ones, instead of the last."
SAVE_EVERY = "Steps between weights to keep in addition, for a `base` with this training as `source` and a `step`."


def count_evaluations(entry: Any, rows_of: Callable[[str], int | None]) -> int | None:
    """Return the attempts of all evaluations of a training, from the rows of `evaluate`; None if these are unknown."""
    problems = rows_of(entry.evaluate) if entry.evaluate else 0
    evaluations = 1 + -(-entry.steps // entry.evaluate_every)
    return None if problems is None else problems * entry.evaluate_attempts * evaluations


def evaluation_faults(entry: Any) -> Iterator[str]:
    """Yield faults of the fields of evaluations of a `grpo` or `selfplay`."""
    if entry.evaluate == getattr(entry, "problems", ""):
        yield f"`evaluate` is {entry.evaluate}, which is trained on; expected other problems. Name a table of another `split`."
    if entry.evaluate is None and (
        set_too := [name for name in ("keep_best", "evaluate_grader") if getattr(entry, name)]
    ):
        yield f"found `{set_too[0].replace('_', '-')}` without `evaluate`; expected held-out problems in `evaluate`. Set it."
    if entry.save_every and entry.save_every > entry.steps:
        yield f"`save-every` is {entry.save_every} and `steps` is {entry.steps}; expected at most {entry.steps}."

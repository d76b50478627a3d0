"""Find the curves of tables: the usual metrics of trainings by step, and scores by attempts or cost.

Smoothing is an exponential moving average without initial bias: each point is the weighted mean of the points up to it,
with weights that fall by the factor `smooth` per point (0 is off).

For `scores`, a panel for each benchmark shows a metric of several attempts (`pass@1`, `pass@4`, ...) by their number, with
a line for each model. With `at-equal-budget`, a panel for each model and benchmark shows the score of each sampling
setting, and of its rules over several attempts, by tokens per problem. All scores have intervals.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofmill.artifacts.tables import Table
from proofmill.metrics.budgets import SPLIT

SHOWN = (
    *("grade", "solved", "reward", "frac_reward_zero_std", "completions/mean_length", "completions/clipped_ratio"),
    *("entropy", "loss", "eval_loss", "mean_token_accuracy", "grad_norm"),
    *("evaluate/grade", "audit/grade", "audit/gap"),
)
SHOWN_OF_TASKS = ("propose/reward", "propose/valid", "solve/accuracy")  # after the name of a task
AT_K = re.compile(r"(.+)@([0-9]+)")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """A panel of scores: rows of `scores` by line, in the order of `x`, the position of a row on the axis."""

    title: str
    axis: str
    base: int  # of the logarithmic axis
    x: Callable[[Row], float]
    lines: Mapping[str, Sequence[Row]]


def read_scores(names: Sequence[str], results: Path) -> list[Measured]:
    """Return the panels of `scores` tables: metrics by number of attempts, and scores by cost. May be empty."""
    rows = [row for name in names for row in Table(name, results).rows() if row["value"] is not None]
    return [*_by_attempts(rows), *_by_spending(rows)]


def _by_attempts(rows: Sequence[Row]) -> Iterator[Measured]:
    """Yield a panel for each metric and benchmark, by number of attempts."""
    panels: dict[tuple[str, ...], dict[str, dict[int, Row]]] = {}
    for row in rows:
        if row["slice"] == "all" and row["baseline"] is None and (match := AT_K.fullmatch(row["metric"])):
            panel = (match[1], row["problems"], row["sampling"], row["grader"])
            panels.setdefault(panel, {}).setdefault(row["model"], {})[int(match[2])] = row
    for (metric, problems, sampling, grader), by_model in panels.items():
        lines = {model: [by_k[k] for k in sorted(by_k)] for model, by_k in by_model.items() if len(by_k) > 1}
        if lines:
            title = f"{metric}@k on {problems}\n{sampling}, by {grader}"
            yield Measured(title, "attempts k", 2, _attempts, lines)


def _attempts(row: Row) -> float:
    return int(row["metric"].rpartition("@")[2])


def _by_spending(rows: Sequence[Row]) -> Iterator[Measured]:
    """Yield a panel for each model and benchmark, by tokens per problem."""
    panels: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if row["slice"] == SPLIT and row["tokens_per_problem"] is not None:
            panel = f"{row['model']} on {row['problems']}\nby {row['grader']}"
            line = f"{row['sampling']}, {row['metric'].partition('@')[0]}"
            panels.setdefault(panel, {}).setdefault(line, []).append(row)
    for title, by_line in panels.items():
        lines = {line: sorted(some, key=_sum_costs) for line, some in by_line.items()}
        yield Measured(title, "tokens per problem", 10, _sum_costs, lines)


def _sum_costs(row: Row) -> float:
    return row["tokens_per_problem"]


def smooth_values(values: Sequence[float], smooth: float) -> list[float]:
    """Return the moving average at each value."""
    total = weight = 0.0
    means = []
    for value in values:
        total, weight = smooth * total + value, smooth * weight + 1
        means.append(total / weight)
    return means

"""Kernels: the input that a metric is computed from (attempts, problems, runs, human grades, texts).

A row is an attempt with the columns of `grades`, and also `seed`, `level`, `year`, `loader`, `writer`, its
`response_tokens` and `reasoning_tokens`, the `max_tokens` it was allowed, its `response_cost`, the `forms` of its text, how its
grader `reads` final answers, the `selecting` grade with its tokens and cost, and the `human` grade.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from proofmill.metrics.agreement import Agreement
from proofmill.metrics.attempt_table import Row, Rows, parts
from proofmill.metrics.text_lengths import Lengths


@dataclass(frozen=True)
class OfAttempts:
    """`value` of one attempt, None if it does not count; the metric is the mean of the problems' means.

    `scale` is the largest value: a number, `grade` for the largest grade, None for no bound.
    """

    value: Callable[[Row], float | None]
    scale: float | Literal["grade"] | None


@dataclass(frozen=True)
class OfProblem:
    """`value(rows, k, success)` of a problem's attempts in one seed; None if there are fewer than k."""

    value: Callable[[Rows, int, float], float | None]
    scale: float | Literal["grade"] | None
    needs: str = ""  # a column that the metric requires


@dataclass(frozen=True)
class OfPooled:
    """Mean of `value` over all attempts: a problem counts in proportion to its attempts."""

    value: Callable[..., float | None]
    scale: float | None = None  # the largest value; None for no bound


@dataclass(frozen=True)
class OfRuns:
    """A number of complete runs; a run is one attempt at every problem. Only `variance-*` have an interval."""

    value: Callable[[Rows], float | None]


@dataclass(frozen=True)
class OfHuman:
    """Agreement of a grader with human grades; the argument of the metric is the threshold of a decision."""

    agreement: Agreement | Callable[..., Agreement]  # of grades; from the pairs of grades; from two thresholds
    of: Literal["grades", "pairs", "decisions"]  # grades and pairs must be on one scale


@dataclass(frozen=True)
class OfCorpus:
    """A number of a problems table, from the lengths of its texts."""

    value: Callable[[Lengths], float | None]
    mean_of: str = ""  # the field whose mean it is; a mean has an interval


@dataclass(frozen=True)
class OfTraining:
    """A number of a training, from its stamp and the folder with its rollouts; None if it has none."""

    value: Callable[[Mapping[str, Any], Path], float | None]


@dataclass(frozen=True)
class ByOptions:
    """A family of metrics: `choose` returns the kernel for the values of its options."""

    choose: Callable[..., OfPooled | OfRuns | OfCorpus]


def per_problem(kernel: OfAttempts | OfProblem, argument: Any, success: float, rows: Rows) -> dict[str, float]:
    """Return the value of each problem that has one: its mean over attempts (`OfAttempts`) or seeds (`OfProblem`)."""
    values_by_problem = {}
    for attempts in parts(rows, lambda row: row["problem"]):
        if isinstance(kernel, OfAttempts):  # attempts of all seeds have equal weight
            values = [kernel.value(row) for row in attempts]
        else:
            seeds = parts(attempts, lambda row: row["seed"])
            values = [kernel.value(of_seed, argument, success) for of_seed in seeds]
        if present := [value for value in values if value is not None]:
            values_by_problem[attempts[0]["problem"]] = fmean(present)
    return values_by_problem

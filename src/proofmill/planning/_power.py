"""Forecast the smallest difference between two models that a benchmark can detect, before paying for a run.

The variance of grades is that of an existing table of the same problems, of any model; without one, the largest possible.
Differences between problems are not assumed to cancel between two models, so forecasts are conservative.
"""

from collections.abc import Iterator
from typing import Any

from proofmill.artifacts.tables import Table
from proofmill.graders.escalation import grader_of, max_points
from proofmill.metrics import estimates
from proofmill.metrics.estimates import Variance
from proofmill.metrics.metrics import split_variance
from proofmill.schema.entries.response_entries import Grades
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import TableError
from proofmill.schema.fields import GIVEN_RESPONSES
from proofmill.schema.names import kind_of


def forecasts(entry: Scores, plan: Any) -> Iterator[str]:
    """Yield a sentence for each benchmark and number of attempts of a `scores` entry that compares models."""
    cases = set()
    for name in entry.grades:
        grades = plan.config.entries[name]
        responses = plan.config.entries[grades.responses]
        scale = 7 if grades.grader == "human" else _scale(grades, plan)
        case = (responses.problems, responses.attempts, scale)
        if case in cases or responses.model in GIVEN_RESPONSES:
            continue
        cases.add(case)
        problems = plan.rows_of(responses.problems)
        if problems:
            variance, source = _variance(responses.problems, scale, plan)
            error = estimates.difference_error(variance, problems, responses.attempts)
            yield (
                f"{problems:,} problems x {responses.attempts} attempts of {responses.problems}: a difference of "
                f"{estimates.detectable(error, entry.confidence):.2f} of {scale} points is detected with 80 % power ({source})"
            )


def _scale(grades: Grades, plan: Any) -> int:
    """Return the maximum points of a grader."""
    grader = grader_of(grades.grader, grades.grader_prompt, plan.config.declared)
    return max_points(grader)


def _variance(problems: str, scale: int, plan: Any) -> tuple[Variance, str]:
    """Return the variance of grades on these problems in the largest table, and its source; else the worst case."""
    best, source = None, ""
    for name, grades in plan.config.entries.items():
        if kind_of(name) != "grades" or plan.config.entries[grades.responses].problems != problems:
            continue
        if plan.config.entries[grades.responses].model == "solutions":  # reference solutions, not a model's attempts
            continue
        try:
            rows = Table(name, plan.results).rows("problem", "attempt", "grade", "max_points", "opinions")
        except TableError:
            continue
        if {row["max_points"] for row in rows} != {scale}:
            continue
        variance = split_variance([{**row, "seed": 0, "writer": None} for row in rows])
        if variance.problem is not None and (best is None or variance.n_verdicts > best.n_verdicts):
            best, source = variance, name
    if best is None:
        return Variance(estimates.worst_variance(scale), 0.0, 0.0), "worst case: no grades yet"
    return best, f"variance of {source}"

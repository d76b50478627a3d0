"""One forecast says which difference of two models a benchmark can show, before a run is paid for.

Marks are spread as in tables of the same problems that are there already, whoever wrote the attempts; without any, as badly as
marks can be spread. The problems' own spread is not assumed to cancel between two models: what is said is cautious.
"""

from collections.abc import Iterator
from typing import Any

from proofmill.artifacts.tables import Table
from proofmill.graders.escalation import full_marks, grader_of
from proofmill.measures import estimates
from proofmill.measures.estimates import Variance
from proofmill.measures.measures import split_variance
from proofmill.schema.entries import Grades, Scores
from proofmill.schema.errors import TableError
from proofmill.schema.fields import TAKEN
from proofmill.schema.names import kind_of


def forecasts(entry: Scores, plan: Any) -> Iterator[str]:
    """One sentence for each benchmark and number of attempts of a `scores` entry that compares models."""
    said = set()
    for name in entry.grades:
        grades = plan.book.entries[name]
        responses = plan.book.entries[grades.responses]
        scale = 7 if grades.grader == "human" else _scale(grades, plan)
        case = (responses.problems, responses.attempts, scale)
        if case in said or responses.model in TAKEN:
            continue
        said.add(case)
        problems = plan.rows_of(responses.problems)
        if problems:
            variance, source = _variance(responses.problems, scale, plan)
            error = estimates.difference_error(variance, problems, responses.attempts)
            yield (
                f"{problems:,} problems x {responses.attempts} attempts of {responses.problems}: a difference of "
                f"{estimates.detectable(error, entry.confidence):.2f} of {scale} marks is shown with 80 % chance ({source})"
            )


def _scale(grades: Grades, plan: Any) -> int:
    grader = grader_of(grades.grader, grades.prompt, plan.book.declared)
    return full_marks(grader)


def _variance(problems: str, scale: int, plan: Any) -> tuple[Variance, str]:
    """How marks on these problems are spread, by the largest table there is; otherwise the most that they can be."""
    best, of = None, ""
    for name, grades in plan.book.entries.items():
        if kind_of(name) != "grades" or plan.book.entries[grades.responses].problems != problems:
            continue
        if plan.book.entries[grades.responses].model == "solutions":  # all alike: no attempts
            continue
        try:
            rows = Table(name, plan.results).rows("problem", "attempt", "grade", "out_of", "opinions")
        except TableError:
            continue
        if {row["out_of"] for row in rows} != {scale}:
            continue
        found = split_variance([{**row, "seed": 0, "writer": None} for row in rows])
        if found.problem is not None and (best is None or found.n_verdicts > best.n_verdicts):
            best, of = found, name
    if best is None:
        return Variance(estimates.worst_variance(scale), 0.0, 0.0), "at worst: nothing is measured yet"
    return best, f"marks spread as in {of}"

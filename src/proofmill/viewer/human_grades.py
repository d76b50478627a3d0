"""Store the grades that people enter in the viewer: a JSON line for each, in results/human/<responses>.jsonl.

    {"response": "3d8c...", "grade": 5, "max_points": 7, "comment": "step 3 is not shown", "by": "ann", "at": "2026-11-22T12:00:00"}

`grades` with `grader: human` and `path: results/human/x.jsonl` reads them (graders/human_grades.py). Lines are only
appended: a corrected grade is a new line, and the last grade of a response counts.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from proofmill.artifacts.tables import Table
from proofmill.graders.human_grades import read
from proofmill.metrics.uncertainty.debiasing import propose
from proofmill.runtime import append_log
from proofmill.schema.errors import SettingError
from proofmill.schema.names import kind_of

LONGEST = 20_000  # characters of a comment


def file_of(results: Path, responses: str) -> Path:
    return results / "human" / f"{responses.partition('/')[2]}.jsonl"


def last_grades(results: Path, responses: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the last grade of each response."""
    path = file_of(results, responses)
    return read(path) if path.exists() else {}


def add_grade(results: Path, responses: str, response: str, grade: str, max_points: str, comment: str) -> None:
    """Append a grade. Raises SettingError unless it is a number from 0 to `max_points`."""
    try:
        value, points = float(grade), int(max_points)
    except ValueError as error:
        raise SettingError(f"grade {grade!r} out of {max_points!r}; expected numbers. Fix the grade.") from error
    if not 0 <= value <= points:
        raise SettingError(f"grade {value:g}; expected 0 to {points}. Fix the grade.")
    if len(comment) > LONGEST:
        raise SettingError(f"a comment of {len(comment):,} characters; expected at most {LONGEST:,}. Shorten it.")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    line = {
        "response": response,
        "grade": value,
        "max_points": points,
        "comment": comment,
        "by": os.environ.get("USER") or str(os.getuid()),
        "at": at,
    }
    path = file_of(results, responses)
    path.parent.mkdir(parents=True, exist_ok=True)
    append_log.append(path, [json.dumps(line, ensure_ascii=False).encode() + b"\n"])


# -------------------------------------------------------------------------------------------------------------- proposals


@dataclass(frozen=True)
class Proposals:
    """The attempts of a table of grades to grade next, in this order."""

    rows: Sequence[Mapping[str, Any]]  # response, problem, attempt
    labels: int
    attempts: int
    responses: str
    problems: str
    path: Path


def propose_attempts(grades: Table, number: int = 30) -> Proposals:
    """Return the attempts whose grades by a person narrow a debiased score most (metrics/uncertainty/debiasing.py).

    Raises SettingError unless the table has grades by a judge or a program.
    """
    entry = grades.stamp["entry"]
    if kind_of(grades.name) != "grades" or entry["grader"] == "human":
        raise SettingError(
            f"{grades.name}: has no grades by a judge; expected a grades/<name> by one. Fix the address."
        )
    responses, results = entry["responses"], grades.results
    columns = ["response", "problem", "attempt", "grade", "max_points"]
    judged = grades.scan().filter(pl.col("grade").is_not_null()).select(columns).collect()
    human = last_grades(results, responses)
    given = [human.get(name) for name in judged["response"]]
    human_N = np.array([grade["grade"] / grade["max_points"] if grade else math.nan for grade in given])
    names = judged["response"].to_list()
    chosen = propose(names, (judged["grade"] / judged["max_points"]).to_numpy(), human_N, number)
    rows = judged.select(columns[:3]).rows_by_key("response", named=True, unique=True)
    return Proposals(
        rows=[{"response": name, **rows[name]} for name in chosen],
        labels=int((~np.isnan(human_N)).sum()),
        attempts=judged.height,
        responses=responses,
        problems=Table(responses, results).stamp["entry"]["problems"],
        path=file_of(results, responses),
    )

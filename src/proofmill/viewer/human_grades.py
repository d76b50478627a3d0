"""Store the grades that people enter in the viewer: a JSON line for each, in results/human/<responses>.jsonl.

    {"response": "3d8c...", "grade": 5, "max_points": 7, "comment": "step 3 is not shown", "by": "ann", "at": "2026-11-22T12:00:00"}

`grades` with `grader: human` and `path: results/human/x.jsonl` reads them (graders/human_grades.py). Lines are only
appended: a corrected grade is a new line, and the last grade of a response counts.
"""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proofmill.graders.human_grades import read
from proofmill.runtime import append_log
from proofmill.schema.errors import SettingError

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

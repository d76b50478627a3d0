"""Read grades by humans from a file with one JSON object per line; the last grade of a response counts.

    {"response": "3d8c...", "grade": 5, "max_points": 7, "comment": "no step 3", "by": "ann", "at": "2026-11-22T12:00:00"}

The last three fields are optional. `proofmill view` writes such files (viewer/human_grades.py).
"""

import json
from pathlib import Path
from typing import Any

from proofmill.schema.errors import TableError

Grade = dict[str, Any]


def read(path: Path) -> dict[str, Grade]:
    """Return the last grade of each response. Raises TableError with the line that is invalid."""
    grades: dict[str, Grade] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if line.strip():
            grade = _grade(line, f"{path}:{number}")
            grades[grade["response"]] = grade
    return grades


def _grade(line: str, where: str) -> Grade:
    expected = 'expected {"response": <id>, "grade": <number>, "max_points": <whole number>}. Fix or remove the line.'
    try:
        grade = json.loads(line)
        response, value, full = grade["response"], grade["grade"], grade["max_points"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise TableError(f"{where}: {line[:80]!r} is not a grade; {expected}") from error
    fit = type(response) is str and type(value) in (int, float) and type(full) is int and 0 <= value <= full > 0
    if not fit:
        raise TableError(f"{where}: a grade of {value!r} out of {full!r} for {response!r}; {expected}")
    return {"comment": "", "by": "", "at": "", **grade, "grade": float(value)}

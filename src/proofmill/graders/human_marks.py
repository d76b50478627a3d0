"""Marks that people gave, from a file with a line of JSON for each; of several marks of a response the last counts.

    {"response": "3d8c...", "mark": 5, "out_of": 7, "comment": "step 3 is not shown", "by": "ann", "at": "2026-11-22T12:00:00"}

The last three may be absent. `proofmill view` writes such files (viewer/marks.py).
"""

import json
from pathlib import Path
from typing import Any

from proofmill.schema.errors import TableError

Mark = dict[str, Any]


def read(path: Path) -> dict[str, Mark]:
    """The last mark of each response. Raises TableError with the line of what is no mark."""
    marks: dict[str, Mark] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if line.strip():
            mark = _mark(line, f"{path}:{number}")
            marks[mark["response"]] = mark
    return marks


def _mark(line: str, where: str) -> Mark:
    expected = 'expected {"response": <id>, "mark": <number>, "out_of": <whole number>}. Mend or remove the line.'
    try:
        mark = json.loads(line)
        response, value, full = mark["response"], mark["mark"], mark["out_of"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise TableError(f"{where}: {line[:80]!r} is no mark; {expected}") from error
    fit = type(response) is str and type(value) in (int, float) and type(full) is int and 0 <= value <= full
    if not fit:
        raise TableError(f"{where}: a mark of {value!r} out of {full!r} of {response!r}; {expected}")
    return {"comment": "", "by": "", "at": "", **mark, "mark": float(value)}

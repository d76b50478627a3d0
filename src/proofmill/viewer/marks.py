"""Marks that people give in the viewer: a line of JSON for each, in results/human/<responses>.jsonl.

    {"response": "3d8c...", "mark": 5, "out_of": 7, "comment": "step 3 is not shown", "by": "ann", "at": "2026-11-22T12:00:00"}

`grades` with `grader: human` and `path: results/human/x.jsonl` reads them (graders/human_marks.py); of several marks of a response the last counts.
A line is added and never changed: a mark that was thought over leaves the one before it.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proofmill.graders.human_marks import read
from proofmill.runtime import durable
from proofmill.schema.errors import SettingError

LONGEST = 20_000  # characters of a comment


def file_of(results: Path, responses: str) -> Path:
    return results / "human" / f"{responses.partition('/')[2]}.jsonl"


def given(results: Path, responses: str) -> Mapping[str, Mapping[str, Any]]:
    """The last mark of each response."""
    path = file_of(results, responses)
    return read(path) if path.exists() else {}


def give(results: Path, responses: str, response: str, mark: str, out_of: str, comment: str) -> None:
    """Add a mark. Raises SettingError for what is no mark from 0 to `out_of`."""
    try:
        value, full = float(mark), int(out_of)
    except ValueError as error:
        raise SettingError(f"a mark of {mark!r} out of {out_of!r}: expected numbers.") from error
    if not 0 <= value <= full:
        raise SettingError(f"a mark of {value:g}: expected 0 to {full}.")
    if len(comment) > LONGEST:
        raise SettingError(f"a comment of {len(comment):,} characters: expected at most {LONGEST:,}.")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    line = {
        "response": response,
        "mark": value,
        "out_of": full,
        "comment": comment,
        "by": os.environ.get("USER") or str(os.getuid()),
        "at": at,
    }
    path = file_of(results, responses)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if file.seek(0, os.SEEK_END):  # a line that a crash broke off keeps its own
            file.seek(-1, os.SEEK_END)
            file.write(b"" if file.read(1) == b"\n" else b"\n")
        file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    durable.sync_name(path)

"""Read the log of an evaluation program, recognized by its content, one record at a time."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from proofmill.metrics.attempt_table import AttemptTable, Rows
from proofmill.schema.errors import TableError, list_names, shorten
from proofmill.schema.reasons import Reason, StopReason
from proofmill.sources import file_formats, files, inspect_files
from proofmill.sources.file_formats import Record
from proofmill.sources.inspect_logs import LETTERS
from proofmill.sources.logs.records import PROGRAMS, Row, select_settings
from proofmill.text.seen_texts import hash64

SCORED = (Reason.OK, Reason.EMPTY, Reason.NO_ANSWER)  # others are unscored, whatever the program logged
FORMATS = (
    "inspect_ai (.eval, .json), lm-eval (samples_*.jsonl of --log_samples), lighteval (details_*.parquet), verifiers "
    "(results.jsonl, traces.jsonl), NeMo-Gym (rollouts), a table with `problem` and a score (JSONL, CSV, TSV, Parquet), "
    "and tables grades/... and scores/... of proofmill"
)
_DOCUMENT = re.compile(rb'\s*\{\s*"(version|status|eval)"\s*:')
_FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)  # of records with unexpected types


@dataclass(frozen=True)
class EvalLog:
    """Attempts of a log with all metrics, and its settings. `faults` are values that are not numbers, by metric."""

    path: Path
    program: str
    settings: dict[str, Any]
    attempts: Rows
    metrics: list[str]
    faults: dict[str, str]

    def score(self, metric: str) -> AttemptTable:
        """Return the attempts as metrics read them. Raises TableError if a value of the metric is not a number."""
        if metric in self.faults:
            raise TableError(f"{self.faults[metric]}; expected a number, a boolean, or C, P, I, N. Fix the row.")
        parts = {row["part"] for row in self.attempts if metric in dict(row["scores"])}
        unread = dict.fromkeys(("reads", "answer_extraction", "response_tokens", "writer", "max_points"))
        limit = self.settings.get("max-tokens")
        shared = {**unread, "seed": 0, "opinions": (), "max_tokens": limit if isinstance(limit, int) else None}
        rows = ({**row, **shared} for row in self.attempts if row["part"] in parts)
        return AttemptTable({**row, **_grade(row, dict(row["scores"]).get(metric))} for row in rows)


def _grade(row: Row, value: float | None) -> Row:
    """Return the grade of an attempt, the reason if it has none, and `well_formed`: None without a known end."""
    is_scored, stop = row["reason"] in SCORED, row["stop_reason"]
    return {
        "logged": value,
        "grade": value if is_scored else None,
        "reason": Reason.NO_GRADE if is_scored and value is None else row["reason"],
        "well_formed": stop == StopReason.END if is_scored and stop else None,
    }


def read_log(path: Path) -> EvalLog:
    """Read a log, or the single one of a folder. Raises TableError for unknown formats and for faults, with the place."""
    if path.is_dir():
        known = [file for file in sorted(path.rglob("*")) if file.is_file() and _is_log(file)]
        if len(known) != 1:
            names = list_names(file.relative_to(path) for file in known) or "none"
            raise TableError(f"{path}: {len(known)} logs ({names}); expected one. Name the file. Read are {FORMATS}.")
        path = known[0]
    keys, records = _open(path)
    failures = path.with_name(f"{path.stem}_failures.jsonl")  # of NeMo-Gym: attempts that are not in the log
    if PROGRAMS[keys][0] == "NeMo-Gym" and failures.exists():
        records = chain(records, file_formats.jsonl(failures, logged=True))
    settings, counted, faults = dict[str, Any](), Counter[str](), dict[str, str]()
    rows = AttemptTable(_rows(keys, records, _read_sidecar(path), settings, counted, faults))
    return EvalLog(path, PROGRAMS[keys][0], settings, rows, [*+counted], faults)


def _is_log(path: Path) -> bool:
    try:
        return not path.stem.endswith("_failures") and bool(_open(path))
    except TableError:
        return False


def _open(path: Path) -> tuple[tuple[str, ...], Iterator[Record]]:
    """Return the keys by which a program is recognized, and the records."""
    if not path.exists():
        raise TableError(f"{path}: no such file or folder; expected a log. Read are {FORMATS}.")
    try:
        records = files.read(path, readers={path.suffix.lower(): lambda file, _: _records(file)})
        first = next(records)
    except TableError as error:
        raise TableError(f"{error} Logs that are read: {FORMATS}.") from error
    for keys in PROGRAMS:
        if all(key in first[1] for key in keys):
            return keys, chain([first], records)
    raise TableError(f"{path}: is no known log; it has {list_names(first[1])}. Expected one of {FORMATS}.")


def _records(path: Path) -> Iterator[Record]:
    """Return the records of a file by its first bytes: archive, Parquet, one JSON object, JSONL, CSV or TSV."""
    with open(path, "rb") as file:
        head = file.read(file_formats.CHUNK).removeprefix(b"\xef\xbb\xbf")
    if head.startswith(b"PK\3\4"):
        return inspect_files.archive(path)
    if head.startswith(b"PAR1"):
        return files.READERS[".parquet"](path, None)
    if _DOCUMENT.match(head):
        return inspect_files.document(path)
    if head.lstrip().startswith(b"{"):
        return file_formats.jsonl(path, logged=True)
    return file_formats.comma_separated(path, delimiter="\t" if b"\t" in head.partition(b"\n")[0] else ",")


def _read_sidecar(path: Path) -> Row:
    """Return the settings in a file next to a log of verifiers or lm-eval, or in the results of lighteval, if any."""
    results = f"results_{path.stem.rpartition('_')[2]}.json"
    elsewhere = Path(f"{path.parent.parent}".replace("/details/", "/results/", 1), results)
    for file in (path.with_name("metadata.json"), path.with_name(results), elsewhere):
        if file.exists():
            try:
                return file_formats.parse_json(file.read_text(encoding="utf-8"), logged=True)
            except (OSError, ValueError) as error:
                raise TableError(f"{file}: cannot be read ({error}); expected the settings of {path.name}.") from error
    return {}


def _rows(
    keys: tuple, records: Iterator[Record], sidecar: Row, settings: dict, counted: Counter[str], faults: dict[str, str]
) -> Iterator[Row]:
    """Yield a row for each attempt. Fill `settings` from the first, `counted` with metrics, `faults` with their faults."""
    program, read = PROGRAMS[keys]
    orders, seen, tasks = Counter[Any](), set[Any](), dict[str, Any]()
    for where, record in records:
        try:
            one = read(where, record, sidecar)
            texts = [None if text is None else hash64(" ".join(text.split())) for text in (one.statement, one.sent)]
            number = orders[one.problem, one.part] if one.attempt is None else one.attempt
            key = (one.problem, one.part, number)
            is_new = key not in seen
        except _FAULTS as error:
            raise TableError(
                f"{where}: is not a record of {program} ({type(error).__name__}: {error}); expected one with "
                f"{', '.join(keys)}. Fix or remove it."
            ) from error
        settings.update({} if seen else select_settings(*one.settings))
        if program == "table":  # which may have several models, or tasks with equal ids
            first = {"model": settings.get("model"), "task": tasks.setdefault(one.problem, record.get("task"))}
            for name, value in first.items():
                if record.get(name) != value:
                    fault = (
                        f"{where}: {name} {shorten(record.get(name))} at problem {one.problem} after {shorten(value)}"
                    )
                    raise TableError(f"{fault}; expected one {name}. Write a file for each.")
        orders[one.problem, one.part] += 1
        if not is_new:
            if "_ng_failure_class" in record:  # retried with success, or counted before
                continue
            raise TableError(f"{where}: attempt {number} at problem {one.problem} occurs twice; expected each once.")
        seen.add(key)
        scores = []
        for name, value in one.scores.items():
            try:
                scores.append((name, _to_number(value)))
                counted[name] += scores[-1][1] is not None
            except (TypeError, ValueError, OverflowError):
                faults.setdefault(name, f"{where}: `{name}` is {shorten(value)}")
        yield {
            "problem": one.problem,
            "attempt": number,
            "statement": texts[0],
            "sent": texts[1],
            "scores": tuple(scores),
            "reason": one.reason,
            "stop_reason": one.stop_reason,
            "part": one.part,
        }


def _to_number(value: Any) -> float | None:
    """Convert a number, a boolean, a letter of inspect_ai or their text; NaN and empty are None. Raises ValueError."""
    text = value.strip().lower() if isinstance(value, str) else value
    number = (
        LETTERS[text] if isinstance(text, str) and text in LETTERS else float(value) if text not in ("", None) else None
    )
    if number is not None and math.isinf(number):
        raise ValueError("infinite")
    return None if number is None or math.isnan(number) else number

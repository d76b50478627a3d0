"""Graded attempts: proofs with the marks that humans gave them, several for each problem.

A file or dataset of such attempts is read by its columns, not by its name: the Open Proof Corpus, MathArena's graded
proofs, the in-distribution set of QED-Nano, and its run and grade records. A record is a problem and an attempt at it:
`problems` takes each problem once, `responses` the attempts (`model: given`), `grades` the marks (`grader: human`).

How we differ:
1. Columns are detected. Without one that could hold the statement or the proof, the message names the expected columns.
2. A problem whose records disagree about its statement is refused: attempts would be marked against the wrong one.
3. Several people's verdicts, right or wrong, are one mark: their mean.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from proofmill.arithmetic import congruences
from proofmill.arithmetic.congruences import FAMILIES
from proofmill.schema.entries import Problems
from proofmill.schema.errors import TableError
from proofmill.schema.ids import digest
from proofmill.schema.quoting import listed, shown
from proofmill.sources import fields, files
from proofmill.sources.fields import text, word
from proofmill.text import statements

Row = dict[str, Any]


@dataclass(frozen=True)
class Attempt:
    """A proof and its mark: `mark` of `out_of`, both None without one; `tokens` that the writer wrote, if known."""

    text: str
    writer: str | None
    mark: float | None
    out_of: int | None
    tokens: int | None = None


def problems(entry: Problems) -> Iterator[Row]:
    """Each problem of the attempts once, in order of first appearance; TableError if its statements differ."""
    seen: dict[str, str] = {}
    for where, row, _ in READERS[entry.source](entry):
        normal = statements.normal(row["statement"] or "")
        if row["problem"] not in seen:
            seen[row["problem"]] = normal
            yield row
        elif seen[row["problem"]] != normal:
            raise TableError(
                f"{where}: problem `{row['problem']}` has another statement than before; expected one statement for each id. "
                "Mend the file, or leave the rows of one of the two out."
            )


def attempts(entry: Problems) -> Iterator[tuple[str, Attempt]]:
    """(problem, attempt) for all attempts of the source of a `problems` entry."""
    for _, row, attempt in READERS[entry.source](entry):
        yield row["problem"], attempt


# ----------------------------------------------------------------------------------------------------- files by columns

STATEMENT = ("problem", "text", "question", "problem_statement", "statement")
PROOF = ("model_solution", "proof", "student_answer", "response", "answer")
IDS = ("problem_id", "problem_idx", "question_id", "id")
SCHEME = ("details", "schema_0", "grading_scheme", "grading_guidelines", "rubrics", "rubric")
MARKS = ("points", "human_score", "human_label")  # `score` and `graded_score` of run records are a judge's
VERDICTS = {"correct": 1.0, "incorrect": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}


def _by_columns(entry: Problems) -> Iterator[tuple[str, Row, Attempt]]:
    for where, record in islice(files.records(entry), entry.rows):
        if entry.columns:  # ours: theirs; what is not named is detected
            named = {ours: fields.field(where, record, theirs) for ours, theirs in entry.columns.items()}
            rest = {name: record[name] for name in record if name not in entry.columns.values()}
            record = {**rest, **named}
        statement = text(where, record, _column(where, record, STATEMENT, "the problem"))
        used = {_column(where, record, STATEMENT, "the problem")}
        proof = text(where, record, _column(where, record, [c for c in PROOF if c not in used], "the proof"))
        mark, out_of = _mark(where, record)
        origin = " ".join(
            value for c in ("competition", "year") if (value := _known(where, record, word, c)) is not None
        )
        id = next((word(where, record, c) for c in IDS if record.get(c) is not None), None)
        references = _known(where, record, fields.texts, "reference_solutions") or []
        solution = next((text(where, record, c) for c in ("solution", "reference_solution") if c in record), None)
        row = {
            "problem": id or digest(statements.normal(statement or "")),
            "statement": statement,
            "solution": solution or (references[0] if references else None),
            "candidates": references[1:],
            "guidelines": _scheme(where, record),
            "asks": "proof",
            "origin": origin or where,
            "year": _known(where, record, fields.year, "year"),
            "level": _known(where, record, word, "level"),
        }
        writer = next((word(where, record, c) for c in ("model_id", "model_name", "model") if c in record), None)
        yield where, row, Attempt(proof or "", writer, mark, out_of, _tokens(record))


def _column(where: str, record: Mapping[str, Any], names: Any, what: str) -> str:
    if (column := next((name for name in names if name in record), None)) is None:
        raise TableError(
            f"{where}: no column for {what} among {listed(record)}; expected one of {', '.join(names)}. "
            "Rename the column."
        )
    return column


def _known(where: str, record: Mapping[str, Any], read: Callable, column: str) -> Any:
    """The value of a column that not every record has, or None."""
    return read(where, record, column) if column in record else None


def _mark(where: str, record: Mapping[str, Any]) -> tuple[float | None, int | None]:
    """The human mark and its maximum: a number of the scheme's total, or a word or boolean of 1; else twice None."""
    column = next((name for name in MARKS if record.get(name) is not None), None)
    if column is None:
        return None, None
    value = record[column]
    if isinstance(value, str) and value.strip().lower() in VERDICTS:
        return VERDICTS[value.strip().lower()], 1
    if isinstance(value, bool):
        return float(value), 1
    if isinstance(value, list) and value and all(verdict in (0, 1) for verdict in value):
        return sum(value) / len(value), 1
    try:
        mark = float(value)
    except (TypeError, ValueError, OverflowError):
        mark = float("nan")
    out_of = _out_of(record)
    if not 0 <= mark <= out_of:
        raise TableError(
            f"{where}: `{column}` is {shown(value)}; expected marks from 0 to {out_of}, or correct / incorrect. Mend the row."
        )
    return mark, out_of


def _out_of(record: Mapping[str, Any]) -> int:
    """The total of the items of a structured scheme; 7 without one."""
    items = next((record[c] for c in SCHEME if isinstance(record.get(c), list)), None)
    worth = [item.get("max_points", item.get("points")) for item in items or [] if isinstance(item, Mapping)]
    total = sum(w for w in worth if isinstance(w, int | float))
    return int(total) if total and math.isfinite(total) and total == int(total) else 7


def _scheme(where: str, record: Mapping[str, Any]) -> str | None:
    column = next((name for name in SCHEME if record.get(name)), None)
    if column is None:
        return None
    return (fields.rendered if isinstance(record[column], list) else text)(where, record, column)


def _tokens(record: Mapping[str, Any]) -> int | None:
    cost = record.get("cost_run")
    tokens = cost.get("output_tokens") if isinstance(cost, Mapping) else None
    return int(tokens) if isinstance(tokens, int | float) and math.isfinite(tokens) else None


# ------------------------------------------------------------------------------------------------ the arithmetic family

AT_EACH = 4  # attempts at each problem


def _arithmetic(entry: Problems) -> Iterator[tuple[str, Row, Attempt]]:
    """Sloppy proofs, marked by the checker: they stand in for a corpus of human marks in rehearsals."""
    rng = random.Random(f"graded-{entry.part}-{entry.seed}")
    families = tuple(entry.families) or FAMILIES
    for number, problem in enumerate(islice(congruences.problems(entry.part, entry.seed, families), entry.rows)):
        statement = congruences.statement(problem)
        row = {
            "problem": digest(statements.normal(statement)),
            "statement": statement,
            "solution": congruences.proof(problem),
            "answer": str(problem.residue),
            "asks": "proof" if problem.asks_for_proof else "answer",
            "origin": f"arithmetic/{entry.part}",
            "level": problem.family,
        }
        for _ in range(AT_EACH):
            proof = congruences.sloppy_proof(problem, rng, slip=0.1)
            marks = congruences.check(problem, proof).marks()
            yield f"arithmetic/{number}", row, Attempt(proof, f"forum-{rng.randint(1, 3)}", float(marks), 7, len(proof))


READERS: dict[str, Callable[[Problems], Iterator[tuple[str, Row, Attempt]]]] = {
    "graded": _by_columns,
    "arithmetic-graded": _arithmetic,
}

"""Graded proofs of other projects: attempts with their grades, several per problem.

A record is a problem and an attempt at it. `problems` reads each problem once, `responses` the attempts (`model: given`),
`grades` the grades (`grader: human`). `graded-proofs` detects the columns of a file or dataset and reads human grades: the Open
Proof Corpus, MathArena's graded proofs, the in-distribution set of QED-Nano. `qed-nano` reads the JSONL files of QED-Nano's
evaluation (github.com/CMU-AIRe/QED-Nano, eval/scripts: `run.py`, then `eval.py` or `grading.py`) with its judge's grades,
the reasoning, and the reference answers.

Differences from the originals:
1. Columns are detected. If the statement or the proof has none, the message lists the expected columns.
2. A problem with different statements in its records is rejected: attempts would be graded against the wrong one.
3. Several human verdicts, correct or wrong, become one grade: their mean.
4. A run whose call failed has no text and no grade. QED-Nano lets its judge grade an empty text.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.errors import TableError, list_names, shorten
from proofmill.schema.ids import digest
from proofmill.schema.reasons import Reason, StopReason
from proofmill.sources import files, record_fields
from proofmill.sources.record_fields import text, word
from proofmill.synthetic import congruences, grading
from proofmill.synthetic.congruences import FAMILIES
from proofmill.text import statements

Row = dict[str, Any]


@dataclass(frozen=True)
class GradedProof:
    """A proof and its grade: `grade` out of `max_points`, both None if ungraded; `tokens` are output tokens, if known.

    `reasoning` is reasoning that is separate from the text. `stop_reason` and `reason` are None if the text determines them.
    """

    text: str
    writer: str | None
    grade: float | None
    max_points: int | None
    tokens: int | None = None
    reasoning: str | None = None
    stop_reason: StopReason | None = None
    reason: Reason | None = None
    prompt_tokens: int | None = None
    reasoning_tokens: int | None = None


def problems(entry: Problems) -> Iterator[Row]:
    """Yield each problem once, in order of first appearance; raises TableError if its statements differ."""
    return distinct_problems((where, row) for where, row, _ in READERS[entry.source](entry))


def distinct_problems(rows: Iterable[tuple[str, Row]]) -> Iterator[Row]:
    """Yield the first row of each problem; raises TableError if a later row has another statement."""
    seen: dict[str, str] = {}
    for where, row in rows:
        normal = statements.normal(row["statement"] or "")
        if row["problem"] not in seen:
            seen[row["problem"]] = normal
            yield row
        elif seen[row["problem"]] != normal:
            raise TableError(
                f"{where}: problem `{row['problem']}` has another statement than before; expected one statement for each id. "
                "Fix the file, or remove the rows of one of the two."
            )


def attempts(entry: Problems) -> Iterator[tuple[str, GradedProof]]:
    """Yield (problem, attempt) for all attempts of the source of a `problems` entry."""
    for _, row, attempt in READERS[entry.source](entry):
        yield row["problem"], attempt


# ----------------------------------------------------------------------------------------------------- files by columns

STATEMENT = ("problem", "text", "question", "problem_statement", "statement")
PROOF = ("model_solution", "proof", "student_answer", "response", "answer")
IDS = ("problem_id", "problem_idx", "question_id", "id")
SCHEME = ("details", "schema_0", "grading_scheme", "grading_guidelines", "rubrics", "rubric")
GRADES = ("points", "human_score", "human_label")  # `score` and `graded_score` of run records are by a judge
VERDICTS = {"correct": 1.0, "incorrect": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}


def _by_columns(entry: Problems) -> Iterator[tuple[str, Row, GradedProof]]:
    for where, record in islice(files.records(entry), entry.rows):
        if entry.columns:  # ours: theirs; what is not named is detected
            named = {ours: record_fields.field(where, record, theirs) for ours, theirs in entry.columns.items()}
            rest = {name: record[name] for name in record if name not in entry.columns.values()}
            record = {**rest, **named}
        statement = text(where, record, _column(where, record, STATEMENT, "the problem"))
        used = {_column(where, record, STATEMENT, "the problem")}
        proof = text(where, record, _column(where, record, [c for c in PROOF if c not in used], "the proof"))
        grade, max_points = _grade(where, record, GRADES)
        origin = " ".join(
            value for c in ("competition", "year") if (value := _optional(where, record, word, c)) is not None
        )
        references = _optional(where, record, record_fields.texts, "reference_solutions") or []
        solution = next((text(where, record, c) for c in ("solution", "reference_solution") if c in record), None)
        row = {
            "problem": _id(where, record, statement),
            "statement": statement,
            "solution": solution or (references[0] if references else None),
            "candidates": references[1:],
            "guidelines": _scheme(where, record, SCHEME),
            "question_type": "proof",
            "origin": origin or where,
            "year": _optional(where, record, record_fields.year, "year"),
            "level": _optional(where, record, word, "level"),
        }
        yield (
            where,
            row,
            GradedProof(proof or "", _writer(where, record), grade, max_points, _tokens(record, "output_tokens")),
        )


def _id(where: str, record: Mapping[str, Any], statement: str | None) -> str:
    id = next((word(where, record, c) for c in IDS if record.get(c) is not None), None)
    return id or digest(statements.normal(statement or ""))


def _writer(where: str, record: Mapping[str, Any]) -> str | None:
    return next((word(where, record, c) for c in ("model_id", "model_name", "model") if c in record), None)


def _column(where: str, record: Mapping[str, Any], names: Any, what: str) -> str:
    if (column := next((name for name in names if name in record), None)) is None:
        raise TableError(
            f"{where}: no column for {what} among {list_names(record)}; expected one of {', '.join(names)}. "
            "Rename the column."
        )
    return column


def _optional(where: str, record: Mapping[str, Any], read: Callable, column: str) -> Any:
    """Return the value of an optional column, or None."""
    return read(where, record, column) if column in record else None


def _grade(where: str, record: Mapping[str, Any], columns: Sequence[str]) -> tuple[float | None, int | None]:
    """Return the grade and its maximum: the scheme's total for a number, 1 for a word or boolean; (None, None) without."""
    column = next((name for name in columns if record.get(name) is not None), None)
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
        grade = float(value)
    except (TypeError, ValueError, OverflowError):
        grade = float("nan")
    max_points = _max_points(record)
    if not 0 <= grade <= max_points:
        raise TableError(
            f"{where}: `{column}` is {shorten(value)}; expected a grade from 0 to {max_points}, or correct / incorrect. Fix the row."
        )
    return grade, max_points


def _max_points(record: Mapping[str, Any]) -> int:
    """Return the total of the items of a structured scheme; 7 without one."""
    items = next((record[c] for c in SCHEME if isinstance(record.get(c), list)), None)
    worth = [item.get("max_points", item.get("points")) for item in items or [] if isinstance(item, Mapping)]
    total = sum(w for w in worth if isinstance(w, int | float))
    return int(total) if total and math.isfinite(total) and total == int(total) else 7


def _scheme(where: str, record: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    column = next((name for name in columns if record.get(name)), None)
    if column is None:
        return None
    return (record_fields.render if isinstance(record[column], list) else text)(where, record, column)


def _tokens(record: Mapping[str, Any], which: str) -> int | None:
    cost = record.get("cost_run")
    tokens = cost.get(which) if isinstance(cost, Mapping) else None
    return int(tokens) if isinstance(tokens, int | float) and math.isfinite(tokens) else None


# ------------------------------------------------------------------------------------------------- runs of QED-Nano

# Texts that `eval.py` and `grading.py` write for any problem, with or without a scheme.
NO_SCHEME = ("Points awarded for the proof.", "Whether the answer is correct.")


def _runs(entry: Problems) -> Iterator[tuple[str, Row, GradedProof]]:
    """Yield the runs of a file: a line is a problem and a run, with columns of the dataset, of `run.py` and of a judge.

    Records do not name the writer, so it is the name of the file: `gemini` for `outputs/gemini.jsonl`.
    """
    for where, record in islice(files.records(entry), entry.rows):
        statement = text(where, record, _column(where, record, ("problem", "text"), "the problem"))
        written = (
            ("model_solution", "answer") if "graded_score" in record else ("model_solution",)
        )  # `grading.py` has both
        proof = text(where, record, _column(where, record, written, "the attempt")) or ""
        answer = _optional(where, record, word, "answer") if "model_solution" in record else None
        grade, max_points = _grade(where, record, ("score", "graded_score"))
        guidelines = _guidelines(where, record)
        row = {
            "problem": _id(where, record, statement),
            "statement": statement,
            "solution": _optional(where, record, text, "solution"),
            "answer": answer or None,
            "guidelines": guidelines,
            "question_type": "answer" if answer and not guidelines else "proof",
            "origin": _optional(where, record, word, "source") or where,
            "level": _optional(where, record, word, "level"),
        }
        file = Path(where.rpartition(":")[0]).stem if entry.path else None
        tokens, thought = _tokens(record, "output_tokens"), _reasoning(where, record)
        failed = (
            not proof and not thought and tokens == 0
        )  # after all retries QED-Nano's client returns an empty text at no cost
        yield (
            where,
            row,
            GradedProof(
                proof,
                _writer(where, record) or file,
                None if failed else grade,
                None if failed else max_points,
                tokens,
                thought,
                StopReason.ERROR if failed else None,
                Reason.NO_OUTPUT if failed else None,
                prompt_tokens=_tokens(record, "input_tokens"),
            ),
        )


def _guidelines(where: str, record: Mapping[str, Any]) -> str | None:
    """Return the grading scheme that the judge received, if any."""
    items = record.get("schema_0")
    described = [item.get("desc") for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    own = () if described and set(map(str, described)) <= {*NO_SCHEME} else ("schema_0",)
    return _scheme(where, record, ("grading_guidelines", "grading_scheme", "details", *own))


def _reasoning(where: str, record: Mapping[str, Any]) -> str | None:
    """Return the reasoning of a single call; an agent's history, a conversation per step, has none."""
    history = _optional(where, record, record_fields.records, "history") or []
    thoughts = [
        text(where, message, "content") or "" for message in history if message.get("type") in ("cot", "reasoning")
    ]
    return "\n\n".join(thoughts) or None


# ------------------------------------------------------------------------------------------------ the arithmetic family

AT_EACH = 4  # attempts per problem


def _arithmetic(entry: Problems) -> Iterator[tuple[str, Row, GradedProof]]:
    """Yield flawed proofs with grades of the checker: a stand-in for human grades in rehearsals."""
    rng = random.Random(f"graded-{entry.split}-{entry.seed}")
    families = tuple(entry.families) or FAMILIES
    drawn = congruences.problems(entry.split, entry.seed, families, entry.sizes)
    for number, problem in enumerate(islice(drawn, entry.rows)):
        statement = congruences.statement(problem)
        row = {
            "problem": digest(statements.normal(statement)),
            "statement": statement,
            "solution": congruences.proof(problem),
            "answer": str(problem.residue),
            "question_type": "proof" if problem.asks_for_proof else "answer",
            "origin": f"arithmetic/{entry.split}",
            "level": problem.family,
        }
        for _ in range(AT_EACH):
            proof = congruences.sloppy_proof(problem, rng, slip=0.1)
            grades = grading.check(problem, proof).points()
            yield (
                f"arithmetic/{number}",
                row,
                GradedProof(proof, f"forum-{rng.randint(1, 3)}", float(grades), 7, len(proof)),
            )


READERS: dict[str, Callable[[Problems], Iterator[tuple[str, Row, GradedProof]]]] = {
    "graded-proofs": _by_columns,
    "qed-nano": _runs,
    "arithmetic-graded": _arithmetic,
}

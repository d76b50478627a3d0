"""Loaders: each yields the problems of a corpus, benchmark or generator, one at a time.

A loader yields dictionaries with the columns of `problems` that it knows, and the source's id if there is one. Loaders do
not filter: they also yield rows without a statement, a solution or a year, and filters decide about these. Files and
datasets are streamed (files.py); faults in them raise one TableError with file and line.

From: the records of AI-MO/aops_raw and AI-MO/aops, the published benchmarks, and MathArena's structured schemes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from proofmill.answers.extraction import find_boxes
from proofmill.foreign import inspect_tasks
from proofmill.public_data.locations import local_path
from proofmill.public_data.registry import is_public
from proofmill.schema.entries.problem_entries import GRADED, Problems
from proofmill.schema.errors import TableError, shorten
from proofmill.schema.fields import require
from proofmill.sources import (
    coding,
    file_formats,
    files,
    generated,
    graded_proofs,
    inspect_logs,
    record_fields,
    triplets,
)
from proofmill.sources.record_fields import text, texts, word, words
from proofmill.sources.threads import thread
from proofmill.synthetic import congruences, small_proofs, small_tasks
from proofmill.text import question_types
from proofmill.text.suggestions import among

Row = dict[str, Any]


def _first(where: str, record: Mapping, read: Callable, *columns: str) -> Any:
    """Return the value of the first of these columns that the record has; the TableError names the first."""
    return read(where, record, next((c for c in columns if c in record), columns[0]))


def _optional(where: str, record: Mapping, read: Callable, *columns: str) -> Any:
    """Return the value of the first of these columns that the record has, or None."""
    return next((read(where, record, c) for c in columns if c in record), None)


# -------------------------------------------------------------------------------------------------------- forum threads


def _aops_threads(entry: Problems) -> Iterator[Row]:
    for where, record in files.records(entry):
        yield {**thread(where, record), "origin": f"aops/{word(where, record, 'topic_id')}"}


_YEAR = re.compile(r"(?<![0-9])(19[0-9]{2}|20[0-9]{2})(?![0-9])")


def _aops(entry: Problems) -> Iterator[Row]:
    """Yield the problems of AI-MO/aops_raw (`path` at top level) and AI-MO/aops (`path` and hints in `metadata`)."""
    for where, record in files.records(entry):
        hints = record.get("metadata")
        hints = hints if isinstance(hints, Mapping) else {}
        path = text(where, record, "path") if "path" in record or "path" not in hints else text(where, hints, "path")
        statement, solution = text(where, record, "problem"), text(where, record, "solution")
        year = _YEAR.search(path or "")
        yield {
            "statement": statement,
            "solution": solution,
            "candidates": texts(where, record, "candidates"),
            "question_type": question_types.asks(statement, solution, hints.get("end_of_proof") is True),
            "origin": path,
            "year": int(year[1]) if year else None,
            "tags": _optional(where, record, texts, "tags") or [],
        }


# ------------------------------------------------------------------------------------------ contests and answer corpora


def _harp(entry: Problems) -> Iterator[Row]:
    """Yield proof problems of the USAMO and USAJMO; of the human solutions all but the first are candidates."""
    for where, record in files.records(entry):
        names = sorted(
            (c for c in record if re.fullmatch(r"solution_\d{1,4}", c)), key=lambda c: int(c.rpartition("_")[2])
        )
        solutions = [s for name in names if (s := text(where, record, name))]
        contest, number = word(where, record, "contest"), word(where, record, "number")
        year = record_fields.year(where, record, "year")
        yield {
            "statement": text(where, record, "problem"),
            "solution": solutions[0] if solutions else None,
            "answer": _optional(where, record, word, "answer"),
            "candidates": solutions[1:],
            "question_type": "answer" if _optional(where, record, word, "answer") else "proof",
            "origin": f"harp/{contest} {year} {number}",
            "year": year,
            "level": _optional(where, record, word, "level"),
            "tags": [subject] if (subject := _optional(where, record, word, "subject")) else [],
        }


def _proofbench(entry: Problems) -> Iterator[Row]:
    """Yield IMO-ProofBench, as CSV or lm-provers/IMOProofBench, and ProofBench (guidelines in `grading_scheme`)."""
    for where, record in files.records(entry):
        id = _optional(where, record, word, "Problem ID", "problem_id", "id")
        origin = _optional(where, record, word, "Loader", "source")
        year = _YEAR.search(f"{origin or ''} {id or ''}")
        yield {
            "problem": id,
            "statement": _first(where, record, text, "Problem", "problem"),
            "solution": _first(where, record, text, "Solution", "solution"),
            "answer": _optional(where, record, word, "Short Answer", "short_answer") or None,
            "guidelines": _first(where, record, text, "Grading guidelines", "grading_guidelines", "grading_scheme"),
            "question_type": "proof",
            "origin": origin or where,
            "year": int(year[1]) if year else None,
            "level": _optional(where, record, word, "Level", "level"),
            "tags": [category] if (category := _optional(where, record, word, "Category", "category")) else [],
        }


def _fix_quote(cells: list[str]) -> list[str]:
    """Fix line 150 of the published answerbench_v2.csv, which lacks a quote: `<statement>\\n,<answer>"`."""
    statement, mark, answer = cells[1].rpartition("\n,") if len(cells) == 5 else ("", "", "")
    return [cells[0], statement, answer.rstrip('"'), *cells[2:]] if mark else cells


def _answerbench(entry: Problems) -> Iterator[Row]:
    for where, record in files.records(entry, _fix_quote):
        origin = _optional(where, record, word, "Loader", "source")
        year = _YEAR.search(origin or "")
        yield {
            "problem": _optional(where, record, word, "Problem ID", "problem_id", "id"),
            "statement": _first(where, record, text, "Problem", "problem"),
            "answer": _first(where, record, word, "Short Answer", "answer", "short_answer"),
            "question_type": "answer",
            "origin": origin or where,
            "year": int(year[1]) if year else None,
            "tags": [
                t for name in ("Category", "Subcategory") if (t := _optional(where, record, word, name, name.lower()))
            ],
        }


def _gsm8k(entry: Problems) -> Iterator[Row]:
    """Yield GSM8K. The answer follows `####`; calculator notes `<<48/2=24>>` are removed from the solution."""
    for where, record in files.records(entry):
        solution = text(where, record, "answer") or ""
        _, mark, answer = solution.rpartition("####")
        if not mark:
            raise TableError(
                f"{where}: `answer` has no `####`; expected the final answer after it. Check that the file is GSM8K."
            )
        yield {
            "statement": text(where, record, "question"),
            "solution": re.sub(r"<<[^<>]*>>", "", solution).strip(),
            "answer": answer.strip().replace(",", ""),
            "question_type": "answer",
            "origin": where,
        }


def _math(entry: Problems) -> Iterator[Row]:
    """Yield Hendrycks' MATH; without an `answer` column the answer is the last box of the solution."""
    for where, record in files.records(entry):
        solution = text(where, record, "solution")
        subject = _optional(where, record, word, "type", "subject")
        yield {
            "statement": text(where, record, "problem"),
            "solution": solution,
            "answer": word(where, record, "answer")
            if "answer" in record
            else next(reversed(find_boxes(solution or "")), None),
            "question_type": "answer",
            "origin": where,
            "level": word(where, record, "level"),
            "tags": [subject] if subject else [],
        }


def _aime(entry: Problems) -> Iterator[Row]:
    for where, record in files.records(entry):
        origin = _optional(where, record, word, "url", "URL", "source")
        year = _YEAR.search(origin or "")
        yield {
            "problem": f"aime-{id}" if (id := _optional(where, record, word, "id", "ID")) else None,
            "statement": _first(where, record, text, "problem", "Problem", "question"),
            "solution": _optional(where, record, text, "solution", "Solution"),
            "answer": _first(where, record, word, "answer", "Answer"),
            "question_type": "answer",
            "origin": origin or where,
            "year": int(year[1]) if year else _optional(where, record, record_fields.year, "year", "Year"),
        }


def _olympiadbench(entry: Problems) -> Iterator[Row]:
    """Yield OlympiadBench: answers and solutions are lists (several if `is_multiple_answer`); proofs have no answer."""
    for where, record in files.records(entry):
        solutions = words(where, record, "solution") if "solution" in record else []
        finals = words(where, record, "final_answer") if "final_answer" in record else []
        subject = _optional(where, record, word, "subfield", "subject")
        yield {
            "problem": f"olympiadbench-{id}" if (id := _optional(where, record, word, "id")) else None,
            "statement": _first(where, record, text, "question", "problem"),
            "solution": solutions[0] if solutions else None,
            "answer": ", ".join(f.strip().strip("$") for f in finals) or None,
            "candidates": solutions[1:],
            "question_type": "answer" if finals else "proof",
            "origin": _optional(where, record, word, "source") or where,
            "level": _optional(where, record, word, "difficulty"),
            "tags": [subject] if subject else [],
        }


# ----------------------------------------------------------------------------------------------------------- USAMO 2025


def _usamo(entry: Problems) -> Iterator[Row]:
    """Yield a MathArena contest: a table, or a folder of problems/*.tex, solutions/*.tex, grading_scheme.json, config.yaml."""
    place = require(entry.path)
    folder = local_path(place)
    if is_public(place) or folder.is_file():
        yield from _contest_table(entry)
        return
    contest = _parse(folder / "config.yaml", yaml.safe_load)
    date = str(contest.get("date")) if isinstance(contest, Mapping) else ""
    path = folder / "grading_scheme.json"
    listed = record_fields.records(str(path), {"schemes": _parse(path, file_formats.parse_json)}, "schemes")
    schemes = {word(str(path), scheme, "id"): scheme for scheme in listed}
    problems = sorted((folder / "problems").glob("*.tex"), key=lambda file: (len(file.stem), file.stem))
    if not problems:
        raise TableError(f"{folder}/problems: no .tex files; expected one for each problem.")
    for problem in problems:
        if problem.stem not in schemes:
            raise TableError(
                f"{path}: no scheme with id `{problem.stem}`; expected one for each file of {folder}/problems."
            )
        solution = folder / "solutions" / problem.name
        yield {
            "problem": f"{folder.name}-{problem.stem}",
            "statement": _tex(problem),
            "solution": _tex(solution) if solution.exists() else None,
            "guidelines": record_fields.render(f"{path}: scheme {problem.stem}", schemes[problem.stem], "scheme"),
            "question_type": "proof",
            "origin": f"{folder.name}/problems/{problem.name}",
            "year": int(date[:4]) if re.match(r"\d{4}", date) else None,
            "date": date if re.fullmatch(r"\d{4}-\d\d-\d\d", date) else None,
        }


def _contest_table(entry: Problems) -> Iterator[Row]:
    """Yield a contest from its table as MathArena publishes it; the year is in its name."""
    path = require(entry.path)
    contest = Path(path.rpartition("@")[0] or path).stem
    year = _YEAR.search(contest)
    for where, record in files.records(entry):
        number = word(where, record, "problem_idx")
        yield {
            "problem": f"{contest}-{number}",
            "statement": text(where, record, "problem"),
            "solution": _optional(where, record, text, "sample_solution"),
            "guidelines": record_fields.render(where, record, "grading_scheme"),
            "question_type": "proof",
            "origin": where,
            "year": int(year[1]) if year else None,
        }


def _tex(path: Path) -> str:
    try:
        content = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path}: is not UTF-8 ({error.reason} at byte {error.start}); expected UTF-8. Convert it."
        ) from error
    except OSError as error:
        fault = f"cannot be read ({error.strerror})"
        raise TableError(f"{path}: {fault}; expected a contest folder of MathArena.") from error
    file_formats.check_texts(str(path), content, "text")
    return content


def _parse(path: Path, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(_tex(path))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise TableError(f"{path}: cannot be parsed ({error}); expected {path.suffix}. Fix the file.") from error


# ---------------------------------------------------------------------------------------------------- any other dataset

READ: dict[str, Callable] = {
    "problem": word, "statement": text, "solution": text, "answer": record_fields.answer, "candidates": texts,
    "guidelines": text, "question_type": text, "origin": word, "year": record_fields.year, "level": word,
    "tags": texts, "date": record_fields.day}  # fmt: skip


def _table(entry: Problems) -> Iterator[Row]:
    """Yield rows with the columns that `columns` maps; without a map, the columns with our names."""
    ids: dict[str, str] = {}
    if unknown := [column for column in entry.columns if column not in READ]:
        raise TableError(
            f"`columns` names `{unknown[0]}`, which no source fills; expected some of {among(unknown[0], READ)}"
        )
    for where, record in files.records(entry):
        mapped = {"statement": "statement", **(entry.columns or {name: name for name in READ if name in record})}
        row = {ours: READ[ours](where, record, theirs) for ours, theirs in mapped.items()}
        if entry.choices:
            options = [(text(where, record, column) or "").strip() for column in entry.choices]
            asked, letter = question_types.build_choice(row["statement"] or "", options, entry.seed, row.get("problem"))
            row |= {"statement": asked, "answer": letter, "question_type": "answer"}
        if row.get("question_type") not in (None, "proof", "answer", "code"):
            raise TableError(
                f"{where}: `{mapped['question_type']}` is {shorten(row['question_type'])}; expected `proof`, `answer` or `code`."
            )
        if (id := row.get("problem")) is not None and (before := ids.setdefault(id, where)) != where:
            raise TableError(
                f"{where}: `{mapped['problem']}` is {shorten(id)} as in {before}; expected each id once. "
                "Map another column to `problem`, or remove it: ids then come from the statements."
            )
        yield {"origin": where, **row}


# ------------------------------------------------------------------------------------------------------------- the list


@dataclass(frozen=True)
class Loader:
    """`load` yields the rows of an entry; `reads` are the fields it has, in addition to `keep` and others of all sources.

    `attempts` yields (problem, graded_proofs.GradedProof), if the source has any. A generator has `families` with bounds.
    """

    load: Callable[[Problems], Iterator[Row]]
    doc: str
    reads: frozenset[str]
    attempts: Callable[[Problems], Iterator[tuple[str, Any]]] | None = None
    families: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


_GENERATED = frozenset({"split", "families", "rows", "seed"})
_SIZED = _GENERATED | {"sizes"}
_FAMILIES = congruences.BOUNDS
_SELECTED = frozenset({"where", "every", "rows"})
_FILE = _SELECTED | {"path"}
_FILE_OR_HUB = _FILE | {"id", "commit", "subset", "split"}
_MAPPED = {"columns", "choices", "seed"}
_PROGRAMS = _FILE_OR_HUB | {"setup", "megabytes"}

SOURCES: dict[str, Loader] = {
    "arithmetic": Loader(generated.arithmetic, "the embedded family of congruences", _SIZED, None, _FAMILIES),
    "arithmetic-threads": Loader(generated.arithmetic_threads, "the same, as forum threads", _SIZED, None, _FAMILIES),
    "small-tasks": Loader(generated.small_tasks, "small tasks with short answers", _SIZED, None, small_tasks.BOUNDS),
    "small-proofs": Loader(generated.proofs, "small proofs, and their grading", _SIZED, None, small_proofs.BOUNDS),
    "tiny-programs": Loader(generated.tasks, "tasks about tiny programs", _GENERATED, None, generated.FAMILIES),
    "aops-threads": Loader(_aops_threads, "raw threads of the AoPS forum's API", _FILE),
    "aops": Loader(_aops, "AI-MO/aops_raw and AI-MO/aops", _FILE_OR_HUB),
    "harp": Loader(_harp, "HARP: proof problems of the USAMO and USAJMO", _FILE),
    "proofbench": Loader(_proofbench, "IMO-ProofBench and ProofBench", _FILE_OR_HUB),
    "answerbench": Loader(_answerbench, "IMO-AnswerBench", _FILE_OR_HUB),
    "gsm8k": Loader(_gsm8k, "GSM8K", _FILE_OR_HUB),
    "math": Loader(_math, "MATH (Hendrycks et al.)", _FILE_OR_HUB),
    "aime": Loader(_aime, "AIME", _FILE_OR_HUB),
    "matharena": Loader(_usamo, "a contest of MathArena: its folder, or its table on the hub", _FILE),
    "olympiadbench": Loader(_olympiadbench, "OlympiadBench", _FILE_OR_HUB),
    "graded-proofs": Loader(
        graded_proofs.problems, "proofs with human grades", _FILE_OR_HUB | {"columns"}, graded_proofs.attempts
    ),
    "arithmetic-graded": Loader(
        graded_proofs.problems, "flawed proofs of that family, with grades", _SIZED, graded_proofs.attempts, _FAMILIES
    ),
    "qed-nano": Loader(
        graded_proofs.problems, "runs of QED-Nano's evaluation, with grades", _FILE_OR_HUB, graded_proofs.attempts
    ),
    "inspect-logs": Loader(
        inspect_logs.problems, "evaluation logs of inspect_ai, with grades", _FILE | {"columns"}, inspect_logs.attempts
    ),
    "inspect-task": Loader(inspect_tasks.problems, "a single-turn task of inspect_ai", _FILE | {"id", "columns"}),
    GRADED: Loader(lambda entry: iter(()), "attempts of `grades`, to be graded", frozenset({"prompt", "rows"})),
    "code": Loader(coding.problems, "programming problems with tests, as open-r1 publishes them", _PROGRAMS),
    "humaneval": Loader(coding.humaneval, "HumanEval and HumanEval+", _FILE_OR_HUB),
    "mbpp": Loader(coding.mbpp, "MBPP and MBPP+", _FILE_OR_HUB),
    "livecodebench": Loader(coding.livecodebench, "LiveCodeBench: program generation", _PROGRAMS),
    "cruxeval-o": Loader(triplets.cruxeval("deduce"), "CRUXEval: output prediction", _FILE_OR_HUB),
    "cruxeval-i": Loader(triplets.cruxeval("abduce"), "CRUXEval: input prediction", _FILE_OR_HUB),
    "livecodebench-o": Loader(triplets.livecodebench("deduce"), "LiveCodeBench: output prediction", _FILE_OR_HUB),
    "livecodebench-i": Loader(triplets.livecodebench("abduce"), "LiveCodeBench: input prediction", _FILE_OR_HUB),
    "azr-deduce": Loader(triplets.azr("deduce"), "Absolute Zero's seeds: output prediction", _FILE),
    "azr-abduce": Loader(triplets.azr("abduce"), "Absolute Zero's seeds: input prediction", _FILE),
    "azr-induce": Loader(triplets.azr("induce"), "Absolute Zero's seeds: program induction", _FILE),
    "hub": Loader(_table, "any dataset of the hub", (_FILE_OR_HUB - {"path"}) | _MAPPED),
    "table": Loader(_table, "any JSONL, CSV, TSV or Parquet file", _FILE | _MAPPED),
}

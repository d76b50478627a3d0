"""Loaders: each yields the problems of a corpus, benchmark or generator, one at a time.

A loader yields dictionaries with the columns of `problems` that it knows, and an id of its own if the source has one.
Loaders judge nothing: they also yield rows without a statement, a solution or a year, and filters decide about these.
Files and datasets are streamed (files.py); mistakes in them end in one TableError with file and line.

From: the records of AI-MO/aops_raw and AI-MO/aops, the published benchmarks, and MathArena's structured schemes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from proofmill.arithmetic import congruences
from proofmill.runtime.paths import local_path
from proofmill.runtime.public_data import is_public
from proofmill.schema.entries import Problems
from proofmill.schema.errors import TableError, shown
from proofmill.schema.fields import required
from proofmill.sources import coding, fields, files, formats, generated, graded_proofs, inspect_logs, triplets
from proofmill.sources.fields import text, texts, word, words
from proofmill.sources.threads import thread
from proofmill.text import asks

Row = dict[str, Any]


def _first(where: str, record: Mapping, read: Callable, *columns: str) -> Any:
    """The value of the first of these columns that the record has; TableError names the first if it has none."""
    return read(where, record, next((c for c in columns if c in record), columns[0]))


def _optional(where: str, record: Mapping, read: Callable, *columns: str) -> Any:
    """The value of the first of these columns that the record has, or None."""
    return next((read(where, record, c) for c in columns if c in record), None)


# -------------------------------------------------------------------------------------------------------- forum threads


def _aops_threads(entry: Problems) -> Iterator[Row]:
    for where, record in files.records(entry):
        yield {**thread(where, record), "origin": f"aops/{word(where, record, 'topic_id')}"}


_YEAR = re.compile(r"(?<![0-9])(19[0-9]{2}|20[0-9]{2})(?![0-9])")


def _aops(entry: Problems) -> Iterator[Row]:
    """AI-MO/aops_raw (`path` at top level) and AI-MO/aops (`path` and hints under `metadata`)."""
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
            "asks": asks.asks(statement, solution, hints.get("end_of_proof") is True),
            "origin": path,
            "year": int(year[1]) if year else None,
            "tags": _optional(where, record, texts, "tags") or [],
        }


# ------------------------------------------------------------------------------------------ contests and answer corpora


def _harp(entry: Problems) -> Iterator[Row]:
    """Proof problems of the USAMO and USAJMO: the first human solution is the solution, the others are candidates."""
    for where, record in files.records(entry):
        names = sorted(
            (c for c in record if re.fullmatch(r"solution_\d{1,4}", c)), key=lambda c: int(c.rpartition("_")[2])
        )
        solutions = [s for name in names if (s := text(where, record, name))]
        contest, number = word(where, record, "contest"), word(where, record, "number")
        year = fields.year(where, record, "year")
        yield {
            "statement": text(where, record, "problem"),
            "solution": solutions[0] if solutions else None,
            "answer": _optional(where, record, word, "answer"),
            "candidates": solutions[1:],
            "asks": "answer" if _optional(where, record, word, "answer") else "proof",
            "origin": f"harp/{contest} {year} {number}",
            "year": year,
            "level": _optional(where, record, word, "level"),
            "tags": [subject] if (subject := _optional(where, record, word, "subject")) else [],
        }


def _proofbench(entry: Problems) -> Iterator[Row]:
    """IMO-ProofBench as CSV and as lm-provers/IMOProofBench; ProofBench, where guidelines are `grading_scheme`."""
    for where, record in files.records(entry):
        id = _optional(where, record, word, "Problem ID", "problem_id", "id")
        origin = _optional(where, record, word, "Source", "source")
        year = _YEAR.search(f"{origin or ''} {id or ''}")
        yield {
            "problem": id,
            "statement": _first(where, record, text, "Problem", "problem"),
            "solution": _first(where, record, text, "Solution", "solution"),
            "answer": _optional(where, record, word, "Short Answer", "short_answer") or None,
            "guidelines": _first(where, record, text, "Grading guidelines", "grading_guidelines", "grading_scheme"),
            "asks": "proof",
            "origin": origin or where,
            "year": int(year[1]) if year else None,
            "level": _optional(where, record, word, "Level", "level"),
            "tags": [category] if (category := _optional(where, record, word, "Category", "category")) else [],
        }


def _unquoted(cells: list[str]) -> list[str]:
    """Line 150 of the published answerbench_v2.csv lacks a quote after the statement: `<statement>\\n,<answer>"`."""
    statement, mark, answer = cells[1].rpartition("\n,") if len(cells) == 5 else ("", "", "")
    return [cells[0], statement, answer.rstrip('"'), *cells[2:]] if mark else cells


def _answerbench(entry: Problems) -> Iterator[Row]:
    for where, record in files.records(entry, _unquoted):
        origin = _optional(where, record, word, "Source", "source")
        year = _YEAR.search(origin or "")
        yield {
            "problem": _optional(where, record, word, "Problem ID", "problem_id", "id"),
            "statement": _first(where, record, text, "Problem", "problem"),
            "answer": _first(where, record, word, "Short Answer", "answer", "short_answer"),
            "asks": "answer",
            "origin": origin or where,
            "year": int(year[1]) if year else None,
            "tags": [
                t for name in ("Category", "Subcategory") if (t := _optional(where, record, word, name, name.lower()))
            ],
        }


def _gsm8k(entry: Problems) -> Iterator[Row]:
    """The answer stands after `####`; calculator notes `<<48/2=24>>` are taken out of the solution."""
    for where, record in files.records(entry):
        solution = text(where, record, "answer") or ""
        _, mark, answer = solution.rpartition("####")
        if not mark:
            raise TableError(f"{where}: `answer` has no `####`; expected the final answer after it. Is this GSM8K?")
        yield {
            "statement": text(where, record, "question"),
            "solution": re.sub(r"<<[^<>]*>>", "", solution).strip(),
            "answer": answer.strip().replace(",", ""),
            "asks": "answer",
            "origin": where,
        }


def _math(entry: Problems) -> Iterator[Row]:
    """Hendrycks' MATH; the answer is the last box of the solution where there is no column for it."""
    for where, record in files.records(entry):
        solution = text(where, record, "solution")
        subject = _optional(where, record, word, "type", "subject")
        yield {
            "statement": text(where, record, "problem"),
            "solution": solution,
            "answer": word(where, record, "answer") if "answer" in record else last_box(solution or ""),
            "asks": "answer",
            "origin": where,
            "level": word(where, record, "level"),
            "tags": [subject] if subject else [],
        }


def last_box(solution: str) -> str | None:
    """The content of the last `\\boxed{...}`, with braces balanced; None without one."""
    _, box, rest = solution.rpartition("\\boxed{")
    depth = 1
    for index, sign in enumerate(rest):
        depth += (sign == "{") - (sign == "}")
        if box and depth == 0:
            return rest[:index]
    return None


def _aime(entry: Problems) -> Iterator[Row]:
    for where, record in files.records(entry):
        origin = _optional(where, record, word, "url", "URL", "source")
        year = _YEAR.search(origin or "")
        yield {
            "problem": f"aime-{id}" if (id := _optional(where, record, word, "id", "ID")) else None,
            "statement": _first(where, record, text, "problem", "Problem", "question"),
            "solution": _optional(where, record, text, "solution", "Solution"),
            "answer": _first(where, record, word, "answer", "Answer"),
            "asks": "answer",
            "origin": origin or where,
            "year": int(year[1]) if year else _optional(where, record, fields.year, "year", "Year"),
        }


def _olympiadbench(entry: Problems) -> Iterator[Row]:
    """OlympiadBench: answers are a list (several where `is_multiple_answer`), solutions too; proofs have no answer."""
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
            "asks": "answer" if finals else "proof",
            "origin": _optional(where, record, word, "source") or where,
            "level": _optional(where, record, word, "difficulty"),
            "tags": [subject] if subject else [],
        }


# ----------------------------------------------------------------------------------------------------------- USAMO 2025


def _usamo(entry: Problems) -> Iterator[Row]:
    """A MathArena contest: a folder with problems/*.tex, solutions/*.tex, grading_scheme.json, config.yaml; or a table."""
    place = required(entry.path)
    folder = local_path(place)
    if is_public(place) or folder.is_file():
        yield from _contest_table(entry)
        return
    contest = _parsed(folder / "config.yaml", yaml.safe_load)
    date = str(contest.get("date")) if isinstance(contest, Mapping) else ""
    path = folder / "grading_scheme.json"
    listed = fields.records(str(path), {"schemes": _parsed(path, formats.parsed_json)}, "schemes")
    schemes = {word(str(path), scheme, "id"): scheme for scheme in listed}
    problems = sorted((folder / "problems").glob("*.tex"), key=lambda file: (len(file.stem), file.stem))
    if not problems:
        raise TableError(f"{folder}/problems: no .tex files; expected a file for each problem.")
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
            "guidelines": fields.rendered(f"{path}: scheme {problem.stem}", schemes[problem.stem], "scheme"),
            "asks": "proof",
            "origin": f"{folder.name}/problems/{problem.name}",
            "year": int(date[:4]) if re.match(r"\d{4}", date) else None,
        }


def _contest_table(entry: Problems) -> Iterator[Row]:
    """A contest's table as MathArena publishes it; the year stands in its name."""
    path = required(entry.path)
    year = _YEAR.search(path.rpartition("@")[0] or path)
    for where, record in files.records(entry):
        number = word(where, record, "problem_idx")
        yield {
            "problem": f"usamo_{year[1]}-{number}" if year else f"usamo-{number}",
            "statement": text(where, record, "problem"),
            "solution": _optional(where, record, text, "sample_solution"),
            "guidelines": fields.rendered(where, record, "grading_scheme"),
            "asks": "proof",
            "origin": where,
            "year": int(year[1]) if year else None,
        }


def _tex(path: Path) -> str:
    try:
        content = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path}: is no UTF-8 ({error.reason} at byte {error.start}); expected UTF-8. Convert it."
        ) from error
    except OSError as error:
        raise TableError(
            f"{path}: cannot be read ({error.strerror}); expected a contest folder as MathArena has it."
        ) from error
    formats.check_texts(str(path), content, "text")
    return content


def _parsed(path: Path, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(_tex(path))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise TableError(
            f"{path}: cannot be parsed ({error}); expected {path.suffix[1:].upper()}. Mend the file."
        ) from error


# ---------------------------------------------------------------------------------------------------- any other dataset

READ: dict[str, Callable] = {
    "problem": word, "statement": text, "solution": text, "answer": word, "candidates": texts, "guidelines": text,
    "asks": text, "origin": word, "year": fields.year, "level": word, "tags": texts,
}  # fmt: skip


def _mapped(entry: Problems) -> Iterator[Row]:
    """Columns as `columns` maps them; without a map, the columns that have our names."""
    ids: dict[str, str] = {}
    if unknown := [column for column in entry.columns if column not in READ]:
        known = ", ".join(READ)
        raise TableError(
            f"columns: `{unknown[0]}` is no column of `problems` that a source fills; expected some of {known}."
        )
    for where, record in files.records(entry):
        mapped = dict(entry.columns) or {column: column for column in READ if column in record}
        mapped.setdefault("statement", "statement")
        row = {ours: READ[ours](where, record, theirs) for ours, theirs in mapped.items()}
        if row.get("asks") not in (None, "proof", "answer"):
            raise TableError(f"{where}: `{mapped['asks']}` is {shown(row['asks'])}; expected `proof` or `answer`.")
        if (id := row.get("problem")) is not None and (before := ids.setdefault(id, where)) != where:
            raise TableError(
                f"{where}: `{mapped['problem']}` is {shown(id)} as in {before}; expected each id once. "
                "Map another column to `problem`, or none: ids then come from the statements."
            )
        yield {"origin": where, **row}


# ------------------------------------------------------------------------------------------------------------- the list


@dataclass(frozen=True)
class Source:
    """`load` yields the rows of an entry; `reads` are its own fields, besides `keep` and the others of all sources.

    `attempts`, for sources with attempts at the problems, yields (problem, graded_proofs.Attempt); a
    generator names its `families`.
    """

    load: Callable[[Problems], Iterator[Row]]
    doc: str
    reads: frozenset[str]
    attempts: Callable[[Problems], Iterator[tuple[str, Any]]] | None = None
    families: tuple[str, ...] = ()


_GENERATED = frozenset({"part", "families", "rows", "seed"})
_SIZED = _GENERATED | {"sizes"}
_SELECTED = frozenset({"where", "every", "rows"})
_FILE = _SELECTED | {"path"}
_FILE_OR_HUB = _FILE | {"id", "commit", "config", "split"}
_PROGRAMS = _FILE_OR_HUB | {"setup", "megabytes"}

SOURCES: dict[str, Source] = {
    "arithmetic": Source(
        generated.arithmetic, "the embedded family of congruences", _SIZED, families=congruences.FAMILIES
    ),
    "arithmetic-threads": Source(
        generated.arithmetic_threads,
        "the same problems as threads of an invented forum",
        _SIZED,
        families=congruences.FAMILIES,
    ),
    "tiny-programs": Source(
        generated.tasks, "tasks about tiny embedded programs", _GENERATED, None, generated.FAMILIES
    ),
    "aops-threads": Source(_aops_threads, "raw threads of the AoPS forum's API", _FILE),
    "aops": Source(_aops, "AI-MO/aops_raw and AI-MO/aops", _FILE_OR_HUB),
    "harp": Source(_harp, "HARP: proof problems of the USAMO and USAJMO", _FILE),
    "proofbench": Source(_proofbench, "IMO-ProofBench and ProofBench", _FILE_OR_HUB),
    "answerbench": Source(_answerbench, "IMO-AnswerBench", _FILE_OR_HUB),
    "gsm8k": Source(_gsm8k, "GSM8K", _FILE_OR_HUB),
    "math": Source(_math, "MATH (Hendrycks et al.)", _FILE_OR_HUB),
    "aime": Source(_aime, "AIME", _FILE_OR_HUB),
    "usamo": Source(_usamo, "a contest of MathArena, such as USAMO 2025: its folder, or its table on the hub", _FILE),
    "olympiadbench": Source(_olympiadbench, "OlympiadBench", _FILE_OR_HUB),
    "graded": Source(
        graded_proofs.problems, "proofs with human marks", _FILE_OR_HUB | {"columns"}, graded_proofs.attempts
    ),
    "arithmetic-graded": Source(
        graded_proofs.problems,
        "sloppy proofs of the embedded family, with marks",
        _SIZED,
        graded_proofs.attempts,
        families=congruences.FAMILIES,
    ),
    "qed-nano": Source(graded_proofs.problems, "runs of QED-Nano's evaluation", _FILE_OR_HUB, graded_proofs.attempts),
    "inspect-logs": Source(
        inspect_logs.problems, "evaluation logs of inspect_ai", _FILE | {"columns"}, inspect_logs.attempts
    ),
    "code": Source(coding.problems, "programming problems with tests, as open-r1 publishes them", _PROGRAMS),
    "humaneval": Source(coding.humaneval, "HumanEval and HumanEval+", _FILE_OR_HUB),
    "mbpp": Source(coding.mbpp, "MBPP and MBPP+", _FILE_OR_HUB),
    "livecodebench": Source(coding.livecodebench, "LiveCodeBench: write programs", _PROGRAMS),
    "cruxeval-o": Source(triplets.cruxeval("deduce"), "CRUXEval: predict the output", _FILE_OR_HUB),
    "cruxeval-i": Source(triplets.cruxeval("abduce"), "CRUXEval: predict an input", _FILE_OR_HUB),
    "livecodebench-o": Source(triplets.livecodebench("deduce"), "LiveCodeBench: predict the output", _FILE_OR_HUB),
    "livecodebench-i": Source(triplets.livecodebench("abduce"), "LiveCodeBench: predict an input", _FILE_OR_HUB),
    "azr-deduce": Source(triplets.azr("deduce"), "Absolute Zero's seeds, asked for outputs", _FILE),
    "azr-abduce": Source(triplets.azr("abduce"), "Absolute Zero's seeds, asked for inputs", _FILE),
    "azr-induce": Source(triplets.azr("induce"), "Absolute Zero's seeds, asked for programs", _FILE),
    "hub": Source(_mapped, "any dataset of the hub", (_FILE_OR_HUB - {"path"}) | {"columns"}),
    "table": Source(_mapped, "any JSONL, CSV, TSV or Parquet file", _FILE | {"columns"}),
}

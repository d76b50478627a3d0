"""Load, filter and decontaminate problems. One row is a problem, kept or dropped with the filter and its evidence.

Rows come from a source (sources/loaders.py) or from another `problems` table, whose dropped rows stay dropped.
The filters of `keep` apply in order. Then rows are compared with the benchmarks of `decontaminate`, or looked up in its
tables of overlaps, whose methods and judges thus drop rows too.

From: QED-Nano's data preparation and open-r1's decontamination.

Differences from the originals:
1. Ids come from the statement. So the labels, responses and grades of a row stay valid when earlier rows are added or
   removed. A benchmark's own ids are kept.
2. Decontamination reports the matched text and the benchmark's row (decontamination/similarity.py defines a match).
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import polars as pl

from proofmill.answers.verifier import Verifier
from proofmill.artifacts import jobs, joins
from proofmill.artifacts.contents import ROW_GROUP
from proofmill.artifacts.jobs import Job
from proofmill.artifacts.joins import ById
from proofmill.filters import problem_filters
from proofmill.filters.remembering_filters import Decontamination
from proofmill.graders import verifiers
from proofmill.graders.code_grading import state_tests
from proofmill.graders.submissions import OF_PROBLEM, Submission
from proofmill.prompts import templates
from proofmill.public_data.locations import local_path
from proofmill.runtime.progress import Progress, log
from proofmill.schema.columns import COLUMNS
from proofmill.schema.entries.problem_entries import GRADED, Problems
from proofmill.schema.errors import TableError
from proofmill.schema.fields import require
from proofmill.schema.ids import digest
from proofmill.schema.names import kind_of, without_seed
from proofmill.schema.reasons import Reason
from proofmill.sources.loaders import SOURCES
from proofmill.text import question_types, statements
from proofmill.text.seen_texts import Seen, Values, hash64

BATCH = 5_000  # rows held as Python objects
SCHEMA = {name: dtype for name, (dtype, _) in COLUMNS["problems"].items()}
LISTS = [name for name, dtype in SCHEMA.items() if isinstance(dtype, pl.List)]


def main(entry: Problems, job: Job) -> None:
    counts: dict[str, int] = {}
    loader = job.parent(entry.source).stamp.get("loader") if "/" in entry.source else entry.source
    with _verifier(entry) as verifier:
        rows = _count(_filter(entry, job, _rows(entry, job), verifier), entry, job, counts)
        job.finish(_frames(rows), counts, loader=loader)


def _frames(rows: Iterator[dict]) -> Iterator[pl.DataFrame]:
    """Yield frames of ROW_GROUP rows, cut from frames of BATCH rows; the layout and digest of a frame depend on both."""
    held = pl.DataFrame(schema=SCHEMA)
    while batch := list(islice(rows, BATCH)):
        frame = pl.DataFrame(batch, schema=SCHEMA, orient="row")
        held = pl.concat([held, frame]) if held.height else frame
        while held.height >= ROW_GROUP:
            yield held[:ROW_GROUP]
            held = held[ROW_GROUP:]
    if held.height:
        yield held


def _count(rows: Iterator[dict], entry: Problems, job: Job, counts: dict[str, int]) -> Iterator[dict]:
    """Yield the rows. After the last, `counts` has the number kept, then the number each filter dropped, largest first."""
    total = entry.rows  # the length of a file is unknown before its end
    if "/" in entry.source:
        available = job.parent(entry.source).scan().select(pl.len()).collect().item()
        total = min(available, entry.rows or available)
    progress, outcomes = Progress(job.name, total), Counter[str]()
    for row in rows:
        outcomes[row["dropped"] or "kept"] += 1
        progress.add()
        yield row
    progress.close()
    if not outcomes and entry.where:
        raise TableError(
            f"{job.name}: `where` selects no row of source `{entry.source}`; expected at least one. Check its values, "
            "also their letter case."
        )
    if not outcomes:
        raise TableError(
            f"{job.name}: source `{entry.source}` has no rows; expected at least one. Check `path` and `split`."
        )
    counts.update({"kept": outcomes.pop("kept", 0), **dict(outcomes.most_common())})


# ------------------------------------------------------------------------------------------------------------- sources


def _rows(entry: Problems, job: Job) -> Iterator[dict]:
    """Yield the rows of the source, then the kept rows of the `also` tables; each problem occurs once."""
    rows: Iterator[dict]
    if "/" in entry.source:
        rows = islice(job.parent(entry.source).stream(), entry.rows)
    else:
        loaded = _attempts(entry, job) if entry.source == GRADED else SOURCES[entry.source].load(entry)
        rows = _with_ids(_without_folder(islice(loaded, entry.rows), entry))
    if entry.date:
        rows = ({**row, "date": row["date"] or str(entry.date)} for row in rows)
    if entry.also:
        rows = _once(rows, [(name, job.parent(name).stream()) for name in entry.also])
    return ({**row, "question_type": entry.question_type} for row in rows) if entry.question_type else rows


OF_RESPONSE = ("attempt", "text", "reasoning", "stop_reason", "reason")
OF_GRADE = ("grade", "max_points", "reason", "verdict")


def _attempts(entry: Problems, job: Job) -> Iterator[dict]:
    """Yield a problem for each graded attempt: to grade it as a judge.

    Ids name table, problem and attempt, so that seeds of `repeat` have the same.
    """
    prompt, grades = templates.prompt(require(entry.prompt)), require(entry.grades)
    responses = job.parent(grades).stamp["entry"]["responses"]
    schemes = ById(job.parent(entry.schemes), "problem", "scheme", "dropped") if entry.schemes else {}
    of_problem = (*OF_PROBLEM, "level", "year", "tags", "date")
    for response, problem, grade in joins.attempts(job.parent, responses, OF_RESPONSE, of_problem, grades, OF_GRADE):
        submission = Submission.of(response, problem, schemes.get(response["problem"]))
        shared = {name: problem[name] for name in ("level", "year", "tags", "date")}
        id = digest(without_seed(grades), response["problem"], response["attempt"])
        own = {"problem": id, "question_type": "answer", "origin": f"{grades}#{response['problem']}"}
        yield {**shared, **own, **verifiers.to_problem(grades, prompt, submission, require(grade))}


def _once(own: Iterator[dict], further: list[tuple[str, Iterator[dict]]]) -> Iterator[dict]:
    """Yield own rows, then the kept rows of further tables that are new. Raises TableError if two problems share an id."""
    ids, stated = Seen(), array("Q")  # by number of an id, a digest of its statement
    for row in own:
        ids.add(row["problem"])
        stated.append(_has_statement(row))
        yield row
    for name, rows in further:
        for row in rows:
            if row["dropped"] is not None:
                continue
            number = ids.add(row["problem"])
            if number == len(stated):
                stated.append(_has_statement(row))
                yield row
            elif stated[number] != _has_statement(row):
                raise TableError(
                    f"{name}: its problem `{row['problem']}` has the id of another problem; expected each id once. Derive ids "
                    "from the statements in one of the tables: map no column to `problem`."
                )


def _has_statement(row: Mapping[str, Any]) -> int:
    return hash64(statements.normal(row["statement"] or ""))


def _without_folder(rows: Iterator[Mapping[str, Any]], entry: Problems) -> Iterator[Mapping[str, Any]]:
    """Strip the local folder from `origin`, so that the rows are the same on every machine."""
    folder = f"{local_path(entry.path).parent}/" if entry.path else ""
    for row in rows:
        yield {**row, "origin": row["origin"].removeprefix(folder)} if folder and row.get("origin") else row


def _with_ids(raw: Iterator[Mapping[str, Any]]) -> Iterator[dict]:
    """Yield rows with every column and an id: their own, or one from the statement, with `-2`, `-3` if it repeats."""
    own, derived, times = Seen(), Seen(), array("I")  # by number of a derived id, its occurrences
    for values in raw:
        row = {**{name: [] if name in LISTS else None for name in SCHEMA}, **values}
        row["question_type"] = row["question_type"] or question_types.asks(row["statement"], row["solution"])
        if row["problem"] is None:
            id = digest(statements.normal(row["statement"] or ""))
            if (number := derived.add(id)) == len(times):
                times.append(0)
            times[number] += 1
            row["problem"] = id if times[number] == 1 else f"{id}-{times[number]}"
        elif not own.is_new(row["problem"]):
            raise TableError(
                f"{row['origin']}: the id `{row['problem']}` occurs a second time; expected each id once. "
                "Map another column to `problem`, or none, which derives ids from the statements."
            )
        yield row


# ------------------------------------------------------------------------------------------------------------ filtering


def _verifier(entry: Problems) -> AbstractContextManager[Verifier | None]:
    """Start the process that parses final answers, if a filter needs one."""
    needed = "has-parsable-answer" in entry.keep and entry.question_type != "code"
    return Verifier(1) if needed else nullcontext()


def _filter(entry: Problems, job: Job, rows: Iterator[dict], verifier: Verifier | None) -> Iterator[dict]:
    filters = list(problem_filters.ready(entry.keep))
    remembering = [apply for _, apply in filters if hasattr(apply, "remember")]
    if entry.decontaminate:
        filters.append(("decontaminate", _benchmarks(entry, job)))
    labels, schemes, rates = _labels(entry, job), _schemes(entry, job), _rates(entry, job)
    for row in rows:
        if row["dropped"] is None:
            known = {**row, "label": labels.get(row["problem"]), "rate": rates.get(row["problem"])}
            known["scheme"] = schemes.get(row["problem"])
            known["fault"] = verifier and verifier.fault
            if refusal := problem_filters.refusal(known, filters):
                name, evidence, matched = refusal
                where = matched if matched is None or "#" in matched else f"{job.name}#{matched}"
                row = {**row, "dropped": name, "evidence": evidence, "matched": where}
            else:
                row = _with_tests(row, entry)
                for apply in remembering if row["dropped"] is None else ():
                    apply.remember(row)
        yield row


def _with_tests(row: dict, entry: Problems) -> dict:
    """Return a row with its tests as they are graded, or dropped. Raises TableError if it may not be dropped."""
    was_read = "/" in entry.source and entry.question_type is None
    if row["question_type"] != "code" or not row["answer"] or was_read:
        return row
    try:
        return {**row, "answer": state_tests(row["answer"])}
    except ValueError as error:
        if "has-parsable-answer" in entry.keep:
            return {**row, "dropped": "has-parsable-answer", "evidence": str(error)}
        raise TableError(
            f"{row['origin']}: problem `{row['problem']}`: {error} Or drop such rows with `keep: [has-parsable-answer]`."
        ) from error


def _benchmarks(entry: Problems, job: Job) -> Decontamination:
    apart, undecided = Decontamination(entry.overlap_words, entry.overlap_similarity), 0
    for name in entry.decontaminate:
        if kind_of(name) == "overlaps":
            for row in job.parent(name).stream():
                undecided += row["reason"] != Reason.OK
                apart.add_match(row)
            continue
        for row in job.parent(name).rows("problem", "statement"):
            apart.add(f"{name}#{row['problem']}", row["statement"] or "")
    if undecided:
        job.notices.append(f"{undecided:,} pairs that no judge decided (`reason` in overlaps) drop no row")
        log(job.name, job.notices[-1])
    return apart


def _labels(entry: Problems, job: Job) -> Mapping[str, dict]:
    if entry.labels is None:
        return {}
    columns = [name for name in COLUMNS["labels"] if name not in ("problem", "verdict", "cost")]
    return ById(job.parent(entry.labels), "problem", *columns)


def _schemes(entry: Problems, job: Job) -> Mapping[str, dict]:
    if entry.schemes is None:
        return {}
    return ById(job.parent(entry.schemes), "problem", "scheme", "faults", "self_test", "reason", "dropped")


def _rates(entry: Problems, job: Job) -> Values:
    """Return the mean grade of each problem as a share of all points, over its graded attempts."""
    if entry.grades is None:
        return Values()
    return Values(joins.mean_grades(job.parent(entry.grades)))


if __name__ == "__main__":
    jobs.run(main)

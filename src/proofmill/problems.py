"""One row of `problems` is a problem, kept or dropped with the filter that refused it, its evidence and its match.

Rows come from a source (sources/loaders.py) or from another `problems` table, whose dropped rows stay as they were.
They pass the filters in the order of `keep` and are then compared with the benchmarks of `apart-from`.

From: QED-Nano's data preparation and open-r1's decontamination.

How we differ:
1. Ids come from the statement, so the labels, responses and grades of a row are found again when rows before it come or
   go. A benchmark's own ids are kept.
2. Decontamination shows the matched text and the benchmark's row (contamination/similarity.py says what counts).
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import polars as pl

from proofmill.artifacts import jobs
from proofmill.artifacts.contents import ROW_GROUP
from proofmill.artifacts.jobs import Job
from proofmill.artifacts.joins import ById
from proofmill.filters import problems
from proofmill.filters.problems import ApartFrom
from proofmill.graders.verifier import Verifier
from proofmill.runtime.paths import local_path
from proofmill.runtime.progress import Progress
from proofmill.schema.columns import COLUMNS
from proofmill.schema.entries import Problems
from proofmill.schema.errors import TableError
from proofmill.schema.ids import digest
from proofmill.sources.loaders import SOURCES
from proofmill.text import asks, statements
from proofmill.text.seen import Seen, Values, hash64

BATCH = 5_000  # rows held as Python objects
SCHEMA = {name: dtype for name, (dtype, _) in COLUMNS["problems"].items()}
LISTS = [name for name, dtype in SCHEMA.items() if isinstance(dtype, pl.List)]


def main(entry: Problems, job: Job) -> None:
    counts: dict[str, int] = {}
    loader = job.parent(entry.source).stamp.get("loader") if "/" in entry.source else entry.source
    with _verifier(entry) as verifier:
        rows = _counted(_filtered(entry, job, _rows(entry, job), verifier), entry, job, counts)
        job.finish(_frames(rows), counts, loader=loader)


def _frames(rows: Iterator[dict]) -> Iterator[pl.DataFrame]:
    """Rows as the table takes them, cut from frames of BATCH rows: polars lays out, and so digests, rows by their frame."""
    held = pl.DataFrame(schema=SCHEMA)
    while batch := list(islice(rows, BATCH)):
        made = pl.DataFrame(batch, schema=SCHEMA, orient="row")
        held = pl.concat([held, made]) if held.height else made
        while held.height >= ROW_GROUP:
            yield held[:ROW_GROUP]
            held = held[ROW_GROUP:]
    if held.height:
        yield held


def _counted(rows: Iterator[dict], entry: Problems, job: Job, counts: dict[str, int]) -> Iterator[dict]:
    """The rows; after the last `counts` has those that were kept, then those of each filter, most first."""
    total = entry.rows  # the length of a file is unknown before its end
    if "/" in entry.source:
        available = job.parent(entry.source).scan().select(pl.len()).collect().item()
        total = min(available, entry.rows or available)
    progress, found = Progress(job.name, total), Counter[str]()
    for row in rows:
        found[row["dropped"] or "kept"] += 1
        progress.add()
        yield row
    progress.close()
    if not found:
        raise TableError(
            f"{job.name}: source `{entry.source}` has no rows; expected at least one. Check `path`, `split` and `part`."
        )
    counts.update({"kept": found.pop("kept", 0), **dict(found.most_common())})


# ------------------------------------------------------------------------------------------------- where rows come from


def _rows(entry: Problems, job: Job) -> Iterator[dict]:
    """The rows of the source, then the kept rows of the `also` tables; each problem comes once."""
    rows: Iterator[dict]
    if "/" in entry.source:
        rows = islice(job.parent(entry.source).stream(), entry.rows)
    else:
        loaded = _without_folder(islice(SOURCES[entry.source].load(entry), entry.rows), entry)
        rows = _with_ids(loaded)
    if entry.also:
        rows = _once(rows, [(name, job.parent(name).stream()) for name in entry.also])
    return ({**row, "asks": entry.asks} for row in rows) if entry.asks else rows


def _once(own: Iterator[dict], further: list[tuple[str, Iterator[dict]]]) -> Iterator[dict]:
    """Own rows, then the kept rows of further tables; a problem of several tables comes once, in the first of them.

    Raises TableError when two problems have one id.
    """
    ids, stated = Seen(), array("Q")  # by number of an id, a digest of its statement
    for row in own:
        ids.add(row["problem"])
        stated.append(_stated(row))
        yield row
    for name, rows in further:
        for row in rows:
            if row["dropped"] is not None:
                continue
            number = ids.add(row["problem"])
            if number == len(stated):
                stated.append(_stated(row))
                yield row
            elif stated[number] != _stated(row):
                raise TableError(
                    f"{name}: its problem `{row['problem']}` has the id of another problem; expected each id once. Let ids come "
                    "from the statements in one of the tables: map no column to `problem`."
                )


def _stated(row: Mapping[str, Any]) -> int:
    return hash64(statements.normal(row["statement"] or ""))


def _without_folder(rows: Iterator[Mapping[str, Any]], entry: Problems) -> Iterator[Mapping[str, Any]]:
    """Strip the local folder from `origin`, so that the rows are the same on every machine."""
    folder = f"{local_path(entry.path).parent}/" if entry.path else ""
    for row in rows:
        yield {**row, "origin": row["origin"].removeprefix(folder)} if folder and row.get("origin") else row


def _with_ids(raw: Iterator[Mapping[str, Any]]) -> Iterator[dict]:
    """Rows with every column and an id: their own, or one from the statement, with `-2`, `-3` if it repeats."""
    own, derived, times = Seen(), Seen(), array("I")  # by number of a derived id, how often it came
    for values in raw:
        row = {**{name: [] if name in LISTS else None for name in SCHEMA}, **values}
        row["asks"] = row["asks"] or asks.asks(row["statement"], row["solution"])
        if row["problem"] is None:
            id = digest(statements.normal(row["statement"] or ""))
            if (number := derived.add(id)) == len(times):
                times.append(0)
            times[number] += 1
            row["problem"] = id if times[number] == 1 else f"{id}-{times[number]}"
        elif not own.is_new(row["problem"]):
            raise TableError(
                f"{row['origin']}: the id `{row['problem']}` occurs a second time; expected each id once. "
                "Map another column to `problem`, or none: ids then come from the statements."
            )
        yield row


# ------------------------------------------------------------------------------------------------------------ filtering


def _verifier(entry: Problems) -> AbstractContextManager[Verifier | None]:
    """Start the process that reads right answers, if a filter needs one."""
    return Verifier(1) if "has-readable-answer" in entry.keep else nullcontext()


def _filtered(entry: Problems, job: Job, rows: Iterator[dict], verifier: Verifier | None) -> Iterator[dict]:
    filters = list(problems.ready(entry.keep))
    remembering = [apply for _, apply in filters if hasattr(apply, "remember")]
    if entry.apart_from:
        filters.append(("apart-from", _benchmarks(entry, job)))
    labels, schemes, rates = _labels(entry, job), _schemes(entry, job), _rates(entry, job)
    for row in rows:
        if row["dropped"] is None:
            known = {**row, "label": labels.get(row["problem"]), "rate": rates.get(row["problem"])}
            known["scheme"] = schemes.get(row["problem"])
            known["fault"] = verifier and verifier.fault
            if refusal := problems.refusal(known, filters):
                name, evidence, matched = refusal
                where = matched if matched is None or "#" in matched else f"{job.name}#{matched}"
                row = {**row, "dropped": name, "evidence": evidence, "matched": where}
            else:
                for apply in remembering:
                    apply.remember(row)
        yield row


def _benchmarks(entry: Problems, job: Job) -> ApartFrom:
    apart = ApartFrom(entry.overlap_words, entry.overlap_similarity)
    for name in entry.apart_from:
        for row in job.parent(name).rows("problem", "statement"):
            apart.add(f"{name}#{row['problem']}", row["statement"] or "")
    return apart


def _labels(entry: Problems, job: Job) -> Mapping[str, dict]:
    if entry.labels is None:
        return {}
    columns = [name for name in COLUMNS["labels"] if name not in ("problem", "verdict", "cost")]
    return ById(job.parent(entry.labels), "problem", *columns)


def _schemes(entry: Problems, job: Job) -> Mapping[str, dict]:
    if entry.schemes is None:
        return {}
    return ById(job.parent(entry.schemes), "problem", "scheme", "faults", "tested", "reason", "dropped")


def _rates(entry: Problems, job: Job) -> Values:
    """Mean share of full marks of each problem over its attempts that have a grade."""
    if entry.grades is None:
        return Values()
    graded = job.parent(entry.grades).scan().filter(pl.col("grade").is_not_null() & pl.col("grade").is_not_nan())
    mean = graded.group_by("problem").agg((pl.col("grade") / pl.col("out_of")).mean().alias("rate"))
    return Values(mean.select("problem", "rate").collect().iter_rows())


if __name__ == "__main__":
    jobs.run(main)

"""Joins of tables: responses with their problems and verdicts, problems with their schemes.

Difference from a join of two frames: one table is read in order. Of the other, memory holds only a few windows of rows
and some bytes per id. Tables made from each other have the same order, so each row is read once. If the orders differ,
the other table is copied to a temporary file with random access.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from proofmill.artifacts.tables import Table
from proofmill.runtime.temporary_rows import Spilled
from proofmill.schema.errors import TableError
from proofmill.text.seen_texts import Seen

WINDOW = 2048  # rows read at once
BACK = 16  # rereads of an earlier window before the orders count as different
TableOf = Callable[[str], Table]  # a table by its name, such as `Job.parent`


class GradedResponse(NamedTuple):
    """A row of `responses` with the rows that belong to it."""

    response: dict[str, Any]
    problem: dict[str, Any]
    grade: dict[str, Any] | None  # None without a grades table


class ById(Mapping[str, dict[str, Any]]):
    """Rows of a table by id, dropped ones included: 14 to 20 bytes of memory per row, and a few windows of rows."""

    def __init__(self, table: Table, id: str, *columns: str):
        """Read the ids from the column `id`, where each occurs once; `columns` are read with it."""
        self._table, self._id, self._columns = table, id, columns
        self._places = Seen()
        for row in table.stream(id):
            self._places.add(row[id])
        self._window = lru_cache(maxsize=4)(self._read)
        self._last, self._back = 0, 0
        self._copied: Spilled | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return (row[self._id] for row in self._table.stream(self._id))

    def __getitem__(self, id: str) -> dict[str, Any]:
        if (place := self._places.find(id)) is None:
            raise KeyError(id)
        if self._copied is None and self._back > BACK:
            self._copied = Spilled(self._table.stream(self._id, *self._columns))
        return self._copied[place] if self._copied else self._window(place // WINDOW)[place % WINDOW]

    def _read(self, window: int) -> list[dict[str, Any]]:
        self._back += window < self._last
        self._last = window
        places = range(window * WINDOW, min((window + 1) * WINDOW, len(self)))
        return self._table.at(places, self._id, *self._columns).to_dicts()


def problems_of(table_of: TableOf, responses: str) -> str:
    """Return the name of the problems table that a responses table was made from."""
    return table_of(responses).stamp["entry"]["problems"]


def attempts(
    table_of: TableOf,
    responses: str,
    response_columns: Sequence[str],
    problem_columns: Sequence[str],
    grades: str | None = None,
    grade_columns: Sequence[str] = (),
) -> Iterator[GradedResponse]:
    """Yield the rows of a responses table in order, each with its problem, and its verdict from the table `grades`.

    Reads only the ids and the named columns; without `grade_columns`, all columns of `grades`. Grades have the order of
    their responses. Raises TableError if a problem or a verdict is missing.
    """
    name = problems_of(table_of, responses)
    problems = ById(table_of(name), "problem", *problem_columns)
    rows = table_of(responses).stream("response", "problem", *response_columns)
    graded = table_of(grades).stream(*(["response", *grade_columns] if grade_columns else [])) if grades else None
    for response in rows:
        if (problem := problems.get(response["problem"])) is None:
            raise TableError(
                f"{responses}: the problem {response['problem']} is not in {name}; expected responses to its rows. Rebuild the "
                f"responses: snakemake {responses} --forcerun {responses}"
            )
        grade = next(graded, None) if graded else None
        if grades and (grade is None or grade["response"] != response["response"]):
            raise TableError(
                f"{grades}: has no verdict on {response['response']}; expected one on each of {responses}, in their order. "
                f"Rebuild the grades: snakemake {grades} --forcerun {grades}"
            )
        yield GradedResponse(response, problem, grade)


def schemes_of(table_of: TableOf, name: str | None) -> dict[str, str]:
    """Return the kept schemes of a table by problem; empty without a table."""
    rows = table_of(name).rows("problem", "scheme") if name else ()
    return {row["problem"]: row["scheme"] for row in rows if row["scheme"]}


def mean_grades(grades: Table) -> Iterator[tuple[str, float]]:
    """Yield the problems of a table of grades, each with the mean of its grades as a share of all points."""
    graded = grades.scan().filter(pl.col("grade").is_not_null() & pl.col("grade").is_not_nan())
    mean = graded.group_by("problem", maintain_order=True).agg((pl.col("grade") / pl.col("max_points")).mean())
    yield from mean.select("problem", "grade").collect().iter_rows()


def lenders_of(responses: Table) -> list[Path]:
    """Return the journal of a table of responses that were graded while they were sampled; none of another table."""
    return [responses.calls] if responses.stamp["entry"].get("until") else []

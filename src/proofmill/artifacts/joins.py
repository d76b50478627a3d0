"""Joins of tables: attempts with their problems and verdicts, problems with their schemes.

How we differ from a join of two frames: one table is read in its order, and of the other only the rows around those that
were asked for last are in memory, besides some bytes for each id. Tables that were made from each other have one order,
so that each row is read once. Where they have not, the other is copied to a temporary file, in which a row is found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from proofmill.artifacts.tables import Table
from proofmill.runtime.spilled import Spilled
from proofmill.schema.errors import TableError
from proofmill.text.seen import Seen

WINDOW = 2048  # rows read at once
BACK = 16  # times that an earlier window is read again, until the order is believed to be another
TableOf = Callable[[str], Table]  # a table by its name, such as `Job.parent`


class Attempt(NamedTuple):
    """A row of `responses` with the rows that belong to it."""

    response: dict[str, Any]
    problem: dict[str, Any]
    grade: dict[str, Any] | None  # None without a grades table


class ById(Mapping[str, dict[str, Any]]):
    """The rows of a table by their ids, dropped ones too: 14 to 20 bytes for each in memory, and some windows of rows."""

    def __init__(self, table: Table, id: str, *columns: str):
        """`id` is the column with the ids, each of which occurs once; the named columns are read besides it."""
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
    """The problems table that a responses table was made from."""
    return table_of(responses).stamp["entry"]["problems"]


def attempts(
    table_of: TableOf,
    responses: str,
    response_columns: Sequence[str],
    problem_columns: Sequence[str],
    grades: str | None = None,
    grade_columns: Sequence[str] = (),
) -> Iterator[Attempt]:
    """The rows of a responses table in order, each with its problem, and with its verdict from the table `grades`.

    Only the ids and the named columns of each table are read; without `grade_columns`, all columns of `grades`. Grades
    have the order of their responses. Raises TableError when a problem or a verdict is missing.
    """
    name = problems_of(table_of, responses)
    problems = ById(table_of(name), "problem", *problem_columns)
    rows = table_of(responses).stream("response", "problem", *response_columns)
    graded = table_of(grades).stream(*(["response", *grade_columns] if grade_columns else [])) if grades else None
    for response in rows:
        if (problem := problems.get(response["problem"])) is None:
            raise TableError(
                f"{responses}: the problem {response['problem']} is not in {name}; expected responses to its rows. Make the "
                "responses again."
            )
        grade = next(graded, None) if graded else None
        if grades and (grade is None or grade["response"] != response["response"]):
            raise TableError(
                f"{grades}: has no verdict on {response['response']}; expected one on each of {responses}, in their order. Make "
                "the grades again."
            )
        yield Attempt(response, problem, grade)


def schemes_of(table_of: TableOf, name: str | None) -> dict[str, str]:
    """The kept schemes of a table by problem; none without a table."""
    rows = table_of(name).rows("problem", "scheme") if name else ()
    return {row["problem"]: row["scheme"] for row in rows if row["scheme"]}

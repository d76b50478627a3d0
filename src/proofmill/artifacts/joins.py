"""Joins of tables: attempts with their problems and verdicts, problems with their schemes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from proofmill.artifacts.tables import Table
from proofmill.schema.errors import TableError

TableOf = Callable[[str], Table]  # a table by its name, such as `Job.parent`


class Attempt(NamedTuple):
    """A row of `responses` with the rows that belong to it."""

    response: dict[str, Any]
    problem: dict[str, Any]
    grade: dict[str, Any] | None  # None without a grades table


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

    Only the ids and the named columns of each table are read; without `grade_columns`, all columns of `grades`.
    Responses and grades are streamed: grades have the order of their responses. Raises TableError when a problem or a
    verdict is missing.
    """
    name = problems_of(table_of, responses)
    problems = {row["problem"]: row for row in table_of(name).stream("problem", *problem_columns)}
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

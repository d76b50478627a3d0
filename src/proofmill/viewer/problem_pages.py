"""Collect the page of a problem: statement, reference, scheme, and the attempts of several tables with their verdicts.

Also lists the attempts whose grades by two graders differ most.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from proofmill.artifacts.tables import Table
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.kinds import KINDS
from proofmill.text.suggestions import among
from proofmill.viewer.tables.joined_rows import read_matching

MOST = 12  # attempts of a table on a page
DEFAULT_TABLES = 2  # tables on a page, unless the reader chooses
BRIEF_RESPONSE = ("response", "attempt", "stop_reason", "reason")
BRIEF_GRADE = (*BRIEF_RESPONSE, "grade", "max_points")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class AttemptView:
    """An attempt with its verdict, if it was graded."""

    response: Row
    grade: Row | None
    human: Row | None  # the last grade that a person entered


@dataclass(frozen=True)
class Column:
    """The attempts at a problem in one table, graded or not."""

    table: str
    model: str
    grader: str  # empty if they are not graded
    attempts: list[AttemptView]
    more: int  # attempts beyond MOST
    max_points: int


@dataclass(frozen=True)
class ProblemPage:
    problems: str
    row: Row
    scheme: Row | None
    schemes: str | None
    columns: list[Column]
    tables: list[str]  # with attempts at the problems of this table
    before: str | None
    after: str | None
    place: int
    of: int
    labels: dict[str, Row] = field(default_factory=dict)
    strip: list[tuple[str, str, list[Row]]] = field(default_factory=list)  # table, model, and all attempts in brief


def entries(results: Path) -> dict[str, Row]:
    """Return the entry of each table in results, by name, without half-written or damaged tables."""
    entries = {}
    for kind in KINDS:
        for path in sorted((results / kind).glob("*.parquet")):
            name = f"{kind}/{path.stem}"
            try:
                about = path.stat()
                entries[name] = _entry(name, results, about.st_mtime_ns, about.st_size)
            except (TableError, OSError):
                continue
    return entries


@lru_cache(maxsize=4096)
def _entry(name: str, results: Path, *_: int) -> Row:
    return Table(name, results).stamp["entry"]


def with_attempts(entries: Mapping[str, Row], problems: str) -> list[str]:
    """Return the tables with attempts at a table's problems: grades, then ungraded responses, then graded ones."""
    responses = [
        name for name, entry in entries.items() if name.startswith("responses/") and entry["problems"] == problems
    ]
    grades = [name for name, entry in entries.items() if name.startswith("grades/") and entry["responses"] in responses]
    graded = {entries[name]["responses"] for name in grades}
    return [*grades, *sorted(responses, key=lambda name: name in graded)]


def page(
    results: Path,
    problems: str,
    problem: str,
    chosen: Sequence[str],
    human: Mapping[str, Row],
    most: int | None = MOST,
) -> ProblemPage:
    """Return a problem with `most` attempts of each chosen table.

    `human` has the grades that people entered, by response. Raises SettingError for an unknown problem or table.
    """
    table, by_name = Table(problems, results), entries(results)
    ids = table.scan().select("problem", "dropped").collect()
    kept = ids.filter(pl.col("dropped").is_null())["problem"].to_list()
    order = kept if problem in kept else ids["problem"].to_list()
    if problem not in order:
        raise SettingError(
            f"{problems}: has no problem {problem}; expected one of its ids. Open the table and choose a row."
        )
    tables = with_attempts(by_name, problems)
    if unknown := [name for name in chosen if name not in tables]:
        raise SettingError(f"{unknown[0]}: has no attempts at {problems}; expected one of {among(unknown[0], tables)}")
    shown = list(chosen) or tables[:DEFAULT_TABLES]
    place = order.index(problem)
    schemes = next((by_name[name].get("schemes") for name in shown if by_name[name].get("schemes")), None)
    schemes = schemes or next(
        (n for n, e in by_name.items() if n.startswith("schemes/") and e["problems"] == problems), None
    )
    labels = [name for name, entry in by_name.items() if name.startswith("labels/") and entry["problems"] == problems]
    columns = [_column(results, by_name, name, problem, human, most) for name in shown]
    return ProblemPage(
        problems=problems,
        row=_row(results, problems, problem) or {},
        scheme=_row(results, schemes, problem) if schemes else None,
        schemes=schemes,
        columns=columns,
        tables=tables,
        before=order[place - 1] if place else None,
        after=order[place + 1] if place + 1 < len(order) else None,
        place=place + 1,
        of=len(order),
        labels={name: row for name in labels if (row := _row(results, name, problem)) is not None},
        strip=list(_strip(results, by_name, tables, problem, columns)),
    )


def _strip(
    results: Path, entries: Mapping[str, Row], tables: Sequence[str], problem: str, shown: Sequence[Column]
) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield table, model and attempts of each table; of responses only if they have no grades."""
    complete = {column.table: column.attempts for column in shown if not column.more}
    graded = {entries[name].get("responses") for name in tables}
    for name in tables:
        if name in complete:
            rows = [{**each.response, **(each.grade or {})} for each in complete[name]]
        elif name not in graded:
            columns = BRIEF_GRADE if name.startswith("grades/") else BRIEF_RESPONSE
            rows = read_matching(Table(name, results), "problem", [problem], *columns)
        else:
            continue
        responses = entries[entries[name].get("responses", name)]
        if rows:
            yield name, responses["model"], sorted(rows, key=lambda row: row["attempt"])


def _row(results: Path, name: str, problem: str) -> Row | None:
    return next(iter(Table(name, results).where("problem", problem, 1)), None)


def _column(
    results: Path, entries: Mapping[str, Row], name: str, problem: str, human: Mapping[str, Row], most: int | None
) -> Column:
    graded = name.startswith("grades/")
    responses = entries[name]["responses"] if graded else name
    verdicts = {row["response"]: row for row in Table(name, results).where("problem", problem)} if graded else {}
    rows = sorted(Table(responses, results).where("problem", problem), key=lambda row: row["attempt"])
    attempts = [AttemptView(row, verdicts.get(row["response"]), human.get(row["response"])) for row in rows[:most]]
    same = [name for name, entry in entries.items() if name.startswith("grades/") and entry["responses"] == responses]
    scaled = verdicts.values() or (row for each in same for row in Table(each, results).where("problem", problem))
    max_points = max((row["max_points"] for row in scaled if row["max_points"]), default=7)
    grader = entries[name]["grader"] if graded else ""
    return Column(name, entries[responses]["model"], grader, attempts, len(rows) - len(attempts), max_points)


# -------------------------------------------------------------------------------------------------------- disagreements


def disagreements(results: Path, one: str, other: str, most: int = 100) -> list[dict[str, Any]]:
    """Return the attempts whose grades by two graders differ most, as shares of all points.

    A row has response, problem, both grades with their points, and the difference. Raises SettingError if no attempt
    has both grades.
    """
    frames = [
        Table(name, results)
        .scan()
        .filter(pl.col("grade").is_not_null())
        .select("response", "problem", "grade", "max_points", "reason")
        .collect()
        for name in (one, other)
    ]
    both = frames[0].join(frames[1], on="response", suffix=" of the other")
    if both.is_empty():
        raise SettingError(
            f"{one} and {other}: no attempt has both grades; expected grades of the same responses. Choose another pair."
        )
    share = pl.col("grade") / pl.col("max_points") - pl.col("grade of the other") / pl.col("max_points of the other")
    ranked = both.with_columns(difference=share).sort(pl.col("difference").abs(), descending=True, maintain_order=True)
    return ranked.filter(pl.col("difference") != 0).head(most).to_dicts()


def comparable(entries: Mapping[str, Row]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of grades tables of the same responses."""
    grades = [(name, entry["responses"]) for name, entry in entries.items() if name.startswith("grades/")]
    for place, (one, responses) in enumerate(grades):
        yield from ((one, other) for other, same in grades[place + 1 :] if same == responses)

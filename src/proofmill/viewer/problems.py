"""The page of a problem: statement, reference, scheme, and every attempt beside its verdict; two models side by side.

And the attempts that two graders disagree on most.
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

MOST = 12  # attempts of a table that one page shows
SIDE_BY_SIDE = 2  # tables that are shown where nobody chooses
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Attempt:
    """An attempt with its verdict, if it was graded."""

    response: Row
    grade: Row | None
    human: Row | None  # the last mark that a person gave here


@dataclass(frozen=True)
class Column:
    """The attempts at a problem in one table: graded, or as they are."""

    table: str
    model: str
    grader: str
    attempts: list[Attempt]
    more: int  # attempts that are not shown
    out_of: int


@dataclass(frozen=True)
class Page:
    problems: str
    row: Row
    scheme: Row | None
    schemes: str | None
    columns: list[Column]
    tables: list[str]  # that have attempts at it
    before: str | None
    after: str | None
    place: int
    of: int
    labels: dict[str, Row] = field(default_factory=dict)


def entries(results: Path) -> dict[str, Row]:
    """The entry of each table in results, by name; a half-written or damaged table is left out."""
    found = {}
    for kind in KINDS:
        for path in sorted((results / kind).glob("*.parquet")):
            name = f"{kind}/{path.stem}"
            try:
                about = path.stat()
                found[name] = _entry(name, results, about.st_mtime_ns, about.st_size)
            except (TableError, OSError):
                continue
    return found


@lru_cache(maxsize=4096)
def _entry(name: str, results: Path, *_: int) -> Row:
    return Table(name, results).stamp["entry"]


def attempted(found: Mapping[str, Row], problems: str) -> list[str]:
    """The tables with attempts at a table's problems: grades, and responses that nobody graded."""
    responses = [
        name for name, entry in found.items() if name.startswith("responses/") and entry["problems"] == problems
    ]
    grades = [name for name, entry in found.items() if name.startswith("grades/") and entry["responses"] in responses]
    graded = {found[name]["responses"] for name in grades}
    return [*grades, *(name for name in responses if name not in graded)]


def page(results: Path, problems: str, problem: str, chosen: Sequence[str], marks: Mapping[str, Row]) -> Page:
    """A problem with the attempts of the chosen tables. `marks` are those that people gave, by response.

    SettingError for a problem or a table that is not there.
    """
    table, found = Table(problems, results), entries(results)
    ids = table.scan().select("problem", "dropped").collect()
    kept = ids.filter(pl.col("dropped").is_null())["problem"].to_list()
    order = kept if problem in kept else ids["problem"].to_list()
    if problem not in order:
        raise SettingError(
            f"{problems}: has no problem {problem}; expected one of its ids. Open the table and choose a row."
        )
    tables = attempted(found, problems)
    if unknown := [name for name in chosen if name not in tables]:
        raise SettingError(f"{unknown[0]}: has no attempts at {problems}; expected one of {among(unknown[0], tables)}")
    shown = list(chosen) or tables[:SIDE_BY_SIDE]
    place = order.index(problem)
    schemes = next((found[name].get("schemes") for name in shown if found[name].get("schemes")), None)
    schemes = schemes or next(
        (n for n, e in found.items() if n.startswith("schemes/") and e["problems"] == problems), None
    )
    labels = [name for name, entry in found.items() if name.startswith("labels/") and entry["problems"] == problems]
    return Page(
        problems=problems,
        row=_row(results, problems, problem) or {},
        scheme=_row(results, schemes, problem) if schemes else None,
        schemes=schemes,
        columns=[_column(results, found, name, problem, marks) for name in shown],
        tables=tables,
        before=order[place - 1] if place else None,
        after=order[place + 1] if place + 1 < len(order) else None,
        place=place + 1,
        of=len(order),
        labels={name: row for name in labels if (row := _row(results, name, problem)) is not None},
    )


def _row(results: Path, name: str, problem: str) -> Row | None:
    return next(iter(Table(name, results).where("problem", problem, 1)), None)


def _column(results: Path, found: Mapping[str, Row], name: str, problem: str, marks: Mapping[str, Row]) -> Column:
    graded = name.startswith("grades/")
    responses = found[name]["responses"] if graded else name
    verdicts = {row["response"]: row for row in Table(name, results).where("problem", problem)} if graded else {}
    rows = sorted(Table(responses, results).where("problem", problem), key=lambda row: row["attempt"])
    attempts = [Attempt(row, verdicts.get(row["response"]), marks.get(row["response"])) for row in rows[:MOST]]
    out_of = max((row["out_of"] for row in verdicts.values() if row["out_of"]), default=7)
    grader = found[name]["grader"] if graded else "nobody"
    return Column(name, found[responses]["model"], grader, attempts, max(0, len(rows) - MOST), out_of)


# -------------------------------------------------------------------------------------------------------- disagreements


def disagreements(results: Path, one: str, other: str, most: int = 100) -> list[dict[str, Any]]:
    """The attempts that two graders mark most differently, as shares of full marks; SettingError where none has both.

    A row has response, problem, both marks with their full marks, and the difference.
    """
    frames = [
        Table(name, results)
        .scan()
        .filter(pl.col("grade").is_not_null())
        .select("response", "problem", "grade", "out_of", "reason")
        .collect()
        for name in (one, other)
    ]
    both = frames[0].join(frames[1], on="response", suffix=" of the other")
    if both.is_empty():
        raise SettingError(f"{one} and {other}: have no attempt that both mark; expected grades of the same responses.")
    share = pl.col("grade") / pl.col("out_of") - pl.col("grade of the other") / pl.col("out_of of the other")
    ranked = both.with_columns(difference=share).sort(pl.col("difference").abs(), descending=True, maintain_order=True)
    return ranked.filter(pl.col("difference") != 0).head(most).to_dicts()


def comparable(found: Mapping[str, Row]) -> Iterator[tuple[str, str]]:
    """Pairs of grades tables of the same responses."""
    grades = [(name, entry["responses"]) for name, entry in found.items() if name.startswith("grades/")]
    for place, (one, responses) in enumerate(grades):
        yield from ((one, other) for other, same in grades[place + 1 :] if same == responses)

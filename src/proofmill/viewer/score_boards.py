"""Collect boards of scores: the models of a benchmark, sampling setting and grader, best first, with their intervals.

All numbers are rows of `scores` tables. Next to a score are the numbers of attempts that are empty, truncated or unscored,
from the stamps of its grades and responses: they lower a score, or are missing from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

import polars as pl

from proofmill.artifacts.tables import Table
from proofmill.metrics.metrics import FOUND, kernel_of, label
from proofmill.schema.errors import ProofmillError
from proofmill.schema.names import kind_of, without_seed
from proofmill.schema.reasons import Reason
from proofmill.schema.registry_items import split
from proofmill.scores import name_grader, name_sampling
from proofmill.viewer.recipes import Overview

Row = Mapping[str, Any]
GRADED = (Reason.OK, Reason.EMPTY, Reason.NO_ANSWER)  # reasons of attempts with a grade
WHERE = {"empty": "reason = 'empty'", "truncated": "stop_reason = 'length'", "unscored": "grade IS NULL"}


@dataclass(frozen=True)
class Lost:
    """Attempts that are empty, truncated or unscored, the table whose rows they are, and the entry of the responses."""

    sort: str
    count: int
    of: int
    table: str
    entry: Mapping[str, Any]

    @property
    def address(self) -> str:
        return f"/table/{quote(self.table)}?{urlencode({'where': WHERE[self.sort]})}"


@dataclass(frozen=True)
class Line:
    """A model on a board; its share of solved attempts, if that was measured; and its lost attempts."""

    row: Row
    solved: Row | None
    lost: Sequence[Lost]


@dataclass(frozen=True)
class Board:
    """The models of a benchmark, sampling setting and grader by one metric, best first. `most` is the end of the axis."""

    scores: str
    lines: Sequence[Line]
    compared: Sequence[Row]  # differences, those of the best models first
    metrics: Sequence[str]
    most: float
    unit: str  # `points` or `share`; empty for other metrics

    @property
    def best(self) -> Row:
        return self.lines[0].row


def list_lost(overview: Overview, grades: str) -> Iterator[Lost]:
    """Yield the lost attempts of a table of grades. Raises TableError if it or its responses are damaged."""
    stamp, rows = overview.facts(grades)
    responses = stamp["entry"]["responses"]
    attempted = overview.facts(responses)[0]
    counts, stops = stamp.get("counts", {}), attempted.get("counts", {})
    unscored = sum(count for reason, count in counts.items() if reason not in GRADED)
    counted = {"empty": counts.get(Reason.EMPTY, 0), "truncated": stops.get("length", 0), "unscored": unscored}
    for sort, count in counted.items():
        if count:
            yield Lost(sort, count, rows, responses if sort == "truncated" else grades, attempted["entry"])


@lru_cache(maxsize=500)
def read_rows(table: Table, changed: int) -> Sequence[Row]:
    """Return the rows of a version of a `scores` table about models, over all attempts."""
    return table.scan().filter(pl.col("slice") == "all", pl.col("model").is_not_null()).collect().to_dicts()


@lru_cache(maxsize=500)
def read_points(table: Table, changed: int) -> float:
    """Return the most points of a version of a table of grades."""
    return table.scan().select(pl.col("max_points").max()).collect().item() or 1


def list_boards(overview: Overview, name: str, metric: str = "") -> Iterator[Board]:
    """Yield the boards of a `scores` table by a metric (default: its first), those with the most attempts first."""
    entry, cells = overview.facts(name)[0]["entry"], dict[tuple, list[str]]()
    for grades in entry["grades"]:
        graded = overview.facts(grades)[0]["entry"]
        sampled = overview.facts(graded["responses"])[0]["entry"]
        key = sampled["problems"], name_sampling(grades, sampled), name_grader(graded), without_seed(sampled["model"])
        cells.setdefault(key, []).append(grades)
    by_key: dict[tuple, list[Row]] = {}
    for row in read_rows(Table(name, overview.results), overview.at[name].st_mtime_ns):
        if row["value"] is not None and row["low"] is not None:
            by_key.setdefault((row["problems"], row["sampling"], row["grader"]), []).append(row)
    for key, rows in sorted(by_key.items(), key=lambda item: -max(row["n"] for row in item[1])):
        of_models = [row for row in rows if row["p_value"] is None]
        metrics = list(dict.fromkeys(row["metric"] for row in of_models))
        chosen = metric if metric in metrics else next(iter(metrics), "")
        ranked = sorted((row for row in of_models if row["metric"] == chosen), key=lambda row: -row["value"])
        if not ranked:
            continue
        solved = {row["model"]: row for row in of_models if row["metric"] == "solve-rate" != chosen}
        tables = {row["model"]: cells.get((*key, row["model"]), []) for row in ranked}
        lines = [
            Line(
                row,
                solved.get(row["model"]),
                [lost for each in tables[row["model"]] for lost in list_lost(overview, each)],
            )
            for row in ranked
        ]
        place = {row["model"]: rank for rank, row in enumerate(ranked)}
        compared = [row for row in rows if row["p_value"] is not None and row["metric"] == chosen]
        compared.sort(key=lambda row: sorted(place.get(row[who], len(place)) for who in ("model", "baseline")))
        unit = _unit_of(entry, chosen)
        first = next((each for some in tables.values() for each in some), None)
        points = read_points(Table(first, overview.results), overview.at[first].st_mtime_ns) if first else 1.0
        most = points if unit == "points" else 1.0 if unit else max(row["high"] for row in ranked) or 1.0
        yield Board(name, lines, compared, metrics, most, unit)


def list_tables(overview: Overview, metric: str) -> Iterator[tuple[str, list[Board], list[str], list[str], str]]:
    """Yield each `scores` table, the newest first: name, boards, notices, sentences of its claims, fault."""
    names = [name for name in overview.at if kind_of(name) == "scores"]
    for name in sorted(names, key=lambda name: -overview.at[name].st_mtime):
        try:
            stamp = overview.facts(name)[0]
            claims = [claim["sentence"] for claim in stamp.get("claims", {}).values()]
            yield name, list(list_boards(overview, name, metric)), stamp.get("notices") or [], claims, ""
        except ProofmillError as error:
            yield name, [], [], [], str(error)


def _unit_of(entry: Mapping[str, Any], metric: str) -> str:
    for name, argument in map(split, (*entry["metrics"], *FOUND)):
        if label(name, argument, 1).partition("@")[0] == metric.partition("@")[0]:
            return {"grade": "points", 1.0: "share"}.get(getattr(kernel_of(name, argument), "scale", None), "")
    return ""

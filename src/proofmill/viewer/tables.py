"""The page of a table: rows that are filtered, sorted and paged, a histogram of a column, and the funnel of what was dropped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from proofmill.artifacts.tables import Table
from proofmill.inspect import reading

PAGE = 50  # rows
BINS = 24
NAMED = 30  # values of a column of words that the histogram names
FIRST = 12  # columns that are shown where nobody chooses
LONG = frozenset({"verdict", "opinions", "steps", "history", "messages", "candidates", "guidelines", "reasoning"})


@dataclass(frozen=True)
class Asked:
    """What a page of a table shows, as its address says."""

    where: str = ""
    sort: str = ""
    down: bool = False
    page: int = 0
    columns: tuple[str, ...] = ()
    histogram: str = ""


@dataclass(frozen=True)
class Shown:
    rows: list[dict[str, Any]]
    columns: list[str]
    all_columns: list[str]
    matching: int | None  # rows that the condition is true of; None where they were not counted
    key: str


@dataclass(frozen=True)
class Bar:
    label: str
    count: int
    where: str  # the condition that picks it


def page(table: Table, asked: Asked) -> Shown:
    """The rows of one page; SettingError where the condition or a column is none."""
    frame, names = reading.numbered(table), reading.columns_of(table)
    key = reading.id_column(table)
    columns = list(asked.columns) or [name for name in names if name not in LONG][:FIRST]
    reading.require_columns(table, [*columns, *([asked.sort] if asked.sort else [])], names)
    matching: int | None = table.height
    places = list(range(asked.page * PAGE, min((asked.page + 1) * PAGE, table.height)))
    if asked.where or asked.sort:
        if asked.where:
            frame = frame.filter(reading.condition(asked.where, table, names))
        if asked.sort:
            frame = frame.sort(asked.sort, descending=asked.down, nulls_last=True, maintain_order=True)
        found = reading.places_of(table, asked.where, frame)
        matching, places = found.len(), found.slice(asked.page * PAGE, PAGE).to_list()
    wanted = list(dict.fromkeys([key, *columns]))
    rows = reading.at(table, places, wanted).to_dicts()
    return Shown(rows, wanted, names, matching, key)


def histogram(table: Table, asked: Asked) -> list[Bar]:
    """How often each value of a column, or each range of its numbers, occurs among the rows that the condition picks."""
    column = asked.histogram
    frame, names = reading.numbered(table), reading.columns_of(table)
    reading.require_columns(table, [column], names)
    if asked.where:
        frame = frame.filter(reading.condition(asked.where, table, names))
    values = reading.collected(table, asked.where, frame.select(column)).to_series()
    if values.dtype.is_numeric() and values.n_unique() > BINS:
        return _ranges(column, values)
    if values.dtype.is_nested():
        return _ranges("", values.list.len()) if values.dtype == pl.List else []
    counts = values.value_counts(sort=True).head(NAMED)
    return [Bar("–" if v is None else str(v), n, _equals(column, v)) for v, n in counts.iter_rows()]


def _ranges(column: str, values: pl.Series) -> list[Bar]:
    numbers = values.drop_nulls().cast(pl.Float64).drop_nans()
    if numbers.is_empty():
        return []
    low, high = float(numbers.min()), float(numbers.max())  # type: ignore[arg-type]  # of numbers
    width = (high - low) / BINS or 1.0
    places = ((numbers - low) / width).floor().clip(0, BINS - 1).cast(pl.Int64).value_counts()
    counts = dict(places.iter_rows())
    bars = []
    for place in range(BINS):
        start, end = low + place * width, low + (place + 1) * width
        upper = "<=" if place == BINS - 1 else "<"
        where = f"{column} >= {start:.6g} AND {column} {upper} {end:.6g}" if column else ""
        bars.append(Bar(f"{start:.4g}", counts.get(place, 0), where))
    return bars


def _equals(column: str, value: Any) -> str:
    if value is None:
        return f"{column} IS NULL"
    if isinstance(value, bool) or not isinstance(value, str):
        return f"{column} = {value}"
    quoted = value.replace("'", "''")
    return f"{column} = '{quoted}'"


def funnel(table: Table, order: Sequence[str] = ()) -> list[Bar]:
    """How many rows are left after each filter, in the order of the filters; nothing for a table that drops none."""
    if "dropped" not in table.scan().collect_schema().names():
        return []
    dropped = table.scan().select("dropped").collect().to_series()
    counts = dict(dropped.value_counts().iter_rows())
    left = dropped.len()
    bars = [Bar("read", left, "")]
    names = [*[name for name in order if counts.get(name)], *[n for n in counts if n is not None and n not in order]]
    for name in names:
        left -= counts[name]
        bars.append(Bar(name, left, _equals("dropped", name)))
    return bars if len(bars) > 1 else []

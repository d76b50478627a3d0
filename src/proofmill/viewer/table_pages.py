"""Collect the page of a table: filtered, sorted and paged rows, a histogram of a column, and the funnel of filters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from proofmill.analysis import show_artifact
from proofmill.artifacts.tables import Table

PAGE = 50  # rows
BINS = 24
NAMED = 30  # bars of the histogram of a text column
FIRST = 12  # columns, unless the reader chooses
LONG = frozenset(
    {"verdict", "opinions", "steps", "request_messages", "messages", "candidates", "guidelines", "reasoning"}
)


@dataclass(frozen=True)
class PageSettings:
    """The settings of a table's page, from its address."""

    where: str = ""
    sort: str = ""
    down: bool = False
    page: int = 0
    columns: tuple[str, ...] = ()
    histogram: str = ""


@dataclass(frozen=True)
class TableView:
    rows: list[dict[str, Any]]
    columns: list[str]
    all_columns: list[str]
    matching: int | None  # rows that satisfy the condition; None if they were not counted
    key: str


@dataclass(frozen=True)
class Bar:
    label: str
    count: int
    where: str  # the condition that selects its rows


def page(table: Table, settings: PageSettings) -> TableView:
    """Return the rows of one page. Raises SettingError for an invalid condition or column."""
    frame, names = show_artifact.number_rows(table), show_artifact.columns_of(table)
    key = show_artifact.id_column(table)
    columns = list(settings.columns) or [name for name in names if name not in LONG][:FIRST]
    show_artifact.require_columns(table, [*columns, *([settings.sort] if settings.sort else [])], names)
    matching: int | None = table.height
    places = list(range(settings.page * PAGE, min((settings.page + 1) * PAGE, table.height)))
    if settings.where or settings.sort:
        if settings.where:
            frame = frame.filter(show_artifact.condition(settings.where, table, names))
        if settings.sort:
            frame = frame.sort(settings.sort, descending=settings.down, nulls_last=True, maintain_order=True)
        matches = show_artifact.places_of(table, settings.where, frame)
        matching, places = matches.len(), matches.slice(settings.page * PAGE, PAGE).to_list()
    columns = list(dict.fromkeys([key, *columns]))
    rows = show_artifact.at(table, places, columns).to_dicts()
    return TableView(rows, columns, names, matching, key)


def histogram(table: Table, settings: PageSettings) -> list[Bar]:
    """Count each value of a column, or each range of its numbers, among the rows that satisfy the condition."""
    column = settings.histogram
    frame, names = show_artifact.number_rows(table), show_artifact.columns_of(table)
    show_artifact.require_columns(table, [column], names)
    if settings.where:
        frame = frame.filter(show_artifact.condition(settings.where, table, names))
    values = show_artifact.collect_rows(table, settings.where, frame.select(column)).to_series()
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
    """Return the number of rows left after each filter, in the order of the filters; empty if none dropped rows."""
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

"""Read one artifact: its metadata and some of its rows, as text or JSON. Reads only the data that is needed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import datetime
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from proofmill.artifacts.tables import Table
from proofmill.runtime.progress import clock
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.fields import info_of
from proofmill.schema.kinds import ENTRY_TYPES, KINDS
from proofmill.text.suggestions import among

ROWS = 10  # default number of rows
TEXT = 60  # maximum characters of a text in a table of rows
NUMBER = "number"  # column with the row number, for kinds without ids


def facts(table: Table) -> Iterator[str]:
    """Yield the fields of the entry, parents, outcomes and cost of a table, from its stamp (metadata)."""
    stamp = table.stamp
    file = table.path.stat()
    built = datetime.fromtimestamp(file.st_mtime).strftime("%Y-%m-%d %H:%M")
    commit = f" at {stamp['commit'][:10]}" if stamp.get("commit") else ""
    yield f"{table.name}: {table.height:,} rows, {file.st_size:,} bytes, built {built}{commit}"
    for key, value in own_fields(table.kind, stamp["entry"]).items():
        yield f"  {key}: {_short(value)}"
    if stamp["parents"]:
        yield f"  built from {', '.join(stamp['parents'])}"
    if stamp.get("sources"):
        yield f"  reads {', '.join(stamp['sources'])}"
    counts = ", ".join(f"{count:,} {what}" for what, count in stamp.get("counts", {}).items())
    yield f"  outcome: {counts or 'not recorded'}; took {clock(stamp.get('seconds') or 0)}"
    if stamp.get("tokens") is not None:
        cost = "unknown" if stamp.get("cost") is None else f"${stamp['cost']:,.4f}"
        yield f"  calls: {stamp['tokens']:,} tokens, cost {cost}"
    yield from (f"  notice: {text}" for key in ("notices", "calls_noticed") for text in stamp.get(key) or ())
    yield f"  columns: {', '.join(table.scan().collect_schema().names())}"


def page_of(table: Table) -> str:
    """Return the Markdown page of a table, or why it cannot be shown; empty without a page."""
    try:
        return table.read_page() or ""
    except TableError as error:
        return f"# {table.name}\n\n{error}\n"


def own_fields(kind: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an entry that differ from their defaults, by configuration key."""
    own = {}
    for field in fields(ENTRY_TYPES[kind]):
        info = info_of(field)
        default = info.default_factory() if info.default_factory else info.default  # type: ignore[call-arg]  # no argument
        value = entry.get(field.name, MISSING)
        if value is not MISSING and value != default:
            own[field.name.replace("_", "-")] = value
    return own


def rows(
    table: Table,
    row: str | None = None,
    where: str | None = None,
    columns: Sequence[str] = (),
    most: int = ROWS,
) -> pl.DataFrame:
    """Return rows of a table, dropped ones included: the one with an id (or a prefix of it), or the first that match.

    `where` is an SQL expression over the columns. Raises SettingError for an unknown column or row, or an invalid `where`.
    """
    frame, names = number_rows(table), columns_of(table)
    require_columns(table, columns, names)
    key = id_column(table)
    if where is None and row is None:
        places = list(range(min(most, table.height)))
    else:
        if where is not None:
            frame = frame.filter(condition(where, table, names))
        if row is not None:
            frame = frame.filter(_is_row(table, row))
        places = places_of(table, where or "", frame).to_list()[: most if row is None else 2]
    if (
        row is not None
        and len(places) > 1
        and (exact := places_of(table, "", frame.filter(_has_id(table, row))).to_list())
    ):
        places = exact  # one id may begin with another
    frame_rows = at(table, places, list(dict.fromkeys([key, *columns])) if columns else names)
    if row is not None and frame_rows.height != 1:
        fault = (
            "no row has this id"
            if frame_rows.is_empty()
            else f"several rows have this prefix, e.g. {' and '.join(frame_rows[key])}"
        )
        raise SettingError(
            f"{table.name} --row {row}: {fault}; expected a `{key}`. List some: proofmill show {table.name} --rows 5"
        )
    return frame_rows


def number_rows(table: Table) -> pl.LazyFrame:
    """Return the rows of a table with their numbers, from 0."""
    return table.scan().with_row_index(NUMBER)


def columns_of(table: Table) -> list[str]:
    """Return the columns that can be selected, including the row number for kinds without ids."""
    names = table.scan().collect_schema().names()
    return names if KINDS[table.kind].key else [NUMBER, *names]


def places_of(table: Table, where: str, frame: pl.LazyFrame) -> pl.Series:
    """Return the row numbers of a query. Reads one column with them, since batches without columns have no rows."""
    return collect_rows(table, where, frame.select(NUMBER, columns_of(table)[-1]))[NUMBER]


def at(table: Table, places: Sequence[int], columns: Sequence[str]) -> pl.DataFrame:
    """Return the rows with these numbers, in this order. `columns` may contain NUMBER."""
    rows = table.at(places, *(name for name in columns if name != NUMBER))
    return rows.with_columns(pl.Series(NUMBER, places, dtype=pl.UInt32)).select(columns)


def id_column(table: Table) -> str:
    """Return the column that identifies a row."""
    return KINDS[table.kind].key or NUMBER


def _is_row(table: Table, row: str) -> pl.Expr:
    """Return the condition for a row id, a prefix of it, or a row number."""
    if KINDS[table.kind].key:
        return pl.col(id_column(table)).str.starts_with(row)
    if not row.isdecimal():
        raise SettingError(f"{table.name} --row {row}: is not a row number; expected one from 0 to {table.height - 1}.")
    return pl.col(NUMBER) == int(row)


def _has_id(table: Table, row: str) -> pl.Expr:
    """Return the condition for a row with exactly this id."""
    return pl.col(id_column(table)) == row


def require_columns(table: Table, columns: Sequence[str], names: Sequence[str]) -> None:
    """Raise SettingError for a column that a table does not have."""
    if unknown := [column for column in columns if column not in names]:
        raise SettingError(f"{table.name}: has no column `{unknown[0]}`; expected some of {among(unknown[0], names)}")


def condition(where: str, table: Table, names: Sequence[str]) -> pl.Expr:
    """Parse an SQL condition. Raises SettingError if it is invalid or has an unknown column."""
    try:
        expression = pl.sql_expr(where)
    except PolarsError as error:
        raise _invalid_condition(table, where, error) from error
    if unknown := [column for column in expression.meta.root_names() if column not in names]:
        raise SettingError(
            f"{table.name} --where {where!r}: no column `{unknown[0]}`; expected some of {among(unknown[0], names)}"
        )
    return expression


def collect_rows(table: Table, where: str, frame: pl.LazyFrame) -> pl.DataFrame:
    """Return the rows of a query. Raises SettingError if its condition does not fit the types of the columns."""
    try:
        return frame.collect()
    except PolarsError as error:
        raise _invalid_condition(table, where, error) from error


def _invalid_condition(table: Table, where: str, error: PolarsError) -> SettingError:
    """Return the error for an invalid condition."""
    reason = str(error).splitlines()[0]
    return SettingError(
        f"{table.name} --where {where!r}: {reason}; expected a condition in SQL, such as `grade < 3 AND reason = 'ok'`."
    )


# ---------------------------------------------------------------------------------------------------------------- as text


def as_table(frame: pl.DataFrame) -> str:
    """Return rows as a text table of any width; long texts are shortened."""
    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=60_000, fmt_str_lengths=TEXT, fmt_table_cell_list_len=3,
        tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, tbl_formatting="ASCII_MARKDOWN",
    ):  # fmt: skip
        return str(frame)


def as_page(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield one row with full texts: short values next to their column, long ones below it."""
    width = max(map(len, row))
    for column, value in row.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
        if "\n" in text or len(text) > 2 * TEXT:
            yield f"{column}:"
            yield from (f"    {line}" for line in text.splitlines())
        else:
            yield f"{column:<{width}}  {'–' if value is None else text}"


def _short(value: Any) -> str:
    """Return a value as text, shortened."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 2 * TEXT else f"{text[: 2 * TEXT]}..."

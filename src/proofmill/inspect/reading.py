"""One artifact as a person reads it: where it is from, what came out of it, and rows of it. Only what is asked is read."""

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

ROWS = 10  # shown where nobody says how many
TEXT = 60  # characters of a text in a row among others
NUMBER = "number"  # of a row, for kinds whose rows have no id


def facts(table: Table) -> Iterator[str]:
    """The entry as far as it is its own, the parents, the outcomes, and what it took, by the stamp alone."""
    stamp = table.stamp
    file = table.path.stat()
    made = datetime.fromtimestamp(file.st_mtime).strftime("%Y-%m-%d %H:%M")
    commit = f" at {stamp['commit'][:10]}" if stamp.get("commit") else ""
    yield f"{table.name}: {table.height:,} rows, {file.st_size:,} bytes, made {made}{commit}"
    for key, value in own_fields(table.kind, stamp["entry"]).items():
        yield f"  {key}: {_short(value)}"
    if stamp["parents"]:
        yield f"  is made from {', '.join(stamp['parents'])}"
    if stamp.get("sources"):
        yield f"  reads {', '.join(stamp['sources'])}"
    counts = ", ".join(f"{count:,} {what}" for what, count in stamp.get("counts", {}).items())
    yield f"  outcome: {counts or 'not noted'}; took {clock(stamp.get('seconds') or 0)}"
    if stamp.get("tokens") is not None:
        cost = "unknown" if stamp.get("cost") is None else f"${stamp['cost']:,.4f}"
        yield f"  asked: {stamp['tokens']:,} tokens, cost {cost}"
    yield from (f"  notice: {text}" for key in ("notices", "calls_noticed") for text in stamp.get(key) or ())
    yield f"  columns: {', '.join(table.scan().collect_schema().names())}"


def page_of(table: Table) -> str:
    """Return the Markdown page of a table as it was written, or in its place why it is not shown; empty without one."""
    try:
        return table.read_page() or ""
    except TableError as error:
        return f"# {table.name}\n\n{error}\n"


def own_fields(kind: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an entry, by their keys in the configuration, that are not at their defaults."""
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
    """Rows of a table, dropped ones too: the one with an id (or its beginning), or the first that `where` is true of.

    `where` is an expression of SQL over the columns. SettingError for a column, an expression or a row that is not.
    """
    frame, names = numbered(table), columns_of(table)
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
    found = at(table, places, list(dict.fromkeys([key, *columns])) if columns else names)
    if row is not None and found.height != 1:
        what = (
            "no row has this id"
            if found.is_empty()
            else f"several rows begin so, {' and '.join(found[key])} among them"
        )
        raise SettingError(
            f"{table.name} --row {row}: {what}; expected a `{key}`. Look: proofmill show {table.name} --rows 5"
        )
    return found


def numbered(table: Table) -> pl.LazyFrame:
    """The rows of a table, each with its number from 0 on."""
    return table.scan().with_row_index(NUMBER)


def columns_of(table: Table) -> list[str]:
    """What can be asked for: the columns, and the number of a kind without ids."""
    names = table.scan().collect_schema().names()
    return names if KINDS[table.kind].key else [NUMBER, *names]


def places_of(table: Table, where: str, frame: pl.LazyFrame) -> pl.Series:
    """The numbers of the rows of a query. (With them a column is read: batches without any would have no rows.)"""
    return collected(table, where, frame.select(NUMBER, columns_of(table)[-1]))[NUMBER]


def at(table: Table, places: Sequence[int], columns: Sequence[str]) -> pl.DataFrame:
    """The rows with these numbers, in this order; NUMBER may be among the columns."""
    rows = table.at(places, *(name for name in columns if name != NUMBER))
    return rows.with_columns(pl.Series(NUMBER, places, dtype=pl.UInt32)).select(columns)


def id_column(table: Table) -> str:
    return KINDS[table.kind].key or NUMBER


def _is_row(table: Table, row: str) -> pl.Expr:
    if KINDS[table.kind].key:
        return pl.col(id_column(table)).str.starts_with(row)
    if not row.isdecimal():
        raise SettingError(
            f"{table.name} --row {row}: its rows have numbers; expected one from 0 to {table.height - 1}."
        )
    return pl.col(NUMBER) == int(row)


def require_columns(table: Table, columns: Sequence[str], names: Sequence[str]) -> None:
    """Raise SettingError for a column that a table does not have."""
    if unknown := [column for column in columns if column not in names]:
        raise SettingError(f"{table.name}: has no column `{unknown[0]}`; expected some of {among(unknown[0], names)}")


def condition(where: str, table: Table, names: Sequence[str]) -> pl.Expr:
    """A condition in SQL. Raises SettingError for what is none, and for a column that the table does not have."""
    try:
        expression = pl.sql_expr(where)
    except PolarsError as error:
        raise _no_condition(table, where, error) from error
    if unknown := [column for column in expression.meta.root_names() if column not in names]:
        raise SettingError(
            f"{table.name} --where {where!r}: there is no column `{unknown[0]}`; expected some of {among(unknown[0], names)}"
        )
    return expression


def collected(table: Table, where: str, frame: pl.LazyFrame) -> pl.DataFrame:
    """The rows of a query. Raises SettingError where its condition is none for the types of the columns."""
    try:
        return frame.collect()
    except PolarsError as error:
        raise _no_condition(table, where, error) from error


def _no_condition(table: Table, where: str, error: PolarsError) -> SettingError:
    found = str(error).splitlines()[0]
    return SettingError(
        f"{table.name} --where {where!r}: {found}; expected a condition in SQL, such as `grade < 3 AND reason = 'ok'`."
    )


# ---------------------------------------------------------------------------------------------------------------- as text


def as_table(frame: pl.DataFrame) -> str:
    """Rows as columns of text, as wide as they need; long texts are cut."""
    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=60_000, fmt_str_lengths=TEXT, fmt_table_cell_list_len=3,
        tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, tbl_formatting="ASCII_MARKDOWN",
    ):  # fmt: skip
        return str(frame)


def as_page(row: Mapping[str, Any]) -> Iterator[str]:
    """One row with all its texts: short values beside their columns, long ones below them."""
    width = max(map(len, row))
    for column, value in row.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
        if "\n" in text or len(text) > 2 * TEXT:
            yield f"{column}:"
            yield from (f"    {line}" for line in text.splitlines())
        else:
            yield f"{column:<{width}}  {'–' if value is None else text}"


def as_json(table: Table, found: pl.DataFrame | None) -> str:
    """Stamp and rows for programs."""
    shown = {"name": table.name, "rows_n": table.height, "stamp": table.stamp}
    if found is not None:
        shown["rows"] = found.to_dicts()
    return json.dumps(shown, ensure_ascii=False, indent=2, default=str)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 2 * TEXT else f"{text[: 2 * TEXT]}..."

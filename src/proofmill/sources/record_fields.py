"""Read typed fields of a foreign record. A wrong value raises TableError with its place, name and value."""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from proofmill.schema.errors import TableError, list_names, short, shorten
from proofmill.schema.registry_items import is_day
from proofmill.text.suggestions import nearest

# Spellings of a missing number in files without types; `Infinity` may be an answer.
_NO_NUMBER = re.compile(r"\s*[+-]?(?:(?i:nan)|inf)\s*")


def field(where: str, record: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column, also of a nested one (`metadata.path`); the TableError suggests the nearest column."""
    if not isinstance(record, Mapping):
        raise TableError(f"{where}: a {kind_of(record)} ({shorten(record)}) has no `{column}`; expected an object.")
    if column in record:
        return record[column]
    value: Any = record
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            near = "".join(f"Did you mean `{short(name)}`?" for name in nearest(column, record)[:1])
            raise TableError(
                f"{where}: no column `{column}` among {list_names(record)}; expected `{column}`. "
                f"{near or 'Set the right column or source.'}"
            )
        value = value[part]
    return value


def text(where: str, record: Mapping[str, Any], column: str) -> str | None:
    """Return a text or null; raises TableError for other values."""
    value = field(where, record, column)
    if value is not None and not isinstance(value, str):
        raise TableError(f"{where}: `{column}` is a {kind_of(value)} ({shorten(value)}); expected text.")
    return value


def source(where: str, record: Mapping[str, Any], column: str) -> str:
    """Return a text that is not empty; raises TableError for other values."""
    if not (value := text(where, record, column)):
        raise TableError(f"{where}: `{column}` is empty; expected source text. Fix or remove the row.")
    return value


def word(where: str, record: Mapping[str, Any], column: str) -> str | None:
    """Return a text or a number as text, such as an answer, an id or a level."""
    value = field(where, record, column)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return _digits(value)
    if isinstance(value, float) or (isinstance(value, str) and _NO_NUMBER.fullmatch(value)):
        raise TableError(
            f"{where}: `{column}` is {value}, which is not a number; expected a number or a text. Without one, "
            "leave the cell empty or write null."
        )
    return text(where, record, column)


def answer(where: str, record: Mapping[str, Any], column: str) -> str | None:
    """Return an answer: a text, a number as text, or the tests of a program, which are objects, as JSON."""
    value = field(where, record, column)
    is_tests = isinstance(value, Mapping) or (isinstance(value, list) and isinstance(next(iter(value), None), Mapping))
    return json.dumps(value, ensure_ascii=False) if is_tests else word(where, record, column)


def _digits(value: float) -> str:
    """Format a number: an integer without its point, another in its shortest form that keeps all digits."""
    written = getattr(value, "written", repr(value))
    exact = Decimal(written)
    if exact == exact.to_integral_value():
        return str(int(exact))
    return repr(float(value)) if Decimal(repr(float(value))) == exact else written


def words(where: str, record: Mapping[str, Any], column: str) -> list[str]:
    """Return a text, a number, or a list of them as a list of texts; null is an empty list."""
    value = field(where, record, column)
    items = value if isinstance(value, list) else [value]
    return [item for part in items if (item := word(where, {column: part}, column)) is not None]


def year(where: str, record: Mapping[str, Any], column: str) -> int | None:
    """Return a year of four digits; null and blank are None. Raises TableError for other values."""
    value = word(where, record, column)
    if value is None or not value.strip():
        return None
    if not re.fullmatch(r"\s*(1[0-9]{3}|2[0-9]{3})\s*", value):
        raise TableError(f"{where}: `{column}` is {shorten(value)}; expected a year of four digits.")
    return int(value)


def day(where: str, record: Mapping[str, Any], column: str) -> str | None:
    """Return the day of a date or time; null and blank are None. Raises TableError for other values."""
    value = str(field(where, record, column) or "").strip()
    if value and not (is_day(value[:10]) and not value[10:11].isdigit()):
        raise TableError(f"{where}: `{column}` is {shorten(value)}; expected a date such as 2025-02-15.")
    return value[:10] or None


def texts(where: str, record: Mapping[str, Any], column: str) -> list[str]:
    """Return a list of texts, also for one text; null is an empty list, nulls in it are dropped.

    Raises TableError for other values.
    """
    value = field(where, record, column)
    if value is None or isinstance(value, str):
        return [value] if value and value.strip() else []
    if not isinstance(value, list) or any(item is not None and not isinstance(item, str) for item in value):
        raise TableError(f"{where}: `{column}` is a {kind_of(value)} ({shorten(value)}); expected a list of texts.")
    return [item for item in value if item is not None]


def records(where: str, record: Mapping[str, Any], column: str) -> list[Mapping[str, Any]]:
    """Return a list of records, such as posts; null is an empty list. Raises TableError for other values."""
    value = field(where, record, column)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise TableError(f"{where}: `{column}` is a {kind_of(value)} ({shorten(value)}); expected a list of records.")
    return value


def render(where: str, scheme: Mapping[str, Any], column: str) -> str:
    """Render a structured grading scheme as text, two lines per item; raises TableError for a missing column."""
    blocks = []
    for item in records(where, scheme, column):
        title, points, what = (
            read(where, item, next((c for c in columns if c in item), columns[0]))
            for read, columns in (
                (text, ("title",)),
                (word, ("max_points", "points")),
                (text, ("grading_scheme_desc", "desc", "description")),
            )
        )
        blocks.append(f"# {title} ({points} points)\nDescription: {what}")
    return "\n\n".join(blocks)


def kind_of(value: Any) -> str:
    """Return the name of a value's type for messages."""
    names = {"str": "text", "int": "number", "Number": "number", "float": "number", "bool": "boolean"}
    names |= {"NoneType": "null", "dict": "object"}
    return names.get(type(value).__name__, type(value).__name__)

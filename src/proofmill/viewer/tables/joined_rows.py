"""Join some rows of a table with the texts that they refer to by id: statements of problems, texts of responses."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl

from proofmill.analysis import show_artifact
from proofmill.artifacts.tables import Table
from proofmill.schema.errors import TableError

END = 160  # characters at the end of a text
RESPONSE_TOKENS = "response_tokens"  # of a graded response, next to the judge's `tokens`
# Further columns that a column is shown with.
SHOWN_WITH: Mapping[str, Sequence[str]] = {
    "grade": ("max_points", "reason"),
    "dropped": ("evidence",),
    "end": ("text", "messages", "response"),
    "statement": ("problems", "problem", "messages"),
    "other_statement": ("against", "against_problem"),
    "labels": ("incomplete", "gaps", "wrong", "disagreement", "computational"),
    RESPONSE_TOKENS: ("response",),
}


def problems_of(table: Table) -> Table | None:
    """Return the table of the problems that rows refer to; None if there are several, or it was deleted."""
    entry = table.stamp["entry"]
    name = table.name if table.kind == "problems" else entry.get("problems")
    if isinstance(name, str):
        return _existing(table.other(name))
    parent = entry.get("responses") or entry.get("grades")
    return problems_of(table.other(parent)) if isinstance(parent, str) and _existing(table.other(parent)) else None


def responses_of(table: Table) -> Table | None:
    """Return the responses that a table of grades refers to, in its order; None for another kind, or if they changed."""
    responses = _existing(table.other(table.stamp["entry"]["responses"])) if table.kind == "grades" else None
    return responses if responses and responses.height == table.height else None


def _existing(table: Table) -> Table | None:
    return table if table.path.exists() else None


def read_matching(table: Table | None, key: str, values: Collection[Any], *columns: str) -> list[dict[str, Any]]:
    """Return columns of the rows with one of the values in a column; none of a damaged table."""
    try:
        if table is None:
            return []
        frame = show_artifact.number_rows(table).filter(pl.col(key).is_in(list(values)))
        return table.at(show_artifact.places_of(table, "", frame).to_list(), key, *columns).to_dicts()
    except TableError:
        return []


def read_by_id(table: Table | None, key: str, ids: Collection[Any], *columns: str) -> dict[Any, dict[str, Any]]:
    """Return columns of the rows with these ids, by id."""
    return {row[key]: row for row in read_matching(table, key, ids, *columns)}


def read_rows(table: Table, places: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows with these numbers: the columns of the table, and the keys of SHOWN_WITH, from the tables they refer to."""
    own = show_artifact.columns_of(table)
    wanted = [name for column in columns for name in (column, *SHOWN_WITH.get(column, ())) if name in own]
    rows = show_artifact.at(table, places, list(dict.fromkeys([show_artifact.id_column(table), *wanted]))).to_dicts()
    problems = None if "statement" in own else problems_of(table)
    statements = _statements(problems, rows, "problem")
    responses = responses_of(table) if {"end", RESPONSE_TOKENS} & {*columns} else None
    sampled = responses.at(places, "response", "text", "tokens").to_dicts() if responses else []
    by_id = {row["response"]: row for row in sampled}
    for of, key in (("problems", "problem"), ("against", "against_problem")) if table.kind == "overlaps" else ():
        for name in {row[of] for row in rows}:
            some = [row for row in rows if row[of] == name]
            statements |= _statements(_existing(table.other(name)), some, key)
    for row in rows:
        messages, response = row.get("messages") or (), by_id.get(row.get("response"), row)
        first = next((message["content"] for message in messages if message["role"] == "user"), None)
        text = (response.get("text") or (messages[-1]["content"] if messages else "") or "").strip()
        row["end"] = (text.rpartition("</think>")[2].strip() or text)[-END:]
        row[RESPONSE_TOKENS] = response.get("tokens") if response is not row else None
        row.setdefault("statement", statements.get(row.get("problem")) or first)
        row["other_statement"] = statements.get(row.get("against_problem"))
    return rows


def _statements(problems: Table | None, rows: Sequence[Mapping[str, Any]], key: str) -> dict[Any, str]:
    """Return the statements of the problems that a column of some rows names, by id."""
    found = read_by_id(problems, "problem", {row.get(key) for row in rows}, "statement")
    return {name: row["statement"] for name, row in found.items()}

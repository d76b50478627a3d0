"""Collect the page of a table: filtered, sorted and paged rows, histograms, shortcuts, the funnel of filters, and exports."""

import csv
import io
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np
import polars as pl
import yaml

from proofmill.analysis import show_artifact
from proofmill.analysis.show_artifact import NUMBER
from proofmill.artifacts.checked_parquet import frame_of
from proofmill.artifacts.tables import Table
from proofmill.calls import records
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import ENTRY_TYPES
from proofmill.schema.names import kind_of
from proofmill.viewer.tables.histograms import Bar, Histogram, histogram, literal
from proofmill.viewer.tables.joined_rows import RESPONSE_TOKENS, problems_of, read_rows, responses_of

PAGE = 50  # rows
SEARCH_SECONDS = 1.2  # for a search; the page then says how many rows were searched
LONGEST = 2000  # characters of a condition
DIGITS = 9  # of a number in an address
FORMS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
NEWEST = 10  # outputs of an unfinished table
TEXTS = ("statement", "text", "reasoning", "verdict", "scheme", "span", "messages")  # columns that are searched


@dataclass(frozen=True)
class PageSettings:
    """The settings of a table's page, from its address."""

    where: str = ""
    q: str = ""
    sort: str = ""
    down: bool = False
    page: int = 0
    columns: tuple[str, ...] = ()
    histogram: str = ""

    def query(self, **changed: Any) -> str:
        """Return the query string of the page with changed settings."""
        now = {**asdict(self), "down": int(self.down), **changed}
        return "?" + urlencode({key: value for key, value in now.items() if value not in ("", 0, ())}, doseq=True)


class Matches(NamedTuple):
    """The rows that match: how many, the numbers of those on the page, and histograms of all of them."""

    matching: int
    places: Sequence[int]
    histograms: Sequence[Histogram]
    searched: int | None  # the rows that a search has read, if there was no time for all


class Overview(NamedTuple):
    """The part of a page above its rows: histograms, shortcuts (word, chip, condition, count) and the funnel."""

    histograms: Sequence[Histogram]
    shortcuts: Sequence[tuple[str, str, str, int]]
    funnel: Sequence[Bar]


@cache
def read_defaults(kind: str) -> Mapping[str, Any]:
    """Return what pages of a kind show without a choice (pages/kinds.yaml)."""
    text = (Path(__file__).parent / "pages/kinds.yaml").read_text(encoding="utf-8")
    return {"histograms": [], "shortcuts": {}, **yaml.safe_load(text)[kind]}


def read_number(text: str, fault: str) -> int:
    """Parse a number in an address. Raises SettingError for other texts, and for numbers that no table reaches."""
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS):
        raise SettingError(f"{fault} `{text[:DIGITS]}`; expected a number below {10**DIGITS:,}. Fix the address.")
    return int(text)


def read_settings(parameters: Any) -> PageSettings:
    """Return the settings in an address. Raises SettingError for a page that is not a number, and for too long a text."""
    where, q = (parameters.get(name, "").strip() for name in ("where", "q"))
    if len(where) + len(q) > LONGEST:
        raise SettingError(
            f"a condition of {len(where) + len(q):,} characters; expected at most {LONGEST:,}. Shorten it."
        )
    names = {name: parameters.get(name, "") for name in ("sort", "histogram")}
    page, columns = read_number(parameters.get("page", "0"), "no page"), tuple(parameters.getlist("columns"))
    return PageSettings(where, q, down=parameters.get("down") == "1", page=page, columns=columns, **names)


# ---------------------------------------------------------------------------------------------------------------- rows


class TablePage(NamedTuple):
    """The rows of a page with their columns, what is above them, and the fault of a condition that does not count."""

    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[str]
    all_columns: Sequence[str]
    matches: Matches
    above: Overview
    fault: str


def page(table: Table, settings: PageSettings, find: Callable[..., Matches]) -> TablePage:
    """Return a page. `find` is the function below, or a call of it with limits; an invalid condition does not count."""
    usual, names, above, fault = read_defaults(table.kind)["columns"], columns_of(table), overview(table), ""
    columns, first = usual, settings.page * PAGE
    matches = Matches(table.height, range(first, min(first + PAGE, table.height)), above.histograms, None)
    try:
        show_artifact.require_columns(table, settings.columns, names)
        if settings.where or settings.q or settings.sort or settings.histogram:
            matches = find(table.name, table.results, settings)
        if settings.columns:
            columns = [*usual[:1], *(name for name in settings.columns if name not in usual[:1])]
    except SettingError as error:
        fault = str(error)
    return TablePage(read_rows(table, matches.places, columns), columns, names, matches, above, fault)


def columns_of(table: Table) -> list[str]:
    """Return the columns that a reader may name, those of the responses of grades included."""
    return [*show_artifact.columns_of(table), *[RESPONSE_TOKENS] * (responses_of(table) is not None)]


def find(name: str, results: Path, settings: PageSettings, most: int | None = PAGE) -> Matches:
    """Return the rows that match, with the numbers of `most` of them from the page. Raises SettingError for an invalid condition or column."""
    table = Table(name, results)
    chosen = list(dict.fromkeys(filter(None, [settings.histogram, *_list_histograms(table)])))
    rows, searched = select(table, settings, chosen)
    places = rows[NUMBER].slice(settings.page * PAGE, most).to_list()
    return Matches(rows.height, places, [histogram(column, rows) for column in chosen], searched)


def list_places(table: Table, settings: PageSettings, find: Callable[..., Matches]) -> Sequence[int]:
    """Return the numbers of all rows that match, in order. Raises SettingError if a search had no time to read them all."""
    found = find(table.name, table.results, replace(settings, sort="", histogram="", page=0), None)
    if found.searched is not None:
        raise SettingError(
            f"{table.name}: there was time to search {found.searched:,} of {table.height:,} rows; expected all of them for "
            "a file. Filter by a condition instead: `statement LIKE '%...%'`."
        )
    return found.places


def select(table: Table, settings: PageSettings, columns: Sequence[str] = ()) -> tuple[pl.DataFrame, int | None]:
    """Return the rows that match, with their numbers and some columns, and how many were searched if not all."""
    names, searched = columns_of(table), None
    sorting = [settings.sort] if settings.sort else []
    show_artifact.require_columns(table, [*columns, *sorting, *settings.columns], names)
    condition = show_artifact.condition(settings.where, table, names) if settings.where else pl.lit(True)
    read = [*columns, *sorting, *condition.meta.root_names()]
    frame = show_artifact.number_rows(table)
    if RESPONSE_TOKENS in read and (responses := responses_of(table)):
        tokens = responses.scan().select(pl.col("tokens").alias(RESPONSE_TOKENS))
        frame = pl.concat([frame, tokens], how="horizontal")
    if settings.q:
        places, searched = _search(table, settings.q)
        frame = frame.filter(pl.col(NUMBER).is_in(places))
    if settings.where:
        frame = frame.filter(condition)
    if sorting:
        frame = frame.sort(sorting, descending=settings.down, nulls_last=True, maintain_order=True)
    split = [name for name in ("max_points", "reason") if "grade" in columns and name in names]  # for its histogram
    wanted = dict.fromkeys(
        [NUMBER, show_artifact.columns_of(table)[-1], *columns, *split]
    )  # at least one with the number
    return show_artifact.collect_rows(table, settings.where, frame.select(*wanted)), searched


def _search(table: Table, q: str) -> tuple[list[int], int | None]:
    """Return the numbers of rows with `q` in a text of theirs, of their response or problem; and how many were read."""
    until, ids = time.monotonic() + SEARCH_SECONDS, pl.Series(dtype=pl.String)
    problems, responses = problems_of(table), responses_of(table)
    if problems and problems.name != table.name:
        ids = problems.at(_search_texts(problems, q, until, ids)[0], "problem")["problem"]
    matches, read = _search_texts(table, q, until, ids)
    if responses:
        more, read_there = _search_texts(responses, q, until, ids.clear())
        matches, read = sorted({*matches, *more}), min(read, read_there)
    return [place for place in matches if place < read], read if read < table.height else None


def _search_texts(table: Table, q: str, until: float, problems: pl.Series) -> tuple[list[int], int]:
    """Return the numbers of rows with `q` in a text, in any case, or with one of the problems; and how many were read."""
    schema = table.scan().collect_schema()
    names = [name for name in schema if name in TEXTS or (name == "problem" and len(problems))]
    pattern, matches, read = f"(?i){pl.escape_regex(q)}", [], 0
    of_message = pl.element().struct.field("content").str.contains(pattern)
    holds = {name: pl.col(name).str.contains(pattern) for name in names} | {
        "messages": pl.col("messages").list.eval(of_message).list.any(),
        "problem": pl.col("problem").is_in(problems.implode()),
    }
    for batch in table.batches(*names) if names else ():
        found = frame_of(batch).select(pl.any_horizontal(holds[name].fill_null(False) for name in names)).to_series()
        matches += (found.arg_true() + read).to_list()
        read += batch.num_rows
        if time.monotonic() > until:
            return matches, read
    return matches, table.height


# -------------------------------------------------------------------------------------------------- above the rows


def _list_histograms(table: Table) -> list[str]:
    return [name for name in read_defaults(table.kind)["histograms"] if name in columns_of(table)]


def version(table: Table) -> tuple[int, int]:
    """Return what changes with a table's file, as a key of caches."""
    return table.path.stat().st_mtime_ns, table.path.stat().st_size


def overview(table: Table) -> Overview:
    """Return what a page shows above the rows, computed once for each version of the file."""
    return _overview(table.name, table.results, *version(table))


@lru_cache(maxsize=256)
def _overview(name: str, results: Path, *_: int) -> Overview:
    table, drawn = Table(name, results), _list_histograms(Table(name, results))
    shortcuts = {
        word: (*shown, pl.sql_expr(shown[1])) for word, shown in read_defaults(table.kind)["shortcuts"].items()
    }
    read = [*drawn, *(column for *_, holds in shortcuts.values() for column in holds.meta.root_names())]
    if not read:
        return Overview([], [], [])
    rows = select(table, PageSettings(), list(dict.fromkeys(read)))[0]
    counts = [(word, chip, where, rows.select(holds.sum()).item()) for word, (chip, where, holds) in shortcuts.items()]
    return Overview([histogram(column, rows) for column in drawn], [each for each in counts if each[-1]], funnel(table))


def so_far(table: Table) -> Mapping[str, Any]:
    """Return what the journal of a table holds: its calls by outcome, tokens, dollars, and the newest outputs."""
    calls = records.frame(table.calls, "reason", "tokens", "cost")
    newest = deque(records.whole_rows(table.calls / "calls.jsonl"), NEWEST)
    return {
        "counts": sorted(Counter(calls["reason"]).items(), key=lambda pair: -pair[1]),
        "tokens": calls["tokens"].sum(),
        "cost": calls["cost"].sum() if not calls["cost"].null_count() else None,
        "newest": [row.answer for row in reversed(newest)],
    }


def facts(table: Table, entries: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the artifacts, models and graders that a table was made from, and of those made from it."""
    own = {key: _names(value) for key, value in show_artifact.own_fields(table.kind, table.stamp["entry"]).items()}
    used = [name for name, entry in entries.items() if table.name in _names([*entry.values()])]
    return {key: names for key, names in {**own, "used-by": used}.items() if names}


def _names(value: Any) -> list[str]:
    """Return the names of entries in the value of a field."""
    if isinstance(value, list | dict):
        return [name for item in value for name in _names(item)]
    return [value] if isinstance(value, str) and kind_of(value) in ENTRY_TYPES and "/" in value else []


def funnel(table: Table) -> list[Bar]:
    """Return the number of rows left after each filter, in the order of the filters; empty if none dropped rows."""
    if "dropped" not in table.scan().collect_schema().names():
        return []
    keep = table.stamp["entry"].get("keep") or []
    order = [item if isinstance(item, str) else next(iter(item)) for item in keep]
    dropped = table.scan().select("dropped").collect().to_series()
    counts = dict(dropped.value_counts().iter_rows())
    left = dropped.len()
    bars = [Bar("read", left)]
    for name in [*filter(counts.get, order), *(n for n in counts if n is not None and n not in order)]:
        left -= counts[name]
        bars.append(Bar(name, left, f"dropped = {literal(name)}"))
    return bars if len(bars) > 1 else []


def export(table: Table, places: Sequence[int] | None, form: str) -> Iterator[str]:
    """Yield the rows with these numbers (None: all) as `csv` or `jsonl`, with all columns, a batch at a time."""
    chosen_N = np.isin(np.arange(table.height), places) if places is not None else np.full(table.height, True)
    header, before = table.scan().collect_schema().names(), 0
    for batch in table.batches():
        frame = frame_of(batch).filter(chosen_N[before : before + batch.num_rows])
        text, before = io.StringIO(), before + batch.num_rows
        if form == "csv":
            nested = (
                [json.dumps(cell) if isinstance(cell, list | dict) else cell for cell in row] for row in frame.rows()
            )
            csv.writer(text).writerows([*([header] if before == batch.num_rows else []), *nested])
        yield text.getvalue() if form == "csv" else frame.write_ndjson()

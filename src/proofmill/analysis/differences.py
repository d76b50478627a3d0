"""Compare two artifacts, or one artifact in two results folders: entries, outcomes, rows, scores.

Rows are matched by id; rows of trainings and scores, which have no id, by all columns that are not numbers. The grades
behind two `scores` are compared problem by problem, as `compare` does (metrics/comparisons.py). A difference that is not
significant is reported as such.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from proofmill.artifacts.jobs import Job
from proofmill.artifacts.states import change
from proofmill.artifacts.tables import Table
from proofmill.config.entry_values import entry_from
from proofmill.metrics.attempt_table import Rows
from proofmill.metrics.comparisons import adjust, pair_numbers
from proofmill.metrics.metrics import METRICS
from proofmill.metrics.page import format_p
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import KINDS

NUMBERS = (pl.Float64, pl.Int64)
FEW = 5  # ids that are printed
STAMPED = ("counts", "tokens", "cost", "seconds", "commit", "revision")


@dataclass(frozen=True)
class Rowwise:
    """Differences of rows: ids in one table only, and the number of shared rows that differ, by column."""

    added: list[str]
    removed: list[str]
    changed: dict[str, int]  # number of rows by column
    changed_rows: list[str]
    same: int


def lines(one: Table, other: Table) -> Iterator[str]:
    """Yield the changes from `one` to `other` as text. Raises SettingError for artifacts of two kinds."""
    if one.kind != other.kind:
        raise SettingError(f"{one.name} and {other.name}: have different kinds; expected two artifacts of one kind.")
    yield f"{one.path} -> {other.path}"
    yield from (f"  {line}" for line in _of_stamps(one.stamp, other.stamp))
    if one.content == other.content:
        yield "  rows are identical"
        return
    yield from (f"  {line}" for line in _of_rows(rowwise(one, other)))
    if one.kind == "scores":
        yield from (f"  {line}" for line in _of_scores(one, other))


def _of_stamps(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield changes of the entry, of parents, and of outcomes."""
    for key in {**old["entry"], **new["entry"]}:
        before, after = old["entry"].get(key), new["entry"].get(key)
        if before != after:
            yield f"entry: `{key.replace('_', '-')}` {change(before, after)}"
    for name in {**old["parents"], **new["parents"]}:
        before, after = old["parents"].get(name), new["parents"].get(name)
        if before != after:
            yield f"{name}: {'no longer read' if after is None else 'newly read' if before is None else 'rows differ'}"
    for key in STAMPED:
        before, after = old.get(key), new.get(key)
        if before != after:
            yield f"{key}: {change(before, after)}"


# ------------------------------------------------------------------------------------------------------------------ rows


def rowwise(one: Table, other: Table) -> Rowwise:
    """Compare the rows of `other` with those of `one`."""
    old, new = _digest_rows(one), _digest_rows(other)
    both = old.join(new, on="id", how="full", coalesce=True, suffix=" of the other")
    columns = [column for column in old.columns if column not in ("id", "exists")]
    in_old, in_new = pl.col("exists"), pl.col("exists of the other")
    shared = both.filter(in_old.is_not_null() & in_new.is_not_null())
    differs = {column: pl.col(column) != pl.col(f"{column} of the other") for column in columns}
    counts = shared.select(**{column: how.sum() for column, how in differs.items()}).to_dicts()[0] if columns else {}
    changed = shared.filter(pl.any_horizontal(*differs.values())) if columns else shared.clear()
    return Rowwise(
        added=both.filter(in_old.is_null())["id"].to_list(),
        removed=both.filter(in_new.is_null())["id"].to_list(),
        changed={column: count for column, count in counts.items() if count},
        changed_rows=changed["id"].to_list(),
        same=shared.height - changed.height,
    )


def _digest_rows(table: Table) -> pl.DataFrame:
    """Return the id of each row and a digest of each other column, without loading all texts at once."""
    schema = table.scan().collect_schema()
    key = KINDS[table.kind].key
    keys = [key] if key else [name for name, kind in schema.items() if kind not in NUMBERS or name == "step"]
    parts = [_digests(frame, keys) for frame in table.frames()]
    return pl.concat(parts) if parts else _digests(pl.DataFrame(schema=schema), keys)


def _digests(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the id and column digests of some rows."""
    identity = pl.concat_str(*(pl.col(k).cast(pl.String).fill_null("–") for k in keys), separator=" · ").alias("id")
    others = [name for name in frame.columns if name not in keys]
    hashed = [frame.select(name).hash_rows().alias(name) for name in others]
    return frame.select(identity, pl.lit(True).alias("exists")).with_columns(*hashed)


def _of_rows(rows: Rowwise) -> Iterator[str]:
    """Yield the numbers of changed rows, with some ids."""
    yield f"rows: {len(rows.added):,} added, {len(rows.removed):,} removed, {len(rows.changed_rows):,} changed, {rows.same:,} the same"
    for what, ids in (("added", rows.added), ("removed", rows.removed), ("changed", rows.changed_rows)):
        if ids:
            yield f"  {what}: {', '.join(ids[:FEW])}{f' and {len(ids) - FEW:,} more' if len(ids) > FEW else ''}"
    if rows.changed:
        yield f"  in {', '.join(f'{column} ({count:,})' for column, count in rows.changed.items())}"


# ----------------------------------------------------------------------------------------------------------------- scores


def _of_scores(one: Table, other: Table) -> Iterator[str]:
    """Yield the differences of mean grades, for the cells of both tables, compared problem by problem."""
    before, after = read_cells(one), read_cells(other)
    entry = _entry(other)
    compared, scales = [], []
    for (model, *where), rows in after.items():
        for (baseline, *other_cell), old in before.items():
            single = len(before) == len(after) == 1  # then compare the two models, or sampling settings
            if (where == other_cell and model == baseline) or (
                single and (where[0], where[2]) == (other_cell[0], other_cell[2])
            ):
                if rows[0]["max_points"] != old[0]["max_points"]:
                    scales.append(
                        f"{model}: out of {rows[0]['max_points']} and {old[0]['max_points']} points; not compared"
                    )
                    continue
                numbers = pair_numbers(METRICS["avg-at-k"].apply, None, (model, baseline), (rows, old), entry)
                compared.append((model, where, numbers))
    adjust([numbers for *_, numbers in compared])
    yield from (f"scores of {scale}" for scale in scales)
    if not compared and not scales:
        yield "scores: no cell is in both tables"
    for model, (problems, sampling, grader), numbers in compared:
        cell = f"{model} on {problems} ({sampling}) by {grader}"
        if numbers["value"] is None:
            yield f"scores of {cell}: no common problem and seed"
            continue
        of_seeds = f" and {numbers['n_seeds']} seeds" if numbers["n_seeds"] > 1 else ""
        ends = "" if numbers["low"] is None else f" [{numbers['low']:+.3f}, {numbers['high']:+.3f}]"
        shown = "" if numbers["p_adjusted"] < 1 - entry.confidence else ", no difference shown"
        said = (
            f"{numbers['value']:+.3f}{ends} on {numbers['n_problems']:,} problems{of_seeds}, {format_p(numbers)}{shown}"
        )
        yield f"scores of {cell}: {said}"


def _entry(table: Table) -> Scores:
    return entry_from("scores", {key.replace("_", "-"): value for key, value in table.stamp["entry"].items()})


def read_cells(table: Table) -> dict[Any, Rows]:
    """Return the graded attempts behind a table of scores, or in a table of grades, by cell."""
    from proofmill.scores import group_attempts

    entry = _entry(table) if table.kind == "scores" else Scores(grades=[table.name], metrics=["avg-at-k"])
    stamp = {**table.stamp, "parents": {**table.stamp["parents"], table.name: table.content}}
    return group_attempts(entry, Job(table, {}, table.stamp["fingerprint"], stamp))

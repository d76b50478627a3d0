"""What differs between two artifacts, or between one in two result folders: entries, outcomes, rows, marks.

Rows are matched by their id; rows of trainings and scores, which have none, by all that is no number in them. The marks of
two `scores` are compared problem by problem, as `compare` does (measures/comparisons.py): a difference too small to be
shown is said to be none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from proofmill.artifacts.jobs import Job
from proofmill.artifacts.states import change
from proofmill.artifacts.tables import Table
from proofmill.measures import estimates
from proofmill.measures.attempts import Rows
from proofmill.measures.comparisons import paired
from proofmill.measures.measures import MEASURES, per_problem
from proofmill.recipes.entry_values import entry_from
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import KINDS
from proofmill.schema.scores_entry import Scores

NUMBERS = (pl.Float64, pl.Int64)
FEW = 5  # ids that are named
STAMPED = ("counts", "tokens", "cost", "seconds", "commit", "revision")


@dataclass(frozen=True)
class Rowwise:
    """How the rows of two tables differ: ids on one side only, and of the shared ones how many differ in which column."""

    added: list[str]
    removed: list[str]
    changed: dict[str, int]  # column: how many rows
    changed_rows: list[str]
    same: int


def lines(one: Table, other: Table) -> Iterator[str]:
    """What became of `one` in `other`, as text. SettingError for artifacts of two kinds."""
    if one.kind != other.kind:
        raise SettingError(f"{one.name} and {other.name}: are of two kinds; expected two of one kind.")
    yield f"{one.path} -> {other.path}"
    yield from (f"  {line}" for line in _of_stamps(one.stamp, other.stamp))
    if one.content == other.content:
        yield "  the rows are the same, byte for byte"
        return
    yield from (f"  {line}" for line in _of_rows(rowwise(one, other)))
    if one.kind == "scores":
        yield from (f"  {line}" for line in _of_marks(one, other))


def _of_stamps(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in {**old["entry"], **new["entry"]}:
        before, after = old["entry"].get(key), new["entry"].get(key)
        if before != after:
            yield f"entry: `{key.replace('_', '-')}` {change(before, after)}"
    for name in {**old["parents"], **new["parents"]}:
        before, after = old["parents"].get(name), new["parents"].get(name)
        if before != after:
            yield f"{name}: {'is read no more' if after is None else 'is read now' if before is None else 'had other rows'}"
    for key in STAMPED:
        before, after = old.get(key), new.get(key)
        if before != after:
            yield f"{key}: {change(before, after)}"


# ------------------------------------------------------------------------------------------------------------------ rows


def rowwise(one: Table, other: Table) -> Rowwise:
    """How the rows of `other` differ from those of `one`."""
    old, new = _keyed(one), _keyed(other)
    both = old.join(new, on="id", how="full", coalesce=True, suffix=" of the other")
    columns = [column for column in old.columns if column not in ("id", "there")]
    there, here = pl.col("there"), pl.col("there of the other")
    shared = both.filter(there.is_not_null() & here.is_not_null())
    differs = {column: pl.col(column) != pl.col(f"{column} of the other") for column in columns}
    counts = shared.select(**{column: how.sum() for column, how in differs.items()}).to_dicts()[0] if columns else {}
    changed = shared.filter(pl.any_horizontal(*differs.values())) if columns else shared.clear()
    return Rowwise(
        added=both.filter(there.is_null())["id"].to_list(),
        removed=both.filter(here.is_null())["id"].to_list(),
        changed={column: count for column, count in counts.items() if count},
        changed_rows=changed["id"].to_list(),
        same=shared.height - changed.height,
    )


def _keyed(table: Table) -> pl.DataFrame:
    """The id of each row, and a digest of each other column; a table's texts are never in memory together."""
    schema = table.scan().collect_schema()
    key = KINDS[table.kind].key
    keys = [key] if key else [name for name, kind in schema.items() if kind not in NUMBERS or name == "step"]
    parts = [_digests(frame, keys) for frame in table.frames()]
    return pl.concat(parts) if parts else _digests(pl.DataFrame(schema=schema), keys)


def _digests(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    identity = pl.concat_str(*(pl.col(k).cast(pl.String).fill_null("–") for k in keys), separator=" · ").alias("id")
    others = [name for name in frame.columns if name not in keys]
    hashed = [frame.select(name).hash_rows().alias(name) for name in others]
    return frame.select(identity, pl.lit(True).alias("there")).with_columns(*hashed)


def _of_rows(found: Rowwise) -> Iterator[str]:
    yield f"rows: {len(found.added):,} added, {len(found.removed):,} removed, {len(found.changed_rows):,} changed, {found.same:,} the same"
    for what, ids in (("added", found.added), ("removed", found.removed), ("changed", found.changed_rows)):
        if ids:
            yield f"  {what}: {', '.join(ids[:FEW])}{f' and {len(ids) - FEW:,} more' if len(ids) > FEW else ''}"
    if found.changed:
        yield f"  in {', '.join(f'{column} ({count:,})' for column, count in found.changed.items())}"


# ----------------------------------------------------------------------------------------------------------------- marks


def _of_marks(one: Table, other: Table) -> Iterator[str]:
    """The mean marks of the cells that both measure, compared problem by problem."""
    before, after = _cells(one), _cells(other)
    entry = _entry(other)
    compared = []
    for (model, *where), rows in after.items():
        for (baseline, *there), old in before.items():
            alone = len(before) == len(after) == 1  # then the models, or the ways of sampling, are what is compared
            if (where == there and model == baseline) or (alone and (where[0], where[2]) == (there[0], there[2])):
                ours, theirs = (per_problem(MEASURES["avg-at-k"].apply, None, 1.0, some) for some in (rows, old))
                compared.append((model, where, paired(ours, theirs, (rows, old), entry)))
    adjusted = estimates.holm([numbers["p"] for *_, numbers in compared])
    if not compared:
        yield "marks: no cell is measured in both"
    for (model, (problems, sampling, grader), numbers), p in zip(compared, adjusted, strict=True):
        cell = f"{model} on {problems} ({sampling}) by {grader}"
        if numbers["value"] is None:
            yield f"marks of {cell}: no problem in common"
            continue
        ends = "" if numbers["low"] is None else f" [{numbers['low']:+.3f}, {numbers['high']:+.3f}]"
        shown = "" if p < 1 - entry.confidence else ", no difference shown"
        yield f"marks of {cell}: {numbers['value']:+.3f}{ends} at {numbers['problems_n']:,} problems, p = {p:.3f}{shown}"


def _entry(table: Table) -> Scores:
    return entry_from("scores", {key.replace("_", "-"): value for key, value in table.stamp["entry"].items()})


def _cells(table: Table) -> dict[Any, Rows]:
    from proofmill.scores import grouped

    return grouped(_entry(table), Job(table, {}, table.stamp["fingerprint"], table.stamp))

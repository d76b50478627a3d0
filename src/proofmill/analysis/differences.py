"""Compare two artifacts, or one artifact in two results folders: entries, outcomes, rows, scores.

Rows are matched by id; rows of trainings and scores, which have no id, by all columns that are not numbers. The grades
behind two `scores` are compared problem by problem, as `compare` does (metrics/comparisons.py). A difference that is not
significant is reported as such.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
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


def compare(one: Table, other: Table) -> dict[str, Any]:
    """Return the changes from `one` to `other`. Raises SettingError for artifacts of two kinds."""
    if one.kind != other.kind:
        raise SettingError(f"{one.name} and {other.name}: have different kinds; expected two artifacts of one kind.")
    old, new = one.stamp, other.stamp
    equal = one.content == other.content
    return {
        "from": str(one.path),
        "to": str(other.path),
        "entry": compare_fields(old["entry"], new["entry"]),
        "parents": dict(_find_changes(old["parents"], new["parents"])),
        "stamp": dict(_find_changes(*({key: stamp.get(key) for key in STAMPED} for stamp in (old, new)))),
        "identical": equal,
        "rows": None if equal else asdict(rowwise(one, other)),
        "scores": [] if equal or one.kind != "scores" else _compare_scores(one, other),
    }


def _find_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the keys of two mappings whose values differ, with both values."""
    return ((key, [old.get(key), new.get(key)]) for key in {**old, **new} if old.get(key) != new.get(key))


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changes as text."""
    yield f"{found['from']} -> {found['to']}"
    yield from (f"  entry: `{key}` {change(*pair)}" for key, pair in found["entry"].items())
    for name, (before, after) in found["parents"].items():
        yield f"  {name}: {'no longer read' if after is None else 'newly read' if before is None else 'rows differ'}"
    yield from (f"  {key}: {change(*pair)}" for key, pair in found["stamp"].items())
    if found["identical"]:
        yield "  rows are identical"
        return
    yield from (f"  {line}" for line in _of_rows(Rowwise(**found["rows"])))
    yield from (f"  {line}" for line in map(_describe_score, found["scores"]))
    if not found["scores"] and "/scores/" in f"/{found['to']}":
        yield "  scores: no cell is in both tables"


def compare_fields(*entries: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the fields that are not equal in all entries, by configuration key, with the value in each."""
    values = {
        key: [entry.get(key) for entry in entries] for key in dict.fromkeys(key for entry in entries for key in entry)
    }
    return {key.replace("_", "-"): each for key, each in values.items() if any(value != each[0] for value in each)}


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


def _compare_scores(one: Table, other: Table) -> list[dict[str, Any]]:
    """Return the differences of mean grades, for the cells of both tables, compared problem by problem."""
    before, after = read_cells(one), read_cells(other)
    entry = _entry(other)
    compared = []
    for (model, *where), rows in after.items():
        for (baseline, *other_cell), old in before.items():
            single = len(before) == len(after) == 1  # then compare the two models, or sampling settings
            if (where == other_cell and model == baseline) or (
                single and (where[0], where[2]) == (other_cell[0], other_cell[2])
            ):
                cell = dict(
                    zip(("model", "baseline", "problems", "sampling", "grader"), (model, baseline, *where), strict=True)
                )
                points = [old[0]["max_points"], rows[0]["max_points"]]
                same = points[0] == points[1]
                both = (model, baseline), (rows, old)
                numbers = pair_numbers(METRICS["avg-at-k"].apply, None, *both, entry) if same else {"value": None}
                compared.append({**cell, "max_points": points, **numbers})
    adjust([numbers for numbers in compared if numbers["value"] is not None])
    for each in compared:
        each["shown"] = each["value"] is not None and each["p_adjusted"] < 1 - entry.confidence
    return compared


def _describe_score(score: Mapping[str, Any]) -> str:
    """Return one difference of mean grades as text."""
    before, after = score["max_points"]
    where = f"scores of {score['model']} on {score['problems']} ({score['sampling']}) by {score['grader']}"
    if before != after:
        return f"scores of {score['model']}: out of {after} and {before} points; not compared"
    if score["value"] is None:
        return f"{where}: no common problem and seed"
    of_seeds = f" and {score['n_seeds']} seeds" if score["n_seeds"] > 1 else ""
    ends = "" if score["low"] is None else f" [{score['low']:+.3f}, {score['high']:+.3f}]"
    tested = f"{format_p(score)}{'' if score['shown'] else ', no difference shown'}"
    return f"{where}: {score['value']:+.3f}{ends} on {score['n_problems']:,} problems{of_seeds}, {tested}"


def _entry(table: Table) -> Scores:
    return entry_from("scores", {key.replace("_", "-"): value for key, value in table.stamp["entry"].items()})


def read_cells(table: Table) -> dict[Any, Rows]:
    """Return the graded attempts behind a table of scores, or in a table of grades, by cell."""
    from proofmill.scores import group_attempts

    entry = _entry(table) if table.kind == "scores" else Scores(grades=[table.name], metrics=["avg-at-k"])
    stamp = {**table.stamp, "parents": {**table.stamp["parents"], table.name: table.content}}
    return group_attempts(entry, Job(table, {}, table.stamp["fingerprint"], stamp))

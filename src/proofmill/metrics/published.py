"""Compare scores with published ones, on the score page: the difference with its interval, and settings that differ.

A published number has no interval here, because its attempts are unknown. So a difference has the interval of our
number alone, if it has one; the published one may be off by about as much.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from proofmill.metrics.attempt_table import Rows
from proofmill.metrics.score_rows import Cell
from proofmill.schema.entries.scores_entry import Published, Scores
from proofmill.text.suggestions import among

Row = Mapping[str, Any]
# Metrics in points; others are shares.
OF_POINTS = ("avg@", "best@", "max@", "shortest@", "longest@", "run-mean", "run-max", "run-min", "run-std")


def faults(entry: Scores) -> Iterator[str]:
    """Yield the faults in the names of `published`."""
    known = [*entry.problems, *entry.averages, *(each for members in entry.averages.values() for each in members)]
    for model, reported in entry.published.items():
        if unmeasured := [each for each in (*reported.percent, *reported.values) if each not in known]:
            yield f"`published` has `{unmeasured[0]}` of {model}; expected one of {among(unmeasured[0], known)}"


def table(entry: Scores, rows: Sequence[Row], groups: Mapping[Cell, Rows]) -> Iterator[str]:
    """Yield a line for each published number, and for each of our settings if a model of ours is its counterpart."""
    shown = {model: each for model, each in entry.published.items() if each.ours or not entry.averages}
    if not shown:
        return
    full = {cell.problems: attempts[0]["max_points"] for cell, attempts in groups.items() if len(attempts)}
    yield "| published | benchmark | number | ours | number | difference | settings that differ | source |"
    yield "|---" * 8 + "|"
    for model, reported in shown.items():
        for benchmark, number in (reported.percent | reported.values).items():
            points = full.get(benchmark, 1) if benchmark in reported.percent else None
            ours = _counterparts(rows, reported, benchmark)
            compared = [_compare(row, number, points, reported, entry) for row in ours]
            theirs = f"{number:,.7g}{' %' if points else ''}"
            for cells in compared or [["–"] * 4]:
                yield f"| {model} | {benchmark} | {theirs} | {' | '.join(cells)} | {reported.source} |"


def _counterparts(rows: Sequence[Row], reported: Published, benchmark: str) -> list[Row]:
    """Return our row of each sampling setting: of the published metric, or of the first. Trainings are of no benchmark."""
    found: dict[str, Row] = {}
    for row in rows:
        is_ours = (row["model"], row["slice"], row["p_value"]) == (reported.ours, reported.slice, None)
        has_metric = row["metric"] == reported.metric if reported.metric else row["model"] and row["low"] is not None
        if is_ours and has_metric and row["value"] is not None and row["problems"] in (benchmark, None):
            found.setdefault(row["sampling"], row)
    return list(found.values())


def _compare(row: Row, number: float, full: float | None, reported: Published, entry: Scores) -> list[str]:
    """Return our model with its setting, its number, the difference, and the settings that differ.

    `full` are all points of a percentage; None for another number.
    """
    scale = 1 if full is None else 100 / full if row["metric"].startswith(OF_POINTS) else 100
    values = [scale * row[key] for key in ("value", "low", "high") if row[key] is not None]
    digits = ",.6g" if full is None else ".1f"
    ours = f"{row['model'] or row['problems']} ({', '.join(filter(None, (row['sampling'], row['metric'])))})"
    differences = _with_interval([value - number for value in values], f"+{digits}")
    return [ours, _with_interval(values, digits), differences, _differing(row, reported, entry)]


def _with_interval(values: Sequence[float], style: str) -> str:
    first, *ends = (f"{value:{style}}" for value in values)
    return f"{first} [{', '.join(ends)}]" if ends else first


def _differing(row: Row, reported: Published, entry: Scores) -> str:
    """Name the settings that are known of the published number and differ from ours; those unknown are not compared."""
    known = {name: value for name, value in asdict(reported.settings).items() if value is not None}
    sampling = entry.sampling.get(row["sampling"])
    if not known or sampling is None:
        return "not known"
    ours = {**asdict(sampling), "grader": row["grader"]}
    differing = [
        f"{name.replace('_', '-')} {value} (ours {ours[name]})" for name, value in known.items() if value != ours[name]
    ]
    return ", ".join(differing) or "none of those known"

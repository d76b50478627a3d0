"""Compare scores with published ones, on the score page: the difference with its interval, and settings that differ.

A published number has no interval here, because its attempts are unknown. So a difference has the interval of our
number alone; the published one may be off by about as much.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from proofmill.metrics.attempt_table import Rows
from proofmill.metrics.score_rows import Cell
from proofmill.schema.entries.scores_entry import Published, Scores
from proofmill.text.suggestions import among

Row = Mapping[str, Any]
OF_POINTS = ("avg@", "best@", "max@")  # metrics in points; others are shares


def faults(entry: Scores) -> Iterator[str]:
    """Yield the faults in the names of `published`."""
    known = [*entry.problems, *entry.averages, *(each for members in entry.averages.values() for each in members)]
    for model, reported in entry.published.items():
        if unmeasured := [each for each in reported.percent if each not in known]:
            yield f"`published` has `{unmeasured[0]}` of {model}; expected one of {among(unmeasured[0], known)}"


def table(entry: Scores, rows: Sequence[Row], groups: Mapping[Cell, Rows]) -> Iterator[str]:
    """Yield a line for each published number, and for each of our settings if a model of ours is its counterpart."""
    shown = {model: each for model, each in entry.published.items() if each.ours or not entry.averages}
    if not shown:
        return
    full = {cell.problems: attempts[0]["max_points"] for cell, attempts in groups.items() if len(attempts)}
    yield "| published | benchmark | percent | ours | percent | difference | settings that differ | source |"
    yield "|---" * 8 + "|"
    for model, reported in shown.items():
        for benchmark, percent in reported.percent.items():
            ours = _counterparts(rows, reported, benchmark)
            compared = [_compare(row, percent, full.get(benchmark, 1), reported, entry) for row in ours]
            for cells in compared or [["–"] * 4]:
                yield f"| {model} | {benchmark} | {percent:g} | {' | '.join(cells)} | {reported.source} |"


def _counterparts(rows: Sequence[Row], reported: Published, benchmark: str) -> list[Row]:
    """Return our row of each sampling setting: of the metric that is published, or else of the first one."""
    found: dict[str, Row] = {}
    for row in rows:
        is_ours = (row["model"], row["problems"], row["slice"]) == (reported.ours, benchmark, "all")
        if is_ours and row["baseline"] is None and reported.metric in (None, row["metric"]) and row["low"] is not None:
            found.setdefault(row["sampling"], row)
    return list(found.values())


def _compare(row: Row, percent: float, full: float, reported: Published, entry: Scores) -> list[str]:
    """Return our model with its setting, its percent, the difference, and the settings that differ."""
    scale = 100 / full if row["metric"].startswith(OF_POINTS) else 100
    value, low, high = (scale * row[key] for key in ("value", "low", "high"))
    difference = f"{value - percent:+.1f} [{low - percent:+.1f}, {high - percent:+.1f}]"
    ours = f"{row['model']} ({row['sampling']}, {row['metric']})"
    return [ours, f"{value:.1f} [{low:.1f}, {high:.1f}]", difference, _differing(row, reported, entry)]


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

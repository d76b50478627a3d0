"""One measure turns graded attempts, or tables of problems, into numbers.

A measure of attempts gives each attempt a value, or None when the attempt is not scored; `scale` is the largest value.
The score is the mean over problems of the mean over a problem's attempts, so that avg@k is its name for marks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proofmill.named import Named


@dataclass(frozen=True)
class OfAttempts:
    """`value` of one row of `grades`; `scale` bounds it (None: no bound)."""

    value: Callable[[Mapping[str, Any]], float | None]
    scale: float | None


def _marks(row: Mapping) -> float | None:
    return row["grade"]


def _well_formed(row: Mapping) -> float | None:
    return None if row["well_formed"] is None else float(row["well_formed"])


def _cut_off(row: Mapping) -> float | None:
    return None if row["well_formed"] is None else float(row["stop"] == "length")


def _full(row: Mapping) -> float | None:
    return None if row["grade"] is None else float(row["grade"] == row["out_of"])


MEASURES: dict[str, Named] = {
    "avg-at-k": Named(OfAttempts(_marks, 7.0), "mean marks of the k attempts at a problem, averaged over problems"),
    "full-mark-rate": Named(OfAttempts(_full, 1.0), "share of attempts with full marks"),
    "format-rate": Named(
        OfAttempts(_well_formed, 1.0),
        "share of attempts with closed reasoning, one box and an end",
    ),
    "cut-off-rate": Named(OfAttempts(_cut_off, 1.0), "share of attempts that were cut off"),
    "shared-problems": Named(None, "problems that two tables have in common, by normalised statement; of `problems`"),
}


def label(measure: str, attempts: int) -> str:
    """The name a measure has in a table: `avg@4` for `avg-at-k` with 4 attempts."""
    return f"avg@{attempts}" if measure == "avg-at-k" else measure

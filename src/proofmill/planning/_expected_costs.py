"""Expected costs of calls: sums predicted from the outputs in journals, each with an interval."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from proofmill.calls import budget, records
from proofmill.schema.reasons import StopReason

Z = 1.96  # standard deviations to either side, for a 95 % interval
LEARNED = ("prompt_tokens", "cached_tokens", "tokens", "reasoning_tokens", "stop_reason")


@dataclass
class Range:
    """A number with its interval; `value` None is unknown. With `more`, an unknown number has to be added."""

    value: float | None = 0.0
    low: float = 0.0
    high: float = 0.0
    more: bool = False

    def __add__(self, other: "Range") -> "Range":
        """Return the sum of independent numbers; the squares of their deviations add up. An unknown number sets `more`."""
        if self.value is None or other.value is None:
            known = other if self.value is None else self
            return Range(known.value or None, known.low, known.high, more=bool(known.value))
        value = self.value + other.value
        down = math.hypot(self.value - self.low, other.value - other.low)
        up = math.hypot(self.high - self.value, other.high - other.value)
        return Range(value, max(0.0, value - down), value + up, self.more or other.more)

    def down_to(self, share: float) -> "Range":
        """Return the number with its lower end reduced to this share."""
        return Range(self.value, self.low * share, self.high, self.more)

    def format(self, form: str) -> str:
        """Return e.g. `$4.10 [$3.90, $4.30]`, or `at least $4.10`; no interval if rounding hides it."""
        if self.value is None:
            return "unknown"
        ends = [form.format(end) for end in (self.low, self.high)]
        interval = f" [{ends[0]}, {ends[1]}]" if len(set(ends)) > 1 else ""
        return f"{'at least ' * self.more}{form.format(self.value)}{interval}"


def read_outputs(folder: Path) -> pl.DataFrame:
    """Return the outputs in a journal, without failed calls."""
    return records.frame(folder, *LEARNED).filter(pl.col("stop_reason") != StopReason.ERROR)


def costs_of(answers: pl.DataFrame, declared: Mapping[str, float]) -> pl.Series:
    """Return the dollars of each output at the price declared now."""
    counts = ("prompt_tokens", "cached_tokens", "tokens", "reasoning_tokens")
    return pl.Series([budget.price(declared, *row) for row in answers.select(counts).iter_rows()], dtype=pl.Float64)


def predict(values: pl.Series, calls: int) -> Range:
    """Return the sum over `calls` calls, predicted from the `values` of earlier calls."""
    value, count = pl.col("value"), values.len()
    mean, deviation = values.to_frame("value").select(value.mean(), value.std().alias("deviation")).row(0)
    error = Z * (deviation or 0.0) * math.sqrt(calls + calls**2 / count)
    return Range(mean * calls, max(0.0, mean * calls - error), mean * calls + error)


def certain(value: float) -> Range:
    """Return a number without uncertainty."""
    return Range(value, value, value)

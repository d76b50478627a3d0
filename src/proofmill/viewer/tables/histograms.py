"""Count the values of a column as the bars of a histogram, each with the condition that selects its rows.

Numbers are in order, with empty bins: whole numbers in a short range have one bar each, others share round ranges. Words are
sorted by frequency. Rows without a value are a bar of their own.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

BARS = 16  # of numbers
WORDS = 12  # bars of words; the others share one more


@dataclass(frozen=True)
class Bar:
    label: str
    count: int
    where: str = ""  # the condition that selects its rows, if there is one
    part: int = 0  # of the count, the rows with an empty text


@dataclass(frozen=True)
class Histogram:
    column: str
    bars: Sequence[Bar]
    is_of_words: bool = False


def histogram(column: str, rows: pl.DataFrame) -> Histogram:
    """Return the histogram of a column. Grades begin at 0 and end at `max_points`, and have the empty attempts as parts."""
    values, nulls = rows[column].drop_nulls(), rows[column].null_count()
    missing = [Bar("null", nulls, f"{column} IS NULL")] * bool(nulls)
    if values.dtype == pl.List(pl.String):
        return Histogram(
            column, [*_words(values.explode().drop_nulls(), f"ARRAY_CONTAINS({column}, {{}})"), *missing], True
        )
    where = column
    if isinstance(values.dtype, pl.List):
        values, where = values.list.len(), f"ARRAY_LENGTH({column})"
    if not values.dtype.is_numeric():
        return Histogram(column, [*_words(values, f"{column} = {{}}"), *missing], True)
    ends: list[float] = []
    empty = values.head(0)
    if column == "grade" and "max_points" in rows.columns:
        ends = [0.0, *rows["max_points"].drop_nulls().unique().to_list()]
        empty = rows.filter(reason="empty")[column].drop_nulls()
    return Histogram(column, [*_numbers(where, values, empty, ends), *missing])


def _words(values: pl.Series, where: str) -> Iterator[Bar]:
    counts = sorted(values.value_counts().iter_rows(), key=lambda pair: (-pair[1], str(pair[0])))
    yield from (Bar(str(value), count, where.format(literal(value))) for value, count in counts[:WORDS])
    if rest := counts[WORDS:]:
        yield Bar(f"{len(rest):,} others", sum(count for _, count in rest))


def literal(value: Any) -> str:
    """Return a value as SQL."""
    quoted = str(value).replace("'", "''")
    return f"'{quoted}'" if isinstance(value, str) else quoted


def _numbers(where: str, values: pl.Series, empty: pl.Series, ends: Sequence[float]) -> Iterator[Bar]:
    numbers_N = values.cast(pl.Float64).to_numpy()
    numbers_N = numbers_N[np.isfinite(numbers_N)]
    if not len(numbers_N):
        return
    is_whole = bool((numbers_N == np.floor(numbers_N)).all())
    edges = round_edges(min([*ends, numbers_N.min()]), max([*ends, numbers_N.max()]), is_whole)
    counts, parts = (np.histogram(some, edges)[0].tolist() for some in (numbers_N, empty.to_numpy()))
    for start, end, count, part in zip(edges, edges[1:], counts, parts, strict=False):
        single = is_whole and end - start == 1
        condition = f"{where} = {start:.15g}" if single else f"{where} >= {start:.15g} AND {where} < {end:.15g}"
        yield Bar(f"{start:.15g}", count, condition, part)


def round_edges(low: float, high: float, is_whole: bool = False, most: int = BARS) -> list[float]:
    """Return the edges of about `most` ranges of round length, or fewer. The first begins at or below `low`; `high` is in the last."""
    size = 10.0 ** math.floor(math.log10(min(high - low, 1e300) / most)) if high > low else 1.0
    for step in (size * factor for factor in (1, 2, 5, 10, 20, 50, 100)):
        first, last = math.floor(low / step), math.floor(high / step)
        if last - first < most and (step >= 1 or not is_whole):
            edges = [float(f"{number * step:.15g}") for number in range(first - 1, last + 3)]
            return edges[bisect_right(edges, low) - 1 : bisect_right(edges, high) + 1]
    return [low, math.nextafter(high, math.inf)]

"""Draw curves as SVG inside a page, in a box of 400 x 192, so that they are seen and printed without a script.

A line has a run (a number, which decides its color and its dashes), a name, and lists: the step of each point, its place
on the axis, its value, and if known the ends of its interval (low, high). A point of a thinned line is a mean of several
and has the least and the most of them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from proofmill.analysis.curves import Measured, smooth_values

LEFT, RIGHT, TOP, BOTTOM = 44, 394, 10, 170
BUCKETS = 100  # points of a line that had more than twice as many
FEW = 24  # points, up to which a line is not smoothed and has circles
DASHES = ("", " dash", " dots", " dashdot")
KEYS = ("value", "low", "high", "least", "most")
Line = Mapping[str, Any]


def look(run: int) -> str:
    """Return the classes of a run's lines in the style sheet; 16 runs differ."""
    return f"c{run % 4 + 1}{DASHES[(run + run // 4) % 4]}"


def thin(run: int, name: str, points: pl.DataFrame) -> Line:
    """Return the line of points with the columns step, place, value, and if known low and high."""
    if points.height > 2 * BUCKETS:
        bucket = (pl.int_range(pl.len()) * BUCKETS // pl.len()).alias("bucket")
        middle, means = pl.col("step", "place").get(pl.len() // 2), pl.exclude("step", "place", "bucket").mean()
        ends = {"least": pl.col("value").min(), "most": pl.col("value").max()}
        points = points.group_by(bucket, maintain_order=True).agg(middle, means, **ends).drop("bucket")
    points = points.with_columns(pl.col(pl.Float64).round_sig_figs(5))
    return {"run": run, "name": name, **{column.name: column.to_list() for column in points if column.count()}}


def of_scores(panel: Measured) -> dict[str, Any]:
    """Return the drawing of a panel of scores, on a logarithmic axis."""
    lines: list[dict[str, Any]] = []
    for run, (name, rows) in enumerate(panel.lines.items()):
        steps = [panel.x(row) for row in rows]
        line = {"run": run, "name": name, "step": steps, "place": [math.log(step, panel.base) for step in steps]}
        lines.append(line | {key: [row[key] for row in rows] for key in ("value", "low", "high")})
    places = [place for line in lines for place in line["place"]]
    first, last = math.ceil(min(places) - 1e-9), math.floor(max(places) + 1e-9)
    marked = [(float(n), format_ticks([panel.base**n])[0]) for n in range(first, last + 1)]
    drawn = draw(lines, min(places), max(places), dots=True, marked=marked)
    return {"title": panel.title, "axis": panel.axis, "lines": lines, **drawn}


def draw(
    lines: Sequence[Line], start: float, end: float, share: bool = False, dots: bool = False, smooth: float = 0.0,
    marked: Sequence[tuple[float, str]] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return the limits and ticks of both axes, and the paths of lines; with `dots`, intervals are whiskers.

    `start` and `end` are the limits of the axis, and `marked` are its ticks, by default round numbers.
    """
    drawn = [value for line in lines for key in KEYS for value in line.get(key, ())]
    seen = [value for value in drawn if value is not None] or [0.0, 1.0]
    low, high = (max(0.0, min(seen)), min(1.0, max(seen))) if share else (min(seen), max(seen))
    if high - low < 1e-12:
        low, high = min(0.0, low), max(high, low + 1)
    room = 0.06 * (high - low)
    low, high = 0.0 if 0 <= low < room else low - room, high + room

    def x(place: float) -> float:
        return round(LEFT + (place - start) / ((end - start) or 1) * (RIGHT - LEFT), 1)

    def y(value: float) -> float:
        return round(BOTTOM - (value - low) / (high - low) * (BOTTOM - TOP), 1)

    grid, across = [*ticks(low, high, 4)], [*ticks(start, end, 5)]
    return {
        "low": low,
        "high": high,
        "grid": [(y(v), text) for v, text in zip(grid, format_ticks(grid), strict=True)],
        "ticks": [(x(v), text) for v, text in marked or zip(across, format_ticks(across), strict=True)],
        "drawn": [{"look": look(line["run"]), **_draw_line(line, x, y, dots, smooth)} for line in lines],
    }


def _draw_line(
    line: Line, x: Callable[[float], float], y: Callable[[float], float], dots: bool, smooth: float
) -> dict[str, Any]:
    """Return the paths of a line: its band or whiskers, the pale line of all its values, and the line itself."""
    places, values = [x(place) for place in line["place"]], line["value"]
    few = dots or len(values) <= FEW
    nothing = [None] * len(values)
    ends = list(zip(line.get("low", nothing), line.get("high", nothing), strict=True))
    known = [(value, value) if None in pair else pair for value, pair in zip(values, ends, strict=True)]
    upper = [(place, y(high)) for place, (_, high) in zip(places, known, strict=True)]
    lower = [(place, y(low)) for place, (low, _) in zip(places, known, strict=True)]
    extremes = zip(places, line.get("least", values), line.get("most", nothing), strict=True)
    pale = [(place, y(value)) for place, *pair in extremes for value in pair if value is not None]
    points = [(place, y(value)) for place, value in zip(places, values, strict=True)]
    even = [y(value) for value in (values if few else smooth_values(values, smooth))]
    return {
        "band": "" if dots or upper == lower else _path(upper + lower[::-1]) + "Z",
        "whiskers": [(x, low, high) for (x, high), (_, low) in zip(upper, lower, strict=True) if dots and low != high],
        "raw": "" if few else _path(pale),
        "line": _path(list(zip(places, even, strict=True))),
        "circles": points if few else [],
    }


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + " ".join(f"{x:g} {y:g}" for x, y in points)


def ticks(low: float, high: float, about: int) -> Iterator[float]:
    """Yield round numbers between two, not many more than `about`."""
    rough = (high - low) / about or 1
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    yield from (n * step for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1))


def format_ticks(values: Sequence[float]) -> list[str]:
    """Format the ticks of an axis with the digits that tell them apart; very small and very large ones have an exponent."""
    step = values[1] - values[0] if len(values) > 1 else max(map(abs, values), default=0) or 1
    if not 1e-4 < step < 1e5:
        return [f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e") if value else "0" for value in values]
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{value:,.{digits if value else 0}f}".replace("-", "−") for value in values]


def short(value: float) -> str:
    """Format a value of a curve."""
    size = abs(value)
    digits = 0 if not size or size >= 1000 else 4 if size < 0.01 else 3 if size < 1 else 2 if size < 20 else 1
    text = f"{value:.1e}".replace("e-0", "e-") if 0 < size < 1e-3 else f"{value:,.{digits}f}"
    return f"−{text[1:]}" if value < 0 else text

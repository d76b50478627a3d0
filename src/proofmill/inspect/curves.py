"""Training curves: measures by step, as logged and smoothed; several trainings share a picture. And marks by spending.

Smoothing is an exponential moving average without initial bias: each point is the weighted mean of those up to it, with
weights that fall by the factor `smooth` per point (0 shows the points themselves).

Of `scores` with `at-equal-budget`, a panel for each model and benchmark shows the mark of each way of sampling, and of
its rules over several attempts, by the tokens that a problem took.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from proofmill.artifacts.tables import Table
from proofmill.measures.budgets import SPLIT
from proofmill.schema.errors import SettingError
from proofmill.schema.kinds import learned
from proofmill.schema.names import kind_of
from proofmill.text.suggestions import among

SHOWN = (
    "reward",
    "marks",
    "hold-out/marks",
    "completions/mean_length",
    "frac_reward_zero_std",
    "entropy",
    "unscored",
    "loss",
    "eval_loss",
)
SHOWN_OF_TASKS = ("propose/reward", "propose/valid", "solve/accuracy")  # after the name of a task
SMOOTH = 0.9
STYLES = ("-", "--", "-.", ":")
Points = Sequence[tuple[int, float]]
Target = Path | BinaryIO


def read(names: Sequence[str], results: Path, measures: Sequence[str] = ()) -> dict[str, dict[str, Points]]:
    """The points of each measure and training; SettingError for a measure never logged.

    Those of a task and role are called `deduce/solve/accuracy`. The default is SHOWN, and for each task SHOWN_OF_TASKS.
    """
    points: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for name in names:
        if kind_of(name) not in learned():
            raise SettingError(
                f"{name}: a {kind_of(name)} has no steps; expected {' or '.join(f'{kind}/<name>' for kind in learned())}."
            )
        for row in Table(name, results).rows():
            if row["value"] is not None and not math.isnan(row["value"]):
                measure = "/".join([row[key] for key in ("task", "role") if row.get(key)] + [row["measure"]])
                points.setdefault(measure, {}).setdefault(name, []).append((row["step"], row["value"]))
    for measure in measures:
        if measure not in points:
            raise SettingError(
                f"{', '.join(names)}: no `{measure}` was logged; expected one of {among(measure, points, 40)}"
            )
    shown = [*SHOWN, *(measure for measure in points if measure.partition("/")[2] in SHOWN_OF_TASKS)]
    return {measure: dict(points[measure]) for measure in measures or shown if measure in points}


def read_spending(names: Sequence[str], results: Path) -> dict[str, dict[str, list[Mapping[str, Any]]]]:
    """Rows of the curves of `scores` tables by panel and line, cheapest first; SettingError where there are none."""
    panels: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for name in names:
        rows = [
            row
            for row in Table(name, results).rows()
            if row["split"] == SPLIT and None not in (row["value"], row["spent_tokens"])
        ]
        if not rows:
            raise SettingError(
                f"{name}: it measures no spending; expected a scores entry with `at-equal-budget`, which names the way of "
                "sampling that the others are compared with."
            )
        for row in sorted(rows, key=lambda row: row["spent_tokens"]):
            panel = f"{row['model']} on {row['problems']}\nby {row['grader']}"
            line = f"{row['sampling']}, {row['measure'].partition('@')[0]}"
            panels.setdefault(panel, {}).setdefault(line, []).append(row)
    return panels


def smoothed(values: Sequence[float], smooth: float) -> list[float]:
    """The moving average at each of the values."""
    total = weight = 0.0
    means = []
    for value in values:
        total, weight = smooth * total + value, smooth * weight + 1
        means.append(total / weight)
    return means


def draw(curves: Mapping[str, Mapping[str, Points]], path: Target, smooth: float = SMOOTH) -> None:
    """Write an SVG with a panel for each measure; the same curves give the same file."""
    _panels(curves, path, 2.4, partial(_steps, smooth=smooth))


def draw_spending(panels: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]], path: Target) -> None:
    """Write an SVG with a panel for each model and benchmark; the same rows give the same file."""
    _panels(panels, path, 3.0, _spending)


def _panels(panels: Mapping[str, Mapping[str, Any]], path: Target, height: float, lines: Callable[..., None]) -> None:
    """`lines(axes, by_name, looks)` draws what is in one panel; `height` of a panel in inches."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    names = list(dict.fromkeys(name for by_name in panels.values() for name in by_name))
    # Lines differ without their colours, too.
    looks: dict[str, dict[str, Any]] = {
        name: {"color": f"C{n % 10}", "linestyle": STYLES[n % len(STYLES)]} for n, name in enumerate(names)
    }
    with matplotlib.rc_context({"svg.hashsalt": "proofmill", "font.size": 8}):
        beside = min(len(names), 3)  # names of the legend on a line
        width = max(3.6 * columns, 2.4 * beside if beside > 1 else 0)
        figure = Figure(figsize=(width, height * rows), layout="constrained")
        for number, (title, by_name) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(rows, columns, number)
            axes.set_title(title)
            axes.grid(alpha=0.3)
            lines(axes, by_name, looks)
        if len(names) > 1:
            handles = [matplotlib.lines.Line2D([], [], **looks[name], label=name) for name in names]
            figure.legend(handles=handles, loc="outside lower center", ncols=beside)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _spending(
    axes: Any, by_name: Mapping[str, Sequence[Mapping[str, Any]]], looks: Mapping[str, Mapping[str, Any]]
) -> None:
    for name, rows in by_name.items():
        tokens, values = [row["spent_tokens"] for row in rows], [row["value"] for row in rows]
        ends = [
            [row["value"] - row["low"] if row["low"] is not None else 0 for row in rows],
            [row["high"] - row["value"] if row["high"] is not None else 0 for row in rows],
        ]
        axes.errorbar(tokens, values, yerr=ends, **looks[name], marker="o", markersize=3, linewidth=1.2, capsize=2)
    axes.set_xscale("log")
    axes.set_xlabel("tokens of a problem")


def _steps(axes: Any, by_name: Mapping[str, Points], looks: Mapping[str, Mapping[str, Any]], smooth: float) -> None:
    for name, points in by_name.items():
        steps, values = zip(*points, strict=True)
        if smooth and len(points) > 2:
            axes.plot(steps, values, **looks[name], alpha=0.25, linewidth=0.8)
            values = tuple(smoothed(values, smooth))
        axes.plot(steps, values, **looks[name], linewidth=1.2, marker="." if len(points) < 3 else "")
    axes.set_xlabel("step")

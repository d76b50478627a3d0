"""Plot curves: training metrics by step, and scores by attempts or cost.

Metrics of one or more trainings are drawn as logged and smoothed. Smoothing is an exponential moving average without
initial bias: each point is the weighted mean of the points up to it, with weights that fall by the factor `smooth` per
point (0 is off).

For `scores`, a panel for each benchmark shows a metric of several attempts (`pass@1`, `pass@4`, ...) by their number, with
a line for each model. With `at-equal-budget`, a panel for each model and benchmark shows the score of each sampling
setting, and of its rules over several attempts, by tokens per problem. All scores have intervals.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from proofmill.analysis import training_series
from proofmill.artifacts.tables import Table
from proofmill.metrics.budgets import SPLIT
from proofmill.schema.errors import SettingError
from proofmill.schema.names import kind_of
from proofmill.text.suggestions import among

SHOWN = (
    *("grade", "solved", "reward", "frac_reward_zero_std", "completions/mean_length", "completions/clipped_ratio"),
    *("entropy", "loss", "eval_loss", "mean_token_accuracy", "grad_norm"),
    *("evaluate/grade", "audit/grade", "audit/gap"),
)
SHOWN_OF_TASKS = ("propose/reward", "propose/valid", "solve/accuracy")  # after the name of a task
SMOOTH = 0.9
STYLES = ("-", "--", "-.", ":")
AT_K = re.compile(r"(.+)@([0-9]+)")
Points = Sequence[tuple[float, ...]]  # step, value, and if there is an interval its ends
Row = Mapping[str, Any]
Target = Path | BinaryIO


@dataclass(frozen=True)
class Measured:
    """A panel of scores: rows of `scores` by line, in the order of `x`, the position of a row on the axis."""

    title: str
    axis: str
    base: int  # of the logarithmic axis
    x: Callable[[Row], float]
    lines: Mapping[str, Sequence[Row]]


def read(names: Sequence[str], results: Path, metrics: Sequence[str] = ()) -> dict[str, dict[str, Points]]:
    """Return the points of each metric and training. Raises SettingError for a metric that was never logged.

    Metrics of a task and role have names such as `deduce/solve/accuracy`. Default: SHOWN, and SHOWN_OF_TASKS per task.
    """
    points: dict[str, dict[str, Points]] = {}
    for name in names:
        for metric, part in training_series.read_metrics(training_series.require_steps(Table(name, results))).items():
            points.setdefault(metric, {})[name] = part.fill_null(math.nan).rows()
    for metric in metrics:
        if metric not in points:
            raise SettingError(f"{', '.join(names)}: no `{metric}` was logged; expected one of {among(metric, points)}")
    shown = [*SHOWN, *(metric for metric in points if metric.partition("/")[2] in SHOWN_OF_TASKS)]
    return {metric: points[metric] for metric in metrics or shown if metric in points}


def read_scores(names: Sequence[str], results: Path) -> list[Measured]:
    """Return the panels of `scores` tables: metrics by number of attempts, and scores by cost. May be empty."""
    rows = [row for name in names for row in Table(name, results).rows() if row["value"] is not None]
    return [*_by_attempts(rows), *_by_spending(rows)]


def _by_attempts(rows: Sequence[Row]) -> Iterator[Measured]:
    """Yield a panel for each metric and benchmark, by number of attempts."""
    panels: dict[tuple[str, ...], dict[str, dict[int, Row]]] = {}
    for row in rows:
        if row["slice"] == "all" and row["baseline"] is None and (match := AT_K.fullmatch(row["metric"])):
            panel = (match[1], row["problems"], row["sampling"], row["grader"])
            panels.setdefault(panel, {}).setdefault(row["model"], {})[int(match[2])] = row
    for (metric, problems, sampling, grader), by_model in panels.items():
        lines = {model: [by_k[k] for k in sorted(by_k)] for model, by_k in by_model.items() if len(by_k) > 1}
        if lines:
            title = f"{metric}@k on {problems}\n{sampling}, by {grader}"
            yield Measured(title, "attempts k", 2, _attempts, lines)


def _attempts(row: Row) -> float:
    return int(row["metric"].rpartition("@")[2])


def _by_spending(rows: Sequence[Row]) -> Iterator[Measured]:
    """Yield a panel for each model and benchmark, by tokens per problem."""
    panels: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if row["slice"] == SPLIT and row["tokens_per_problem"] is not None:
            panel = f"{row['model']} on {row['problems']}\nby {row['grader']}"
            line = f"{row['sampling']}, {row['metric'].partition('@')[0]}"
            panels.setdefault(panel, {}).setdefault(line, []).append(row)
    for title, by_line in panels.items():
        lines = {line: sorted(some, key=_sum_costs) for line, some in by_line.items()}
        yield Measured(title, "tokens per problem", 10, _sum_costs, lines)


def _sum_costs(row: Row) -> float:
    return row["tokens_per_problem"]


def smooth_values(values: Sequence[float], smooth: float) -> list[float]:
    """Return the moving average at each value."""
    total = weight = 0.0
    means = []
    for value in values:
        total, weight = smooth * total + value, smooth * weight + 1
        means.append(total / weight)
    return means


def draw(names: Sequence[str], results: Path, out: Target, metrics: Sequence[str] = (), smooth: float = SMOOTH) -> None:
    """Write an SVG of trainings or `scores`; equal tables give equal files. Raises SettingError if it would be empty."""
    if all(kind_of(name) == "scores" for name in names):
        if not (panels := read_scores(names, results)):
            raise SettingError(
                f"{', '.join(names)}: has no curve; expected a metric at several k, such as `pass-at-k`, or `at-equal-budget`, "
                "which names the sampling setting that the others are compared with."
            )
        _panels([(panel.title, panel.lines, partial(_intervals, panel)) for panel in panels], out, 3.0)
        return
    if not (points := read(names, results, metrics)):
        raise SettingError(
            f"{', '.join(names)}: none of {', '.join(SHOWN)} was logged. Name other metrics with --metrics."
        )
    _panels([(metric, lines, partial(_steps, smooth=smooth)) for metric, lines in points.items()], out, 2.4)


def _panels(panels: Sequence[tuple[str, Mapping[str, Any], Callable[..., None]]], path: Target, height: float) -> None:
    """Draw panels: title, lines by name, and a function of (axes, lines, looks) that draws them; `height` in inches."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    names = list(dict.fromkeys(name for _, by_name, _ in panels for name in by_name))
    # Lines are distinguishable without colors, too.
    looks: dict[str, dict[str, Any]] = {
        name: {"color": f"C{n % 10}", "linestyle": STYLES[n % len(STYLES)]} for n, name in enumerate(names)
    }
    with matplotlib.rc_context({"svg.hashsalt": "proofmill", "font.size": 8}):
        per_row = min(len(names), 3)  # names in a row of the legend
        width = max(3.6 * columns, 2.4 * per_row if per_row > 1 else 0)
        figure = Figure(figsize=(width, height * rows), layout="constrained")
        for number, (title, by_name, draw_lines) in enumerate(panels, 1):
            axes = figure.add_subplot(rows, columns, number)
            axes.set_title(title)
            axes.grid(alpha=0.3)
            draw_lines(axes, by_name, looks)
        if len(names) > 1:
            handles = [matplotlib.lines.Line2D([], [], **looks[name], label=name) for name in names]
            figure.legend(handles=handles, loc="outside lower center", ncols=per_row)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _intervals(
    panel: Measured, axes: Any, by_name: Mapping[str, Sequence[Row]], looks: Mapping[str, Mapping[str, Any]]
) -> None:
    """Draw scores with intervals."""
    for name, rows in by_name.items():
        values = [row["value"] for row in rows]
        ends = [
            [row["value"] - row["low"] if row["low"] is not None else 0 for row in rows],
            [row["high"] - row["value"] if row["high"] is not None else 0 for row in rows],
        ]
        places = [panel.x(row) for row in rows]
        axes.errorbar(places, values, yerr=ends, **looks[name], marker="o", markersize=3, linewidth=1.2, capsize=2)
    axes.set_xscale("log", base=panel.base)
    if panel.base == 2:
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(panel.axis)


def _steps(axes: Any, by_name: Mapping[str, Points], looks: Mapping[str, Mapping[str, Any]], smooth: float) -> None:
    """Draw metrics by step, as logged (faint) and smoothed; or with their intervals."""
    for name, points in by_name.items():
        steps, values, *ends = zip(*points, strict=True)
        if ends:
            axes.fill_between(steps, *ends, color=looks[name]["color"], alpha=0.15, linewidth=0)
            axes.plot(steps, values, **looks[name], linewidth=1.2, marker=".")
            continue
        if smooth and len(points) > 2:
            axes.plot(steps, values, **looks[name], alpha=0.25, linewidth=0.8)
            values = tuple(smooth_values(values, smooth))
        axes.plot(steps, values, **looks[name], linewidth=1.2, marker="." if len(points) < 3 else "")
    axes.set_xlabel("step")

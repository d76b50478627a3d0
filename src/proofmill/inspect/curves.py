"""Training curves: measures by step, as logged and smoothed; several trainings share a picture.

Smoothing is an exponential moving average without initial bias: each point is the weighted mean of those up to it, with
weights that fall by the factor `smooth` per point (0 shows the points themselves).
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proofmill.artifacts.tables import Table
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
Points = Sequence[tuple[int, float]]


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


def smoothed(values: Sequence[float], smooth: float) -> list[float]:
    """The moving average at each of the values."""
    total = weight = 0.0
    means = []
    for value in values:
        total, weight = smooth * total + value, smooth * weight + 1
        means.append(total / weight)
    return means


def draw(curves: Mapping[str, Mapping[str, Points]], path: Path, smooth: float = SMOOTH) -> None:
    """Write an SVG with a panel for each measure; the same curves give the same file."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(len(curves), 3)
    rows = math.ceil(len(curves) / columns)
    with matplotlib.rc_context({"svg.hashsalt": "proofmill", "font.size": 8}):
        figure = Figure(figsize=(3.6 * columns, 2.4 * rows), layout="constrained")
        for number, (measure, by_name) in enumerate(curves.items(), 1):
            _panel(figure.add_subplot(rows, columns, number), measure, by_name, smooth)
        names = list(dict.fromkeys(name for by_name in curves.values() for name in by_name))
        if len(names) > 1:
            handles = [matplotlib.lines.Line2D([], [], color=f"C{n}", label=name) for n, name in enumerate(names)]
            figure.legend(handles=handles, loc="outside lower center", ncols=min(len(names), 3))
        figure.savefig(path, format="svg", metadata={"Date": None})


def _panel(axes: Any, measure: str, by_name: Mapping[str, Points], smooth: float) -> None:
    for n, points in enumerate(by_name.values()):
        steps, values = zip(*points, strict=True)
        if smooth and len(points) > 2:
            axes.plot(steps, values, color=f"C{n}", alpha=0.25, linewidth=0.8)
            values = tuple(smoothed(values, smooth))
        axes.plot(steps, values, color=f"C{n}", linewidth=1.2, marker="." if len(points) < 3 else "")
    axes.set_title(measure)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)

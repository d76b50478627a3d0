"""Collect the page of trainings: their curves in panels that share an axis, and the numbers behind them."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import polars as pl
from markupsafe import Markup
from starlette.datastructures import QueryParams

from proofmill.analysis import training_series
from proofmill.analysis.curves import SHOWN, SHOWN_OF_TASKS
from proofmill.analysis.differences import compare_fields
from proofmill.analysis.training_series import SHARES, Training
from proofmill.artifacts.tables import Table
from proofmill.schema import references
from proofmill.schema.errors import SettingError
from proofmill.schema.names import kind_of
from proofmill.text.suggestions import among
from proofmill.viewer.curves import plots

MOST = 4  # runs on a page, by the colors of the style sheet
ROWS = 50  # steps in the table of numbers
SMOOTH = 0.6


@dataclass(frozen=True)
class View:
    """The settings of the curves, from an address: the axis with its limits, smoothing, hidden runs, further metrics."""

    x: str = "steps"
    smooth: float = SMOOTH
    start: float = 0.0
    end: float = math.inf
    off: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()

    @classmethod
    def of(cls, query: QueryParams) -> "View":
        """Read an address. Raises SettingError for what is not a number in its range."""
        texts = {"smooth": str(SMOOTH), "from": "0", "to": "inf", **query}
        try:
            smooth, start, end = (float(texts[key]) for key in ("smooth", "from", "to"))
        except ValueError as error:
            raise SettingError(f"{error}; expected numbers as `smooth`, `from` and `to`. Fix the address.") from error
        if not (0 <= smooth <= 0.95 and 0 <= start < end):
            raise SettingError(
                f"`smooth` is {smooth:g}, `from` {start:g} and `to` {end:g}; expected 0 to 0.95, and a range. Fix the address."
            )
        more = dict.fromkeys(metric for metric in query.getlist("metric") if metric)
        return cls(query.get("x", "steps"), smooth, start, end, tuple(query.getlist("off")), tuple(more))


def page(names: Sequence[str], view: View, results: Path, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page of a training shows, with the other trainings after the first name."""
    shown = curves(names, view, results, entries)
    main, *others = shown["runs"]
    kind, seeds = kind_of(main.name), main.name.partition("@")[0]
    known = {panel["id"] for panel in shown["panels"]}
    paths = sorted((results / kind).glob("*.parquet"))
    remove = [("with", run.name) for run in others] + [("metric", metric) for metric in view.metrics]
    return {
        "shown": shown,
        "main": main,
        "view": view,
        "stamp": {} if main.so_far else Table(main.name, results).stamp,
        "scored": [name for name, entry in entries.items() if main.name in getattr(entry, "models", ())],
        "others": [(name.partition("@")[0] != seeds, name) for p in paths if (name := f"{kind}/{p.stem}") not in names],
        "metrics": [(name.rpartition("/")[0], name) for name in main.series if name not in known],
        "remove": {name: urlencode([pair for pair in remove if pair != (key, name)]) for key, name in remove},
        "differences": compare_fields(*(run.entry for run in shown["runs"])),
        "numbers": list(numbers(main, shown["panels"])),
        "data": Markup(json.dumps(as_json(shown)).replace("<", "\\u003c")),
    }


def axes(training: Training) -> dict[str, tuple[list[float], list[float]]]:
    """Return the axes that a training has: some of its steps, up to the last, and their places."""
    known: dict[str, tuple[list[float], list[float]]] = {"steps": ([0.0, training.last or 1.0],) * 2}
    for name, values in (("tokens", training.series.get("num_tokens")), ("minutes", training.minutes)):
        if values is not None and values.height > 1:
            steps, places = [0.0, *values["step"]], [0.0, *values["value"]]
            speed = (places[-1] - places[-2]) / (steps[-1] - steps[-2])
            known[name] = [*steps, training.last], [*places, places[-1] + speed * (training.last - steps[-1])]
    return known


def curves(names: Sequence[str], view: View, results: Path, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the curves of some trainings; `entries` are those of the configuration, for trainings that are running.

    Raises SettingError for too many trainings, and for a metric or an axis that they do not have.
    """
    names = [*dict.fromkeys(names)]
    if not 0 < len(names) <= MOST:
        raise SettingError(f"{', '.join(names)}: {len(names)} trainings; expected 1 to {MOST}. Fix the address.")
    given = {name: json.loads(references.canonical(entries[name])) for name in names if name in entries}
    return draw([training_series.read(name, results, given.get(name)) for name in names], view)


def draw(trainings: Sequence[Training], view: View) -> dict[str, Any]:
    """Draw a panel for each usual metric of some trainings, and for those that the reader has added."""
    metrics = dict.fromkeys(metric for training in trainings for metric in training.series)
    scales = [axes(training) for training in trainings]
    known = [name for name in scales[0] if all(name in scale for scale in scales)]
    for key, some, choices in (("metric", view.metrics, [*metrics]), ("x", (view.x,), known)):
        if unknown := [one for one in some if one not in choices]:
            raise SettingError(f"`{key}` is `{unknown[0]}`; expected one of {among(unknown[0], choices)}")
    end = min(view.end, max(scale[view.x][1][-1] for scale in scales))
    tasks = [metric for metric in metrics if metric.partition("/")[2] in SHOWN_OF_TASKS]
    panels = []
    for metric in [metric for metric in dict.fromkeys([*SHOWN, *tasks, *view.metrics]) if metric in metrics]:
        lines = []
        for run, (training, scale) in enumerate(zip(trainings, scales, strict=True)):
            if metric in training.series and training.name not in view.off:
                points = training.series[metric]
                points = points.with_columns(place=pl.Series(np.interp(points["step"].to_numpy(), *scale[view.x])))
                points = points.filter(pl.col("place").is_between(view.start, end))
                lines += [plots.thin(run, training.name, points)] * (points.height > 0)
        panels.append(draw_panel(metric, lines, view.start, end, view.smooth))
    return {"runs": trainings, "axes": known, "start": view.start, "end": end, "panels": panels}


def draw_panel(metric: str, lines: Sequence[plots.Line], start: float, end: float, smooth: float) -> dict[str, Any]:
    """Draw the panel of a metric between the limits of its axis."""
    share, dots = bool(SHARES.fullmatch(metric)), metric.startswith("evaluate/")
    return {"id": metric, "lines": lines, **plots.draw(lines, start, end, share, dots, smooth)}


def as_json(shown: Mapping[str, Any], plot: Callable[[Any], str] | None = None) -> dict[str, Any]:
    """Return what `curves.js` needs: the values at each step, and the pictures of the panels by `plot`."""
    panels = [
        {"id": panel["id"], "low": panel["low"], "high": panel["high"], "svg": plot(panel) if plot else ""}
        | {"lines": [{key: line[key] for key in ("run", "name", "step", "place", "value")} for line in panel["lines"]]}
        for panel in shown["panels"]
    ]
    runs = [{"name": run.name, "last": run.last, "rolled": run.rolled} for run in shown["runs"]]
    so_far = any(run.so_far for run in shown["runs"])
    return {"from": shown["start"], "to": shown["end"], "soFar": so_far, "runs": runs, "panels": panels}


def numbers(training: Training, panels: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the values of the panels at each step, or at some of many steps."""
    columns = [panel["id"] for panel in panels if panel["id"] in training.series]
    values = {column: dict(training.series[column].select("step", "value").iter_rows()) for column in columns}
    steps = sorted({step for of_step in values.values() for step in of_step}, reverse=True)
    for step in sorted(steps[:: math.ceil(len(steps) / ROWS)]):
        yield {"step": step, **{column: of_step.get(step) for column, of_step in values.items()}}

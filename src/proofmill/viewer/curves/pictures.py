"""Draw the curves of the viewer's pages as an SVG file, for papers and slides."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from proofmill.analysis import curves, training_series
from proofmill.schema.errors import SettingError
from proofmill.schema.names import kind_of
from proofmill.viewer.curves import plots, training_page

COLUMNS = 3  # panels in a row, at most


def draw(
    names: Sequence[str], results: Path, out: Path, metrics: Sequence[str] = (), smooth: float = training_page.SMOOTH
) -> None:
    """Write the panels of trainings or of `scores`; equal tables give equal files. Raises SettingError without a panel.

    Trainings have a panel for each of `metrics`, or for each usual one.
    """
    panels = _find_panels(names, results, metrics, smooth)
    if not panels:
        raise SettingError(
            f"{', '.join(names)}: has no curve. Trainings have one of each logged metric; expected of `scores` a metric at "
            "several k, such as `pass-at-k`, or `at-equal-budget`, which names the sampling setting to compare with."
        )
    pages = Environment(loader=PackageLoader("proofmill.viewer", "pages"), autoescape=True)
    pages.filters |= {"short": plots.short}
    columns = min(len(panels), COLUMNS)
    rows, keys = math.ceil(len(panels) / columns), max(len(panel["lines"]) for panel in panels)
    picture = pages.get_template("picture.svg").render(panels=panels, columns=columns, rows=rows, keys=keys)
    out.write_text(picture, encoding="utf-8")


def _find_panels(
    names: Sequence[str], results: Path, metrics: Sequence[str], smooth: float
) -> Sequence[Mapping[str, Any]]:
    if all(kind_of(name) == "scores" for name in names):
        return [plots.of_scores(panel) for panel in curves.read_scores(names, results)]
    view = training_page.View(smooth=smooth, metrics=tuple(metrics))
    panels = training_page.draw([training_series.read(name, results) for name in names], view)["panels"]
    return [  # each to the last step of its own lines
        training_page.draw_panel(
            panel["id"], panel["lines"], 0.0, max(line["place"][-1] for line in panel["lines"]), smooth
        )
        for panel in panels
        if panel["id"] in (metrics or [panel["id"]])
    ]

"""Collect the page of a recipe: the graph of its artifacts, with the state, rows, time and cost of each."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.config.config import Config
from proofmill.runtime.job_logs import last_line
from proofmill.runtime.progress import clock
from proofmill.schema import references
from proofmill.schema.errors import ProofmillError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of

WIDTH, HEIGHT, GAP_X, GAP_Y = 204, 34, 36, 12  # of a box of the graph and between boxes, in pixels
COUNTS = 3  # outcomes in a stage's line


@dataclass(frozen=True)
class JobView:
    """An artifact of a recipe on its page. `state` is done, restore, make, running, failed or damaged."""

    name: str
    state: str
    why: str
    rows: int | None
    outcome: str
    seconds: str
    cost: str
    last_line: str  # of its log


def stages(config: Config, recipe: str, results: Path) -> list[JobView]:
    """Return the artifacts of a recipe in build order."""
    states = States(config, results)
    names = sort_artifacts(config, recipe)
    return [_stage(states, name, results) for name in names]


def sort_artifacts(config: Config, recipe: str) -> list[str]:
    """Return the artifacts of a recipe, each after its parents."""
    names: dict[str, None] = {}

    def add(name: str) -> None:
        if name not in names:
            for parent in references.parents(config.entries[name]):
                add(parent)
            names[name] = None

    for target in config.recipes[recipe]:
        add(target)
    return list(names)


def _stage(states: States, name: str, results: Path) -> JobView:
    table = Table(name, results)
    log_end = last_line(table.path.with_suffix(".log"))
    try:
        state = states[name]
        shown, why = state.name, "; ".join(state.why)
    except ProofmillError as error:
        shown, why = "damaged", str(error)
    if table.is_being_made:
        shown = "running"
    elif shown == "make" and "Error: " in log_end:
        shown = "failed"
    rows, outcome, seconds, cost = None, "", "", ""
    if table.path.exists() and shown != "damaged":
        stamp = table.stamp
        counts = Counter(stamp.get("counts", {})).most_common(COUNTS)
        rows, outcome = table.height, ", ".join(f"{count:,} {what}" for what, count in counts)
        seconds = clock(stamp.get("seconds") or 0)
        cost = "" if stamp.get("cost") is None else f"${stamp['cost']:,.2f}"
    return JobView(name, shown, why, rows, outcome, seconds, cost, log_end)


# --------------------------------------------------------------------------------------------------------------- graph


@dataclass(frozen=True)
class Box:
    """An artifact in the graph, at its upper left corner."""

    stage: JobView
    label: str
    x: float
    y: float


@dataclass(frozen=True)
class Graph:
    boxes: list[Box]
    lines: list[str]  # SVG paths
    width: float
    height: float


def graph(config: Config, shown: list[JobView]) -> Graph:
    """Arrange boxes in columns: each to the right of its parents, near their mean height."""
    by_name = {stage.name: stage for stage in shown}
    parents = {name: [p for p in references.parents(config.entries[name]) if p in by_name] for name in by_name}
    column: dict[str, int] = {}
    for name in by_name:
        column[name] = 1 + max((column[parent] for parent in parents[name]), default=-1)
    place: dict[str, float] = {}
    boxes = []
    for number in range(max(column.values(), default=-1) + 1):
        names = [name for name in by_name if column[name] == number]
        names.sort(key=lambda name: _mean([place[parent] for parent in parents[name]]))
        for row, name in enumerate(names):
            place[name] = row
            x, y = number * (WIDTH + GAP_X), row * (HEIGHT + GAP_Y)
            boxes.append(Box(by_name[name], _label(name), x, y))
    at = {box.stage.name: box for box in boxes}
    lines = [_line(at[parent], at[name]) for name in by_name for parent in parents[name]]
    width = max((box.x for box in boxes), default=0) + WIDTH
    return Graph(boxes, lines, width, max((box.y for box in boxes), default=0) + HEIGHT)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


LABEL = 28  # characters that a box has room for


def _label(name: str) -> str:
    """Shorten a name to fit a box; of a derived name keep the kind, the model and the sampling setting."""
    kind, _, rest = name.partition("/")
    parts = rest.split("@")
    short = f"{kind} {parts[0]}@{parts[-1]}" if len(parts) > 1 else name
    if len(short) <= LABEL:
        return short
    end = f"@{parts[-1]}" if len(parts) > 1 else short[-LABEL // 2 :]
    end = end[-(LABEL - 6) :]
    return f"{short[: LABEL - len(end) - 1]}…{end}"


def _line(start: Box, end: Box) -> str:
    x, y, to_x, to_y = start.x + WIDTH, start.y + HEIGHT / 2, end.x, end.y + HEIGHT / 2
    middle = (x + to_x) / 2
    return f"M{x:g} {y:g}C{middle:g} {y:g} {middle:g} {to_y:g} {to_x:g} {to_y:g}"


def by_kind(shown: list[JobView]) -> Iterator[tuple[str, list[JobView]]]:
    """Yield each kind with its stages, in the order of the kinds."""
    for kind in KINDS:
        if some := [stage for stage in shown if kind_of(stage.name) == kind]:
            yield kind, some


def summary(shown: list[JobView]) -> Mapping[str, Any]:
    """Count the stages in each state."""
    return Counter(stage.state for stage in shown)

"""Collect the artifacts of recipes with state, rows, time and cost; their map, lanes and sparklines.

The results folder is listed, not opened: a stamp is read once for each version (size and time) of its table. States are
computed again after a change of a table or of the configuration, and every AGE seconds, since sources may be edited.
"""

import math
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from proofmill.analysis.curves import smooth_values
from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.calls import merging
from proofmill.config.config import Config
from proofmill.runtime import locks
from proofmill.runtime.job_logs import last_line, last_run
from proofmill.runtime.progress import HowFar, clock, how_far
from proofmill.schema import references
from proofmill.schema.errors import ProofmillError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of, without_seed

COUNTS = 3  # outcomes in a stage's line
AGE = 10.0  # seconds
WORST = ("failed", "damaged", "running", "make", "restore", "done")  # the order of states
WORDS = {"make": "waiting", "restore": "in archive"}  # shown for a state, if not its name
LOG_END = 12  # lines of a failed stage's log
POINTS = 60  # of a sparkline
CURVES = ("reward", "loss", "grade")  # the metric of a sparkline: the first that was logged
FOLD_SEEDS, FOLD_FAMILIES = 120, 300  # stages, above which the lanes have a square for all seeds; for all of a family
LANE_X, SQUARE, GAP, LEAST_WIDE = 118, 18, 4, 3  # of the lanes: pixels, pixels, pixels, squares in a row


@dataclass(frozen=True)
class JobView:
    """An artifact of a recipe on its page. `state` is done, restore, make, running, failed or damaged."""

    name: str
    state: str
    why: str
    parents: list[str]
    log: Path
    stamp: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None
    changed: float = 0.0  # time of the table

    @property
    def word(self) -> str:
        return WORDS.get(self.state, self.state)

    @property
    def took(self) -> float:
        return self.stamp.get("seconds") or 0.0

    @property
    def seconds(self) -> str:
        return clock(self.took) if self.stamp else ""

    @property
    def outcome(self) -> str:
        counts = Counter(self.stamp.get("counts", {})).most_common(COUNTS)
        return ", ".join(f"{count:,} {what}" for what, count in counts)

    @property
    def cost(self) -> str:
        """The cost of its calls; empty without calls."""
        if self.stamp.get("tokens") is None:
            return ""
        return "no price" if self.stamp.get("cost") is None else f"${self.stamp['cost']:,.2f}"

    @property
    def steps(self) -> int:
        return self.stamp.get("counts", {}).get("steps") or self.stamp.get("entry", {}).get("steps") or 0

    @cached_property
    def last_line(self) -> str:
        return last_line(self.log)

    @property
    def log_end(self) -> list[str]:
        return last_run(self.log)[-LOG_END:]


@lru_cache(maxsize=10_000)
def read_facts(table: Table, size: int, changed: int) -> tuple[dict[str, Any], int]:
    """Return stamp and number of rows of a version of a table. Raises TableError if it is damaged."""
    return table.stamp, table.height


class Overview:
    """The artifacts of a results folder as they are now. `at` has the file of each table."""

    def __init__(self, results: Path):
        self.results, self.at = results, dict[str, os.stat_result]()
        self.running: set[str] = set()
        self._lock, self._read = threading.RLock(), 0.0
        self._states: States | None = None
        self._views: dict[str, JobView] = {}
        self._logs: dict[str, os.stat_result] = {}
        self._sorted: dict[str, list[str]] = {}

    def read(self, config: Config) -> "Overview":
        """List the tables and running jobs, and forget the states after a change."""
        with self._lock:
            at, logs = _list_files(self.results, ".parquet"), _list_files(self.results, ".log")
            running = {*_running(self.results)}
            same = self._states is not None and self._states.config is config
            if not same or _versions(at) != _versions(self.at) or time.monotonic() - self._read > AGE:
                self._states, self._views, self._read = States(config, self.results), {}, time.monotonic()
                self._sorted = self._sorted if same else {name: sort_artifacts(config, name) for name in config.recipes}
            changed = dict(_versions(logs) ^ _versions(self._logs))
            for name in changed.keys() | (running ^ self.running):
                self._views.pop(name, None)
            self.at, self._logs, self.running = at, logs, running
        return self

    def facts(self, name: str) -> tuple[dict[str, Any], int]:
        """Return stamp and number of rows of a table. Raises TableError if it is damaged or missing."""
        file = self.at.get(name)
        return read_facts(Table(name, self.results), file.st_size if file else 0, file.st_mtime_ns if file else 0)

    def stages(self, recipe: str) -> list[JobView]:
        """Return the artifacts of a recipe in build order."""
        with self._lock:
            return [self._stage(name) for name in self._sorted[recipe]]

    def sizes(self) -> dict[str, int]:
        """Return the number of artifacts of each recipe."""
        return {recipe: len(names) for recipe, names in self._sorted.items()}

    def with_results(self) -> list[str]:
        """Return the recipes with a table or a running job, the one changed last first."""
        times = {
            recipe: max((self.at[name].st_mtime if name in self.at else 0.0 for name in names), default=0.0)
            for recipe, names in self._sorted.items()
            if not {*names}.isdisjoint(self.at.keys() | self.running)
        }
        return sorted(times, key=lambda recipe: -times[recipe])

    def _stage(self, name: str) -> JobView:
        if name not in self._views:
            self._views[name] = self._view(name)
        return self._views[name]

    def _view(self, name: str) -> JobView:
        assert self._states is not None
        log, seen = self.results / f"{name}.log", dict[str, Any]()
        try:
            state, why = self._states[name].name, "; ".join(self._states[name].why)
            if name in self.at:
                stamp, rows = self.facts(name)
                seen = {"stamp": stamp, "rows": rows, "changed": self.at[name].st_mtime}
        except ProofmillError as error:
            state, why = "damaged", str(error)
        if name in self.running:
            state = "running"
        elif state == "make" and name in self._logs and "Error: " in last_line(log):
            state = "failed"
        return JobView(name, state, why, references.parents(self._states.config.entries[name]), log, **seen)


def _list_files(results: Path, ending: str) -> dict[str, os.stat_result]:
    """Return the files of all artifacts that end so, by the name of the artifact."""
    return {f"{kind}/{name}": file for kind in KINDS for name, file in _files(results / kind, ending)}


def _versions(files: Mapping[str, os.stat_result]) -> set[tuple[str, tuple[int, int]]]:
    return {(name, (file.st_size, file.st_mtime_ns)) for name, file in files.items()}


def _files(folder: Path, ending: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield name and status of the files of a folder that end so, without hidden ones."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(ending) and entry.name[0] != ".":
                with suppress(FileNotFoundError):  # replaced meanwhile
                    yield entry.name.removesuffix(ending), entry.stat()


def _running(results: Path) -> Iterator[str]:
    """Yield the artifacts that a job or a shard makes now."""
    for kind in KINDS:
        locked = (f"{kind}/{name}" for name, _ in _files(results / "unfinished" / kind, ".lock"))
        yield from (name for name in locked if locks.is_held(results / "unfinished" / f"{name}.lock"))
        called = (f"{kind}/{name}" for name, _ in _files(results / "calls" / kind, ""))
        yield from (name for name in called if merging.is_written(results / "calls" / name))


def stages(config: Config, recipe: str, results: Path) -> list[JobView]:
    """Return the artifacts of a recipe in build order."""
    return Overview(results).read(config).stages(recipe)


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


def by_kind(shown: Sequence[JobView]) -> Iterator[tuple[str, list[JobView]]]:
    """Yield each kind with its stages, in the order of the kinds."""
    for kind in KINDS:
        if some := [stage for stage in shown if kind_of(stage.name) == kind]:
            yield kind, some


def summary(shown: Sequence[JobView]) -> dict[str, int]:
    """Count the stages in each state, the worst first."""
    counts = Counter(stage.state for stage in shown)
    return {state: counts[state] for state in WORST if counts[state]}


def edges(shown: Sequence[JobView]) -> set[tuple[str, str]]:
    """Return the pairs of kinds of which the second reads the first."""
    return {(kind_of(parent), kind_of(stage.name)) for stage in shown for parent in stage.parents}


def describe(recipe: str) -> tuple[str, str]:
    """Return the comment after a recipe's name, and file and line where it is written; empty if unknown."""
    line = re.compile(rf"^{re.escape(recipe)}:[ \t]*(?:#[ \t]*(.*))?$", re.MULTILINE)
    for path in (Path("config.yaml"), *sorted(Path("workflow").glob("**/*.yaml"))):
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        if match := line.search(text):
            return match[1] or "", f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
    return "", ""


# --------------------------------------------------------------------------------------------------------------- lanes


@dataclass(frozen=True)
class Square:
    """A stage in the lanes, or several that are folded, at its upper left corner. `parents` are numbers of squares."""

    name: str
    stages: Sequence[JobView]
    parents: Sequence[int]
    x: int
    y: int

    @property
    def state(self) -> str:
        """The worst state of its stages."""
        return next(iter(summary(self.stages)))

    @property
    def word(self) -> str:
        return WORDS.get(self.state, self.state)


@dataclass(frozen=True)
class Lanes:
    """Squares in lanes of kinds (kind, stages, y, height); columns are the order in which stages can run."""

    squares: list[Square]
    lanes: list[tuple[str, int, int, int]]
    width: int
    height: int


def arrange_lanes(shown: Sequence[JobView]) -> Lanes:
    """Arrange the stages of a recipe. In long recipes, all seeds have one square, or all stages of a family."""
    groups: dict[str, list[JobView]] = {}
    depth: dict[str, int] = {}
    for stage in shown:
        seedless = without_seed(stage.name) if len(shown) > FOLD_SEEDS else stage.name
        groups.setdefault(seedless.partition("@")[0] if len(shown) > FOLD_FAMILIES else seedless, []).append(stage)
        depth[stage.name] = 1 + max((depth[parent] for parent in stage.parents), default=-1)
    number = {stage.name: place for place, some in enumerate(groups.values()) for stage in some}
    cells: dict[tuple[str, int], list[str]] = {}
    for name, some in groups.items():
        cells.setdefault((kind_of(name), min(depth[stage.name] for stage in some)), []).append(name)
    wide = [LEAST_WIDE] * (1 + max((column for _, column in cells), default=0))
    for (_, column), names in cells.items():
        wide[column] = max(wide[column], math.ceil(len(names) / LEAST_WIDE))
    starts = [*accumulate((SQUARE * squares + GAP for squares in wide), initial=LANE_X)]
    place: dict[str, tuple[int, int]] = {}
    lanes, top = [], GAP
    for kind, some in by_kind(shown):
        high = 1
        for (_, column), names in ((cell, names) for cell, names in cells.items() if cell[0] == kind):
            for n, name in enumerate(names):
                place[name] = starts[column] + SQUARE * (n % wide[column]), top + GAP + 19 * (n // wide[column])
            high = max(high, math.ceil(len(names) / wide[column]))
        lanes.append((kind, len(some), top, 19 * high + 6))
        top += 19 * high + 9
    squares = []
    for n, (name, some) in enumerate(groups.items()):
        parents = dict.fromkeys(number[parent] for stage in some for parent in stage.parents)
        squares.append(Square(name, some, [parent for parent in parents if parent != n], *place[name]))
    return Lanes(squares, lanes, starts[-1], top)


# ------------------------------------------------------------------------------------------------------------ sparklines


@dataclass(frozen=True)
class Spark:
    """The latest values of a metric as an SVG path in a box of 100 by 26, and the last value."""

    metric: str
    path: str
    last: float


def draw_spark(metric: str, values: Sequence[float]) -> Spark | None:
    """Draw at most POINTS means of consecutive values; None without two values."""
    known = [value for value in values if math.isfinite(value)]
    if len(known) < 2:
        return None
    each = math.ceil(len(known) / POINTS)
    means = [fmean(known[start : start + each]) for start in range(0, len(known), each)]
    means = smooth_values(means, 0.6) if metric == "reward" else means
    low, span = min(means), (max(means) - min(means)) or 1.0
    points = (f"{100 * n / (len(means) - 1 or 1):.1f} {23 - 20 * (y - low) / span:.1f}" for n, y in enumerate(means))
    return Spark(metric, f"M{'L'.join(points)}", known[-1])


@lru_cache(maxsize=1000)
def read_spark(table: Table, changed: float) -> Spark | None:
    """Return the sparkline of a version of a training; None if it logged none of CURVES, or its rows are damaged."""
    try:
        logged = table.scan().filter(pl.col("metric").is_in(CURVES), pl.col("value").is_not_null())
        frame = logged.select("metric", "value").collect()
    except ProofmillError:
        return None
    sparks = (draw_spark(name, frame.filter(pl.col("metric") == name)["value"].to_list()) for name in CURVES)
    return next((spark for spark in sparks if spark), None)


def follow_job(stage: JobView) -> tuple[HowFar | None, Spark | None]:
    """Return the progress of a running job from its log, and the sparkline of its reward or loss."""
    lines = [far for line in last_run(stage.log) if (far := how_far(line.removeprefix(f"{stage.name}  ")))]
    values: dict[str, list[float]] = {}
    for far in lines:
        for metric, value in re.findall(r"(reward|loss) (-?[\d.e+-]+)", far.speed):
            values.setdefault(metric, []).append(float(value.rstrip(".")))
    sparks = (draw_spark(metric, values.get(metric, ())) for metric in CURVES)
    return (lines[-1] if lines else None), next((spark for spark in sparks if spark), None)

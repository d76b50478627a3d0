"""Compare two models on a benchmark: differences by metric, slice and problem, and how the models were made.

Each number is a row of a `scores` table that compares the two, or comes from the code behind such rows (scores.py,
metrics/comparisons.py), with the metrics and settings of a table that scores both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from proofmill.analysis.differences import compare_fields
from proofmill.analysis.show_artifact import own_fields
from proofmill.artifacts.jobs import Job
from proofmill.artifacts.tables import Table
from proofmill.metrics.attempt_table import Rows
from proofmill.metrics.comparisons import by_seed, difference_matrix, values_of
from proofmill.metrics.kernels import OfAttempts, OfProblem
from proofmill.metrics.metrics import METRICS, kernel_of
from proofmill.metrics.page import seeds_needed
from proofmill.metrics.score_rows import Cell, largest
from proofmill.metrics.uncertainty.paired import ROUNDING
from proofmill.runtime.progress import clock
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import SettingError
from proofmill.schema.names import kind_of, sampling_of, without_seed
from proofmill.schema.registry_items import split
from proofmill.scores import group_attempts, score_groups
from proofmill.viewer.tables.histograms import Bar, round_edges
from proofmill.viewer.tables.joined_rows import read_by_id

Row = Mapping[str, Any]
SIDE = 14  # bars of a histogram on each side of no difference
MOST = 3  # problems that changed most, in each direction
USUAL = ("avg-at-k", "solve-rate")  # metrics without a table that scores both models


@dataclass(frozen=True)
class ComparePage:
    """The comparison of two models. The first difference is the main one, which slices and problems are about."""

    differences: Sequence[Row]
    values: Mapping[tuple[str, ...], Row]  # by model, metric, sampling setting, grader and slice
    slices: Sequence[str]
    counts: Mapping[str, int]  # of problems at which the first model is better, equal or worse
    bars: Sequence[Bar]
    changed: Sequence[Row]
    tables: Sequence[str]  # a table of grades of each model
    notes: Sequence[str]
    fields: Sequence[tuple[str, Any, Any]]  # of the configuration that differ
    scale: float | None  # the largest value of the main metric

    def score(self, difference: Row, model: str, part: str = "all") -> Row | None:
        """Return the score of a model in the metric of a difference, for a slice."""
        return self.values.get(_key({**difference, "model": model, "slice": part}))


def list_benchmarks(entries: Mapping[str, Row]) -> dict[str, dict[str, list[str]]]:
    """Return the tables of grades of each model at each benchmark."""
    tables: dict[str, dict[str, list[str]]] = {}
    for name, entry in entries.items():
        if name.startswith("grades/") and (sampled := entries.get(entry["responses"])):
            tables.setdefault(without_seed(sampled["model"]), {}).setdefault(sampled["problems"], []).append(name)
    return tables


def compare(results: Path, entries: Mapping[str, Row], a: str, b: str, on: str) -> ComparePage:
    """Return the comparison of two models. Raises SettingError if they have no grades that compare."""
    tables = list_benchmarks(entries)
    both = [tables.get(model, {}).get(on, []) for model in (a, b)]
    if a == b or not all(both):
        raise SettingError(f"{a} and {b} on {on}: no grades of both; expected two models with grades at one benchmark.")
    scoring = [name for name, e in entries.items() if kind_of(name) == "scores" and not e["gold_grades"]]
    scores = next((name for name in scoring if all({*entries[name]["grades"]} & {*some} for some in both)), None)
    cells: dict[Any, str] = {}  # one table for each model, sampling setting and grader; those of the scores first
    for name in sorted([*both[0], *both[1]], key=lambda name: not scores or name not in entries[scores]["grades"]):
        graded, sampled = entries[name], entries[entries[name]["responses"]]
        way = sampling_of(name) or sampled["temperature"]
        cells.setdefault((sampled["model"], way, graded["grader"], graded["grader_prompt"]), name)
    read = [*cells.values(), *([scores] if scores else [])]
    return _compare(results, a, b, on, scores, *((name, Table(name, results).content) for name in read))


@lru_cache(maxsize=16)
def _compare(results: Path, a: str, b: str, on: str, scores: str | None, *read: tuple[str, str]) -> ComparePage:
    stored = Table(scores, results) if scores else None
    settings = stored.stamp["entry"] if stored else {}
    grades = [Table(name, results) for name, _ in read if name != scores]
    entry = Scores(
        grades=[table.name for table in grades],
        metrics=[item for item in settings.get("metrics", USUAL) if _is_by_problem(item)] or [*USUAL],
        compare=[[a, b]],
        **{key: settings[key] for key in ("confidence", "resamples", "seed", "success_threshold") if key in settings},
    )
    parents = {name for table in grades for name in (table.name, *table.stamp["parents"])}
    groups = group_attempts(entry, Job(grades[0], {}, "", {**grades[0].stamp, "parents": dict.fromkeys(parents, "")}))
    rows: Sequence[Row] = [row for row in (stored.rows() if stored else ()) if row["problems"] == on]
    if not any((row["model"], row["baseline"]) == (a, b) for row in rows):
        rows = score_groups(groups, entry)[0]
    values = {_key(row): row for row in rows if row["model"] in (a, b) and row["p_value"] is None}
    differences = [row for row in rows if (row["model"], row["baseline"]) == (a, b) and row["value"] is not None]
    if not differences:
        raise SettingError(f"{a} and {b} on {on}: no sampling setting, grader and problem of both; expected some.")
    main, pair = differences[0], (a, b)
    of_main = [key[-1] for key in values if key[:4] == _key(main)[:4] and (b, *key[1:]) in values]
    attempts = [groups[Cell(model, on, main["sampling"], main["grader"])] for model in pair]
    mean_P, changed = _by_problem(Table(on, results), entry, pair, (attempts[0], attempts[1]))
    tables = [next(table for table in grades if _is_of(table, model, main["sampling"])) for model in pair]
    signs = np.where(np.abs(mean_P) <= ROUNDING, 0, np.sign(mean_P))
    return ComparePage(
        differences,
        values,
        [name for name in of_main if name != "all" and not name.startswith("seed ")],
        {word: int((signs == sign).sum()) for word, sign in (("better", 1), ("equal", 0), ("worse", -1))},
        list(_count(mean_P)),
        changed,
        [table.name for table in tables],
        list(seeds_needed(differences)),
        list(_differing([Table(name, results) for name in pair], tables)),
        largest(kernel_of(*split(entry.metrics[0])), attempts[0]),
    )


def _is_by_problem(item: Any) -> bool:
    """Return whether a metric has a value for each problem, from the grades alone."""
    kernel = kernel_of(*split(item)) if split(item)[0] in METRICS else None
    return isinstance(kernel, OfAttempts) or (isinstance(kernel, OfProblem) and not kernel.needs)


def _key(row: Row) -> tuple[str, ...]:
    """Return what tells scores apart; models may have other numbers of attempts, `avg@2` and `avg@4`."""
    metric = "avg" if row["metric"].startswith("avg@") else row["metric"]
    return row["model"], metric, row["sampling"], row["grader"], row["slice"]


def _is_of(grades: Table, model: str, sampling: str) -> bool:
    """Return whether a table has the grades of a model at a sampling setting, if its name says which."""
    sampled = grades.other(grades.stamp["entry"]["responses"]).stamp["entry"]
    return without_seed(sampled["model"]) == model and sampling_of(grades.name) in (None, sampling)


def _by_problem(
    problems: Table, entry: Scores, pair: tuple[str, str], both: tuple[Rows, Rows]
) -> tuple[np.ndarray, list[Row]]:
    """Return the difference in the first metric at each problem, and the problems that changed most."""
    name, argument = split(entry.metrics[0])
    value = values_of(kernel_of(name, argument), argument, entry)
    differences = by_seed(pair, (value, value), both)
    names = list(dict.fromkeys(problem for of_seed in differences.values() for problem in of_seed))
    mean_P = np.nanmean(difference_matrix(differences), axis=0)
    order = [int(place) for place in mean_P.argsort(kind="stable")[::-1]]
    ends = [n for n in order[:MOST] if mean_P[n] > ROUNDING] + [n for n in order[-MOST:] if mean_P[n] < -ROUNDING]
    about = read_by_id(problems, "problem", [names[n] for n in ends], "statement", "level")
    one, other = (value(rows) for rows in both)
    return mean_P, [
        {
            **about.get(names[n], {}),
            "problem": names[n],
            "values": (one.get(names[n]), other.get(names[n])),
            "value": mean_P[n],
        }
        for n in ends
    ]


def _count(differences_P: np.ndarray) -> Iterator[Bar]:
    """Yield the bars of problems by difference; that of 0 has exactly the equal ones, others end at their label."""
    first, second, *_ = round_edges(0.0, float(np.abs(differences_P).max()), most=SIDE)
    numbers_P = (np.sign(differences_P) * np.ceil(np.abs(differences_P) / (second - first) - ROUNDING)).astype(int)
    for number in range(min(0, int(numbers_P.min())), max(0, int(numbers_P.max())) + 1):
        yield Bar(f"{number * (second - first):+.4g}" if number else "0", int((numbers_P == number).sum()))


def _differing(models: Sequence[Table], grades: Sequence[Table]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields that differ between two models, or between the requests to them if one has no table."""
    if not all(table.path.exists() for table in models):
        models = [table.other(table.stamp["entry"]["responses"]) for table in grades]
    one, other = (table.stamp for table in models)
    shown = {**own_fields(models[0].kind, one["entry"]), **own_fields(models[1].kind, other["entry"])}
    if models[0].kind != models[1].kind:
        yield "kind", models[0].kind, models[1].kind
    fields = compare_fields(one["entry"], other["entry"])
    yield from ((key, before, after) for key, (before, after) in fields.items() if key in shown)
    yield "took", clock(one.get("seconds") or 0), clock(other.get("seconds") or 0)

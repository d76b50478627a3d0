"""Compare logs of evaluation programs, or graded tables of proofmill, problem by problem and without a recipe.

The numbers are those of `scores` for the same attempts: intervals clustered by problem, and the tests of its `compare`
(metrics/comparisons.py). The result is one JSON object (docs/compare.md), which compare_text.py renders.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

import numpy as np
from pyarrow import parquet

from proofmill.analysis.differences import read_cells
from proofmill.artifacts.stamps import KEY
from proofmill.artifacts.tables import Table
from proofmill.metrics.attempt_table import Rows, count, has, is_scored
from proofmill.metrics.comparisons import adjust, by_seed, difference_matrix, pair_numbers, values_of
from proofmill.metrics.estimates import detectable
from proofmill.metrics.metrics import METRICS
from proofmill.metrics.notices import of_attempts
from proofmill.metrics.score_rows import compute_metric, largest
from proofmill.metrics.uncertainty.paired import ROUNDING
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import SettingError, TableError, list_names, short
from proofmill.schema.reasons import Reason
from proofmill.sources.logs.reading import EvalLog, read_log
from proofmill.sources.logs.records import WITHOUT_REFUSALS, select_settings

USUAL = ("reward", "score", "grade")  # the metric that is compared if logs have several and none is named
OWN = "proofmill"
TRUNCATION, EFFECT, MEAN = (
    METRICS[name].apply for name in ("truncation-rate", "minimum-detectable-effect", "avg-at-k")
)


class ComparedLog(NamedTuple):
    """A log with its label, and its attempts with the grades of one metric."""

    label: str
    log: EvalLog
    metric: str
    rows: Rows

    @property
    def model(self) -> str:
        """The model, or the label for a log that does not name it."""
        return str(self.log.settings.get("model", self.label))

    def read_first(self, field: str) -> dict[str, Any]:
        """Return a field of the first attempt at each problem, None if it is not recorded."""
        values: dict[str, Any] = {}
        for row in self.rows:
            values.setdefault(row["problem"], row.get(field))
        return values


def compare(
    paths: Sequence[Path],
    metrics: Sequence[str] = (),
    ignore_statements: bool = False,
    max_points: float | None = None,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """Compare each log with each later one.

    Raises SettingError for a wrong choice of logs or metrics, TableError for a log that cannot be read or compared.
    """
    if not 2 <= len(paths) <= len(ascii_uppercase) or len(metrics) not in (0, 1, len(paths)):
        raise SettingError(
            f"compare: {len(paths)} logs and {len(metrics)} metrics; expected 2 to {len(ascii_uppercase)} logs, and one "
            "--metric for all of them or one for each."
        )
    entry = Scores(metrics=["avg-at-k"], confidence=confidence)
    logs = _read(paths, metrics)
    scale = _choose_scale(logs, max_points)
    kernel = replace(MEAN, scale=scale)
    pairs = [_pair(*two, kernel, ignore_statements, entry) for two in combinations(logs, 2)]
    adjust(pairs)
    return {
        "max_points": scale,
        "confidence": confidence,
        "logs": [_describe(log, kernel, entry) for log in logs],
        "pairs": pairs,
        "groups": _group(pairs, 1 - confidence),
        "settings": dict(_compare_settings(logs)),
    }


# -------------------------------------------------------------------------------------------------------------- reading


def _read(paths: Sequence[Path], metrics: Sequence[str]) -> list[ComparedLog]:
    """Read the logs with one metric each: the named one, else the one that all have, of several a usual one."""
    logs = [_read_own(path) or read_log(path) for path in paths]
    foreign = [log.metrics for log in logs if log.program != OWN]
    shared = [name for name in (foreign or [["grade"]])[0] if all(name in names for names in foreign)]
    shared = [name for name in USUAL if name in shared][:1] or shared
    if not metrics and len(shared) != 1:
        listed = "; ".join(f"{log.path}: {list_names(log.metrics) or 'none'}" for log in logs)
        fault = "several metrics" if shared else "no metric that all logs have"
        raise SettingError(f"compare: {fault} ({listed}); expected --metric with one for all logs, or one for each.")
    names = (list(metrics) or shared) * (len(logs) if len(metrics) < 2 else 1)
    for log, name in zip(logs, names, strict=True):
        for_it = log.program != OWN or len(metrics) > 1 or not foreign  # else it is that of the other logs
        if for_it and name not in log.metrics:
            raise SettingError(f"{log.path}: no metric `{name}`; expected one of {list_names(log.metrics)} (--metric).")
    return [
        ComparedLog(label, log, *(("grade", log.attempts) if log.program == OWN else (name, log.score(name))))
        for label, log, name in zip(ascii_uppercase, logs, names, strict=False)
    ]


def _read_own(path: Path) -> EvalLog | None:
    """Return the attempts behind a table of grades or scores; None for another file."""
    try:
        name = json.loads((parquet.read_metadata(path).metadata or {})[KEY.encode()])["name"]
    except (OSError, ValueError, KeyError):  # read_log reports faults
        return None
    table = Table(name, path.resolve().parents[name.count("/")])
    if table.kind not in ("grades", "scores") or table.path != path.resolve():
        raise TableError(
            f"{path}: is the table {name}; expected grades/... or scores/... in its results folder. Name one."
        )
    cells, grades = read_cells(table), table.stamp["entry"].get("grades", [table.name])
    if len(cells) != 1:
        raise TableError(
            f"{path}: {len(cells)} models or benchmarks; expected one. Name a table of {list_names(grades)}."
        )
    ((cell, rows),) = cells.items()
    sampled = table.other(table.other(grades[0]).stamp["entry"]["responses"]).stamp["entry"]
    writers = {row["writer"] for row in rows}
    own = {
        "model": cell.model if len(writers) > 1 else writers.pop() or cell.model,
        "dataset_path": cell.problems,
        "grader": cell.grader,
    }
    return EvalLog(path, OWN, select_settings(sampled, own), rows, ["grade"], {})


def _choose_scale(logs: Sequence[ComparedLog], max_points: float | None) -> float | None:
    """Return the largest grade: that of own tables, else `max_points`, else 1 if all grades fit, else None: no bound."""
    # An attempt without a human grade may have no scale.
    scales = {float(max(r["max_points"] for r in one.rows)) if one.log.program == OWN else max_points for one in logs}
    if len(scales) > 1:
        raise TableError(f"compare: scores out of {list_names(scales)}; expected one scale. Set --max-points.")
    grades = {row["grade"] for one in logs for row in one.rows if is_scored(row)}
    (scale,) = scales
    outside = [grade for grade in grades if not 0 <= grade <= (scale or 1.0)]
    if outside and scale:
        raise TableError(f"compare: a score of {min(outside):g}; expected 0 to {scale:g}. Fix or omit --max-points.")
    return None if outside else scale or 1.0


# ------------------------------------------------------------------------------------------------------------ comparing


def _describe(one: ComparedLog, kernel: Any, entry: Scores) -> dict[str, Any]:
    """Return a log's score, what is unscored, truncated and refused, its settings, and notices."""
    score, attempts = compute_metric(kernel, one.rows, entry), Counter(row["problem"] for row in one.rows)
    unscored = [row for row in one.rows if not is_scored(row)]
    refused = count(unscored, has("reason", Reason.REFUSED)) / len(one.rows)
    return {
        "label": one.label,
        "path": str(one.log.path),
        "program": one.log.program,
        "model": one.model,
        "metric": one.metric,
        **{name: score[name] for name in ("value", "low", "high", "n", "n_problems", "unscored")},
        "attempts": len(one.rows),
        "attempts_per_problem": [min(attempts.values()), max(attempts.values())],
        "unscored_reasons": Counter(row["reason"] for row in unscored),
        "truncated": compute_metric(TRUNCATION, one.rows, entry)["value"],
        "refused": None if one.log.program in WITHOUT_REFUSALS else refused,
        "minimum_detectable_effect": EFFECT.value(one.rows),
        "settings": one.log.settings,
        "notices": [*of_attempts(one.rows), *_notices(one, unscored)],
    }


def _notices(one: ComparedLog, unscored: Rows) -> Iterator[str]:
    settings = one.log.settings
    if others := [name for name in one.log.metrics if name != one.metric]:
        yield f"other metrics of this log (--metric): {list_names(others)}"
    if ignored := [row["reason"] for row in unscored if row.get("logged") is not None]:
        yield f"{len(ignored):,} attempts are unscored although the log has a value ({list_names(sorted(set(ignored)))})"
    if settings.get("status", "success") != "success":
        yield f"the run ended with the status `{short(str(settings['status']))}`"
    if settings.get("reducer", ["mean"]) != ["mean"]:
        yield f"attempts are averaged; the run reduced them by {list_names(settings['reducer'])}"


def _pair(one: ComparedLog, other: ComparedLog, kernel: Any, ignore_statements: bool, entry: Scores) -> dict[str, Any]:
    """Return the numbers of `one` minus `other`, and how their problems match."""
    ours, theirs = one.read_first("statement"), other.read_first("statement")
    shared = [problem for problem in ours if problem in theirs]
    known = [problem for problem in shared if None not in (ours[problem], theirs[problem])]
    unlike = [problem for problem in known if ours[problem] != theirs[problem]]
    if not shared or (unlike and not ignore_statements):
        ids = f"{list_names([*ours][:3])}; {list_names([*theirs][:3])}"
        fault = f"{len(unlike):,} of {len(shared):,} shared ids have other statements ({list_names(unlike[:5])})"
        raise TableError(
            f"{one.log.path}, {other.log.path}: {fault if shared else f'no id is in both ({ids})'}; expected the same "
            "problems. Set --ignore-statements if the ids are right and only the wording differs."
        )
    both, models, value = (one.rows, other.rows), (one.model, other.model), values_of(kernel, None, entry)
    differences_SP = difference_matrix(by_seed(models, (value, value), both))
    mean_P = np.nanmean(differences_SP, axis=0)
    error = float(mean_P.std(ddof=1)) / math.sqrt(len(mean_P)) if len(differences_SP) == 1 < len(mean_P) else 0.0
    truncation = pair_numbers(TRUNCATION, None, models, both, entry)
    sent, sent_there = one.read_first("sent"), other.read_first("sent")
    one_program = one.log.program == other.log.program  # each program writes requests in its own form
    return {
        "log": one.label,
        "baseline": other.label,
        **pair_numbers(kernel, None, models, both, entry),
        "detectable": detectable(error, len(mean_P), largest(kernel, one.rows), entry.confidence) if error else None,
        "better": int((mean_P > ROUNDING).sum()),
        "worse": int((mean_P < -ROUNDING).sum()),
        "equal": int((abs(mean_P) <= ROUNDING).sum()),
        "only_in_log": [problem for problem in ours if problem not in theirs],
        "only_in_baseline": [problem for problem in theirs if problem not in ours],
        "unscored_in_one": len(shared) - len(mean_P),
        "statements_compared": 0 if ignore_statements else len(known),
        "requests_that_differ": sum(sent[problem] != sent_there[problem] for problem in shared if one_program),
        "truncation": {name: truncation[name] for name in ("value", "low", "high")},
        "identical": len(one.rows) == len(other.rows) and all(map(_is_same, one.rows, other.rows)),
    }


def _is_same(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(row[field] == other[field] for field in ("problem", "attempt", "grade", "reason", "stop_reason"))


def _group(pairs: Sequence[Mapping[str, Any]], alpha: float) -> list[list[str]]:
    """Return the largest sets of logs of which no two are shown to differ."""
    alike = {(pair["log"], pair["baseline"]) for pair in pairs if pair["p_adjusted"] >= alpha}
    groups: set[frozenset[str]] = set()
    for label in sorted({label for pair in pairs for label in (pair["log"], pair["baseline"])}):
        groups |= {
            frozenset(each for each in group if (each, label) in alike) | {label} for group in groups or [frozenset()]
        }
        groups = {group for group in groups if not any(group < larger for larger in groups)}
    return sorted(map(sorted, groups))


def _compare_settings(logs: Sequence[ComparedLog]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield settings other than the model that differ. One that a log lacks differs if all are of one program."""
    one_program = len({one.log.program for one in logs}) == 1
    for name in dict.fromkeys(name for one in logs for name in one.log.settings if name != "model"):
        values = {one.label: one.log.settings.get(name) for one in logs if one_program or name in one.log.settings}
        if any(value != next(iter(values.values())) for value in values.values()):
            yield name, values

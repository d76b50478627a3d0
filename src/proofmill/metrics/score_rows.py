"""Compute the rows of a `scores` table: each metric of each split of attempts, with interval, n and share unscored."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from proofmill.metrics import estimates
from proofmill.metrics.agreement import AGREEMENTS
from proofmill.metrics.attempt_table import Rows, count, has, is_scored, parts, where
from proofmill.metrics.kernels import OfAttempts, OfHuman, OfPooled, OfProblem, OfRuns, per_problem
from proofmill.metrics.metrics import kernel_of, label, verdicts
from proofmill.metrics.uncertainty import intervals
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import TableError
from proofmill.schema.fields import GIVEN_RESPONSES

LEVELS = range(2, 13)  # numbers of distinct values that are split; more are not levels
RECENT = re.compile(r"(?<![0-9A-Za-z])(?:2024|2025)(?![0-9A-Za-z])")  # QED-Nano's split of ProofBench by year
OUT_OF_SEVEN = (AGREEMENTS["bucket-accuracy"], AGREEMENTS["bucket-accuracy-rounded"])
COMPONENT_RESAMPLES = 200  # at most, for a variance component: each resample reads all rows
COMPONENT_ROWS = 1_000_000  # rows read for one interval: large tables have fewer resamples


class Cell(NamedTuple):
    """Attempts with a common score: one model, one benchmark, one sampling setting, one grader."""

    model: str
    problems: str
    sampling: str
    grader: str


def _splits(attempts: Rows, by_writer: bool, released: date | None = None) -> Iterator[tuple[str, Rows]]:
    """Yield name and attempts of each split: all, by seed, level, writer and release; for ProofBench also the published ones."""
    yield "all", attempts
    dated = where(attempts, lambda row: released is not None and row["date"] is not None)
    older = where(dated, lambda row: row["date"] < str(released))
    newer = where(dated, lambda row: row["date"] >= str(released))
    yield from ((name, some) for name, some in ((f"before {released}", older), (f"since {released}", newer)) if some)
    keys = [("seed", "seed "), ("level", "")] + [("writer", "by ")] * by_writer
    for key, prefix in keys:
        values = sorted({row[key] for row in attempts if row[key] is not None})
        if len(values) in LEVELS:
            for value in values:
                yield f"{prefix}{value}", where(attempts, has(key, value))
    if any(row["loader"] != "proofbench" for row in attempts):
        return
    basic = where(attempts, lambda row: "Basic" in row["problem"])
    recent = where(attempts, lambda row: RECENT.search(f"{row['problem']} {row['year']}") is not None)
    for subset, name, rest in ((basic, "Basic", "Advanced"), (recent if not basic else [], "2024/2025", "Others")):
        if subset and len(subset) < len(attempts):
            yield name, subset
            yield rest, _others(attempts, subset)


def _others(attempts: Rows, subset: Rows) -> Rows:
    """Return the attempts at problems that are not in the subset."""
    inside = {row["problem"] for row in subset}
    return where(attempts, lambda row: row["problem"] not in inside)


# ------------------------------------------------------------------------------------------------------------- measures


def compute_rows(group: Cell, metrics: Sequence, attempts: Rows, entry: Scores) -> Iterator[dict]:
    """Yield the rows of metrics (with their arguments) for one cell, by split."""
    splits = list(_splits(attempts, group.model in GIVEN_RESPONSES, entry.released.get(group.model)))
    most = max(row["attempt"] for row in attempts) + 1
    for name, argument in metrics:
        yield from _by_split(group, name, argument, label(name, argument, most), splits, entry)


def _by_split(
    group: Cell, name: str, argument: Any, metric: str, splits: Sequence[tuple[str, Rows]], entry: Scores
) -> Iterator[dict]:
    """Yield the rows of one metric, one per slice. Most metrics over runs (`run-max`) have only the row of all attempts."""
    kernel = kernel_of(name, argument)
    for part, subset in splits:
        if part != "all" and isinstance(kernel, OfRuns) and name not in ("run-mean", "tokens-per-run"):
            continue
        if isinstance(kernel, OfHuman):
            numbers = _against_human(kernel, argument, subset, entry)
        elif isinstance(kernel, OfRuns):
            numbers = _of_runs(kernel, name, subset, entry)
        else:
            numbers = compute_metric(kernel, subset, entry, argument)
            if part == "all" and isinstance(kernel, OfProblem):
                _require_problems(group, metric, argument, subset, numbers["n_problems"], entry)
        if find_rule(subset) and not isinstance(kernel, OfAttempts | OfProblem):
            numbers |= {"low": None, "high": None}
        against = entry.gold_grades if isinstance(kernel, OfHuman) else None
        yield {**BLANK, **group._asdict(), "baseline": against, "metric": metric, "slice": part, **numbers}


def _require_problems(group: Cell, metric: str, k: int, attempts: Rows, counted: int, entry: Scores) -> None:
    """Raise TableError if too many problems have k attempts, but fewer than k with a verdict."""
    tried = parts(attempts, lambda row: (row["problem"], row["seed"]))
    enough = {rows[0]["problem"] for rows in tried if len(rows) >= k}
    if len(enough) - counted > entry.max_unscored * len(enough):
        raise TableError(
            f"{metric} of {group.model} on {group.problems} ({group.sampling}): {len(enough) - counted:,} of {len(enough):,} problems "
            f"have fewer than {k} attempts with a verdict and would be left out; expected at most {entry.max_unscored:.1%} "
            "(`max-unscored`). Grade the unscored attempts, choose a smaller number, or raise the limit."
        )


BLANK = dict.fromkeys((
    "model", "baseline", "problems", "sampling", "grader", "value", "low", "high", "p_value", "p_adjusted", "n_seeds",
    "n_above_zero", "tokens_per_problem", "dollars_per_problem",
))  # fmt: skip


def compute_metric(kernel: Any, attempts: Rows, entry: Scores, argument: Any = None) -> dict[str, Any]:
    """Return the columns value, low, high, n, n_problems and unscored of one metric over attempts."""
    if isinstance(kernel, OfPooled):
        return _pool(kernel, attempts, entry, argument)
    by_problem = per_problem(kernel, argument, entry.success_threshold, attempts)
    means_P = np.array(list(by_problem.values()))
    if isinstance(kernel, OfAttempts):
        n = count(attempts, lambda row: kernel.value(row) is not None)
        left_out = len(attempts) - n
    else:
        n = count(attempts, lambda row: is_scored(row) and row["problem"] in by_problem)
        left_out = len(attempts) - n  # also scored attempts at a problem with too few of them
    scale, rule = largest(kernel, attempts), find_rule(attempts)
    bounds = None if scale is None else (0, scale)
    if rule:
        low, high = any_time_ends(rule, means_P, bounds, entry)
    else:
        low, high = intervals.of_mean(means_P, bounds, *interval_options(entry))
    return {
        "value": float(means_P.mean()) if len(means_P) else None,
        "low": low,
        "high": high,
        "n": n,
        "n_problems": len(means_P),
        "n_above_zero": int((means_P > 0).sum()),
        "unscored": left_out / len(attempts) if attempts else 0.0,
    }


def find_rule(attempts: Rows) -> str | None:
    """Return the rule that ended the calls for these attempts (`until`), if any."""
    return attempts[0].get("until") if attempts else None


def any_time_ends(
    rule: str, values_P: np.ndarray, bounds: Sequence[float] | None, entry: Scores
) -> tuple[float | None, float | None]:
    """Return the interval of a mean over problems whose number a rule chose; none if it chose the attempts at each."""
    if rule == "pass-rate":
        return None, None
    return intervals.of_mean_at_any_time(values_P, bounds, entry.confidence)


def largest(kernel: OfAttempts | OfProblem, rows: Rows) -> float | None:
    """Return the largest value of a metric; None if it has no bound."""
    if kernel.scale == "grade":
        return max((row["max_points"] for row in rows), default=None)
    return kernel.scale


def interval_options(entry: Scores) -> tuple[float, int, int]:
    return entry.confidence, entry.resamples, entry.seed


def _pool(kernel: OfPooled, attempts: Rows, entry: Scores, argument: Any) -> dict[str, Any]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in attempts:
        if (value := kernel.value(row, argument)) is not None:
            sums[row["problem"]][0] += value
            sums[row["problem"]][1] += 1
    sums_PD = np.array(list(sums.values())).reshape(-1, 2)
    ends_2D = intervals.ends_of_mean(None if kernel.scale is None else (0, kernel.scale), sums_PD)
    numbers = ratio(sums_PD, intervals.quotient, len(attempts), int(sums_PD[:, 1].sum()), entry, ends_2D)
    scored = count(attempts, is_scored)  # the metric may not apply to an attempt that is scored
    return {**numbers, "unscored": 1 - scored / len(attempts) if attempts else 0.0}


def ratio(
    sums_PD: np.ndarray, value: Any, attempts: int, n: int, entry: Scores, ends_2D: np.ndarray | None = None
) -> dict[str, Any]:
    """Return `value` of the totals over problems, with its interval (intervals.py); `n` of the `attempts` count."""
    total = float(value(sums_PD.sum(axis=0, keepdims=True))[0]) if len(sums_PD) else math.nan
    low = high = None
    if total == total:
        low, high = intervals.interval(sums_PD, value, ends_2D, *interval_options(entry))
    return {
        "value": None if total != total else total,
        "low": low,
        "high": high,
        "n": n,
        "n_problems": len(sums_PD),
        "unscored": 1 - n / attempts if attempts else 0.0,
    }


def _of_runs(kernel: OfRuns, name: str, attempts: Rows, entry: Scores) -> dict[str, Any]:
    n, value = count(attempts, is_scored), kernel.value(attempts)
    low = high = None
    if name.startswith("variance-") and value is not None:
        low, high = _component_interval(name.removeprefix("variance-"), attempts, entry)
    return {
        "value": value,
        "low": low,
        "high": high,
        "n": n,
        "n_problems": len({row["problem"] for row in attempts}),
        "unscored": 1 - n / len(attempts),
    }


def _component_interval(name: str, attempts: Rows, entry: Scores) -> tuple[float | None, float | None]:
    """Return the percentile interval of a variance component; a problem drawn twice counts as two problems."""
    verdicts_P = [list(verdicts(rows)) for rows in parts(attempts, lambda row: row["problem"])]
    if len(verdicts_P) < intervals.LEAST:
        return None, None
    rng, values = np.random.default_rng(entry.seed), []
    for _ in range(min(COMPONENT_RESAMPLES, max(20, COMPONENT_ROWS // len(attempts)))):
        resample = (
            (index, attempt, grades)
            for index, choice in enumerate(rng.integers(len(verdicts_P), size=len(verdicts_P)))
            for _, attempt, grades in verdicts_P[choice]
        )
        if (value := getattr(estimates.split_variance(resample), name)) is not None:
            values.append(value)
    tail = (1 - entry.confidence) / 2
    if not values:
        return None, None
    low, high = np.quantile(values, [tail, 1 - tail])
    return (None, None) if math.isclose(low, high, abs_tol=1e-9) else (float(low), float(high))


def _against_human(kernel: OfHuman, argument: Any, attempts: Rows, entry: Scores) -> dict[str, Any]:
    """Compute the agreement of a grader with human grades; raises TableError if the scales differ."""
    graded = where(attempts, lambda row: row["human"] is not None)
    both = where(graded, is_scored)
    max_points = {row["human"][1] for row in both}
    if kernel.of != "decisions" and any(row["human"][1] != row["max_points"] for row in both):
        raise TableError(
            f"{entry.gold_grades}: human grades are out of {', '.join(map(str, sorted(max_points)))}, the grader's out of "
            f"{both[0]['max_points']}; expected one scale. Compare decisions instead: balanced-accuracy, cohen-kappa."
        )
    if kernel.agreement in OUT_OF_SEVEN and max_points - {7}:
        raise TableError(
            f"{entry.gold_grades}: grades are out of {', '.join(map(str, sorted(max_points)))}; expected 7 points, whose buckets "
            "`bucket-accuracy` compares. Use another metric of agreement."
        )
    agreement: Any = kernel.agreement
    if kernel.of == "pairs":
        agreement = agreement({(row["grade"], row["human"][0]) for row in both})
    elif kernel.of == "decisions":
        scales = [max((row["max_points"] for row in both), default=1), max(max_points, default=1)]
        if len(max_points) > 1 or argument > max(scales) or (scales[0] != scales[1] and 1 not in scales):
            raise TableError(
                f"{entry.gold_grades}: human grades are out of {', '.join(map(str, sorted(max_points)))}, the grader's out of {scales[0]}, the "
                f"threshold is {argument:g}; expected one scale, or correct and wrong (out of 1) on one side, and a "
                "threshold within it."
            )
        agreement = agreement(*(1 if scale == 1 else argument for scale in scales))
    vectors = []
    for rows in parts(both, lambda row: row["problem"]):
        sums = agreement.sums(np.array([r["grade"] for r in rows]), np.array([r["human"][0] for r in rows]))
        if sums is not None:
            vectors.append(sums)
    ends_2D = agreement.ends(both[0]["max_points"], len(both) / len(vectors)) if vectors else None
    return ratio(np.array(vectors), agreement.value, len(graded), len(both), entry, ends_2D)


def count_confusions(attempts: Rows) -> dict[tuple[int, int], int]:
    """Count attempts by human grade and grader's grade, to whole points; empty without both on one scale."""
    both = [row for row in attempts if row["human"] is not None and is_scored(row)]
    if any(row["human"][1] != row["max_points"] for row in both):
        return {}
    return Counter((math.floor(row["human"][0] + 0.5), math.floor(row["grade"] + 0.5)) for row in both)

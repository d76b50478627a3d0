"""Compute the rows of a `scores` table with `debias`: each score of a judge, corrected by the grades of some attempts.

Below the row of the judge are that of the debiased score and that of the labels alone, which is by strata, too: a plain
mean of proposed labels would be biased.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from proofmill.metrics.attempt_table import Rows, is_scored, where
from proofmill.metrics.kernels import OfAttempts
from proofmill.metrics.metrics import METRICS, label
from proofmill.metrics.score_rows import BLANK, Cell, find_rule, largest
from proofmill.metrics.uncertainty.debiasing import FEWEST, Debiased, debias, difference, stratify
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import TableError

DEBIASED = ("avg-at-k", "solve-rate")  # metrics that are means of what attempts earn
ODD = 3.0  # standard errors by which labelled attempts may differ from the others
Groups = Mapping[Cell, Rows]


def compute(groups: Groups, metrics: Sequence, entry: Scores) -> Iterator[dict[str, Any]]:
    """Yield the debiased row and the row of the labels alone, for each cell with labels and each metric."""
    for group, attempts, name, shown in _of_metrics(groups, metrics):
        kernel: Any = METRICS[name].apply
        found, alone = _debias(kernel, attempts), _debias(kernel, attempts, weight=0.0)
        if found is None or alone is None:
            continue
        judged, scale = len(_select_judged(attempts)), largest(kernel, attempts) or 1.0
        for name_of_row, one, size in (
            (
                _name(group),
                found,
                {"n": judged, "n_problems": len(found.terms), "unscored": 1 - judged / len(attempts)},
            ),
            ("labels alone", alone, {"n": found.labels, "n_problems": found.problems, "unscored": 0.0}),
        ):
            ends = (None, None) if find_rule(attempts) else one.ends(entry.confidence)
            low, high = (None if end is None else end * scale for end in ends)
            row = {**BLANK, **group._asdict(), "grader": name_of_row, "metric": shown, "slice": "all"}
            yield {**row, "value": one.value * scale, "low": low, "high": high, **size}


def compare(groups: Groups, metrics: Sequence, entry: Scores) -> Iterator[dict[str, Any]]:
    """Yield the debiased difference of each pair of `compare` in which both models have labels, and one seed each."""
    for model, baseline in entry.compare:
        for group, attempts, name, shown in _of_metrics(groups, metrics):
            others = groups.get(group._replace(model=baseline)) if group.model == model else None
            if not others or any(
                len({row["seed"] for row in rows}) > 1 or find_rule(rows) for rows in (attempts, others)
            ):
                continue
            kernel: Any = METRICS[name].apply
            common = set.intersection(*({row["problem"] for row in _select_judged(r)} for r in (attempts, others)))
            both = [where(rows, lambda row: row["problem"] in common) for rows in (attempts, others)]  # noqa: B023
            one, other = (_debias(kernel, rows) for rows in both)
            if one is None or other is None:
                continue
            scale = largest(kernel, attempts) or 1.0
            value, (low, high), p = difference(one, other, entry.confidence)
            judged = [_select_judged(rows) for rows in both]
            yield {
                **{**BLANK, **group._asdict(), "grader": _name(group), "baseline": baseline},
                **{"metric": shown, "slice": "all", "value": value * scale, "p_value": p, "n_seeds": 1},
                **{"low": low and low * scale, "high": high and high * scale, "n": sum(map(len, judged))},
                **{"n_problems": len(common), "unscored": 1 - sum(map(len, judged)) / sum(map(len, both))},
            }


def notices(groups: Groups, metrics: Sequence, entry: Scores) -> dict[Cell, list[str]]:
    """Return sentences on the labels of each debiased cell: how many, the judge's weight, and what is odd about them.

    Raises TableError if no attempt has a label.
    """
    sentences: dict[Cell, list[str]] = {}
    for group, attempts, name, shown in _of_metrics(groups, metrics) if entry.debias else ():
        judged, found = _select_judged(attempts), _debias(METRICS[name].apply, attempts)
        cell = group._replace(grader=_name(group))
        if found is None or cell in sentences:
            continue
        sentences[cell] = [
            f"{found.labels:,} of {len(judged):,} attempts, at {found.problems:,} of {len(found.terms):,} problems, have "
            f"labels (`debias`); the judge's weight in {shown} is {found.weight:.2f}"
        ]
        for other in [pair[1 - pair.index(group.model)] for pair in entry.compare if group.model in pair]:
            rows = groups.get(group._replace(model=other))
            if rows and not any(row["human"] for row in rows):
                sentences[cell].append(f"no debiased difference from {other}, whose attempts have no labels")
        if found.problems < FEWEST:
            sentences[cell].append(f"an interval needs labels at {FEWEST} problems: grade more attempts")
        sentences[cell] += [
            f"labelled attempts have {more} {what} than others with like grades: label a random draw (`proofmill view`)"
            for what, more in _find_odd(judged)
        ]
    if entry.debias and not sentences:
        raise TableError(
            f"{', '.join(entry.debias)}: none of the scored attempts has a grade there; expected grades of the same "
            "responses. Fix `debias`, or remove it."
        )
    return sentences


def _of_metrics(groups: Groups, metrics: Sequence) -> Iterator[tuple[Cell, Rows, str, str]]:
    for group, attempts in groups.items():
        for name, argument in metrics:
            if name in DEBIASED:
                yield group, attempts, name, label(name, argument, max(row["attempt"] for row in attempts) + 1)


def _name(group: Cell) -> str:
    return f"{group.grader}, debiased"


def _select_judged(attempts: Rows) -> Rows:
    return where(attempts, is_scored)


def _debias(kernel: OfAttempts, attempts: Rows, weight: float | None = None) -> Debiased | None:
    """Return the debiased metric of attempts with a grade by the judge. Raises TableError if labels have another scale."""
    scale, rows = largest(kernel, attempts) or 1.0, _select_judged(attempts)
    if odd := next((row for row in rows if row["human"] and row["human"][1] != row["max_points"]), None):
        raise TableError(
            f"`debias`: an attempt at {odd['problem']} has a label out of {odd['human'][1]} and a grade out of "
            f"{odd['max_points']}; expected one scale. Grade by the same scale."
        )
    labels = [kernel.value({**row, "grade": row["human"][0]}) if row["human"] else math.nan for row in rows]
    human_N = np.array([math.nan if value is None else value for value in labels], dtype=float) / scale
    judged_N = np.array([kernel.value(row) for row in rows], dtype=float) / scale
    return debias([row["problem"] for row in rows], judged_N, human_N, weight, _shares(rows))


def _shares(rows: Rows) -> np.ndarray:
    """Return the judge's share of the points: strata and proposals are by it, whatever the metric is."""
    return np.array([row["grade"] / row["max_points"] for row in rows])


def _find_odd(judged: Rows) -> Iterator[tuple[str, str]]:
    """Yield what labelled attempts have more or less of than others to which the judge gives like grades."""
    labelled_N = np.array([row["human"] is not None for row in judged])
    share_N = _shares(judged)
    stratum_N = stratify(share_N)
    for what, values_N in (
        ("points by the judge", share_N),
        ("tokens", np.log1p([float(row["response_tokens"] or 0) for row in judged])),
    ):
        excess = variance = 0.0
        for stratum in range(3):
            some_N, drawn_N = values_N[stratum_N == stratum], labelled_N[stratum_N == stratum]
            if drawn_N.any() and not drawn_N.all():
                excess += float((some_N[drawn_N] - some_N.mean()).sum())
                variance += float(drawn_N.sum() * (1 - drawn_N.mean()) * some_N.var())
        if abs(excess) > ODD * math.sqrt(variance) > 0:
            yield what, "more" if excess > 0 else "fewer"

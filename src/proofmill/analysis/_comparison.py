"""Render a replay as text: rewards and advantages before and after, in all steps and in each third of them.

Intervals are 95 % and over groups (metrics/uncertainty/intervals.py), because the rollouts of a group are not independent.

Shapes: P groups, G rollouts per group, R resamples, D sums of a group.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from proofmill.estimation import idle
from proofmill.metrics.uncertainty import intervals
from proofmill.metrics.uncertainty.paired import ROUNDING

DIGITS = 6  # rewards that are equal to this many digits count as equal
Cell = Callable[[np.ndarray], str]  # returns the text for the groups that a mask (P,) selects


def lines(replay: Any) -> Iterator[str]:
    """Yield a replay as text: its settings, whether it reproduces the run, the groups that change, a table."""
    groups, covered, rollouts = len(replay.covered_P), int(replay.covered_P.sum()), replay.before_PG.size
    rewards, learned = replay.as_recorded()
    yield f"{replay.run.name}: {rollouts:,} rollouts in {groups:,} groups of {replay.run.size}"
    yield f"before: {replay.run.terms}"
    yield f"after:  {replay.now.terms}{f', grades of {replay.grades}' if replay.grades else ''}"
    if covered < groups:
        yield f"{groups - covered:,} of {groups:,} groups have no row in {replay.grades} and are excluded"
    yield f"with the run's settings, {rewards:,} of {rollouts:,} rewards and {learned:,} advantages equal the recorded ones"
    if min(rewards, learned) < rollouts:
        yield "the other ones differ because the code of rewards or the table has changed since the run"
    changed = int(replay.changed_PG[replay.covered_P].any(axis=1).sum())
    yield f"{changed:,} of {covered:,} groups change: the advantage of a rollout changes its sign"
    yield ""
    parts = spans(replay)
    yield from _align(
        [
            ["value [95 % interval]", *parts],
            *([label, *(cell(span_P) for span_P in parts.values())] for label, cell in _cells(replay)),
        ]
    )


def spans(replay: Any) -> dict[str, np.ndarray]:
    """Return masks (P,) by name: all covered groups, and those in each third of the steps."""
    steps = np.unique(replay.run.step_P[replay.covered_P])
    masks = {"all steps": replay.covered_P}
    for part in np.array_split(steps, 3) if len(steps) > 1 else ():
        if len(part):
            name = f"step {part[0]}" if len(part) == 1 else f"{part[0]} to {part[-1]}"
            masks[name] = replay.covered_P & np.isin(replay.run.step_P, part)
    return masks


def _cells(replay: Any) -> Iterator[tuple[str, Cell]]:
    """Yield the label of each line with the function that fills its cells."""
    yield "rollouts", lambda span_P: f"{span_P.sum() * replay.run.size:,}"
    yield "groups", lambda span_P: f"{span_P.sum():,}"
    yield "unscored before", _of(replay.again.unscored_PG, _share)
    yield "unscored after", _of(replay.now.unscored_PG, _share)
    yield "groups without deviation before", _of(~replay.before_PG.any(axis=1), _share_of_groups)
    yield "groups without deviation after", _of(~replay.after_PG.any(axis=1), _share_of_groups)
    for size in sorted({2, 4, 8, 16, 32, replay.run.size}):
        yield f"... forecast for groups of {size}", _of(replay.now.totals_PG, partial(_forecast, size=size))
    for name in dict.fromkeys((*replay.was.values, *replay.now.values)):
        for when, earned in (("before", replay.was), ("after", replay.now)):
            if name in earned.values:
                yield f"reward {name} {when}", _of(earned.values[name], _mean)
    for label, hits_PG in {**replay.changes, "any of these": replay.changed_PG}.items():
        yield f"advantages {label}", _of(hits_PG, _share)
    yield "groups with any of these", _of(replay.changed_PG.any(axis=1), _share_of_groups)
    yield "groups with + to - or - to +", _of(replay.turned_PG.any(axis=1), _share_of_groups)
    yield "groups with another best attempt", _of(replay.other_best_P, _share_of_groups)
    yield "groups reversed", _of(replay.reversed_P, _share_of_groups)
    yield "correlation of advantages", _of(np.stack([replay.before_PG, replay.after_PG], axis=1), _correlation)


# --------------------------------------------------------------------------------------------------------------- cells


def _of(values_P: np.ndarray, shown: Callable[[np.ndarray], str]) -> Cell:
    """Return a cell that shows the values of the selected groups."""
    return lambda span_P: shown(values_P[span_P])


def _share_of_groups(hits_P: np.ndarray) -> str:
    """Return the share of groups, with its interval."""
    return _percent(hits_P.mean(), *intervals.of_mean(hits_P, (0, 1)))


def _forecast(totals_PG: np.ndarray, size: int) -> str:
    """Return the share of groups of another size that would be idle (estimation/idle.py)."""
    scored = [np.round(totals_G[~np.isnan(totals_G)], DIGITS).tolist() for totals_G in totals_PG]
    share = idle.forecast_idle(idle.count_values(scored), size)
    return "-" if np.isnan(share) else _percent(share, None, None)


def _share(hits_PG: np.ndarray) -> str:
    """Return the share of rollouts, with its interval over groups."""
    return _share_of_groups(hits_PG.mean(axis=1))


def _mean(values_PG: np.ndarray) -> str:
    """Return the mean of the values that are not NaN, with its interval."""
    sums_PD = np.column_stack([np.nansum(values_PG, axis=1), (~np.isnan(values_PG)).sum(axis=1)])
    return _number(intervals.quotient(sums_PD.sum(axis=0, keepdims=True))[0], *_interval(sums_PD, intervals.quotient))


def _correlation(pairs_P2G: np.ndarray) -> str:
    """Return the correlation of advantages, whose mean is 0 in every group."""
    x_PG, y_PG = pairs_P2G[:, 0], pairs_P2G[:, 1]
    sums_PD = np.column_stack([(x_PG * y_PG).sum(axis=1), (x_PG**2).sum(axis=1), (y_PG**2).sum(axis=1)])
    return _number(_cosine(sums_PD.sum(axis=0, keepdims=True))[0], *_interval(sums_PD, _cosine))


def _cosine(totals_RD: np.ndarray) -> np.ndarray:
    """Return the cosine from sums of products and of both squares; NaN if one side is all 0."""
    products_R, lengths_R = totals_RD[:, 0], np.sqrt(totals_RD[:, 1] * totals_RD[:, 2])
    return intervals.quotient(np.column_stack([products_R, lengths_R]))


def _interval(sums_PD: np.ndarray, value: Callable[[np.ndarray], np.ndarray]) -> tuple[float | None, float | None]:
    """Return the interval over groups; (None, None) without spread."""
    low, high = intervals.interval(sums_PD, value)
    return (None, None) if low is None or high is None or high - low < ROUNDING else (low, high)


def _percent(share: float, low: float | None, high: float | None) -> str:
    return f"{100 * share:.1f} %" + ("" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]")


def _number(value: float, low: float | None, high: float | None) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")


def _align(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

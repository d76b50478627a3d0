"""Fit a cascade of graders to tables in which all of them graded the same responses: lowest cost at a bound on the error.

A cascade asks its first grader. If that gives no grade, or one within a band, the next grader decides, as with
`escalate-on: [unscored, band]` (graders/graders.py). The error of a response is |grade - gold| / (max points).

Half of the problems, drawn by their digest, order the cascades: those with the lowest error at their cost, from the most
accurate on. The other half tests them in this order, until the error of one may be above the bound; the last before it is
chosen. Because the order was fixed before, no correction for the number of tests is needed (fixed-sequence testing:
Angelopoulos et al. 2021, "Learn then Test", section 3.2).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import polars as pl
import yaml

from proofmill.artifacts.tables import Table
from proofmill.metrics.uncertainty.intervals import Ends, at_most, of_mean
from proofmill.prompts import templates
from proofmill.schema.errors import TableError
from proofmill.schema.fields import GRADER_PROMPT
from proofmill.schema.ids import digest
from proofmill.schema.names import kind_of

Band = tuple[int, int] | None  # lowest and highest grade that escalates; None: only responses without a grade
DEEPEST = 3  # graders in a cascade
COLUMNS = ("response", "problem", "grade", "max_points", "cost")


@dataclass(frozen=True)
class Sample:
    """Grades and dollars of G graders for N responses; an unscored response has a NaN as its grade."""

    grades_GN: np.ndarray
    dollars_GN: np.ndarray
    gold_N: np.ndarray
    problems: Sequence[str]
    points: int

    def half(self, second: bool) -> "Sample":
        """Return the responses to one half of the problems, drawn by their digest."""
        chosen_N = np.array([int(digest("half", problem), 16) % 2 == second for problem in self.problems])
        some = [problem for problem, is_chosen in zip(self.problems, chosen_N, strict=True) if is_chosen]
        return Sample(
            self.grades_GN[:, chosen_N], self.dollars_GN[:, chosen_N], self.gold_N[chosen_N], some, self.points
        )


@dataclass(frozen=True)
class Cascade:
    """Graders by their place in the sample, and the band of each but the last."""

    graders: tuple[int, ...]
    bands: tuple[Band, ...] = ()

    def apply(self, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
        """Return the grade (NaN: none) and the dollars of each response."""
        first = self.graders[0]
        grade_N, dollars_N = sample.grades_GN[first], sample.dollars_GN[first]
        open_N = np.ones(len(grade_N), dtype=bool)
        for place, band in zip(self.graders[1:], self.bands, strict=True):
            low, high = band or (1, 0)
            open_N = open_N & (np.isnan(grade_N) | ((low <= grade_N) & (grade_N <= high)))
            grade_N = np.where(open_N, sample.grades_GN[place], grade_N)
            dollars_N = dollars_N + np.where(open_N, sample.dollars_GN[place], 0.0)
        return grade_N, dollars_N


@dataclass(frozen=True)
class Numbers:
    """Error (share of the points) and dollars per 1,000 responses with intervals, and the unscored share.

    The error is at most `error_bound`, with the confidence of the intervals.
    """

    error: float
    error_ends: Ends
    error_bound: float | None
    dollars: float
    dollars_ends: Ends
    unscored: float
    problems: int

    @classmethod
    def of(cls, grade_N: np.ndarray, dollars_N: np.ndarray, sample: Sample, confidence: float) -> "Numbers":
        error_N = np.abs(grade_N - sample.gold_N) / sample.points
        error_P, dollars_P = _by_problem(error_N, sample.problems), 1000 * _by_problem(dollars_N, sample.problems)
        return cls(
            error=float(error_P.mean()) if len(error_P) else float("nan"),
            error_ends=of_mean(error_P, (0.0, 1.0), confidence),
            error_bound=at_most(error_P, 1.0, confidence),
            dollars=float(dollars_P.mean()),
            dollars_ends=of_mean(dollars_P, None, confidence),
            unscored=float(np.isnan(grade_N).mean()),
            problems=len(dollars_P),
        )

    def within(self, bound: float) -> bool:
        """Return whether the error is at most `bound`, with the confidence."""
        return self.error_bound is not None and self.error_bound <= bound


@dataclass(frozen=True)
class Fit:
    """The chosen cascade, the numbers of each grader alone and its own on the second half; `entry` declares it."""

    names: Sequence[str]  # the graders
    cascade: Cascade
    alone: Sequence[Numbers]
    forecast: Numbers
    saved: tuple[float, Ends]  # dollars per 1,000 responses, against the last grader
    entry: Mapping[str, Any]
    warnings: Sequence[str]


def fit(tables: Sequence[Table], gold: Table | None, bound: float, confidence: float, name: str) -> Fit:
    """Choose the cascade with the lowest cost whose error is at most `bound`. Raises TableError if no cascade has."""
    _require_plain(tables[:-1])
    sample = read_sample(tables, gold)
    first, second = sample.half(second=False), sample.half(second=True)
    cascade = _choose(first, second, bound, confidence, [table.name for table in tables])
    numbers = [Numbers.of(*Cascade((place,)).apply(second), second, confidence) for place in range(len(tables))]
    _, dollars_N = cascade.apply(second)
    saved_P = 1000 * _by_problem(second.dollars_GN[-1] - dollars_N, second.problems)
    entries = [table.stamp["entry"] for table in tables]
    return Fit(
        names=[str(entry["grader"]) for entry in entries],
        cascade=cascade,
        alone=numbers,
        forecast=Numbers.of(*cascade.apply(second), second, confidence),
        saved=(float(saved_P.mean()), of_mean(saved_P, None, confidence)),
        entry=declare(cascade, entries, name),
        warnings=[*_warn(cascade, entries)],
    )


def _require_plain(tables: Sequence[Table]) -> None:
    """Raise TableError if a grader escalates: as part of another cascade it would give other grades than in its table."""
    for table in tables:
        grader = table.stamp["entry"]["grader"]
        if further := table.stamp["declared"].get(grader, {}).get("escalate_to"):
            raise TableError(
                f"{table.name}: {grader} escalates to {further}; expected a grader without `escalate-to`, except in the "
                "last table. Name a table of each of its graders."
            )


def read_sample(tables: Sequence[Table], gold: Table | None) -> Sample:
    """Return the responses that have a gold grade, which by default is that of the last table.

    Raises TableError if tables are of different responses, on different scales, or without prices.
    """
    frames = [table.scan().select(COLUMNS).collect().sort("response") for table in tables]
    truth = gold.scan().select(COLUMNS).collect().sort("response") if gold else frames[-1]
    for table, frame in zip(tables, frames, strict=True):
        if not frame["response"].equals(frames[0]["response"]):
            raise TableError(
                f"{table.name}: graded other responses than {tables[0].name}; expected the same. Grade those."
            )
        if missing := frame["cost"].null_count():
            raise TableError(
                f"{table.name}: {missing:,} verdicts have no known price; expected dollars. Set `price` of its judge."
            )
    scales = {int(points) for frame in (*frames, truth) for points in frame["max_points"].unique()} - {0}
    if len(scales) != 1:
        raise TableError(f"grades are out of {sorted(scales)}; expected one scale. Use prompts with the same scale.")
    truth = truth.filter(pl.col("grade").is_not_null()).select("response", gold="grade")
    known = frames[0].select("response", "problem").join(truth, on="response", how="left", maintain_order="left")
    has_gold_N = known["gold"].is_not_null().to_numpy()
    if not has_gold_N.any():
        raise TableError(
            f"{(gold or tables[-1]).name}: has no grade of these responses; expected some. Name another table."
        )

    def values_GN(column: str) -> np.ndarray:
        return np.stack([frame[column].cast(pl.Float64).fill_null(np.nan).to_numpy() for frame in frames])[
            :, has_gold_N
        ]

    problems = known.filter(pl.col("gold").is_not_null())["problem"].to_list()
    gold_N = known["gold"].to_numpy()[has_gold_N].astype(float)
    return Sample(values_GN("grade"), values_GN("cost"), gold_N, problems, scales.pop())


def order(sample: Sample, graders: int) -> list[Cascade]:
    """Return the cascades that no other beats in both error and cost, the most accurate first.

    None leaves more responses unscored than the last grader alone.
    """
    numbered, most_unscored = [], np.isnan(sample.grades_GN[-1]).mean()
    for cascade in list_cascades(graders, sample.points):
        grade_N, dollars_N = cascade.apply(sample)
        if np.isnan(grade_N).mean() > most_unscored:  # no errors where it has no grade, which is not accuracy
            continue
        error_P = _by_problem(np.abs(grade_N - sample.gold_N) / sample.points, sample.problems)
        if len(error_P):
            numbered.append((float(dollars_N.mean()), float(error_P.mean()), len(cascade.graders), cascade))
    best: list[Cascade] = []
    lowest = float("inf")
    for _, error, _, cascade in sorted(numbered, key=lambda each: each[:3]):
        if error < lowest:
            best.append(cascade)
            lowest = error
    return best[::-1]


def _choose(first: Sample, second: Sample, bound: float, confidence: float, names: Sequence[str]) -> Cascade:
    chosen = None
    for cascade in order(first, len(names)):
        if not Numbers.of(*cascade.apply(second), second, confidence).within(bound):
            break
        chosen = cascade
    if chosen is None:
        alone = {name: Numbers.of(*Cascade((g,)).apply(second), second, confidence) for g, name in enumerate(names)}
        shown = ", ".join(f"{name} {_show(each.error, each.error_ends)}" for name, each in alone.items())
        raise TableError(
            f"no cascade has an error of at most {bound:g} with {confidence:.0%} confidence on {len({*second.problems}):,} "
            f"problems (alone: {shown}); expected one. Raise --error, or grade more responses."
        )
    return chosen


def list_cascades(graders: int, points: int) -> Iterator[Cascade]:
    """Yield every cascade of up to DEEPEST graders, in their order, with every band of whole points."""
    bands: list[Band] = [None, *((low, high) for low in range(points + 1) for high in range(low, points + 1))]
    for depth in range(1, min(DEEPEST, graders) + 1):
        for chain in combinations(range(graders), depth):
            yield from (Cascade(chain, chosen) for chosen in product(bands, repeat=depth - 1))


def _by_problem(values_N: np.ndarray, problems: Sequence[str]) -> np.ndarray:
    """Return the mean of each problem over its responses that have a value."""
    frame = pl.DataFrame({"problem": problems, "value": values_N}).filter(pl.col("value").is_not_nan())
    return frame.group_by("problem", maintain_order=True).agg(pl.col("value").mean())["value"].to_numpy()


# ------------------------------------------------------------------------------------------------------------ the entry


def declare(cascade: Cascade, entries: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return the `grader/...` entries that make the cascade, the first one under `name`."""
    declared: dict[str, Any] = {}
    names = [name, *(f"{name}-{number}" for number in range(2, len(cascade.graders) + 1))]
    for number, place in enumerate(cascade.graders):
        entry = entries[place]
        own: dict[str, Any] = {"judges": [entry["grader"]]}
        if kind_of(entry["grader"]) == "grader":
            own = {"like": entry["grader"]}
        elif entry["grader_prompt"]:
            own["prompt"] = entry["grader_prompt"]
        if number < len(cascade.bands):
            band = cascade.bands[number]
            own |= {"escalate-to": names[number + 1], "escalate-on": ["unscored", *(["band"] if band else [])]}
            own |= {"escalate-band": [*band]} if band else {}
        declared[names[number]] = own
    return declared


def _warn(cascade: Cascade, entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for entry in (entries[place] for place in cascade.graders[1:]):
        prompt = entry["grader_prompt"] or GRADER_PROMPT
        if kind_of(entry["grader"]) == "api" and "judgement" in templates.prompt(prompt).optional:
            yield f"{entry['grader']} is shown the text of the grader before it in a cascade, and was not in its table"


# ------------------------------------------------------------------------------------------------------------- the text


def lines(fit: Fit, bound: float, confidence: float) -> Iterator[str]:
    """Yield the numbers of each grader alone and of the cascade, and the entry in YAML."""
    forecast, ratio = fit.forecast, fit.forecast.dollars / fit.alone[-1].dollars if fit.alone[-1].dollars else 1.0
    yield f"on the {forecast.problems:,} problems of the second half, with {confidence:.0%} intervals:"
    for name, numbers in [*zip(fit.names, fit.alone, strict=True), (next(iter(fit.entry)), forecast)]:
        yield (
            f"  {name}: error {_show(numbers.error, numbers.error_ends)} of the points, "
            f"${_show(numbers.dollars, numbers.dollars_ends, 2)} per 1,000 responses, {numbers.unscored:.1%} unscored"
        )
    yield f"saved against {fit.names[-1]}: ${_show(*fit.saved, 2)} per 1,000 responses ({1 - ratio:.0%})"
    yield f"the error is at most {bound:g} with {confidence:.0%} confidence"
    yield from (f"note: {warning}" for warning in fit.warnings)
    yield ""
    yield yaml.safe_dump(dict(fit.entry), sort_keys=False, default_flow_style=None).rstrip()


def compare_realized(fit: Fit, table: Table, gold: Table, confidence: float) -> Iterator[str]:
    """Yield the error and the cost of a table that the cascade graded, and their difference from the forecast.

    The interval of a difference has both uncertainties (MOVER: Zou and Donner 2008, Statistics in Medicine 27, equation 7).
    """
    sample = read_sample([table], gold)
    found = Numbers.of(*Cascade((0,)).apply(sample), sample, confidence)
    yield f"realized by {table.name}, on {found.problems:,} problems:"
    for what, number, ends, forecast, forecast_ends in (
        ("error", found.error, found.error_ends, fit.forecast.error, fit.forecast.error_ends),
        ("$ per 1,000", found.dollars, found.dollars_ends, fit.forecast.dollars, fit.forecast.dollars_ends),
    ):
        low, high = _difference(number, ends, forecast, forecast_ends)
        agrees = "unknown" if low is None or high is None else "as forecast" if low <= 0 <= high else "not as forecast"
        yield f"  {what}: {_show(number, ends)}, {_show(number - forecast, (low, high))} from the forecast: {agrees}"


def _difference(one: float, ends: Ends, other: float, other_ends: Ends) -> Ends:
    low, high = ends
    other_low, other_high = other_ends
    if low is None or high is None or other_low is None or other_high is None:
        return None, None
    below, above = np.hypot(one - low, other_high - other), np.hypot(high - one, other - other_low)
    return one - other - float(below), one - other + float(above)


def _show(value: float, ends: Ends, digits: int = 3) -> str:
    low, high = ends
    shown = f"{value:.{digits}f}"
    return shown if low is None or high is None else f"{shown} [{low:.{digits}f}, {high:.{digits}f}]"

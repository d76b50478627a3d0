"""Averages of benchmarks with equal weights, whatever their sizes, and their intervals.

    averages: {code: [problems/a, problems/b], mathematics: [problems/c], total: [code, mathematics]}

The total is the mean of two means, not of three benchmarks.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 4.1), whose total is the mean of a code and a maths average. The
interval: Zou, Huang and Zhang 2009 ("A note on confidence interval estimation for a linear function of binomial
proportions", Computational Statistics and Data Analysis 53), method of variance estimates recovery. Each end is as far from
the mean as the root of the summed squares of w_i d_i, with a benchmark's weight w_i and the distance d_i of the same end
of its own interval. It is valid if the benchmarks' intervals are, also for small benchmarks that are all right or wrong.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from proofmill.metrics.attempt_table import Rows, is_scored
from proofmill.metrics.comparisons import by_seed, difference_matrix, select_seeds, test_numbers, values_of
from proofmill.metrics.kernels import OfAttempts, OfProblem
from proofmill.metrics.metrics import METRICS, label
from proofmill.metrics.score_rows import BLANK, Cell, find_rule, largest
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import TableError
from proofmill.schema.names import kind_of
from proofmill.text.suggestions import among

Row = Mapping[str, Any]


def weights(averages: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Return the weight of each benchmark in each average; an average follows the averages it contains.

    The order of declaration does not matter. Averages that contain each other are left out.
    """
    shares_of: dict[str, dict[str, float]] = {}
    while ready := [
        name
        for name, some in averages.items()
        if name not in shares_of and not {*some} & averages.keys() - shares_of.keys()
    ]:
        for name in ready:
            shares_of[name] = {}
            for member in averages[name]:
                for problems, weight in shares_of.get(member, {member: 1.0}).items():
                    shares_of[name][problems] = shares_of[name].get(problems, 0.0) + weight / len(averages[name])
    return shares_of


def faults(entry: Scores) -> Iterator[str]:
    """Yield the faults in the names of `averages`."""
    known = [*(entry.problems if entry.models else ()), *entry.averages]
    for name, members in entry.averages.items():
        if "/" in name or not members or len(set(members)) < len(members):
            yield f"`averages` has `{name}: {members}`; expected a new name and distinct benchmarks."
        unknown = [each for each in members if each not in known and (entry.models or kind_of(each) != "problems")]
        if unknown:
            yield f"`averages` has `{unknown[0]}` in `{name}`; expected one of {among(unknown[0], known)}"
    if circle := sorted(entry.averages.keys() - weights(entry.averages).keys()):
        yield f"`averages` has `{circle[0]}`, which contains itself; expected averages that end in benchmarks."


def average(rows: Sequence[Row], groups: Mapping[Cell, Rows], entry: Scores) -> Iterator[dict[str, Any]]:
    """Yield a row for each average, model, sampling setting and metric that all its benchmarks have.

    Raises TableError if the benchmarks' grades are on several scales, or a benchmark has several graders.
    """
    full_rows = [row for row in rows if row["model"] and row["slice"] == "all" and row["baseline"] is None]
    for name, shares in weights(entry.averages).items():
        for model, sampling in dict.fromkeys((group.model, group.sampling) for group in groups):
            cells = _cells(name, shares, model, sampling, groups, bool(entry.published))
            for metric in dict.fromkeys(row["metric"] for row in full_rows) if cells else ():
                parts = {
                    row["problems"]: row
                    for row in full_rows
                    if row["metric"] == metric and _cell(row) in cells.values()
                }
                if parts.keys() == shares.keys() and all(row["value"] is not None for row in parts.values()):
                    yield {
                        **BLANK,
                        **_name_cells(name, cells),
                        "metric": metric,
                        "slice": "all",
                        **combine(parts, shares, _list_alike(cells, groups)),
                        **(
                            {"low": None, "high": None}
                            if any(find_rule(groups[each]) for each in cells.values())
                            else {}
                        ),
                    }


def _list_alike(cells: Mapping[str, Cell], groups: Mapping[Cell, Rows]) -> list[set[str]]:
    """Return sets of benchmarks: those in one set share problems, such as HumanEval and HumanEval+."""
    alike: list[tuple[set[str], set[str]]] = []
    for name, cell in cells.items():
        names, problems = {name}, {row["problem"] for row in groups[cell]}
        for other in [each for each in alike if each[1] & problems]:
            alike.remove(other)
            names, problems = names | other[0], problems | other[1]
        alike.append((names, problems))
    return [names for names, _ in alike]


def combine(
    parts: Mapping[str, Row], shares: Mapping[str, float], alike: Sequence[set[str]] | None = None
) -> dict[str, Any]:
    """Return the numbers of the weighted mean of benchmarks; without an interval if a benchmark has none.

    The errors of benchmarks in a set of `alike` add up, because they may err together; those of others cancel in part.
    """
    value = sum(weight * parts[name]["value"] for name, weight in shares.items())
    low = high = None
    if all(parts[name]["low"] is not None for name in shares):
        below, above = (
            math.sqrt(
                sum(
                    sum(shares[name] * (parts[name][end] - parts[name]["value"]) for name in names) ** 2
                    for names in alike or ({name} for name in shares)
                )
            )
            for end in ("low", "high")
        )
        low, high = value - below, value + above
    attempts = {name: parts[name]["n"] / max(1e-9, 1 - parts[name]["unscored"]) for name in shares}
    n = sum(parts[name]["n"] for name in shares)
    return {
        "value": value,
        "low": low,
        "high": high,
        "n": n,
        "n_problems": sum(parts[name]["n_problems"] for name in shares),
        "unscored": max(0.0, 1 - n / sum(attempts.values())) if n else 1.0,
    }


def differences(groups: Mapping[Cell, Rows], metrics: Sequence, entry: Scores) -> Iterator[dict[str, Any]]:
    """Yield the difference of two models' averages for each pair of `compare`, tested and resampled by problem."""
    for name, shares in weights(entry.averages).items():
        for model, baseline in entry.compare:
            for sampling in dict.fromkeys(group.sampling for group in groups):
                ours, theirs = (
                    _cells(name, shares, each, sampling, groups, bool(entry.published)) for each in (model, baseline)
                )
                for metric, argument in metrics if ours and theirs else ():
                    kernel = METRICS[metric].apply
                    if isinstance(kernel, OfAttempts | OfProblem):
                        pairs = [(groups[ours[p]], groups[theirs[p]], weight) for p, weight in shares.items()]
                        yield {
                            **BLANK,
                            **_name_cells(name, ours),
                            "baseline": baseline,
                            "metric": label(metric, argument, max(row["attempt"] for row in pairs[0][0]) + 1),
                            "slice": "all",
                            **_difference(kernel, argument, (model, baseline), pairs, entry),
                        }


def _difference(
    kernel: Any, argument: Any, models: tuple[str, str], pairs: Sequence[tuple[Rows, Rows, float]], entry: Scores
) -> dict[str, Any]:
    """Test the problems of all benchmarks together, weighted so that each benchmark keeps its weight."""
    value = values_of(kernel, argument, entry)
    of_benchmarks = [by_seed(models, (value, value), (ours, theirs)) for ours, theirs, _ in pairs]
    bound, reach = largest(kernel, pairs[0][0]), None
    seeds = [seed for seed in of_benchmarks[0] if all(each.get(seed) for each in of_benchmarks)]
    if seeds:
        problems = [{problem for seed in seeds for problem in each[seed]} for each in of_benchmarks]
        size = len(set.union(*problems))
        factors = [weight * size / len(some) for some, (_, _, weight) in zip(problems, pairs, strict=True)]
        of = {p: [b for b, some in enumerate(problems) if p in some] for some in problems for p in some}
        # A problem of several benchmarks is one problem, with the sum of its differences.
        summed = {
            seed: {
                p: sum(factors[b] * of_benchmarks[b][seed][p] for b in members)
                for p, members in of.items()
                if all(p in of_benchmarks[b][seed] for b in members)
            }
            for seed in seeds
        }
        differences_SP = difference_matrix(summed)
        reach = None if bound is None else bound * max(sum(factors[b] for b in members) for members in of.values())
    else:
        differences_SP = np.zeros((1, 0))
    both = [rows for ours, theirs, _ in pairs for rows in (ours, theirs)]
    return test_numbers(differences_SP, bound, select_seeds(both, seeds), entry, reach)


def _cell(row: Row) -> Cell:
    return Cell(row["model"], row["problems"], row["sampling"], row["grader"])


def _cells(
    name: str, shares: Mapping[str, float], model: str, sampling: str, groups: Mapping[Cell, Rows], published: bool
) -> dict[str, Cell]:
    """Return the cell of each benchmark of an average; empty if one has no grades for this model and sampling."""
    cells: dict[str, Cell] = {}
    for group in groups:
        if (group.model, group.sampling) == (model, sampling) and group.problems in shares:
            if group.problems in cells:
                raise TableError(
                    f"`averages`: {model} on {group.problems} ({sampling}) is graded by {cells[group.problems].grader} "
                    f"and by {group.grader}; expected one grader per benchmark of `{name}`. Split them into "
                    "two scores entries."
                )
            cells[group.problems] = group
    scales = sorted({row["max_points"] for cell in cells.values() for row in groups[cell] if is_scored(row)})
    if len(scales) > 1 or (cells and published and scales[-1:] != [1]):
        raise TableError(
            f"`averages`: grades of `{name}` are out of {' and '.join(map(str, scales))}; expected one scale, and grades out "
            "of 1 if `published` is set. Average benchmarks with the same scale."
        )
    return cells if cells.keys() == shares.keys() else {}


def _name_cells(name: str, cells: Mapping[str, Cell]) -> dict[str, str]:
    first = next(iter(cells.values()))
    graders = " and ".join(dict.fromkeys(cell.grader for cell in cells.values()))
    return {"model": first.model, "problems": name, "sampling": first.sampling, "grader": graders}

"""Compare two models problem by problem, and over the seeds of their trainings: difference, interval and p of one test."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from proofmill.estimation import sequential
from proofmill.metrics.attempt_table import Rows, count, is_scored, parts, where
from proofmill.metrics.kernels import OfAttempts, OfProblem, per_problem
from proofmill.metrics.metrics import METRICS, label
from proofmill.metrics.score_rows import BLANK, Cell, any_time_ends, find_rule, interval_options, largest
from proofmill.metrics.uncertainty import paired
from proofmill.schema import registry_items
from proofmill.schema.entries.scores_entry import Claim, Scores
from proofmill.schema.errors import TableError
from proofmill.schema.kinds import list_trained
from proofmill.schema.names import kind_of

Values = Callable[[Rows], Mapping[str, float]]  # the value of each problem, of attempts of one seed
Differences = Mapping[int, Mapping[str, float]]  # by seed and problem


def comparisons(groups: Mapping[Cell, Rows], metrics: Sequence, entry: Scores) -> Iterator[dict]:
    """Yield the difference of two models for each pair of `compare`, benchmark, sampling setting and per-problem metric.

    A claim about another pair adds its own comparison. Raises TableError if `compare` names a model without grades.
    """
    done = set()
    wanted: list[tuple[Sequence[str], Claim | None]] = [(pair, None) for pair in entry.compare]
    wanted += [(claim.compare, claim) for claim in entry.claims.values()]
    for (model, baseline), claim in wanted:
        measured_models = sorted({group.model for group in groups})
        if missing := [name for name in (model, baseline) if name not in measured_models]:
            raise TableError(
                f"`{'claims' if claim else 'compare'}` names {missing[0]}, which has no grades; expected two of "
                f"{', '.join(measured_models)}."
            )
        for group in [group for group in groups if group.model == model and group._replace(model=baseline) in groups]:
            for name, argument in metrics if claim is None or _is_about(claim, group) else ():
                kernel, key = METRICS[name].apply, (group, baseline, name, argument)
                only = claim is None or registry_items.split(claim.metric or entry.metrics[0]) == (name, argument)
                if isinstance(kernel, OfAttempts | OfProblem) and only and key not in done:
                    done.add(key)
                    yield _difference(kernel, group, group._replace(model=baseline), groups, name, argument, entry)


def adjust(compared: Sequence[dict[str, Any]]) -> None:
    """Set `p_adjusted` of comparisons, by Holm for those that have a value; it is 1 for the others."""
    tested = [row for row in compared if row["value"] is not None]
    for row in compared:
        row["p_adjusted"] = 1.0
    for row, p in zip(tested, paired.holm([row["p_value"] for row in tested]), strict=True):
        row["p_adjusted"] = p


def _is_about(claim: Claim, group: Cell) -> bool:
    return (group.problems, group.sampling) == (claim.problems, claim.sampling)


def _difference(
    kernel: OfAttempts | OfProblem,
    group: Cell,
    other: Cell,
    groups: Mapping[Cell, Rows],
    name: str,
    argument: Any,
    entry: Scores,
) -> dict[str, Any]:
    attempts = max(row["attempt"] for row in groups[group]) + 1
    return {
        **BLANK,
        **group._asdict(),
        "baseline": other.model,
        "metric": label(name, argument, attempts),
        "slice": "all",
        **pair_numbers(kernel, argument, (group.model, other.model), (groups[group], groups[other]), entry),
    }


def pair_numbers(
    kernel: OfAttempts | OfProblem, argument: Any, models: tuple[str, str], both: tuple[Rows, Rows], entry: Scores
) -> dict[str, Any]:
    """Return the numbers of the mean difference of two models in one metric, over the seeds of their trainings."""
    value = values_of(kernel, argument, entry)
    return compare_values(models, (value, value), both, largest(kernel, both[0]), entry)


def values_of(kernel: OfAttempts | OfProblem, argument: Any, entry: Scores) -> Values:
    """Return the function of a metric's value at each problem of some attempts."""
    return partial(per_problem, kernel, argument, entry.success_threshold)


def compare_values(
    models: tuple[str, str], values: tuple[Values, Values], both: tuple[Rows, Rows], bound: float | None, entry: Scores
) -> dict[str, Any]:
    """Return the numbers of the mean difference of two models, each with its own values by problem."""
    differences = by_seed(models, values, both)
    seeds = [seed for seed, of_seed in differences.items() if of_seed]
    return test_numbers(difference_matrix(differences), bound, select_seeds(both, seeds), entry)


def by_seed(models: tuple[str, str], values: tuple[Values, Values], both: tuple[Rows, Rows]) -> Differences:
    """Return for each seed that both models have, the differences of the problems that both have in it.

    A model without training has no seeds of its own: with one seed, it is compared with every seed of the other.
    """
    sides = []
    for model, value, rows in zip(models, values, both, strict=True):
        of_seeds = {of_seed[0]["seed"]: value(of_seed) for of_seed in parts(rows, lambda row: row["seed"])}
        sides.append((of_seeds, len(of_seeds) == 1 and kind_of(model) not in list_trained()))
    (own, own_fixed), (other, other_fixed) = sides
    if own_fixed and not other_fixed:
        own = dict.fromkeys(other, next(iter(own.values())))
    elif other_fixed and not own_fixed:
        other = dict.fromkeys(own, next(iter(other.values())))
    return {
        seed: {problem: value - other[seed][problem] for problem, value in own[seed].items() if problem in other[seed]}
        for seed in sorted(own.keys() & other.keys())
    }


def select_seeds(both: Sequence[Rows], seeds: Sequence[int]) -> list[Rows]:
    """Return the attempts in the seeds that are compared; all those of a model without seeds of its own."""
    return [where(rows, lambda row: row["seed"] in seeds) or (rows if seeds else []) for rows in both]


def difference_matrix(differences: Differences) -> np.ndarray:
    """Return differences_SP of the seeds that have some, with NaN where a seed lacks a problem."""
    seeds = [seed for seed, of_seed in differences.items() if of_seed]
    problems = list(dict.fromkeys(problem for seed in seeds for problem in differences[seed]))
    rows_SP = [[differences[seed].get(problem, np.nan) for problem in problems] for seed in seeds]
    return np.array(rows_SP).reshape(max(1, len(seeds)), len(problems))


def test_numbers(
    differences_SP: np.ndarray, bound: float | None, both: Sequence[Rows], entry: Scores, reach: float | None = None
) -> dict[str, Any]:
    """Return the numbers of a mean difference: over seeds and problems if there are several seeds.

    `n` counts the scored attempts of `both` models. `reach` is the largest difference of a problem, `bound` by default.
    """
    seeds, problems = differences_SP.shape
    if rule := next(filter(None, map(find_rule, both)), None):
        test = _at_any_time(rule, differences_SP, bound if reach is None else None, entry)
    elif seeds > 1:
        test = paired.over_seeds(differences_SP, bound, *interval_options(entry), reach=reach)
    else:
        test = paired.over_problems(differences_SP[0], bound, *interval_options(entry), reach=reach)
    n, attempts = sum(count(rows, is_scored) for rows in both), sum(map(len, both))
    return {
        "value": float(np.nanmean(differences_SP, axis=0).mean()) if problems else None,
        **{"low": test.low, "high": test.high, "p_value": test.p},
        **{"n": n, "n_problems": problems, "n_seeds": seeds, "unscored": 1 - n / attempts if attempts else 0.0},
    }


def _at_any_time(rule: str, differences_SP: np.ndarray, bound: float | None, entry: Scores) -> paired.Test:
    """Return the test of problems whose number a rule chose; none over several seeds, or without a bound."""
    if bound is None or rule == "pass-rate" or len(differences_SP) > 1 or not differences_SP.size:
        return paired.Test(None, None, 1.0)
    low, high = any_time_ends(rule, differences_SP[0], (-bound, bound), entry)
    return paired.Test(low, high, sequential.p_value(differences_SP[0] / bound))

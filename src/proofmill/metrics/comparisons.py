"""Compare two models problem by problem, and over the seeds of their trainings: difference, interval and p of one test."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from proofmill.metrics.attempt_table import Rows, count, is_scored, parts
from proofmill.metrics.kernels import OfAttempts, OfProblem, per_problem
from proofmill.metrics.metrics import METRICS, label
from proofmill.metrics.score_rows import BLANK, Cell, interval_options, largest
from proofmill.metrics.uncertainty import paired
from proofmill.schema import registry_items
from proofmill.schema.entries.scores_entry import Claim, Scores
from proofmill.schema.errors import TableError


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
        **pair_numbers(kernel, argument, groups[group], groups[other], entry),
    }


def pair_numbers(
    kernel: OfAttempts | OfProblem, argument: Any, ours: Rows, theirs: Rows, entry: Scores
) -> dict[str, Any]:
    """Return the numbers of the mean difference of two models in one metric, over the seeds of their trainings."""
    differences_SP = by_seed(kernel, argument, ours, theirs, entry)
    return test_numbers(differences_SP, largest(kernel, ours), (ours, theirs), entry)


def by_seed(kernel: OfAttempts | OfProblem, argument: Any, ours: Rows, theirs: Rows, entry: Scores) -> np.ndarray:
    """Return the differences of the problems that both models have, by seed; NaN where a seed lacks one."""
    own, other = (_values_by_seed(kernel, argument, rows, entry) for rows in (ours, theirs))
    if not own or not other:
        return np.zeros((1, 0))
    # A model that was not trained again is the same in every seed.
    seeds = sorted(max(own, other, key=len) if 1 in (len(own), len(other)) else own.keys() & other.keys())
    pairs = [
        (own.get(seed) or next(iter(own.values())), other.get(seed) or next(iter(other.values()))) for seed in seeds
    ]
    differences = [{p: values[p] - others[p] for p in values if p in others} for values, others in pairs]
    problems = list(dict.fromkeys(problem for of_seed in differences for problem in of_seed))
    rows_SP = [[of_seed.get(problem, np.nan) for problem in problems] for of_seed in differences if of_seed]
    return np.array(rows_SP).reshape(-1, len(problems)) if problems else np.zeros((1, 0))


def _values_by_seed(kernel: OfAttempts | OfProblem, argument: Any, rows: Rows, entry: Scores) -> dict[int, dict]:
    values = {
        of_seed[0]["seed"]: per_problem(kernel, argument, entry.success_threshold, of_seed)
        for of_seed in parts(rows, lambda row: row["seed"])
    }
    return {seed: by_problem for seed, by_problem in values.items() if by_problem}


def compare_pairs(
    ours: Mapping[str, float], theirs: Mapping[str, float], both: tuple[Rows, Rows], bound: float | None, entry: Scores
) -> dict[str, Any]:
    """Return the numbers of the mean difference over the problems that have both values; `both` are the attempts."""
    differences_P = np.array([value - theirs[problem] for problem, value in ours.items() if problem in theirs])
    return test_numbers(differences_P[None], bound, both, entry)


def test_numbers(
    differences_SP: np.ndarray, bound: float | None, both: Sequence[Rows], entry: Scores
) -> dict[str, Any]:
    """Return the numbers of a mean difference: over seeds and problems if there are several seeds.

    `n` counts the scored attempts of `both` models.
    """
    seeds, problems = differences_SP.shape
    if seeds > 1:
        test = paired.over_seeds(differences_SP, bound, entry.confidence)
    else:
        test = paired.over_problems(differences_SP[0], bound, *interval_options(entry))
    n, attempts = sum(count(rows, is_scored) for rows in both), sum(map(len, both))
    return {
        "value": float(np.nanmean(differences_SP, axis=0).mean()) if problems else None,
        **{"low": test.low, "high": test.high, "p_value": test.p},
        **{"n": n, "n_problems": problems, "n_seeds": seeds, "unscored": 1 - n / attempts if attempts else 0.0},
    }

"""Compare two models problem by problem: the difference, its interval, and a permutation test."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from proofmill.metrics import estimates
from proofmill.metrics.attempt_table import Rows, count, is_scored
from proofmill.metrics.kernels import OfAttempts, OfProblem, per_problem
from proofmill.metrics.metrics import METRICS, label
from proofmill.metrics.score_rows import BLANK, Cell, quotient, ratio
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
    """Return the numbers of the mean difference of two models in one metric, from their attempts."""
    value, other = (per_problem(kernel, argument, entry.success_threshold, attempts) for attempts in (ours, theirs))
    return compare_pairs(value, other, (ours, theirs), entry)


def compare_pairs(
    ours: Mapping[str, float], theirs: Mapping[str, float], both: tuple[Rows, Rows], entry: Scores
) -> dict[str, Any]:
    """Return the numbers of the mean difference over the problems that have both values; `both` are the attempts."""
    shared = {problem: value - theirs[problem] for problem, value in ours.items() if problem in theirs}
    differences_P = np.array(list(shared.values()))
    sums_PD = np.column_stack([differences_P, np.ones(len(shared))])
    n = sum(count(attempts, lambda row: is_scored(row) and row["problem"] in shared) for attempts in both)
    numbers = ratio(sums_PD, quotient, sum(map(len, both)), n, entry)
    return {**numbers, "p_value": estimates.test_by_permutation(differences_P, entry.seed) if len(shared) else 1.0}

"""Two models compared problem by problem: the difference, its interval, and a permutation test."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from proofmill.measures import estimates
from proofmill.measures.attempts import Rows, count, scored
from proofmill.measures.measures import MEASURES, OfAttempts, OfProblem, label, per_problem
from proofmill.measures.numbers import BLANK, Cell, quotient, ratio
from proofmill.schema import named
from proofmill.schema.errors import TableError
from proofmill.schema.scores_entry import Claim, Scores


def comparisons(groups: Mapping[Cell, Rows], measures: Sequence, entry: Scores) -> Iterator[dict]:
    """Differences of two models by problem, for each pair of `compare`, benchmark, sampling and measure of problems.

    A claim about another pair adds its own comparison. Raises TableError if `compare` names a model without grades.
    """
    done = set()
    wanted: list[tuple[Sequence[str], Claim | None]] = [(pair, None) for pair in entry.compare]
    wanted += [(claim.compare, claim) for claim in entry.claims.values()]
    for (model, baseline), claim in wanted:
        measured_models = sorted({group.model for group in groups})
        if missing := [name for name in (model, baseline) if name not in measured_models]:
            raise TableError(
                f"`{'claims' if claim else 'compare'}` names {missing[0]}, which is not measured; expected some of "
                f"{', '.join(measured_models)}."
            )
        for group in [group for group in groups if group.model == model and group._replace(model=baseline) in groups]:
            for name, argument in measures if claim is None or _is_about(claim, group) else ():
                kernel, key = MEASURES[name].apply, (group, baseline, name, argument)
                only = claim is None or named.split(claim.measure or entry.measures[0]) == (name, argument)
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
        "against": other.model,
        "measure": label(name, argument, attempts),
        "split": "all",
        **pair_numbers(kernel, argument, groups[group], groups[other], entry),
    }


def pair_numbers(
    kernel: OfAttempts | OfProblem, argument: Any, ours: Rows, theirs: Rows, entry: Scores
) -> dict[str, Any]:
    """The numbers of the mean difference in one measure, of the attempts of two models."""
    value, other = (per_problem(kernel, argument, entry.success, attempts) for attempts in (ours, theirs))
    return paired(value, other, (ours, theirs), entry)


def paired(
    ours: Mapping[str, float], theirs: Mapping[str, float], both: tuple[Rows, Rows], entry: Scores
) -> dict[str, Any]:
    """The numbers of the mean difference of problems that both have a value of; `both` are the attempts of both."""
    shared = {problem: value - theirs[problem] for problem, value in ours.items() if problem in theirs}
    differences_P = np.array(list(shared.values()))
    sums_PD = np.column_stack([differences_P, np.ones(len(shared))])
    n = sum(count(attempts, lambda row: scored(row) and row["problem"] in shared) for attempts in both)
    numbers = ratio(sums_PD, quotient, sum(map(len, both)), n, entry)
    return {**numbers, "p": estimates.paired_permutation(differences_P, entry.seed) if len(shared) else 1.0}

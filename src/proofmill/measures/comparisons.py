"""Two models compared problem by problem: the difference, its interval, and a permutation test."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from proofmill.measures import estimates
from proofmill.measures.measures import MEASURES, OfAttempts, OfProblem, label, per_problem
from proofmill.measures.numbers import BLANK, Cell, Rows, ratio
from proofmill.schema.entries import Scores
from proofmill.schema.errors import TableError


def comparisons(groups: Mapping[Cell, Rows], measures: Sequence, entry: Scores) -> Iterator[dict]:
    """Differences of two models by problem, for each pair of `compare`, benchmark, sampling and measure of problems.

    Raises TableError if `compare` names a model without grades.
    """
    for model, baseline in entry.compare:
        measured_models = sorted({group.model for group in groups})
        if missing := [name for name in (model, baseline) if name not in measured_models]:
            raise TableError(
                f"`compare` names {missing[0]}, which is not measured; expected some of {', '.join(measured_models)}."
            )
        pairs = [(g, g._replace(model=baseline)) for g in groups if g.model == model]
        for group, other in pairs:
            if other not in groups:
                continue
            for name, argument in measures:
                kernel = MEASURES[name].apply
                if isinstance(kernel, OfAttempts | OfProblem):
                    yield _difference(kernel, group, other, groups, name, argument, entry)


def _difference(
    kernel: OfAttempts | OfProblem,
    group: Cell,
    other: Cell,
    groups: Mapping[Cell, Rows],
    name: str,
    argument: Any,
    entry: Scores,
) -> dict[str, Any]:
    ours, theirs = (per_problem(kernel, argument, entry.success, groups[g]) for g in (group, other))
    attempts = max(row["attempt"] for row in groups[group]) + 1
    return {
        **BLANK,
        **group._asdict(),
        "against": other.model,
        "measure": label(name, argument, attempts),
        "split": "all",
        **paired(ours, theirs, groups[group] + groups[other], entry),
    }


def paired(ours: Mapping[str, float], theirs: Mapping[str, float], both: Rows, entry: Scores) -> dict[str, Any]:
    """The numbers of the mean difference of problems that both have a value of; `both` are the attempts of both."""
    shared = [problem for problem in ours if problem in theirs]
    differences_P = np.array([ours[problem] - theirs[problem] for problem in shared])
    sums_PD = np.column_stack([differences_P, np.ones(len(shared))])
    scored = [row for row in both if row["problem"] in set(shared) and row["grade"] is not None]
    numbers = ratio(sums_PD, lambda totals_RD: totals_RD[:, 0] / totals_RD[:, 1], both, len(scored), entry)
    return {**numbers, "p": estimates.paired_permutation(differences_P, entry.seed) if len(shared) else 1.0}

"""Forecast what a run can show, before paying for it.

- `scores`: the smallest difference between two models that a benchmark can detect.
- `grpo`: the share of groups that start without a learning signal (estimation/idle.py).
- `scores` of models that are trained on the problems of the benchmark say little; this is a warning.

The variance of grades is that of an existing table of the same problems, of any model; without one, the largest possible.
Differences between problems are not assumed to cancel between two models, so forecasts are conservative.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from proofmill.artifacts.tables import Table
from proofmill.config.config import Config
from proofmill.estimation import idle
from proofmill.graders.escalation import grader_of, max_points
from proofmill.metrics import estimates
from proofmill.metrics.estimates import Variance
from proofmill.metrics.metrics import split_variance
from proofmill.schema import references
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.entries.response_entries import Grades
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import TableError
from proofmill.schema.fields import GIVEN_RESPONSES
from proofmill.schema.names import kind_of, parse_seed

ATTEMPTED = ("examples", "responses", "grpo")  # kinds whose `problems` are trained on


def forecasts(entry: Any, plan: Any) -> Iterator[str]:
    """Yield the forecasts of an entry of `scores` or `grpo` as sentences."""
    if isinstance(entry, Scores):
        yield from _forecast_differences(entry, plan)
    if isinstance(entry, Grpo) and not entry.teacher:  # who gives every group a signal
        yield from _forecast_idle_groups(entry, plan)


def warn_of_shared_rows(config: Config, names: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each benchmark that is read from the same rows as problems that a scored model is trained on.

    Tables with the filter `statement-share`, or one decontaminated from the other, are taken to be disjoint.
    """
    entries, pairs = config.entries, dict[tuple[str, str], str]()
    for score in (entries[name] for name in names if kind_of(name) == "scores"):
        for responses in (entries[entries[grades].responses] for grades in score.grades):
            if "/" in responses.model and kind_of(responses.model) != "api":
                line = (responses.model, *references.ancestors(entries, responses.model))
                read = (getattr(entries[name], "problems", None) for name in line if kind_of(name) in ATTEMPTED)
                trained = dict.fromkeys(name for name in read if name)
                pairs |= {(responses.problems, other): responses.model for other in trained}
    for (bench, other), model in pairs.items():
        chains = [_chain(entries, bench), _chain(entries, other)]
        some = [entries[name] for chain in chains for name in chain]
        divided = any("statement-share" in item for entry in some for item in entry.keep)
        cleaned = {name for entry in some for name in entry.decontaminate} & {
            name for chain in chains for name in chain
        }
        roots = [replace(entries[chain[-1]], keep=[]) for chain in chains]
        if roots[0] == roots[1] and not divided and not cleaned:
            yield (
                f"{bench} scores {model}, which is trained on {other}, from the same rows; expected other problems. Divide them "
                f"by the filter `statement-share`, or set `decontaminate: [{bench}]` in {other}"
            )


def _chain(entries: Mapping[str, Any], name: str) -> list[str]:
    """Return a table of problems, the table that it is made from, and so on."""
    chain = [name]
    while "/" in entries[chain[-1]].source:
        chain.append(entries[chain[-1]].source)
    return chain


def _forecast_idle_groups(entry: Grpo, plan: Any) -> Iterator[str]:
    """Yield a sentence on idle groups at the start, from grades of attempts at the problems by the policy or its ancestors."""
    table, models = Table(entry.problems, plan.results), [entry.model]
    while kind_of(models[-1]) != "base":
        models.append(plan.config.entries[models[-1]].model)
    problems = {row["problem"] for row in table.rows("problem")} if table.path.exists() else set()
    best: tuple[int, str, str, dict[str, list[float]]] = (len(models), "", "", {})
    for name, grades in plan.config.entries.items():
        model = plan.config.entries[grades.responses].model if kind_of(name) == "grades" else None
        if model not in models[: best[0]] or not Table(name, plan.results).path.exists():
            continue
        attempts: dict[str, list[float]] = {}
        for row in Table(name, plan.results).rows("problem", "grade"):
            if row["problem"] in problems and row["grade"] is not None:
                attempts.setdefault(row["problem"], []).append(row["grade"])
        if any(len(grades_of) > 1 for grades_of in attempts.values()):
            best = models.index(model), name, model, attempts
    if attempts := best[-1]:
        counts_PV, sizes = idle.count_values(attempts.values()), (entry.group_size, 2 * entry.group_size)
        shares = [f"{idle.forecast_idle(counts_PV, size):.0%} of {size}" for size in sizes]
        tries = sum(map(len, attempts.values())) / len(attempts)
        yield (
            f"idle groups at the start, by grades alone: {' or '.join(shares)} rollouts ({tries:.3g} attempts at each of "
            f"{len(attempts):,} of {len(problems):,} problems by {best[2]}: {best[1]})"
        )


def _forecast_differences(entry: Scores, plan: Any) -> Iterator[str]:
    """Yield a sentence for each benchmark and number of attempts of a `scores` entry that compares models."""
    cases = set()
    seeds = {parse_seed(plan.config.entries[plan.config.entries[name].responses].model) for name in entry.grades}
    for name in entry.grades if len(seeds) < 2 else ():  # how far seeds differ is not known before the run
        grades = plan.config.entries[name]
        responses = plan.config.entries[grades.responses]
        scale = 7 if grades.grader == "human" else _scale(grades, plan)
        case = (responses.problems, responses.attempts, scale)
        if case in cases or responses.model in GIVEN_RESPONSES:
            continue
        cases.add(case)
        problems = plan.rows_of(responses.problems)
        if problems:
            variance, source = _variance(responses.problems, scale, plan)
            error = estimates.difference_error(variance, problems, responses.attempts)
            found = estimates.detectable(error, problems, scale, entry.confidence)
            shown = "no difference" if found is None else f"a difference of {found:.2f} of {scale} points"
            yield (
                f"{problems:,} problems x {responses.attempts} attempts of {responses.problems}: {shown} is detected with 80 % "
                f"power ({source})"
            )


def _scale(grades: Grades, plan: Any) -> int:
    """Return the maximum points of a grader."""
    grader = grader_of(grades.grader, grades.grader_prompt, plan.config.declared)
    return max_points(grader)


def _variance(problems: str, scale: int, plan: Any) -> tuple[Variance, str]:
    """Return the variance of grades on these problems in the largest table, and its source; else the worst case."""
    best, source = None, ""
    for name, grades in plan.config.entries.items():
        if kind_of(name) != "grades" or plan.config.entries[grades.responses].problems != problems:
            continue
        if plan.config.entries[grades.responses].model == "solutions":  # reference solutions, not a model's attempts
            continue
        try:
            rows = Table(name, plan.results).rows("problem", "attempt", "grade", "max_points", "opinions")
        except TableError:
            continue
        if {row["max_points"] for row in rows} != {scale}:
            continue
        variance = split_variance([{**row, "seed": 0, "writer": None} for row in rows])
        if variance.problem is not None and (best is None or variance.n_verdicts > best.n_verdicts):
            best, source = variance, name
    if best is None:
        return Variance(estimates.worst_variance(scale), 0.0, 0.0), "worst case: no grades yet"
    return best, f"variance of {source}"

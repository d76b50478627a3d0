"""Claims: statements about two models on a benchmark, each with an outcome and one sentence.

The rule is fixed before the first result. A claim is

- *shown* if the interval of the difference is above 0, and its p, adjusted by Holm for all comparisons of the table, is
  below 1 - `confidence`;
- *refuted* if the interval is below 0, and p is as small;
- *not shown at this size* otherwise, whatever the sign of the difference.

A claim about a trained model is about its training, so interval and p are over seeds and problems, and at least
page.LEAST_SEEDS seeds are needed; with fewer it is *not decided*. The sentence also counts the seeds whose own interval,
over problems, is above 0, and those below.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proofmill.metrics.attempt_table import Rows, has, where
from proofmill.metrics.comparisons import by_seed, difference_matrix, test_numbers, values_of
from proofmill.metrics.kernels import OfAttempts, OfProblem
from proofmill.metrics.metrics import METRICS, label
from proofmill.metrics.page import difference, is_of_few_seeds
from proofmill.metrics.score_rows import Cell, largest
from proofmill.schema import registry_items
from proofmill.schema.entries.scores_entry import Claim, Scores
from proofmill.schema.errors import TableError
from proofmill.text.suggestions import among

Row = Mapping[str, Any]
SHOWN, REFUTED, OPEN, FEW_SEEDS = "shown", "refuted", "not shown at this size", "not decided: too few seeds"
KEPT = ("model", "baseline", "problems", "sampling", "grader", "metric")  # columns that identify a comparison
NUMBERS = ("value", "low", "high", "n", "n_problems", "n_seeds", "unscored")


@dataclass(frozen=True)
class Settled:
    """A claim, its comparison (a row of the table), and the numbers of that comparison in each seed."""

    name: str
    statement: str
    row: Row
    seeds: Mapping[int, Row]
    alpha: float

    @property
    def outcome(self) -> str:
        """One of `SHOWN`, `REFUTED`, `OPEN` and `FEW_SEEDS`."""
        if is_of_few_seeds(self.row):
            return FEW_SEEDS
        side = _side(self.row) if self.row["p_adjusted"] < self.alpha else 0
        return {1: SHOWN, -1: REFUTED, 0: OPEN}[side]

    @property
    def sentence(self) -> str:
        """The statement, its outcome, and the numbers, as the score page prints them."""
        row, sides = self.row, [_side(of_seed) for of_seed in self.seeds.values()]
        where = f"{row['model']} - {row['baseline']} on {row['problems']} ({row['sampling']}), {row['metric']}"
        numbers = (
            f"{where} {difference(row)}" if row["value"] is not None else f"{where}: no seeds or problems in common"
        )
        below = f", below 0 in {sides.count(-1)}" if -1 in sides else ""
        seeds = f"; the interval is above 0 in {sides.count(1)} of {len(sides)} seeds{below}" if sides else ""
        return f"{self.statement.rstrip('.')}: **{self.outcome}**. {numbers}{seeds}."

    def to_stamp(self) -> dict[str, Any]:
        """Return the claim as the stamp of the table has it."""
        return {
            **{"statement": self.statement, "outcome": self.outcome, "sentence": self.sentence},
            **{key: self.row[key] for key in (*KEPT, *NUMBERS, "p_value", "p_adjusted")},
            "seeds": {str(seed): {key: numbers[key] for key in NUMBERS} for seed, numbers in self.seeds.items()},
        }


def _side(numbers: Row) -> int:
    """Return 1 if the interval is above 0, -1 if below, and 0 otherwise or without an interval."""
    if numbers["low"] is None:
        return 0
    return (numbers["low"] > 0) - (numbers["high"] < 0)


def settle(groups: Mapping[Cell, Rows], compared: Sequence[Row], entry: Scores) -> list[Settled]:
    """Return each claim with its comparison among `compared`, whose p is already adjusted.

    Raises TableError if a claim's models have no grades in common, or grades by several graders.
    """
    return [_settle(name, claim, groups, compared, entry) for name, claim in entry.claims.items()]


def _settle(name: str, claim: Claim, groups: Mapping[Cell, Rows], compared: Sequence[Row], entry: Scores) -> Settled:
    metric, argument = registry_items.split(claim.metric or entry.metrics[0])
    model, baseline = claim.compare
    cells = [cell for cell in groups if cell[:3] == (model, claim.problems, claim.sampling)]
    cells = [cell for cell in cells if cell._replace(model=baseline) in groups]
    if len(cells) != 1:
        graders = f" by {' and '.join(cell.grader for cell in cells)}" if cells else ""
        raise TableError(
            f"`claims` has `{name}`, and {model} and {baseline} on {claim.problems} ({claim.sampling}) were both graded "
            f"{len(cells)} times{graders}; expected once. Graded are {', '.join(map(_cell_text, groups))}."
        )
    ours, theirs = groups[cells[0]], groups[cells[0]._replace(model=baseline)]
    shown = label(metric, argument, max(row["attempt"] for row in ours) + 1)
    key = (model, baseline, claim.problems, claim.sampling, cells[0].grader, shown)
    row = next((row for row in compared if tuple(row[name] for name in KEPT) == key), None)
    if row is None:
        raise TableError(
            f"`claims` has `{name}`, whose `{shown}` has no comparison; expected one of the per-problem `metrics`."
        )
    seeds = {attempt["seed"] for rows in (ours, theirs) for attempt in rows}
    kernel: Any = METRICS[metric].apply
    value = values_of(kernel, argument, entry)
    differences = by_seed((model, baseline), (value, value), (ours, theirs))
    of_seeds = {}
    for seed, values in differences.items() if len(seeds) > 1 else ():
        both = [where(rows, has("seed", seed)) or rows for rows in (ours, theirs)]
        of_seeds[seed] = test_numbers(difference_matrix({seed: values}), largest(kernel, ours), both, entry)
    return Settled(name, claim.statement, row, of_seeds, 1 - entry.confidence)


def _cell_text(cell: Cell) -> str:
    return f"{cell.model} on {cell.problems} ({cell.sampling})"


def faults(entry: Scores) -> Iterator[str]:
    """Yield the faults of the claims of an entry."""
    for name, claim in entry.claims.items():
        yield from (f"`claims` > `{name}`: {fault}" for fault in _faults(claim, entry))


def _faults(claim: Claim, entry: Scores) -> Iterator[str]:
    if len(claim.compare) != 2 or claim.compare[0] == claim.compare[1]:
        yield f"`compare` is {claim.compare}; expected `[model, baseline]`, two different models."
    known = {"compare": entry.models, "problems": entry.problems, "sampling": [*entry.sampling]}
    named_by_claim = {"compare": claim.compare, "problems": [claim.problems], "sampling": [claim.sampling]}
    for field, values in named_by_claim.items():
        if entry.models and (unknown := [value for value in values if value not in known[field]]):
            yield f"`{field}` names `{unknown[0]}`, which is not measured; expected one of {among(unknown[0], known[field])}"
    if not entry.metrics:  # a `repeat` has the metrics of its entry
        return
    metric = claim.metric or entry.metrics[0]
    kernel = METRICS[registry_items.name_of(metric)].apply if registry_items.name_of(metric) in METRICS else None
    if metric not in entry.metrics or not isinstance(kernel, OfAttempts | OfProblem):
        compared = [str(item) for item in entry.metrics if _is_compared(item)]
        yield f"`metric` is `{metric}`; expected one of the `metrics` that compare models: {', '.join(compared)}."


def _is_compared(item: Any) -> bool:
    name = registry_items.name_of(item)
    return name in METRICS and isinstance(METRICS[name].apply, OfAttempts | OfProblem)

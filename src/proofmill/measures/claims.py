"""Claims: statements about two models on a benchmark, each of which ends in one sentence.

The rule, which is declared before anything is measured: a claim is

- *shown* if the interval of the difference lies above 0, and p, adjusted by Holm for all comparisons of the table, is
  below 1 - `confidence`;
- *refuted* if the interval lies below 0, and p is as small;
- *not shown at this size* otherwise, whatever the sign of the difference.

Interval and test take the problems as what is sampled, and say nothing of other trainings. So of several seeds the
sentence counts in how many the interval of that seed alone lies on which side.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proofmill.measures.attempts import Rows, has, where
from proofmill.measures.comparisons import pair_numbers
from proofmill.measures.measures import MEASURES, OfAttempts, OfProblem, label
from proofmill.measures.numbers import Cell
from proofmill.measures.page import difference
from proofmill.schema import named
from proofmill.schema.errors import TableError
from proofmill.schema.scores_entry import Claim, Scores
from proofmill.text.suggestions import among

Row = Mapping[str, Any]
SHOWN, REFUTED, OPEN = "shown", "refuted", "not shown at this size"
KEPT = ("model", "against", "problems", "sampling", "grader", "measure")  # of a comparison
NUMBERS = ("value", "low", "high", "n", "problems_n", "unscored")


@dataclass(frozen=True)
class Settled:
    """A claim, the comparison it rests on (a row of the table), and the numbers of the same in each seed."""

    name: str
    says: str
    row: Row
    seeds: Mapping[int, Row]
    alpha: float

    @property
    def outcome(self) -> str:
        side = _side(self.row) if self.row["p"] < self.alpha else 0
        return {1: SHOWN, -1: REFUTED, 0: OPEN}[side]

    @property
    def sentence(self) -> str:
        row, sides = self.row, [_side(numbers) for numbers in self.seeds.values()]
        where = f"{row['model']} - {row['against']} on {row['problems']} ({row['sampling']}), {row['measure']}"
        found = f"{where} {difference(row)}" if row["value"] is not None else f"{where}: no problem in common"
        below = f", below it in {sides.count(-1)}" if -1 in sides else ""
        seeds = f"; the interval lies above 0 in {sides.count(1)} of {len(sides)} seeds{below}" if sides else ""
        return f"{self.says.rstrip('.')}: **{self.outcome}**. {found}{seeds}."

    def stamped(self) -> dict[str, Any]:
        """What the stamp of the table says of it."""
        return {
            **{"says": self.says, "outcome": self.outcome, "sentence": self.sentence},
            **{key: self.row[key] for key in (*KEPT, *NUMBERS, "p")},
            "seeds": {str(seed): {key: numbers[key] for key in NUMBERS} for seed, numbers in self.seeds.items()},
        }


def _side(numbers: Row) -> int:
    """1 if the interval lies above 0, -1 if below, else 0; a number without an interval is on no side."""
    if numbers["low"] is None:
        return 0
    return (numbers["low"] > 0) - (numbers["high"] < 0)


def settled(groups: Mapping[Cell, Rows], compared: Sequence[Row], entry: Scores) -> list[Settled]:
    """Each claim with its comparison among `compared`, whose p is adjusted already.

    Raises TableError where a claim names what was not measured, or what several graders have marked.
    """
    return [_settled(name, claim, groups, compared, entry) for name, claim in entry.claims.items()]


def _settled(name: str, claim: Claim, groups: Mapping[Cell, Rows], compared: Sequence[Row], entry: Scores) -> Settled:
    measure, argument = named.split(claim.measure or entry.measures[0])
    model, baseline = claim.compare
    cells = [cell for cell in groups if cell[:3] == (model, claim.problems, claim.sampling)]
    cells = [cell for cell in cells if cell._replace(model=baseline) in groups]
    if len(cells) != 1:
        graders = f" by {' and '.join(cell.grader for cell in cells)}" if cells else ""
        raise TableError(
            f"`claims` has `{name}`, and {model} and {baseline} on {claim.problems} ({claim.sampling}) were both marked "
            f"{len(cells)} times{graders}; expected once. Measured are {', '.join(map(_where, groups))}."
        )
    ours, theirs = groups[cells[0]], groups[cells[0]._replace(model=baseline)]
    shown = label(measure, argument, max(row["attempt"] for row in ours) + 1)
    key = (model, baseline, claim.problems, claim.sampling, cells[0].grader, shown)
    row = next((row for row in compared if tuple(row[name] for name in KEPT) == key), None)
    if row is None:
        raise TableError(
            f"`claims` has `{name}`, whose `{shown}` is not compared; expected one of the `measures` of attempts."
        )
    seeds = sorted({attempt["seed"] for rows in (ours, theirs) for attempt in rows})
    of_seeds = {}
    for seed in seeds if len(seeds) > 1 else ():
        own, other = (where(rows, has("seed", seed)) for rows in (ours, theirs))
        of_seeds[seed] = pair_numbers(MEASURES[measure].apply, argument, own, other, entry)
    return Settled(name, claim.says, row, of_seeds, 1 - entry.confidence)


def _where(cell: Cell) -> str:
    return f"{cell.model} on {cell.problems} ({cell.sampling})"


def faults(entry: Scores) -> Iterator[str]:
    """What is wrong with the claims of an entry."""
    for name, claim in entry.claims.items():
        yield from (f"`claims` > `{name}`: {fault}" for fault in _faults(claim, entry))


def _faults(claim: Claim, entry: Scores) -> Iterator[str]:
    if len(claim.compare) != 2 or claim.compare[0] == claim.compare[1]:
        yield f"`compare` is {claim.compare}; expected `[model, baseline]`, two of the models."
    known = {"compare": entry.models, "problems": entry.problems, "sampling": [*entry.sampling]}
    said = {"compare": claim.compare, "problems": [claim.problems], "sampling": [claim.sampling]}
    for field, values in said.items():
        if entry.models and (unknown := [value for value in values if value not in known[field]]):
            yield f"`{field}` names `{unknown[0]}`, which is not measured; expected one of {among(unknown[0], known[field])}"
    if not entry.measures:  # those of the entry that is repeated
        return
    measure = claim.measure or entry.measures[0]
    kernel = MEASURES[named.name_of(measure)].apply if named.name_of(measure) in MEASURES else None
    if measure not in entry.measures or not isinstance(kernel, OfAttempts | OfProblem):
        compared = [str(item) for item in entry.measures if _is_compared(item)]
        yield f"`measure` is `{measure}`; expected one of the `measures` that models are compared in: {', '.join(compared)}."


def _is_compared(item: Any) -> bool:
    name = named.name_of(item)
    return name in MEASURES and isinstance(MEASURES[name].apply, OfAttempts | OfProblem)

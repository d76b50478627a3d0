"""Count the inputs, outputs and errors of tasks by type, and compute how surprising another one is.

From: the code of Absolute Zero Reasoner (`TypeCounters`, `answer_diversity`).

Differences from the original:
1. Counters are in the checkpoint and are rolled back with the buffers. There, they keep counts of tasks that a resumed
   run has lost.
2. The surprise of an error is computed from the error. There, the key is missing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from proofmill.sandbox import values
from proofmill.selfplay_tasks.tasks import Task

PLACES = ("input", "output", "error")


def type_of(literal: str) -> str:
    """Return the name of a literal's Python type; several arguments are a `tuple`, other texts a `str`."""
    try:
        return type(values.parse(literal)).__name__
    except ValueError:
        return "str"


class Counters:
    """Counts of literals by place and type."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, Counter[str]]] = {place: {} for place in PLACES}

    def add(self, place: str, literals: Iterable[str]) -> None:
        """Count literals of a place."""
        for literal in literals:
            self.counts[place].setdefault(type_of(literal), Counter())[literal] += 1

    def add_task(self, task: Task) -> None:
        """Count the inputs and outputs of a task; the output of an `error` task counts as an error."""
        self.add("input", task.inputs or (task.input,))
        self.add("error" if task.kind == "error" else "output", task.outputs or (task.output,))

    def surprise(self, place: str, literal: str, hierarchical: bool = False) -> float:
        """Compute 1 - count / total; with `hierarchical` the mean of 1 - P(type) and 1 - P(literal | type).

        An uncounted literal or type has the surprise 1.
        """
        types = self.counts[place]
        kind = types.get(type_of(literal), Counter())
        total, of_type = sum(each.total() for each in types.values()), kind.total()
        if not hierarchical:
            return 1 - kind[literal] / total if total else 1.0
        return ((1 - of_type / total if total else 1.0) + (1 - kind[literal] / of_type if of_type else 1.0)) / 2

    def mean_surprise(self, place: str, literals: Iterable[str], hierarchical: bool = False) -> float:
        """Compute the mean surprise of literals, such as the inputs of an induction; 0 without any."""
        surprises = [self.surprise(place, literal, hierarchical) for literal in literals]
        return sum(surprises) / len(surprises) if surprises else 0.0

    def metrics(self) -> dict[str, int]:
        """Return the number of types, distinct literals and literals of each place, named as `input-types`."""
        numbers = {}
        for place, types in self.counts.items():
            numbers[f"{place}-types"] = len(types)
            numbers[f"{place}-distinct"] = sum(map(len, types.values()))
            numbers[f"{place}-total"] = sum(each.total() for each in types.values())
        return numbers

    def state(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {place: {kind: dict(each) for kind, each in types.items()} for place, types in self.counts.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Counters":
        """Build the counters from a state."""
        counters = cls()
        counters.counts = {place: {kind: Counter(each) for kind, each in state[place].items()} for place in PLACES}
        return counters

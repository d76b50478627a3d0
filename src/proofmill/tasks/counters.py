"""Type counters: which inputs, outputs and errors the buffers have met, by type; how surprising another one is.

From: the code of Absolute Zero Reasoner (`TypeCounters`, `answer_diversity`).

How we differ:
1. They are part of a checkpoint's state and are rolled back with the buffers. There, they keep what a resumed run has
   forgotten.
2. The surprise of an error is that of the error. There, the key is missing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from proofmill.sandbox import values
from proofmill.tasks.tasks import Task

PLACES = ("input", "output", "error")


def type_of(literal: str) -> str:
    """The type of a literal as Python names it; several arguments are a `tuple`, what is no literal is a `str`."""
    try:
        return type(values.parse(literal)).__name__
    except ValueError:
        return "str"


class Counters:
    """How often each literal was met, by place and type."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, Counter[str]]] = {place: {} for place in PLACES}

    def add(self, place: str, literals: Iterable[str]) -> None:
        """Counts literals of a place."""
        for literal in literals:
            self.counts[place].setdefault(type_of(literal), Counter())[literal] += 1

    def add_task(self, task: Task) -> None:
        """Counts the inputs and outputs of a task; the output of one of kind `error` is an error."""
        self.add("input", task.inputs or (task.input,))
        self.add("error" if task.kind == "error" else "output", task.outputs or (task.output,))

    def surprise(self, place: str, literal: str, hierarchical: bool = False) -> float:
        """1 - count / total of the literal; `hierarchical` is the mean of 1 - P(type) and 1 - P(literal | type).

        1 for what was never met.
        """
        types = self.counts[place]
        kind = types.get(type_of(literal), Counter())
        total, of_type = sum(each.total() for each in types.values()), kind.total()
        if not hierarchical:
            return 1 - kind[literal] / total if total else 1.0
        return ((1 - of_type / total if total else 1.0) + (1 - kind[literal] / of_type if of_type else 1.0)) / 2

    def mean_surprise(self, place: str, literals: Iterable[str], hierarchical: bool = False) -> float:
        """The mean surprise of literals, such as the inputs of an induction; 0 without any."""
        found = [self.surprise(place, literal, hierarchical) for literal in literals]
        return sum(found) / len(found) if found else 0.0

    def measures(self) -> dict[str, int]:
        """For each place how many types, distinct literals and literals there are, such as `input-types`."""
        found = {}
        for place, types in self.counts.items():
            found[f"{place}-types"] = len(types)
            found[f"{place}-distinct"] = sum(map(len, types.values()))
            found[f"{place}-total"] = sum(each.total() for each in types.values())
        return found

    def state(self) -> dict[str, Any]:
        """The counts as plain data."""
        return {place: {kind: dict(each) for kind, each in types.items()} for place, types in self.counts.items()}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> "Counters":
        """The counters whose state this is."""
        counters = cls()
        counters.counts = {place: {kind: Counter(each) for kind, each in state[place].items()} for place in PLACES}
        return counters

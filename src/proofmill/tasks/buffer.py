"""Buffers: the tasks that were proposed, what a proposer is shown of them, and what a solver is asked.

From: Absolute Zero Reasoner (arXiv 2505.03335, sections 3.3.1 and 3.3.2) and its code.

How we differ:
1. A full buffer keeps what is declared: the `newest` tasks or the `oldest`. There, it keeps the oldest and discards all
   that is proposed from then on, and two of four buffers lose the order of their steps.
2. Two tasks are the same if they are the same task, whoever proposed them and when.
3. Tasks are drawn again only when all have been drawn. There, the share from the whole buffer may repeat what was drawn
   from the newest tasks.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from proofmill.tasks.tasks import TASKS, Task, TaskName, from_row

Keep = Literal["newest", "oldest"]
Weighting = Literal["uniform", "step"]
Mix = Literal["max-new", "half-new", "uniform", "step"]

CAPACITY = 16_384  # tasks of a kind, as published
TRIES = 100  # draws of as many references before one fewer is drawn
_TEXTS = pa.list_(pa.string())
SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("id", "kind", "program", "input", "output")]
    + [
        ("inputs", _TEXTS),
        ("outputs", _TEXTS),
        ("message", pa.string()),
        ("step", pa.int64()),
        ("written", pa.string()),
    ]
)


class Buffers:
    """A buffer for each kind of task, oldest first, none with a task twice."""

    def __init__(self, kinds: Iterable[TaskName] = TASKS, capacity: int = CAPACITY, keep: Keep = "newest"):
        self.capacity, self.keep = capacity, keep
        self.tasks: dict[TaskName, list[Task]] = {kind: [] for kind in kinds}
        self._known: dict[TaskName, set[str]] = {kind: set() for kind in self.tasks}

    def __len__(self) -> int:
        return sum(map(len, self.tasks.values()))

    def add(self, tasks: Iterable[Task]) -> list[Task]:
        """Puts tasks in, each in the buffer of its kind; those that are new and that there was room for."""
        added = []
        for task in tasks:
            kept, known = self.tasks[task.kind], self._known[task.kind]
            if task.id in known or (self.keep == "oldest" and len(kept) >= self.capacity):
                continue
            kept.append(task)
            known.add(task.id)
            added.append(task)
            if len(kept) > self.capacity:
                known.discard(kept.pop(0).id)
        return added

    # ------------------------------------------------------------------------------------------------------- references

    def references(
        self,
        kind: TaskName,
        count: int,
        rng: random.Random,
        weighting: Weighting = "uniform",
        fits: Callable[[Sequence[Task]], bool] = lambda tasks: True,
    ) -> list[Task]:
        """Up to `count` tasks for a proposer, none twice; `induce` has those whose program it asks about (`programs`).

        `step` draws a task by its step + 1. References that do not fit are drawn again, and after TRIES one fewer is.
        """
        pool = self.programs() if kind == "induce" else self.tasks[kind]
        for size in range(min(count, len(pool)), 0, -1):
            for _ in range(TRIES):
                drawn = _weighted(pool, size, rng) if weighting == "step" else rng.sample(pool, size)
                if fits(drawn):
                    return drawn
        return []

    def programs(self) -> list[Task]:
        """The tasks whose programs an induction may be about: those with one input, each program once."""
        pool = [task for kind in ("deduce", "abduce") for task in self.tasks.get(kind, ())]
        return list({task.program: task for task in pool}.values())

    # ----------------------------------------------------------------------------------------------------- solver tasks

    def to_solve(
        self,
        kind: TaskName,
        count: int,
        step: int,
        rng: random.Random,
        mix: Mix = "max-new",
        window: int = 1,
        fits: Callable[[Task], bool] = lambda task: True,
    ) -> list[Task]:
        """`count` tasks for a solver at a step; fewer only if no task fits.

        New are tasks of the last `window` steps. `max-new` takes as many new ones as there are, `half-new` at most half
        of `count`, and fills with any; `uniform` takes any, `step` any by its step + 1, with replacement.
        """
        pool = self.tasks[kind]
        if mix == "step":
            pool = [task for task in pool if fits(task)]
            return rng.choices(pool, [task.step + 1 for task in pool], k=count) if pool else []
        new = [task for task in pool if task.step >= max(1, step - window)]
        most = {"max-new": count, "half-new": count // 2, "uniform": 0}[mix]
        drawn = _fitting(rng.sample(new, len(new)), most, fits)
        taken = {task.id for task in drawn}
        drawn += _fitting(
            [task for task in rng.sample(pool, len(pool)) if task.id not in taken], count - len(drawn), fits
        )
        while drawn and len(drawn) < count:
            drawn += rng.sample(drawn, min(len(drawn), count - len(drawn)))
        return drawn

    # -------------------------------------------------------------------------------------------------------- plain data

    def state(self) -> dict[str, Any]:
        """All that there is to restore, as plain data."""
        rows = [task.row() for tasks in self.tasks.values() for task in tasks]
        return {"kinds": list(self.tasks), "capacity": self.capacity, "keep": self.keep, "tasks": rows}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> "Buffers":
        """The buffers whose state this is."""
        buffers = cls(state["kinds"], state["capacity"], state["keep"])
        buffers.add(from_row(row) for row in state["tasks"])
        return buffers

    def table(self) -> pa.Table:
        """The tasks as a table, one a row, by kind and oldest first."""
        return pa.Table.from_pylist(self.state()["tasks"], schema=SCHEMA)

    def add_table(self, table: pa.Table) -> list[Task]:
        """Puts the tasks of a table in, and says which were new."""
        return self.add(from_row(row) for row in table.to_pylist())


def _weighted(pool: Sequence[Task], size: int, rng: random.Random) -> list[Task]:
    """Tasks drawn without replacement by their step + 1 (Efraimidis and Spirakis, 2006: the largest u^(1/w))."""
    keys = [rng.random() ** (1 / (task.step + 1)) for task in pool]
    return [pool[place] for place in sorted(range(len(pool)), key=keys.__getitem__, reverse=True)[:size]]


def _fitting(tasks: Iterable[Task], count: int, fits: Callable[[Task], bool]) -> list[Task]:
    found: list[Task] = []
    for task in tasks:
        if len(found) >= count:
            break
        if fits(task):
            found.append(task)
    return found

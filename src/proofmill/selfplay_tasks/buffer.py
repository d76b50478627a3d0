"""Buffers of proposed tasks, from which references for the proposer and tasks for the solver are drawn.

From: Absolute Zero Reasoner (arXiv 2505.03335, sections 3.3.1 and 3.3.2) and its code.

Differences from the original:
1. A full buffer keeps the `newest` or the `oldest` tasks, as configured. There, it keeps the oldest and discards all
   later proposals, and two of four buffers lose the order of their steps.
2. Equal tasks are one task, independent of their proposer and step.
3. A task is drawn again only when all have been drawn. There, the share drawn from the full buffer may repeat tasks
   drawn from the newest.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from proofmill.selfplay_tasks.tasks import TASKS, Task, TaskName, from_row

Keep = Literal["newest", "oldest"]
Weighting = Literal["uniform", "step"]
Mix = Literal["max-new", "half-new", "uniform", "step"]

CAPACITY = 16_384  # tasks per kind, as published
TRIES = 100  # draws of a number of references before one fewer is drawn
_TEXTS = pa.list_(pa.string())
SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("id", "kind", "program", "input", "output")]
    + [
        ("inputs", _TEXTS),
        ("outputs", _TEXTS),
        ("message", pa.string()),
        ("step", pa.int64()),
        ("proposed", pa.string()),
    ]
)


class Buffers:
    """A buffer for each kind of task, oldest first, without duplicates."""

    def __init__(self, kinds: Iterable[TaskName] = TASKS, capacity: int = CAPACITY, keep: Keep = "newest"):
        self.capacity, self.keep = capacity, keep
        self.tasks: dict[TaskName, list[Task]] = {kind: [] for kind in kinds}
        self._known: dict[TaskName, set[str]] = {kind: set() for kind in self.tasks}

    def __len__(self) -> int:
        return sum(map(len, self.tasks.values()))

    def add(self, tasks: Iterable[Task]) -> list[Task]:
        """Add tasks to the buffers of their kinds. Return those that were new and for which there was room."""
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
        """Draw up to `count` different tasks for a proposer; for `induce` from `programs`.

        The weighting `step` draws tasks in proportion to their step + 1. References that do not fit are redrawn. After
        TRIES draws, one fewer is drawn.
        """
        pool = self.programs() if kind == "induce" else self.tasks[kind]
        for size in range(min(count, len(pool)), 0, -1):
            for _ in range(TRIES):
                drawn = _draw_weighted(pool, size, rng) if weighting == "step" else rng.sample(pool, size)
                if fits(drawn):
                    return drawn
        return []

    def programs(self) -> list[Task]:
        """Return the tasks whose programs an induction may use: those with one input, each program once."""
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
        """Draw `count` tasks for a solver at a step; none if no task fits.

        New tasks are those of the last `window` steps. `max-new` takes all new tasks up to `count`, `half-new` at most
        half of `count`; both fill up with any tasks. `uniform` takes any tasks. `step` draws any, with replacement, in
        proportion to their step + 1.
        """
        pool = self.tasks[kind]
        if mix == "step":
            pool = [task for task in pool if fits(task)]
            return rng.choices(pool, [task.step + 1 for task in pool], k=count) if pool else []
        new = [task for task in pool if task.step >= max(1, step - window)]
        most = {"max-new": count, "half-new": count // 2, "uniform": 0}[mix]
        drawn = _take_fitting(rng.sample(new, len(new)), most, fits)
        taken = {task.id for task in drawn}
        drawn += _take_fitting(
            [task for task in rng.sample(pool, len(pool)) if task.id not in taken], count - len(drawn), fits
        )
        while drawn and len(drawn) < count:
            drawn += rng.sample(drawn, min(len(drawn), count - len(drawn)))
        return drawn

    # -------------------------------------------------------------------------------------------------------- plain data

    def state(self) -> dict[str, Any]:
        """Return the complete state as plain data."""
        rows = [task.row() for tasks in self.tasks.values() for task in tasks]
        return {"kinds": list(self.tasks), "capacity": self.capacity, "keep": self.keep, "tasks": rows}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Buffers":
        """Build the buffers from a state."""
        buffers = cls(state["kinds"], state["capacity"], state["keep"])
        buffers.add(from_row(row) for row in state["tasks"])
        return buffers

    def table(self) -> pa.Table:
        """Return the tasks as a table with one row per task, by kind, oldest first."""
        return pa.Table.from_pylist(self.state()["tasks"], schema=SCHEMA)

    def add_table(self, table: pa.Table) -> list[Task]:
        """Add the tasks of a table. Return those that were new."""
        return self.add(from_row(row) for row in table.to_pylist())


def _draw_weighted(pool: Sequence[Task], size: int, rng: random.Random) -> list[Task]:
    """Draw tasks without replacement, weighted by step + 1 (Efraimidis and Spirakis, 2006: the largest u^(1/w))."""
    keys = [rng.random() ** (1 / (task.step + 1)) for task in pool]
    return [pool[place] for place in sorted(range(len(pool)), key=keys.__getitem__, reverse=True)[:size]]


def _take_fitting(tasks: Iterable[Task], count: int, fits: Callable[[Task], bool]) -> list[Task]:
    """Return the first `count` tasks that fit, testing no more than needed."""
    taken: list[Task] = []
    for task in tasks:
        if len(taken) >= count:
            break
        if fits(task):
            taken.append(task)
    return taken

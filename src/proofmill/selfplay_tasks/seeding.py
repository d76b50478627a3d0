"""Seed tasks of self-play: the identity, tasks of a table, or tasks proposed by the model itself.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3.1) and its code. The only triplet given is the identity
function with a greeting; 256 seeds are then sampled from the base model, without training it.

Differences from the original:
1. Seeds of a table are executed, and their outputs are those of the sandbox. Some published outputs are truncated.
2. Sampling ends after several rounds that add no task. There, it never ends.
"""

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proofmill.sandbox.executor import Executor
from proofmill.selfplay_tasks import proposals, requests
from proofmill.selfplay_tasks.buffer import Buffers
from proofmill.selfplay_tasks.program_text import Unfit, normalize
from proofmill.selfplay_tasks.proposals import INPUTS, Normal, Proposal
from proofmill.selfplay_tasks.tasks import NO_ERROR, Invalid, Task, TaskName
from proofmill.selfplay_tasks.validity import valid

IDENTITY = "def f(a):\n    return a"
_GREETING = "'Hello world'"
_SAMES = (_GREETING, "1", "{'a': 1, 'b': 2}", "(1.5, 2.5)", "[[1, 0], [0, 1]]", "None", "True", "-7", "''", "{3, 4}")
SEED_FORM = Normal(drop=frozenset({"comments", "top-level"}))
PATIENCE = 20  # consecutive rounds that add no task


def identity(kind: TaskName, inputs: int = INPUTS) -> Task:
    """Return the first task, of the identity function; an induction has up to ten pairs."""
    if kind == "induce":
        same = _SAMES[:inputs]
        return Task(kind, IDENTITY, inputs=same, outputs=same, message="The function returns what it is given.")
    return Task(kind, IDENTITY, _GREETING, NO_ERROR if kind == "error" else _GREETING)


def from_rows(
    rows: Iterable[Mapping[str, Any]], kinds: Collection[TaskName], executor: Executor
) -> list[Task | Invalid]:
    """Execute rows with `program` (or `snippet`) and `input`, or `inputs` and `message`, and return their tasks.

    A row with one input gives a task of each of `kinds` except `induce`, a row with several gives an induction.
    """
    proposed: list[Proposal | Invalid] = []
    for row in rows:
        inputs = tuple(row.get("inputs") or ())
        try:
            program = normalize(row.get("program") or row.get("snippet") or "")
        except Unfit as unfit:
            proposed.append(Invalid(unfit.reason, unfit.detail))
            continue
        if inputs and "induce" in kinds:
            proposed.append(Proposal("induce", program, inputs, row.get("message") or ""))
        elif not inputs and row.get("input") is None:
            proposed.append(Invalid("no-input"))
        elif not inputs:
            proposed += [Proposal(kind, program, (row["input"],)) for kind in kinds if kind != "induce"]
    return valid(proposed, executor)


@dataclass(frozen=True)
class SeedSizes:
    """The size of the seeding from a model: tasks of each kind, requests of a round, tasks shown, inputs of an induction."""

    target: int = 256
    batch: int = 64
    references: int = 6
    inputs: int = INPUTS


def from_model(
    ask: Callable[[Sequence[requests.Messages]], Sequence[str]],
    kinds: Sequence[TaskName],
    executor: Executor,
    words: Mapping[str, str],
    rng: random.Random,
    sizes: SeedSizes = SeedSizes(),
    fits: Callable[[requests.Messages], bool] = lambda messages: True,
    form: Normal = SEED_FORM,
) -> Buffers:
    """Collect up to `sizes.target` tasks of each kind from a model's proposals, in normal form, and the identity.

    `ask` returns a reply to each conversation; only conversations that `fits` accepts are sent. A proposal with one input
    gives a task of each kind with one input. Inductions come last, about programs of the other tasks. Ends early after
    PATIENCE consecutive rounds that add no task.
    """
    single: list[TaskName] = [kind for kind in kinds if kind != "induce"]
    seeds = Buffers(kinds, capacity=sizes.target, keep="oldest")
    seeds.add(identity(kind, sizes.inputs) for kind in kinds)
    stages: list[list[TaskName]] = [single, ["induce"] if "induce" in kinds else []]
    for several in filter(None, stages):
        turn = idle = 0
        while idle < PATIENCE and any(len(seeds.tasks[kind]) < sizes.target for kind in several):
            kind, turn = several[turn % len(several)], turn + 1

            def request(tasks: Sequence[Task], kind: TaskName = kind) -> requests.Messages:
                return requests.to_propose(kind, tasks, words, inputs=sizes.inputs)

            def can_show(
                tasks: Sequence[Task], request: Callable[[Sequence[Task]], requests.Messages] = request
            ) -> bool:
                return fits(request(tasks))

            count = 1 if kind == "induce" else sizes.references
            shown = [seeds.references(kind, count, rng, fits=can_show) for _ in range(sizes.batch)]
            if kind == "induce" and not all(shown):
                shown = [[identity("deduce")]] * sizes.batch
            replies = ask([request(each) for each in shown])
            proposed = [
                # The untrained model was not asked for tags.
                proposals.parse(
                    kind,
                    reply,
                    each[0].program if kind == "induce" else "",
                    sizes.inputs,
                    tags=False,
                    normal=form,
                )
                for reply, each in zip(replies, shown, strict=True)
            ]
            tasks = [task for task in valid(proposed, executor) if isinstance(task, Task)]
            added = seeds.add(variant for task in tasks for variant in _variants(task, several))
            idle = 0 if added else idle + 1
    return seeds


def _variants(task: Task, kinds: Collection[TaskName]) -> list[Task]:
    """Return the tasks of the kinds that one proposal gives; inductions and `error` tasks give no others."""
    if task.kind in ("induce", "error"):
        return [task]
    return [replace(task, kind=kind, output=NO_ERROR if kind == "error" else task.output) for kind in kinds]

"""Seeding: the tasks that self-play starts from, from the identity, a table, or the model itself.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3.1) and its code: the one triplet given is the identity
function with a greeting; 256 seeds are then sampled from the base model, without an update of its weights.

How we differ:
1. Seeds of a table are executed again: their outputs are what the sandbox says. Of the published ones some are cut.
2. A loop that adds nothing in several rounds ends with what it has. There, it goes on for ever.
"""

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proofmill.sandbox.executor import Executor
from proofmill.tasks import asking, proposals
from proofmill.tasks.buffer import Buffers
from proofmill.tasks.programs import FORBIDDEN, Unfit, normalised
from proofmill.tasks.proposals import INPUTS, Normal, Proposal
from proofmill.tasks.tasks import NO_ERROR, Invalid, Task, TaskName
from proofmill.tasks.validity import valid

IDENTITY = "def f(a):\n    return a"
_GREETING = "'Hello world'"
_SAMES = (_GREETING, "1", "{'a': 1, 'b': 2}", "(1.5, 2.5)", "[[1, 0], [0, 1]]", "None", "True", "-7", "''", "{3, 4}")
_SEED_FORM = Normal(drop=frozenset({"comments", "top-level"}))
PATIENCE = 20  # rounds in a row that add nothing


def identity(kind: TaskName, inputs: int = INPUTS) -> Task:
    """The task of the identity function that all begins with; an induction has up to ten pairs."""
    if kind == "induce":
        same = _SAMES[:inputs]
        return Task(kind, IDENTITY, inputs=same, outputs=same, message="The function returns what it is given.")
    return Task(kind, IDENTITY, _GREETING, NO_ERROR if kind == "error" else _GREETING)


def from_rows(
    rows: Iterable[Mapping[str, Any]], kinds: Collection[TaskName], executor: Executor
) -> list[Task | Invalid]:
    """The tasks of rows with `program` (or `snippet`) and `input`, or `inputs` and `message`, executed here.

    A row with one input is a task of each kind but `induce` that is asked for, one with several an induction.
    """
    found: list[Proposal | Invalid] = []
    for row in rows:
        inputs = tuple(row.get("inputs") or ())
        try:
            program = normalised(row.get("program") or row.get("snippet") or "")
        except Unfit as unfit:
            found.append(Invalid(unfit.reason, unfit.detail))
            continue
        if inputs and "induce" in kinds:
            found.append(Proposal("induce", program, inputs, row.get("message") or ""))
        elif not inputs and row.get("input") is None:
            found.append(Invalid("no-input"))
        elif not inputs:
            found += [Proposal(kind, program, (row["input"],)) for kind in kinds if kind != "induce"]
    return valid(found, executor)


def from_model(
    ask: Callable[[Sequence[asking.Messages]], Sequence[str]],
    kinds: Sequence[TaskName],
    executor: Executor,
    words: Mapping[str, str],
    rng: random.Random,
    target: int = 256,
    batch: int = 64,
    references: int = 6,
    inputs: int = INPUTS,
    tags: bool = False,
    normal: Normal = _SEED_FORM,
    forbidden: Collection[str] = FORBIDDEN,
    fits: Callable[[asking.Messages], bool] = lambda messages: True,
) -> Buffers:
    """Up to `target` tasks of each kind that a model proposed, the identity among them.

    `ask` gives a reply to each conversation, and only to those that `fits` lets pass. What is proposed for one of the kinds with one input is a task of all of
    them. Inductions come last, about programs of the others. Ends early after PATIENCE rounds that add nothing.
    """
    single: list[TaskName] = [kind for kind in kinds if kind != "induce"]
    seeds = Buffers(kinds, capacity=target, keep="oldest")
    seeds.add(identity(kind, inputs) for kind in kinds)
    stages: list[list[TaskName]] = [single, ["induce"] if "induce" in kinds else []]
    for several in filter(None, stages):
        turn = idle = 0
        while idle < PATIENCE and any(len(seeds.tasks[kind]) < target for kind in several):
            kind, turn = several[turn % len(several)], turn + 1

            def asked(tasks: Sequence[Task], kind: TaskName = kind) -> asking.Messages:
                return asking.to_propose(kind, tasks, words, forbidden=forbidden, inputs=inputs)

            def fitting(tasks: Sequence[Task], asked: Callable[[Sequence[Task]], asking.Messages] = asked) -> bool:
                return fits(asked(tasks))

            count = 1 if kind == "induce" else references
            shown = [seeds.references(kind, count, rng, fits=fitting) for _ in range(batch)]
            if kind == "induce" and not all(shown):
                shown = [[identity("deduce")]] * batch
            replies = ask([asked(each) for each in shown])
            proposed = [
                proposals.parse(kind, reply, each[0].program if kind == "induce" else "", inputs, tags, normal)
                for reply, each in zip(replies, shown, strict=True)
            ]
            tasks = [task for task in valid(proposed, executor, forbidden=forbidden) if isinstance(task, Task)]
            added = seeds.add(other for task in tasks for other in _alike(task, several))
            idle = 0 if added else idle + 1
    return seeds


def _alike(task: Task, kinds: Collection[TaskName]) -> list[Task]:
    """The tasks of some kinds that one proposal makes; one that was proposed for its exception makes no other."""
    if task.kind in ("induce", "error"):
        return [task]
    return [replace(task, kind=kind, output=NO_ERROR if kind == "error" else task.output) for kind in kinds]

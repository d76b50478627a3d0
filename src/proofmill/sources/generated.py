"""Problems that are made here: the embedded congruences, also as threads of a forum, and tasks about tiny programs.

The tasks are demonstrations for a tiny model, and benchmarks.
A family is a task and a number of lines: `deduce-2`, `abduce-6`, `induce-1`; for proposers `propose-deduce-3` and the like,
whose examples have as many lines or one less. The statement is what self-play asks in its terse words, the solution a
worked reply, the answer of a task to be solved the triplet as a JSON object, as tasks/tasks.py reads it.
"""

import json
import random
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

from proofmill.arithmetic import congruences, forum, programs
from proofmill.schema.entries import Problems
from proofmill.schema.fields import required
from proofmill.sources.threads import thread
from proofmill.tasks import asking
from proofmill.tasks.tasks import Task, TaskName

WORDS = asking.wording("tasks-terse")
INPUTS = 6  # of a task to induce: three are shown, three hidden
LONGEST = 9
KINDS: tuple[TaskName, ...] = ("deduce", "abduce", "induce")
FAMILIES = tuple(
    f"{role}{kind}-{lines}" for role in ("", "propose-") for kind in KINDS for lines in range(1, LONGEST + 1)
)
_PATIENCE = 1_000  # draws in a row that are known already
Row = dict[str, Any]


def arithmetic(entry: Problems) -> Iterator[Row]:
    """Congruences with their proofs."""
    rng = random.Random(f"wording-{entry.part}-{entry.seed}")
    for problem in congruences.problems(entry.part, entry.seed, tuple(entry.families) or congruences.FAMILIES):
        yield {
            "statement": congruences.statement(problem, rng.randint(0, 1)),
            "solution": congruences.proof(problem),
            "answer": str(problem.residue),
            "asks": "proof" if problem.asks_for_proof else "answer",
            "origin": f"arithmetic/{entry.part}",
            "level": problem.family,
            "tags": ["number theory"],
        }


def arithmetic_threads(entry: Problems) -> Iterator[Row]:
    """The same as threads of an invented forum."""
    families = tuple(entry.families) or congruences.FAMILIES
    for record in forum.threads(entry.part, entry.seed, required(entry.rows), families):
        yield thread(f"arithmetic-threads/{record['topic_id']}", record)


def tasks(entry: Problems) -> Iterator[Row]:
    """Distinct tasks of one part, families in turn, until one is exhausted."""
    rng, seen = random.Random(f"programs-{entry.part}-{entry.seed}"), set()
    for role, kind, lines in cycle(map(_family, entry.families or FAMILIES)):
        for _ in range(_PATIENCE):
            row = _row(role, kind, lines, entry.part, rng)
            if row["statement"] not in seen:
                break
        else:
            return
        seen.add(row["statement"])
        yield row


def _family(name: str) -> tuple[str, TaskName, int]:
    """Role, task and lines of a family's name."""
    *role, kind, lines = name.split("-")
    return (role or ["solve"])[0], KINDS[KINDS.index(kind)], int(lines)


def _row(role: str, kind: TaskName, lines: int, part: str, rng: random.Random) -> Row:
    chain = programs.draw(rng, lines, part)
    inputs = rng.sample(range(10), INPUTS if kind == "induce" else 1)
    task = _task(kind, chain, inputs)
    if role == "solve":
        messages, solution = asking.to_solve(task, WORDS), _solution(kind, chain, inputs)
    else:
        calls = "\n".join(f"f({digit})" for digit in inputs)
        references = [task] if kind == "induce" else [_reference(kind, lines, part, rng)]
        messages = asking.to_propose(task.kind, references, WORDS)
        solution = _reply("", calls if kind == "induce" else f"{chain.source}\n{calls}")
    return {
        "statement": messages[0]["content"],
        "solution": solution,
        "answer": _answer(task) if role == "solve" else None,
        "asks": "code",
        "origin": f"tiny-programs/{part}",
        "level": str(lines),
        "tags": [kind, role],
    }


def _task(kind: TaskName, chain: programs.Chain, inputs: Sequence[int]) -> Task:
    outputs = [str(chain(digit)) for digit in inputs]
    if kind == "induce":
        return Task(kind, chain.source, inputs=tuple(map(str, inputs)), outputs=tuple(outputs))
    return Task(kind, chain.source, str(inputs[0]), outputs[0])


def _reference(kind: TaskName, lines: int, part: str, rng: random.Random) -> Task:
    """A task that a proposal of so many lines follows."""
    chain = programs.draw(rng, max(lines - rng.randint(0, 1), 1), part)
    return _task(kind, chain, [rng.randrange(10)])


def _answer(task: Task) -> str:
    return json.dumps({name: value for name, value in task.row().items() if value and name != "id"})


def _solution(kind: str, chain: programs.Chain, inputs: Sequence[int]) -> str:
    if kind == "deduce":
        return _reply(programs.forward(chain, inputs[0]), str(chain(inputs[0])))
    if kind == "abduce":
        return _reply(programs.backward(chain, inputs[0]), str(inputs[0]))
    thought, found = programs.search([(digit, chain(digit)) for digit in inputs])
    return _reply(thought, found.source)


def _reply(thought: str, answer: str) -> str:
    return f"<think>{thought}</think>\n<answer>{answer}</answer>"

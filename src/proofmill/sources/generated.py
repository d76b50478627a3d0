"""Generated problems: congruences, also as forum threads, small tasks and proofs, and tasks about tiny programs.

The tasks are demonstrations for a tiny model, and benchmarks. A family is a task and a number of lines: `deduce-2`,
`abduce-6`, `induce-1`. Families for proposers are `propose-deduce-3` and so on; their example has as many lines or one
fewer. The statement is the terse prompt of self-play, the solution a worked reply. The answer of a task to solve is the
triplet as a JSON object, as selfplay_tasks/tasks.py reads it.

With the prefix `brief-` (`brief-deduce-2`) the solution is a correct answer without reasoning.
"""

import json
import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from proofmill.prompts import templates
from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.fields import require
from proofmill.selfplay_tasks import requests
from proofmill.selfplay_tasks.tasks import Task, TaskName
from proofmill.sources.threads import thread
from proofmill.synthetic import congruences, forum, small_proofs, tiny_programs
from proofmill.synthetic import small_tasks as small
from proofmill.text.fences import answer

WORDS = requests.wording("tasks-terse")
INPUTS = 6  # of an induction task, 0 and 1 first: three are shown, three hidden
LONGEST = 9
KINDS: tuple[TaskName, ...] = ("deduce", "abduce", "induce")
FAMILIES: dict[str, tuple[int, ...]] = {  # without sizes
    f"{manner}{kind}-{lines}": ()
    for manner in ("", "brief-", "propose-")
    for kind in KINDS
    for lines in range(1, LONGEST + 1)
}
_PATIENCE = 1_000  # repeated draws in a row after which a family is exhausted
Row = dict[str, Any]


def arithmetic(entry: Problems) -> Iterator[Row]:
    """Yield congruences with their proofs."""
    rng = random.Random(f"wording-{entry.split}-{entry.seed}")
    for problem in congruences.problems(
        entry.split, entry.seed, tuple(entry.families) or congruences.FAMILIES, entry.sizes
    ):
        yield {
            "statement": congruences.statement(problem, rng.randint(0, 1)),
            "solution": congruences.proof(problem),
            "answer": str(problem.residue),
            "question_type": "proof" if problem.asks_for_proof else "answer",
            "origin": f"arithmetic/{entry.split}",
            "level": problem.family,
            "tags": ["number theory"],
        }


def arithmetic_threads(entry: Problems) -> Iterator[Row]:
    """Yield congruences from threads of a synthetic forum."""
    families = tuple(entry.families) or congruences.FAMILIES
    for record in forum.threads(entry.split, entry.seed, require(entry.rows), families, entry.sizes):
        yield thread(f"arithmetic-threads/{record['topic_id']}", record)


def small_tasks(entry: Problems) -> Iterator[Row]:
    """Yield small tasks, whose solutions are their answers without reasoning."""
    for task, statement in small.tasks(entry.split, entry.seed, entry.families, entry.sizes):
        yield {
            "statement": statement,
            "solution": task.answer,
            "answer": task.answer,
            "question_type": "answer",
            "origin": f"small-tasks/{entry.split}",
            "level": task.family,
        }


def proofs(entry: Problems) -> Iterator[Row]:
    """Yield small proofs with their guidelines, and their grading by the prompt `grade-small` as a task."""
    scheme = small_proofs.GUIDELINES
    for statement, proof, graded in small_proofs.tasks(entry.split, entry.seed, entry.families, entry.sizes):
        row = {
            "statement": statement,
            "solution": proof,
            "guidelines": scheme,
            "question_type": "proof",
            "origin": f"small-proofs/{entry.split}",
            "level": "proof",
        }
        if graded is not None:
            fields = {"statement": statement, "scheme": scheme, "reference": proof, "proof": graded}
            points, _ = small_proofs.check(statement, graded)
            solution = rf"\boxed{{{points}}}"
            row |= {"statement": templates.fill("grade-small", fields), "solution": solution, "level": "points"}
        yield row


def tasks(entry: Problems) -> Iterator[Row]:
    """Yield distinct tasks of one part from the families in turn, each until it is exhausted."""
    rng, seen = random.Random(f"programs-{entry.split}-{entry.seed}"), set()
    families = deque(map(_family, entry.families or FAMILIES))
    while families:
        family = families.popleft()
        for _ in range(_PATIENCE):
            row = _row(*family, entry.split, rng)
            if row is None:
                break
            if row["statement"] not in seen:
                seen.add(row["statement"])
                families.append(family)
                yield row
                break


def _family(name: str) -> tuple[str, TaskName, int]:
    """Parse the name of a family into manner, task and lines."""
    *manner, kind, lines = name.split("-")
    return (manner or [""])[0], KINDS[KINDS.index(kind)], int(lines)


def _row(manner: str, kind: TaskName, lines: int, part: str, rng: random.Random) -> Row | None:
    """Draw a task of a family; None if the part has no program with that number of lines."""
    if (chain := tiny_programs.draw(rng, lines, part)) is None:
        return None
    inputs = [0, 1, *rng.sample(range(2, 10), INPUTS - 2)] if kind == "induce" else [rng.randrange(10)]
    task = _task(kind, chain, inputs)
    if manner != "propose":
        messages, solution = requests.to_solve(task, WORDS), _solution(kind, chain, inputs)
        solution = _reply("", answer(solution)) if manner == "brief" else solution
    else:
        calls = "\n".join(f"f({digit})" for digit in inputs)
        references = [task] if kind == "induce" else [_reference(kind, lines, part, rng)]
        messages = requests.to_propose(task.kind, references, WORDS)
        solution = _reply("", calls if kind == "induce" else f"{chain.source}\n{calls}")
    return {
        "statement": messages[0]["content"],
        "solution": solution,
        "answer": _answer(task) if manner != "propose" else None,
        "question_type": "code",
        "origin": f"tiny-programs/{part}",
        "level": f"{kind}-{lines}",
        "tags": [kind, *[manner] * bool(manner)],
    }


def _task(kind: TaskName, chain: tiny_programs.Chain, inputs: Sequence[int]) -> Task:
    outputs = [str(chain(digit)) for digit in inputs]
    if kind == "induce":
        return Task(kind, chain.source, inputs=tuple(map(str, inputs)), outputs=tuple(outputs))
    return Task(kind, chain.source, str(inputs[0]), outputs[0])


def _reference(kind: TaskName, lines: int, part: str, rng: random.Random) -> Task:
    """Draw the example task of a proposal: it has `lines` lines or one fewer."""
    chain = tiny_programs.draw(rng, max(lines - rng.randint(0, 1), 1), part) or tiny_programs.draw(rng, lines, part)
    assert chain is not None, "the proposal has as many lines"
    return _task(kind, chain, [rng.randrange(10)])


def _answer(task: Task) -> str:
    names = ("inputs", "outputs", "message") if task.kind == "induce" else ("input", "output")
    return json.dumps({name: value for name, value in task.row().items() if name in ("kind", "program", *names)})


def _solution(kind: str, chain: tiny_programs.Chain, inputs: Sequence[int]) -> str:
    if kind == "deduce":
        return _reply(tiny_programs.forward(chain, inputs[0]), str(chain(inputs[0])))
    if kind == "abduce":
        return _reply(tiny_programs.backward(chain, inputs[0]), str(inputs[0]))
    thought, shorter = tiny_programs.shorten(chain)
    return _reply(thought, shorter.source)


def _reply(thought: str, answer: str) -> str:
    return f"<think>{thought}</think>\n<answer>{answer}</answer>"

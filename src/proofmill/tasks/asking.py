"""Asking: what a proposer and a solver are shown, in the words of the prompts that an entry names.

A wording is a folder of prompts: `tasks` for language models, `tasks-terse` for tiny ones. An entry may name another
prompt for any of them, such as a file of its own for `propose-deduce`.

From: Absolute Zero Reasoner (arXiv 2505.03335, appendix); the words are ours.

How we differ: a proposer of deductions is told what makes an output hard to find, one of abductions what makes an input
so. There, the two are interchanged.
"""

from collections.abc import Collection, Mapping, Sequence

from proofmill.prompts.escapes import Enclosed
from proofmill.prompts.templates import fill
from proofmill.tasks.programs import FORBIDDEN
from proofmill.tasks.proposals import INPUTS
from proofmill.tasks.tasks import ROLES, TASKS, Task, TaskName

WORDINGS = ("tasks", "tasks-terse")
# Besides one for each role and task: how a task is shown as an example, how a pair is, and what stands around all.
PARTS = (*(f"{role}-{task}" for role in ROLES for task in TASKS), "example", "pair", "reply")
Messages = list[dict[str, str]]


def wording(name: str = "tasks", changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The prompt of each of PARTS: those of a folder of prompts, and those that are named for them instead."""
    return {part: f"{name}/{part}" for part in PARTS} | dict(changes or {})


def to_solve(task: Task, words: Mapping[str, str]) -> Messages:
    """What a solver is asked: the task without its answer. An induction shows the first half of its pairs."""
    shown = list(zip(task.inputs, task.outputs, strict=True))[: task.shown]
    pairs = (fill(words["pair"], {"input": given, "output": output}) for given, output in shown)
    fields = {
        "deduce": {"program": task.program, "input": task.input},
        "error": {"program": task.program, "input": task.input},
        "abduce": {"program": task.program, "output": task.output},
        "induce": {"pairs": Enclosed("\n".join(pairs)), "message": task.message},
    }[task.kind]
    return _messages(words, f"solve-{task.kind}", fields)


def to_propose(
    kind: TaskName,
    references: Sequence[Task],
    words: Mapping[str, str],
    functions: str = "",
    forbidden: Collection[str] = FORBIDDEN,
    keywords: Collection[str] = (),
    inputs: int = INPUTS,
) -> Messages:
    """What a proposer is asked: for a task unlike the references, or for inputs of the program of the only reference.

    `functions` is the source of functions that the program must call (composites.given).
    """
    if kind == "induce":
        (reference,) = references
        return _messages(words, "propose-induce", {"program": reference.program, "inputs": str(inputs)})
    names = ("program", "input", "output")
    examples = (fill(words["example"], {name: getattr(task, name) for name in names}) for task in references)
    fields = {
        "references": Enclosed("\n".join(examples)),
        "functions": functions,
        "forbidden": ", ".join(sorted(forbidden)),
        "keywords": ", ".join(keywords),
    }
    return _messages(words, f"propose-{kind}", fields)


def _messages(words: Mapping[str, str], part: str, fields: Mapping[str, str]) -> Messages:
    asked = fill(words["reply"], {"task": Enclosed(fill(words[part], fields))})
    return [{"role": "user", "content": asked}]

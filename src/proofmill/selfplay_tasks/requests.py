"""Build the requests to proposer and solver from the prompts that an entry names.

A prompt set is a folder of prompts: `tasks` for language models, `tasks-terse` for tiny ones. An entry may replace any
of its prompts, for example `propose-deduce` by a file of its own.

From: Absolute Zero Reasoner (arXiv 2505.03335, appendix), with new wording.

Differences from the original: the prompt for deductions explains what makes an output hard to find, and the prompt for
abductions what makes an input hard to find. There, the two are interchanged.
"""

from collections.abc import Collection, Mapping, Sequence

from proofmill.prompts.escapes import Enclosed
from proofmill.prompts.templates import fill
from proofmill.selfplay_tasks.program_text import FORBIDDEN
from proofmill.selfplay_tasks.proposals import INPUTS
from proofmill.selfplay_tasks.tasks import ROLES, TASKS, Task, TaskName

WORDINGS = ("tasks", "tasks-terse")
# The prompts of a set: one for each role and task, an example task, a pair of an induction, and the frame around all.
PARTS = (*(f"{role}-{task}" for role in ROLES for task in TASKS), "example", "pair", "reply")
Messages = list[dict[str, str]]


def wording(name: str = "tasks", changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the prompt of each of PARTS: from a folder of prompts, or the replacement named in `changes`."""
    return {part: f"{name}/{part}" for part in PARTS} | dict(changes or {})


def to_solve(task: Task, words: Mapping[str, str]) -> Messages:
    """Build the solver's request: the task without its answer. An induction shows the first half of its pairs."""
    shown = list(zip(task.inputs, task.outputs, strict=True))[: task.shown]
    pairs = (fill(words["pair"], {"input": text, "output": output}) for text, output in shown)
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
    """Build the proposer's request for a task unlike the references; for `induce`, for inputs of the only reference.

    `functions` is the source of functions that the program must call (composites.draw_functions).
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
    text = fill(words["reply"], {"task": Enclosed(fill(words[part], fields))})
    return [{"role": "user", "content": text}]

"""Solutions: what a solver's reply answers, and whether execution says that it is right.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3.4) and its code.

How we differ:
1. An output is a value that is written out. There, the answer is evaluated after the program, so that the call that was
   asked about is a right answer to itself.
2. An input is written out, too (programs.arguments), and values are compared outside of the sandbox (values.same): no
   answer decides what equals it.
3. What the sandbox does not run is wrong, since it runs the reference. There is no mark only where what is expected
   cannot be read, as it may be in a table of others; a sandbox that fails is an error.
"""

import ast
import re
from collections.abc import Sequence
from typing import Literal

from proofmill.sandbox import values
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.tasks.programs import Unfit, arguments, normalised, parsed
from proofmill.tasks.proposals import called
from proofmill.tasks.tasks import Task, TaskName
from proofmill.text.fences import answer, fenced

Partial = Literal["all", "mean", "any"]
_BLOCK = {"deduce": "output", "abduce": "input", "error": "output"}


def parse(kind: TaskName, reply: str, tags: bool = True) -> str | None:
    """The answer of a reply: an output, the arguments of a call, a program, or the name of an exception.

    None where the reply has none. Looked for in this order: the last fenced block that was asked for, the last comment
    `# Output: ...`, a tag, words such as "the output is", the last line; all of the answer if it is an expression and its
    last line is none.
    """
    text = answer(reply) if tags else reply
    if not text.strip():
        return None
    if kind == "induce":
        programs = fenced(text, "python", "")
        return (programs[-1] if programs else text).strip("\n") or None
    name = _BLOCK[kind]
    blocks = fenced(text, name)
    if kind == "abduce" and blocks and not blocks[-1].strip():
        return ""  # a call without arguments
    found = (
        _last(blocks)
        or _last(re.findall(rf"^[ \t]*#[ \t]*{name}[ \t]*:(.+)$", text, re.IGNORECASE | re.MULTILINE))
        or _last(re.findall(rf"<{name}>(.*?)</{name}>", text, re.IGNORECASE | re.DOTALL))
        or _last(re.findall(rf"\bthe {name} is:?[ \t]+(.+?)\.?[ \t]*$", text, re.IGNORECASE | re.MULTILINE))
        or _last_expression(text.strip())
    )
    return (called(found) if kind == "abduce" else "") or found or None


def _last(found: Sequence[str]) -> str:
    return found[-1].strip().strip("`").strip() if found else ""


def _last_expression(text: str) -> str:
    line = text.splitlines()[-1].strip()
    return text if not _is_expression(line) and _is_expression(text) else line


def _is_expression(text: str) -> bool:
    try:
        ast.parse(f"({text}\n)", mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def grade(
    tasks: Sequence[Task], answers: Sequence[str | None], executor: Executor, partial: Partial = "all"
) -> list[float | None]:
    """The mark of each answer, in [0, 1]; None where what is expected is no plain data. No answer at all is 0.

    The same answer to a task is executed once. `partial` is what an induction earns for its hidden pairs: 1 if `all` are right, their share (`mean`), 1 if `any` is.
    """
    asked = {(task.id, answer): task for task, answer in zip(tasks, answers, strict=True) if answer is not None}
    executions = {key: _executions(task, key[1]) for key, task in asked.items()}
    results = iter(list(executor.run([each for some in executions.values() for each in some])))
    marks = {key: _mark(task, key[1], [next(results) for _ in executions[key]], partial) for key, task in asked.items()}
    return [0.0 if answer is None else marks[task.id, answer] for task, answer in zip(tasks, answers, strict=True)]


def _executions(task: Task, answer: str) -> list[Execution]:
    """What must run to mark an answer; nothing where its text decides."""
    try:
        if task.kind == "abduce":
            given = arguments(answer, parsed(task.program)) if answer else ""
            return [Execution(task.program, f"f({given})")]
        if task.kind == "induce":
            program = normalised(answer)
            return [Execution(program, f"f({text})") for text in task.inputs[task.shown :]]
    except Unfit:
        return []
    return []


def _mark(task: Task, answer: str, results: Sequence[Result], partial: Partial) -> float | None:
    if task.kind == "error":
        return float(_name(answer) == task.output.lower())
    try:
        golds = [values.parse(text) for text in task.outputs[task.shown :] or (task.output,)]
    except ValueError:
        return None
    texts = [answer] if task.kind == "deduce" else [result.value for result in results]
    if not texts:
        return 0.0
    right = [_is(text, gold) for text, gold in zip(texts, golds, strict=True)]
    return {"all": float(all(right)), "any": float(any(right)), "mean": sum(right) / len(right)}[partial]


def _is(text: str, gold: object) -> bool:
    """Whether a text is a value that is written out, and the right one; what did not run has no text."""
    try:
        return values.same(values.parse(text), gold)
    except ValueError:
        return False


def _name(text: str) -> str:
    """The name of an exception: the first word before a colon, without its module, in lower case."""
    words = text.partition(":")[0].split()
    return words[0].rpartition(".")[2].lower() if words else ""

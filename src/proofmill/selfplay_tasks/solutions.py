"""Parse the answer of a solver's reply, and grade it by executing programs.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3.4) and its code.

Differences from the original:
1. An output must be a literal value. There, the answer is evaluated after the program, so the call in question is a
   correct answer to itself.
2. An input must be literal arguments (programs.arguments), and values are compared outside of the sandbox
   (values.same). So an answer cannot decide its own equality.
3. An answer that the sandbox does not run is wrong, because the sandbox runs the reference. Only an expected value that
   cannot be parsed, as in foreign tables, leaves an answer without a grade. A failing sandbox raises an error.
4. A bare program is an answer to an induction, too. There, it must be in a block.
"""

import ast
import re
from collections.abc import Sequence
from typing import Literal

from proofmill.sandbox import values
from proofmill.sandbox.cases import same_value
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.selfplay_tasks.program_text import Unfit, arguments, normalize, parse_program
from proofmill.selfplay_tasks.proposals import call_arguments
from proofmill.selfplay_tasks.tasks import Task, TaskName
from proofmill.text.fences import answer, find_fenced, is_formed

Partial = Literal["all", "mean", "any"]
_BLOCK = {"deduce": "output", "abduce": "input", "error": "output"}


def parse(kind: TaskName, reply: str, tags: bool = True) -> str | None:
    """Parse the answer of a reply: an output, the arguments of a call, a program, or the name of an exception.

    Returns None without an answer. Tried in this order: the last fenced block of the requested kind, the last comment
    `# Output: ...`, a tag, words such as "the output is", the last line. If the last line is not an expression but the
    full text is, the full text is the answer.
    """
    text = answer(reply) if tags else reply
    if not text.strip():
        return None
    if kind == "induce":
        programs = find_fenced(text, "python", "")
        return (programs[-1] if programs else text).strip("\n") or None
    name = _BLOCK[kind]
    blocks = find_fenced(text, name)
    if kind == "abduce" and blocks and not blocks[-1].strip():
        return ""  # a call without arguments
    candidate = (
        _last(blocks)
        or _last(re.findall(rf"^[ \t]*#[ \t]*{name}[ \t]*:(.+)$", text, re.IGNORECASE | re.MULTILINE))
        or _last(re.findall(rf"<{name}>(.*?)</{name}>", text, re.IGNORECASE | re.DOTALL))
        or _last(re.findall(rf"\bthe {name} is:?[ \t]+(.+?)\.?[ \t]*$", text, re.IGNORECASE | re.MULTILINE))
        or _last_expression(text.strip())
    )
    return (call_arguments(candidate) if kind == "abduce" else "") or candidate or None


def has_form(kind: TaskName, reply: str) -> bool:
    """Return whether a reply is in its tags, with a program if it is an induction. Other answers may be any text."""
    text = answer(reply)
    return is_formed(reply) and (kind != "induce" or bool(find_fenced(text, "python", "")) or "def " in text)


def _last(texts: Sequence[str]) -> str:
    return texts[-1].strip().strip("`").strip() if texts else ""


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
    """Grade each answer in [0, 1]; None if the expected value is not plain data. A missing answer gets 0.

    Equal answers to a task are executed once. `partial` sets what an induction earns for its hidden pairs: 1 if `all` are
    correct, the share of correct ones (`mean`), or 1 if `any` is.
    """
    pairs = {(task.id, answer): task for task, answer in zip(tasks, answers, strict=True) if answer is not None}
    executions = {key: _executions(task, key[1]) for key, task in pairs.items()}
    results = iter(list(executor.run([each for some in executions.values() for each in some])))
    grades = {
        key: _grade(task, key[1], [next(results) for _ in executions[key]], partial) for key, task in pairs.items()
    }
    return [0.0 if answer is None else grades[task.id, answer] for task, answer in zip(tasks, answers, strict=True)]


def _executions(task: Task, answer: str) -> list[Execution]:
    """Return the executions needed to grade an answer; empty if its text decides."""
    try:
        if task.kind == "abduce":
            input_text = arguments(answer, parse_program(task.program)) if answer else ""
            return [Execution(task.program, f"f({input_text})")]
        if task.kind == "induce":
            program = normalize(answer)
            return [Execution(program, f"f({text})") for text in task.inputs[task.shown :]]
    except Unfit:
        return []
    return []


def _grade(task: Task, answer: str, results: Sequence[Result], partial: Partial) -> float | None:
    if task.kind == "error":
        return float(_name(answer) == task.output.lower())
    golds = task.outputs[task.shown :] or (task.output,)
    if not all(map(values.is_plain, golds)):
        return None
    texts = [answer] if task.kind == "deduce" else [result.value for result in results]
    if not texts:
        return 0.0
    correct = [same_value(text, gold) for text, gold in zip(texts, golds, strict=True)]
    return {"all": float(all(correct)), "any": float(any(correct)), "mean": sum(correct) / len(correct)}[partial]


def _name(text: str) -> str:
    """Return the name of an exception: the first word before a colon, without its module, in lower case."""
    words = text.partition(":")[0].split()
    return words[0].rpartition(".")[2].lower() if words else ""

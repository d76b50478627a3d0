"""Proposals: what a proposer's reply asks others to solve, before anything is executed.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3 and appendix) and its code.

A reply is read in fenced blocks (```python, ```input, ```message), by lines (`# Input: ...`, `# Message: ...`), or bare,
as tiny models write: the program, and then calls of `f` on lines of their own.

How we differ: the answer of a reply that was asked for tags is what stands in them, and is read in the same ways. There,
a reply of seeding is read otherwise than one of training.
"""

import ast
import re
from dataclasses import dataclass, field

from proofmill.tasks.programs import EntryRule, Part, Unfit, normalised
from proofmill.tasks.tasks import Invalid, TaskName
from proofmill.text.fences import answer, fenced

INPUTS = 10  # of an induction, as published
_LINE = {
    name: re.compile(rf"^[ \t]*#[ \t]*{name}[ \t]*:[ \t]*(.+)$", re.IGNORECASE | re.MULTILINE)
    for name in ("input", "message")
}
_INPUT = re.compile(r"^[ \t]*(?:```|#[ \t]*input[ \t]*:)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Normal:
    """The form that programs are brought into (programs.normalised), and whether one may hold its own input."""

    entry: EntryRule = "f-or-first"
    drop: frozenset[Part] = field(default_factory=frozenset)
    one_function: bool = False
    holds_input: bool = True


@dataclass(frozen=True)
class Proposal:
    """A program with one input, or with the inputs and the message of an induction; nothing is known of its worth."""

    kind: TaskName
    program: str
    inputs: tuple[str, ...]
    message: str = ""
    written: str = ""  # the part of the program that its proposer wrote; empty where that is all of it


def parse(
    kind: TaskName,
    reply: str,
    program: str = "",
    inputs: int = INPUTS,
    tags: bool = True,
    normal: Normal | None = None,
) -> Proposal | Invalid:
    """The proposal of a reply. An induction is one for `program`; it has the last `inputs` of those that are given.

    Without `tags` all of the reply is read, as in seeding from a model that has not learned them.
    """
    text = answer(reply) if tags else reply
    if not text.strip():
        return Invalid("format")
    if kind == "induce":
        return _induction(text, program, inputs)
    source, call = _program_and_input(text)
    if not source:
        return Invalid("no-program")
    try:
        normal = normal or Normal()
        source = normalised(source, normal.entry, normal.drop, normal.one_function)
    except Unfit as unfit:
        return Invalid(unfit.reason, unfit.detail)
    if not call or (call in source and not normal.holds_input):
        return Invalid("holds-input" if call else "no-input")
    return Proposal(kind, source, (call,))


def _program_and_input(text: str) -> tuple[str, str]:
    """The first program and the first input of a text; each empty where there is none."""
    programs, given = fenced(text, "python", ""), fenced(text, "input") or _LINE["input"].findall(text)
    if programs or given:
        source = programs[0] if programs else _INPUT.split(text)[0]
        return source.strip("\n"), given[0].strip() if given else ""
    lines = text.rstrip().splitlines()
    call = called(lines[-1]) if lines else ""
    return "\n".join(lines[:-1] if call else lines).strip("\n"), call


def _induction(text: str, program: str, inputs: int) -> Proposal | Invalid:
    given = [each.strip() for each in fenced(text, "input") or _LINE["input"].findall(text)]
    messages = fenced(text, "message") or _LINE["message"].findall(text)
    if not given:
        lines = text.splitlines()
        calls = [(number, call) for number, line in enumerate(lines) if (call := called(line))]
        given = [call for _, call in calls]
        messages = ["\n".join(lines[calls[-1][0] + 1 :])] if calls else []
    if len(given) < inputs:
        return Invalid("no-input", f"{len(given)} of {inputs}")
    return Proposal("induce", program, tuple(given[-inputs:]), messages[0].strip() if messages else "")


def called(line: str) -> str:
    """The arguments of a line that is nothing but a call `f(...)`; empty for any other."""
    line = line.strip()
    if not (line.startswith("f(") and line.endswith(")")):
        return ""
    try:
        call = ast.parse(line, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return line[2:-1].strip() if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""

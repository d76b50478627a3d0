"""Parse a proposer's reply into a proposal, without executing anything.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3 and appendix) and its code.

A reply is parsed by fenced blocks (```python, ```input, ```message), by lines (`# Input: ...`, `# Message: ...`), or
bare, as tiny models write: the program, then calls of `f` on lines of their own.

Differences from the original: if the prompt requires tags, the text in the tags is parsed, in the same ways as a reply
without tags. There, replies of seeding and of training are parsed differently.
"""

import ast
import re
from dataclasses import dataclass, field

from proofmill.selfplay_tasks.program_text import EntryRule, Part, Unfit, normalize
from proofmill.selfplay_tasks.tasks import Invalid, TaskName
from proofmill.text.fences import answer, find_fenced

INPUTS = 10  # inputs of an induction, as published
_LINE = {
    name: re.compile(rf"^[ \t]*#[ \t]*{name}[ \t]*:[ \t]*(.+)$", re.IGNORECASE | re.MULTILINE)
    for name in ("input", "message")
}
_INPUT = re.compile(r"^[ \t]*(?:```|#[ \t]*input[ \t]*:)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Normal:
    """The normal form of programs (programs.normalize), and whether a program may contain its own input."""

    entry: EntryRule = "f-or-first"
    drop: frozenset[Part] = field(default_factory=frozenset)
    one_function: bool = False
    holds_input: bool = True


@dataclass(frozen=True)
class Proposal:
    """A program with one input, or with the inputs and the message of an induction; not validated yet."""

    kind: TaskName
    program: str
    inputs: tuple[str, ...]
    message: str = ""
    proposed: str = ""  # the part of the program that the proposer wrote; empty if that is all of it


def parse(
    kind: TaskName,
    reply: str,
    program: str = "",
    inputs: int = INPUTS,
    tags: bool = True,
    normal: Normal | None = None,
) -> Proposal | Invalid:
    """Parse the proposal of a reply. An induction is for `program`, with the last `inputs` inputs of the reply.

    Without `tags` the full reply is parsed, as in seeding from a model that was not trained to write tags.
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
        source = normalize(source, normal.entry, normal.drop, normal.one_function)
    except Unfit as unfit:
        return Invalid(unfit.reason, unfit.detail)
    if not call or (call in source and not normal.holds_input):
        return Invalid("holds-input" if call else "no-input")
    return Proposal(kind, source, (call,))


def _program_and_input(text: str) -> tuple[str, str]:
    """Return the first program and the first input of a text; each empty if missing."""
    programs, inputs = find_fenced(text, "python", ""), find_fenced(text, "input") or _LINE["input"].findall(text)
    if programs or inputs:
        source = programs[0] if programs else _INPUT.split(text)[0]
        return source.strip("\n"), inputs[0].strip() if inputs else ""
    lines = text.rstrip().splitlines()
    call = call_arguments(lines[-1]) if lines else ""
    return "\n".join(lines[:-1] if call else lines).strip("\n"), call


def _induction(text: str, program: str, inputs: int) -> Proposal | Invalid:
    input_texts = [each.strip() for each in find_fenced(text, "input") or _LINE["input"].findall(text)]
    messages = find_fenced(text, "message") or _LINE["message"].findall(text)
    if not input_texts:
        lines = text.splitlines()
        calls = [(number, call) for number, line in enumerate(lines) if (call := call_arguments(line))]
        input_texts = [call for _, call in calls]
        messages = ["\n".join(lines[calls[-1][0] + 1 :])] if calls else []
    if len(input_texts) < inputs:
        return Invalid("no-input", f"{len(input_texts)} of {inputs}")
    if not messages:
        return Invalid("no-message")
    return Proposal("induce", program, tuple(input_texts[-inputs:]), messages[0].strip())


def call_arguments(line: str) -> str:
    """Return the arguments of a line that is a call `f(...)`; empty for any other line."""
    line = line.strip()
    if not (line.startswith("f(") and line.endswith(")")):
        return ""
    try:
        call = ast.parse(line, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return line[2:-1].strip() if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""

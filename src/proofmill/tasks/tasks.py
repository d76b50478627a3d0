"""Tasks of self-play: a program, its inputs and what it makes of them, with one part hidden from the solver.

    deduce    program, input   -> output       abduce   program, output                -> an input that gives it
    error     program, input   -> exception    induce   half of the pairs, a message   -> a program for all of them

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.2); `error` is an option of its code. The entry function of
every program is called `f`. Values are Python literals as `sandbox/values.py` writes them, inputs the arguments of a
call as they were written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from proofmill.schema.ids import digest

TaskName = Literal["deduce", "abduce", "induce", "error"]
Role = Literal["propose", "solve"]
TASKS: tuple[TaskName, ...] = get_args(TaskName)
ROLES: tuple[Role, ...] = get_args(Role)
NO_ERROR = "NoError"  # the answer to an `error` task whose program ends well

REASONS = {
    "format": "The reply has no answer in its tags.",
    "no-program": "The answer has no program.",
    "no-input": "The answer has no input, or fewer than an induction needs.",
    "syntax": "The program cannot be parsed.",
    "no-function": "The program defines no function.",
    "many-functions": "The program defines more than one function, and the entry allows only one.",
    "no-parameter": "The function `f` has no parameter.",
    "bad-input": "The input is no list of arguments that are written out.",
    "holds-input": "The program contains its own input, and the entry does not allow it.",
    "unshowable": "A prompt cannot show the program, input or message as it is: it has a fence, a tag or a control token.",
    "tells": "The message to the solver contains a program.",
    "too-long": "The program, an input or the message is longer than is allowed.",
    "forbidden": "The program imports a forbidden module or reaches for the interpreter.",
    "keyword": "The program has a word that the entry forbids.",
    "composite": "The program does not call all functions it was given, changes one, or calls it with what is not its own.",
    "raised": "The program raises an exception.",
    "timeout": "The program takes too long.",
    "memory": "The program takes too much memory.",
    "output": "The program prints too much.",
    "crashed": "The program ends its process.",
    "refused": "The sandbox does not run the program, or its value is no plain data or too long.",
    "differs": "Two executions differ: the program depends on chance, time, hash seed or surroundings.",
}  # fmt: skip


@dataclass(frozen=True)
class Invalid:
    """Why there is no task: one of REASONS, and what was found."""

    reason: str
    detail: str = ""

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"a task is invalid because of {self.reason!r}; expected one of {', '.join(REASONS)}.")


@dataclass(frozen=True)
class Task:
    """A valid task. `input` and `output` are empty for `induce`, which has `inputs` and `outputs` and maybe a message."""

    kind: TaskName
    program: str  # what runs and is shown, functions it was given included
    input: str = ""
    output: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    message: str = ""
    step: int = 0  # the training step that proposed it; 0 for a seed
    written: str = ""  # the part of the program that its proposer wrote; empty where that is all of it

    @property
    def id(self) -> str:
        """Stands for what the task is, whoever proposed it and when."""
        return digest(self.kind, self.program, self.input, self.output, self.inputs, self.outputs, self.message)

    @property
    def own(self) -> str:
        """The program without the functions that its proposer was given."""
        return self.written or self.program

    @property
    def shown(self) -> int:
        """How many pairs an induction shows: the first half, rounded down."""
        return len(self.inputs) // 2

    def row(self) -> dict[str, Any]:
        """The task as plain data."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"id": self.id, **values, "inputs": list(self.inputs), "outputs": list(self.outputs)}


def from_row(row: Mapping[str, Any]) -> Task:
    """The task of plain data; what `row` gives besides is left out."""
    values = {field.name: row[field.name] for field in fields(Task) if field.name in row}
    for name in ("inputs", "outputs"):
        values[name] = tuple(values.get(name) or ())
    return Task(**values)

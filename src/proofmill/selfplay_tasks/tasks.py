"""Tasks of self-play: a program, its inputs and its outputs, with one part hidden from the solver.

    deduce    program, input   -> output       abduce   program, output                -> an input that gives it
    error     program, input   -> exception    induce   half of the pairs, a message   -> a program for all of them

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.2); `error` is an option of its code. The entry function of
every program is called `f`. Values are Python literals as `sandbox/values.py` writes them. Inputs are the arguments of
a call as the proposer wrote them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from proofmill.schema.ids import digest

TaskName = Literal["deduce", "abduce", "induce", "error"]
Role = Literal["propose", "solve"]
TASKS: tuple[TaskName, ...] = get_args(TaskName)
ROLES: tuple[Role, ...] = get_args(Role)
NO_ERROR = "NoError"  # the answer to an `error` task whose program raises no exception

REASONS = {
    "format": "The reply has no answer in its tags.",
    "no-program": "The answer has no program.",
    "no-input": "The answer has no input, or fewer than an induction needs.",
    "no-message": "The answer has inputs in blocks or comments, and no message for an induction.",
    "syntax": "The program cannot be parsed.",
    "no-function": "The program defines no function.",
    "many-functions": "The program defines more than one function, and the entry allows only one.",
    "no-parameter": "The function `f` has no parameter.",
    "bad-input": "The input is not a list of literal arguments.",
    "holds-input": "The program contains its own input, and the entry does not allow it.",
    "unshowable": "The program, input or message contains a fence, a tag or a control token, so a prompt cannot show it.",
    "tells": "The message to the solver contains a program.",
    "too-long": "The program, an input or the message is longer than allowed.",
    "forbidden": "The program imports a forbidden module or uses a name that leads to the interpreter.",
    "keyword": "The program contains a word that the entry forbids.",
    "composite": "The program does not call all functions it was given, redefines one, or passes it a name from outside `f`.",
    "raised": "The program raises an exception.",
    "timeout": "The program takes too long.",
    "memory": "The program takes too much memory.",
    "output": "The program prints too much.",
    "crashed": "The program ends its process.",
    "refused": "The sandbox does not run the program, or its value is too long or not plain data.",
    "differs": "Two executions differ: the program depends on randomness, time, the hash seed or its environment.",
}  # fmt: skip


@dataclass(frozen=True)
class Invalid:
    """The reason why a proposal is not a task: one of REASONS, with a detail."""

    reason: str
    detail: str = ""

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"invalid task: reason {self.reason!r}; expected one of {', '.join(REASONS)}.")


@dataclass(frozen=True)
class Task:
    """A valid task. For `induce`, `input` and `output` are empty; it has `inputs`, `outputs` and maybe a message."""

    kind: TaskName
    program: str  # the full program that runs and is shown, with the functions that it must call
    input: str = ""
    output: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    message: str = ""
    step: int = 0  # the training step that proposed it; 0 for a seed
    proposed: str = ""  # the part of the program that the proposer wrote; empty if that is all of it

    @property
    def id(self) -> str:
        """A digest of the content, independent of proposer and step."""
        return digest(self.kind, self.program, self.input, self.output, self.inputs, self.outputs, self.message)

    @property
    def own(self) -> str:
        """The part of the program that the proposer wrote."""
        return self.proposed or self.program

    @property
    def shown(self) -> int:
        """The number of pairs that an induction shows: the first half, rounded down."""
        return len(self.inputs) // 2

    def row(self) -> dict[str, Any]:
        """Return the task as plain data."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"id": self.id, **values, "inputs": list(self.inputs), "outputs": list(self.outputs)}


def from_row(row: Mapping[str, Any]) -> Task:
    """Build a task from a row; other fields of the row are ignored."""
    values = {field.name: row[field.name] for field in fields(Task) if field.name in row}
    for name in ("inputs", "outputs"):
        values[name] = tuple(values.get(name) or ())
    return Task(**values)

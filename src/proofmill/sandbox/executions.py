"""What is run and what comes of it: a program with a call or an input, and its value or the reason why there is none."""

import os
import signal
from dataclasses import dataclass
from functools import partial
from typing import Literal

from proofmill.sandbox import values
from proofmill.sandbox.jails import PATIENCE, Limits, Reply

Status = Literal["ok", "raised", "timeout", "memory", "output", "crashed", "refused"]
Tier = Literal["monty", "python"]


@dataclass(frozen=True)
class Execution:
    """A program, and an expression that is evaluated after it; without one the value is what the program prints.

    `longest` is the greatest length of the value in characters, where it is not the executor's.
    """

    program: str
    call: str = ""
    stdin: str = ""
    longest: int | None = None


@dataclass(frozen=True)
class Result:
    """What became of an execution.

    `value` is a Python literal as `values.write` writes it, empty unless `ok`. `error` is the exception's class and text,
    or the reason; `line` the line of the program where it was raised, 0 where unknown. `seconds` is processor time.

    `raised`: by an exception, of the kinds in Python. `timeout`, `memory`, `output`: it reached a limit. `crashed`: its
    process ended before it gave a value. `refused`: its value is no plain data or too long.
    """

    status: Status
    value: str = ""
    error: str = ""
    tier: Tier = "python"
    seconds: float = 0.0
    line: int = 0


def without_reply(fault: Exception, limits: Limits) -> Result:
    if isinstance(fault, TimeoutError):
        return Result("timeout", error=f"more than {PATIENCE} times {limits.seconds:g} s by the clock")
    return Result("crashed", error=f"its jail died twice ({fault})")


def of_reply(reply: Reply, limits: Limits, longest: int) -> Result:
    """What a reply says. Its text is the program's own, and is believed to be no more than a value or an error."""
    result = partial(Result, tier="python", seconds=reply.seconds)
    if reply.status == "o":
        return result("output", error="more was printed than is allowed")
    if os.WIFSIGNALED(reply.ended):
        number = os.WTERMSIG(reply.ended)
        if number in (signal.SIGPROF, signal.SIGXCPU) or (number == signal.SIGKILL and reply.seconds >= limits.seconds):
            return result("timeout", error=f"more than {limits.seconds:g} s of processor time")
        return result("crashed", error=f"its process was ended by {signal.Signals(number).name}")
    if reply.ended or reply.status not in "verm" or not reply.status:
        return result("crashed", error="its process ended before it gave a value")
    if reply.status == "v":
        try:
            value = values.write(values.parse(reply.text, 8 * longest + 1000))
        except ValueError as error:
            return result("refused", error=str(error))
        if len(value) > longest:
            return result("refused", error=f"a value over {longest:,} characters")
        return result("ok", value)
    if reply.status == "r":
        return result("refused", error=reply.text)
    line, _, said = reply.text.partition(" ")
    return result("memory" if reply.status == "m" else "raised", error=said, line=int(line) if line.isdecimal() else 0)

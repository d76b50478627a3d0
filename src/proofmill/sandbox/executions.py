"""What is run and what comes of it: a program with a call or an input, and its value or the reason why there is none."""

import os
import re
import signal
from dataclasses import dataclass
from functools import partial
from typing import Literal

from proofmill.sandbox import values
from proofmill.sandbox.jails import GRACE, OUTPUT, PATIENCE, Limits, Reply

Status = Literal["ok", "raised", "timeout", "memory", "output", "crashed", "refused"]


@dataclass(frozen=True)
class Execution:
    """A program, and an expression that is evaluated after it; without one the value is what the program prints.

    `megabytes` is its memory, where it is not the executor's.
    """

    program: str
    call: str = ""
    stdin: str = ""
    megabytes: float | None = None


@dataclass(frozen=True)
class Result:
    """What became of an execution.

    `value` is a Python literal as `values.write` writes it, empty unless `ok`; `printed` what was printed, where that is
    the value. `error` is the exception's class and text, or the reason; `line` the line of the program where it was
    raised, 0 where unknown. `seconds` is processor time.

    `raised`: by an exception, of the kinds in Python. `timeout`, `memory`, `output`: it reached a limit. `crashed`: its
    process ended before it gave a value. `refused`: its value is no plain data or too long.
    """

    status: Status
    value: str = ""
    error: str = ""
    seconds: float = 0.0
    line: int = 0
    printed: str = ""


def without_reply(fault: Exception, limits: Limits) -> Result:
    if isinstance(fault, TimeoutError):
        return Result("timeout", error=f"more than {PATIENCE} times {limits.seconds:g} s and {GRACE:g} s by the clock")
    return Result("crashed", error=f"its jail died twice ({fault})")


def of_reply(reply: Reply, limits: Limits) -> Result:
    """Read a reply: any bytes give a result. They are the program's own, and are believed to be a value or an error."""
    result = partial(Result, seconds=reply.seconds)
    if reply.data[:1] == b"o" or len(reply.data) > OUTPUT + 1:
        return result("output", error="more was printed than is allowed")
    if os.WIFSIGNALED(reply.ended):
        number = os.WTERMSIG(reply.ended)
        if number in (signal.SIGPROF, signal.SIGXCPU) or (number == signal.SIGKILL and reply.seconds >= limits.seconds):
            return result("timeout", error=f"more than {limits.seconds:g} s of processor time")
        return result("crashed", error=f"its process was ended by signal {number}")
    status, data = reply.data[:1], reply.data[1:]
    if status == b"p" and not reply.ended:
        printed = data.decode("utf-8", "surrogateescape")
        return result("ok", repr(printed), printed=printed)
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        status, text = b"", ""
    if reply.ended or status not in (b"v", b"e", b"r", b"m"):
        return result("crashed", error="its process ended before it gave a value")
    if status == b"v":
        try:
            value = values.write(values.parse(text, 8 * limits.longest + 1000))
        except ValueError as error:
            return result("refused", error=str(error))
        if len(value) > limits.longest:
            return result("refused", error=f"a value over {limits.longest:,} characters")
        return result("ok", value)
    if status == b"r":
        return result("refused", error=text or "its value is no plain data")
    line, _, said = text.partition(" ")
    at = int(line) if re.fullmatch("[0-9]{1,9}", line) else 0
    return result("memory" if status == b"m" else "raised", error=said or "an error without a name", line=at)

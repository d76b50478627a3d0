"""A program to run, with a call or an input, and its result: a value, or the reason why it has no value."""

import os
import re
import signal
from dataclasses import dataclass
from functools import partial
from typing import Literal

from proofmill.sandbox import values
from proofmill.sandbox.jails import GRACE, OUTPUT, PATIENCE, Limits, ProcessResult

Status = Literal["ok", "raised", "timeout", "memory", "output", "crashed", "refused"]


@dataclass(frozen=True)
class Execution:
    """A program, and an expression that is evaluated after it; without one the value is the program's output.

    `megabytes` overrides the executor's memory limit. Set `trusted` if the code is the problem's own and may hold expected
    values: it then runs in a jail that runs no other programs.
    """

    program: str
    call: str = ""
    stdin: str = ""
    megabytes: float | None = None
    trusted: bool = False


@dataclass(frozen=True)
class Result:
    """The result of an execution.

    `value` is a Python literal as `values.write` writes it, empty unless the status is `ok`. `printed` is the output, if
    the output is the value. `error` is the exception's class and text, or the reason. `line` is the line of the program
    that raised it, 0 if unknown. `seconds` is CPU time.

    Status: `raised`: a Python exception. `timeout`, `memory`, `output`: a limit was reached. `crashed`: the process ended
    before it returned a value. `refused`: the value is not plain data, or is too long.
    """

    status: Status
    value: str = ""
    error: str = ""
    seconds: float = 0.0
    line: int = 0
    printed: str = ""


def describe_fault(fault: Exception, limits: Limits) -> Result:
    """Return the result of a program whose jail timed out or died."""
    if isinstance(fault, TimeoutError):
        return Result("timeout", error=f"more than {PATIENCE} times {limits.seconds:g} s and {GRACE:g} s by the clock")
    return Result("crashed", error=f"its jail died twice ({fault})")


def parse_reply(reply: ProcessResult, limits: Limits) -> Result:
    """Parse a reply into a result. Its bytes come from the program and are trusted only as its own value or error."""
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
    line, _, message = text.partition(" ")
    at = int(line) if re.fullmatch("[0-9]{1,9}", line) else 0
    return result("memory" if status == b"m" else "raised", error=message or "an error without a name", line=at)

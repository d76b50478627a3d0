"""Checks: asserts about a function, as in HumanEval and MBPP, executed out of reach of the tested program.

    for checked in Checks(executor).check([(text, check), ...]):  # in order

A check is trusted, the tested program is not, so they never share a process:
1. The check runs with the reference, and the arguments of its calls are recorded.
2. The tested program is called with these arguments and returns plain data.
3. The check runs again, with a function that returns the recorded data.

From: HumanEval (Chen et al. 2021, arXiv 2107.03374, section 2.3) and EvalPlus (Liu et al. 2023, arXiv 2305.01210).

Differences from the original:
1. There, program and asserts are one script, so an object equal to everything, `sys.exit(0)` or a changed builtin
   passes. Here a program can only return values.
2. If the reference does not pass its own check, the result of every other program is unknown.
3. A program must return plain data (values.py). It is called with the arguments that the check gave the reference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proofmill.sandbox import values
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.sandbox.extract import code_of

BATCH = 256  # programs in flight at a time


@dataclass(frozen=True)
class SandboxCheck:
    """Asserts about `function`: their source, the code that precedes every program, and a program that passes."""

    check: str
    function: str
    setup: str
    reference: str


@dataclass(frozen=True)
class Checked:
    """The result of a check. `passed` is None if the check itself is unsound; a text may hold no program."""

    passed: bool | None
    detail: str = ""  # the fault of the program, or of the check
    is_program: bool = True


# Precedes the check, and seeds its random inputs. Recursive calls of the function are not recorded.
_RECORD = """
import copy as _check_copy
import random as _check_random
_check_random.seed(0)
_check_calls = []
_check_within = []
_check_reference = {function}
def {function}(*arguments, **named):
    if not _check_within:
        _check_calls.append(_check_copy.deepcopy((arguments, named)))
    _check_within.append(1)
    try:
        return _check_reference(*arguments, **named)
    finally:
        _check_within.pop()
"""
_REPLAY = """
import random as _check_random
_check_random.seed(0)
_check_values = {values}
def {function}(*arguments, **named):
    return _check_values.pop(0)
"""


class Checks:
    """Runs programs through checks with an open executor.

    All values of a check together must not exceed the executor's `longest`.
    """

    def __init__(self, executor: Executor):
        self.executor = executor
        self._calls: dict[
            SandboxCheck, str | None
        ] = {}  # the calls of a check, as one expression; None if it is unsound
        self._faults: dict[SandboxCheck, str] = {}

    def check(self, pairs: Sequence[tuple[str, SandboxCheck]]) -> Iterator[Checked]:
        """Yield whether the program in each text passes its check, in order."""
        for start in range(0, len(pairs), BATCH):
            yield from self._batch(pairs[start : start + BATCH])

    def _batch(self, pairs: Sequence[tuple[str, SandboxCheck]]) -> Iterator[Checked]:
        self._prepare([check for check in dict.fromkeys(check for _, check in pairs) if check not in self._calls])
        codes = [code_of(text) for text, _ in pairs]
        tried = [
            (check, code)
            for (_, check), code in zip(pairs, codes, strict=True)
            if code is not None and self._calls[check] is not None
        ]
        faults = dict(zip(tried, self._run(tried), strict=True))
        for (_, check), code in zip(pairs, codes, strict=True):
            if self._calls[check] is None:
                yield Checked(None, self._faults[check])
            elif code is None:
                yield Checked(False, "no closed block of Python", is_program=False)
            else:
                yield Checked(not faults[check, code], faults[check, code])

    def _prepare(self, checks: Sequence[SandboxCheck]) -> None:
        """Record the calls of each check, and test it with its own reference."""
        recorded = self.executor.run([_recording(check) for check in checks])
        for check, result in zip(checks, recorded, strict=True):
            self._calls[check], fault = _call_list(check, result)
            if fault:
                self._faults[check] = f"the check does not run with its own reference: {fault}"
        sound = [(check, check.reference) for check in checks if self._calls[check] is not None]
        for (check, _), fault in zip(sound, self._run(sound), strict=True):
            if fault:
                self._calls[check] = None
                self._faults[check] = f"the check's own reference does not pass it: {fault}"

    def _run(self, programs: Sequence[tuple[SandboxCheck, str]]) -> list[str]:
        """Run each program through its check and return its fault; empty if it passes."""
        results = list(self.executor.run([_trial(check, code, str(self._calls[check])) for check, code in programs]))
        faults, replays = [_fault(result) for result in results], dict[int, Execution]()
        for n, ((check, _), result) in enumerate(zip(programs, results, strict=True)):
            try:
                replays |= {} if faults[n] else {n: _replay(check, values.source(result.value))}
            except ValueError as error:
                faults[n] = f"refused: {error}"
        for n, result in zip(replays, self.executor.run(replays.values()), strict=True):
            faults[n] = _fault(result)
        return faults


def _join(*sources: str) -> str:
    return "\n\n".join(source for source in sources if source.strip())


def _recording(check: SandboxCheck) -> Execution:
    record = _RECORD.format(function=check.function)
    return Execution(_join(check.setup, check.reference, record, check.check), "_check_calls", trusted=True)


def _trial(check: SandboxCheck, code: str, calls: str) -> Execution:
    return Execution(_join(check.setup, code), calls)


def _replay(check: SandboxCheck, results: str) -> Execution:
    replay = _REPLAY.format(function=check.function, values=results)
    return Execution(_join(check.setup, check.reference, replay, check.check), "len(_check_values)", trusted=True)


def _call_list(check: SandboxCheck, result: Result) -> tuple[str | None, str]:
    """Return the list of calls that a check made, as an expression, or None and the fault."""
    if result.status != "ok":
        unwritten = f"`{check.function}` is called with {result.error}"
        return None, unwritten if result.status == "refused" else _fault(result)
    calls = values.parse(result.value)
    if not calls:
        return None, f"`{check.function}` is never called"
    try:
        both = [[values.source(values.write(part)) for part in call] for call in calls]
    except ValueError as error:
        return None, f"`{check.function}` is called with {error}"
    return f"[{', '.join(f'{check.function}(*{positional}, **{named})' for positional, named in both)}]", ""


def _fault(result: Result) -> str:
    return "" if result.status == "ok" else f"{result.status}: {result.error}"[:300]

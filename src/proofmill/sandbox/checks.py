"""Checks: asserts about a function, as HumanEval and MBPP have them, made where no program that is tried can reach them.

    for checked in Checks(executor).check([(text, check), ...]):  # in order

A check is trusted, what it is about is not. So they never share a process: the check runs with the reference, and what
it calls the function with is written down; the program that is tried is called with that, and gives plain data; the
check runs again, with a function that gives back these.

From: HumanEval (Chen et al. 2021, arXiv 2107.03374, section 2.3) and EvalPlus (Liu et al. 2023, arXiv 2305.01210).

How we differ:
1. There, program and asserts are one script, so that an object equal to everything, `sys.exit(0)` or a changed builtin
   passes. Here a program can only give values.
2. A check that its own reference does not pass here says nothing of others: whether they pass is unknown.
3. What a program returns must be plain data (values.py), and it is called with what the check gave the reference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proofmill.sandbox import values
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.sandbox.programs import code_of

BATCH = 256  # programs that are under way together


@dataclass(frozen=True)
class Check:
    """Asserts about `function`: the source that makes them, what stands before every program, and one that passes."""

    check: str
    function: str
    setup: str
    reference: str


@dataclass(frozen=True)
class Checked:
    """Whether a program passes its check; None where the check itself is unsound. A text may hold no program."""

    passed: bool | None
    detail: str = ""  # what is wrong with the program, or with the check
    is_program: bool = True


# Before the check, whose random inputs are the same each time. Only calls from outside the function are the check's.
_RECORD = """
import random as _check_random
_check_random.seed(0)
_check_calls = []
_check_within = []
_check_reference = {function}
def {function}(*arguments, **named):
    if not _check_within:
        _check_calls.append(repr((arguments, named)))
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
    """Runs programs through checks with an open executor, whose `longest` all values of a check together must not exceed."""

    def __init__(self, executor: Executor):
        self.executor = executor
        self._calls: dict[Check, str | None] = {}  # what a check asks for, as one expression; None where it is unsound
        self._faults: dict[Check, str] = {}

    def check(self, pairs: Sequence[tuple[str, Check]]) -> Iterator[Checked]:
        """Whether the program in each text passes its check, in order."""
        for start in range(0, len(pairs), BATCH):
            yield from self._batch(pairs[start : start + BATCH])

    def _batch(self, pairs: Sequence[tuple[str, Check]]) -> Iterator[Checked]:
        self._prepare([check for check in dict.fromkeys(check for _, check in pairs) if check not in self._calls])
        codes = [code_of(text) for text, _ in pairs]
        tried = [
            (check, code)
            for (_, check), code in zip(pairs, codes, strict=True)
            if code is not None and self._calls[check] is not None
        ]
        faults = dict(zip(tried, self._tried(tried), strict=True))
        for (_, check), code in zip(pairs, codes, strict=True):
            if self._calls[check] is None:
                yield Checked(None, self._faults[check])
            elif code is None:
                yield Checked(False, "no closed block of Python", is_program=False)
            else:
                yield Checked(not faults[check, code], faults[check, code])

    def _prepare(self, checks: Sequence[Check]) -> None:
        """Find out what each check asks for, and whether its own reference passes it."""
        recorded = self.executor.run([_recording(check) for check in checks])
        for check, result in zip(checks, recorded, strict=True):
            self._calls[check], fault = _asked(check, result)
            if fault:
                self._faults[check] = f"the check does not run with its own reference: {fault}"
        sound = [(check, check.reference) for check in checks if self._calls[check] is not None]
        for (check, _), fault in zip(sound, self._tried(sound), strict=True):
            if fault:
                self._calls[check] = None
                self._faults[check] = f"the check's own reference does not pass it: {fault}"

    def _tried(self, programs: Sequence[tuple[Check, str]]) -> list[str]:
        """Why each program does not pass its check; empty where it does."""
        given = list(self.executor.run([_trial(check, code, str(self._calls[check])) for check, code in programs]))
        ran = [n for n, result in enumerate(given) if result.status == "ok"]
        replays = self.executor.run([_replay(programs[n][0], given[n].value) for n in ran])
        faults = [_fault(result) for result in given]
        for n, result in zip(ran, replays, strict=True):
            faults[n] = _fault(result)
        return faults


def _joined(*sources: str) -> str:
    return "\n\n".join(source for source in sources if source.strip())


def _recording(check: Check) -> Execution:
    record = _RECORD.format(function=check.function)
    return Execution(_joined(check.setup, check.reference, record, check.check), "_check_calls")


def _trial(check: Check, code: str, calls: str) -> Execution:
    return Execution(_joined(check.setup, code), calls)


def _replay(check: Check, given: str) -> Execution:
    replay = _REPLAY.format(function=check.function, values=given)
    return Execution(_joined(check.setup, check.reference, replay, check.check), "len(_check_values)")


def _asked(check: Check, result: Result) -> tuple[str | None, str]:
    """The list of calls that a check made, as an expression, or what is wrong."""
    if result.status != "ok":
        return None, _fault(result)
    try:
        calls = [values.parse(call) for call in values.parse(result.value)]
    except ValueError as error:
        return None, f"`{check.function}` is called with {error}"
    if not calls:
        return None, f"`{check.function}` is never called"
    starred = (f"{check.function}(*{values.write(given)}, **{values.write(named)})" for given, named in calls)
    return f"[{', '.join(starred)}]", ""


def _fault(result: Result) -> str:
    return "" if result.status == "ok" else f"{result.status}: {result.error}"[:300]

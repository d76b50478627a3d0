"""Run the program in a text against a problem's tests, and compute the share passed.

    with Sandbox() as sandbox:
        for ran in sandbox.check(pairs):  # of (text, answer); the answer is the tests, as JSON
            ...

From: the code rewards of open-r1 (`code`, `binary_code`: the share of tests that the last ```python block passes).

Differences from the original:
1. Programs are isolated, and values are compared out of their reach (executor.py). open-r1 runs programs at a service,
   or in an ordinary process.
2. The time limit of a test is CPU seconds, enforced by the kernel. With a wall-clock limit (5 s in open-r1) a program
   fails on a busy machine.
3. The same program gets the same share: `random` is seeded, the hash seed is 0, and `sleep` returns immediately.

cases.py decides when a test is passed, extract.py extracts the program of a text. Every test is a separate run.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from proofmill.sandbox import checkers, values
from proofmill.sandbox.cases import Case, cases_of
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.sandbox.extract import SETUPS, code_of
from proofmill.schema.errors import SandboxError

Status = Literal["ok", "no-code", "failed", "undecided", "unsound"]
SECONDS = 5.0  # CPU time of one test (open-r1: 5 s by the wall clock)
MEGABYTES = 256.0  # of memory for one test


@dataclass(frozen=True)
class Ran:
    """The result of a program.

    Status: `ok`: every test ran to completion. `failed`: some did not, and count as not passed. `no-code`: no program.
    `undecided`: a checker does not decide about an output. `unsound`: a checker does not accept its own reference output.
    """

    share: float | None  # of tests passed; None if a checker is undecided or unsound
    passed: int
    of: int
    status: Status
    detail: str = ""  # the first failure


_SUM = '[{"input": "1 2\\n", "output": "3\\n"}, {"input": "5 -7\\n", "output": "-2\\n"}]'
CANARIES: tuple[tuple[str, str, Status, float], ...] = (  # program, tests, status, share
    ("print(sum(map(int, input().split())))", _SUM, "ok", 1.0),
    ("import sys\na, b = map(int, sys.stdin.read().split())\nsys.stdout.write(f'{abs(a + b)}\\n')", _SUM, "ok", 0.5),
    ("print(sum(map(int, input().split()))", _SUM, "failed", 0.0),
    ("def f(a, b):\n    return {a: b}", '[{"call": "f(1, [2.5])", "result": "{1: [2.5]}"}]', "ok", 1.0),
    (
        "class f:\n    def __eq__(self, other):\n        return True",
        '[{"call": "f() == 3", "result": "True"}]',
        "failed",
        0.0,
    ),
)


class Sandbox:
    """A context manager: inside it, `check` runs programs against tests in worker processes.

    Limits of one test: `seconds` of CPU time, `megabytes` of memory. `workers` defaults to one for each CPU that this
    process may use. Raises SandboxError on entry if a known program gets another result than expected.
    """

    def __init__(self, seconds: float = SECONDS, megabytes: float = MEGABYTES, workers: int | None = None):
        self.executor = Executor(seconds, megabytes, workers, longest=values.LONGEST)

    def __enter__(self) -> "Sandbox":
        with ExitStack() as opened:
            opened.enter_context(self.executor)
            self._expect_known_answers()
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._opened.close()

    def _expect_known_answers(self) -> None:
        runs = self.check([(f"```python\n{code}\n```", answer) for code, answer, _, _ in CANARIES])
        for (code, _, status, share), ran in zip(CANARIES, runs, strict=True):
            if (ran.status, ran.share) != (status, share):
                raise SandboxError(
                    f"sandbox: the program `{code}` gets {ran.status} with the share {ran.share} ({ran.detail}); expected "
                    f"{status} with {share}. Fix the installation of Python."
                )

    def check(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Ran]:
        """Yield the result of the program in each (text, answer), in order.

        Raises ValueError immediately if an answer holds no tests.
        """
        programs = [(code_of(text), cases_of(answer)) for text, answer in pairs]
        tests = [(code, case) for code, cases in programs if code is not None for case in cases]
        first = self.executor.run(chain.from_iterable(_first(code, case) for code, case in tests))
        return self._checks(programs, first)

    def _checks(
        self, programs: Sequence[tuple[str | None, tuple[Case, ...]]], first: Iterator[Result]
    ) -> Iterator[Ran]:
        for code, cases in programs:
            if code is None:
                yield Ran(0.0, 0, len(cases), "no-code", "no closed block of Python")
                continue
            results = [self._decide(code, case, [next(first) for _ in _first(code, case)]) for case in cases]
            fault = checkers.find_fault(cases, self.executor)
            yield Ran(None, 0, len(cases), "unsound", fault) if fault else self._judge(cases, results)

    def _judge(self, cases: Sequence[Case], results: Sequence[Result]) -> Ran:
        """Count the tests passed, given the result of each."""
        both = list(zip(cases, results, strict=True))
        checked = iter(checkers.decide([(c, r) for c, r in both if c.checker and r.status == "ok"], self.executor))
        passed, details = 0, dict[Status, str]()  # the first of each status
        for n, (case, result) in enumerate(both, 1):
            if result.status != "ok":
                details.setdefault("failed", f"test {n}: {describe(result, SETUPS.get(case.setup or '', ''))}")
                continue
            outcome = next(checked) if case.checker else case.passes(result)
            passed += outcome is True
            if isinstance(outcome, str):
                details.setdefault("undecided", f"test {n}: its checker {outcome}")
        if "undecided" in details:
            return Ran(None, 0, len(cases), "undecided", details["undecided"])
        return Ran(passed / len(cases), passed, len(cases), "failed" if details else "ok", details.get("failed", ""))

    def _decide(self, code: str, case: Case, results: list[Result]) -> Result:
        """Return the result of a test, given the results of its parts."""
        if case.question is None:
            return results[0]
        if len(results) > 1 and all(map(_is_own, results)):  # the program's own `==` decides, as no other can
            return next(self.executor.run([_execution(code, case, case.call)]))
        if all(result.status == "ok" for result in results):
            parts = [result.value for result in results]
            if (truth := case.question.decide(parts)) is not None:
                return Result("ok", repr(truth))
            try:
                condition = case.question.fill(parts)
            except ValueError as error:
                return Result("refused", error=str(error))
            numpy = "\nimport numpy, numpy as np" if re.search(r"\b(np|numpy)\b", condition) else ""
            return next(self.executor.run([Execution(f"import math{numpy}", condition, trusted=True)]))
        return next(result for result in results if result.status != "ok")


def _is_own(result: Result) -> bool:
    """Return whether a value is an instance of a class of the program."""
    return result.status == "refused" or (
        result.status == "ok" and bool(getattr(values.parse(result.value), "fields", ()))
    )


def _first(code: str, case: Case) -> list[Execution]:
    """Return the runs of the program itself for a test."""
    return [_execution(code, case, call) for call in (case.question.parts if case.question else (case.call,))]


def _execution(code: str, case: Case, call: str) -> Execution:
    """Build the run of a call. It contains nothing of the expected result."""
    return Execution(SETUPS.get(case.setup or "", "") + code, call, case.input or "", case.megabytes)


def describe(result: Result, before: str = "") -> str:
    """Return the reason why a test did not run to completion; line numbers exclude the code `before` the program."""
    text = result.error if result.status in ("raised", "memory") else f"{result.status}: {result.error}"
    line = result.line - before.count("\n")
    return text[:200] + (f" (line {line})" if line > 0 else "")

"""Runs the program in a text against a problem's tests, and finds the share passed.

    with Sandbox() as sandbox:
        for ran in sandbox.check(pairs):  # of (text, answer); the answer is the tests, as JSON
            ...

From: the code rewards of open-r1 (`code`, `binary_code`: the share of tests that the last ```python block passes).

How we differ:
1. What a program does reaches nothing outside, and a value is compared where no program can change it (executor.py).
   open-r1 runs its programs at a service, or in an ordinary process.
2. The kernel counts the seconds of a test, as processor time. By the wall clock (5 s in open-r1) a program fails on a
   busy machine.
3. The same program has the same share: `random` begins from one seed, the hash seed is 0, and `sleep` takes no time.

cases.py says when a test is passed, programs.py which program a text has. Every test is a separate run.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from proofmill.sandbox import values
from proofmill.sandbox.cases import Case, cases_of
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.sandbox.programs import SETUPS, code_of
from proofmill.schema.errors import SandboxError

Status = Literal["ok", "no-code", "failed"]
SECONDS = 5.0  # of processor time for one test (open-r1: 5 s by the wall)
MEGABYTES = 256.0  # of memory for one test


@dataclass(frozen=True)
class Ran:
    """The result of a program.

    `ok`: every test ran to its end. `failed`: some tests did not, and count as not passed.
    """

    share: float  # of tests passed
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

    `seconds`: processor time of one test. `megabytes`: memory of one test. `workers`: by default one for each processor
    that this process may use. Raises SandboxError when a known answer gets another result.
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
                    f"sandbox: the program `{code}` is found {ran.status} with the share {ran.share} ({ran.detail}); expected "
                    f"{status} with {share}. Check the installation of Python."
                )

    def check(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Ran]:
        """Yield the result of the program in each (text, answer), in order.

        Raises ValueError at once where an answer holds no tests.
        """
        programs = [(code_of(text), cases_of(answer)) for text, answer in pairs]
        asked = [(code, case) for code, cases in programs if code is not None for case in cases]
        first = self.executor.run(chain.from_iterable(_first(code, case) for code, case in asked))
        return self._checks(programs, first)

    def _checks(self, programs: Sequence[tuple[str | None, Sequence[Case]]], first: Iterator[Result]) -> Iterator[Ran]:
        for code, cases in programs:
            if code is None:
                yield Ran(0.0, 0, len(cases), "no-code", "no closed block of Python")
                continue
            passed, fault = 0, ""
            for n, case in enumerate(cases, 1):
                result = self._answered(code, case, [next(first) for _ in _first(code, case)])
                if result.status != "ok":
                    fault = fault or f"test {n}: {said(result, SETUPS.get(case.setup, ''))}"
                elif case.passed(result):
                    passed += 1
            yield Ran(passed / len(cases), passed, len(cases), "failed" if fault else "ok", fault)

    def _answered(self, code: str, case: Case, results: list[Result]) -> Result:
        """The result of a test, of which the values of its parts are known."""
        if case.question is None:
            return results[0]
        if all(result.status == "ok" for result in results):
            found = [result.value for result in results]
            if (truth := case.question.answered(found)) is not None:
                return Result("ok", repr(truth))
            return next(self.executor.run([Execution("import math", case.question.of(found))]))
        if all(result.status == "refused" for result in results) and len(results) > 1:  # objects of the program's own
            return next(self.executor.run([_asking(code, case, case.call)]))
        return next(result for result in results if result.status != "ok")


def _first(code: str, case: Case) -> list[Execution]:
    """What is asked of the program itself for a test."""
    return [_asking(code, case, call) for call in (case.question.parts if case.question else (case.call,))]


def _asking(code: str, case: Case, call: str) -> Execution:
    """Nothing of what the test expects is in it."""
    return Execution(SETUPS.get(case.setup, "") + code, call, case.stdin, case.megabytes)


def said(result: Result, before: str = "") -> str:
    """Say why a test was not run to its end; lines are counted after what precedes the program."""
    text = result.error if result.status in ("raised", "memory") else f"{result.status}: {result.error}"
    line = result.line - before.count("\n")
    return text[:200] + (f" (line {line})" if line > 0 else "")

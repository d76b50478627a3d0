"""Runs the program in a text against a problem's tests, and finds the share passed or that it cannot be known here.

    with Sandbox() as sandbox:
        for ran in sandbox.check(pairs):  # of (text, answer); the answer is the tests, as JSON
            ...

From: the code rewards of open-r1 (`code`, `binary_code`: the share of tests that the last ```python block passes). The
executor is pydantic-monty, an interpreter of Python in Rust whose programs have no access to files, the network, the
environment or processes.

How we differ:
1. If the sandbox is at fault, the program is not. A test that was not passed says nothing where the interpreter lacks a
   feature of Python, or is known to differ from Python silently: the run is `unsupported` and its share None. open-r1
   counts a missing interpreter or package as 0.
2. The kernel counts the seconds of a test, as processor time. By the wall clock (5 s in open-r1) a program fails on a
   busy machine.
3. The same program has the same share: `random` begins from one seed, and `sleep` takes no time.

cases.py says when a test is passed, _programs.py which program a text has, _prelude.py supplies what the interpreter
lacks, and _unsupported.py tells which failures are the sandbox's. Every test is a separate run. Loops take about three
times as long as in CPython.

Known gap: a lack that the program's own handlers hide is looked for (`_hidden`), but may be missed where the program
hides it in an unusual way.
"""

import math
import os
import resource
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

from proofmill.sandbox._prelude import inputs, prelude
from proofmill.sandbox._programs import Program, Refused, code_of, words
from proofmill.sandbox._unsupported import BUSY, DIED, Fault, doubt, is_lack, is_raised
from proofmill.sandbox.cases import Case, cases_of
from proofmill.schema.errors import SandboxError

Status = Literal["ok", "no-code", "failed", "unsupported"]
SECONDS = 5.0  # of processor time for one test (open-r1: 5 s by the wall)
MEGABYTES = 256.0  # of memory for one test


@dataclass(frozen=True)
class Ran:
    """The result of a program.

    `ok`: every test ran to its end. `failed`: some tests did not, and count as not passed; or the program is not
    Python.
    """

    share: float | None  # of tests passed; None where unknown
    passed: int
    of: int
    status: Status
    detail: str = ""  # the first failure


# -------------------------------------------------------------------------------------------------------- known answers

_SUM = '[{"input": "1 2\\n", "output": "3\\n"}, {"input": "5 -7\\n", "output": "-2\\n"}]'
CANARIES: tuple[tuple[str, str, Status, float | None], ...] = (  # program, tests, status, share
    ("print(sum(map(int, input().split())))", _SUM, "ok", 1.0),
    ("print(sum(abs(int(x)) for x in input().split()))", _SUM, "ok", 0.5),
    ("import sys\na, b = map(int, sys.stdin.read().split())\nsys.stdout.write(f'{a + b}\\n')", _SUM, "ok", 1.0),
    ("a, b = map(int, input().split())\nassert a < b\nprint(a + b)", _SUM, "failed", 0.5),
    ("print(sum(map(int, input().split()))", _SUM, "failed", 0.0),
    ("def f(a, b):\n    return {a: b}", '[{"call": "f(1, [2.5])", "result": "{1: [2.5]}"}]', "ok", 1.0),
    ("import socket\nprint(sum(map(int, input().split())))", _SUM, "unsupported", None),
    ("print(open('/proc/self/environ').read())", _SUM, "failed", 0.0),
    ("def f(n):\n    return f(n + 1)\nprint(f(0))", _SUM, "failed", 0.0),
    ("x = 'x' * 10 ** 13\nprint(sum(map(int, input().split())))", _SUM, "failed", 0.0),
)


# ------------------------------------------------------------------------------------------------------------- the pool

PATIENCE = 12  # wall-clock limit as a multiple of a test's seconds, for a busy machine
_PRINTED = 1 << 16  # characters that a program may print beyond four times the expected output
_FORBIDDEN = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC)


class _Closed(Exception):
    """The sandbox was closed while a program ran."""


class Sandbox:
    """A context manager: inside it, `check` runs programs against tests in worker processes.

    `seconds`: processor time of one test, to which the kernel adds up to one second. `megabytes`: memory of one test.
    `workers`: by default one for each processor that this process may use. A program that ends its worker affects no
    other program; a worker that dies for want of memory says so on standard error. Raises SandboxError when a known
    answer gets another result.
    """

    def __init__(self, seconds: float = SECONDS, megabytes: float = MEGABYTES, workers: int | None = None):
        self.workers = len(os.sched_getaffinity(0)) if workers is None else workers
        self.seconds, self.megabytes = seconds, megabytes
        if not (self.workers >= 1 and 0 < seconds <= 3600 and 8 <= megabytes <= 1e6):
            raise SandboxError(
                f"sandbox: {workers} workers, {seconds} s and {megabytes} MB; expected at least one, more than 0 s and at "
                "most an hour, 8 MB to a terabyte."
            )
        self._pool: Any = None
        self._threads: ThreadPoolExecutor | None = None  # one for each worker
        self._closing = threading.Event()

    def __enter__(self) -> "Sandbox":
        try:
            from pydantic_monty import Monty

            self._pool = Monty(
                min_processes=self.workers,
                max_processes=self.workers,
                request_timeout=2 * PATIENCE * self.seconds + 60,
                feed_duration_limit_grace=max(1.0, self.seconds),
            ).__enter__()
        except (ImportError, OSError, RuntimeError) as error:
            raise SandboxError(
                f"sandbox: pydantic-monty does not start ({error}); expected its module and its program `monty`. "
                "Install pydantic-monty, pydantic-monty-client and pydantic-monty-runtime as envs/cpu.txt has them."
            ) from None
        self._closing.clear()
        self._threads = ThreadPoolExecutor(self.workers, "sandbox")
        with ExitStack() as cleanup:
            cleanup.callback(self.__exit__)
            self._expect_known_answers()
            cleanup.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._closing.set()  # a running program stops after its current test
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._threads = None
        self._pool.__exit__(None, None, None)

    def _expect_known_answers(self) -> None:
        runs = self.check([(f"```python\n{code}\n```", answer) for code, answer, _, _ in CANARIES])
        for (code, _, status, share), ran in zip(CANARIES, runs, strict=True):
            if (ran.status, ran.share) != (status, share):
                raise SandboxError(
                    f"sandbox: the program `{code}` is found {ran.status} with the share {ran.share} ({ran.detail}); expected "
                    f"{status} with {share}. Install pydantic-monty and its parts as envs/cpu.txt has them."
                )

    def check(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Ran]:
        """Yield the result of the program in each (text, answer), in order.

        Raises ValueError at once where an answer holds no tests.
        """
        self._open_threads()
        return self._checks([(text, cases_of(answer)) for text, answer in pairs])

    def _open_threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            raise SandboxError("sandbox: it is not open; expected a `with` around it. Write `with Sandbox() as ...`.")
        return self._threads

    def _checks(self, programs: Sequence[tuple[str, Sequence[Case]]]) -> Iterator[Ran]:
        window: deque[Ran | Future] = deque()
        try:
            for n, (text, cases) in enumerate(programs, 1):
                self._open_threads()
                window.append(self._begin(text, cases))
                while window and (len(window) > 8 * self.workers or n == len(programs)):
                    yield self._result(window.popleft())
        finally:
            for run in window:  # the caller has stopped reading
                if isinstance(run, Future):
                    run.cancel()

    def _begin(self, text: str, cases: Sequence[Case]) -> Ran | Future:
        code = code_of(text)
        if code is None:
            return Ran(0.0, 0, len(cases), "no-code", "no closed block of Python")
        try:
            return self._open_threads().submit(self._run, Program(code), cases)
        except Refused as refused:
            return _not_run(refused, cases)

    def _result(self, run: Ran | Future) -> Ran:
        self._open_threads()
        try:
            return run if isinstance(run, Ran) else run.result()
        except _Closed:
            self._open_threads()
            raise

    # ------------------------------------------------------------------------------------------------------ one program

    def _run(self, program: Program, cases: Sequence[Case]) -> Ran:
        passed, first_fault = 0, ""
        try:
            for n, case in enumerate(cases, 1):
                if self._closing.is_set():
                    raise _Closed
                fault, text = self._test(program, program.source, case)
                if not fault and case.passed(text):
                    passed += 1
                elif cause := self._unknown(program, case, fault, text):
                    return Ran(None, passed, len(cases), "unsupported", f"test {n}: {cause}")
                elif fault:
                    first_fault = first_fault or f"test {n}: {fault}"
        except Refused as refused:
            return _not_run(refused, cases)
        return Ran(passed / len(cases), passed, len(cases), "failed" if first_fault else "ok", first_fault)

    def _unknown(self, program: Program, case: Case, fault: Fault | None, text: str) -> str:
        """Why the sandbox may be at fault for a test that was not passed; empty where the program is."""
        if fault and not fault.kind:
            return fault.text
        if fault and is_lack(fault, program):
            return f"not in the sandbox: {fault}"
        if differs := doubt(program, fault, text, case.expected):
            return f"the sandbox differs from Python in {differs}"
        return self._hidden(program, case) if program.bare else ""

    def _hidden(self, program: Program, case: Case) -> str:
        """What the sandbox lacks where the program's own handlers hid it: the test runs again without them."""
        fault, _ = self._test(program, program.bare, case)
        return f"not in the sandbox: {fault}" if fault and fault.kind and is_lack(fault, program) else ""

    def _test(self, program: Program, source: str, case: Case) -> tuple[Fault | None, str]:
        """Run one test, once more if its worker died.

        Returns what ended the test early, and what the program printed or its call gave.
        """
        fault, text = self._once(program, source, case)
        return self._once(program, source, case) if fault == DIED else (fault, text)

    def _once(self, program: Program, source: str, case: Case) -> tuple[Fault | None, str]:
        from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError

        limits = {
            "max_feed_duration_secs": PATIENCE * self.seconds,
            "max_memory": int(self.megabytes * 1e6),
            "max_recursion_depth": program.depth,
        }
        policy = {"sleep": "zero", "random_start": {"seed": 0}}
        printed = _Printed(_PRINTED + 4 * len(case.expected))
        fault, value = None, ""
        try:
            with self._pool.checkout(limits=limits, os_policy=policy, assert_message_annotations=False) as session:
                printed.worker = session.worker_pid
                confine(session.worker_pid, self.seconds)
                session.feed_run(prelude(program.words | words(case.call)), inputs=inputs(case.stdin))
                session.feed_run(source, print_callback=printed)
                if case.call:
                    value = session.feed_run(_value_of(case.call, printed.most), print_callback=printed)
        except (MontyRuntimeError, MontySyntaxError) as error:
            fault = _fault(error)
        except MontyCrashedError as error:
            fault = BUSY if error.timed_out else DIED
            if "SIGXCPU" in str(error):
                fault = Fault("TimeoutError", f"more than {self.seconds:g} s of processor time")
        except ProcessLookupError:
            fault = DIED
        if fault and fault.text.startswith("feed time limit") and not is_raised(fault, program):
            fault = BUSY
        if printed.left < 0:
            fault = Fault("MemoryError", f"printed more than {printed.most:,} characters")
        return fault, value if case.call else "".join(printed.texts)


def _value_of(call: str, most: int) -> str:
    """Source whose value is that of a call as Python writes it, cut to `most` characters.

    A format string writes it, and no name: the program may have a `repr` of its own.
    """
    return f"_sandbox_value = {call}\nf'{{_sandbox_value!r}}'[:{most}]"


def _not_run(refused: Refused, cases: Sequence[Case]) -> Ran:
    status, detail = refused.args
    return Ran(None if status == "unsupported" else 0.0, 0, len(cases), status, detail)


class _Printed:
    """What a program prints. Printing too much kills the worker, which else would go on until its time is up."""

    def __init__(self, most: int):
        self.worker, self.most, self.left = 0, most, most
        self.texts: list[str] = []

    def __call__(self, stream: str, text: str) -> None:
        if self.left >= 0:
            self.left -= len(text)
            if stream == "stdout":
                self.texts.append(text)
            if self.left < 0:
                os.kill(self.worker, signal.SIGKILL)


def confine(worker: int, seconds: float) -> None:
    """Limit a worker: it can open and start nothing, and compute for `seconds` more, rounded up to whole ones."""
    for limit in _FORBIDDEN:
        resource.prlimit(worker, limit, (0, 0))
    _, most = resource.prlimit(worker, resource.RLIMIT_CPU)
    now = time.clock_gettime((~worker << 3) | 2)  # the id of another process's clock: clock_getcpuclockid(3)
    end = math.ceil(now + seconds)
    resource.prlimit(worker, resource.RLIMIT_CPU, (end if most == resource.RLIM_INFINITY else min(end, most), most))


def _fault(error: Any) -> Fault | None:
    """An exception of the sandbox as a fault; None where the program ended itself without an error."""
    kind, _, text = error.display("type-msg").partition(": ")
    if kind == "SystemExit" and not text:
        return None
    frames = error.traceback()
    lines = tuple(frame.line for frame in frames if frame.filename == "<python-input-1>")  # the prelude is 0
    return Fault(kind, text[:1000], lines, len(frames))

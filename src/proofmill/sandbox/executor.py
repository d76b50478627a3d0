"""Run untrusted programs in a sandbox and return their values as text.

    with Executor(seconds=10.0) as executor:
        for result in executor.run([Execution("def f(x): return x + 1", call="f(2)")]):
            result.status, result.value  # ok, 3

From: the executor of Absolute Zero (Zhao et al. 2025, section 3.3: a program and its input give an output), which runs
`exec` in an ordinary process.

Differences from the original:
1. Programs are isolated. Each runs in CPython, in a jail (jails.py), in a process that has run no other program. Tame
   programs (plain.py), which can change only their own values, share processes.
2. Values leave the sandbox as literals and are compared outside (`values.same`). Programs cannot rebind the comparison
   and never see the expected value. Overlong values are rejected; the original truncates them.
3. Time limits are CPU seconds, enforced by the kernel. `sleep` returns immediately and random numbers are seeded.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

from proofmill.sandbox import jails
from proofmill.sandbox.executions import Execution, Result, Status
from proofmill.sandbox.jails import Limits
from proofmill.sandbox.plain import is_tame
from proofmill.sandbox.pools import Pools, SandboxJob
from proofmill.schema.errors import SandboxError

__all__ = ["Execution", "Executor", "Result", "Status"]

WINDOW = 512  # programs per worker started before the first result is read, so that loops do not delay the others


class Executor:
    """A context manager: inside it, `run` executes programs in worker processes.

    Limits of one program: `seconds` of CPU time, `megabytes` of memory, `longest` characters of its value. `workers`
    defaults to one for each CPU that this process may use.
    """

    def __init__(
        self,
        seconds: float = 10.0,
        megabytes: float = 512,
        workers: int | None = None,
        longest: int = 10_000,
    ):
        self.workers = len(os.sched_getaffinity(0)) if workers is None else workers
        self.seconds, self.megabytes, self.longest = seconds, megabytes, longest
        if not (self.workers >= 1 and 0 < seconds <= 3600 and 8 <= megabytes <= 1e6 and longest >= 1):
            raise SandboxError(
                f"sandbox: {workers} workers, {seconds} s, {megabytes} MB and {longest} characters; expected at least 1 "
                "worker, more than 0 s and at most 3,600 s, 8 MB to 1,000,000 MB, at least 1 character. Fix the limits."
            )
        self._open: ExitStack | None = None

    def __enter__(self) -> "Executor":
        """Open the worker pools. Raises SandboxError if no kind of jail works on this machine."""
        jails.plan()
        with ExitStack() as opened:
            self._pools = opened.enter_context(self._new_pools())
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    def _new_pools(self, fresh: bool = False) -> Pools:
        return Pools(self.workers, fresh)

    def run(self, executions: Iterable[Execution], fresh: bool = False) -> Iterator[Result]:
        """Run programs and yield their results in order.

        With `fresh`, use new processes with other hash seeds, addresses and random numbers; results that differ between
        two such runs depend on them.
        """
        self._expect_open()
        return self._run(iter(executions), fresh)

    def _expect_open(self) -> None:
        if self._open is None:
            raise SandboxError(
                "sandbox: not open; expected a `with` statement around it. Use `with Executor() as ...`."
            )

    def _run(self, executions: Iterator[Execution], fresh: bool) -> Iterator[Result]:
        with ExitStack() as ours:
            pools = ours.enter_context(self._new_pools(fresh=True)) if fresh else self._pools
            window: deque[Future[Result]] = deque()
            ours.callback(lambda: [future.cancel() for future in window])  # the caller has stopped reading
            more = True
            while more or window:
                self._expect_open()
                while more and len(window) < WINDOW * self.workers:
                    execution = next(executions, None)
                    if more := execution is not None:
                        window.append(self._begin(execution, pools, fresh))
                if window:
                    yield window.popleft().result()

    def _begin(self, execution: Execution, pools: Pools, fresh: bool) -> "Future[Result]":
        megabytes = self.megabytes if execution.megabytes is None else execution.megabytes
        job = SandboxJob(execution, Limits(self.seconds, int(megabytes * 1e6), self.longest), Future())
        job.shares = not fresh and is_tame(execution.program, execution.call)
        pools.add(job)
        return job.result

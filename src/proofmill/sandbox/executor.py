"""Runs untrusted programs and gives their values, as text that has left the sandbox.

    with Executor(seconds=10.0) as executor:
        for result in executor.run([Execution("def f(x): return x + 1", call="f(2)")]):
            result.status, result.value  # ok, 3

From: the executor of Absolute Zero (Zhao et al. 2025, section 3.3: a program and its input give an output), which runs
`exec` in an ordinary process.

How we differ:
1. Nothing that a program does reaches outside. It runs in CPython, in a jail (jails.py), in a process that has seen no
   other program; tame programs (plain.py), which can reach nothing but their own values, share processes.
2. A value is data, and comes as a literal. It is compared outside, by `values.same`, never by names that a program can
   rebind, and a program never sees what is expected of it. What is too long is refused; the original cuts it.
3. The kernel counts the seconds, as processor time. `sleep` takes no time, and what is drawn at random begins from one
   seed.
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
from proofmill.sandbox.pools import Job, Pools
from proofmill.schema.errors import SandboxError

__all__ = ["Execution", "Executor", "Result", "Status"]

WINDOW = (
    512  # programs for each worker that are begun before the first result is read: those that loop hold no other up
)


class Executor:
    """A context manager: inside it, `run` executes programs in worker processes.

    `seconds`: processor time of one program; `megabytes`: its memory; `longest`: characters of its value. `workers`: by
    default one for each processor that this process may use.
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
                f"sandbox: {workers} workers, {seconds} s, {megabytes} MB and {longest} characters; expected at least one "
                "worker, more than 0 s and at most an hour, 8 MB to a terabyte, at least one character."
            )
        self._open: ExitStack | None = None

    def __enter__(self) -> "Executor":
        """Raises SandboxError where no jail holds here."""
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
        """The result of each execution, in order.

        `fresh`: in processes made for this call, with another hash seed, other addresses and other random
        numbers: a program whose results differ between two such calls depends on them.
        """
        self._expect_open()
        return self._run(iter(executions), fresh)

    def _expect_open(self) -> None:
        if self._open is None:
            raise SandboxError("sandbox: it is not open; expected a `with` around it. Write `with Executor() as ...`.")

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
        job = Job(execution, Limits(self.seconds, int(megabytes * 1e6), self.longest), Future())
        job.shares = not fresh and is_tame(execution.program, execution.call)
        pools.add(job)
        return job.result

"""Pools of jails: one thread feeds each jail, and a jail that dies is replaced."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from typing import Any

from proofmill.sandbox import jails
from proofmill.sandbox.executions import Execution, Result, describe_fault, parse_reply
from proofmill.sandbox.jails import AHEAD, Died, Jail, Limits
from proofmill.schema.errors import SandboxError

_SMALL = 8000  # bytes of a program that may be sent ahead: AHEAD of them fit into a pipe


class Pools:
    """A context manager with pools, opened on first use.

    There is one pool for each package, for each set of limits, for shared or separate processes, and for trusted programs.
    """

    def __init__(self, workers: int, fresh: bool = False):
        self._new = partial(Pool, workers, fresh=fresh)
        self._pools: dict[tuple[str, Limits, bool, bool], Pool] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> "Pools":
        return self

    def __exit__(self, *_: Any) -> None:
        for pool in self._pools.values():
            pool.close()

    def add(self, job: "SandboxJob") -> None:
        """Queue a job in its pool."""
        package = "" if job.shares else jails.package_of(job.execution.program + job.execution.call)
        key = package, job.limits, job.shares, job.execution.trusted
        with self._lock:
            if key not in self._pools:
                again = self.add if job.shares else None
                self._pools[key] = self._new(job.limits, [package] if package else [], again=again)
        self._pools[key].add(job)


@dataclass
class SandboxJob:
    """A requested execution. `tries` counts the jails that died while running it."""

    execution: Execution
    limits: Limits
    result: "Future[Result]"
    tries: int = 0
    running: bool = False
    shares: bool = False  # it is tame and may share a process

    @property
    def texts(self) -> tuple[str, str, str]:
        return self.execution.program, self.execution.call, self.execution.stdin

    @property
    def is_small(self) -> bool:
        return 4 * sum(map(len, self.texts)) <= _SMALL

    def start(self) -> bool:
        """Start the job and return True, or return False if its result was cancelled."""
        self.running = self.running or self.result.set_running_or_notify_cancel()
        return self.running


class Pool:
    """A jail for each worker, with a thread that feeds it, until the pool is closed.

    With `again` the programs share processes. A program that crashes there, or exceeds its memory or output, is passed to
    `again` and rerun in a process of its own.
    """

    def __init__(
        self,
        workers: int,
        limits: Limits,
        modules: Sequence[str] = (),
        fresh: bool = False,
        again: Callable[["SandboxJob"], None] | None = None,
    ):
        self.limits, self.modules, self.fresh, self.again = limits, modules, fresh, again
        self._jobs: queue.SimpleQueue[SandboxJob | None] = queue.SimpleQueue()
        self._living: set[Jail] = set()
        self._closing = False
        self._lock, self._serving = threading.Lock(), workers  # the number of threads that can run a job
        self._fault: BaseException = _closing_error()  # why the others cannot
        self._threads = [threading.Thread(target=self._serve, name=f"jail {n}", daemon=True) for n in range(workers)]

        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads, kill the jails that run a program, and fail the jobs that are left."""
        self._closing = True
        for _thread in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(0.5)
        for jail in list(self._living):  # jails that still run a program
            jail.kill()
        for thread in self._threads:
            thread.join()
        self._fail_queued(_closing_error())

    def add(self, job: SandboxJob) -> None:
        """Queue a job; fail it if no jail can be started any more."""
        with self._lock:
            self._jobs.put(job)
            if not self._serving:
                self._fail_queued(self._fault)

    def _fail_queued(self, error: BaseException) -> None:
        while not self._jobs.empty():
            fail(self._jobs.get(), error)

    def _next(self, wait: bool) -> SandboxJob | None:
        while True:
            try:
                job = self._jobs.get(block=wait)
            except queue.Empty:
                return None
            if job is None or job.start():
                return job

    def _serve(self) -> None:
        jobs: deque[SandboxJob] = deque()
        jail: Jail | None = None
        sent = 0  # number of `jobs` sent to the jail
        try:
            while True:
                if len(jobs) <= AHEAD // 2:  # several are sent at once
                    while len(jobs) < AHEAD and (job := self._next(wait=not jobs)):
                        jobs.append(job)
                if self._closing:
                    raise _closing_error()
                try:
                    jail = jail or self._start()
                    more = [] if sent else [jobs[0]]
                    more += takewhile(lambda job: job.is_small, islice(jobs, sent or 1, None))
                    if more:
                        jail.send(*[job.texts for job in more])
                        sent += len(more)
                    result = parse_reply(jail.reply(), self.limits)
                    sent -= 1
                    if jail.is_spent:
                        self._stop(jail)
                        jail, sent = None, 0
                except (Died, TimeoutError) as fault:
                    self._stop(jail)
                    jail, sent = None, 0
                    jobs[0].tries += 1
                    if isinstance(fault, Died) and jobs[0].tries < 2:  # it may have been killed from outside
                        continue
                    result = describe_fault(fault, self.limits)
                job = jobs.popleft()
                if self.again is not None and result.status in ("memory", "crashed", "output"):
                    job.shares = False
                    self.again(job)
                else:
                    job.result.set_result(result)
        except BaseException as error:
            for job in jobs:
                fail(job, error)
            if not self._closing:
                with self._lock:
                    self._serving -= 1
                    self._fault = error
                    if not self._serving:  # no other thread would run them
                        self._fail_queued(error)
                raise
        finally:
            self._stop(jail)

    def _start(self) -> Jail:
        for _attempt in range(3):
            try:
                jail = Jail(jails.plan(), self.limits, self.modules, self.fresh, self.again is not None)
            except Died as died:
                fault = str(died)
                continue
            self._living.add(jail)
            return jail
        raise SandboxError(
            f"sandbox: a jail does not start ({fault}); expected one for each worker. Set fewer workers and rerun."
        )

    def _stop(self, jail: Jail | None) -> None:
        if jail is not None:
            self._living.discard(jail)
            jail.close()


def _closing_error() -> SandboxError:
    return SandboxError(
        "sandbox: closed while a program ran; expected it to be open. Read all results before you close it."
    )


def fail(job: SandboxJob | None, error: BaseException) -> None:
    """Fail a job that has no result yet."""
    if job is not None and not job.result.done():
        job.result.set_exception(error)

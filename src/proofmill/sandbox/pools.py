"""A pool of jails: a thread feeds each, and a jail that dies is replaced."""

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
from proofmill.sandbox.executions import Execution, Result, of_reply, without_reply
from proofmill.sandbox.jails import AHEAD, Died, Jail, Limits
from proofmill.schema.errors import SandboxError

_SMALL = 8000  # bytes of a program that is given ahead: AHEAD of them fit into a pipe


class Pools:
    """A context manager with pools, each opened when first needed: by package, by limits, and of processes that tame
    programs share or of a process for each program."""

    def __init__(self, workers: int, fresh: bool = False):
        self._new = partial(Pool, workers, fresh=fresh)
        self._pools: dict[tuple[str, Limits, bool], Pool] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> "Pools":
        return self

    def __exit__(self, *_: Any) -> None:
        for pool in self._pools.values():
            pool.close()

    def add(self, job: "Job") -> None:
        package = "" if job.shares else jails.package_of(job.execution.program)
        key = package, job.limits, job.shares
        with self._lock:
            if key not in self._pools:
                again = self.add if job.shares else None
                self._pools[key] = self._new(job.limits, [package] if package else [], again=again)
        self._pools[key].add(job)


@dataclass
class Job:
    """An execution that is asked for. `tries` counts the jails that died while they ran it."""

    execution: Execution
    limits: Limits
    result: "Future[Result]"
    tries: int = 0
    running: bool = False
    shares: bool = False  # it is tame, and may run where others have run

    @property
    def asked(self) -> tuple[str, str, str]:
        return self.execution.program, self.execution.call, self.execution.stdin

    @property
    def is_small(self) -> bool:
        return 4 * sum(map(len, self.asked)) <= _SMALL

    def begins(self) -> bool:
        """Whether the result is still wanted."""
        self.running = self.running or self.result.set_running_or_notify_cancel()
        return self.running


class Pool:
    """A jail, and a thread that feeds it, for each worker, until it is closed.

    With `again` its programs share processes; what runs out of memory or crashes there runs again, in a process of its own.
    """

    def __init__(
        self,
        workers: int,
        limits: Limits,
        modules: Sequence[str] = (),
        fresh: bool = False,
        again: Callable[["Job"], None] | None = None,
    ):
        self.limits, self.modules, self.fresh, self.again = limits, modules, fresh, again
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._living: set[Jail] = set()
        self._closing = False
        self._threads = [threading.Thread(target=self._serve, name=f"jail {n}", daemon=True) for n in range(workers)]

        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closing = True
        for _thread in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(0.5)
        for jail in list(self._living):  # those that run a program
            jail.kill()
        for thread in self._threads:
            thread.join()
        while not self._jobs.empty():
            end(self._jobs.get(), _closed())

    def add(self, job: Job) -> None:
        self._jobs.put(job)

    def _next(self, wait: bool) -> Job | None:
        while True:
            try:
                job = self._jobs.get(block=wait)
            except queue.Empty:
                return None
            if job is None or job.begins():
                return job

    def _serve(self) -> None:
        asked: deque[Job] = deque()
        jail: Jail | None = None
        sent = 0  # of those asked
        try:
            while True:
                if len(asked) <= AHEAD // 2:  # several are sent at once
                    while len(asked) < AHEAD and (job := self._next(wait=not asked)):
                        asked.append(job)
                if self._closing:
                    raise _closed()
                try:
                    jail = jail or self._started()
                    more = [] if sent else [asked[0]]
                    more += takewhile(lambda job: job.is_small, islice(asked, sent or 1, None))
                    if more:
                        jail.send(*[job.asked for job in more])
                        sent += len(more)
                    result = of_reply(jail.reply(), self.limits)
                    sent -= 1
                    if jail.is_spent:
                        self._stop(jail)
                        jail, sent = None, 0
                except (Died, TimeoutError) as fault:
                    self._stop(jail)
                    jail, sent = None, 0
                    asked[0].tries += 1
                    if isinstance(fault, Died) and asked[0].tries < 2:  # perhaps it was killed from outside
                        continue
                    result = without_reply(fault, self.limits)
                job = asked.popleft()
                if self.again is not None and result.status in ("memory", "crashed", "output"):
                    job.shares = False
                    self.again(job)
                else:
                    job.result.set_result(result)
        except BaseException as error:
            for job in asked:
                end(job, error)
            if not self._closing:
                raise
        finally:
            self._stop(jail)

    def _started(self) -> Jail:
        for _attempt in range(3):
            try:
                jail = Jail(jails.plan(), self.limits, self.modules, self.fresh, self.again is not None)
            except Died as died:
                fault = str(died)
                continue
            self._living.add(jail)
            return jail
        raise SandboxError(
            f"sandbox: a jail does not start ({fault}); expected one for each worker. Run fewer workers."
        )

    def _stop(self, jail: Jail | None) -> None:
        if jail is not None:
            self._living.discard(jail)
            jail.close()


def _closed() -> SandboxError:
    return SandboxError("sandbox: it was closed while a program ran; expected it open. Read all results before it is.")


def end(job: Job | None, error: BaseException) -> None:
    if job is not None and not job.result.done():
        job.result.set_exception(error)

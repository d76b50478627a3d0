"""A pool of jails: a thread feeds each, and a jail that dies is replaced."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from proofmill.sandbox import jails
from proofmill.sandbox.executions import Execution, Result, of_reply, without_reply
from proofmill.sandbox.jails import Died, Jail, Limits
from proofmill.schema.errors import SandboxError

AHEAD = 4  # programs that a jail is given before the first is done
_SMALL = 1 << 14  # bytes of a program that is given ahead: together they fit into a pipe


class Pools:
    """A context manager with pools, each once it is needed: of processes that tame programs share, of processes for one
    program each, and for programs with a package."""

    def __init__(self, workers: int, limits: Limits, fresh: bool = False):
        self._new = partial(Pool, workers, limits, fresh=fresh)
        self._pools: dict[tuple[str, bool], Pool] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> "Pools":
        return self

    def __exit__(self, *_: Any) -> None:
        for pool in self._pools.values():
            pool.close()

    def add(self, job: "Job") -> None:
        package = "" if job.shares else jails.package_of(job.execution.program)
        with self._lock:
            if (package, job.shares) not in self._pools:
                again = self.add if job.shares else None
                self._pools[package, job.shares] = self._new([package] if package else [], again=again)
        self._pools[package, job.shares].add(job)


@dataclass
class Job:
    """An execution that is asked for. `tries` counts the jails that died while they ran it."""

    execution: Execution
    longest: int
    result: "Future[Result]"
    tries: int = 0
    running: bool = False
    shares: bool = False  # it is tame, and may run where others have run

    @property
    def size(self) -> int:
        """Bytes, at most."""
        return 4 * sum(map(len, (self.execution.program, self.execution.call, self.execution.stdin)))

    def begins(self) -> bool:
        """Whether the result is still wanted."""
        self.running = self.running or self.result.set_running_or_notify_cancel()
        return self.running


class Pool:
    """A jail, and a thread that feeds it, for each worker, until it is closed.

    With `again` its programs share processes; what gives no value there is done again, in a process of its own.
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
        try:
            job = self._jobs.get(block=wait)
        except queue.Empty:
            return None
        return job if job is None or job.begins() else self._next(wait)

    def _serve(self) -> None:
        asked: deque[Job] = deque()
        jail: Jail | None = None
        sent = 0  # of those asked
        try:
            while True:
                while len(asked) < AHEAD and (job := self._next(wait=not asked)):
                    asked.append(job)
                if self._closing:
                    raise _closed()
                try:
                    jail = jail or self._started()
                    while sent < len(asked) and (not sent or asked[sent].size <= _SMALL):
                        one = asked[sent]
                        jail.send(one.execution.program, one.execution.call, one.execution.stdin, one.longest)
                        sent += 1
                    result = of_reply(jail.reply(), self.limits, asked[0].longest)
                    sent -= 1
                except (Died, TimeoutError) as fault:
                    self._stop(jail)
                    jail, sent = None, 0
                    asked[0].tries += 1
                    if isinstance(fault, Died) and asked[0].tries < 2:  # perhaps it was killed from outside
                        continue
                    result = without_reply(fault, self.limits)
                job = asked.popleft()
                if self.again is not None and result.status != "ok":
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

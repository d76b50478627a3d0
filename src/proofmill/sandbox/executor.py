"""Runs untrusted programs and gives their values, as text that has left the sandbox.

    with Executor(seconds=10.0) as executor:
        for result in executor.run([Execution("def f(x): return x + 1", call="f(2)")]):
            result.status, result.value, result.tier  # ok, 3, monty

Values are compared outside, by `values.same(values.parse(result.value), ...)`: never by names that a program can rebind.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from proofmill.sandbox import values
from proofmill.schema.errors import SandboxError

Status = Literal["ok", "raised", "timeout", "memory", "output", "crashed", "refused"]
Tier = Literal["monty", "python"]


@dataclass(frozen=True)
class Execution:
    """A program, and an expression that is evaluated after it; without one the value is what the program prints."""

    program: str
    call: str = ""
    stdin: str = ""


@dataclass(frozen=True)
class Result:
    """What became of an execution.

    `value` is a Python literal as values.write writes it, empty unless `ok`; `error` is the exception's class and text,
    or the reason.
    """

    status: Status
    value: str = ""
    error: str = ""
    tier: Tier = "python"
    seconds: float = 0.0


class Executor:
    """A context manager: inside it, `run` executes programs in worker processes."""

    def __init__(
        self, seconds: float = 10.0, megabytes: float = 512, workers: int | None = None, longest: int = 10_000
    ):
        self.workers = len(os.sched_getaffinity(0)) if workers is None else workers
        self.seconds, self.megabytes, self.longest = seconds, megabytes, longest
        self._pool: Any = None

    def __enter__(self) -> "Executor":
        try:
            from pydantic_monty import Monty

            self._pool = Monty(min_processes=self.workers, max_processes=self.workers).__enter__()
        except (ImportError, OSError, RuntimeError) as error:
            raise SandboxError(f"sandbox: pydantic-monty does not start ({error}).") from None
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.__exit__(None, None, None)

    def run(self, executions: Iterable[Execution], fresh: bool = False) -> Iterator[Result]:
        """The result of each execution, in order. `fresh`: in new processes with another hash seed."""
        return map(self._run, executions)

    def _run(self, execution: Execution) -> Result:
        from pydantic_monty import CollectString, MontyCrashedError, MontyRuntimeError, MontySyntaxError

        limits = {"max_feed_duration_secs": self.seconds, "max_memory": int(self.megabytes * 1e6)}
        printed = CollectString()
        try:
            with self._pool.checkout(limits=limits, assert_message_annotations=False) as session:
                session.feed_run(execution.program + "\nNone\n", print_callback=printed)
                value = printed.output
                if execution.call:
                    session.feed_run(f"_value = {execution.call}\nNone")
                    value = values.parse(session.feed_run(f"f'{{_value!r}}'[:{self.longest + 1}]"), self.longest)
        except (MontyRuntimeError, MontySyntaxError) as error:
            return Result("raised", error=error.display("type-msg"), tier="monty")
        except MontyCrashedError as error:
            return Result("crashed", error=str(error), tier="monty")
        except ValueError as error:
            return Result("refused", error=str(error), tier="monty")
        return Result("ok", values.write(value), tier="monty")

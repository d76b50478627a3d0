"""The first tier: pydantic-monty, an interpreter of Python in Rust, for programs in which it is known to be Python.

    with Monty(workers=2, seconds=10, megabytes=512) as monty:
        monty.value("def f(x): return x + 1", "f(2)", 10_000)  # 3, or None: Python itself must decide

Monty has no files, network or processes, and lacks much of Python; what it has sometimes differs, silently: `map` gives a
list, sets have another order, regular expressions another dialect. So only programs of a closed list of constructs are
given to it (plain.py), and only a value that it finds in little time counts: whatever else comes of a program is found
again by CPython.
"""

import contextlib
import math
import resource
import time
from typing import Any

from proofmill.sandbox import values
from proofmill.schema.errors import SandboxError

BRIEF = 0.25  # seconds: loops are slower here than in CPython, which decides about what takes longer
_FORBIDDEN = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC)

# ------------------------------------------------------------------------------------------------------------ the workers

_NO_SLEEP = {"sleep": "zero"}


class Monty:
    """A context manager with worker processes, which may be used from as many threads."""

    def __init__(self, workers: int, seconds: float, megabytes: float):
        self.workers, self.brief = workers, min(BRIEF, seconds)
        self.limits = {
            "max_feed_duration_secs": self.brief,
            "max_memory": int(megabytes * 1e6),
            "max_recursion_depth": 900,
        }

    def __enter__(self) -> "Monty":
        try:
            import pydantic_monty

            self._monty = pydantic_monty
            self._pool: Any = pydantic_monty.Monty(
                min_processes=self.workers, max_processes=self.workers, request_timeout=8 * self.brief + 1
            ).__enter__()
        except (ImportError, OSError, RuntimeError) as error:
            raise SandboxError(
                f"sandbox: pydantic-monty does not start ({error}); expected its module and its program `monty`. "
                "Install pydantic-monty, pydantic-monty-client and pydantic-monty-runtime as envs/cpu.txt has them."
            ) from None
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.__exit__(None, None, None)

    def value(self, program: str, call: str, longest: int) -> str | None:
        """The value of the call as values.write writes it; None where Monty does not find it."""
        source = f"{program}\n_value = ({call.strip()}\n)\nf'{{_value!r}}'[:{longest + 1}]"
        try:
            with self._pool.checkout(
                limits=self.limits, os_policy=_NO_SLEEP, assert_message_annotations=False
            ) as session:
                confine(session.worker_pid, self.brief)
                text = session.feed_run(source, print_callback=_unheard)
            plain = isinstance(text, str) and text.isascii()  # it has no surrogates, and other rules of case
            return values.write(values.parse(text, longest)) if plain else None
        except (self._monty.MontyError, ProcessLookupError, ValueError):
            return None


def _unheard(stream: str, text: str) -> None:
    """What is printed is not the value of a call."""


def confine(worker: int, seconds: float) -> None:
    """Limit a worker: it can open and start nothing, and compute for `seconds` more, rounded up to whole ones."""
    for limit in _FORBIDDEN:
        resource.prlimit(worker, limit, (0, 0))
    _, most = resource.prlimit(worker, resource.RLIMIT_CPU)
    now = time.clock_gettime((~worker << 3) | 2)  # the id of another process's clock: clock_getcpuclockid(3)
    end = math.ceil(now + seconds) + 1
    with contextlib.suppress(ValueError):  # the limit of the whole process is lower
        resource.prlimit(worker, resource.RLIMIT_CPU, (end if most == resource.RLIM_INFINITY else min(end, most), most))

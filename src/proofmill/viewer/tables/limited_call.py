"""Call a function in a child process with limits of time and memory.

A condition in SQL can ask for any amount of both: `LENGTH(LPAD(statement, 1000000000, 'x'))`. The child is started once,
and replaced after a call that exceeds a limit.
"""

import os
import resource
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from proofmill.schema.errors import ProofmillError, SettingError

SECONDS = 2.0
BYTES = 2**30  # of memory, in addition to that of the started child
START_SECONDS = 60.0


class LimitedCall:
    """A function of a module that is called in a child process, one call at a time."""

    def __init__(self, function: Callable[..., Any]):
        self._function, self._lock = function, threading.RLock()
        self._child: Any = None
        self._pipe: Any = None

    def start(self) -> None:
        """Start the child unless it runs. It is ready when its imports are done."""
        with self._lock:
            if self._child is None or not self._child.is_alive():
                context = get_context("spawn")  # a fork of a process with threads can block for ever
                os.environ.setdefault(
                    "ARROW_DEFAULT_MEMORY_POOL", "system"
                )  # the others reserve writable memory by the GB
                self._pipe, end = context.Pipe()
                self._child = context.Process(target=_serve, args=(self._function, end), daemon=True)
                self._child.start()
                end.close()
                with suppress(EOFError):
                    self._pipe.poll(START_SECONDS) and self._pipe.recv()

    def start_soon(self) -> None:
        """Start the child in the background."""
        threading.Thread(target=self.start, daemon=True).start()

    def __call__(self, *arguments: Any) -> Any:
        """Return the result. Raises SettingError for a call beyond a limit, and the function's own ProofmillError."""
        with self._lock:
            self.start()
            try:
                self._pipe.send(arguments)
                if not self._pipe.poll(SECONDS):
                    raise self._stop(f"takes more than {SECONDS:g} s")
                result = self._pipe.recv()
            except (EOFError, OSError) as error:
                raise self._stop(f"takes more than {BYTES // 2**30} GB of memory") from error
        if isinstance(result, ProofmillError):
            raise result
        return result

    def _stop(self, why: str) -> SettingError:
        """End the child, and return the error that says why."""
        self._child.kill()
        self._child.join()
        return SettingError(f"this filter {why}; expected a condition that a row answers quickly. Simplify it.")


def _serve(function: Callable[..., Any], pipe: Any) -> None:
    """Answer calls until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which closes the pipe
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # beyond a limit, the engine prints a trace
    # Of writable memory, not of addresses: allocators and threads reserve those by the GB.
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    result: Any = None
    with suppress(EOFError):
        while True:
            pipe.send(result)
            arguments = pipe.recv()
            try:
                result = function(*arguments)
            except ProofmillError as error:
                result = error

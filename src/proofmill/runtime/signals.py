"""Stopping without losing anything: SIGTERM (from SLURM) and Ctrl-C are noted, and calls in flight may finish.

A second signal, or the end of the grace time (PROOFMILL_GRACE, 20 s: SLURM kills 30 s after its SIGTERM), ends the
process at once. Either way the answers are in the journal, and a training's progress in its last checkpoint. If several
processes train one model, a second signal ends none of them: SLURM signals each, and their launcher passes its own on.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from proofmill.runtime import environment, processes

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def grace_seconds() -> float:
    """How long what is under way may take after a signal."""
    return environment.seconds("PROOFMILL_GRACE", 20.0)


class StopRequest:
    """Whether the process should begin nothing more, and why."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.signal: int | None = None

    def ask(self, why: str) -> None:
        """Request a stop for this reason, unless there is a reason already."""
        self.why = self.why or why


def leave(sentence: str) -> None:
    """End the process with a sentence; of several processes only the leader prints it."""
    sys.exit(1 if processes.rank() else sentence)


def at_once(name: str) -> None:
    """Let a signal end the process with a sentence. For the time outside of `gracefully`."""

    def handler(number: int, _: object) -> None:
        leave(f"{name}: stopped by {signal.Signals(number).name}; run the same command to go on.")

    for number in SIGNALS:
        signal.signal(number, handler)


_inside = False  # whether the main thread is inside `gracefully`


@contextmanager
def gracefully(name: str, kept: str = "what was answered is in the journal") -> Iterator[StopRequest]:
    """While inside, the first signal is noted in the yielded request, and the process has the grace time to end.

    Inside another `gracefully` (as the calls of a training's judge are) nothing is noted: the outer one decides when to
    end.
    """
    global _inside
    stop, grace = StopRequest(), grace_seconds()
    if _inside or threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield stop
        return

    def handler(number: int, _: object) -> None:
        if number == signal.SIGALRM or (stop.signal and processes.world() == 1):
            leave(f"{name}: stopped at once; {kept}. Run the same command to go on.")
        if stop.signal is None:
            stop.signal = number
            stop.ask(f"stopped by {signal.Signals(number).name}")
            signal.setitimer(signal.ITIMER_REAL, grace)

    previous = {number: signal.signal(number, handler) for number in (*SIGNALS, signal.SIGALRM)}
    _inside = True
    try:
        yield stop
    finally:
        _inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, old in previous.items():
            signal.signal(number, old)

"""Stopping without losing anything: SIGTERM, Ctrl-C and SIGUSR1 are noted, and calls in flight may finish.

SLURM sends SIGUSR1 some time before a job's walltime, if asked to (profiles/slurm), and SIGTERM at its end, to a job
that is cancelled, and to one that must make room. A second signal, or the end of the grace time (PROOFMILL_GRACE, 20 s:
SLURM kills 30 s after its SIGTERM; after SIGUSR1 what is left of the walltime but for half a minute), ends the process
at once. Either way the answers are in the journal, and a training's progress in its last checkpoint. If several
processes train one model, a second signal ends none of them: SLURM signals each, and their launcher passes its own on.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from proofmill.runtime import environment, processes
from proofmill.runtime.cluster import slurm

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
LAST_WORDS = 30.0  # seconds before the walltime in which a stopped job says so and goes back into the queue


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


_noted: set[int] = set()  # signals that this process has had


def walltime_is_near() -> bool:
    """Whether SLURM has said so."""
    return signal.SIGUSR1 in _noted


def _reason(number: int) -> str:
    _noted.add(number)
    if walltime_is_near():
        return "stopped by SIGUSR1, before the walltime is over"
    return f"stopped by {signal.Signals(number).name}"


def leave(sentence: str) -> None:
    """End the process with a sentence; of several processes only the leader prints it."""
    sys.exit(1 if processes.rank() else sentence)


def at_once(name: str) -> None:
    """Let a signal end the process with a sentence. For the time outside of `gracefully`."""

    def handler(number: int, _: object) -> None:
        leave(f"{name}: {_reason(number)}; run the same command to go on.")

    for number in SIGNALS:
        signal.signal(number, handler)
    # SLURM sends SIGUSR1 to every process of a job. What this one starts (servers, workers) would die of it, had it not
    # inherited that it is blocked. Here a thread waits for it, and passes it on as a SIGTERM to this process alone.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    threading.Thread(target=_pass_on, name="walltime", daemon=True).start()


def _pass_on() -> None:
    signal.sigwait({signal.SIGUSR1})
    _noted.add(signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)


def ignore() -> None:
    """Let no signal end the process any more: what it was for is done, and Python would die of one while it ends."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


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
            stop.ask(_reason(number))
            left = (slurm.seconds_left() or 0.0) - LAST_WORDS if walltime_is_near() else 0.0
            signal.setitimer(signal.ITIMER_REAL, max(grace, left))

    previous = {number: signal.signal(number, handler) for number in (*SIGNALS, signal.SIGALRM)}
    _inside = True
    try:
        yield stop
    finally:
        _inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, old in previous.items():
            signal.signal(number, old)

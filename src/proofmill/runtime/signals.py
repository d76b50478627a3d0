"""Graceful stops: SIGTERM, Ctrl-C and SIGUSR1 are recorded, and calls in flight may finish.

SLURM sends SIGUSR1 before a job's walltime if configured (profiles/slurm). It sends SIGTERM at the walltime, to
canceled and to preempted jobs. A second signal, or the end of the grace time, stops the process at once. The grace time
is PROOFMILL_GRACE_SECONDS (20 s, since SLURM kills 30 s after SIGTERM); after SIGUSR1 it is the rest of the walltime except
half a minute. Model outputs are in the journal and a training's progress is in its last checkpoint, in every case. If
several processes train one model, a second signal is ignored: SLURM signals each process, and the launcher forwards its
own.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from proofmill.runtime import environment, processes
from proofmill.runtime.cluster import slurm

SIGNALS = tuple(each for each in signal.Signals if each.name in ("SIGTERM", "SIGINT", "SIGUSR1"))  # Windows: two
LAST_WORDS = 30.0  # seconds before the walltime for a stopped job to log and requeue


def grace_seconds() -> float:
    """Return how many seconds calls in flight may take after a signal."""
    return environment.seconds("PROOFMILL_GRACE_SECONDS", 20.0)


class StopRequest:
    """A request to start no more work, with the reason."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.signal: int | None = None

    def ask(self, why: str) -> None:
        """Request a stop for this reason; the first reason is kept."""
        self.why = self.why or why


_received: set[int] = set()  # signals of this process


def walltime_is_near() -> bool:
    """Return whether SLURM has sent SIGUSR1."""
    return signal.SIGUSR1 in _received


def _reason(number: int) -> str:
    _received.add(number)
    if walltime_is_near():
        return "stopped by SIGUSR1, before the walltime is over"
    return f"stopped by {signal.Signals(number).name}"


def leave(sentence: str) -> None:
    """Exit with a message; of several processes only the leader prints it."""
    sys.exit(1 if processes.rank() else sentence)


def at_once(name: str) -> None:
    """Install handlers that exit with a message, for the time outside of `gracefully`."""

    def handler(number: int, _: object) -> None:
        leave(f"{name}: {_reason(number)}; run the same command to resume.")

    for number in SIGNALS:
        signal.signal(number, handler)
    # SLURM sends SIGUSR1 to every process of a job. Child processes (servers, workers) inherit that it is blocked, and
    # survive. A thread waits for it, and sends SIGTERM to this process only.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    threading.Thread(target=_pass_on, name="walltime", daemon=True).start()


def _pass_on() -> None:
    signal.sigwait({signal.SIGUSR1})
    _received.add(signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)


def ignore() -> None:
    """Ignore all signals: the work is done, and a signal would kill Python while it exits."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


_inside = False  # whether the main thread is inside `gracefully`


@contextmanager
def gracefully(name: str, kept: str = "completed calls are in the journal") -> Iterator[StopRequest]:
    """Record the first signal in the yielded request; the process then has the grace time to end.

    An inner `gracefully`, as of the calls of a training's judge, records nothing: the outer one decides when to end.
    """
    global _inside
    stop, grace = StopRequest(), grace_seconds()
    if _inside or threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield stop
        return

    def handler(number: int, _: object) -> None:
        if number == signal.SIGALRM or (stop.signal and processes.world() == 1):
            leave(f"{name}: stopped at once; {kept}. Run the same command to resume.")
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

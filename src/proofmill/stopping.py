"""Stopping without losing anything: SIGTERM (what SLURM sends) and Ctrl-C are noted, and what is in flight may finish.

A second signal, or the end of the grace time (PROOFMILL_GRACE, 20 s: SLURM kills 30 s after its SIGTERM), ends the
process at once; what was answered is in the journal either way.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

GRACE_SECONDS = float(os.environ.get("PROOFMILL_GRACE", "20"))
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Whether and why no more should be begun."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.signal: int | None = None

    def ask(self, why: str) -> None:
        """Stop for this reason, unless there was one before."""
        self.why = self.why or why


def at_once(name: str) -> None:
    """Outside of `gracefully` a signal ends the process with a sentence."""

    def handler(number: int, _: object) -> None:
        sys.exit(f"{name}: stopped by {signal.Signals(number).name}; run the same command to go on.")

    for number in SIGNALS:
        signal.signal(number, handler)


@contextmanager
def gracefully(name: str) -> Iterator[Stop]:
    """While inside, the first signal is noted in the Stop that is given, and the process has the grace time to end."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield stop
        return

    def handler(number: int, _: object) -> None:
        if stop.signal or number == signal.SIGALRM:
            sys.exit(f"{name}: stopped at once; what was answered is in the journal. Run the same command to go on.")
        stop.signal = number
        stop.ask(f"stopped by {signal.Signals(number).name}")
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)

    before = {number: signal.signal(number, handler) for number in (*SIGNALS, signal.SIGALRM)}
    try:
        yield stop
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, old in before.items():
            signal.signal(number, old)

"""Stopping without losing anything: SIGTERM (what SLURM sends) and Ctrl-C are noted, and what is in flight may finish.

A second signal, or the end of the grace time (PROOFMILL_GRACE, 20 s: SLURM kills 30 s after its SIGTERM), ends the
process at once; what was answered is in the journal, and what was learned in the last checkpoint, either way. Of several
processes that train one model a second signal ends none: SLURM sends it to each, and their launcher passes its own on.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from proofmill.runtime import processes

GRACE_SECONDS = float(os.environ.get("PROOFMILL_GRACE", "20"))
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Whether and why no more should be begun."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.signal: int | None = None

    def ask(self, why: str) -> None:
        """StopRequest for this reason, unless there was one before."""
        self.why = self.why or why


def leave(sentence: str) -> None:
    """End the process with a sentence, which of several processes the leader says."""
    sys.exit(1 if processes.rank() else sentence)


def at_once(name: str) -> None:
    """Outside of `gracefully` a signal ends the process with a sentence."""

    def handler(number: int, _: object) -> None:
        leave(f"{name}: stopped by {signal.Signals(number).name}; run the same command to go on.")

    for number in SIGNALS:
        signal.signal(number, handler)


_inside = False  # of `gracefully`


@contextmanager
def gracefully(name: str, kept: str = "what was answered is in the journal") -> Iterator[StopRequest]:
    """While inside, the first signal is noted in the request that is given, and the process has the grace time to end.

    Inside another one (the calls of a training's judge) nothing is noted: when to end is the outer one's to decide.
    """
    global _inside
    stop = StopRequest()
    if _inside or threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield stop
        return

    def handler(number: int, _: object) -> None:
        if number == signal.SIGALRM or (stop.signal and processes.world() == 1):
            leave(f"{name}: stopped at once; {kept}. Run the same command to go on.")
        if stop.signal is None:
            stop.signal = number
            stop.ask(f"stopped by {signal.Signals(number).name}")
            signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)

    before = {number: signal.signal(number, handler) for number in (*SIGNALS, signal.SIGALRM)}
    _inside = True
    try:
        yield stop
    finally:
        _inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, old in before.items():
            signal.signal(number, old)

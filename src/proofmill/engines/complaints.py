"""What a server fails with, said in the log at once, and again at growing intervals: 2, 4, 8, ... seconds.

Each class of failure has its own intervals, so that a new trouble is said at once beside an old one. After a minute
without such a failure it is a new trouble.
"""

import time
from dataclasses import dataclass

FIRST = 2.0  # seconds
QUIET = 60.0  # seconds


@dataclass
class _Trouble:
    tries: int = 0  # that failed so
    interval: float = FIRST
    said: float = 0.0
    last: float = 0.0


class Complaints:
    """Counts the failures of a server by class, and decides which of them are said."""

    def __init__(self) -> None:
        self._troubles: dict[str, _Trouble] = {}

    def heard(self, kind: str) -> int:
        """Count a failure of this class; returns how many there were if it is to be said now, else 0."""
        now = time.monotonic()
        trouble = self._troubles.get(kind)
        if trouble is None or now - trouble.last > QUIET:
            trouble = self._troubles[kind] = _Trouble(interval=FIRST / 2, said=-QUIET)
        trouble.tries, trouble.last = trouble.tries + 1, now
        if now - trouble.said < trouble.interval:
            return 0
        trouble.said, trouble.interval = now, 2 * trouble.interval
        return trouble.tries

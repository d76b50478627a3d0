"""Limits of requests and tokens a minute that all jobs of a results folder keep together, on whatever machines they run.

A limit is a token bucket in a file, results/calls/rates/<name>-requests and -tokens. A job draws from it what its next
calls need and a little more, so that it looks at the file a few times a second, however many calls it makes. Where there
is too little it draws that, and looks again as often as any other job that waits, at moments of its own: so all of them
go on, one with long calls too. What it has drawn and not used for LEASE seconds it puts back; of a job that was killed
that little is lost, and the bucket fills again. Together jobs never exceed the rate by more than what the bucket holds
and what each may have drawn in advance.

The clocks of machines differ. The bucket's is the latest time that any of them has written, so that each second is
counted once: a clock that is some seconds ahead of the others lets them wait that long, once. Machines whose clocks differ by
more than SKEW do not keep the limit together, but none of them stops.
"""

import contextlib
import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from proofmill.calls.pacing import Bucket

SHARE = 4  # of the bucket, that a job draws in advance: a quarter
LEASE = 5.0  # seconds
SKEW = 60.0  # seconds
AGAIN = 0.01  # seconds until a job looks again that found the file locked
LOOK = 0.2  # seconds, by and large, between two looks of a job that waits; a bucket holds what comes in five of them
LENGTH = 48  # bytes of what stands in the file: written in place, in one piece


class SharedBucket(Bucket):
    """A bucket that other processes draw from as well; `level` is what this one has drawn and not used.

    The level is negative after too low an estimate: that much is drawn in addition next time.
    """

    def __init__(
        self,
        path: Path,
        limit: str,
        per_minute: float,
        room: float,
        first: float,
        wall: Callable[[], float] = time.time,
    ):
        """The bucket of one limit (requests or tokens) of a model; `first`: what a new one holds; `wall`: the time of day."""
        super().__init__(per_minute, room, 0.0, 0.0)
        self._first, self._wall = first, wall
        self._drawn = 0.0  # when something was last drawn, on this machine's clock
        self._again = 0.0  # when it is looked at again, where there was too little
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(f"{path}-{limit}", os.O_RDWR | os.O_CREAT, 0o644)

    def refill(self, now: float) -> None:
        """Put back what was drawn and not used for a while."""
        if self.level > 0 and now - self._drawn > LEASE:
            self._put_back()
        self.filled = now

    def delay(self, amount: float) -> float:
        """Seconds until this process should ask again for the amount; 0 if it may use it now, and has drawn it."""
        needed = min(amount, self.room)
        if self.level >= needed:
            return 0.0
        if self.filled < self._again:
            return self._again - self.filled
        with self._locked() as free:
            if not free:
                return AGAIN
            there, wall = self._read()
            drawn = max(0.0, min(there, max(needed, self.room / SHARE) - self.level))
            self._write(there - drawn, wall)
        self.level += drawn
        self._drawn = self.filled
        if self.level >= needed:
            return 0.0
        wait = random.uniform(0.5, 1.5) * LOOK
        self._again = self.filled + wait
        return wait

    def close(self) -> None:
        """Put back what is left, or owe what was used in excess."""
        if self._file >= 0:
            self._put_back()
            os.close(self._file)
            self._file = -1

    def _put_back(self) -> None:
        with self._locked(wait=True):
            there, wall = self._read()
            self._write(there + self.level, wall)
        self.level = 0.0

    @contextlib.contextmanager
    def _locked(self, wait: bool = False) -> Iterator[bool]:
        """Hold the file's lock, for a moment; yields False where another process does."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _read(self) -> tuple[float, float]:
        """What the bucket holds now, and the time that this is."""
        wall = self._wall()
        try:
            there, filled = map(float, os.pread(self._file, LENGTH, 0).split())
        except ValueError:  # new, or torn as a machine went down
            return self._first, wall
        if filled > wall + SKEW:
            filled = wall
        wall = max(wall, filled)
        return min(self.room, there + (wall - filled) * self.per_minute / 60), wall

    def _write(self, there: float, wall: float) -> None:
        os.pwrite(self._file, f"{min(there, self.room):.6f} {wall:.6f}".ljust(LENGTH).encode(), 0)

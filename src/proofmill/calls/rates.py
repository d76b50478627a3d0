"""Rate limits in requests and tokens per minute, shared by all jobs of a results folder on any machine.

Each limit is a token bucket in a file, results/calls/rates/<name>-requests and -tokens. A job draws what its next
calls need, at least 1/SHARE of the bucket, so it opens the file only a few times per second. If the bucket is low, a
job takes what is left and polls again after a random delay, so every waiting job makes progress, also one with long
calls. Tokens unused for LEASE seconds are returned. A killed job loses the few that it holds, and the bucket refills.
Jobs exceed the rate together by at most the bucket's capacity plus what each may hold.

Clocks differ between machines. The bucket's time is the latest that any machine wrote, so no second is counted twice.
A clock that runs ahead delays the others once, by that much. Machines more than SKEW seconds apart do not share the
limit, but continue.
"""

import contextlib
import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from proofmill.calls.pacing import Bucket

SHARE = 4  # a job draws at least this fraction of the bucket: a quarter
LEASE = 5.0  # seconds
SKEW = 60.0  # seconds
AGAIN = 0.01  # seconds until a job polls again that found the file locked
LOOK = 0.2  # seconds on average between two polls of a job that waits; a bucket holds five times what arrives meanwhile
LENGTH = 48  # bytes of the file: written in place, in one piece


class SharedBucket(Bucket):
    """A bucket that other processes draw from as well; `level` is the unused amount that this process has drawn.

    The level is negative after too low an estimate. The next draw is larger by that amount.
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
        """Open the bucket of one limit (requests or tokens); `first`: content of a new one; `wall`: the time of day."""
        super().__init__(per_minute, room, 0.0, 0.0)
        self._first, self._wall = first, wall
        self._drawn = 0.0  # time of the last draw, on this machine's clock
        self._again = 0.0  # time of the next poll, if the bucket was low
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(f"{path}-{limit}", os.O_RDWR | os.O_CREAT, 0o644)

    def refill(self, now: float) -> None:
        """Return what was not used for LEASE seconds."""
        if self.level > 0 and now - self._drawn > LEASE:
            self._put_back()
        self.filled = now

    def delay(self, amount: float) -> float:
        """Draw `amount` and return 0, or return the seconds until the next poll."""
        needed = min(amount, self.room)
        if self.level >= needed:
            return 0.0
        if self.filled < self._again:
            return self._again - self.filled
        with self._lock() as free:
            if not free:
                return AGAIN
            content, wall = self._read()
            drawn = max(0.0, min(content, max(needed, self.room / SHARE) - self.level))
            self._write(content - drawn, wall)
        self.level += drawn
        self._drawn = self.filled
        if self.level >= needed:
            return 0.0
        wait = random.uniform(0.5, 1.5) * LOOK
        self._again = self.filled + wait
        return wait

    def close(self) -> None:
        """Return the unused amount to the bucket, or charge it for overuse."""
        if self._file >= 0:
            self._put_back()
            os.close(self._file)
            self._file = -1

    def _put_back(self) -> None:
        with self._lock(wait=True):
            content, wall = self._read()
            self._write(content + self.level, wall)
        self.level = 0.0

    @contextlib.contextmanager
    def _lock(self, wait: bool = False) -> Iterator[bool]:
        """Hold the file's lock for a moment; yields False if another process holds it."""
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
        """Return the content of the bucket now, and the time."""
        wall = self._wall()
        try:
            content, filled = map(float, os.pread(self._file, LENGTH, 0).split())
        except ValueError:  # new, or torn as a machine went down
            return self._first, wall
        if filled > wall + SKEW:
            filled = wall
        wall = max(wall, filled)
        return min(self.room, content + (wall - filled) * self.per_minute / 60), wall

    def _write(self, content: float, wall: float) -> None:
        os.pwrite(self._file, f"{min(content, self.room):.6f} {wall:.6f}".ljust(LENGTH).encode(), 0)

"""Pace the calls to one server: the number in flight, and the start of the next.

Additive increase, multiplicative decrease (Chiu and Jain 1989; slow start as in RFC 5681). The window grows by one for
each output until the server first complains, and by a step for each window of outputs after that. A 429 or an overload
reduces it by 30 %, once for all calls that were in flight together. The step is a quarter of a call or a fiftieth of
the window, whichever is larger. So a limit of one is not probed with every second call, and a limit of hundreds is reached
within some windows. A single complaint among ten calls or more is an accident: its row waits, the other rows do not.

Differences from a fixed semaphore:
1. `Retry-After` delays every call to that server, not only the call that received it.
2. Limits of requests and tokens per minute are buckets of one and ten seconds' worth, so that no burst uses a limit up.
   All jobs of a results folder share them (rates.py).
"""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST = 32  # calls in flight at the start, if no limit is given
MOST = 1024
CUT = 0.7
STEP, STEP_SHARE = 0.25, 0.02
ACCIDENT = 0.15  # share of complaints up to which the window stays
LONGEST = 60.0  # seconds of a pause without `Retry-After`
LONGEST_ASKED = (
    300.0  # seconds of a pause by `Retry-After`: less than PROOFMILL_CALL_STALL_SECONDS, which would end the stage
)


@dataclass
class Bucket:
    """A token bucket, refilled by `per_minute` up to `room`; its level is negative after too low an estimate."""

    per_minute: float
    room: float
    level: float
    filled: float

    def refill(self, now: float) -> None:
        """Add what has accumulated until `now`."""
        self.level = min(self.room, self.level + (now - self.filled) * self.per_minute / 60)
        self.filled = now

    def delay(self, amount: float) -> float:
        """Return the seconds until the bucket holds the amount, or is full if the amount exceeds `room`."""
        return max(0.0, (min(amount, self.room) - self.level) * 60 / self.per_minute)

    def close(self) -> None:
        """Return nothing to other jobs: this bucket is not shared."""


class Pace:
    """The pace of calls. Call `delay` before each, then `started` and `ended`. Times are seconds of `clock`."""

    def __init__(
        self,
        most: int | None = None,
        requests: float | None = None,
        tokens: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        bucket: "Callable[[str, float, float, float], Bucket] | None" = None,
    ):
        """Set the limits: calls in flight that the server is known to allow, and `requests` and `tokens` per minute.

        `bucket` builds the bucket of a limit from its name, the limit, its room and its first content. Without it the
        limits hold for this process alone.
        """
        self.clock, self.most = clock, most or MOST
        self._first = float(most or min(FIRST, MOST))
        self.in_flight = 0
        self.begin_again()
        own = bucket or (lambda _, limit, room, first: Bucket(limit, room, first, clock()))
        self._requests = own("requests", requests, max(1.0, requests / 60), 1.0) if requests else None
        self._tokens = own("tokens", tokens, tokens / 6, tokens / 6) if tokens else None

    def close(self) -> None:
        """Return the unused part of shared limits."""
        for bucket in (self._requests, self._tokens):
            if bucket:
                bucket.close()

    def begin_again(self) -> None:
        """Reset the window after the server was restarted."""
        self.window, self.cuts, self._slow_start = self._first, 0, True
        self._last_cut = self._paused = -math.inf
        self._share = 0.0  # share of complaints among recent calls, about two windows of them
        self._pressed = False  # whether the window, rather than a lack of requests, limits the calls

    def delay(self, tokens: float = 0.0) -> float:
        """Return the seconds until a call of `tokens` may start; infinity if a call in flight must end first."""
        if self.in_flight >= int(self.window):
            self._pressed = True
            return math.inf
        self._pressed = self._pressed and 2 * self.in_flight >= self.window
        now = self.clock()
        paused = wait = max(0.0, self._paused - now)
        for bucket, amount in ((self._requests, 1.0), (self._tokens, tokens)):
            if bucket:
                bucket.refill(now)  # also during a pause: other jobs may use what was drawn
                wait = paused or max(wait, bucket.delay(amount))
        return wait

    @property
    def is_paused(self) -> bool:
        """True if the server complained and calls must wait."""
        return self._paused > self.clock()

    def start_call(self, tokens: float = 0.0) -> float:
        """Count a call in. Return its start time, which `ended` takes."""
        self.in_flight += 1
        if self._requests:
            self._requests.level -= 1
        if self._tokens:
            self._tokens.level -= tokens
        return self.clock()

    def end_call(
        self,
        start: float,
        overload: bool = False,
        asked: float | None = None,
        tokens: float = 0.0,
        answered: bool = True,
    ) -> None:
        """Count out the call that began at `start`. Only an output lets the window grow.

        `overload`: the server complained; `asked`: the seconds of pause it requested, if any; `tokens`: the call's
        tokens in excess of those passed to `started`.
        """
        self.in_flight -= 1
        if self._tokens:
            self._tokens.level -= tokens
        self._share += (overload - self._share) / max(2 * self.window, 20.0)
        if overload:
            if asked is not None:
                self._paused = max(self._paused, self.clock() + min(asked, LONGEST_ASKED))
            if self._share > ACCIDENT and start > self._last_cut:
                self._slow_start, self._last_cut = False, self.clock()
                self.cuts += 1
                self.window = max(1.0, self.window * CUT)
                if asked is None:
                    pause = random.uniform(0.5, 1.0) * backoff(self.cuts)
                    self._paused = max(self._paused, self.clock() + pause)
        elif answered:
            self.cuts = 0
            if self._pressed:
                step = self.window if self._slow_start else max(STEP, STEP_SHARE * self.window)
                self.window = min(float(self.most), self.window + step / self.window)


def backoff(failures: int) -> float:
    """Return the longest wait in seconds after `failures` in a row: 1, 2, 4, ..., a minute."""
    return min(LONGEST, 2.0 ** min(failures - 1, 10))

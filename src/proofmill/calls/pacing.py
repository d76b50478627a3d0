"""How many calls to one server may be in flight, and when the next may start: a plain object, asked before each call.

Additive increase, multiplicative decrease (Chiu and Jain 1989; slow start as in RFC 5681): the window grows by one for
each answer until the server first complains, by a step for each window of answers after that, and is cut by 30 % on a 429
or an overload, once for all calls that were in flight together. The step is a quarter of a call or a fiftieth of the
window: a limit of one is not probed with every second call, and one of hundreds is found again in some rounds. A
complaint that comes alone among ten calls or more is an accident: its own row waits, the others do not.

How we differ from a fixed semaphore:
1. `Retry-After` stops every call to that server, not only the one that was told.
2. Requests and tokens per minute are buckets of one and ten seconds' worth: a limit is not used up in a burst.
"""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST = 32  # calls in flight to begin with, where nothing is said
MOST = 1024
CUT = 0.7
STEP, STEP_SHARE = 0.25, 0.02
ACCIDENT = 0.15  # share of complaints that does not slow us down
LONGEST = 60.0  # seconds of a pause that the server did not ask for
LONGEST_ASKED = 900.0  # seconds of a pause that it did


@dataclass
class Bucket:
    """Something that is refilled by so much a minute, up to `room`; it may owe, when an estimate was too low."""

    per_minute: float
    room: float
    level: float
    filled: float

    def refill(self, now: float) -> None:
        self.level = min(self.room, self.level + (now - self.filled) * self.per_minute / 60)
        self.filled = now

    def delay(self, amount: float) -> float:
        """Seconds until it holds the amount, or is full where it can never hold so much."""
        return max(0.0, (min(amount, self.room) - self.level) * 60 / self.per_minute)


class Pace:
    """`delay` says when a call may start; `started` and `ended` tell what became of it. Seconds by `clock`."""

    def __init__(
        self,
        most: int | None = None,
        requests: float | None = None,
        tokens: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`most` calls in flight from the start, if the server is known to allow them; limits are per minute."""
        self.clock, self.most = clock, most or MOST
        self._first = float(most or min(FIRST, MOST))
        self.in_flight = 0
        self.begin_again()
        now = clock()
        self._requests = Bucket(requests, max(1.0, requests / 60), 1.0, now) if requests else None
        self._tokens = Bucket(tokens, tokens / 6, tokens / 6, now) if tokens else None

    def begin_again(self) -> None:
        """Forget the complaints: the server is another one now."""
        self.window, self.cuts, self._slow_start = self._first, 0, True
        self._last_cut = self._paused = -math.inf
        self._share = 0.0  # of complaints among the last calls, about twice as many as the window has
        self._pressed = False  # the window, and not a lack of questions, holds calls back

    def delay(self, tokens: float = 0.0) -> float:
        """Seconds until a call of so many tokens may start: 0 now, infinity when one in flight must end before."""
        if self.in_flight >= int(self.window):
            self._pressed = True
            return math.inf
        self._pressed = self._pressed and 2 * self.in_flight >= self.window
        now = self.clock()
        waits = [self._paused - now]
        for bucket, amount in ((self._requests, 1.0), (self._tokens, tokens)):
            if bucket:
                bucket.refill(now)
                waits.append(bucket.delay(amount))
        return max(0.0, *waits)

    def started(self, tokens: float = 0.0) -> float:
        """Count a call in; gives the moment it started, which `ended` wants back."""
        self.in_flight += 1
        if self._requests:
            self._requests.level -= 1
        if self._tokens:
            self._tokens.level -= tokens
        return self.clock()

    def ended(
        self,
        start: float,
        overload: bool = False,
        asked: float | None = None,
        tokens: float = 0.0,
        answered: bool = True,
    ) -> None:
        """Count a call out that began at `start`; only an answer lets the window grow.

        `overload`: the server complained, and `asked` for so many seconds of pause, if it did; `tokens`: how many more than
        it was counted for it had.
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
    """Seconds to wait at most after so many failures in a row: 1, 2, 4, ... a minute."""
    return min(LONGEST, 2.0 ** min(failures - 1, 10))

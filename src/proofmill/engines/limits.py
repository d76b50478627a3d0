"""Time limits of calls. Time in which this process stood still (SIGSTOP, a suspended machine) does not count.

An answer that arrived meanwhile would else be thrown away, and paid again: when the process goes on, every timer is due.
A timer that beats twice a second is the first of them. It sees how late it is, and puts all limits off by that.
"""

import asyncio
import time
from typing import Any

BEAT = 0.5  # seconds
LATE = 1.0  # seconds; a busy event loop is less


class TimeLimits:
    """The limits of the calls in flight, and a clock that runs as they do. A context manager: the timer beats inside."""

    def __init__(self) -> None:
        self._open: set[asyncio.Timeout] = set()
        self._stood_still = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "TimeLimits":
        loop = asyncio.get_running_loop()
        due = loop.time() + BEAT
        # The callback of the timer itself, not a task that sleeps: that would run after the limits' own timers.
        self._timer = loop.call_at(due, self._beat, due)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self, due: float) -> None:
        late = asyncio.get_running_loop().time() - due
        if late > LATE:
            self._stood_still += late
            for limit in self._open:
                ends = limit.when()
                if ends is not None and not limit.expired():
                    limit.reschedule(ends + late)
        self.__enter__()

    def clock(self) -> float:
        """Seconds that have passed, without those in which the process stood still."""
        return time.monotonic() - self._stood_still

    def at_most(self, seconds: float) -> "Limit":
        """A context in which TimeoutError is raised when what is inside takes longer."""
        return Limit(self._open, asyncio.timeout(seconds))


class Limit:
    """The limit of one call, which is put off with the others. (As a generator it takes three times as long.)"""

    def __init__(self, others: set[asyncio.Timeout], own: asyncio.Timeout):
        self._others, self._own = others, own

    async def __aenter__(self) -> None:
        await self._own.__aenter__()
        self._others.add(self._own)

    async def __aexit__(self, *error: Any) -> None:
        self._others.discard(self._own)
        await self._own.__aexit__(*error)

"""Time limits of calls. Time in which this process was suspended (SIGSTOP, a sleeping machine) does not count.

When a suspended process continues, every timer is due at once. Outputs that arrived meanwhile would be discarded and
paid for again. A timer that fires twice a second runs before the others. It finds out how late it is, and extends all
limits by that.
"""

import asyncio
import time
from typing import Any

BEAT = 0.5  # seconds
LATE = 1.0  # seconds; a busy event loop causes shorter delays


class TimeLimits:
    """The limits of the calls in flight, and a clock that pauses with them. Use it as a context manager."""

    def __init__(self) -> None:
        self._open: set[asyncio.Timeout] = set()
        self._suspended = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "TimeLimits":
        loop = asyncio.get_running_loop()
        due = loop.time() + BEAT
        # A timer callback, not a sleeping task: a task would run after the limits' own timers.
        self._timer = loop.call_at(due, self._beat, due)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self, due: float) -> None:
        late = asyncio.get_running_loop().time() - due
        if late > LATE:
            self._suspended += late
            for limit in self._open:
                ends = limit.when()
                if ends is not None and not limit.expired():
                    limit.reschedule(ends + late)
        self.__enter__()

    def clock(self) -> float:
        """Return the seconds of a monotonic clock, without those in which the process was suspended."""
        return time.monotonic() - self._suspended

    def at_most(self, seconds: float) -> "Limit":
        """Return a context that raises TimeoutError when its body takes longer."""
        return Limit(self._open, asyncio.timeout(seconds))


class Limit:
    """The limit of one call, extended together with the others. (A generator would be three times slower.)"""

    def __init__(self, others: set[asyncio.Timeout], own: asyncio.Timeout):
        self._others, self._own = others, own

    async def __aenter__(self) -> None:
        await self._own.__aenter__()
        self._others.add(self._own)

    async def __aexit__(self, *error: Any) -> None:
        self._others.discard(self._own)
        await self._own.__aexit__(*error)

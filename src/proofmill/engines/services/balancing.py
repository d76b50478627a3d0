"""Choose the replica for each call of a job: of those that are up, the one with the fewest of its calls in flight."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from proofmill.engines.services.directory import Replica, Service
from proofmill.engines.services.start_on_demand import pending, request_start

READ = 1.0  # seconds between two reads of the directory
AVOIDED = 5.0  # seconds for which a replica that did not respond gets no calls
MOST_AN_HOUR = 3  # starts of a service by one job
PATIENT = 5.0  # seconds that a call waits for a replica, before it gives its slot to another


class Balance:
    """The replicas of a service as one job sees them."""

    def __init__(self, service: Service):
        self.service = service
        self._replicas: list[Replica] = []
        self._read = self._tried = float("-inf")
        self._starts: list[float] = []  # times at which this job started it
        self._in_flight: Counter[Replica] = Counter()
        self._avoided: dict[Replica, float] = {}

    async def choose(self) -> Replica | None:
        """Return a replica that is up; start the service if needed. None if none is up within PATIENT seconds."""
        end = time.monotonic() + PATIENT
        if self._choose() is None:
            await self._start()
        while (chosen := self._choose()) is None and time.monotonic() < end:
            await asyncio.sleep(READ / 2)
        return chosen

    async def _start(self) -> None:
        """Start the service, at most MOST_AN_HOUR times an hour: a request of this job may be what crashes it."""
        now = time.monotonic()
        lately = [when for when in self._starts if now - when < 3600]
        if now - self._tried > AVOIDED and len(lately) < MOST_AN_HOUR:
            self._tried = now
            if await asyncio.to_thread(request_start, self.service):
                self._starts = [*lately, now]

    def _choose(self) -> Replica | None:
        now = time.monotonic()
        if now - self._read > READ:
            self._reload()
        up = [replica for replica in self._replicas if self._avoided.get(replica, 0.0) <= now]
        return min(up, key=lambda replica: self._in_flight[replica], default=None)

    def _reload(self) -> None:
        self._replicas, self._read = self.service.replicas(), time.monotonic()

    @contextmanager
    def asking(self, replica: Replica) -> Iterator[None]:
        """Count a call to this replica as in flight while inside."""
        self._in_flight[replica] += 1
        try:
            yield
        finally:
            self._in_flight[replica] -= 1

    def has(self, replica: Replica) -> bool:
        """Reload the directory and return whether the replica still has the same address."""
        self._reload()
        return replica in self._replicas

    def avoid(self, replica: Replica) -> None:
        """Send no calls to the replica for AVOIDED seconds."""
        self._avoided[replica] = time.monotonic() + AVOIDED

    def absent(self) -> str:
        """Return the reason why no replica is available."""
        starting, down = self.service.starting(), len(self._replicas)
        if starting or down:
            return f"no replica of its service responds ({starting} starting, {down} not responding)"
        if submitted := pending(self.service):
            return (
                f"its service was requested at {time.strftime('%H:%M', time.localtime(submitted))} and has not started (log: "
                f"{self.service.start_log}). If its job is gone, remove {self.service.requested} and rerun"
            )
        return f"its service is not up; start it: proofmill serve {self.service.name}"

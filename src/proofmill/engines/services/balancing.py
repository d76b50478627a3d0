"""Which replica of a service the next call goes to: of those that are up, the one with the fewest calls of this job."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from proofmill.engines.services.directory import Replica, Service
from proofmill.engines.services.summoning import pending, summon

READ = 1.0  # seconds between two looks into the directory
AVOIDED = 5.0  # seconds for which nobody is sent to a replica that did not answer
MOST_AN_HOUR = 3  # times that a job has a service started
PATIENT = 5.0  # seconds that a call waits for a replica, before it gives its place to another


class Balance:
    """The replicas of a service as one job sees them."""

    def __init__(self, service: Service):
        self.service = service
        self._replicas: list[Replica] = []
        self._read = self._tried = float("-inf")
        self._summons: list[float] = []  # when this job had it started
        self._in_flight: Counter[Replica] = Counter()
        self._avoided: dict[Replica, float] = {}

    async def choose(self) -> Replica | None:
        """A replica to ask, started where nobody has done so, and waited for a while; None if none is up."""
        end = time.monotonic() + PATIENT
        if self._choose() is None:
            await self._summon()
        while (chosen := self._choose()) is None and time.monotonic() < end:
            await asyncio.sleep(READ / 2)
        return chosen

    async def _summon(self) -> None:
        """Have the service started, unless that did not last: a question of ours may be what kills it."""
        now = time.monotonic()
        lately = [when for when in self._summons if now - when < 3600]
        if now - self._tried > AVOIDED and len(lately) < MOST_AN_HOUR:
            self._tried = now
            if await asyncio.to_thread(summon, self.service):
                self._summons = [*lately, now]

    def _choose(self) -> Replica | None:
        now = time.monotonic()
        if now - self._read > READ:
            self._look()
        up = [replica for replica in self._replicas if self._avoided.get(replica, 0.0) <= now]
        return min(up, key=lambda replica: self._in_flight[replica], default=None)

    def _look(self) -> None:
        self._replicas, self._read = self.service.replicas(), time.monotonic()

    @contextmanager
    def asking(self, replica: Replica) -> Iterator[None]:
        """While inside, a call to this replica is in flight."""
        self._in_flight[replica] += 1
        try:
            yield
        finally:
            self._in_flight[replica] -= 1

    def has(self, replica: Replica) -> bool:
        """Whether the replica is still where it was; looked up anew."""
        self._look()
        return replica in self._replicas

    def avoid(self, replica: Replica) -> None:
        """Send nobody there for a while."""
        self._avoided[replica] = time.monotonic() + AVOIDED

    def absent(self) -> str:
        """Why no replica can be asked."""
        starting, down = self.service.starting(), len(self._replicas)
        if starting or down:
            return f"no replica of its service answers ({starting} starting, {down} not answering)"
        if submitted := pending(self.service):
            return (
                f"its service was asked for at {time.strftime('%H:%M', time.localtime(submitted))} and has not begun (what was "
                f"said then: {self.service.start_log}); where its job is gone, remove {self.service.summoned} to have it "
                "started again"
            )
        return f"its service is not up; start it: proofmill serve {self.service.name}"

"""The request queue of one server: new requests, calls in flight, rows that wait for a retry, rows that failed.

Differences from a loop that retries:
1. A row that waits for a retry gives its slot in flight to another row. The class of failure decides on retries.
2. A failure that repeats fails the row. A failure that waiting cannot fix (a refused key, no credit) stops the stage at
   once, so it does not repeat for every row. A forbidden request (403, 404) fails its row if the server answers others.
   It stops the stage if the server answers none.
3. If a server answers no call for PROOFMILL_CALL_STALL_SECONDS (600 s), the stage stops and fails no more rows.
4. With a budget, a call that the server may have charged without reporting usage costs what was reserved for it. The
   cost of a failed try is in the journal before the next try.
5. With a budget, a model's calls are made one at a time until one is answered. Each later call reserves at least the
   cost of that one. So a server that ignores `max_tokens` overruns the budget by one call, not by all in flight.
6. Server failures are logged at once, and at growing intervals after that (error_log.py).
"""

import asyncio
import heapq
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any

from proofmill.calls.calls import Asking
from proofmill.calls.model_requests import ModelOutput, ModelRequest
from proofmill.calls.pacing import LONGEST_ASKED, backoff
from proofmill.calls.runner import Feed
from proofmill.runtime.progress import clock
from proofmill.schema.reasons import StopReason

# Tries of one row by class of failure; rows with failures of other classes have one try. An unavailable service never counts as a failed try:
# the row waits up to PROOFMILL_CALL_STALL_SECONDS.
ATTEMPTS = {"away": 12, "provider": 6, "timeout": 3, "absent": math.inf}
SAME_FAILURES = 3  # failures of a row with the same message, after which the row fails
REFUSED_ROWS = 8  # so many forbidden rows and no answer: the cause is not in the rows
WAIT_HEADERS, DAY = ("retry-after-ms", "retry-after"), 86_400.0


@dataclass(frozen=True)
class Failure:
    """A failed try: its class, which decides on retries, the reason its row fails with, the server's message."""

    kind: str  # absent, away, provider, timeout, refused, too-long, bad-request, forbidden, no-use
    reason: str
    detail: str
    wait: float | None = None  # seconds that the server asks us to wait
    cost: float = 0.0  # dollars: the reply was not usable, but was charged
    charged: bool = False  # the server may have charged it, without reporting usage
    readable: bool = True  # the reply followed the protocol
    answer: ModelOutput | None = None  # the reply, if it counts as an answer when repeated
    reached: bool = True  # a server was reached


@dataclass
class PendingCall:
    """An unanswered request, and its failures so far."""

    request: ModelRequest
    failures: list[Failure] = field(default_factory=list)
    reserved: float = 0.0  # dollars, for the call in flight


class RequestQueue:
    """The requests of one `answer`: new ones, those in flight, those that wait for a retry."""

    def __init__(self, engine: Any, requests: Iterator[ModelRequest] | Feed, asking: Asking):
        self.engine, self.asking, self.pace, self.server = engine, asking, engine.pace, engine.server
        self.feed = requests if isinstance(requests, Feed) else None
        self.fresh = map(PendingCall, requests)
        self.held: PendingCall | None = None
        self.waiting: list[tuple[float, int, PendingCall]] = []  # a heap by the time of the retry
        self.number = count()
        self.tasks: set[asyncio.Task] = set()
        self.arrived: list[tuple[PendingCall, float, float, ModelOutput | Failure]] = []
        self.news = asyncio.Event()
        if self.feed:
            self.feed.wake = self.news.set
        self.last_answer, self.last_failure = engine.limits.clock(), ""
        self.answered = False
        self.forbidden: list[PendingCall] = []  # refused before any answer: the cause may be the row, or the account
        self.broken: BaseException | None = None
        self.lengths = [512.0, 1.0]  # mean tokens of an answer (initially a guess), and the number of answers

    async def hold(self) -> None:
        try:
            while True:
                wait = self._start()
                if self.broken:
                    raise self.broken
                if not self.tasks and not self.arrived:
                    self._judge_the_forbidden()
                    if self.asking.stop.why or not (self.held or self.waiting or self._feeding):
                        break
                    if not (self.held or self.waiting):
                        self.last_answer = self.engine.limits.clock()  # no call is open, so the server owes no answer
                try:
                    async with asyncio.timeout(min(wait, 0.5)):  # check for a signal twice a second
                        await self.news.wait()
                except TimeoutError:
                    pass
                self.news.clear()
                arrived, self.arrived = self.arrived, []
                for row, start, tokens, outcome in arrived:
                    self._take(row, start, tokens, outcome)
                self._lose_patience()
                await self._look_after_server()
        finally:
            for task in self.tasks:
                task.cancel()

    @property
    def _feeding(self) -> bool:
        """True while outputs of other models may still lead to new requests."""
        return self.feed is not None and self.feed.open

    def _start(self) -> float:
        """Start all calls that may start; return the seconds until the next may."""
        asking = self.asking
        while not asking.stop.why:
            if len(self.forbidden) >= REFUSED_ROWS and not self.answered:
                return math.inf
            row, wait = self._next()
            if row is None:
                return wait
            if self.server and not self.server.started:
                self.held = row
                return 0.0
            tokens = row.request.size / 4 + self.lengths[0]
            wait = self.pace.delay(tokens)
            if wait:
                self.held = row
                if not self.tasks and not self.pace.is_paused:
                    self.last_answer = self.engine.limits.clock()  # rate limits delay the calls, not the server
                return wait
            row.reserved = asking.most(row.request)
            if (self.tasks or self.arrived) and row.reserved and asking.probing:
                self.held = row
                return math.inf
            if not asking.reserve(row.reserved):
                self.held = row
                if not self.tasks and not asking.stop.why:
                    self.last_answer = (
                        self.engine.limits.clock()
                    )  # other jobs hold the budget, the server is not silent
                    if asking.budget.is_spent(row.reserved):
                        asking.stop.ask(f"stopped because the budget of ${asking.budget.dollars:,.2f} is spent")
                return math.inf
            task = asyncio.create_task(self._ask(row, self.pace.start_call(tokens), tokens))
            self.tasks.add(task)
            task.add_done_callback(self._end)
        return math.inf

    def _end(self, task: asyncio.Task) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception():
            self.broken = task.exception()
        self.news.set()  # the task ends just after its answer; without this, `hold` would wait half a second more

    def _next(self) -> tuple[PendingCall | None, float]:
        """Return the next row (one held back, a due retry, or a new one) and the seconds until a retry."""
        if self.held:
            row, self.held = self.held, None
            return row, 0.0
        due = self.waiting[0][0] - time.monotonic() if self.waiting else math.inf
        if due <= 0:
            return heapq.heappop(self.waiting)[2], 0.0
        return next(self.fresh, None), due

    async def _ask(self, row: PendingCall, start: float, tokens: float) -> None:
        outcome = await self.engine.attempt(row.request, len(row.failures) + 1)
        self.arrived.append((row, start, tokens, outcome))
        self.news.set()

    def _take(self, row: PendingCall, start: float, tokens: float, outcome: ModelOutput | Failure) -> None:
        """Write an answer to the journal, then free its slot in flight. Retry or accept a failure, or fail its row."""
        self.asking.budget.settle(row.reserved)
        if isinstance(outcome, Failure):
            overload = outcome.kind in ("away", "timeout")
            self.pace.end_call(start, overload=overload, asked=outcome.wait, answered=False)
            row.failures.append(outcome)
            cost = outcome.cost + (row.reserved if outcome.charged and self.asking.limited else 0.0)
            if outcome.cost:
                self.asking.learn(outcome.cost)
            self._after_failure(row, cost)
            return
        if outcome.cost is None and self.asking.limited:
            outcome = replace(outcome, cost=max(row.reserved, self.engine.overrun(row.request, outcome)))
        self.asking.learn(outcome.cost or 0.0)
        self.answered, self.asking.last_failure = True, ""
        self.asking.take(row.request, outcome)
        mean, number = self.lengths
        self.lengths = [mean + (outcome.tokens - mean) / number, min(number + 1, 1000)]
        self.last_answer = self.engine.limits.clock()
        self.pace.end_call(start, tokens=outcome.prompt_tokens + outcome.tokens - tokens)

    def _after_failure(self, row: PendingCall, cost: float) -> None:
        """Retry, accept or fail the row. The cost of the try is in the journal before the next call."""
        failure, failures = row.failures[-1], row.failures
        self.last_failure = failure.detail
        self._complain(failure)
        alike = sum(f.kind == failure.kind for f in failures)
        same = sum(f.detail == failure.detail for f in failures)
        forbidden = failure.kind == "forbidden" and not self.answered
        again = alike < ATTEMPTS.get(failure.kind, 1) and (failure.kind != "provider" or same < SAME_FAILURES)
        if cost and (failure.kind == "no-use" or forbidden or again):
            self.asking.journal.add(row.request, self._find_failed_keys(row, cost))
        if failure.kind == "no-use":
            self.asking.stop.ask(self.engine.no_use(failure))
        elif forbidden:
            self.forbidden.append(row)
        elif again:
            wait = backoff(len(failures)) / 2 if failure.wait is None else min(failure.wait, LONGEST_ASKED)
            heapq.heappush(self.waiting, (time.monotonic() + wait, next(self.number), row))
        elif failure.answer:  # repeatedly empty: this counts as the answer, and was charged
            unknown = failure.answer.cost is None and not self.asking.limited
            self.asking.take(row.request, replace(failure.answer, cost=None if unknown else cost))
        else:
            self.asking.take(row.request, self._find_failed_keys(row, cost))

    def _complain(self, failure: Failure) -> None:
        self.asking.last_failure = failure.detail
        if tries := self.engine.complaints.count(failure.kind if failure.reached else "unreached"):
            fails = "fails" if failure.reached else "cannot be reached"
            many = f"{tries:,} {'try' if tries == 1 else 'tries'}"
            self.asking.complain(f"{self.engine.name} {fails} ({many}): {failure.detail[:200]}")

    def _find_failed_keys(self, row: PendingCall, cost: float) -> ModelOutput:
        failure = row.failures[-1]
        stop = StopReason.END if failure.kind in ("refused", "too-long") else StopReason.ERROR
        known = None if self.engine.price == "unknown" else cost
        return ModelOutput("", stop, failure.reason, cost=known, tries=len(row.failures), detail=failure.detail)

    def _judge_the_forbidden(self) -> None:
        """Fail forbidden rows if another row was answered. Else stop the stage once many, or all, are forbidden."""
        if not self.answered and (len(self.forbidden) >= REFUSED_ROWS or (self.forbidden and not self._more())):
            self.asking.stop.ask(self.engine.no_use(self.forbidden[0].failures[-1]))
        elif self.answered:
            while self.forbidden:
                row = self.forbidden.pop()
                self.asking.take(row.request, self._find_failed_keys(row, 0.0))

    def _more(self) -> bool:
        """Return whether any row is left to ask, now or later."""
        if not (self.held or self.waiting):
            self.held = next(self.fresh, None)
        return bool(self.held or self.waiting)

    def _lose_patience(self) -> None:
        silent = self.engine.limits.clock() - self.last_answer
        if self.last_failure and silent > max(self.engine.patience, self.engine.limit):
            self.asking.stop.ask(
                f"stopped because {self.engine.name} answered nothing for {clock(silent)}: {self.last_failure}"
            )

    async def _look_after_server(self) -> None:
        """Start the job's own server for the first request, and restart it when it has died."""
        server = self.server
        if server is None or self.asking.stop.why:
            return
        if not server.started:
            if self.held:
                await asyncio.to_thread(server.start)
                self.engine.follow_server()
                self.last_answer = self.engine.limits.clock()
        elif not server.alive():
            if server.restarts_left:
                await asyncio.to_thread(server.restart)
                self.engine.follow_server()
                self.pace.begin_again()
            else:
                self.asking.stop.ask(f"stopped because the server died after each restart: {server.last_words()}")


def retry_after(response: Any) -> float | None:
    """Return the seconds of `Retry-After`; None without it, or if it is more than a day (a clock in milliseconds).

    RFC 9110, 10.2.3: seconds, or a date; some send milliseconds.
    """
    for header in WAIT_HEADERS:
        value = response.headers.get(header)
        if value is None:
            continue
        try:
            seconds = float(value) / (1000 if header.endswith("ms") else 1)
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, OverflowError):
                continue
        return max(0.0, seconds) if seconds <= DAY else None  # NaN gives None, too
    return None

"""Many questions to one server: those to ask next, those in flight, those that wait for a retry, those given up.

How we differ from a loop that retries:
1. A row that waits for a retry gives its place in flight to another row. The class of failure decides on retries.
2. A repeated failure parks the row. A failure that waiting cannot mend (a refused key, no credit) stops the stage at
   once, before it has cost a million calls. What a server forbids (403, 404) parks its row where others are answered,
   and stops the stage where nobody is.
3. If a server answers no call for PROOFMILL_PATIENCE (600 s), the stage stops and parks no more rows.
4. With a budget, a call that the server may have charged without saying how much costs what was reserved for it. What
   a failed attempt cost is in the journal before the next is made.
5. With a budget, a model's calls are made one by one until one is answered. What it cost is the least that is reserved
   for the next: a server that ignores `max_tokens` overruns the budget by one call, not by all in flight.
6. What a server fails with is in the log at once, and at growing intervals after that (complaints.py).
"""

import asyncio
import heapq
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from proofmill.calls.calls import Asking
from proofmill.calls.exchange import Answer, Question
from proofmill.calls.flow import Feed
from proofmill.calls.pacing import LONGEST_ASKED, backoff
from proofmill.runtime.progress import clock
from proofmill.schema.reasons import Stop

# Attempts of one row by class of failure; other classes have one. That no replica of a service can be asked is never the
# row's fault: it waits until PROOFMILL_PATIENCE is over.
ATTEMPTS = {"away": 12, "provider": 6, "timeout": 3, "absent": math.inf}
SAME_FAILURES = 3  # failures of a row in the same words, after which it is parked
REFUSED_ROWS = 8  # rows that are forbidden, and nobody is answered: then it is not the rows


@dataclass(frozen=True)
class Failure:
    """A failed attempt: its class, which decides on retries, the reason to park its row with, the server's message."""

    kind: str  # absent, away, provider, timeout, refused, too-long, bad-request, forbidden, no-use
    reason: str
    detail: str
    wait: float | None = None  # seconds that the server asked for
    cost: float = 0.0  # dollars: the reply was no answer, but was charged
    charged: bool = False  # the server may have charged it, and does not say how much
    readable: bool = True  # what came was a reply of the protocol
    answer: Answer | None = None  # the reply, if it counts as an answer when repeated
    reached: bool = True  # a server was there


@dataclass
class Row:
    """A question under way, and its failures so far."""

    question: Question
    failures: list[Failure] = field(default_factory=list)
    reserved: float = 0.0  # dollars, for the call in flight


class Conversation:
    """The questions of one `answer`: those to ask next, those in flight, those that wait for a retry."""

    def __init__(self, engine: Any, questions: Iterator[Question] | Feed, asking: Asking):
        self.engine, self.asking, self.pace, self.server = engine, asking, engine.pace, engine.server
        self.feed = questions if isinstance(questions, Feed) else None
        self.fresh = map(Row, questions)
        self.held: Row | None = None
        self.waiting: list[tuple[float, int, Row]] = []  # a heap by the moment a row may be asked again
        self.number = count()
        self.tasks: set[asyncio.Task] = set()
        self.arrived: list[tuple[Row, float, float, Answer | Failure]] = []
        self.news = asyncio.Event()
        if self.feed:
            self.feed.wake = self.news.set
        self.last_answer, self.last_failure = engine.limits.clock(), ""
        self.answered = False
        self.forbidden: list[Row] = []  # refused before anybody was answered: the rows, or all of us?
        self.broken: BaseException | None = None
        self.lengths = [512.0, 1.0]  # mean tokens of an answer (a guess at first), and of how many answers

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
                        self.last_answer = self.engine.limits.clock()  # nobody is asked, so nobody is silent
                try:
                    async with asyncio.timeout(min(wait, 0.5)):  # look for a signal twice a second
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
        """Whether questions may still arise from the answers of other models."""
        return self.feed is not None and self.feed.open

    def _start(self) -> float:
        """Start all calls that may start; returns the seconds until the next may."""
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
            tokens = row.question.size / 4 + self.lengths[0]
            wait = self.pace.delay(tokens)
            if wait:
                self.held = row
                if not self.tasks and not self.pace.is_paused:
                    self.last_answer = self.engine.limits.clock()  # limits hold us up, not the server
                return wait
            row.reserved = asking.most(row.question)
            if (self.tasks or self.arrived) and row.reserved and asking.probing:
                self.held = row
                return math.inf
            if not asking.reserve(row.reserved):
                self.held = row
                if not self.tasks and not asking.stop.why:
                    self.last_answer = self.engine.limits.clock()  # other jobs hold us up, not the server
                    if asking.budget.spent_up(row.reserved):
                        asking.stop.ask(f"stopped because the budget of ${asking.budget.dollars:,.2f} is spent")
                return math.inf
            task = asyncio.create_task(self._ask(row, self.pace.started(tokens), tokens))
            self.tasks.add(task)
            task.add_done_callback(self._ended)
        return math.inf

    def _ended(self, task: asyncio.Task) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception():
            self.broken = task.exception()
        self.news.set()  # the task ends just after its answer: without this, `hold` waits half a second after the last

    def _next(self) -> tuple[Row | None, float]:
        """The row to ask next: one held back, a retry that is due, or a new one; and the seconds until a retry."""
        if self.held:
            row, self.held = self.held, None
            return row, 0.0
        due = self.waiting[0][0] - time.monotonic() if self.waiting else math.inf
        if due <= 0:
            return heapq.heappop(self.waiting)[2], 0.0
        return next(self.fresh, None), due

    async def _ask(self, row: Row, start: float, tokens: float) -> None:
        outcome = await self.engine.attempt(row.question, len(row.failures) + 1)
        self.arrived.append((row, start, tokens, outcome))
        self.news.set()

    def _take(self, row: Row, start: float, tokens: float, outcome: Answer | Failure) -> None:
        """Journal an answer, and only then free its place in flight. A failure is retried, accepted or parked."""
        self.asking.budget.settle(row.reserved)
        if isinstance(outcome, Failure):
            overload = outcome.kind in ("away", "timeout")
            self.pace.ended(start, overload=overload, asked=outcome.wait, answered=False)
            row.failures.append(outcome)
            cost = outcome.cost + (row.reserved if outcome.charged and self.asking.limited else 0.0)
            if outcome.cost:
                self.asking.learn(outcome.cost)
            self._after_failure(row, cost)
            return
        if outcome.cost is None and self.asking.limited:
            outcome = replace(outcome, cost=max(row.reserved, self.engine.overrun(row.question, outcome)))
        self.asking.learn(outcome.cost or 0.0)
        self.answered, self.asking.last_failure = True, ""
        self.asking.take(row.question, outcome)
        mean, number = self.lengths
        self.lengths = [mean + (outcome.tokens - mean) / number, min(number + 1, 1000)]
        self.last_answer = self.engine.limits.clock()
        self.pace.ended(start, tokens=outcome.prompt_tokens + outcome.tokens - tokens)

    def _after_failure(self, row: Row, cost: float) -> None:
        """Retry, accept or park the row; what the attempt cost is in the journal before anything else is asked."""
        failure, failures = row.failures[-1], row.failures
        self.last_failure = failure.detail
        self._complain(failure)
        alike = sum(f.kind == failure.kind for f in failures)
        same = sum(f.detail == failure.detail for f in failures)
        forbidden = failure.kind == "forbidden" and not self.answered
        again = alike < ATTEMPTS.get(failure.kind, 1) and (failure.kind != "provider" or same < SAME_FAILURES)
        if cost and (failure.kind == "no-use" or forbidden or again):
            self.asking.journal.add(row.question, self._parked(row, cost))
        if failure.kind == "no-use":
            self.asking.stop.ask(self.engine.no_use(failure))
        elif forbidden:
            self.forbidden.append(row)
        elif again:
            wait = backoff(len(failures)) / 2 if failure.wait is None else min(failure.wait, LONGEST_ASKED)
            heapq.heappush(self.waiting, (time.monotonic() + wait, next(self.number), row))
        elif failure.answer:  # empty again and again: this counts as the answer, and was charged
            unknown = failure.answer.cost is None and not self.asking.limited
            self.asking.take(row.question, replace(failure.answer, cost=None if unknown else cost))
        else:
            self.asking.take(row.question, self._parked(row, cost))

    def _complain(self, failure: Failure) -> None:
        self.asking.last_failure = failure.detail
        if tries := self.engine.complaints.heard(failure.kind if failure.reached else "unreached"):
            fails = "fails" if failure.reached else "cannot be reached"
            many = f"{tries:,} {'try' if tries == 1 else 'tries'}"
            self.asking.complain(f"{self.engine.name} {fails} ({many}): {failure.detail[:200]}")

    def _parked(self, row: Row, cost: float) -> Answer:
        failure = row.failures[-1]
        stop = Stop.END if failure.kind in ("refused", "too-long") else Stop.ERROR
        known = None if self.engine.price == "unknown" else cost
        return Answer("", stop, failure.reason, cost=known, attempts=len(row.failures), detail=failure.detail)

    def _judge_the_forbidden(self) -> None:
        """Park the rows that were refused, if another was answered; else, and if that is all or many, they blame us."""
        if not self.answered and (len(self.forbidden) >= REFUSED_ROWS or (self.forbidden and not self._more())):
            self.asking.stop.ask(self.engine.no_use(self.forbidden[0].failures[-1]))
        elif self.answered:
            while self.forbidden:
                row = self.forbidden.pop()
                self.asking.take(row.question, self._parked(row, 0.0))

    def _more(self) -> bool:
        """Whether there are rows to ask, now or later."""
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
        """Start our own server for the first question, and again when it has died."""
        server = self.server
        if server is None or self.asking.stop.why:
            return
        if not server.started:
            if self.held:
                await asyncio.to_thread(server.start)
                self.engine.moved()
                self.last_answer = self.engine.limits.clock()
        elif not server.alive():
            if server.restarts_left:
                await asyncio.to_thread(server.start_again)
                self.engine.moved()
                self.pace.begin_again()
            else:
                self.asking.stop.ask(f"stopped because the server died again and again: {server.last_words()}")

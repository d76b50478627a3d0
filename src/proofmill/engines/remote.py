"""Models behind the OpenAI protocol: Chat Completions or Responses of a server, through the `openai` package.

How we differ from the client's own retries:
1. The time limit of a call (PROOFMILL_TIMEOUT, 600 s) runs from its start to its last byte: a trickle ends too.
2. A row that waits for a retry gives its place in flight to another row. The class of error decides on retries.
3. A repeated failure parks the row. A failure that waiting cannot mend (a refused key, an unknown model, no credit)
   stops the stage at once, before it has cost a million calls.
4. If a server answers no call for PROOFMILL_PATIENCE (600 s), the stage stops and parks no more rows.
5. Replies come in through replies.py and transport.py: typed, bounded, without our key. What is no reply fails its row.
6. With a budget, a call that the server may have charged without saying how much costs what was set aside for it.
"""

import asyncio
import heapq
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from proofmill.calls import budget
from proofmill.calls.calls import Asking, split_reasoning
from proofmill.calls.exchange import Answer, Question
from proofmill.calls.pacing import LONGEST_ASKED, Pace, backoff
from proofmill.engines import replies
from proofmill.engines.redaction import Redaction
from proofmill.runtime.progress import clock
from proofmill.schema.reasons import Reason, Stop

ATTEMPTS = {"away": 12, "provider": 6, "timeout": 3}  # attempts of one row by class of failure; other classes have one
SAME_FAILURES = 3  # failures of a row in the same words, after which it is parked
REFUSED_ROWS = 8  # rows refused in a row, nobody answered: then it is not the rows
AWAY = {429, 502, 503, 504, 529}  # overloaded or unreachable: a reason to slow down
TOO_LONG = (
    "context_length_exceeded",
    "maximum context length",
    "context length",
    "prompt is too long",
    "too many tokens",
)
REFUSED = ("content_filter", "content management policy", "usage policy", "usage policies", "safety system")
NO_CREDIT = "insufficient_quota"
HEADERS = ("retry-after-ms", "retry-after")


@dataclass(frozen=True)
class Failure:
    """A failed attempt: its class, which decides on retries, the reason to park its row with, the server's message."""

    kind: str  # away, provider, timeout, refused, too-long, bad-request, forbidden, no-use
    reason: str
    detail: str
    wait: float | None = None  # seconds that the server asked for
    cost: float = 0.0  # dollars: the reply was no answer, but was charged
    charged: bool = False  # perhaps it was charged, and nobody knows how much
    answer: Answer | None = None  # the reply, if it counts as an answer when repeated


@dataclass
class Row:
    """A question under way, its failures so far, and their cost in dollars."""

    question: Question
    failures: list[Failure] = field(default_factory=list)
    cost: float = 0.0


class ApiEngine:
    """A model behind the OpenAI protocol. A `server` that the job started itself is started again when it dies."""

    def __init__(
        self,
        name: str,
        api: Any,
        url: str,
        key: str,
        pace: Pace,
        server: Any = None,
        seeds: int = 2**31,
        opening: str = "",
    ):
        """`server`: a servers.Server of the job's own; `seeds`: the server takes seeds below this bound; `opening`: what
        the chat template writes before the text."""
        import aiohttp
        import httpx2
        import openai

        from proofmill.engines import transport

        self.name, self.api, self.model, self._seeds, self._opening = name, api, api.id, seeds, opening
        self.price, self.max_parked = api.price, api.max_parked
        self._pace, self._server = pace, server
        self._api_error, self._http_error, self._broken = openai.APIError, aiohttp.ClientError, transport.BrokenReply
        secrets = [key, *_secrets_of(url)]
        self._hide_in_message, self._hide_in_answer = Redaction(secrets, least=5), Redaction(secrets)
        self._limit = float(os.environ.get("PROOFMILL_TIMEOUT", "600"))
        self._patience = float(os.environ.get("PROOFMILL_PATIENCE", "600"))
        self._path = "/responses" if api.protocol == "responses" else "/chat/completions"
        self._runner = asyncio.Runner()
        self._client = openai.AsyncOpenAI(
            base_url=url,
            api_key=key,
            max_retries=0,
            timeout=self._limit,
            # aiohttp: the default transport looks at every connection for each call, a second of work with 512.
            http_client=openai.DefaultAioHttpClient(
                limits=httpx2.Limits(max_connections=pace.most, max_keepalive_connections=pace.most),
                # A proxy of the environment cannot reach the loopback address of a program that was started here.
                trust_env=server is None,
                follow_redirects=False,
                headers=transport.HEADERS,
                event_hooks={"response": [transport.bound]},
            ),
        )
        # Of the environment, they belong to another server.
        self._client.organization = self._client.project = None

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def batches(self, questions: Iterable[Question]) -> Iterator[Iterable[Question]]:
        yield questions

    def read(self, answer: Answer) -> Answer:
        if self._opening:
            return replace(answer, text=self._opening + answer.text)
        return split_reasoning(answer, self.api.delimiters)

    def answer(self, questions: Iterator[Question], asking: Asking) -> None:
        self._runner.run(_Conversation(self, questions, asking).hold())

    # --------------------------------------------------------------------------------------------------- one attempt

    async def attempt(self, question: Question, attempts: int) -> Answer | Failure:
        """Ask once; returns the answer or the failure."""
        start = time.monotonic()
        try:
            async with asyncio.timeout(self._limit):
                # As plain bytes: the typed methods walk their type hints for each call, half of a call's work, and know
                # fewer fields than servers send.
                raw = await self._client.post(self._path, body=self._request(question), cast_to=bytes)
            reply = replies.read(raw, self.api.protocol, question)
        except TimeoutError:
            return Failure("timeout", Reason.TIMEOUT, f"no answer in {self._limit:g} s", charged=True)
        except self._api_error as error:
            return self._failure(error)
        except self._http_error as error:
            said = getattr(error, "message", None) or error
            return self._provider(f"the reply is no HTTP: {type(error).__name__}: {said}", charged=True)
        except replies.ErrorReply as error:
            return self._classified(error.status or 500, str(error), None)
        except replies.UnreadableReply as error:
            return self._provider(f"unreadable reply: {error}", charged=True)
        answer = self._answer(reply, round(time.monotonic() - start, 4), attempts)
        unknown = answer.cost is None
        if reply.failed:
            return self._provider(f"finished with `{reply.finish}`", cost=answer.cost or 0.0, charged=unknown)
        if answer.reason == Reason.OK and not answer.text and not answer.reasoning and answer.stop == Stop.END:
            return self._provider("empty answer", cost=answer.cost or 0.0, charged=unknown, answer=answer)
        return answer

    def _provider(self, detail: str, **facts: Any) -> Failure:
        return Failure("provider", Reason.PROVIDER, self._shown(detail), **facts)

    def _shown(self, text: str) -> str:
        """The beginning of a message, without our key."""
        return self._hide_in_message(text[:5000])[:500]

    def _chat_request(self, question: Question) -> dict[str, Any]:
        return {
            "messages": [{"role": role, "content": content} for role, content in question.messages],
            self.api.max_tokens_field: question.max_tokens,
            "seed": question.row_seed % self._seeds,
            **({"logprobs": True} if question.logprobs else {}),
        }

    def _responses_request(self, question: Question) -> dict[str, Any]:
        return {
            "input": [{"role": role, "content": content} for role, content in question.messages],
            "max_output_tokens": question.max_tokens,
            "store": False,
            **({"include": ["message.output_text.logprobs"]} if question.logprobs else {}),
        }

    def _request(self, question: Question) -> dict[str, Any]:
        fields = self._responses_request(question) if self.api.protocol == "responses" else self._chat_request(question)
        request = {"model": self.api.id, **fields}
        if question.temperature is not None:
            request["temperature"] = question.temperature
        if question.top_p != 1:
            request["top_p"] = question.top_p
        return {name: value for name, value in request.items() if name not in self.api.omit} | self.api.options

    def _answer(self, reply: replies.Reply, seconds: float, attempts: int) -> Answer:
        hide, usage = self._hide_in_answer, reply.usage or replies.Usage(0, 0, 0, 0)
        text, reasoning = hide(reply.text), hide(reply.reasoning) if reply.reasoning else None
        as_sent = (text, reasoning) == (reply.text, reply.reasoning)
        return Answer(
            text=text,
            stop=reply.stop,
            reason=Reason.REFUSED if reply.refused else Reason.OK,
            reasoning=reasoning,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            tokens=usage.written,
            reasoning_tokens=usage.thought,
            cost=budget.price(self.price, *usage) if reply.usage else None,
            seconds=seconds,
            attempts=attempts,
            model=hide(reply.model),
            finish=hide(reply.finish),
            logprobs=reply.logprobs if as_sent else None,
        )

    # ----------------------------------------------------------------------------------------------- what went wrong

    def _failure(self, error: Any) -> Failure:
        status, cause = getattr(error, "status_code", None), error.__cause__
        text = f"{error} {getattr(error, 'body', None) or cause or ''}"
        if isinstance(cause, self._broken):
            return self._provider(f"unreadable reply: {cause}", charged=cause.charged)
        if status is None:  # no connection (this transport calls it a time-out, too)
            return Failure("away", Reason.PROVIDER, self._shown(f"no connection, or a broken one: {text}"))
        if 300 <= status < 400:
            text = f"the server sends us on to {error.response.headers.get('location', 'nowhere')}; no redirect is followed"
        return self._classified(status, text, _retry_after(error.response))

    def _classified(self, status: int, text: str, wait: float | None) -> Failure:
        """The failure of a call by the status of its reply, what it says, and the seconds it asks us to wait."""
        text = self._shown(text)
        message = text.lower()
        if status in (401, 402) or (status == 429 and NO_CREDIT in message and wait is None):
            return Failure("no-use", Reason.PROVIDER, text)
        if status in (400, 403) and any(words in message for words in REFUSED):
            return Failure("refused", Reason.REFUSED, text)
        if status in (400, 413, 422) and any(words in message for words in TOO_LONG):
            return Failure("too-long", Reason.TOO_LONG, text)
        if status in (403, 404) or status < 400:
            return Failure("forbidden", Reason.PROVIDER, text)
        if status in AWAY:
            return Failure("away", Reason.RATE_LIMIT if status == 429 else Reason.PROVIDER, text, wait)
        return Failure(
            "provider" if status >= 500 or status in (408, 409, 425) else "bad-request", Reason.PROVIDER, text
        )

    def no_use(self, failure: Failure) -> str:
        return (
            f"{self.name}: the server refuses every call: {failure.detail}; expected one that knows the model "
            f"{self.api.id} and takes our key. See to {variable(self.name)}_URL, {variable(self.name)}_KEY and the account"
        )


class _Conversation:
    """The questions of one `answer`: those to ask next, those in flight, those that wait for a retry."""

    def __init__(self, engine: ApiEngine, questions: Iterator[Question], asking: Asking):
        self.engine, self.asking, self.pace = engine, asking, engine._pace
        self.fresh = map(Row, questions)
        self.held: Row | None = None
        self.waiting: list[tuple[float, int, Row]] = []  # a heap by the moment a row may be asked again
        self.number = count()
        self.tasks: set[asyncio.Task] = set()
        self.arrived: list[tuple[Row, float, float, Answer | Failure]] = []
        self.news = asyncio.Event()
        self.last_answer, self.last_failure = time.monotonic(), ""
        self.answered = len(asking.journal) > 0  # somebody, in this run or an earlier one
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
                    if self.asking.stop.why or not (self.held or self.waiting):
                        break
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
            self._write_down_costs()

    def _start(self) -> float:
        """Start all calls that may start; returns the seconds until the next may."""
        asking = self.asking
        while not asking.stop.why:
            if len(self.forbidden) >= REFUSED_ROWS and not self.answered:
                return math.inf
            row, wait = self._next()
            if row is None:
                return wait
            tokens = row.question.size / 4 + self.lengths[0]
            wait = self.pace.delay(tokens)
            if wait:
                self.held = row
                return wait
            if not asking.reserve(row.question):
                self.held = row
                if not self.tasks and asking.spent_up(row.question):
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
        self.asking.release(row.question)
        if isinstance(outcome, Failure):
            overload = outcome.kind in ("away", "timeout")
            self.pace.ended(start, overload=overload, asked=outcome.wait, answered=False)
            cost = outcome.cost + (self.asking.set_aside(row.question) if outcome.charged else 0.0)
            self.asking.owe(cost)
            row.cost += cost
            row.failures.append(outcome)
            self._after_failure(row)
            return
        cost = outcome.cost
        if cost is None and self.asking.limited and self.engine.price != "unknown":
            cost = self.asking.set_aside(row.question)
        if cost is not None:
            outcome = replace(outcome, cost=cost + row.cost)
        self.answered = True
        self.asking.take(row.question, outcome, row.cost)
        mean, number = self.lengths
        self.lengths = [mean + (outcome.tokens - mean) / number, min(number + 1, 1000)]
        self.last_answer = time.monotonic()
        self.pace.ended(start, tokens=outcome.prompt_tokens + outcome.tokens - tokens)

    def _after_failure(self, row: Row) -> None:
        failure, failures = row.failures[-1], row.failures
        self.last_failure = failure.detail
        alike = sum(f.kind == failure.kind for f in failures)
        same = sum(f.detail == failure.detail for f in failures)
        if failure.kind == "no-use":
            self.asking.stop.ask(self.engine.no_use(failure))
        elif failure.kind == "forbidden" and not self.answered:
            self.forbidden.append(row)
        elif alike < ATTEMPTS.get(failure.kind, 1) and (failure.kind != "provider" or same < SAME_FAILURES):
            wait = backoff(len(failures)) / 2 if failure.wait is None else min(failure.wait, LONGEST_ASKED)
            heapq.heappush(self.waiting, (time.monotonic() + wait, next(self.number), row))
        elif failure.answer:  # empty again and again: this counts as the answer, and was charged
            unknown = failure.answer.cost is None and not self.asking.limited
            self.asking.take(row.question, replace(failure.answer, cost=None if unknown else row.cost), row.cost)
        else:
            self.asking.take(row.question, self._parked(row), row.cost)

    def _parked(self, row: Row) -> Answer:
        failure = row.failures[-1]
        stop = Stop.END if failure.kind in ("refused", "too-long") else Stop.ERROR
        cost = None if self.engine.price == "unknown" else row.cost
        return Answer("", stop, failure.reason, cost=cost, attempts=len(row.failures), detail=failure.detail)

    def _judge_the_forbidden(self) -> None:
        """Park the rows that were refused, if another was answered; else, and if that is all or many, they blame us."""
        if not self.answered and (len(self.forbidden) >= REFUSED_ROWS or (self.forbidden and not self._more())):
            self.asking.stop.ask(self.engine.no_use(self.forbidden[0].failures[-1]))
        elif self.answered:
            while self.forbidden:
                row = self.forbidden.pop()
                self.asking.take(row.question, self._parked(row), row.cost)

    def _more(self) -> bool:
        """Whether there are rows to ask, now or later."""
        if not (self.held or self.waiting):
            self.held = next(self.fresh, None)
        return bool(self.held or self.waiting)

    def _write_down_costs(self) -> None:
        """Journal the costs of rows that were still waiting for a retry when the asking stopped."""
        for row in [*(row for _, _, row in self.waiting), *self.forbidden, *([self.held] if self.held else [])]:
            if row.cost:
                self.asking.journal.add(row.question, self._parked(row))

    def _lose_patience(self) -> None:
        silent = time.monotonic() - self.last_answer
        if self.last_failure and silent > max(self.engine._patience, self.engine._limit):
            self.asking.stop.ask(
                f"stopped because {self.engine.name} answered nothing for {clock(silent)}: {self.last_failure}"
            )

    async def _look_after_server(self) -> None:
        server = self.engine._server
        if server is not None and not self.asking.stop.why and not server.alive():
            if server.restarts_left:
                await asyncio.to_thread(server.start_again)
                self.engine._client.base_url = server.url
                self.pace.begin_again()
            else:
                self.asking.stop.ask(f"stopped because the server died again and again: {server.last_words()}")


def variable(name: str) -> str:
    """The prefix of the environment variables of `api/<name>`: PROOFMILL_<NAME>."""
    return f"PROOFMILL_{name.partition('/')[2].upper().replace('-', '_').replace('.', '_')}"


def _secrets_of(url: str) -> list[str]:
    """What may be a password or a key in an address: the password, and the values behind its question mark."""
    parts = urlsplit(url)
    return [*filter(None, [parts.password]), *(value for _, value in parse_qsl(parts.query))]


def _retry_after(response: Any) -> float | None:
    """Seconds of `Retry-After`, None without it (RFC 9110, 10.2.3: seconds, or a date; some send milliseconds)."""
    for header in HEADERS:
        value = response.headers.get(header)
        if value is None:
            continue
        try:
            return max(0.0, float(value) / (1000 if header.endswith("ms") else 1))
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            continue
    return None

"""Models behind the OpenAI protocol: Chat Completions or Responses of a server, through the `openai` package.

How we differ from the client's own retries:
1. The time limit of a call (PROOFMILL_TIMEOUT, 600 s) runs from its start to its last byte: a trickle ends too.
2. A row that waits for a retry gives its place in flight to another row. The class of error decides on retries.
3. A repeated failure parks the row. A failure that waiting cannot mend (a refused key, an unknown model, no credit)
   stops the stage at once, before it has cost a million calls.
4. If a server answers no call for PROOFMILL_PATIENCE (600 s), the stage stops and parks no more rows.
5. The key is removed from every message of the server before it is shown or written.
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

from proofmill.calls import budget
from proofmill.calls.calls import Asking, split_reasoning
from proofmill.calls.exchange import Answer, Question
from proofmill.calls.pacing import LONGEST_ASKED, Pace, backoff
from proofmill.prompts.escapes import ControlTokens
from proofmill.runtime.progress import clock
from proofmill.schema.reasons import Reason, Stop

ATTEMPTS = {"away": 12, "provider": 6, "timeout": 3}  # attempts of one row by class of failure; other classes have one
SAME_FAILURES = 3  # failures of a row in the same words, after which it is parked
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
FAILED = {"error", "abort", "failed", "cancelled", "incomplete"}  # a server's words for a failed answer
# Errors from reading a reply that is not JSON, or not a completion.
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
HEADERS = ("retry-after-ms", "retry-after")


@dataclass(frozen=True)
class Failure:
    """A failed attempt: its class, which decides on retries, the reason to park its row with, the server's message."""

    kind: str  # away, provider, timeout, refused, too-long, bad-request, no-use
    reason: str
    detail: str
    wait: float | None = None  # seconds that the server asked for
    cost: float = 0.0  # dollars: the reply was no answer, but was charged
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
        self, name: str, api: Any, url: str, key: str, pace: Pace,
        server: Any = None, seeds: int = 2**31, tokens: ControlTokens | None = None,
    ):  # fmt: skip
        """`server`: a servers.Server of the job's own; `seeds`: the server takes seeds below this bound.

        `tokens`: the control tokens of the served weights where they are known, which are escaped in what is said.
        """
        import httpx2
        import openai

        self.name, self.api, self.model, self._seeds = name, api, api.id, seeds
        self.price, self.max_parked = api.price, api.max_parked
        self._openai, self._key, self._pace, self._server, self._tokens = openai, key, pace, server, tokens
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
            ),
        )

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def batches(self, questions: Iterable[Question]) -> Iterator[Iterable[Question]]:
        yield questions

    def read(self, answer: Answer) -> Answer:
        return split_reasoning(answer, self.api.delimiters)

    def answer(self, questions: Iterator[Question], asking: Asking) -> None:
        self._runner.run(_Conversation(self, questions, asking).hold())

    # --------------------------------------------------------------------------------------------------- one attempt

    async def attempt(self, question: Question, attempts: int) -> Answer | Failure:
        """Ask once; returns the answer or the failure."""
        start = time.monotonic()
        try:
            async with asyncio.timeout(self._limit):
                # As plain JSON both ways: the typed methods walk their type hints for each call, half of a call's work,
                # and know fewer fields than servers send.
                reply = await self._client.post(self._path, body=self._request(question), cast_to=object)
            answer = self._read(reply, seconds=round(time.monotonic() - start, 4), attempts=attempts)
        except TimeoutError:
            return Failure("timeout", Reason.TIMEOUT, f"no answer in {self._limit:g} s")
        except self._openai.APIError as error:
            return self._failure(error)
        except UNREADABLE as error:
            return Failure(
                "provider", Reason.PROVIDER, self._hidden(f"unreadable reply: {type(error).__name__}: {error}")
            )
        if answer.finish in FAILED:
            return Failure("provider", Reason.PROVIDER, f"finished with `{answer.finish}`", cost=answer.cost or 0.0)
        if answer.reason == Reason.OK and not answer.text and not answer.reasoning and answer.stop == Stop.END:
            return Failure("provider", Reason.PROVIDER, "empty answer", cost=answer.cost or 0.0, answer=answer)
        return answer

    def _messages(self, question: Question) -> list[dict[str, str]]:
        messages = [{"role": role, "content": content} for role, content in question.messages]
        return self._tokens.escaped(messages) if self._tokens else messages

    def _chat_request(self, question: Question) -> dict[str, Any]:
        return {
            "messages": self._messages(question),
            self.api.max_tokens_field: question.max_tokens,
            "seed": question.row_seed % self._seeds,
            **({"logprobs": True} if question.logprobs else {}),
        }

    def _responses_request(self, question: Question) -> dict[str, Any]:
        return {
            "input": self._messages(question),
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

    def _read(self, reply: Any, **facts: Any) -> Answer:
        read = _response_parts if self.api.protocol == "responses" else _chat_parts
        return self._answer(**read(reply), model=reply.get("model"), **facts)

    def _answer(
        self, text, reasoning, finish, refused, usage, cached, reasoning_tokens, logprobs, model, seconds, attempts
    ) -> Answer:  # fmt: skip
        if not isinstance(text, str | None):
            raise TypeError(f"the text is a {type(text).__name__}")
        prompt, written = (int(usage[0] or 0), int(usage[1] or 0)) if usage else (0, 0)
        cached, thought = int(cached or 0), min(int(reasoning_tokens or 0), written)
        return Answer(
            text=text or "",
            stop=Stop.LENGTH if finish == "length" else Stop.END,
            reason=Reason.REFUSED if refused else Reason.OK,
            reasoning=reasoning or None,
            prompt_tokens=prompt,
            cached_tokens=cached,
            tokens=written,
            reasoning_tokens=thought,
            cost=budget.price(self.price, prompt, cached, written, thought) if usage else None,
            seconds=seconds,
            attempts=attempts,
            model=str(model or ""),
            finish=finish,
            logprobs=[{"token": p["token"], "logprob": float(p["logprob"])} for p in logprobs] if logprobs else None,
        )

    # ----------------------------------------------------------------------------------------------- what went wrong

    def _failure(self, error: Any) -> Failure:
        status, cause = getattr(error, "status_code", None), error.__cause__
        text = self._hidden(f"{error} {getattr(error, 'body', None) or cause or ''}")[:500]
        message = text.lower()
        if status is None:  # no connection (this transport calls it a time-out, too), or a reply that broke off
            return Failure("away", Reason.PROVIDER, f"no connection, or a broken one: {text}")
        wait = _retry_after(error.response)
        if status in (401, 402) or (status == 429 and NO_CREDIT in message and wait is None):
            return Failure("no-use", Reason.PROVIDER, text)
        if status in (400, 403) and any(words in message for words in REFUSED):
            return Failure("refused", Reason.REFUSED, text)
        if status in (400, 413, 422) and any(words in message for words in TOO_LONG):
            return Failure("too-long", Reason.TOO_LONG, text)
        if status in (403, 404):
            return Failure("no-use", Reason.PROVIDER, text)
        if status in AWAY:
            return Failure("away", Reason.RATE_LIMIT if status == 429 else Reason.PROVIDER, text, wait)
        return Failure(
            "provider" if status >= 500 or status in (408, 409, 425) else "bad-request", Reason.PROVIDER, text
        )

    def _hidden(self, text: str) -> str:
        return text.replace(self._key, "***") if len(self._key) > 4 else text

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
        self.broken: BaseException | None = None
        self.lengths = [512.0, 1.0]  # mean tokens of an answer (a guess at first), and of how many answers

    async def hold(self) -> None:
        try:
            while True:
                wait = self._start()
                if self.broken:
                    raise self.broken
                idle = not self.tasks and not self.arrived
                if idle and (self.asking.stop.why or not (self.held or self.waiting)):
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
            row.cost += outcome.cost
            row.failures.append(outcome)
            self._after_failure(row)
            return
        if row.cost and outcome.cost is not None:
            outcome = replace(outcome, cost=outcome.cost + row.cost)
        self.asking.take(row.question, outcome)
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
        elif alike < ATTEMPTS.get(failure.kind, 1) and (failure.kind != "provider" or same < SAME_FAILURES):
            wait = backoff(len(failures)) / 2 if failure.wait is None else min(failure.wait, LONGEST_ASKED)
            heapq.heappush(self.waiting, (time.monotonic() + wait, next(self.number), row))
        elif failure.answer:  # empty again and again: this counts as the answer, and was charged
            cost = None if failure.answer.cost is None else row.cost
            self.asking.take(row.question, replace(failure.answer, cost=cost))
        else:
            self.asking.take(row.question, self._parked(row))

    def _parked(self, row: Row) -> Answer:
        failure = row.failures[-1]
        stop = Stop.END if failure.kind in ("refused", "too-long") else Stop.ERROR
        cost = None if self.engine.price == "unknown" else row.cost
        return Answer("", stop, failure.reason, cost=cost, attempts=len(row.failures), detail=failure.detail)

    def _write_down_costs(self) -> None:
        """Journal the costs of rows that were still waiting for a retry when the asking stopped."""
        for row in [row for _, _, row in self.waiting] + [self.held] * (self.held is not None):
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


def _chat_parts(reply: dict[str, Any]) -> dict[str, Any]:
    """The parts of a Chat Completion under our names."""
    choice, usage = reply["choices"][0], reply.get("usage")
    message = choice["message"]
    refusal, finish = message.get("refusal"), choice.get("finish_reason") or ""
    return {
        "text": refusal or message.get("content"),
        "reasoning": message.get("reasoning_content") or message.get("reasoning"),
        "finish": finish,
        "refused": finish == "content_filter" or bool(refusal),
        "usage": usage and (usage["prompt_tokens"], usage["completion_tokens"]),
        "cached": usage and (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        "reasoning_tokens": usage and (usage.get("completion_tokens_details") or {}).get("reasoning_tokens"),
        "logprobs": (choice.get("logprobs") or {}).get("content"),
    }


def _response_parts(reply: dict[str, Any]) -> dict[str, Any]:
    """The parts of a Response under our names; reasoning is the whole text if the server sends it, else a summary."""
    items, usage = reply["output"], reply.get("usage")
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    thoughts = [item.get("content") or item.get("summary") or [] for item in items if item["type"] == "reasoning"]
    refused = [part["refusal"] for part in parts if part["type"] == "refusal"]
    why = (reply.get("incomplete_details") or {}).get("reason")
    return {
        "text": "".join(refused or [part["text"] for part in parts if part["type"] == "output_text"]),
        "reasoning": "\n".join(part["text"] for thought in thoughts for part in thought) or None,
        "finish": "length" if why == "max_output_tokens" else why or reply.get("status") or "",
        "refused": why == "content_filter" or bool(refused),
        "usage": usage and (usage["input_tokens"], usage["output_tokens"]),
        "cached": usage and (usage.get("input_tokens_details") or {}).get("cached_tokens"),
        "reasoning_tokens": usage and (usage.get("output_tokens_details") or {}).get("reasoning_tokens"),
        "logprobs": [p for part in parts for p in part.get("logprobs") or []] or None,
    }


def variable(name: str) -> str:
    """The prefix of the environment variables of `api/<name>`: PROOFMILL_<NAME>."""
    return f"PROOFMILL_{name.partition('/')[2].upper().replace('-', '_').replace('.', '_')}"


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

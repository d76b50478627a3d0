"""Models behind the OpenAI protocol: Chat Completions or Responses of a server, through the `openai` package.

One attempt at one question is here; which question is asked when, and what follows a failure, is in conversation.py.

How we differ from the plain client:
1. The time limit of a call (PROOFMILL_TIMEOUT, 600 s) runs from its start to its last byte: a trickle ends too.
2. Replies come in through replies.py and transport.py: typed, bounded, without our key. What is no reply fails its row.
3. A failure has a class, which decides on retries.
"""

import asyncio
import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from proofmill.calls import budget
from proofmill.calls.calls import Asking, split_reasoning
from proofmill.calls.exchange import Answer, Question
from proofmill.calls.flow import Feed
from proofmill.calls.pacing import Pace
from proofmill.engines import replies
from proofmill.engines.complaints import Complaints
from proofmill.engines.conversation import Conversation, Failure
from proofmill.engines.limits import TimeLimits
from proofmill.engines.services.balancing import Balance
from proofmill.engines.services.directory import Replica
from proofmill.prompts.escapes import ControlTokens
from proofmill.runtime import environment
from proofmill.runtime.environment import variable
from proofmill.schema.reasons import Reason, Stop
from proofmill.text.reasoning import OPENING, opens_thought
from proofmill.text.redaction import Redaction

# Seconds after which a connection is no longer used. Servers such as vLLM's close one that was idle for 5, and a client
# that waits as long sends its next question, a step of a training later, into a connection that is being closed.
IDLE = 2.0
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
CONNECT = 5.0  # seconds until a connection stands; Linux gives up after two minutes
HEADERS = ("retry-after-ms", "retry-after")
SECRET = re.compile(r"key|token|sig|secret|code|password|auth", re.IGNORECASE)  # names of parameters of an address


class ApiEngine:
    """A model behind the OpenAI protocol. A `server` that the job started itself is started again when it dies."""

    flows = True

    def __init__(
        self,
        name: str,
        api: Any,
        url: str,
        key: str,
        pace: Pace,
        server: Any = None,
        seeds: int = 2**31,
        tokenizer: Any = None,
        runner: asyncio.Runner | None = None,
        balance: Balance | None = None,
    ):
        """`server`: a servers.Server of the job's own; `balance`: the replicas of a service, which are asked in its place.

        `seeds`: the server takes seeds below this bound.

        `runner`: of the event loop that models share which are asked side by side; without it the model has its own.

        `tokenizer`: that of the served weights where they are ours. Its control tokens are escaped in what is said, and a
        thought that its template opens is opened in what is answered.
        """
        import aiohttp
        import httpx2
        import openai

        from proofmill.engines import transport

        self.name, self.api, self.model, self._seeds = name, api, api.id, seeds
        self._tokens = ControlTokens(tokenizer) if tokenizer else None
        self._opening = OPENING if tokenizer and opens_thought(tokenizer) else ""
        self.price, self.max_parked = api.price, api.max_parked
        self.pace, self.server, self.balance = pace, server, balance
        self._api_error, self._http_error, self._broken = openai.APIError, aiohttp.ClientError, transport.BrokenReply
        self._unreached = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
        self.complaints = Complaints()
        secrets = [key, *_secrets_of(url)]
        self._hide_in_message, self._hide_in_answer = Redaction(secrets, least=5), Redaction(secrets)
        self.limit = environment.seconds("PROOFMILL_TIMEOUT", 600.0)
        self.patience = environment.seconds("PROOFMILL_PATIENCE", 600.0)
        self._path = "responses" if api.protocol == "responses" else "chat/completions"
        self.limits = TimeLimits()
        self._own = runner is None
        self.runner = runner or asyncio.Runner()
        self._client = openai.AsyncOpenAI(
            base_url=url,
            api_key=key,
            max_retries=0,
            timeout=httpx2.Timeout(None, connect=CONNECT),  # ours is for the whole call
            # aiohttp: the default transport looks at every connection for each call, a second of work with 512.
            http_client=openai.DefaultAioHttpClient(
                limits=httpx2.Limits(
                    max_connections=pace.most, max_keepalive_connections=pace.most, keepalive_expiry=IDLE
                ),
                # A proxy of the environment cannot reach a program that was started here, or on a node beside.
                trust_env=server is None and balance is None,
                follow_redirects=False,
                headers=transport.HEADERS,
                event_hooks={"response": [transport.bound]},
            ),
        )
        # Of the environment, they belong to another server.
        self._client.organization = self._client.project = None
        self._as_it_came = httpx2.Response
        self._address = self._whole_address()

    def close(self) -> None:
        self.runner.run(self._client.close())
        if self._own:
            self.runner.close()

    def batches(self, questions: Iterable[Question]) -> Iterator[Iterable[Question]]:
        yield questions

    def read(self, answer: Answer) -> Answer:
        if self._opening:
            return replace(answer, text=self._opening + answer.text)
        return split_reasoning(answer, self.api.delimiters)

    def answer(self, questions: Iterator[Question], asking: Asking) -> None:
        self.runner.run(self.hold(questions, asking))

    async def hold(self, questions: Iterator[Question] | Feed, asking: Asking) -> None:
        """Ask all questions; with a feed, until none will ever come again."""
        with self.limits:
            await Conversation(self, questions, asking).hold()

    # --------------------------------------------------------------------------------------------------- one attempt

    async def attempt(self, question: Question, attempts: int) -> Answer | Failure:
        """Ask once; returns the answer or the failure."""
        if self.balance is None:
            return await self._ask(self._address, question, attempts)
        if (replica := await self.balance.choose()) is None:
            return Failure("absent", Reason.PROVIDER, self.balance.absent(), wait=0.0, reached=False)
        with self.balance.asking(replica):
            outcome = await self._ask(f"{replica.url}/{self._path}", question, attempts)
        if isinstance(outcome, Failure) and await self._is_gone(replica, outcome):
            return Failure("absent", outcome.reason, outcome.detail, wait=0.0, reached=outcome.reached)
        return outcome

    async def _is_gone(self, replica: Replica, failure: Failure) -> bool:
        """Whether a call failed with its replica, which is no fault of the row: it has moved, or answers nobody."""
        if self.balance is None or failure.kind in ("refused", "too-long", "bad-request"):
            return False
        if not self.balance.has(replica):
            return True
        if failure.kind in ("no-use", "forbidden") or await self._answers(replica):
            return False
        self.balance.avoid(replica)
        return True

    async def _answers(self, replica: Replica) -> bool:
        """Whether a replica answers anything within some seconds."""
        try:
            async with self.limits.at_most(CONNECT):
                await self._client.get(f"{replica.url}/models", cast_to=bytes)
        except (self._api_error, self._http_error, TimeoutError):
            return False
        return True

    async def _ask(self, address: str, question: Question, attempts: int) -> Answer | Failure:
        start = time.monotonic()
        try:
            async with self.limits.at_most(self.limit):
                # As it came: the typed methods walk their type hints for each call, half of a call's work, and know fewer
                # fields than servers send.
                sent = await self._client.post(address, body=self._request(question), cast_to=self._as_it_came)
            reply = replies.read(sent.content, self.api.protocol, question)
        except TimeoutError:
            return Failure("timeout", Reason.TIMEOUT, f"no answer in {self.limit:g} s", charged=True)
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

    def try_out(self, question: Question, seconds: float) -> tuple[list[dict[str, Any]], Answer | Failure]:
        """Ask once, with no retry; returns what the server says of its models ([] where it lists none), and the outcome."""
        self.limit = seconds

        async def both() -> list[Any]:
            with self.limits:
                return await asyncio.gather(self._models(), self.attempt(question, 1))

        return tuple(self.runner.run(both()))

    async def _models(self) -> list[dict[str, Any]]:
        try:
            async with self.limits.at_most(self.limit):
                listed = json.loads(await self._client.get("/models", cast_to=bytes))["data"]
            return [model for model in listed if isinstance(model.get("id"), str)]
        except (self._api_error, self._http_error, TimeoutError, ValueError, LookupError, TypeError, AttributeError):
            return []

    def _messages(self, question: Question) -> list[dict[str, str]]:
        messages = [{"role": role, "content": content} for role, content in question.messages]
        return self._tokens.escaped(messages) if self._tokens else messages

    def _provider(self, detail: str, **facts: Any) -> Failure:
        return Failure("provider", Reason.PROVIDER, self._shown(detail), **facts)

    def _shown(self, text: str) -> str:
        """The beginning of a message, without our key."""
        return self._hide_in_message(text[:5000])[:500]

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
        request |= question.further  # OpenAI's protocol has `stop`; vLLM's server and others read `top_k` and `min_p`
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
        if status is None:  # the transport calls all of these a time-out
            reached = cause is None or not isinstance(cause.__cause__, self._unreached)
            what, said = "a broken connection" if reached else "no connection", str(cause or error)
            detail = self._shown(f"{what}: {said.replace(' ssl:default', '')}")
            return Failure("away", Reason.PROVIDER, detail, reached=reached)
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

    def moved(self) -> None:
        """Go on with the address of our own server, which was started again."""
        self._client.base_url = self.server.url
        self._address = self._whole_address()

    def _whole_address(self) -> str:
        """The address of every call. The client takes a relative one apart and together again for each."""
        return f"{self._client.base_url}{self._path}"

    def no_use(self, failure: Failure) -> str:
        return (
            f"{self.name}: the server refuses every call: {failure.detail}; expected one that knows the model "
            f"{self.api.id} and takes our key. See to {variable(self.name)}_URL, {variable(self.name)}_KEY and the account"
        )


def _secrets_of(url: str) -> list[str]:
    """The values behind the question mark of an address that may be keys, by their names."""
    return [value for name, value in parse_qsl(urlsplit(url).query) if SECRET.search(name)]


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

"""Call models by the OpenAI protocol (Chat Completions, Responses or Embeddings), through the `openai` package.

It makes one try of one request; scheduling and retries are in retries.py.

Differences from the plain client:
1. The time limit of a call (PROOFMILL_CALL_TIMEOUT, 600 s) runs from its start to its last byte, so a trickle ends too.
2. Every reply passes replies.py and transport.py: typed, bounded, without the API key. An invalid reply is a failure.
3. A failure has a class, which decides on retries.
4. Every request sets all sampling parameters. Unsupported fields are left out if neutral, else reported (error_log.py).
5. A call that fails once its request was sent may be charged, unless FREE lists the refusal; reported usage counts.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proofmill.calls import budget
from proofmill.calls.calls import Asking
from proofmill.calls.model_requests import (
    PATHS,
    SEEDS,
    ModelOutput,
    ModelRequest,
    body_of,
    describe_finish,
    split_reasoning,
)
from proofmill.calls.pacing import Pace
from proofmill.calls.prices import is_same_model
from proofmill.calls.runner import Feed
from proofmill.engines import replies
from proofmill.engines.error_log import Complaints, Fields
from proofmill.engines.limits import TimeLimits
from proofmill.engines.retries import Failure, RequestQueue, retry_after
from proofmill.engines.servers import Server
from proofmill.engines.services.balancing import Balance
from proofmill.engines.services.directory import Replica
from proofmill.prompts.escapes import ControlTokens
from proofmill.runtime import environment
from proofmill.runtime.environment import variable
from proofmill.runtime.progress import log
from proofmill.schema.fields import require
from proofmill.schema.reasons import Reason, StopReason
from proofmill.text.reasoning import OPENING, opens_thought
from proofmill.text.redaction import Redaction, passwords_of_proxies, secrets_of, without_users

# Seconds after which an idle connection is no longer used; servers such as vLLM's close it after 5.
IDLE = 2.0
FREE = {400, 401, 402, 403, 404, 413, 422, 429}  # refused at once, before any token was written
AWAY = {429, 502, 503, 504, 529}  # overloaded or unreachable: a reason to slow down
TOO_LONG = (
    "context_length_exceeded",
    "maximum context length",
    "context length",
    "prompt is too long",
    "too many tokens",
    "must have less than",  # Text Embeddings Inference
)
REFUSED = ("content_filter", "content management policy", "usage policy", "usage policies", "safety system")
NO_CREDIT = "insufficient_quota"
CONNECT = 5.0  # seconds to connect; Linux gives up after two minutes


@dataclass(frozen=True)
class Endpoint:
    """The place where a model is called: address, key and pace; the job's own server, or the service whose replicas get the calls.

    `seeds` is the upper bound of the server's seeds.
    """

    url: str
    key: str
    pace: Pace
    server: Server | None = None
    balance: Balance | None = None
    seeds: int = SEEDS


class ApiEngine:
    """A model behind the OpenAI protocol. The job's own `server` is restarted when it dies."""

    flows = True

    def __init__(
        self,
        name: str,
        api: Any,
        endpoint: Endpoint,
        tokenizer: Any = None,
        ends: Sequence[int] = (),
        runner: asyncio.Runner | None = None,
    ):
        """Create the engine.

        `tokenizer` and `ends` (end tokens) belong to an artifact's weights. The tokenizer's control tokens are escaped in
        messages. If its template opens the reasoning, the opening is put before the output.
        `runner` has the event loop that concurrent models share; without it the model has its own.
        """
        import aiohttp
        import httpx2
        import openai

        from proofmill.engines import transport

        self.name, self.api, self.model, self._seeds = name, api, api.id, endpoint.seeds
        url, key, pace = endpoint.url, endpoint.key, endpoint.pace
        self._tokens = ControlTokens(tokenizer) if tokenizer else None
        self._ends = list(ends)
        self._opening = OPENING if tokenizer and opens_thought(tokenizer) else ""
        self.price, self.max_failed = api.price, api.max_failed
        self.pace, self.server, self.balance = pace, endpoint.server, endpoint.balance
        self._api_error, self._http_error, self._broken = openai.APIError, aiohttp.ClientError, transport.BrokenReply
        self._unreached = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
        self.complaints = Complaints()
        self.fields = Fields(name, api.omit)
        self._names: set[str] = set()  # model names in replies
        secrets = [key, *secrets_of(url), *passwords_of_proxies()]
        self._hide_in_message, self._hide_in_answer = Redaction(secrets, least=5), Redaction(secrets)
        self.limit = environment.seconds("PROOFMILL_CALL_TIMEOUT", 600.0)
        self.patience = environment.seconds("PROOFMILL_CALL_STALL_SECONDS", 600.0)
        self._path = PATHS.get(api.protocol, api.protocol)
        self.limits = TimeLimits()
        self._own = runner is None
        self.runner = runner or asyncio.Runner()
        self._client = openai.AsyncOpenAI(
            base_url=url,
            api_key=key,
            max_retries=0,
            timeout=httpx2.Timeout(None, connect=CONNECT),  # `limits` limits the complete call
            # aiohttp: the default transport inspects every connection for each call, a second of work with 512.
            http_client=openai.DefaultAioHttpClient(
                limits=httpx2.Limits(
                    max_connections=pace.most, max_keepalive_connections=pace.most, keepalive_expiry=IDLE
                ),
                # A proxy of the environment cannot reach a local server, or one on another node.
                trust_env=self.server is None and self.balance is None,
                follow_redirects=False,
                headers=transport.HEADERS,
                event_hooks={"response": [transport.bound]},
            ),
        )
        # Values of the environment belong to another server.
        self._client.organization = self._client.project = None
        self._as_it_came = httpx2.Response
        self._address = self._full_address()

    def close(self) -> None:
        self.runner.run(self._client.close())
        if self._own:
            self.runner.close()

    def batches(self, requests: Iterable[ModelRequest]) -> Iterator[Iterable[ModelRequest]]:
        yield requests

    def read(self, answer: ModelOutput) -> ModelOutput:
        if self._opening:
            return replace(answer, text=self._opening + answer.text)
        return split_reasoning(answer, self.api.reasoning_end)

    def answer(self, requests: Iterator[ModelRequest], asking: Asking) -> None:
        self.runner.run(self.hold(requests, asking))

    async def hold(self, requests: Iterator[ModelRequest] | Feed, asking: Asking) -> None:
        """Answer all requests; with a feed, until the feed is closed."""
        with self.limits:
            await RequestQueue(self, requests, asking).hold()

    # --------------------------------------------------------------------------------------------------- one try

    async def attempt(self, request: ModelRequest, attempts: int) -> ModelOutput | Failure:
        """Ask once and return the answer or the failure. Repeats the call without fields that the server refuses."""
        return await self.fields.send(request, lambda: self._attempt(request, attempts))

    async def _attempt(self, request: ModelRequest, attempts: int) -> ModelOutput | Failure:
        if self.balance is None:
            return await self._ask(self._address, request, attempts)
        if (replica := await self.balance.choose()) is None:
            return Failure("absent", Reason.PROVIDER, self.balance.absent(), wait=0.0, reached=False)
        with self.balance.asking(replica):
            outcome = await self._ask(f"{replica.url}/{self._path}", request, attempts)
        if isinstance(outcome, Failure) and await self._is_gone(replica, outcome):
            return replace(outcome, kind="absent", wait=0.0)
        return outcome

    async def _is_gone(self, replica: Replica, failure: Failure) -> bool:
        """Return whether the replica failed, not the row: it has moved, or answers nothing."""
        if self.balance is None or failure.kind in ("refused", "too-long", "bad-request"):
            return False
        if not self.balance.has(replica):
            return True
        if failure.kind in ("no-use", "forbidden") or await self._is_responding(replica):
            return False
        self.balance.avoid(replica)
        return True

    async def _is_responding(self, replica: Replica) -> bool:
        """Return whether a replica answers at all within CONNECT seconds."""
        try:
            async with self.limits.at_most(CONNECT):
                await self._client.get(f"{replica.url}/models", cast_to=bytes)
        except (self._api_error, self._http_error, TimeoutError):
            return False
        return True

    async def _ask(self, address: str, request: ModelRequest, attempts: int) -> ModelOutput | Failure:
        start = time.monotonic()
        try:
            async with self.limits.at_most(self.limit):
                # Raw responses: the typed methods resolve type hints for each call, which is half of its work, and they
                # know fewer fields than servers send.
                sent = await self._client.post(address, body=self._request(request), cast_to=self._as_it_came)
            reply = replies.read(sent.content, self.api.protocol, request)
        except TimeoutError:
            return Failure("timeout", Reason.TIMEOUT, f"no answer in {self.limit:g} s", charged=True)
        except self._api_error as error:
            return self._failure(error, request)
        except self._http_error as error:
            message = getattr(error, "message", None) or error
            return self._unreadable(f"the reply is not HTTP: {type(error).__name__}: {message}", charged=True)
        except replies.ErrorReply as error:
            return replace(self._classify(error.status or 500, str(error), None), **self._charge(sent.content, request))
        except replies.UnreadableReply as error:
            return self._unreadable(f"unreadable reply: {error}", **self._charge(sent.content, request))
        answer = self._answer(reply, round(time.monotonic() - start, 4), attempts)
        unknown = answer.cost is None
        if answer.stop_reason == StopReason.ERROR:
            return self._provider(describe_finish(answer.finish_reason), cost=answer.cost or 0.0, charged=unknown)
        if (
            answer.reason == Reason.OK
            and not answer.text
            and not answer.reasoning
            and answer.stop_reason == StopReason.END
        ):
            return self._provider("empty answer", cost=answer.cost or 0.0, charged=unknown, answer=answer)
        return answer

    def _charge(self, raw: bytes, request: ModelRequest, status: int = 200) -> dict[str, Any]:
        """Return the cost of a failed call: from its usage, or `charged` if the reserved amount applies, or nothing."""
        usage = replies.usage_of(raw, request)
        cost = budget.price(self.price, *usage) if usage else None
        return {"cost": cost or 0.0, "charged": cost is None and status not in FREE and not 300 <= status < 400}

    def overrun(self, request: ModelRequest, answer: ModelOutput) -> float:
        """Return the dollars of an answer without plausible usage if it is clearly longer than allowed, else 0.

        Prose has 4 bytes a token, formulas 2. Above 6 bytes per allowed token, every two bytes count as one token.
        """
        written = len((answer.text + (answer.reasoning or "")).encode(errors="replace"))
        longer = written > 6 * request.max_tokens
        return budget.most(self.price, request.size, written // 2) if longer else 0.0

    def try_out(self, request: ModelRequest, seconds: float) -> tuple[list[dict[str, Any]], ModelOutput | Failure]:
        """Ask once, without a retry; return the server's list of models ([] if it has none) and the outcome."""
        self.limit = seconds

        async def both() -> list[Any]:
            with self.limits:
                return await asyncio.gather(self._models(), self.attempt(request, 1))

        return tuple(self.runner.run(both()))

    async def _models(self) -> list[dict[str, Any]]:
        try:
            async with self.limits.at_most(self.limit):
                listed = json.loads(await self._client.get("/models", cast_to=bytes))["data"]
            return [model for model in listed if isinstance(model.get("id"), str)]
        except (self._api_error, self._http_error, TimeoutError, ValueError, LookupError, TypeError, AttributeError):
            return []

    def _messages(self, request: ModelRequest) -> list[dict[str, str]]:
        messages = [{"role": role, "content": content} for role, content in request.messages]
        return self._tokens.escape(messages) if self._tokens else messages

    def _provider(self, detail: str, **facts: Any) -> Failure:
        return Failure("provider", Reason.PROVIDER, self._shorten(detail), **facts)

    def _unreadable(self, detail: str, **facts: Any) -> Failure:
        return self._provider(detail, readable=False, **facts)

    def _shorten(self, text: str) -> str:
        """Return the beginning of a message, without the API key."""
        return without_users(self._hide_in_message(text[:5000]))[:500]

    def _request(self, request: ModelRequest) -> dict[str, Any]:
        """Return the body of a call, with all sampling parameters of its protocol."""
        fields = body_of(self.api, request, self._messages(request), self._seeds)
        if self._tokens is not None:
            # Special tokens stay visible: text that a grader does not see could be used to cheat.
            fields |= request.sampling | {"stop_token_ids": self._ends, "skip_special_tokens": False}
        return {"model": self.api.id, **self.fields.remove_unsupported(fields)} | self.api.extra_body

    def _answer(self, reply: replies.ServerReply, seconds: float, attempts: int) -> ModelOutput:
        hide, usage = self._hide_in_answer, reply.usage or replies.Usage(0, 0, 0, 0)
        if (model := hide(reply.model)) not in self._names:
            self._names.add(model)
            if model and not is_same_model(self.model, model):
                log(
                    self.name,
                    f"is asked for the model {self.model} and answers as {model}; set `id` to the intended one",
                )
        # Packed vectors are no text of a server, and long.
        text = reply.text if self.api.protocol == "embeddings" else hide(reply.text)
        reasoning = hide(reply.reasoning) if reply.reasoning else None
        as_sent = (text, reasoning) == (reply.text, reply.reasoning)
        return ModelOutput(
            text=text,
            stop_reason=reply.stop_reason,
            reason=reply.reason,
            reasoning=reasoning,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            tokens=usage.written,
            reasoning_tokens=usage.thought,
            cost=budget.price(self.price, *usage) if reply.usage else None,
            seconds=seconds,
            tries=attempts,
            model=model,
            finish_reason=hide(reply.finish_reason),
            logprobs=reply.logprobs if as_sent else None,
        )

    # ----------------------------------------------------------------------------------------------- failures

    def _failure(self, error: Any, request: ModelRequest) -> Failure:
        status, cause = getattr(error, "status_code", None), error.__cause__
        text = f"{error} {getattr(error, 'body', None) or cause or ''}"
        if isinstance(cause, self._broken):
            return self._unreadable(f"unreadable reply: {cause}", **self._charge(b"", request, cause.status))
        if status is None:  # the transport reports all of these as a timeout
            reached = cause is None or not isinstance(cause.__cause__, self._unreached)
            what, message = "a broken connection" if reached else "no connection", str(cause or error)
            detail = self._shorten(f"{what}: {message.replace(' ssl:default', '')}")
            return Failure("away", Reason.PROVIDER, detail, reached=reached, charged=reached)
        if 300 <= status < 400:
            text = (
                f"the server redirects to {error.response.headers.get('location', 'nowhere')}; no redirect is followed"
            )
        failure = self._classify(status, text, retry_after(error.response))
        return replace(failure, **self._charge(error.response.content, request, status))

    def _classify(self, status: int, text: str, wait: float | None) -> Failure:
        """Return the failure of a call from its reply's status and message, and the seconds to wait before a retry."""
        text = self._shorten(text)
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

    def follow_server(self) -> None:
        """Use the new address of the job's own server, which was restarted."""
        self._client.base_url = require(self.server).url
        self._address = self._full_address()

    def _full_address(self) -> str:
        """Return the address of every call. The client would resolve a relative one for each."""
        return f"{str(self._client.base_url).rstrip('/')}/{self._path}"

    def no_use(self, failure: Failure) -> str:
        return (
            f"{self.name}: the server refuses every call: {failure.detail}; expected one that knows the model "
            f"{self.api.id} and accepts the key. Check {variable(self.name)}_URL, {variable(self.name)}_KEY and the account"
        )

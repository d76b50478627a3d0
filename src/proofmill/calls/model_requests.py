"""Requests to models and their outputs, as engines, journals and dialogues exchange them."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Annotated, Any

import msgspec

from proofmill.calls.sampling import NEUTRAL
from proofmill.prompts import templates
from proofmill.schema.ids import digest
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import Reason, StopReason
from proofmill.text.reasoning import CLOSE, OPEN, split_at


@dataclass(frozen=True, eq=False)
class ModelRequest:
    """A request to a model: the conversation, the sampling settings, and the index of the sample.

    `model` identifies the weights: a server's model id, or the digest of an artifact's weights. `options` has further
    fields of the request as JSON. With `logprobs` the output has the log-probability of each token. `stop` has texts
    that end the output.
    """

    model: str
    messages: tuple[tuple[str, str], ...]  # (role, content)
    temperature: float | None = None
    top_p: float = 1.0
    max_tokens: int = 4096
    seed: int = 0
    sample: int = 0
    options: str = ""
    logprobs: bool = False
    top_k: int | None = None
    min_p: float | None = None
    stop: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        """The digest of everything that decides the output: 128 bits in hexadecimal.

        Fields that were added later count only if they are set, so that older journals stay valid.
        """
        sampling: tuple[Any, ...]
        sampling = (self.temperature, self.top_p, self.max_tokens, self.seed, self.options, self.logprobs)
        if self.top_k is not None or self.min_p is not None or self.stop:
            sampling += (tuple(self.further.items()),)
        shared = _digest_request(self.model, self.messages, sampling)
        return hashlib.sha256(f"{shared} {self.sample}".encode()).hexdigest()[:32]

    @cached_property
    def further(self) -> dict[str, Any]:
        """The optional settings that are set, under their names in the protocol."""
        named = {"top_k": self.top_k, "min_p": self.min_p, "stop": self.stop or None}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def sampling(self) -> dict[str, Any]:
        """Every setting that decides how a token is drawn, under vLLM's name; neutral if the request does not set it.

        Has no `temperature` if the request leaves that to the server.
        """
        own = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k, "min_p": self.min_p}
        whole = {**NEUTRAL, **{name: value for name, value in own.items() if value is not None}}
        return whole if self.temperature is not None else {n: v for n, v in whole.items() if n != "temperature"}

    @cached_property
    def row_seed(self) -> int:
        """The seed of this sample, so that its output does not depend on the rest of the batch."""
        return int(digest("seed", self.model, self.messages, self.seed, self.sample)[:15], 16)

    @cached_property
    def size(self) -> int:
        """Length of the conversation in bytes."""
        return sum(len(content.encode()) for _, content in self.messages)


@lru_cache(maxsize=64)
def _digest_request(model: str, messages: tuple[tuple[str, str], ...], sampling: tuple) -> str:
    """Return the digest of a request without its sample index. Cached, as samples of one prompt come in sequence."""
    return hashlib.sha256(json.dumps([model, messages, sampling]).encode()).hexdigest()


class Requests:
    """The requests for the rows of a table, in order. Each call of `make` yields them all as (row's id, request).

    They are never all in memory: the prompts of a million gradings are as large as the graded texts.
    """

    def __init__(self, number: int, make: Callable[[], Iterable[tuple[str, ModelRequest]]]):
        self._number, self._make = number, make

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[ModelRequest]:
        return (request for _, request in self._make())

    def with_rows(self) -> Iterator[tuple[str, ModelRequest]]:
        """Yield the requests with the ids of their rows."""
        return iter(self._make())


Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Amount = Annotated[float, msgspec.Meta(ge=0)]  # JSON has neither NaN nor infinity


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """The output of a request, or its failure. The types are also checked when it is read from a journal.

    `stop` is end, length or error; `reason` is ok, or why there is no text (refused, too-long, provider, ...). `tokens`
    include those of reasoning, `prompt_tokens` those that the server had cached. `cost` is in dollars over all tries,
    None if a price is unknown. `seconds` is the latency of the last try, `model` the name that the server reports,
    `finish` the server's own finish reason.
    """

    text: str
    stop_reason: str
    reason: str = Reason.OK
    reasoning: str | None = None
    prompt_tokens: Count = 0
    cached_tokens: Count = 0
    tokens: Count = 0
    reasoning_tokens: Count = 0
    cost: Amount | None = None
    seconds: Amount = 0.0
    tries: Count = 1
    model: str = ""
    detail: str = ""
    finish_reason: str = ""
    logprobs: list[dict[str, Any]] | None = None

    @property
    def failed(self) -> bool:
        """True if the call failed; a rerun retries it."""
        return self.stop_reason == StopReason.ERROR

    @property
    def paid(self) -> float | None:
        """The cost of the call in dollars; None if the price is unknown, 0 for a failure that was not charged."""
        return self.cost or 0.0 if self.failed else self.cost


def total(costs: Iterable[float | None]) -> float | None:
    """Return the sum of costs in dollars; None if one of them is unknown."""
    costs = list(costs)
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def split_reasoning(answer: ModelOutput, delimiters: Sequence[str]) -> ModelOutput:
    """Move the reasoning part of an output's text to `reasoning`, unless the server sent it separately.

    A text that ended normally without a delimiter is an answer: the server removed the delimiters, or the model did not
    generate reasoning.
    """
    marked = any(delimiter in answer.text for delimiter in delimiters)
    if not delimiters or answer.reasoning is not None or (answer.stop_reason == StopReason.END and not marked):
        return answer
    thought, text = split_at(answer.text, delimiters)
    return replace(answer, text=text, reasoning=thought)


def reader_of(model: str, declared: Mapping[str, Any]) -> Callable[[ModelOutput], ModelOutput]:
    """Return the function that separates the reasoning from a journal's outputs of a model, without its engine."""
    if kind_of(model) != "api" or declared[model].weights:
        return lambda answer: answer
    return partial(split_reasoning, delimiters=declared[model].reasoning_end)


# ------------------------------------------------------------------------------------------ requests to a declared model

Talk = tuple[tuple[str, str], ...]  # (role, content)


def options_of(api: Any) -> str:
    """Return the extra fields of a model's requests and its commit as JSON, or an empty string without any."""
    options = {**api.extra_body, **({"@commit": api.commit} if api.commit else {})}
    return json.dumps(options, sort_keys=True) if options else ""


def build_request(api: Any, talk: Talk, sample: int = 0) -> ModelRequest:
    """Build a request with the model's own temperature; `sample` counts repetitions of the same request."""
    return ModelRequest(
        api.id, talk, temperature=api.temperature, max_tokens=api.max_tokens, options=options_of(api), sample=sample
    )


def build_prompt_request(api: Any, prompt: str, fields: Mapping[str, Any]) -> ModelRequest:
    """Build a request with one message: the prompt, filled with its fields."""
    return build_request(api, (("user", templates.fill(prompt, fields)),))


# Sampling parameters of OpenAI's protocols, and the paths of their calls; other paths are named as their protocol.
CHAT_SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
RESPONSE_SAMPLING = ("temperature", "top_p")
PATHS = {"chat": "chat/completions"}
SEEDS = 2**31  # upper bound of a server's seeds


def body_of(api: Any, request: ModelRequest, messages: list[dict[str, str]], seeds: int = SEEDS) -> dict[str, Any]:
    """Return the fields of a call in the protocol of a model, without `model` and `extra-body`."""
    if api.protocol == "embeddings":
        return {"input": [text for _, text in request.messages]}
    if api.protocol == "responses":
        return {
            "input": messages,
            "max_output_tokens": request.max_tokens,
            "store": False,
            **({"include": ["message.output_text.logprobs"]} if request.logprobs else {}),
            **{name: request.sampling[name] for name in RESPONSE_SAMPLING if name in request.sampling},
            **request.further,
        }
    return {
        "messages": messages,
        api.max_tokens_field: request.max_tokens,
        "seed": request.row_seed % seeds,
        **({"logprobs": True} if request.logprobs else {}),
        **request.further,  # `stop` is OpenAI's; vLLM's server and others read `top_k` and `min_p`
        **{name: request.sampling[name] for name in CHAT_SAMPLING if name in request.sampling},
    }


# ------------------------------------------------------------------------------------------------------- finish words

# Finish words of servers for texts that ended, were truncated or were filtered. The lists are closed: half a proof must
# not be graded as a complete one because a server has a new word for truncation. Words are compared without case,
# blanks, `-` and `_`.
#
#     OpenAI, vLLM, SGLang, llama.cpp, Ollama, DeepSeek    stop, length, content_filter
#     Anthropic     platform.claude.com/docs/build-with-claude/handling-stop-reasons
#     Gemini        cloud.google.com/vertex-ai/generative-ai/docs/reference/nodejs/latest/vertexai/finishreason
#     Mistral       model_length; TGI and watsonx: eos_token, stop_sequence, max_tokens; Together: eos
#     Responses     status `completed`, or the reason of an incomplete response
#     LM Studio     eosFound, stopStringFound, maxPredictedTokensReached, contextLengthReached
#     Zhipu         sensitive; Cohere: COMPLETE
#
# Words such as tool_calls, insufficient_system_resource (DeepSeek), network_error (Zhipu), time_limit (watsonx),
# pause_turn (Anthropic), abort (vLLM), a missing word and null are thus failures.
ENDINGS: dict[str, tuple[StopReason, Reason]] = {
    **dict.fromkeys((
        "stop", "endturn", "eos", "eostoken", "eosfound", "stopsequence", "stopstringfound", "completed", "complete", "end",
    ), (StopReason.END, Reason.OK)),
    **dict.fromkeys((
        "length", "maxtokens", "maxoutputtokens", "modellength", "maxlength", "tokenlimit", "modelcontextwindowexceeded",
        "maxpredictedtokensreached", "contextlengthreached",
    ), (StopReason.LENGTH, Reason.OK)),
    **dict.fromkeys((
        "contentfilter", "contentfiltered", "refusal", "safety", "recitation", "blocklist", "prohibitedcontent", "spii",
        "sensitive",
    ), (StopReason.END, Reason.REFUSED)),
}  # fmt: skip


@lru_cache(maxsize=1024)
def ending(word: str) -> tuple[StopReason, Reason]:
    """Return the stop and the reason for the server's finish reason."""
    return ENDINGS.get(re.sub(r"[\s_-]+", "", word.casefold()), (StopReason.ERROR, Reason.PROVIDER))


def describe_finish(word: str) -> str:
    """Describe a finish word in a message."""
    return f"finished with `{word}`" if word.strip() else "finished without a finish reason"


def why_none(answer: ModelOutput) -> str:
    """Return the reason of a server's output; reasoning that ended without a text may have been truncated by the server."""
    if answer.reason != Reason.OK or answer.stop_reason != StopReason.END:
        return answer.reason
    if not answer.text.strip():
        return Reason.REASONING_ONLY if answer.reasoning else Reason.NO_OUTPUT
    unclosed = answer.text.lstrip().startswith(OPEN) and CLOSE not in answer.text
    return Reason.REASONING_ONLY if unclosed and answer.reasoning is None else answer.reason

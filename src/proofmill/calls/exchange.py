"""Questions to models and their answers, as engines, journals and dialogues exchange them."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any

import msgspec

from proofmill.calls.sampling import NEUTRAL
from proofmill.schema.ids import digest
from proofmill.schema.reasons import Reason, Stop


@dataclass(frozen=True, eq=False)
class Question:
    """A question to a model: the conversation, the sampling settings, and the index of the sample.

    `model` identifies the weights: a server's model id, or the digest of an artifact's weights. `options` are
    further fields of the request as JSON; `logprobs` asks for the log-probability of each token. `stop` has texts at
    which an answer ends.
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
        """A digest of everything that decides the answer: 128 bits in hexadecimal.

        What was added to a question later counts only where it is set, so that journals from before stay valid.
        """
        sampling: tuple[Any, ...]
        sampling = (self.temperature, self.top_p, self.max_tokens, self.seed, self.options, self.logprobs)
        if self.top_k is not None or self.min_p is not None or self.stop:
            sampling += (tuple(self.further.items()),)
        shared = _shared_digest(self.model, self.messages, sampling)
        return hashlib.sha256(f"{shared} {self.sample}".encode()).hexdigest()[:32]

    @cached_property
    def further(self) -> dict[str, Any]:
        """The settings that not every question has, as servers call them."""
        named = {"top_k": self.top_k, "min_p": self.min_p, "stop": self.stop or None}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def sampling(self) -> dict[str, Any]:
        """Return every setting that decides how a token is drawn, as vLLM calls it; neutral where the question has none.

        Without `temperature` where the question leaves it to the server.
        """
        own = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k, "min_p": self.min_p}
        whole = {**NEUTRAL, **{name: value for name, value in own.items() if value is not None}}
        return whole if self.temperature is not None else {n: v for n, v in whole.items() if n != "temperature"}

    @cached_property
    def row_seed(self) -> int:
        """A seed of this sample's own, so that its answer does not depend on the rest of the batch."""
        return int(digest("seed", self.model, self.messages, self.seed, self.sample)[:15], 16)

    @cached_property
    def size(self) -> int:
        """Length of the conversation in bytes."""
        return sum(len(content.encode()) for _, content in self.messages)


@lru_cache(maxsize=64)
def _shared_digest(model: str, messages: tuple[tuple[str, str], ...], sampling: tuple) -> str:
    """A digest of a question without its sample index. Cached: the samples of one prompt are made one after another."""
    return hashlib.sha256(json.dumps([model, messages, sampling]).encode()).hexdigest()


class Questions:
    """The questions for the rows of a table, in order. `make` gives them as (row's id, question), anew each time.

    They are never all in memory: the prompts of a million gradings are as large as the graded texts.
    """

    def __init__(self, number: int, make: Callable[[], Iterable[tuple[str, Question]]]):
        self._number, self._make = number, make

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Question]:
        return (question for _, question in self._make())

    def named(self) -> Iterator[tuple[str, Question]]:
        """The questions with the ids of their rows."""
        return iter(self._make())


Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Amount = Annotated[float, msgspec.Meta(ge=0)]  # JSON has neither NaN nor infinity


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a question, or the failure in its place. The types hold for what is read back from a journal.

    `stop` is end, length or error; `reason` is ok, or why there is no text (refused, too-long, provider, ...). `tokens`
    include those of reasoning, `prompt_tokens` those that the server had cached; `cost` is in dollars over all
    attempts, None when a price is unknown. `seconds` is the latency of the last attempt, `model` the name that the
    server reports, `finish` the server's own word for why it stopped.
    """

    text: str
    stop: str
    reason: str = Reason.OK
    reasoning: str | None = None
    prompt_tokens: Count = 0
    cached_tokens: Count = 0
    tokens: Count = 0
    reasoning_tokens: Count = 0
    cost: Amount | None = None
    seconds: Amount = 0.0
    attempts: Count = 1
    model: str = ""
    detail: str = ""
    finish: str = ""
    logprobs: list[dict[str, Any]] | None = None

    @property
    def failed(self) -> bool:
        """Whether it is a failure in the place of an answer; a rerun asks again."""
        return self.stop == Stop.ERROR

    @property
    def paid(self) -> float | None:
        """What the call cost: dollars, None when the price is unknown, 0 for a failure that nobody charged for."""
        return self.cost or 0.0 if self.failed else self.cost


def total(costs: Iterable[float | None]) -> float | None:
    """The sum of costs in dollars; None when one of them is unknown."""
    costs = list(costs)
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


# ------------------------------------------------------------------------------------------------------- finish words

# How a server says that a text ended, was truncated or was filtered. The lists are closed: half a proof must not be graded
# as a full one because a server has a new word for breaking off. Words are compared without case, blanks, `-` and `_`.
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
ENDINGS: dict[str, tuple[Stop, Reason]] = {
    **dict.fromkeys((
        "stop", "endturn", "eos", "eostoken", "eosfound", "stopsequence", "stopstringfound", "completed", "complete", "end",
    ), (Stop.END, Reason.OK)),
    **dict.fromkeys((
        "length", "maxtokens", "maxoutputtokens", "modellength", "maxlength", "tokenlimit", "modelcontextwindowexceeded",
        "maxpredictedtokensreached", "contextlengthreached",
    ), (Stop.LENGTH, Reason.OK)),
    **dict.fromkeys((
        "contentfilter", "contentfiltered", "refusal", "safety", "recitation", "blocklist", "prohibitedcontent", "spii",
        "sensitive",
    ), (Stop.END, Reason.REFUSED)),
}  # fmt: skip


@lru_cache(maxsize=1024)
def ending(word: str) -> tuple[Stop, Reason]:
    """Return why a text stopped, and whether it counts as an answer, by the server's finish word."""
    return ENDINGS.get(re.sub(r"[\s_-]+", "", word.casefold()), (Stop.ERROR, Reason.PROVIDER))


def finished_with(word: str) -> str:
    """Describe a finish word in a message."""
    return f"finished with `{word}`" if word.strip() else "finished without a word for why"

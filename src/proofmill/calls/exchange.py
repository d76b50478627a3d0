"""What a model is asked, and what comes back."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from proofmill.schema.ids import digest
from proofmill.schema.reasons import Reason


@dataclass(frozen=True, eq=False)
class Question:
    """What a model is asked: the conversation, how to sample, and which of several samples this is.

    `model` is whatever identifies the weights: a server's model id, or the digest of an artifact's weights. `options` are
    further fields of the request as JSON; `logprobs` asks for the log-probability of each token.
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

    @cached_property
    def key(self) -> str:
        """What decides the answer, as 128 bits."""
        sampling = (self.temperature, self.top_p, self.max_tokens, self.seed, self.options, self.logprobs)
        asked = _asked(self.model, self.messages, sampling)
        return hashlib.sha256(f"{asked} {self.sample}".encode()).hexdigest()[:32]

    @cached_property
    def row_seed(self) -> int:
        """A seed for this sample alone, so that it does not matter what it is batched with."""
        return int(digest("seed", self.model, self.messages, self.seed, self.sample)[:15], 16)

    @cached_property
    def size(self) -> int:
        """Bytes of the conversation."""
        return sum(len(content.encode()) for _, content in self.messages)


@lru_cache(maxsize=64)
def _asked(model: str, messages: tuple[tuple[str, str], ...], sampling: tuple) -> str:
    """A digest of a question but for its sample index: the samples of one prompt are made one after another."""
    return hashlib.sha256(json.dumps([model, messages, sampling]).encode()).hexdigest()


class Questions:
    """What is asked for the rows of a table, in their order: `make` gives (row's id, question) anew each time.

    Nothing keeps them all in memory: the prompts of a million gradings are as large as what is graded.
    """

    def __init__(self, number: int, make: Callable[[], Iterable[tuple[str, Question]]]):
        self._number, self._make = number, make

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Question]:
        return (question for _, question in self._make())

    def named(self) -> Iterator[tuple[str, Question]]:
        return iter(self._make())


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    `stop` is end, length or error; `reason` is ok, or why there is no text (refused, too-long, provider, ...). Tokens
    include those of reasoning, prompt tokens those that the server had cached; `cost` is in dollars over all attempts,
    None when a price is unknown. `seconds` is the latency of the last attempt, `model` what the server calls itself,
    `finish` its own word for why it stopped.
    """

    text: str
    stop: str
    reason: str = Reason.OK
    reasoning: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0
    attempts: int = 1
    model: str = ""
    detail: str = ""
    finish: str = ""
    logprobs: list[dict[str, Any]] | None = None

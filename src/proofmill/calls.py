"""One question is asked once ever: this module is the only way to ask a model anything, and what it answers is journaled.

A key is a digest of what decides the answer: model id or weights, messages, sampling, sample index. So a changed prompt
asks only its own rows again, a changed concurrency asks none, and a reverted edit finds its old answers.

How it differs from a loop over a client:
1. An answer is in the journal (journal.py) before its place is taken by another call.
2. A row that fails is parked with its reason, and the stage goes on; a stage fails when more than the model's declared
   share is parked, and says which rows and why.
3. SIGTERM, Ctrl-C, a spent budget and a full disk stop asking, let finish what is in flight, and say how to go on.
"""

import hashlib
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol

from proofmill.budget import Budget, most
from proofmill.journal import Answer, Journal
from proofmill.progress import Progress
from proofmill.stopping import Stop, gracefully
from proofmill.tables import PASSING, TableError, digest

SHOWN = 5  # parked rows that a message names
MANY = 10_000  # `of` for those who ask a few at a time and go on without an answer: a share of a few stops at the first failure


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


class Engine(Protocol):
    """Whatever answers questions: a server, or weights in this process."""

    model: str
    max_parked: float  # the share of the questions that may fail
    price: Any

    def batches(self, questions: Iterable[Question]) -> Iterable[Iterable[Question]]:
        """The questions in the groups in which they are asked; the same for the same questions, cached or not."""
        ...

    def answer(self, questions: Iterator[Question], asking: "Asking") -> None:
        """Give each answer to `asking.take` as it arrives, in any order; begin no more once `asking.stop.why` is set."""
        ...

    def read(self, answer: Answer) -> Answer:
        """An answer of the journal as it is to be understood; the journal has it as it came."""
        ...


class Asking:
    """What an engine is given besides questions: where answers go, whether to stop, and what may be spent."""

    def __init__(self, journal: Journal, budget: Budget, engine: Engine, progress: Progress, stop: Stop, of: int = 0):
        self.journal, self.budget, self.price = journal, budget, engine.price
        self.progress, self.stop = progress, stop
        self.parked: list[tuple[str, str, str]] = []  # key, reason, detail
        self.most_parked = engine.max_parked * max(progress.total or 0, of)

    def missing(self, questions: Iterable[Question]) -> Iterator[Question]:
        """The questions that the journal has no answer to, each once."""
        met: set[str] = set()
        for question in questions:
            if question in self.journal or question.key in met:
                self.progress.add(cached=1)
            else:
                met.add(question.key)
                yield question

    def reserve(self, question: Question) -> bool:
        """Set aside what the question may cost; False when the budget has no room for it now."""
        return self.budget.reserve(most(self.price, question.size, question.max_tokens))

    def spent_up(self, question: Question) -> bool:
        """Whether the budget will have no room for the question, whatever becomes of the calls of other jobs."""
        return self.budget.spent_up(most(self.price, question.size, question.max_tokens))

    def release(self, question: Question) -> None:
        """Free what was set aside."""
        self.budget.settle(most(self.price, question.size, question.max_tokens))

    def take(self, question: Question, answer: Answer) -> None:
        """Journal an answer, or a row that is parked."""
        failed = answer.stop == "error"
        self.journal.add(question, answer)
        self.progress.add(failed=failed, tokens=answer.tokens, cost=answer.cost or 0)
        if failed:
            self.parked.append((question.key, answer.reason, answer.detail[:200]))
            if len(self.parked) > self.most_parked:
                self.stop.ask("stopped because more calls are parked than `max-parked` allows")
        if self.journal.full:
            self.stop.ask("stopped because the disk is full")


class Answers:
    """Answers to all questions in their order, read from the journal as they are gone through: never all in memory."""

    def __init__(self, journal: Journal, engine: Engine, questions: Iterable[Question]):
        self._journal, self._engine, self._questions = journal, engine, questions

    def __iter__(self) -> Iterator[Answer]:
        return (self._engine.read(answer) for answer in self._journal.answers(self._questions))


@dataclass
class Asker:
    """One model, the journal of whoever asks it, and the budget."""

    name: str
    engine: Engine
    journal: Journal
    budget: Budget

    def __call__(self, questions: Questions, quiet: bool = False, of: int = 0) -> Answers:
        """Answers to all questions; only those that the journal has not are asked.

        These may be the last few of a stage that asks step by step: `of` is how many the stage has asked in its largest
        step, of which only a share may fail.
        An answer with stop `error` is a failure that may pass: its `reason` says which, and a rerun asks it again.
        TableError when more than the engine's share is parked; SystemExit when something stopped the asking.
        """
        progress = Progress(self.name, len(questions), "calls")
        with gracefully(self.name) as stop:
            asking = Asking(self.journal, self.budget, self.engine, progress, stop, of)
            for batch in self.engine.batches(questions):
                if stop.why:
                    break
                self.engine.answer(asking.missing(batch), asking)
        if not quiet or stop.why:
            progress.close()
        if len(asking.parked) > asking.most_parked:
            raise TableError(self._too_many(asking.parked, questions))
        if stop.why and progress.done < len(questions):
            self.journal.sync()
            raise SystemExit(
                f"{self.name}: {stop.why}; {progress.done - len(asking.parked):,} of {len(questions):,} calls are answered and "
                "in the journal. Run the same command to go on."
            )
        if stop.signal:  # all is answered, and yet we are to end: whoever handles signals around us decides how
            signal.raise_signal(stop.signal)
        if progress.done < len(questions):
            raise RuntimeError(
                f"{self.name}: {len(questions) - progress.done:,} calls were neither answered nor parked"
            )
        return Answers(self.journal, self.engine, questions)

    def _too_many(self, parked: list[tuple[str, str, str]], questions: Questions) -> str:
        reasons = Counter(reason for _, reason, _ in parked)
        counted = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        details = {key: f"{reason}, {detail}" for key, reason, detail in parked[:SHOWN]}
        named = "\n".join(f"  {row}: {details[q.key]}" for row, q in questions.named() if q.key in details)
        return (
            f"{self.name}: {len(parked):,} of {len(questions):,} calls are parked ({counted}); expected at most the share "
            f"{self.engine.max_parked:g} that `max-parked` of the model allows.\n{named}\n"
            "See to the server and run again: answered calls are not repeated."
        )


@dataclass
class Spent:
    """What the calls of a table cost: dollars (None when a price is unknown) and tokens, counted as its rows are made."""

    cost: float | None = 0.0
    tokens: int = 0
    failures: int = 0  # calls that failed and may pass when they are asked again: such a table is not kept

    def of(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """The same answers, counted as they pass."""
        for answer in answers:
            self.add(answer.cost if answer.stop != "error" else answer.cost or 0.0, answer.tokens)
            self.failures += answer.reason in PASSING
            yield answer

    def add(self, cost: float | None, tokens: int) -> None:
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.tokens += tokens


def split_reasoning(answer: Answer, delimiters: Sequence[str]) -> Answer:
    """Move the reasoning part of the text to `reasoning`: what stands before the last occurrence of a delimiter.

    Delimiters are tried in their order. Without any of them in the text and without reasoning sent apart, all of it is
    reasoning and the answer is empty: it was cut off while thinking (QED-Nano, grading: the benchmark's client).
    """
    if not delimiters or answer.reasoning is not None:
        return answer
    for delimiter in delimiters:
        if delimiter in answer.text:
            reasoning, _, text = answer.text.rpartition(delimiter)
            return replace(answer, text=text.strip(), reasoning=reasoning)
    return replace(answer, text="", reasoning=answer.text)

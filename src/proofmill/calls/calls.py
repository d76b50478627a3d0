"""Asking models: every call goes through this module and its journal, so that each question is asked once ever.

The journal's key is a digest of what decides the answer: model id or weights, messages, sampling, sample index. A
changed prompt therefore asks only its own rows again, a changed concurrency asks none, and a reverted edit finds its
old answers.

How we differ from a loop over a client:
1. An answer is in the journal (journal.py) before another call takes its place in flight.
2. A row that fails is parked with its reason, and the stage goes on. The stage fails when more than the model's
   declared share is parked; its message names rows and reasons.
3. After SIGTERM, Ctrl-C, a spent budget or a full disk no call starts; those in flight may finish, and a message says
   how to go on.
"""

import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import tee
from sys import intern
from typing import Any, Protocol

from proofmill.calls.budget import Budget, most
from proofmill.calls.exchange import Answer, Question, Questions
from proofmill.calls.journal import Journal
from proofmill.calls.prices import is_same_model
from proofmill.runtime.progress import Progress, say
from proofmill.runtime.signals import StopRequest, gracefully
from proofmill.schema.errors import JournalError, ServiceError
from proofmill.schema.reasons import PASSING, Stop
from proofmill.text.reasoning import split_at

SHOWN = 5  # parked rows that a message names
# Assumed size of a stage that asks in small batches and can do without an answer. Measured against a batch of five, the
# allowed share of failures would stop it at the first one.
MANY = 10_000


class Engine(Protocol):
    """A model that answers questions: behind a server, or with its weights in this process."""

    model: str
    max_parked: float  # share of the questions that may fail
    price: Any
    flows: bool  # whether it takes questions while others are under way (flow.py)

    def batches(self, questions: Iterable[Question]) -> Iterable[Iterable[Question]]:
        """The groups in which the questions are asked. They do not depend on what the journal has already."""
        ...

    def answer(self, questions: Iterator[Question], asking: "Asking") -> None:
        """Pass each answer to `asking.take` on arrival, in any order; start no call once `asking.stop.why` is set."""
        ...

    def read(self, answer: Answer) -> Answer:
        """Interpret an answer of the journal, such as by splitting off its reasoning: the journal has it as it came."""
        ...


class Asking:
    """The context of an engine's calls: where answers go, whether to stop, and what may be spent."""

    def __init__(
        self, journal: Journal, budget: Budget, engine: Engine, progress: Progress, stop: StopRequest, of: int = 0
    ):
        self.journal, self.budget, self.price, self.model = journal, budget, engine.price, engine.model
        self.progress, self.stop = progress, stop
        self.parked: list[tuple[str, str, str]] = []  # key, reason, detail
        self.last_failure = ""  # what the last attempt failed with, if nothing was answered since
        self.most_parked = engine.max_parked * max(progress.total or 0, of)

    def missing(self, questions: Iterable[Question]) -> Iterator[Question]:
        """The questions without an answer in the journal, each once."""
        seen: set[str] = set()
        for question in questions:
            if question in self.journal or question.key in seen:
                self.progress.add(cached=1)
            else:
                seen.add(question.key)
                yield question

    @property
    def limited(self) -> bool:
        """Return whether a budget limits what these calls may cost: it is set, and their price is known."""
        return self.budget.dollars is not None and self.price != "unknown"

    def most(self, question: Question) -> float:
        """Return the most dollars that the question may cost: by its limits, or as much as the model's dearest call did."""
        return max(most(self.price, question.size, question.max_tokens), self.budget.dearest.get(self.model, 0.0))

    @property
    def probing(self) -> bool:
        """Return whether no call of the model has been answered yet, so that the next one shows what its calls cost."""
        return self.limited and self.model not in self.budget.dearest

    def learn(self, dollars: float) -> None:
        """Note what a call of the model cost. Servers that ignore `max_tokens` cost more than their limits allow."""
        self.budget.dearest[self.model] = max(dollars, self.budget.dearest.get(self.model, 0.0))

    def reserve(self, dollars: float) -> bool:
        """Reserve dollars for a call; False if the budget has no room now, or its files cannot be read or written."""
        try:
            return self.budget.reserve(dollars)
        except JournalError as error:  # calls in flight may finish
            self.stop.ask(f"stopped because the budget cannot be kept: {error}")
            return False

    def complain(self, what: str) -> None:
        """Write what calls fail with into the log, beside how far they are."""
        say(self.progress.name, f"{self.progress.line()}; {what}")

    def take(self, question: Question, answer: Answer) -> None:
        """Journal an answer, or a failure, which parks its row. A full disk or too many failures stop the asking."""
        self.journal.add(question, answer)
        self.progress.add(failed=answer.failed, tokens=answer.tokens, cost=answer.cost or 0)
        if answer.failed:
            self.parked.append((question.key, answer.reason, answer.detail[:200]))
            if len(self.parked) > self.most_parked:
                self.stop.ask("stopped because more calls are parked than `max-parked` allows")
        if self.journal.full:
            self.stop.ask("stopped because the disk is full")


class Answers:
    """Answers to all questions in order, read from the journal during iteration: they are never all in memory."""

    def __init__(self, asker: "Asker", questions: Iterable[Question]):
        self._asker, self._questions = asker, questions

    def __iter__(self) -> Iterator[Answer]:
        return self._asker.recalled(self._questions)


@dataclass
class Asker:
    """An open model with the journal of the artifact that asks it, and the budget."""

    name: str
    engine: Engine
    journal: Journal
    budget: Budget
    odd: dict[str, str] = field(default_factory=dict)  # by key of a question: what is to be noticed about its answer

    @property
    def flows(self) -> bool:
        """Whether the model takes questions while others are under way."""
        return self.engine.flows

    def __call__(self, questions: Questions, quiet: bool = False, of: int = 0, what: str = "calls") -> Answers:
        """Answers to all questions; the model is asked only those that the journal lacks.

        The questions may be the last few of a stage that asks step by step. `of` is then the size of its largest step,
        or its assumed size: the share that may fail is taken of it. `what` stands for the calls in progress lines.
        An answer with stop `error` is a failure that may pass: its `reason` says which, and a rerun asks it again.
        ServiceError when more than the engine's share is parked; SystemExit when something stopped the asking.
        """
        progress = Progress(self.name, len(questions), what)
        with gracefully(self.name) as stop:
            asking = Asking(self.journal, self.budget, self.engine, progress, stop, of)
            for batch in self.engine.batches(questions):
                if stop.why:
                    break
                self.engine.answer(asking.missing(batch), asking)
        if not quiet or stop.why:
            progress.close()
        if len(asking.parked) > asking.most_parked:
            keys = {key for key, _, _ in asking.parked[:SHOWN]}
            rows = {question.key: row for row, question in questions.named() if question.key in keys}
            raise self.too_many(asking.parked, len(questions), rows)
        if stop.why and progress.done < len(questions):
            raise self.stopped(stop, asking, f"{progress.done - len(asking.parked):,} of {len(questions):,} calls")
        if stop.signal:  # all is answered: the outer signal handler decides how to end
            signal.raise_signal(stop.signal)
        if progress.done < len(questions):
            raise RuntimeError(
                f"{self.name}: {len(questions) - progress.done:,} calls were neither answered nor parked"
            )
        return Answers(self, questions)

    def recalled(self, questions: Iterable[Question]) -> Iterator[Answer]:
        """The journal's answers to questions that were asked before, in order; KeyError for one never asked."""
        asked, read = tee(questions)
        for question, answer in zip(asked, self.journal.answers(read), strict=True):
            self._note(question, answer)
            yield self.engine.read(answer)

    def _note(self, question: Question, answer: Answer) -> None:
        """Note a call that failed, or that another model answered than the one asked."""
        if answer.failed:
            ended = answer.detail if answer.detail.startswith("finished with") else f"failed ({answer.reason})"
            self.odd[question.key] = intern(ended)  # a million calls share a few sentences
        elif answer.model and not is_same_model(question.model, answer.model):
            self.odd[question.key] = intern(f"were answered by `{answer.model}`, not by `{question.model}`")

    def stopped(self, stop: StopRequest, asking: Asking, answered: str) -> SystemExit:
        """What ends a job that something stopped; `answered` says how much is in the journal."""
        self.journal.sync()
        failure = asking.last_failure
        last = f" The last try failed: {failure.rstrip('.')}." if failure and failure not in (stop.why or "") else ""
        return SystemExit(
            f"{self.name}: {stop.why}; {answered} are answered and in the journal.{last} Run the same command to go on."
        )

    def too_many(self, parked: list[tuple[str, str, str]], number: int, rows: Mapping[str, str]) -> ServiceError:
        """What ends a job when more calls failed than may; `rows` are the ids of rows by the keys of their calls."""
        reasons = Counter(reason for _, reason, _ in parked)
        counted = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
        named = "\n".join(f"  {rows[key]}: {reason}, {detail}" for key, reason, detail in parked[:SHOWN])
        return ServiceError(
            f"{self.name}: {len(parked):,} of {number:,} calls are parked ({counted}); expected at most the share "
            f"{self.engine.max_parked:g} that `max-parked` of the model allows.\n{named}\n"
            "See to the server and run again: answered calls are not repeated."
        )


def noticed(odd: Mapping[str, str]) -> list[str]:
    """Return a sentence for each sort of call that is to be noticed (`Asker.odd`), with how many there are."""
    return [f"{count:,} call{'s' * (count > 1)} {what}" for what, count in Counter(odd.values()).most_common()]


@dataclass
class Spent:
    """The cost of a table's calls: dollars (None when a price is unknown) and tokens, counted as its rows are made."""

    cost: float | None = 0.0
    tokens: int = 0
    failures: int = 0  # calls that failed and may succeed when asked again: such a table is not kept

    def counted(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """The same answers; each is counted as it passes."""
        for answer in answers:
            self.add(answer.paid, answer.tokens)
            self.failures += answer.reason in PASSING
            yield answer

    def of_verdict(self, verdict: Any) -> None:
        """Count a verdict (verdicts.Verdict): the cost of its calls, and whether one failed for a passing reason."""
        self.add(verdict.cost if verdict.reason not in PASSING else verdict.cost or 0.0, verdict.tokens)
        self.failures += any(opinion.reason in PASSING for opinion in verdict.opinions)

    def add(self, cost: float | None, tokens: int) -> None:
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.tokens += tokens


def split_reasoning(answer: Answer, delimiters: Sequence[str]) -> Answer:
    """The answer with the reasoning part of its text moved to `reasoning`, unless the server sent it separately.

    A text that its writer ended without a delimiter is an answer: the server took the marks away, or nobody thought.
    """
    marked = any(delimiter in answer.text for delimiter in delimiters)
    if not delimiters or answer.reasoning is not None or (answer.stop == Stop.END and not marked):
        return answer
    thought, text = split_at(answer.text, delimiters)
    return replace(answer, text=text, reasoning=thought)

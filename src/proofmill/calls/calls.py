"""One question is asked once ever: this module is the only way to ask a model anything, and what it answers is journaled.

A key is a digest of what decides the answer: model id or weights, messages, sampling, sample index. So a changed prompt
asks only its own rows again, a changed concurrency asks none, and a reverted edit finds its old answers.

How it differs from a loop over a client:
1. An answer is in the journal (journal.py) before its place is taken by another call.
2. A row that fails is parked with its reason, and the stage goes on; a stage fails when more than the model's declared
   share is parked, and says which rows and why.
3. SIGTERM, Ctrl-C, a spent budget and a full disk stop asking, let finish what is in flight, and say how to go on.
"""

import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from proofmill.calls.budget import Budget, most
from proofmill.calls.exchange import Answer, Question, Questions
from proofmill.calls.journal import Journal
from proofmill.runtime.progress import Progress
from proofmill.runtime.signals import StopRequest, gracefully
from proofmill.schema.errors import ServiceError
from proofmill.schema.reasons import PASSING, Stop
from proofmill.text.reasoning import split_at

SHOWN = 5  # parked rows that a message names
MANY = 10_000  # `of` for those who ask a few at a time and go on without an answer: a share of a few stops at the first failure


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

    def __init__(
        self, journal: Journal, budget: Budget, engine: Engine, progress: Progress, stop: StopRequest, of: int = 0
    ):
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
        failed = answer.stop == Stop.ERROR
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
            raise ServiceError(self._too_many(asking.parked, questions))
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

    def recalled(self, questions: Iterable[Question]) -> Iterator[Answer]:
        """The journal's answers to questions that were asked before, in order."""
        return map(self.engine.read, self.journal.answers(questions))

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

    def counted(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """The same answers, counted as they pass."""
        for answer in answers:
            self.add(answer.cost if answer.stop != Stop.ERROR else answer.cost or 0.0, answer.tokens)
            self.failures += answer.reason in PASSING
            yield answer

    def of_verdict(self, verdict: Any) -> None:
        """Count a verdict (verdicts.Verdict): what its calls cost, and whether one of them failed for a passing reason."""
        self.add(verdict.cost if verdict.reason not in PASSING else verdict.cost or 0.0, verdict.tokens)
        self.failures += any(opinion.reason in PASSING for opinion in verdict.opinions)

    def add(self, cost: float | None, tokens: int) -> None:
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.tokens += tokens


def split_reasoning(answer: Answer, delimiters: Sequence[str]) -> Answer:
    """The answer with the reasoning part of its text moved to `reasoning`, unless the server sent that apart."""
    if not delimiters or answer.reasoning is not None:
        return answer
    thought, text = split_at(answer.text, delimiters)
    return replace(answer, text=text, reasoning=thought)

"""Dialogues with servers that each go on as soon as their own questions are answered, whatever others wait for.

In lock-step (dialogues.py) each step of all waits for the slowest call of any. Where dialogues have many steps, as
scaffolds have, that leaves a server idle as often.

New dialogues begin when a model has fewer questions to be asked than it has in flight, so that few are under way however
many there are in all. The results of those that have ended wait in a file for their turn.
"""

import asyncio
import pickle
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, cast

from proofmill.calls.calls import Asker, Asking, Engine
from proofmill.calls.dialogues import Ask, Begin, Dialogue, Dialogues, Done, Program, State, advance, replies
from proofmill.calls.exchange import Answer, Question
from proofmill.runtime.progress import NestedProgress
from proofmill.runtime.signals import StopRequest, gracefully

BLOCK = 32  # dialogues that begin together: what the journal has of them is read together


class Flowing(Engine, Protocol):
    """An engine that takes questions while others are under way, in an event loop that it shares with others."""

    runner: asyncio.Runner

    async def hold(self, questions: "Feed", asking: Asking) -> None:
        """Ask until the feed is closed, or something stops the asking."""
        ...


def results(begin: Begin, askers: Mapping[str, Asker], unit: str) -> Iterator[Any]:
    """The result of each dialogue, in order, after all have ended; `unit` is what progress lines call them.

    Where a model does not take questions while others are under way, all advance in lock-step.
    """
    if not all(asker.flows for asker in askers.values()):
        return Dialogues(askers).results(begin)
    ended = Results(next(iter(askers.values())).journal.folder)
    _ask(begin, askers, unit, ended)
    return iter(ended)


class Ended(Protocol):
    """Takes the result of each dialogue that has ended, by its place among all."""

    def __setitem__(self, index: int, result: Any) -> None: ...


class Results:
    """Results of dialogues in a file of no name: they come as the dialogues end, and are read in order of beginning."""

    def __init__(self, folder: Path):
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open until all are read)
        self._places: dict[int, int] = {}

    def __setitem__(self, index: int, result: Any) -> None:
        self._places[index] = self._file.tell()
        pickle.dump(result, self._file, pickle.HIGHEST_PROTOCOL)

    def __iter__(self) -> Iterator[Any]:
        with self._file:
            for index in range(len(self._places)):
                self._file.seek(self._places[index])
                yield pickle.load(self._file)


def _ask(begin: Begin, askers: Mapping[str, Asker], unit: str, ended: Results) -> None:
    """Ask until all dialogues have ended. Ends as `Asker` does when too much fails, or something stops it."""
    first = next(iter(askers.values()))
    progress = NestedProgress(first.name, sum(1 for _ in begin()), unit)
    flow = Flow(begin, askers, progress, ended)
    with gracefully(first.name) as stop:
        asking = {model: FlowAsking(flow, model, asker, progress, stop) for model, asker in askers.items()}

        async def all_models() -> None:
            tasks = [
                asyncio.create_task(cast(Flowing, asker.engine).hold(flow.feeds[model], asking[model]))
                for model, asker in askers.items()
            ]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()

        cast(Flowing, first.engine).runner.run(all_models())
    progress.close()
    so_far = f"{progress.all_ended:,} of {progress.total_ended:,} {unit} have ended"
    require_sound(askers, flow, asking, stop, f"{so_far}; {progress.done - progress.failed:,} calls")
    if stop.signal:  # all is answered: the outer signal handler decides how to end
        signal.raise_signal(stop.signal)
    if flow.open:
        raise RuntimeError(f"{first.name}: {unit} wait for calls that were neither answered nor parked")


def require_sound(
    askers: Mapping[str, Asker], flow: "Flow", asking: Mapping[str, "FlowAsking"], stop: StopRequest, answered: str
) -> None:
    """Raise ServiceError when more calls of a model failed than may, SystemExit when something stopped the asking."""
    for model, asker in askers.items():
        parked = asking[model].parked
        if len(parked) > asking[model].most_parked:
            raise asker.too_many(parked, asking[model].taken, flow.rows)
    if flow.open and stop.why:
        failing = next((one for one in asking.values() if one.last_failure), next(iter(asking.values())))
        raise next(iter(askers.values())).stopped(stop, failing, answered)


class FlowAsking(Asking):
    """The context of one model's calls: each answer lets dialogues go on. The share that may fail is of those so far."""

    def __init__(self, flow: "Flow", model: str, asker: Asker, progress: NestedProgress, stop: StopRequest):
        super().__init__(asker.journal, asker.budget, asker.engine, progress, stop, of=progress.total_ended)
        self._flow, self._model, self._share = flow, model, asker.engine.max_parked
        self.taken = 0

    def take(self, question: Question, answer: Answer) -> None:
        self.taken += 1
        self.most_parked = max(self.most_parked, self._share * self.taken)
        super().take(question, answer)
        self._flow.answered(self._model, question, answer)


@dataclass(eq=False)
class Running:
    """A dialogue under way: its place among all, its next questions, and how many of them are not answered."""

    index: int
    row: str
    dialogue: Dialogue
    state: State
    missing: int = 0

    @property
    def asks(self) -> list[Ask]:
        return [] if isinstance(self.state, Done) else self.state


class Feed:
    """The questions to one model as they arise. An iterator that ends for now, and for good once `open` is False."""

    def __init__(self, flow: "Flow"):
        self._flow = flow
        self.queue: deque[Question] = deque()
        self.in_flight = 0
        self.wake: Callable[[], None] = lambda: None  # called when there is more to ask, or nothing ever again

    def __iter__(self) -> Iterator[Question]:
        return self

    def __next__(self) -> Question:
        while len(self.queue) <= self.in_flight and self._flow.begin_more():
            pass
        if not self.queue:
            raise StopIteration
        self.in_flight += 1
        return self.queue.popleft()

    @property
    def open(self) -> bool:
        return self._flow.open


class Flow:
    """Dialogues under way, and the questions that they wait for."""

    _programs: Mapping[str, Program] = {}

    def __init__(self, begin: Begin, askers: Mapping[str, Asker], progress: NestedProgress, ended: Ended):
        self._askers, self._progress, self._ended = askers, progress, ended
        self._fresh = enumerate(begin())
        self._all_begun = False
        self._under_way = 0
        self._waiting: dict[str, list[Running]] = {}  # by the key of the question
        self._failed: set[str] = set()  # keys of questions that failed in this run, and are asked in the next
        self.feeds = {model: Feed(self) for model in askers}
        self.rows: dict[str, str] = {}  # by the keys of failed questions

    @property
    def open(self) -> bool:
        return not self._all_begun or self._under_way > 0

    def begin_more(self) -> bool:
        """Begin some more dialogues; False if there are none."""
        if self._all_begun:
            return False
        some = [
            Running(index, row, dialogue, advance(dialogue, None))
            for index, (row, dialogue) in islice(self._fresh, BLOCK)
        ]
        self._all_begun = len(some) < BLOCK
        self._under_way += len(some)
        self._go_on([running for running in some if self._has_all(running)])
        return bool(some)

    def answered(self, model: str, question: Question, answer: Answer) -> None:
        """Let those who waited for this answer go on; it is in the journal."""
        self.feeds[model].in_flight -= 1
        waited = self._waiting.pop(question.key)
        if answer.failed:
            self._failed.add(question.key)
            self.rows[question.key] = waited[0].row
        for running in waited:
            running.missing -= 1
        self._go_on([running for running in dict.fromkeys(waited) if not running.missing])

    def _has_all(self, running: Running) -> bool:
        """Whether the journal answers all that a dialogue asks. What it lacks is asked, once."""
        for ask in running.asks:
            if ask.who not in self._askers:  # a program, which answers at once
                continue
            key = ask.what.key
            if key in self._failed or ask.what in self._askers[ask.who].journal:
                continue
            if key not in self._waiting:
                self._waiting[key] = []
                feed = self.feeds[ask.who]
                feed.queue.append(ask.what)
                feed.wake()
            self._waiting[key].append(running)
            running.missing += 1
        return not running.missing

    def _go_on(self, ready: list[Running]) -> None:
        """Take dialogues that have their answers as far as the journal goes."""
        while ready:
            for running in ready:
                if isinstance(running.state, Done):
                    self._ended[running.index] = running.state.result
                    self._under_way -= 1
                    self._progress.ended()
            ready = [running for running in ready if not isinstance(running.state, Done)]
            answers = iter(replies([ask for running in ready for ask in running.asks], self._askers, self._programs))
            for running in ready:
                running.state = advance(running.dialogue, list(islice(answers, len(running.asks))))
            ready = [running for running in ready if self._has_all(running)]
        if not self.open:
            for feed in self.feeds.values():
                feed.wake()

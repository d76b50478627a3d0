"""Run dialogues concurrently: each continues as soon as its own requests are answered.

New dialogues begin when a model has fewer queued requests than calls in flight. A limit on all open dialogues keeps a
fast model from queueing requests for a slow one without end. Results are spooled to a temporary file until it is their
turn.

A model in this process is called in batches of all that is queued for it. It blocks the event loop while it computes,
so it waits until no server has a request.
"""

import asyncio
import pickle
import signal
import tempfile
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Protocol, cast

from proofmill.calls.calls import Asker, Asking, Engine
from proofmill.calls.dialogues import Ask, Begin, Dialogue, Done, Program, State, advance
from proofmill.calls.model_requests import ModelOutput, ModelRequest, Requests
from proofmill.runtime.progress import NestedProgress
from proofmill.runtime.signals import StopRequest, gracefully

BLOCK = 32  # dialogues that begin together; the journal is read once for all of them
# Open dialogues for each server, or twice its window if that is more; twice as many for weights in this process.
OPEN = 512
POLL = 0.5  # seconds between two looks at whether a signal or another model stopped the run


class Flowing(Engine, Protocol):
    """An engine that accepts requests while others are in flight, in an event loop shared with other engines."""

    runner: asyncio.Runner

    async def hold(self, requests: "Feed", asking: Asking) -> None:
        """Send requests until the feed is closed or the run stops."""
        ...


def results(
    begin: Begin,
    askers: Mapping[str, Asker],
    unit: str,
    programs: Mapping[str, Program] | None = None,
    of: int = 0,
    quiet: bool = False,
) -> Iterator[Any]:
    """Run all dialogues and return their results in order.

    `unit` names the dialogues in progress lines; `quiet` omits the last line. The allowed share of failed calls is
    multiplied by the largest of: number of dialogues, calls so far, `of`. Without models to call, the
    dialogues run from the journal and the programs alone, while the results are read.
    """
    if not any(asker.is_open for asker in askers.values()):
        return _replay(begin, askers, programs or {})
    ended = Results(next(iter(askers.values())).journal.folder)
    _ask(begin, askers, unit, programs or {}, of, quiet, ended)
    return iter(ended)


def _replay(begin: Begin, askers: Mapping[str, Asker], programs: Mapping[str, Program]) -> Iterator[Any]:
    """Yield the results of dialogues whose models are never called, with OPEN of them in memory at a time."""
    rows = enumerate(begin())
    while part := [Running(n, row, dialogue, advance(dialogue, None)) for n, (row, dialogue) in islice(rows, OPEN)]:
        while waiting := [running for running in part if not isinstance(running.state, Done)]:
            for who, asker in askers.items():
                named = [(running.row, ask.what) for running in waiting for ask in running.asks if ask.who == who]
                asker(Requests(len(named), partial(iter, named)))
            _advance(waiting, askers, programs)
        yield from (running.state.result for running in part if isinstance(running.state, Done))


class Ended(Protocol):
    """A collection of the results of dialogues, by their position."""

    def __setitem__(self, index: int, result: Any) -> None: ...


class Results:
    """Results of dialogues in an unnamed file: written as the dialogues end, read in the order in which they began."""

    def __init__(self, folder: Path):
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open until all are read)
        self._places = array("q")

    def __setitem__(self, index: int, result: Any) -> None:
        self._places.extend([-1] * (index + 1 - len(self._places)))
        self._places[index] = self._file.tell()
        packed = zlib.compress(pickle.dumps(result, pickle.HIGHEST_PROTOCOL), level=1)
        pickle.dump(packed, self._file, pickle.HIGHEST_PROTOCOL)

    def __iter__(self) -> Iterator[Any]:
        with self._file:
            for place in self._places:
                self._file.seek(place)
                yield pickle.loads(zlib.decompress(pickle.load(self._file)))


def _ask(
    begin: Begin,
    askers: Mapping[str, Asker],
    unit: str,
    programs: Mapping[str, Program],
    of: int,
    quiet: bool,
    ended: Results,
) -> None:
    """Run until all dialogues have ended. Raises as `Asker` does if too many calls fail or something stops the run."""
    first = next(iter(askers.values()))
    progress = NestedProgress(first.name, sum(1 for _ in begin()), unit)
    flow = Flow(begin, askers, progress, ended, programs)
    with gracefully(first.name) as stop, ExitStack() as stack:
        asking = {model: FlowAsking(flow, model, asker, progress, stop, of) for model, asker in askers.items()}
        flowing = [asker.engine for asker in askers.values() if asker.flows]
        runner = cast(Flowing, flowing[0]).runner if flowing else stack.enter_context(asyncio.Runner())
        runner.run(_all_models(flow, askers, asking))
    if progress.total_ended and (not quiet or stop.why):
        progress.close()
    so_far = f"{progress.all_ended:,} of {progress.total_ended:,} {unit} have ended"
    require_sound(askers, flow, asking, stop, f"{so_far}; {progress.done - progress.failed:,} calls")
    if stop.signal:  # everything is answered: the outer signal handler decides how to end
        signal.raise_signal(stop.signal)
    if flow.open:
        raise RuntimeError(f"{first.name}: {unit} wait for calls that neither succeeded nor failed")


async def _all_models(flow: "Flow", askers: Mapping[str, Asker], asking: Mapping[str, "FlowAsking"]) -> None:
    """Serve the feeds of all models until they are closed or the run stops."""
    tasks = [
        asyncio.create_task(
            cast(Flowing, asker.engine).hold(flow.feeds[model], asking[model])
            if asker.flows
            else _hold_here(flow, asker.engine, flow.feeds[model], asking[model])
        )
        for model, asker in askers.items()
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _hold_here(flow: "Flow", engine: Engine, feed: "Feed", asking: Asking) -> None:
    """Send the queued requests to an engine in this process, whenever no server has a request."""
    news = asyncio.Event()
    feed.wake = news.set
    while feed.open and not asking.stop.why:
        if flow.servers_idle:
            for batch in takewhile(lambda _: not asking.stop.why, engine.batches(feed)):
                engine.answer(iter(batch), asking)
        try:
            async with asyncio.timeout(POLL):
                await news.wait()
        except TimeoutError:
            pass
        news.clear()


def require_sound(
    askers: Mapping[str, Asker], flow: "Flow", asking: Mapping[str, "FlowAsking"], stop: StopRequest, answered: str
) -> None:
    """Raise ServiceError if more calls of a model failed than may, SystemExit if something stopped the run."""
    for model, asker in askers.items():
        failed = asking[model].failed
        if len(failed) > asking[model].failure_limit:
            raise asker.too_many(failed, asking[model].taken, flow.rows)
    if flow.open and stop.why:
        failing = next((one for one in asking.values() if one.last_failure), next(iter(asking.values())))
        raise next(iter(askers.values())).exit_of(stop, failing, answered)


class FlowAsking(Asking):
    """The context of one model's calls: each output lets dialogues continue."""

    def __init__(
        self, flow: "Flow", model: str, asker: Asker, progress: NestedProgress, stop: StopRequest, of: int = 0
    ):
        most = max(progress.total_ended, of)
        super().__init__(asker.journal, asker.budget, asker.engine, progress, stop, of=most)
        self._flow, self._model, self._share = flow, model, asker.engine.max_failed
        self.taken = 0

    def take(self, request: ModelRequest, answer: ModelOutput) -> None:
        """Record an output and resume the dialogues that wait for it."""
        self.taken += 1
        self.failure_limit = max(self.failure_limit, self._share * self.taken)
        super().take(request, answer)
        self._flow.receive_output(self._model, request, answer)


@dataclass(eq=False)
class Running:
    """An open dialogue: its position among all, its next requests, and how many of them are not answered."""

    index: int
    row: str
    dialogue: Dialogue
    state: State
    missing: int = 0

    @property
    def asks(self) -> list[Ask]:
        """The next requests."""
        return [] if isinstance(self.state, Done) else self.state


def _advance(ready: Sequence[Running], askers: Mapping[str, Asker], programs: Mapping[str, Program]) -> None:
    """Take dialogues one step further: send the journal's outputs and those of programs, which run once for all."""
    asks = [ask for running in ready for ask in running.asks]
    replies: list[Any] = [None] * len(asks)
    for who in dict.fromkeys(ask.who for ask in asks):
        indices = [index for index, ask in enumerate(asks) if ask.who == who]
        inputs = [asks[index].what for index in indices]
        outputs = askers[who].recall(inputs) if who in askers else programs[who](inputs)
        for index, reply in zip(indices, outputs, strict=True):
            replies[index] = reply
    remaining = iter(replies)
    for running in ready:
        running.state = advance(running.dialogue, list(islice(remaining, len(running.asks))))


class Feed:
    """The queue of requests to one model, as an iterator. If it ends while `open` is True, more may come later."""

    def __init__(self, flow: "Flow"):
        self._flow = flow
        self.queue: deque[ModelRequest] = deque()
        self.in_flight = 0
        self.wake: Callable[[], None] = lambda: None  # called when there are more requests, or none ever again

    def __iter__(self) -> Iterator[ModelRequest]:
        return self

    def __next__(self) -> ModelRequest:
        while len(self.queue) <= self.in_flight and self._flow.begin_more():
            pass
        if not self.queue:
            raise StopIteration
        self.in_flight += 1
        return self.queue.popleft()

    @property
    def open(self) -> bool:
        """True if requests may still come."""
        return self._flow.open


class Flow:
    """Open dialogues, and the requests that they wait for."""

    def __init__(
        self,
        begin: Begin,
        askers: Mapping[str, Asker],
        progress: NestedProgress,
        ended: Ended,
        programs: Mapping[str, Program],
    ):
        self._askers, self._progress, self._ended, self._programs = askers, progress, ended, programs
        self._fresh = enumerate(begin())
        self._all_begun = self._held_back = False
        self._under_way = 0
        self._block = BLOCK  # the next dialogues to begin; more while the journal has all of their outputs
        self._waiting: dict[str, list[Running]] = {}  # by the key of the request
        self._failed: set[str] = set()  # keys of requests that failed in this run; the next run repeats them
        self.feeds = {model: Feed(self) for model in askers}
        self.rows: dict[str, str] = {}  # by the keys of failed requests

    @property
    def open(self) -> bool:
        """True if dialogues are open or may begin."""
        return not self._all_begun or self._under_way > 0

    @property
    def servers_idle(self) -> bool:
        """True if no server has a request queued or in flight."""
        feeds = [feed for model, feed in self.feeds.items() if self._askers[model].flows]
        return not any(feed.queue or feed.in_flight for feed in feeds)

    def begin_more(self) -> bool:
        """Begin some more dialogues. Return False if all have begun, or as many are open as may be."""
        if self._all_begun:
            return False
        paces = [asker.engine.pace for asker in self._askers.values()]
        most = sum(max(OPEN, 2 * pace.window) if pace else 2 * OPEN for pace in paces)
        if self._under_way >= most:
            self._held_back = True
            return False
        some = [
            Running(index, row, dialogue, advance(dialogue, None))
            for index, (row, dialogue) in islice(self._fresh, self._block)
        ]
        before = self._under_way
        self._all_begun = len(some) < self._block
        self._under_way += len(some)
        self._resume([running for running in some if self._has_all(running)])
        self._block = min(2 * self._block, OPEN) if self._under_way == before else BLOCK
        return bool(some)

    def receive_output(self, model: str, request: ModelRequest, answer: ModelOutput) -> None:
        """Resume the dialogues that waited for this output, which is in the journal already."""
        self.feeds[model].in_flight -= 1
        waited = self._waiting.pop(request.key)
        if answer.failed:
            self._failed.add(request.key)
            self.rows[request.key] = waited[0].row
        for running in waited:
            running.missing -= 1
        self._resume([running for running in dict.fromkeys(waited) if not running.missing])
        if not self.feeds[model].in_flight:  # engines in this process may wait for that
            self._wake_all()

    def _has_all(self, running: Running) -> bool:
        """Return whether the journal has every output a dialogue waits for. Queue each missing request once."""
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

    def _resume(self, ready: list[Running]) -> None:
        """Advance dialogues that have their outputs, as far as the journal reaches."""
        before = self._under_way
        while ready:
            for running in ready:
                if isinstance(running.state, Done):
                    self._ended[running.index] = running.state.result
                    self._under_way -= 1
                    self._progress.end_unit()
            ready = [running for running in ready if not isinstance(running.state, Done)]
            _advance(ready, self._askers, self._programs)
            ready = [running for running in ready if self._has_all(running)]
        if not self.open or (self._held_back and self._under_way < before):
            self._held_back = False
            self._wake_all()

    def _wake_all(self) -> None:
        for feed in self.feeds.values():
            feed.wake()

"""Dialogues that begin one by one, at any time: a thread asks for them while the one that began them does other work.

A training has its rollouts judged so. The judge is asked about the first one that ends while the last is still being
written, and where rollouts are made ahead of the training (`lag`), while the training learns.

Everything else is as in flow.py: a dialogue goes on as soon as its own questions are answered, and each answer is in the
journal before another call takes its place in flight.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Any, cast

from proofmill.calls.calls import Asker
from proofmill.calls.dialogues import Begin, Dialogue, Program, advance
from proofmill.calls.flow import Flow, FlowAsking, Flowing, Running, require_sound
from proofmill.runtime.progress import NestedProgress
from proofmill.runtime.signals import StopRequest

LAST_CALLS = 5.0  # seconds that calls in flight have when an error ends the stream


class Stream:
    """A context manager: inside it any thread may begin dialogues. They end with their results, or with what stopped them.

    All models must take questions while others are under way (`Asker.flows`). The share of calls that may fail is taken
    of those made so far, or of `of` calls, where these are more.
    """

    def __init__(self, name: str, askers: Mapping[str, Asker], of: int = 0):
        self.askers, self.progress = askers, _Unsaid(name, of, "dialogues")
        self._arrivals: deque[tuple[str, Dialogue, Mapping[str, Program]]] = deque()
        self._in_turn = Lock()  # dialogues arrive in the order in which their results are expected
        self._results, self._stop, self._closing = _Futures(), StopRequest(), False
        self._flow = _Later(self, self._results)

    def __enter__(self) -> "Stream":
        self._runner = cast(Flowing, next(iter(self.askers.values())).engine).runner
        self._news = asyncio.Event()
        self._over: asyncio.Future[None] = self._runner.get_loop().create_future()
        self._thread = ThreadPoolExecutor(1, "stream")
        self._run = self._thread.submit(lambda: self._runner.run(self._serve()))
        self._run.add_done_callback(self._results.fail)
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        """Wait for the dialogues under way; after an error for a few seconds, and for the calls in flight alone."""
        self._closing = True
        if kind is not None:
            self._stop.ask("stopped because the training ends")
        self._tell(self._news.set)
        wait([self._run], timeout=None if kind is None else LAST_CALLS)
        self._tell(self._over.cancel)
        self._thread.shutdown()
        if kind is None:
            self._run.result()

    def begin(self, row: str, dialogue: Dialogue, programs: Mapping[str, Program] | None = None) -> Future:
        """Begin a dialogue, which `row` names in messages; the future has its result, or why there is none."""
        with self._in_turn:
            future = self._results.expect()
            self._arrivals.append((row, dialogue, programs or {}))
        self._tell(self._news.set)
        return future

    def results(self, begin: Begin) -> list[Any]:
        """The result of each dialogue, in order, after all have ended."""
        return [future.result() for future in [self.begin(row, dialogue) for row, dialogue in begin()]]

    def _tell(self, what: Callable[[], Any]) -> None:
        if not self._run.done():
            self._runner.get_loop().call_soon_threadsafe(what)

    @property
    def closed(self) -> bool:
        """Whether no dialogue will begin any more."""
        return self._closing and not self._arrivals

    # --------------------------------------------------------------------------------------------------- in the thread

    async def _serve(self) -> None:
        asking = {m: FlowAsking(self._flow, m, asker, self.progress, self._stop) for m, asker in self.askers.items()}
        arriving = asyncio.create_task(self._arrive())
        holding = [
            asyncio.create_task(cast(Flowing, asker.engine).hold(self._flow.feeds[model], asking[model]))
            for model, asker in self.askers.items()
        ]
        held: asyncio.Future[Any] = asyncio.gather(*holding)
        over: asyncio.Future[Any] = self._over
        try:
            await asyncio.wait([arriving, held, over], return_when=asyncio.FIRST_COMPLETED)
            if arriving.done():
                arriving.result()
            await asyncio.wait([held, over], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (arriving, *holding):
                task.cancel()
        if held.done():
            held.result()
        calls = f"{self.progress.done - self.progress.failed:,} calls"
        require_sound(self.askers, self._flow, asking, self._stop, calls)

    async def _arrive(self) -> None:
        """Begin what arrives, until the stream is closed."""
        while not self.closed:
            await self._news.wait()
            self._news.clear()
            while self._arrivals and not self._stop.why:
                self._flow.start(*self._arrivals.popleft())
        for feed in self._flow.feeds.values():
            feed.wake()


class _Unsaid(NestedProgress):
    """Counts without a line now and then: the training says how far it is."""

    def add(self, done: int = 1, *, cached: int = 0, failed: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        self.done += done
        self.failed += failed


class _Later(Flow):
    """Dialogues under way, which begin when they are told to."""

    def __init__(self, stream: Stream, results: "_Futures"):
        super().__init__(lambda: (), stream.askers, stream.progress, results)
        self._stream, self._number = stream, 0
        self._programs: dict[str, Program] = {}

    @property
    def open(self) -> bool:
        return not self._stream.closed or self._under_way > 0

    def begin_more(self) -> bool:
        return False

    def start(self, row: str, dialogue: Dialogue, programs: Mapping[str, Program]) -> None:
        self._programs.update(programs)
        running = Running(self._number, row, dialogue, advance(dialogue, None))
        self._number += 1
        self._under_way += 1
        if self._has_all(running):
            self._go_on([running])


class _Futures:
    """Results that somebody waits for, by the order of their dialogues."""

    def __init__(self) -> None:
        self._lock, self._waited, self._number = Lock(), dict[int, Future](), 0
        self._over: BaseException | None = None

    def expect(self) -> Future:
        """The future of the next dialogue. Raises what has ended the stream, if it has ended."""
        with self._lock:
            if self._over:
                raise self._over
            future = self._waited[self._number] = Future()
            self._number += 1
            return future

    def __setitem__(self, index: int, result: Any) -> None:
        with self._lock:
            future = self._waited.pop(index)
        future.set_result(result)

    def fail(self, run: Future) -> None:
        """Nobody will get a result any more: the stream has ended, by itself or with an error."""
        with self._lock:
            self._over = run.exception() or RuntimeError("the stream of dialogues has ended")
            waited, self._waited = list(self._waited.values()), {}
        for future in waited:
            future.set_exception(self._over)

"""Run dialogues in a thread, which begin one by one, at any time, while the caller does other work.

A training grades its rollouts in this way. The judge gets the first rollout that ends while others are being sampled,
and in asynchronous training (`max-staleness`) also while the policy is trained.

Everything else is as in runner.py. A dialogue continues as soon as its own requests are answered, and each output is in
the journal before another call starts in its slot.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Any, cast

from proofmill.calls.calls import Asker
from proofmill.calls.dialogues import Begin, Dialogue, Program, advance
from proofmill.calls.runner import Flow, FlowAsking, Flowing, Running, require_sound
from proofmill.runtime.progress import NestedProgress
from proofmill.runtime.signals import StopRequest

LAST_CALLS = 5.0  # seconds that calls in flight have when an error ends the stream


class Stream:
    """A context manager inside which any thread may begin dialogues. They end with their results, or with the error.

    All models must accept requests while others are in flight (`Asker.flows`). The share of calls that may fail is
    taken of the calls so far, or of `of` calls if that is more.
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
        """Wait for the open dialogues; after an error only for the calls in flight, for at most LAST_CALLS seconds."""
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
        """Begin a dialogue, which `row` names in messages. Return the future of its result, or of the error."""
        with self._in_turn:
            future = self._results.expect()
            self._arrivals.append((row, dialogue, programs or {}))
        self._tell(self._news.set)
        return future

    def results(self, begin: Begin) -> list[Any]:
        """Run dialogues to their end and return their results in order."""
        return [future.result() for future in [self.begin(row, dialogue) for row, dialogue in begin()]]

    def _tell(self, what: Callable[[], Any]) -> None:
        if not self._run.done():
            self._runner.get_loop().call_soon_threadsafe(what)

    @property
    def closed(self) -> bool:
        """True if no dialogue will begin anymore."""
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
        held.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may end after this coroutine
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
        """Begin dialogues as they arrive, until the stream is closed."""
        while not self.closed:
            await self._news.wait()
            self._news.clear()
            while self._arrivals and not self._stop.why:
                self._flow.start(*self._arrivals.popleft())
        for feed in self._flow.feeds.values():
            feed.wake()


class _Unsaid(NestedProgress):
    """Counts without log lines: the training logs its own progress."""

    def add(self, done: int = 1, *, cached: int = 0, failed: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        """Count calls."""
        self.done += done
        self.failed += failed


class _Later(Flow):
    """Open dialogues that the stream begins."""

    def __init__(self, stream: Stream, results: "_Futures"):
        self._further: dict[str, Program] = {}
        super().__init__(lambda: (), stream.askers, stream.progress, results, self._further)
        self._stream, self._number = stream, 0

    @property
    def open(self) -> bool:
        """True if dialogues are open or may begin."""
        return not self._stream.closed or self._under_way > 0

    def begin_more(self) -> bool:
        """Return False: the stream begins dialogues."""
        return False

    def start(self, row: str, dialogue: Dialogue, programs: Mapping[str, Program]) -> None:
        """Begin a dialogue, with the programs that it may run."""
        self._further.update(programs)
        running = Running(self._number, row, dialogue, advance(dialogue, None))
        self._number += 1
        self._under_way += 1
        if self._has_all(running):
            self._resume([running])


class _Futures:
    """Futures of results, in the order of their dialogues."""

    def __init__(self) -> None:
        self._lock, self._waited, self._number = Lock(), dict[int, Future](), 0
        self._over: BaseException | None = None

    def expect(self) -> Future:
        """Return the future of the next dialogue. Raises the error that ended the stream, if it has ended."""
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
        """Fail all futures that are left: the stream has ended, normally or with an error."""
        with self._lock:
            self._over = run.exception() or RuntimeError("the stream of dialogues has ended")
            waited, self._waited = list(self._waited.values()), {}
        for future in waited:
            future.set_exception(self._over)

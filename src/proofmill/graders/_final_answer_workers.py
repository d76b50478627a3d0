"""Processes that compare final answers, each of which may be killed: see final_answers.py for what they decide."""

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from proofmill.graders.final_answers import (
    CANARIES,
    SECONDS,
    Check,
    Decision,
    Pair,
    by_integers,
    by_mathematics,
    by_values,
    check_canaries,
    judge,
    read_pair,
)
from proofmill.schema.errors import VerifierError

# --------------------------------------------------------------------------------------------------------------- workers

MEMORY = 2 << 30  # bytes of address space of a worker; SymPy and all that it keeps take 100 MB
_PATIENCE = 12  # times a pair's seconds, by the wall clock: for a pair that waits and does not compute
_DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_REPLY = struct.Struct("i")


def serve(line: socket.socket, parent: int, seconds: float, canaries: Sequence[tuple[str, str]]) -> None:
    """A process that imports math-verify once, judges the known answers, and forks workers that know what it knows.

    It is asked through `line`: a message with a pipe starts a worker at it and is answered by the worker's id; an id
    ends that worker and is answered by its exit code. It has no threads, and ends within a second of its parent.
    """
    _parse_in_two_stages()
    line.sendall(",".join(judge(gold, text).status for gold, text in canaries).encode() + b"\n")
    while os.getppid() == parent:  # another process may hold a copy of the line's other end and keep it open
        if not select.select([line], [], [], 1.0)[0]:
            continue
        asked, pipes, _, _ = socket.recv_fds(line, _REPLY.size, 1)
        if not asked:
            return
        if not pipes:
            (worker,) = _REPLY.unpack(asked)
            os.kill(worker, signal.SIGKILL)
            line.sendall(_REPLY.pack(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])))
        elif worker := os.fork():
            os.close(pipes[0])
            line.sendall(_REPLY.pack(worker))
        else:
            line.close()
            try:
                _work(Connection(pipes[0]), seconds)
            finally:
                os._exit(1)


def _work(pipe: Connection, seconds: float) -> None:
    """A worker: chunk after chunk of pairs, each pair against the clock.

    When time is up no handler is called: the signal's default is the end of the process, whatever it is doing.
    """
    ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGPROF, signal.SIGALRM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with contextlib.suppress(EOFError, ConnectionError):  # the verifier is gone
        while True:
            for gold, answer in pipe.recv():
                _set_clock(seconds)
                verdict = by_values(Pair(gold, answer)) or by_mathematics(Pair(gold, answer))
                _set_clock(0)
                pipe.send(tuple(verdict))


def _set_clock(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE * seconds)


def _parse_in_two_stages() -> None:
    """Let the parser predict as ANTLR advises: by SLL, and by LL, its default, where SLL finds no tree.

    A tree found by SLL is the one that LL finds (antlr4, PredictionMode), several times faster.
    """
    from antlr4.atn.PredictionMode import PredictionMode
    from antlr4.error.Errors import ParseCancellationException
    from antlr4.error.ErrorStrategy import BailErrorStrategy
    from latex2sympy2_extended import latex2sympy2

    class TwoStages(latex2sympy2.PSParser):
        def math(self) -> Any:
            handler, self._errHandler = self._errHandler, BailErrorStrategy()
            self._interp.predictionMode = PredictionMode.SLL
            try:
                return super().math()
            except ParseCancellationException:
                self._errHandler, self._interp.predictionMode = handler, PredictionMode.LL
                self.reset()
                return super().math()

    latex2sympy2.PSParser = TwoStages


class _Server:
    """`serve` in a process of its own, as its parent sees it."""

    def __init__(self, seconds: float):
        self.line, theirs = socket.socketpair()
        pairs = [(gold, text) for gold, text, _ in CANARIES]
        arguments = f"socket.socket(fileno={theirs.fileno()}), {os.getpid()}, {seconds!r}, {pairs!r}"
        code = (
            f"import socket; from proofmill.graders import _final_answer_workers as workers; workers.serve({arguments})"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # an interrupt is meant for the job, which ends it
        )
        theirs.close()
        with self.line.makefile() as lines:
            statuses = lines.readline().strip().split(",")
        try:
            if len(statuses) != len(CANARIES):
                raise VerifierError(
                    f"verifier: the process that starts workers died, exit code {self.process.wait()}; expected it to judge "
                    f"{len(CANARIES)} known answers. It wrote why above; try python -c 'import math_verify'."
                )
            check_canaries(statuses)
        except VerifierError:
            self.end()
            raise

    def start(self) -> tuple[Connection, int]:
        """A new worker: its pipe and its id. OSError when the server is dead."""
        pipe, theirs = Pipe()
        with theirs:
            socket.send_fds(self.line, [_REPLY.pack(0)], [theirs.fileno()])
        return pipe, self._reply()

    def end_worker(self, worker: int) -> int:
        """Its exit code; a worker that is alive is killed."""
        self.line.sendall(_REPLY.pack(worker))
        return self._reply()

    def _reply(self) -> int:
        if len(reply := self.line.recv(_REPLY.size)) < _REPLY.size:
            raise ConnectionResetError
        return _REPLY.unpack(reply)[0]

    def end(self) -> int:
        self.line.close()
        self.process.kill()
        return self.process.wait()


class _Asked:
    """A pair that was asked, and its verdict once there is one."""

    def __init__(self, pair: Pair | None, verdict: Decision | None = None):
        self.pair, self.verdict = pair, verdict


class _Worker:
    """A worker as its parent sees it: a pipe, and the pairs that it was given and has not answered."""

    def __init__(self, server: _Server):
        self.server = server
        self.pipe, self.id = server.start()
        self.chunk: deque[_Asked] = deque()

    def give(self, chunk: Iterable[_Asked]) -> None:
        self.chunk.extend(chunk)
        with contextlib.suppress(ConnectionError):  # it has died: that is seen when its answers are read
            self.pipe.send([tuple(asked.pair) for asked in self.chunk])

    def take(self) -> bool:
        """Read what it has answered; False when it is dead."""
        try:
            while self.pipe.poll():
                self.chunk[0].verdict = Decision(*self.pipe.recv())
                self.chunk.popleft()
        except (EOFError, OSError):
            return False
        return True

    def end(self) -> int | None:
        """Its exit code, None when its server is dead; a worker that is alive is killed."""
        self.pipe.close()
        try:
            return self.server.end_worker(self.id)
        except OSError:
            return None


# -------------------------------------------------------------------------------------------------------------- the pool

CHUNK = 32  # pairs that a worker is given at once
WINDOW = 8192  # pairs that are read from the input and not given back: each may wait for an earlier one
REMEMBERED = 65_536  # pairs


class Verifier:
    """A context manager: inside it, `check` judges pairs in worker processes.

    `workers`: None is one for each processor that this process may use. `seconds`: processor time of one pair. A
    worker that dies makes the pair that it was at unparsable; a new one does the rest. VerifierError when the known
    answers are not found.
    """

    def __init__(self, workers: int | None = None, seconds: float = SECONDS):
        self.workers, self.seconds = len(os.sched_getaffinity(0)) if workers is None else workers, seconds
        if self.workers < 1 or not seconds > 0:
            raise VerifierError(
                f"verifier: {workers} workers and {seconds} s; expected at least one and more than 0 s."
            )
        self._server: _Server | None = None
        self._crew: list[_Worker] = []
        self._memory: OrderedDict[Pair, _Asked] = OrderedDict()
        self._busy = False

    def __enter__(self) -> "Verifier":
        asked = [read_pair(gold, text)[1] for gold, text, _ in CANARIES]
        quick = [one if isinstance(one, Decision) else by_integers(one) for one in asked]
        check_canaries([one and one.status for one in quick])
        self._server = _Server(self.seconds)
        self._crew = [self._hire() for _ in range(self.workers)]
        return self

    def __exit__(self, *_: Any) -> None:
        for worker in self._crew:
            worker.end()
        self._crew = []
        self._server.end()

    def check(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Check]:
        """A check of each (gold, text), in order, as soon as there is one; a few thousand pairs are read ahead."""
        self._must_be_open()
        return self._checks(iter(pairs))

    def _must_be_open(self) -> None:
        if not self._crew:
            raise VerifierError(
                "verifier: it is not open; expected a `with` around it. Write `with Verifier() as ...`."
            )

    def _checks(self, pairs: Iterator[tuple[str, str]]) -> Iterator[Check]:
        if self._busy:
            raise VerifierError("verifier: a check is not finished; expected one at a time. Open a second Verifier.")
        self._busy = True
        window: deque[tuple[str | None, _Asked]] = deque()  # what is read and not given back
        todo: deque[_Asked] = deque()  # of this, what no worker has yet
        more = True
        try:
            while more or window:
                self._must_be_open()
                room = more and len(window) < WINDOW and len(todo) < CHUNK * self.workers
                if room:
                    more = self._ask(islice(pairs, CHUNK), window, todo)
                self._hand_out(todo)
                while window and (verdict := window[0][1].verdict):
                    answer, _ = window.popleft()
                    yield Check(verdict.status, answer, verdict.detail)
                self._collect(todo, 0 if room else None)
        finally:
            self._busy = False
            for _, asked in window:  # nobody waits for these any more
                if not asked.verdict:
                    self._memory.pop(asked.pair, None)
            for place, worker in enumerate(self._crew):
                if worker.chunk:
                    worker.end()
                    self._crew[place] = self._hire()

    def _ask(self, pairs: Iterator[tuple[str, str]], window: deque, todo: deque[_Asked]) -> bool:
        """Read a few pairs, and settle those that need no worker; False at the end of the input."""
        before = len(window)
        for gold, text in pairs:
            answer, pair = read_pair(gold, text)
            if verdict := pair if isinstance(pair, Decision) else by_integers(pair):
                asked = _Asked(None, verdict)
            elif asked := self._memory.get(pair):
                self._memory.move_to_end(pair)
            else:
                asked = self._memory[pair] = _Asked(pair)
                todo.append(asked)
                if len(self._memory) > REMEMBERED:
                    self._memory.popitem(last=False)
            window.append((answer, asked))
        return len(window) > before

    def _hand_out(self, todo: deque[_Asked]) -> None:
        for place, worker in enumerate(self._crew):
            if todo and not worker.chunk:
                if not worker.take():  # it died while it had nothing to do
                    worker.end()
                    worker = self._crew[place] = self._hire()
                worker.give([todo.popleft() for _ in range(min(CHUNK, -(-len(todo) // self.workers)))])

    def _collect(self, todo: deque[_Asked], seconds: float | None) -> None:
        """Wait until a busy worker has something to say, and replace those that died."""
        busy = {worker.pipe: worker for worker in self._crew if worker.chunk}
        for pipe in wait(busy, seconds) if busy else ():
            if not busy[pipe].take():
                self._crew[self._crew.index(busy[pipe])] = self._after(busy[pipe], todo)

    def _after(self, dead: _Worker, todo: deque[_Asked]) -> _Worker:
        """The worker that follows a dead one: the pair that one was at is unparsable, the rest is to be done."""
        code = dead.end()
        if dead.chunk:
            asked = dead.chunk.popleft()
            if code in (-signal.SIGPROF, -signal.SIGALRM):
                asked.verdict = Decision("unparsable", f"took longer than {self.seconds:g} s")
            else:
                asked.verdict = Decision("unparsable", f"its worker died (exit code {code})")
                self._memory.pop(asked.pair, None)  # perhaps it was killed from outside: asked again, it is tried again
        todo.extendleft(reversed(dead.chunk))
        return self._hire()

    def _hire(self) -> _Worker:
        try:
            return _Worker(self._server)
        except OSError:  # the server has died, and its workers with it
            self._server.end()
            self._server = _Server(self.seconds)
            return _Worker(self._server)

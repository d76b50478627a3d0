"""Compare final answers in worker processes that can be killed at any time; final_answers.py decides the verdicts."""

import contextlib
import ctypes
import os
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

from proofmill.answers.final_answers import (
    CANARIES,
    SECONDS,
    AnswerPair,
    Answers,
    Decision,
    EqualityCheck,
    by_integers,
    check_canaries,
    check_of,
    gold_form,
    judge,
    read_pair,
)
from proofmill.answers.workers import Starter, judge_pairs, parse_in_two_stages
from proofmill.schema.errors import VerifierError

# -------------------------------------------------------------------------------------------------------------- workers

MEMORY = 2 << 30  # bytes of address space of a worker; SymPy with its caches takes 100 MB
_PATIENCE = 12  # wall-clock limit as a multiple of a pair's seconds, for a pair that waits instead of computing
_DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_REPLY = struct.Struct("i")
_FORKS = sys.platform == "linux"  # elsewhere each worker starts alone, and its limit is in wall-clock time


def serve(line: socket.socket, parent: int, seconds: float, canaries: Sequence[tuple[str, str]]) -> None:
    """Run the server process: import math-verify once, judge the known answers, and fork workers that share its memory.

    Requests arrive through `line`. A message with a pipe starts a worker at that pipe; the reply is the worker's
    process id. A message with a process id kills that worker; the reply is its exit code. The server has no threads,
    and ends within a second after its parent.
    """
    parse_in_two_stages()
    line.sendall(",".join(judge(gold, text).status for gold, text in canaries).encode() + b"\n")
    while os.getppid() == parent:  # an end of file is not enough: another process may hold a copy of the other end
        if not select.select([line], [], [], 1.0)[0]:
            continue
        message, pipes, _, _ = socket.recv_fds(line, _REPLY.size, 1)
        if not message:
            return
        if not pipes:
            (worker,) = _REPLY.unpack(message)
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
    """Run a worker of the server process.

    At a time limit no handler is called: the signal's default action ends the process, whatever it is doing.
    """
    import resource

    ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGPROF, signal.SIGALRM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    judge_pairs(pipe, seconds, _set_clock)


def _set_clock(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE * seconds)


class _Server:
    """The parent's view of a process that runs `serve`."""

    def __init__(self, seconds: float):
        self.line, theirs = socket.socketpair()
        pairs = [(gold, text) for gold, text, _ in CANARIES]
        arguments = f"socket.socket(fileno={theirs.fileno()}), {os.getpid()}, {seconds!r}, {pairs!r}"
        code = f"import socket; from proofmill.answers import verifier; verifier.serve({arguments})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C goes to the job alone, which then ends the server
        )
        theirs.close()
        with self.line.makefile() as lines:
            statuses = lines.readline().strip().split(",")
        try:
            if len(statuses) != len(CANARIES):
                raise VerifierError(
                    f"verifier: the process that starts workers died, exit code {self.process.wait()}; expected it to judge "
                    f"{len(CANARIES)} known answers. It wrote its error above; try python -c 'import math_verify'."
                )
            check_canaries(statuses)
        except VerifierError:
            self.end()
            raise

    def start(self) -> tuple[Connection, int]:
        """Start a worker and return its pipe and process id. Raises OSError if the server is dead."""
        pipe, theirs = Pipe()
        with theirs:
            socket.send_fds(self.line, [_REPLY.pack(0)], [theirs.fileno()])
        return pipe, self._reply()

    def end_worker(self, worker: int) -> int:
        """Kill a worker unless it is dead, and return its exit code. Raises OSError if the server is dead."""
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


class _Entry:
    """A pair and its verdict, None before there is one."""

    def __init__(self, pair: AnswerPair | None, verdict: Decision | None = None):
        self.pair, self.verdict = pair, verdict


class _Worker:
    """The parent's view of a worker: a pipe, and the pairs that were sent and have no verdict yet."""

    def __init__(self, server: _Server | Starter):
        self.server = server
        self.pipe, self.id = server.start()
        self.chunk: deque[_Entry] = deque()
        self.has_gold = False  # whether it has read the gold answer of the first pair of the chunk

    def give(self, chunk: Iterable[_Entry]) -> None:
        self.chunk.extend(chunk)
        with contextlib.suppress(ConnectionError):  # the worker has died: `take` reports it
            self.pipe.send([entry.pair for entry in self.chunk])

    def take(self) -> bool:
        """Read the verdicts that have arrived. Return False if the worker is dead."""
        try:
            while self.pipe.poll():
                verdict = self.pipe.recv()
                self.has_gold = verdict is None
                if verdict is not None:
                    self.chunk.popleft().verdict = verdict
        except (EOFError, OSError):
            return False
        return True

    def end(self) -> int | None:
        """Kill the worker unless it is dead, and return its exit code; None if its server is dead."""
        self.pipe.close()
        try:
            return self.server.end_worker(self.id)
        except OSError:
            return None


# ------------------------------------------------------------------------------------------------------------- the pool

CHUNK = 32  # pairs sent to a worker at once
WINDOW = 8192  # pairs that are read and not yet returned; each may wait for an earlier one
REMEMBERED = 65_536  # pairs with a cached verdict


class Verifier:
    """A pool of worker processes. A context manager: inside it, `check` judges pairs.

    `workers`: by default one for each processor that this process may use. `seconds`: processor time to parse the
    gold answer of a pair, and again to compare it. If a worker dies, the pair that it was judging becomes `no-gold` or
    unparsable, and a new worker does the rest. Raises VerifierError if a known answer gets another verdict.
    """

    def __init__(self, workers: int | None = None, seconds: float = SECONDS):
        processors = os.sched_getaffinity(0) if _FORKS else range(os.cpu_count() or 1)
        self.workers, self.seconds = len(processors) if workers is None else workers, seconds
        if self.workers < 1 or not seconds > 0:
            raise VerifierError(
                f"verifier: {workers} workers and {seconds} s; expected at least 1 worker and more than 0 s."
            )
        self._server: _Server | Starter | None = None
        self._crew: list[_Worker] = []
        self._memory: OrderedDict[AnswerPair, _Entry] = OrderedDict()
        self._busy = False

    def __enter__(self) -> "Verifier":
        pairs = [read_pair(gold, text)[1] for gold, text, _ in CANARIES]
        decisions = [pair if isinstance(pair, Decision) else by_integers(pair) for pair in pairs]
        check_canaries([decision and decision.status for decision in decisions])
        self._server = None
        self._crew = [self._hire() for _ in range(self.workers)]
        return self

    def __exit__(self, *_: Any) -> None:
        for worker in self._crew:
            worker.end()
        self._crew = []
        if self._server is not None:
            self._server.end()

    def check(self, pairs: Iterable[tuple[str, str]]) -> Iterator[EqualityCheck]:
        """Yield a check for each (gold, text), in order, as soon as it is known; reads a few thousand pairs ahead."""
        self._must_be_open()
        return self._checks(read_pair(gold, text) for gold, text in pairs)

    def fault(self, gold: str) -> str:
        """Return why a gold answer cannot be parsed within the limits of a pair; "" if it can."""
        form = gold_form(gold)
        correct = Decision("correct")
        pair = form if isinstance(form, Decision) else AnswerPair(form, correct, correct)
        (check,) = self._checks(iter([((None, None), pair)]))
        return check.detail

    def _must_be_open(self) -> None:
        if not self._crew:
            raise VerifierError("verifier: not open; expected a `with` statement. Write `with Verifier() as ...`.")

    def _checks(self, pairs: Iterator[tuple[Answers, AnswerPair | Decision]]) -> Iterator[EqualityCheck]:
        if self._busy:
            raise VerifierError("verifier: a check is not finished; expected one at a time. Open a second Verifier.")
        self._busy = True
        window: deque[tuple[Answers, _Entry]] = deque()  # read, and not yet returned
        todo: deque[_Entry] = deque()  # entries of the window that no worker has yet
        more = True
        try:
            while more or window:
                self._must_be_open()
                room = more and len(window) < WINDOW and len(todo) < CHUNK * self.workers
                if room:
                    more = self._read_ahead(islice(pairs, CHUNK), window, todo)
                self._hand_out(todo)
                while window and (verdict := window[0][1].verdict):
                    answers, _ = window.popleft()
                    yield check_of(answers, verdict)
                self._collect(todo, 0 if room else None)
        finally:
            self._busy = False
            for _, entry in window:  # the caller has stopped reading
                if entry.pair is not None and not entry.verdict:
                    self._memory.pop(entry.pair, None)
            for index, worker in enumerate(self._crew):
                if worker.chunk:
                    worker.end()
                    self._crew[index] = self._hire()

    def _read_ahead(self, pairs: Iterator[tuple[Answers, Any]], window: deque, todo: deque[_Entry]) -> bool:
        """Read a few pairs and decide those that need no worker. Return False at the end of the input."""
        before = len(window)
        for answers, pair in pairs:
            if isinstance(pair, Decision):
                entry = _Entry(None, pair)
            elif verdict := by_integers(pair):
                entry = _Entry(None, verdict)
            elif cached := self._memory.get(pair):
                entry = cached
                self._memory.move_to_end(pair)
            else:
                entry = self._memory[pair] = _Entry(pair)
                todo.append(entry)
                if len(self._memory) > REMEMBERED:
                    self._memory.popitem(last=False)
            window.append((answers, entry))
        return len(window) > before

    def _hand_out(self, todo: deque[_Entry]) -> None:
        for index, worker in enumerate(self._crew):
            if todo and not worker.chunk:
                if not worker.take():  # the worker died while idle
                    worker.end()
                    worker = self._crew[index] = self._hire()
                worker.give([todo.popleft() for _ in range(min(CHUNK, -(-len(todo) // self.workers)))])

    def _collect(self, todo: deque[_Entry], seconds: float | None) -> None:
        """Wait until a busy worker replies or dies, read the verdicts, and replace dead workers."""
        busy = {worker.pipe: worker for worker in self._crew if worker.chunk}
        ready = wait(busy, seconds) if busy else []
        for worker in [worker for pipe, worker in busy.items() if pipe in ready]:
            if not worker.take():
                self._crew[self._crew.index(worker)] = self._replace(worker, todo)

    def _replace(self, dead: _Worker, todo: deque[_Entry]) -> _Worker:
        """Start a successor of a dead worker. Its pair is `unparsable` or `no-gold`; all others return to `todo`."""
        code = dead.end()
        if dead.chunk:
            entry = dead.chunk.popleft()
            timed_out = code in ((-signal.SIGPROF, -signal.SIGALRM) if _FORKS else (1,))
            cause = f"took longer than {self.seconds:g} s" if timed_out else f"its worker died (exit code {code})"
            entry.verdict = (
                Decision("unparsable", cause) if dead.has_gold else Decision("no-gold", f"gold answer: {cause}")
            )
            if not timed_out and entry.pair is not None:
                self._memory.pop(entry.pair, None)  # perhaps killed from outside, so the next check retries it
        todo.extendleft(reversed(dead.chunk))
        return self._hire()

    def _hire(self) -> _Worker:
        self._server = self._server or (_Server if _FORKS else Starter)(self.seconds)
        try:
            return _Worker(self._server)
        except OSError:  # the server has died, and its workers with it
            self._server.end()
            self._server = (_Server if _FORKS else Starter)(self.seconds)
            return _Worker(self._server)

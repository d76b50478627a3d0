r"""One check says whether the final answer of a text is the gold answer, by mathematics and without a language model.

    with Verifier() as verifier:
        for check in verifier.check(pairs):  # of (gold, text), as many as you like
            ...

From: math-verify 0.9 in strict mode, as the training environment of QED-Nano calls it. Its verdicts are taken over;
what is ours is that a verdict always comes, within seconds, and that the machine outlives it.

How it differs:
1. A pair is judged in a process that dies when the pair takes too much time or memory. A time-out by a signal handler
   works in a main thread only; elsewhere it failed silently and made every reward 0 (verl, pull request 5635).
2. The clock is the kernel's and counts the processor time of one pair from its first instruction: not its wait in a
   queue (which made false zeros: PrimeIntellect's verifiers, pull request 831), nor other work on the machine.
3. A pair that cannot be judged is `unparsable` and says why. math-verify by itself calls it wrong: a time-out, an
   exception, and a gold answer that it could not read, so that every answer to that problem is wrong.
4. Only LaTeX is parsed. math-verify goes on to look for any number, so that `k \equiv 1 \pmod 4` and
   `k \equiv 3 \pmod 4` both are 4.
5. Answers of one normal form are equal before anything is parsed (`answers.normal`).

Known to be wrong in math-verify and left as it is: words at the end are a unit and go, so that `n \text{ odd}` equals
`n \text{ even}`; so does the base of `43_5`; `60,120` is one number; `1,3` equals `(1,3)`; letters are factors in any
order, so that a word equals another one of the same letters.
"""

import contextlib
import ctypes
import logging
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Literal, NamedTuple

from proofmill.answers import extract, normal, of_gold

Status = Literal["correct", "wrong", "no-answer", "unparsable"]
LONGEST = 1000  # characters of an answer (QED-Nano: max_prediction_length)
SECONDS = 2.0  # of processor time for one pair (QED-Nano: 1 s by the wall); MATH, GSM8K and AIME need less


class VerifierError(RuntimeError):
    """The verifier cannot do here what it must; the message says what was found and what to do."""


@dataclass(frozen=True)
class Check:
    status: Status
    answer: str | None  # what the text gives as its final answer
    detail: str = ""  # why it is unparsable


class Verdict(NamedTuple):
    status: Status
    detail: str = ""


class Pair(NamedTuple):
    """A gold answer and an answer in normal form: what a verdict depends on, and what a worker is sent."""

    gold: str
    answer: str


# -------------------------------------------------------------------------------------------------------------- one pair


def judge(gold: str, text: str) -> Check:
    """One pair, in this process and however long it takes. `gold` is bare, in dollars, boxed, or a whole solution."""
    answer, asked = _read(gold, text)
    verdict = asked if isinstance(asked, Verdict) else _by_mathematics(asked)
    return Check(verdict.status, answer, verdict.detail)


def _read(gold: str, text: str) -> tuple[str | None, Pair | Verdict]:
    """The final answer of a text; and the verdict, if it follows from the texts alone, else what is to be compared."""
    answer = extract(text)
    if answer is None:
        return None, Verdict("no-answer")
    if len(answer) > LONGEST:
        return answer, Verdict("unparsable", f"over {LONGEST:,} characters")
    pair = Pair(_gold_form(gold), normal(answer))
    for form, whose in zip(pair, ("gold answer", "answer"), strict=True):
        if not form:
            return answer, Verdict("unparsable", f"{whose} is empty")
    return answer, Verdict("correct") if pair.gold == pair.answer else pair


@lru_cache(maxsize=4096)
def _gold_form(gold: str) -> str:
    return normal(of_gold(gold))


def _by_mathematics(pair: Pair) -> Verdict:
    """math-verify's verdict, strict; unparsable where it has an exception or could not read one of the two."""
    from math_verify import verify

    try:
        gold, answer = (_parsed(form) for form in pair)
        # Of each, the text comes last and is compared first: that cannot fail.
        if verify(gold[::-1], answer[::-1], strict=True, timeout_seconds=None, raise_on_error=True):
            return Verdict("correct")
    except _failures() as error:
        return Verdict("unparsable", type(error).__name__)
    for parsed, whose in ((gold, "gold answer"), (answer, "answer")):
        if all(isinstance(one, str) for one in parsed):
            return Verdict("unparsable", f"{whose} cannot be parsed")
    return Verdict("wrong")


@lru_cache(maxsize=4096)
def _parsed(form: str) -> list[Any]:
    """What math-verify reads: SymPy's expression, unless it finds none, and the text that it took it from."""
    from math_verify import LatexExtractionConfig, parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no time-out
    return parse(f"\\boxed{{{form}}}", [LatexExtractionConfig()], parsing_timeout=None)


@lru_cache(maxsize=1)
def _failures() -> tuple[type[BaseException], ...]:
    """What SymPy raises at an expression that it cannot deal with; anything else ends the worker."""
    from mpmath.libmp.libhyper import NoConvergence
    from sympy import PoleError
    from sympy.polys.polyerrors import BasePolynomialError

    return (
        ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError,
        ValueError, BasePolynomialError, NoConvergence, PoleError,
    )  # fmt: skip


_INTEGER = re.compile(r"-?[0-9]{1,300}")


def _by_integers(pair: Pair) -> Verdict | None:
    r"""The verdict of `_by_mathematics` on two plain integers, without a parser; None for all else.

    In `\boxed{-007}` math-verify's normalisation changes nothing (no unit, dollar, fraction or decimal is there), its
    grammar finds one NUMBER, leading zeros dropped, under at most one unary minus, and SymPy makes an Integer of that
    value. Two Integers are compared by a == b, then by a - b = 0; and texts of different values differ. 300 digits:
    Python refuses to read more than 4,300.
    """
    if _INTEGER.fullmatch(pair.gold) and _INTEGER.fullmatch(pair.answer):
        return Verdict("correct" if int(pair.gold) == int(pair.answer) else "wrong")
    return None


_POINT = (1.2345, 0.377)  # of the first symbol, and from each to the next


def _by_values(pair: Pair) -> Verdict | None:
    """Wrong, where two answers clearly differ at a point; None where that says nothing.

    It is what `_by_mathematics` finds, many times later, or would find if it ever ended (5 against 9^{9^9}). That calls two expressions equal (neither a symbol alone, which
    may stand for a word, nor a percentage, which may stand for a number) if they are the same, if the numbers round to
    the same six decimals, if their difference is 0 in 15 digits, or if it simplifies to 0; and none of these is so where
    their values differ. An expression equals no set, tuple or interval with two members that differ.
    """
    try:
        one, other = sorted((_members(_expression(form)) for form in pair), key=len)
        if len(one) != 1:
            return None
        some = one + other if len(other) == 1 else other
        symbols = sorted(set().union(*(member.free_symbols for member in some)), key=str)
        point = {symbol: _POINT[0] + n * _POINT[1] for n, symbol in enumerate(symbols)}
        values = [member.evalf(15, subs=point, strict=True) for member in some]
        enough = max(1e-3, 1e-9 * max(map(abs, values)))
        apart = (abs(value - values[0]) for value in values)
        return Verdict("wrong") if any(gap.is_finite and gap > enough for gap in apart) else None
    except _failures():
        return None


def _expression(form: str) -> Any:
    """The expression of an answer, of a plain integer as `_by_integers` says; None where there is none."""
    import sympy

    if _INTEGER.fullmatch(form):
        return sympy.Integer(form)
    return next((one for one in _parsed(form) if not isinstance(one, str)), None)


def _members(one: Any) -> list[Any]:
    """Members of a set or tuple, ends of an interval, an expression itself: sums, products and powers; [] for all else.

    Of these SymPy knows how many digits of a value are right.
    """
    import sympy

    if isinstance(one, sympy.Union):
        parts = [_members(part) for part in one.args]
        return [member for part in parts for member in part] if all(parts) else []
    if isinstance(one, sympy.Interval):
        some = [one.start, one.end]
    elif isinstance(one, (sympy.FiniteSet, sympy.Tuple)):
        some = list(one.args)
    else:
        some = [one]
    plain = (sympy.Add, sympy.Mul, sympy.Pow, sympy.Number, sympy.NumberSymbol, sympy.Symbol)
    word = len(some) == 1 and isinstance(some[0], sympy.Symbol)
    parts = (part for member in some for part in sympy.preorder_traversal(member))
    return some if not word and all(isinstance(part, plain) for part in parts) else []


# --------------------------------------------------------------------------------------------------------- known answers

CANARIES: tuple[tuple[str, str, Status], ...] = (
    ("18", "#### 18", "correct"),
    ("18", r"\boxed{19}", "wrong"),
    ("$18$", "The answer is 18.", "no-answer"),
    (r"\boxed{\frac{1}{2}}", r"So $\boxed{0.5}$.", "correct"),
    (r"\{1,2\}", r"\boxed{2}, \boxed{1}", "correct"),
    ("(2,1)", r"\boxed{\{1,2\}}", "wrong"),
    ("x+1", r"\boxed{y+1}", "wrong"),
    ("(x+1)^2", r"\boxed{x^2+2x+1}", "correct"),
    (r"\frac{2\sqrt{3}}{\pi}", r"\boxed{\frac{2 \sqrt{3}}{3}}", "wrong"),
    (r"(-\infty,-1)\cup[2,3)", r"\boxed{[2,3)\cup(-\infty,-1)}", "correct"),
    (r"\begin{pmatrix} 1 \\ -2 \end{pmatrix}", r"\boxed{\begin{pmatrix} 1 & -2 \end{pmatrix}}", "wrong"),
    ("7", r"\boxed{\frac{7}}", "unparsable"),
)


def _expect(statuses: Sequence[str | None]) -> None:
    """VerifierError unless these are the known answers (None: not asked)."""
    for (gold, text, expected), found in zip(CANARIES, statuses, strict=True):
        if found not in (None, expected):
            raise VerifierError(
                f"verifier: `{text}` against the gold answer `{gold}` is found {found}; expected {expected}. "
                "Install math-verify, latex2sympy2_extended and sympy as envs/cpu.txt has them."
            )


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
                verdict = _by_values(Pair(gold, answer)) or _by_mathematics(Pair(gold, answer))
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
        code = f"import socket; from proofmill import verifier; verifier.serve({arguments})"
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
            _expect(statuses)
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

    def __init__(self, pair: Pair | None, verdict: Verdict | None = None):
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
                self.chunk[0].verdict = Verdict(*self.pipe.recv())
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
        asked = [_read(gold, text)[1] for gold, text, _ in CANARIES]
        quick = [one if isinstance(one, Verdict) else _by_integers(one) for one in asked]
        _expect([one and one.status for one in quick])
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
            answer, pair = _read(gold, text)
            if verdict := pair if isinstance(pair, Verdict) else _by_integers(pair):
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
                asked.verdict = Verdict("unparsable", f"took longer than {self.seconds:g} s")
            else:
                asked.verdict = Verdict("unparsable", f"its worker died (exit code {code})")
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

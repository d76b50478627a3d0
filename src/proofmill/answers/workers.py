"""Judge pairs of answers in a process, and start such processes where none can be forked (macOS, Windows)."""

import contextlib
import faulthandler
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any

from proofmill.answers.final_answers import CANARIES, check_canaries, compare, judge, read_gold
from proofmill.schema.errors import VerifierError


def judge_pairs(pipe: Connection, seconds: float, set_limit: Callable[[float], None]) -> None:
    """Judge chunks of pairs, each pair with a time limit."""
    with contextlib.suppress(EOFError, ConnectionError):  # the verifier has ended
        while True:
            for pair in pipe.recv():
                set_limit(seconds)
                gold = read_gold(pair.gold)
                pipe.send(None)  # if the process dies after this, the answer is the cause
                set_limit(seconds)
                verdict = compare(pair, *gold)
                set_limit(0)
                pipe.send(verdict)


def parse_in_two_stages() -> None:
    """Make the parser predict as ANTLR advises: by SLL, and by LL, its default, if SLL finds no tree.

    If SLL finds a tree, LL would find the same one (antlr4, PredictionMode), and SLL is several times faster.
    """
    from antlr4.atn.PredictionMode import PredictionMode
    from antlr4.error.Errors import ParseCancellationException
    from antlr4.error.ErrorStrategy import BailErrorStrategy
    from latex2sympy2_extended import latex2sympy2

    class TwoStages(latex2sympy2.PSParser):
        _errHandler: Any

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


def work_alone(pipe: Connection, seconds: float) -> None:
    """Run a worker that was started alone: judge the known answers, then pairs, without a limit of memory."""
    parse_in_two_stages()
    pipe.send([judge(gold, text).status for gold, text, _ in CANARIES])
    try:
        with open(os.devnull, "w") as sys.stderr:  # for messages of alarms
            judge_pairs(pipe, 3 * seconds, _set_alarm)
    finally:
        os._exit(2)  # an alarm exits with 1


def _set_alarm(seconds: float) -> None:
    """End this process in that time, whatever Python is doing; 0 stops the alarm."""
    faulthandler.cancel_dump_traceback_later()
    if seconds:
        faulthandler.dump_traceback_later(seconds, exit=True)


class Starter:
    """Start each worker alone, on systems without `fork` or without signals at a limit (macOS, Windows)."""

    def __init__(self, seconds: float):
        self.seconds, self.workers = seconds, list[Any]()

    def start(self) -> tuple[Connection, int]:
        pipe, theirs = Pipe()
        worker = multiprocessing.get_context("spawn").Process(target=work_alone, args=(theirs, self.seconds))
        worker.start()
        theirs.close()
        self.workers.append(worker)
        try:
            check_canaries(pipe.recv())
        except EOFError:
            raise VerifierError(
                "verifier: a worker died and wrote its error above; expected `import math_verify` to work, and a script "
                'that opens a Verifier below `if __name__ == "__main__":`. Fix that.'
            ) from None
        return pipe, len(self.workers) - 1

    def end_worker(self, worker: int) -> int:
        self.workers[worker].kill()
        self.workers[worker].join()
        return self.workers[worker].exitcode

    def end(self) -> None:
        for worker in range(len(self.workers)):
            self.end_worker(worker)

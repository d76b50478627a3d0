"""Watch a training: log progress from time to time, and stop a training that has stalled.

PROOFMILL_TRAINING_STALL_MINUTES    minutes without progress after which the training is stopped; unset: never
"""

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from transformers import TrainerCallback

from proofmill.runtime.progress import ProgressRate, clock, estimate_seconds_left, log
from proofmill.runtime.signals import grace_seconds
from proofmill.schema.errors import ServiceError, SettingError


class Remarked(Protocol):
    """A job with a remark in the last line of its log."""

    remark: str

    @property
    def name(self) -> str: ...


class Steps(TrainerCallback):
    """A callback that logs steps, the latest loss or reward, steps per minute, tokens per second and the time left."""

    def __init__(self, job: Remarked, last_step: int | None = None):
        self.job, self.last_step = job, last_step
        self.latest: list[str] = []
        self.tokens: list[tuple[float, float]] = []  # (time, total so far) at the first and the latest log

    def on_train_begin(self, args, state, control, **_):
        self.pace = ProgressRate()
        self.first = state.global_step

    def on_log(self, args, state, control, logs=None, **_):
        values = {key: float(logs[key]) for key in ("loss", "reward") if logs and logs.get(key) is not None}
        self.latest = [f"{key} {value:.4g}" for key, value in values.items()] or self.latest
        if logs and "num_tokens" in logs:
            self.tokens = [*self.tokens[:1], (time.monotonic(), logs["num_tokens"])]

    def on_step_end(self, args, state, control, **_):
        steps = self.last_step or state.max_steps
        if state.global_step < steps:
            self.pace.tell(self.job.name, lambda: self.line(state.global_step, steps))

    def on_train_end(self, args, state, control, **_):
        """Put the last step's loss into the job's last line."""
        if state.global_step > self.first:
            self.job.remark = self._format_speed(self._rate(state.global_step))

    def line(self, step: int, steps: int) -> str:
        """Return the line of progress without the name."""
        rate = self._rate(step)
        left = estimate_seconds_left(self.pace.seconds, step - self.first, step, steps)
        ends = "" if left is None else f", {clock(left)} left"
        return f"step {step:,} of {steps:,}, {self._format_speed(rate)}{ends}"

    def _rate(self, step: int) -> float:
        """Return the steps per second."""
        return (step - self.first) / self.pace.seconds

    def _format_speed(self, rate: float) -> str:
        """Return the latest loss or reward, and the speed."""
        pace = f"{60 * rate:,.0f}" if rate > 1 / 6 else f"{60 * rate:.2g}"
        parts = [*self.latest, f"{pace} steps/min"]
        if len(self.tokens) == 2:
            (start, before), (end, after) = self.tokens
            parts.append(f"{(after - before) / max(end - start, 1e-9):,.0f} tokens/s")
        return ", ".join(parts)


class Watch(TrainerCallback):
    """A callback that stops the process after `minutes` without a (part of a) step, log, evaluation or checkpoint."""

    def __init__(self, name: str, minutes: float):
        self.name, self.minutes, self.stalled = name, minutes, False
        self.latest, self.over = time.monotonic(), threading.Event()

    def alive(self, args, state, control, **_):
        self.latest = time.monotonic()

    on_train_begin = on_step_end = on_substep_end = on_prediction_step = on_log = on_evaluate = on_save = alive

    @property
    def sentence(self) -> str:
        return (
            f"{self.name}: no step has ended for {self.minutes:g} minutes; expected one within that time (PROOFMILL_TRAINING_STALL_MINUTES). The log has "
            "the stack of every thread. Run the same command to resume from the last checkpoint."
        )

    def look(self) -> None:
        """Check for a stall until the training is over; runs in its own thread."""
        while not self.over.wait(min(6 * self.minutes, 5.0)):
            if time.monotonic() - self.latest > 60 * self.minutes:
                self.stalled = True
                log(self.name, f"no progress for {self.minutes:g} minutes; the stacks of all threads:")
                faulthandler.dump_traceback(all_threads=True)
                self._end()
                return

    def _end(self) -> None:
        """Stop the process by the main thread's handler of the grace time, or by `os._exit` if that thread hangs."""
        if callable(signal.getsignal(signal.SIGALRM)):
            os.kill(os.getpid(), signal.SIGALRM)
        if not self.over.wait(grace_seconds()):
            print(f"ServiceError: {self.sentence}", file=sys.stderr, flush=True)
            os._exit(1)


@contextmanager
def watching(name: str) -> Iterator[list[Any]]:
    """Yield the callbacks that watch a training. Raises ServiceError for a stall, SettingError for invalid minutes."""
    minutes = os.environ.get("PROOFMILL_TRAINING_STALL_MINUTES")
    if minutes is None:
        yield []
        return
    watch = Watch(name, _minutes(minutes))
    thread = threading.Thread(target=watch.look, name="watch", daemon=True)
    thread.start()
    try:
        yield [watch]
    except SystemExit as end:
        if watch.stalled:
            raise ServiceError(watch.sentence) from end
        raise
    finally:
        watch.over.set()
        thread.join()


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if minutes <= 0:
        raise SettingError(
            f"PROOFMILL_TRAINING_STALL_MINUTES is `{text}`; expected minutes, such as 30. Fix or unset it."
        )
    return minutes

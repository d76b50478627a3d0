"""Checkpoints from which a training resumes to the same numbers and weights as an unbroken one.

transformers saves the weights, the optimizer, the schedule, the random states, the position in the data and the rows of
the table so far. It does not save running sums: a row is a mean over the steps since the row before, so after a
checkpoint between two rows the next row would miss steps. This module saves the sums, in the file that makes a
checkpoint complete:

    running.json    the sums since the last row; written last and in one rename, when every process has written its part

They are made by the clock, because a step may take a second or an hour.

The last one is the state of a finished training. It is kept beside the kept copy of its table where another entry goes
on from it (`continue`) or where the entry asks for that (`keep-state`): weights, optimizer and random states are three
times the weights in float32. The longer training resumes from it as from a checkpoint of its own. Without a state it
begins at its first step and ends with the same table.
"""

import json
import math
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import IntervalStrategy

from proofmill.artifacts.jobs import Job
from proofmill.artifacts.kept import link
from proofmill.runtime import processes
from proofmill.runtime.progress import say
from proofmill.runtime.signals import StopRequest
from proofmill.schema.errors import RecipeError, SettingError

RUNNING = "running.json"


@dataclass(frozen=True)
class Intervals:
    """How often a checkpoint is made: after so many steps, or without them after so many minutes."""

    steps: int | None = None
    minutes: float = 15.0

    @classmethod
    def from_environment(cls) -> "Intervals":
        """PROOFMILL_SAVE_STEPS and PROOFMILL_SAVE_MINUTES; raises SettingError for what is no such number."""
        steps, minutes = (os.environ.get(f"PROOFMILL_SAVE_{unit}") for unit in ("STEPS", "MINUTES"))
        if steps is not None and not (steps.isdecimal() and int(steps)):
            raise SettingError(
                f"PROOFMILL_SAVE_STEPS is `{steps}`; expected a whole number of steps. Set it, or unset it."
            )
        try:
            found = cls(None if steps is None else int(steps), cls.minutes if minutes is None else float(minutes))
        except ValueError:
            found = cls(minutes=math.nan)
        if not found.minutes > 0:
            raise SettingError(
                f"PROOFMILL_SAVE_MINUTES is `{minutes}`; expected minutes, such as 15. Set it, or unset it."
            )
        return found

    def __str__(self) -> str:
        return f"{self.steps:,} steps" if self.steps else f"{self.minutes:g} minutes"


def last_checkpoint(job: Job) -> Path | None:
    """The newest complete checkpoint, or None."""
    complete = [path for path in job.checkpoints.glob("checkpoint-*") if (path / RUNNING).exists()]
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def step_of_last(job: Job) -> int:
    """The step of the newest complete checkpoint; 0 without one."""
    checkpoint = last_checkpoint(job)
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0


def is_finished(checkpoint: Path, last: int | None = None) -> bool:
    """Whether the checkpoint has reached the step `last`, or without it the end of the schedule."""
    state = json.loads((checkpoint / TRAINER_STATE_NAME).read_text())
    return state["global_step"] >= (last or state["max_steps"])


def keep_state(job: Job) -> None:
    """Move the last checkpoint of a finished training beside the kept copy of its table, if its state is to be kept."""
    kept, last = job.table.kept(job.fingerprint), last_checkpoint(job)
    if job.keeps_state and last and kept.exists() and not processes.rank():
        shutil.rmtree(kept.state, ignore_errors=True)
        kept.state.mkdir()
        last.rename(kept.state / last.name)


def go_on_from(job: Job, before: str, evaluate_every: int) -> None:
    """Take over the state of the training `before`, if it is kept and this training has no checkpoint of its own."""
    if processes.rank() or last_checkpoint(job):
        return
    table = job.parent(before)
    found = sorted(table.kept(table.stamp["fingerprint"]).state.glob("checkpoint-*"))
    if not found:
        say(job.name, f"{before} kept no state (`keep-state`): begins at the first step, and ends with the same table")
        return
    step = int(found[0].name.rpartition("-")[2])
    new = job.checkpoints / f"new-{step}"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(found[0], new, copy_function=link)
    state = json.loads((new / TRAINER_STATE_NAME).read_text())
    # The last step of a training is evaluated whenever it comes, and is none of the longer one's.
    due = step % evaluate_every == 0
    state["log_history"] = [row for row in state["log_history"] if due or row["step"] < step or "eval_loss" not in row]
    state["max_steps"] = step + 1  # transformers counts anew; it is not over
    (new / TRAINER_STATE_NAME).unlink()  # a link to the kept one
    (new / TRAINER_STATE_NAME).write_text(json.dumps(state))
    os.replace(new, job.checkpoints / found[0].name)
    say(job.name, f"goes on from the last step of {before}, {step:,}")


def remove_broken(job: Job) -> None:
    """Delete incomplete checkpoints: transformers keeps the two newest and would count them."""
    for path in job.checkpoints.glob("checkpoint-*"):
        if not (path / RUNNING).exists():
            shutil.rmtree(path)


def block_of(trainer: Any) -> int:
    """Number of steps that share rollouts. Checkpoints hold no rollouts, so they must end such a block."""
    config = trainer.args
    batches = getattr(config, "steps_per_generation", None) or config.gradient_accumulation_steps
    return getattr(config, "num_iterations", 1) * batches // config.gradient_accumulation_steps


class Checkpoints(TrainerCallback):
    """Requests checkpoints when they are due and when the training is to stop, completes them, restores their sums.

    `last` is the step after which the training ends, if that is before the end of its schedule.
    """

    def __init__(self, trainer: Any, job: Job, found: Path | None, stop: StopRequest, last: int | None):
        self.trainer, self.job, self.found, self.stop, self.last = trainer, job, found, stop, last
        self.block, self.stopped = block_of(trainer), False
        self.intervals, self.saved = Intervals.from_environment(), time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is due after this step, which ends a block; by the clock of rank 0 in every process."""
        if self.intervals.steps:
            return step % (max(self.intervals.steps // self.block, 1) * self.block) == 0
        return processes.broadcast(time.monotonic() - self.saved >= 60 * self.intervals.minutes)

    def on_train_begin(self, args, state, control, **_):
        if self.last and self.last > state.max_steps:
            raise RecipeError(
                f"{self.job.name}: `last-step` is {self.last} and the schedule ends with step {state.max_steps}; expected that or "
                "less. Lower it, or lengthen the schedule."
            )
        if self.found is None:
            return
        kept = json.loads((self.found / RUNNING).read_text())
        trainer = self.trainer
        trainer._tr_loss += kept["loss"]
        trainer._globalstep_last_logged = kept["logged"]
        trainer._total_train_tokens = kept["tokens"]
        trainer._metrics["train"].update(kept["metrics"])
        trainer.model.train(kept["training"])  # decides which sums enter the final row

    def on_step_end(self, args, state, control, **_):
        last = self.last or state.max_steps
        if processes.any_of(control.should_training_stop):  # the second grader has stopped the main process
            control.should_save = control.should_training_stop = True
        if state.global_step == last:  # as transformers does at the end of the schedule
            control.should_evaluate |= args.eval_strategy == IntervalStrategy.STEPS
        elif state.global_step % self.block == 0:
            self.stopped = processes.any_of(self.stop.why is not None)
            control.should_save |= self.is_due(state.global_step)
        if self.stopped or state.global_step == last:
            control.should_save = control.should_training_stop = True

    def on_save(self, args, state, control, **_):
        trainer = self.trainer
        running = {
            "loss": processes.mean(trainer._tr_loss.item()),
            "logged": trainer._globalstep_last_logged,
            "tokens": getattr(trainer, "_total_train_tokens", 0),  # SFTTrainer's count, which TRL 1.16 does not save
            "metrics": trainer._metrics["train"],
            "training": trainer.model.training,
        }
        if processes.rank():
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        # TRL's copy of the initial adapter is made again from its seed; transformers would load it in place of ours.
        shutil.rmtree(folder / "ref", ignore_errors=True)
        new = folder / f"{RUNNING}.new"
        new.write_text(json.dumps(running, default=float))
        os.replace(new, folder / RUNNING)
        self.job.advanced.set()
        self.saved = time.monotonic()

"""Checkpoints from which a training resumes to the same numbers and weights as an unbroken one.

transformers saves the weights, the optimizer, the schedule, the random states, the position in the data and the rows of
the table so far. It does not save running sums: a row is a mean over the steps since the row before, so after a
checkpoint between two rows the next row would miss steps. This module saves the sums, in the file that makes a
checkpoint complete:

    running.json    the sums since the last row, size and SHA-256 of each file, and its own SHA-256 in a second line

It is written last, when every process has written its part and all of it is on disk. The two newest checkpoints are
kept. A training resumes from the newest one whose files are intact. It therefore loads no pickle but its own, and a power
cut or a damaged disk costs only the steps since the previous checkpoint.

Checkpoints are made by the clock, because a step may take a second or an hour.

The last one is the state of a finished training. It is kept next to the archived table if another entry continues from
it (`continue`) or if the entry sets `save-state`. Weights, optimizer and random states are three times the weights in
float32. The longer training resumes from it as from a checkpoint of its own. Without a state it begins at its first step
and ends with the same table.
"""

import hashlib
import json
import math
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, IntervalStrategy

from proofmill.artifacts.archive import link
from proofmill.artifacts.jobs import Job
from proofmill.runtime import durable, processes
from proofmill.runtime.progress import log
from proofmill.runtime.signals import StopRequest
from proofmill.schema.errors import RecipeError, SettingError
from proofmill.schema.ids import file_sha256
from proofmill.training.rollout_log import LOGS

RUNNING, REFERENCE = "running.json", "reference.pt"
MOST_KEPT = 2  # checkpoints; while one is written there is one more
READERS = 4  # files read at a time


@dataclass(frozen=True)
class Intervals:
    """The interval between checkpoints, in steps, or in minutes if no steps are set."""

    steps: int | None = None
    minutes: float = 15.0

    @classmethod
    def from_environment(cls) -> "Intervals":
        """Read PROOFMILL_SAVE_STEPS and PROOFMILL_SAVE_MINUTES. Raises SettingError for an invalid number."""
        steps, minutes = (os.environ.get(f"PROOFMILL_SAVE_{unit}") for unit in ("STEPS", "MINUTES"))
        if steps is not None and not (steps.isdecimal() and int(steps)):
            raise SettingError(f"PROOFMILL_SAVE_STEPS is `{steps}`; expected a whole number of steps. Fix or unset it.")
        try:
            found = cls(None if steps is None else int(steps), cls.minutes if minutes is None else float(minutes))
        except ValueError:
            found = cls(minutes=math.nan)
        if not found.minutes > 0:
            raise SettingError(f"PROOFMILL_SAVE_MINUTES is `{minutes}`; expected minutes, such as 15. Fix or unset it.")
        return found

    def __str__(self) -> str:
        return f"{self.steps:,} steps" if self.steps else f"{self.minutes:g} minutes"


def seal(checkpoint: Path, sums: dict[str, Any]) -> None:
    """Write `running.json` for the files of a checkpoint, once the disk has them."""
    (checkpoint / RUNNING).unlink(missing_ok=True)
    durable.sync_tree(checkpoint)
    durable.sync_name(checkpoint)
    logs = [path for path in (checkpoint.parent / name for name in LOGS) if path.exists()]
    record = {
        "sums": sums,
        "files": _facts(checkpoint),
        "logs": {path.name: [path.stat().st_size, file_sha256(path)] for path in logs},
    }
    body = json.dumps(record, default=float)
    durable.write(checkpoint / RUNNING, f"{body}\n{hashlib.sha256(body.encode()).hexdigest()}")


def unseal(checkpoint: Path) -> dict[str, Any] | str:
    """Return the sums of a checkpoint, or why it cannot be used; for any bytes in any of its files."""
    try:
        body, _, sha256 = (checkpoint / RUNNING).read_bytes().rpartition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != sha256:
            return f"`{RUNNING}` is damaged"
        record = json.loads(body)
        known, found = record["files"], _facts(checkpoint)
        if differing := [path for path in sorted({*known, *found}) if known.get(path) != found.get(path)]:
            return f"`{differing[0]}` differs from the file that was written"
        for name, facts in record["logs"].items():
            if not _begins_with(checkpoint.parent / name, *facts):
                return f"`{name}` differs from the file that was written"
        return dict(record["sums"])
    except OSError as error:
        return f"`{error.filename}` cannot be read ({error.strerror})"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # sealed by another version
        return f"`{RUNNING}` has another form"


def _facts(checkpoint: Path) -> dict[str, list[Any]]:
    """Return size and SHA-256 of each file but `running.json`, by its path; some at a time, as one has a core's speed."""
    paths = sorted(path for path in checkpoint.rglob("*") if path.is_file() and path != checkpoint / RUNNING)
    with ThreadPoolExecutor(READERS) as readers:
        digests = [*readers.map(file_sha256, paths)]
    return {str(p.relative_to(checkpoint)): [p.stat().st_size, d] for p, d in zip(paths, digests, strict=True)}


def _begins_with(path: Path, size: int, sha256: str) -> bool:
    """Return whether the first `size` bytes of a file have this digest."""
    begun = hashlib.sha256()
    with open(path, "rb") as file:
        while size > 0 and (part := file.read(min(size, 2**20))):
            begun.update(part)
            size -= len(part)
    return begun.hexdigest() == sha256


def settle(job: Job) -> None:
    """Remove unusable checkpoints, down to the newest usable one. Every process must call this first.

    The leader reads the files; the others wait for it.
    """
    if not processes.rank():
        for path in _newest_first(job.checkpoints):
            why = unseal(path)
            if not isinstance(why, str):
                break
            if (path / RUNNING).exists():  # without it the run was killed while it wrote
                log(
                    job.name,
                    f"{path}: {why}; expected the checkpoint that was written. Removed, in favour of an older one",
                )
            shutil.rmtree(path)
    processes.broadcast()


def _newest_first(folder: Path) -> list[Path]:
    found = {int(path.name[11:]): path for path in folder.glob("checkpoint-*") if path.name[11:].isdecimal()}
    return [found[step] for step in sorted(found, reverse=True)]


def last_checkpoint(job: Job) -> Path | None:
    """Return the newest checkpoint, which `settle` has checked, or None."""
    return next((path for path in _newest_first(job.checkpoints) if (path / RUNNING).exists()), None)


def step_of_last(job: Job) -> int:
    """Return the step of the newest complete checkpoint; 0 without one."""
    checkpoint = last_checkpoint(job)
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0


def is_finished(checkpoint: Path, last: int | None = None) -> bool:
    """Return whether the checkpoint has reached the step `last`, or without it the end of the schedule."""
    state = json.loads((checkpoint / TRAINER_STATE_NAME).read_text())
    return state["global_step"] >= (last or state["max_steps"])


def save_state(job: Job) -> None:
    """Move the last checkpoint of a finished training next to its archived table, if its state must be kept."""
    kept, last = job.table.archive_of(job.fingerprint), last_checkpoint(job)
    if job.keeps_state and last and kept.exists() and not processes.rank():
        shutil.rmtree(kept.state, ignore_errors=True)
        kept.state.mkdir()
        durable.replace(last, kept.state / last.name)


def go_on_from(job: Job, before: str, evaluate_every: int) -> None:
    """Take over the state of the training `before`, if it is kept and this training has no checkpoint of its own."""
    if processes.rank() or last_checkpoint(job):
        return
    table = job.parent(before)
    found = sorted(table.archive_of(table.stamp["fingerprint"]).state.glob("checkpoint-*"))
    sums = unseal(found[0]) if found else "`save-state` is not set there"
    if isinstance(sums, str):
        log(job.name, f"{before} has no state ({sums}): starts at the first step, with the same result")
        return
    step = int(found[0].name.rpartition("-")[2])
    new = job.checkpoints / f"new-{step}"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(found[0], new, copy_function=link)
    state = json.loads((new / TRAINER_STATE_NAME).read_text())
    # The last step of a training is always evaluated; the longer one may not evaluate at that step.
    due = step % evaluate_every == 0
    state["log_history"] = [row for row in state["log_history"] if due or row["step"] < step or "eval_loss" not in row]
    state["max_steps"] = step + 1  # transformers sets it again; the training is not over
    (new / TRAINER_STATE_NAME).unlink()  # a link to the kept one
    (new / TRAINER_STATE_NAME).write_text(json.dumps(state))
    seal(new, sums)
    durable.replace(new, job.checkpoints / found[0].name)
    log(job.name, f"continues from the last step of {before}, {step:,}")


def block_of(trainer: Any) -> int:
    """Return the number of steps that share rollouts. Checkpoints hold no rollouts, so they must end such a block."""
    entry = getattr(trainer, "entry", None)  # `sft` shares none
    return getattr(entry, "mini_batches", 1) * getattr(entry, "iterations", 1)


class Checkpoints(TrainerCallback):
    """Requests checkpoints when they are due and when the training is to stop, completes them, restores their sums.

    `last` is the step after which the training ends, if that is before the end of its schedule.
    """

    def __init__(self, trainer: Any, job: Job, found: Path | None, stop: StopRequest, last: int | None):
        self.trainer, self.job, self.found, self.stop, self.last = trainer, job, found, stop, last
        self.block, self.stopped = block_of(trainer), False
        self.intervals, self.saved = Intervals.from_environment(), time.monotonic()

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint is due after this step, which ends a block; by the clock of rank 0 in every process."""
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
        kept = json.loads((self.found / RUNNING).read_bytes().splitlines()[0])["sums"]
        trainer = self.trainer
        trainer._tr_loss += kept["loss"]
        trainer._globalstep_last_logged = kept["logged"]
        trainer._total_train_tokens = kept["tokens"]
        trainer._metrics["train"].update(kept["metrics"])
        trainer.model.train(kept["training"])  # decides which sums enter the final row

    def on_step_end(self, args, state, control, **_):
        last = self.last or state.max_steps
        if processes.any_of(control.should_training_stop):  # the audit grader has stopped the main process
            control.should_save = control.should_training_stop = True
            control.should_evaluate |= args.eval_strategy == IntervalStrategy.STEPS
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
        # TRL rebuilds its copy of the initial adapter from its seed; transformers would load it instead of ours.
        shutil.rmtree(folder / "ref", ignore_errors=True)
        if self.job.table.calls.exists():
            durable.sync_tree(self.job.table.calls)  # outputs of judges that the training used
        seal(folder, running)
        for older in _newest_first(self.job.checkpoints)[MOST_KEPT:]:
            shutil.rmtree(older)
        self.job.advanced.set()
        self.saved = time.monotonic()


class SavesReference(Trainer):
    """Adds the reference of `reference-sync-steps` to checkpoints; TRL 1.16 would resume with the initial model."""

    entry: Any
    ref_model: Any

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.entry.reference_sync_steps and self.args.should_save:
            folder = Path(self.args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            torch.save(self.accelerator.unwrap_model(self.ref_model).state_dict(), folder / REFERENCE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.entry.reference_sync_steps:
            state = torch.load(Path(resume_from_checkpoint) / REFERENCE, map_location="cpu", weights_only=True)
            self.accelerator.unwrap_model(self.ref_model).load_state_dict(state)

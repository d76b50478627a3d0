"""Weights of steps before the last one: those of `save-every`, and with `keep-best` the best so far.

They are written next to the checkpoints and move into the folder of the table, steps/step-<n>, where an entry of `base`
finds them. A resume removes those of steps after its checkpoint: the training makes them again.
"""

import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy

from proofmill.artifacts.archive import link
from proofmill.artifacts.jobs import Job
from proofmill.runtime import durable, processes
from proofmill.runtime.progress import log
from proofmill.schema.kinds import STEPS
from proofmill.training import run
from proofmill.training.checkpoints import MOST_KEPT
from proofmill.training.rollouts.held_out import best_step


class KeptWeights(TrainerCallback):
    """Writes the weights of a training that its entry asks to keep; all processes call it."""

    def __init__(self, trainer: Any, tokenizer: Any, job: Job, entry: Any, after: int):
        """Take the step `after` which the training resumes."""
        self.trainer, self.tokenizer, self.job, self.entry = trainer, tokenizer, job, entry
        self.folder = job.checkpoints / STEPS
        self.best: list[int | None] = []  # as of the checkpoints that are kept
        if not processes.rank():
            for path in [*self.folder.glob("*")]:
                if int(path.name.rpartition("-")[2]) > after or path.name.startswith("."):
                    shutil.rmtree(path)

    @classmethod
    def of(cls, trainer: Any, tokenizer: Any, job: Job, entry: Any, after: int) -> "KeptWeights":
        """Make a training evaluate and keep weights as its entry says."""
        if entry.evaluate:  # transformers accepts these at once only with a dataset
            trainer.args.eval_strategy, trainer.args.eval_steps = IntervalStrategy.STEPS, entry.evaluate_every
            trainer.args.eval_on_start = after == 0
        kept = cls(trainer, tokenizer, job, entry, after)
        trainer.add_callback(kept)
        return kept

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.best = [best_step(state.log_history)] * MOST_KEPT

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.entry.save_every and state.global_step % self.entry.save_every == 0:
            self._write(state.global_step)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.entry.keep_best and best_step(state.log_history) == state.global_step:
            self._write(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Remove weights that were the best of no kept checkpoint and that `save-every` does not ask for."""
        self.best = [*self.best[1:], best_step(state.log_history)]
        for path in [] if processes.rank() else [*self.folder.glob("step-*")]:
            step = int(path.name.removeprefix("step-"))
            if step not in self.best and not (self.entry.save_every and step and step % self.entry.save_every == 0):
                shutil.rmtree(path)

    def save(self) -> tuple[Path, dict[str, int]]:
        """Write the weights of the table; return their folder, and with `keep-best` their step for the stamp."""
        state, folder = self.trainer.state, self.job.table.scratch / "weights"
        best = best_step(state.log_history) if self.entry.keep_best else None
        if best is None or best == state.global_step:
            run.save(self.trainer, self.tokenizer, self.job, folder)
        elif not processes.rank():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self._place(best), folder, copy_function=link)
            log(self.job.name, f"keeps the weights of step {best:,}, the best on {self.entry.evaluate}")
        if self.entry.save_every and not processes.rank():
            for step in range(self.entry.save_every, state.global_step + 1, self.entry.save_every):
                place = self._place(step)
                shutil.copytree(place, folder / STEPS / place.name, copy_function=link)
        return folder, {} if best is None else {"weights_of_step": best}

    def _place(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def _write(self, step: int) -> None:
        """Write the weights after `step` by one rename, unless they are there."""
        place = self._place(step)
        if processes.broadcast(place.exists()):
            return
        new = place.with_name(f".new-{step}")
        run.save(self.trainer, self.tokenizer, self.job, new)
        if not processes.rank():
            durable.sync_tree(new)
            durable.replace(new, place)

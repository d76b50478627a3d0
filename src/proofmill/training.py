"""What `sft` and `grpo` share: arguments of a trainer, checkpoints that survive a kill, progress, and the table of steps."""

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from transformers.trainer_callback import PrinterCallback

from proofmill.jobs import Job
from proofmill.progress import clock, say
from proofmill.tables import TableError

SAVE_STEPS = int(os.environ.get("PROOFMILL_SAVE_STEPS", "200"))
# What depends on the machine and not on the entry is no row of the table; the stamp has the seconds. `train_loss`, the
# mean over all steps, is left out too: after a resume transformers sums only the steps since, and divides by all.
CLOCKS = ("runtime", "per_second", "step_time", "flos", "time", "train_loss")


def load(job: Job, model: str) -> tuple[Any, Any]:
    """Model and tokenizer of an artifact, from its checked weights."""
    folder = job.parent(model).weights()
    # Weights in float32 whatever the files hold: `precision: bfloat16` is the arithmetic's, through autocast.
    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), AutoTokenizer.from_pretrained(folder)


def arguments(entry: Any, job: Job, log_every: int, block: int = 1) -> dict[str, Any]:
    """Arguments that every trainer is given.

    A checkpoint falls on a logged step, so that resumed means are whole, and on the end of a block of steps that share
    their rollouts, which are in no checkpoint.
    """
    import torch

    torch.set_num_threads(job.threads)
    whole = math.lcm(log_every, block)
    return {
        "output_dir": str(job.checkpoints),
        "learning_rate": entry.learning_rate,
        "lr_scheduler_type": entry.schedule,
        "warmup_steps": entry.warmup,
        "adam_beta2": entry.beta2,
        "weight_decay": entry.weight_decay,
        "max_grad_norm": entry.clip,
        "seed": entry.seed,
        "data_seed": entry.seed,
        "bf16": entry.precision == "bfloat16",
        "use_cpu": not torch.cuda.is_available(),
        "gradient_checkpointing": False,
        "logging_steps": log_every,
        "logging_nan_inf_filter": False,
        "save_strategy": "steps",
        "save_steps": max(SAVE_STEPS // whole, 1) * whole,
        "save_total_limit": 2,
        "report_to": [],
        "disable_tqdm": True,
    }


def per_device(job: Job, batch: int) -> int:
    """An entry's batch is over all devices; what falls to each of them."""
    import torch

    devices = int(os.environ.get("WORLD_SIZE", "1")) * max(
        1, torch.cuda.device_count() if "RANK" not in os.environ else 1
    )
    if batch % devices:
        raise TableError(
            f"{job.name}: a batch of {batch} does not divide among {devices} devices; expected a multiple. "
            "Change the number of devices in the profile: another batch would be another training."
        )
    return batch // devices


def last_checkpoint(job: Job) -> Path | None:
    """The newest complete checkpoint; its trainer state is the file that is written last."""
    found = sorted(
        job.checkpoints.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True
    )
    return next((path for path in found if _complete(path)), None)


def _complete(path: Path) -> bool:
    try:
        json.loads((path / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return False
    return True


def train(trainer: Any, job: Job) -> float:
    """Train from the last checkpoint, if there is one; returns the seconds it took."""
    start, resume = time.monotonic(), last_checkpoint(job)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Steps(job.name))
    if resume:
        say(job.name, f"goes on from {resume.name}")
        logged = json.loads((resume / "trainer_state.json").read_text())["log_history"]
        trainer._total_train_tokens = logged[-1].get("num_tokens", 0)  # of SFTTrainer; in no checkpoint of TRL 1.16
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    return round(time.monotonic() - start, 2)


class Steps(TrainerCallback):
    """A line of progress every few seconds: steps, the latest loss or reward, steps a second, time left."""

    def __init__(self, name: str, every: float = 5.0):
        self.name, self.every, self.latest = name, every, ""

    def on_train_begin(self, args, state, control, **_):
        self.start = self.last = time.monotonic()
        self.first = state.global_step

    def on_log(self, args, state, control, logs=None, **_):
        shown = {key: float(logs[key]) for key in ("loss", "reward") if logs and key in logs}
        self.latest = "".join(f", {key} {value:.4g}" for key, value in shown.items()) or self.latest

    def on_step_end(self, args, state, control, **_):
        now = time.monotonic()
        if now - self.last >= self.every or state.global_step == state.max_steps:
            self.last = now
            rate = (state.global_step - self.first) / (now - self.start)
            left = clock((state.max_steps - state.global_step) / rate)
            say(
                self.name,
                f"step {state.global_step:,} of {state.max_steps:,}{self.latest}, {rate:.2f} steps/s, {left} left",
            )


def steps(trainer: Any) -> Iterator[dict]:
    """Rows of the table: every number that was logged, in long form, by name: a checkpoint keeps no other order."""
    for logged in trainer.state.log_history:
        for measure, value in sorted(logged.items()):
            if measure not in ("step", "epoch") and not any(word in measure for word in CLOCKS):
                yield {"step": logged["step"], "epoch": logged["epoch"], "measure": measure, "value": float(value)}


def save(trainer: Any, tokenizer: Any, job: Job) -> Path:
    """The weights, tokenizer and chat template in a folder that the table's rename puts in its place."""
    import shutil

    folder = job.table.scratch / "weights"
    shutil.rmtree(folder, ignore_errors=True)
    trainer.model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder

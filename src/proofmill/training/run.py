"""Training code of `sft` and `grpo`: loading, trainer arguments, the table of steps, saving.

The entry sets what is trained; the profile, which starts the processes, and the environment set where and how. The
latter change no weight beyond rounding, except by the noise that each process draws for itself (an adapter's dropout,
rollouts, their order in `mini-batches`).

    PROOFMILL_MICRO_BATCH_SIZE          rows of a micro-batch on one device (micro_batches.py); default: by memory
    PROOFMILL_GRADIENT_CHECKPOINTING    1 or 0: recompute activations, or keep them (micro_batches.py); default: by memory
    PROOFMILL_ATTENTION                 attention implementation, as transformers names it, such as flash_attention_2
    PROOFMILL_SAVE_MINUTES              minutes between checkpoints (15)
    PROOFMILL_SAVE_STEPS                steps between checkpoints, instead of minutes
    PROOFMILL_TRAINING_STALL_MINUTES    minutes without progress after which the training ends (never)
    PROOFMILL_GRACE_SECONDS                     seconds for the end of the step and its checkpoint after SIGTERM or Ctrl-C (20)
"""

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType, fsdp2_prepare_model, is_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_callback import PrinterCallback

from proofmill.artifacts.jobs import Job
from proofmill.calls import sampling
from proofmill.prompts import chat_templates
from proofmill.runtime import processes
from proofmill.runtime.progress import log
from proofmill.runtime.signals import gracefully, leave
from proofmill.runtime.watchdog import Steps, watching
from proofmill.schema.errors import SettingError
from proofmill.sources import models
from proofmill.training import adapters
from proofmill.training.checkpoints import Checkpoints, is_finished, last_checkpoint

# Metrics that depend on the machine are left out of the table; the stamp has the seconds. `train_loss`, the mean over
# all steps, is left out too: after a resume, transformers sums only the steps since then and divides by all.
CLOCKS = re.compile(r".*(runtime|per_second|step_time|total_flos)|profiling/.*|train_loss")


def load(job: Job, entry: Any) -> tuple[Any, Any]:
    """Load model and tokenizer of an entry, from checked weights; with an adapter, only the adapter is trained.

    Trained weights are float32 whatever the files hold, 8-bit ones too (sources/models.py): `precision: bfloat16` is the
    precision of the arithmetic, through autocast. Those next to an adapter are as `memory.precision_in_memory` says.
    Raises TableError for a tokenizer without a chat template, for weights in another quantization, and what
    `adapters.load` raises.
    """
    folder, tokenizer = job.parent(entry.model).weights(), tokenizer_of(job, entry.model)
    attention = os.environ.get("PROOFMILL_ATTENTION")
    options = {"attn_implementation": attention} if attention else {}
    if entry.lora:
        return adapters.load(job, entry.model, entry.lora, entry.precision, entry.seed, **options), tokenizer
    network = AutoModelForCausalLM.from_pretrained(folder, **models.in_float32(folder), **options)
    sampling.neutralize(network.generation_config)
    return network, tokenizer


def tokenizer_of(job: Job, model: str) -> Any:
    """Load the tokenizer of an artifact's checked weights. Raises TableError without a chat template."""
    logits_of_trained_tokens()
    return chat_templates.require_template(AutoTokenizer.from_pretrained(job.parent(model).weights()), model)


def logits_of_trained_tokens() -> None:
    """Make TRL compute the logits of trained tokens alone on every device, without prompts and padding.

    TRL 1.16 does so only with Triton, because some devices compile for each shape. The loss is the same; with
    a vocabulary of 49,152 tokens a step on a CPU takes half the time.
    """
    import trl.trainer.utils

    trl.trainer.utils._use_triton = lambda device: True


def arguments(entry: Any, job: Job, log_every: int) -> dict[str, Any]:
    """Return the arguments of every trainer. Build them before loading a model, so that DeepSpeed's ZeRO-3 can shard it."""
    torch.set_num_threads(job.threads)
    return {
        "output_dir": str(job.checkpoints),
        "learning_rate": entry.learning_rate,
        **_schedule(entry),
        "warmup_steps": entry.warmup_ratio,
        "adam_beta2": entry.beta2,
        "weight_decay": entry.weight_decay,
        "max_grad_norm": entry.max_grad_norm,
        "seed": entry.seed,
        "data_seed": entry.seed,
        "bf16": entry.precision == "bfloat16",
        "use_cpu": not torch.cuda.is_available(),
        "ddp_find_unused_parameters": False,  # every weight contributes to every loss
        "logging_steps": log_every,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",  # checkpoints.py decides when
        **trackers(job.name, job.table.results),
        "disable_tqdm": True,
        **_accumulation(),
    }


def _accumulation() -> dict[str, Any]:
    """Return the option that keeps gradients sharded between micro-batches under FSDP2; unsharded they fill every device.

    The memory plan (memory.py) assumes it. Sharded sums are in float32; unsharded ones have the precision of the
    micro-batches.
    """
    if processes.sharding() != "fsdp2":
        return {}
    return {"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}}}


def split_frozen(model: Any, accelerator: Any) -> Any:
    """Split a model that is not trained over the devices of FSDP2, layer by layer, as the trained one.

    TRL would keep the random weights of the processes that read no files, and gather all layers at once.
    """
    return fsdp2_prepare_model(accelerator, model).eval()


def _schedule(entry: Any) -> dict[str, Any]:
    floor = getattr(entry, "min_learning_rate_ratio", 0.0)
    if entry.schedule == "cosine" and floor:
        return {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": floor}}
    return {"lr_scheduler_type": entry.schedule}


def train(trainer: Any, job: Job, last: int | None = None) -> float:
    """Train from the last checkpoint, if any, up to the step `last`, if given; returns the seconds it took.

    On SIGTERM or Ctrl-C, the process ends after the step (in GRPO, the block of steps that share rollouts) with a
    checkpoint.
    """
    start, checkpoint = time.monotonic(), processes.broadcast(last_checkpoint(job))
    trainer.remove_callback(PrinterCallback)
    if processes.rank() == 0:
        trainer.add_callback(Steps(job, last))
        if checkpoint:
            log(job.name, f"resumes from {checkpoint.name}")
    with (
        watching(job.name) as watches,
        gracefully(job.name, "the steps so far are saved up to the last checkpoint") as stop,
    ):
        checkpoints = Checkpoints(trainer, job, checkpoint, stop, last)
        for callback in (checkpoints, *watches):
            trainer.add_callback(callback)
        if checkpoint and is_finished(checkpoint, last):
            trainer._run_epoch = lambda **_: None  # transformers 5.17 would train one step more than asked
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if checkpoints.stopped:
        step, steps = trainer.state.global_step, last or trainer.state.max_steps
        leave(
            f"{job.name}: {stop.why or 'stopped'}; step {step:,} of {steps:,} is saved in a checkpoint. Rerun the same command to resume."
        )
    if torch.cuda.is_available():
        job.stamp["peak_bytes"] = torch.cuda.max_memory_allocated()
    return round(time.monotonic() - start, 2)


def steps(trainer: Any) -> Iterator[dict]:
    """Yield the rows of the table: every logged number in long form, sorted by name, the only order checkpoints keep."""
    for logged in trainer.state.log_history:
        for metric, value in sorted(logged.items()):
            known = value is not None  # a reward without any value has no mean
            if known and metric not in ("step", "epoch") and not CLOCKS.fullmatch(metric):
                yield {"step": logged["step"], "epoch": logged["epoch"], "metric": metric, "value": float(value)}


def save(trainer: Any, tokenizer: Any, job: Job, folder: Path | None = None) -> Path:
    """Write weights, tokenizer and chat template (rank 0 alone); returns the folder, by default the table's."""
    folder = folder or job.table.scratch / "weights"
    sharded = trainer.accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED)
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped) if sharded else None  # gathered from all ranks
    if processes.rank():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    sampling.neutralize(trainer.accelerator.unwrap_model(trainer.model).generation_config)
    if is_peft_model(trainer.accelerator.unwrap_model(trainer.model)):
        adapters.merge(trainer, state, job, folder)
    else:
        model = trainer.accelerator.unwrap_model(trainer.model)
        if state:  # it has tied weights twice
            once = {name for name, _ in model.named_parameters()}
            twice = {name for name, _ in model.named_parameters(remove_duplicate=False)} - once
            state = {name: weight for name, weight in state.items() if name not in twice}
        model.save_pretrained(folder, **({"state_dict": state} if state else {}))
    tokenizer.save_pretrained(folder)
    return folder


def trackers(name: str, results: Path) -> dict[str, Any]:
    """Return a trainer's arguments for PROOFMILL_REPORT_TO, such as `tensorboard` or `wandb trackio`; none by default.

    TensorBoard's files are in results/tensorboard/<kind>/<name>, or in TENSORBOARD_LOGGING_DIR. Raises SettingError for a
    tracker that is not installed, or that transformers does not know.
    """
    from transformers.integrations import get_available_reporting_integrations

    names = os.environ.get("PROOFMILL_REPORT_TO", "").replace(",", " ").split()
    there = get_available_reporting_integrations()
    if missing := [tracker for tracker in names if tracker not in there]:
        raise SettingError(
            f"PROOFMILL_REPORT_TO names {missing[0]}, which is unknown or not installed; expected some of "
            f"{', '.join(there) or 'those that transformers knows (tensorboard, trackio, wandb, ...)'}. Install its package "
            "into the environment of the stages."
        )
    if "tensorboard" in names:
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(results / "tensorboard" / name))
    return {"report_to": names, "run_name": name}

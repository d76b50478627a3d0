"""How a batch is split into forward passes: over the devices, and on each by what its memory has room for.

An entry says how many rows a step learns; it never says how many at a time. On each device a pass takes as many as the
plan (memory.py) has room for, and the rest of the batch is accumulated: the loss is a sum over the tokens of the whole
batch, so that a step is the same up to the rounding of sums. A training that goes on from a checkpoint keeps the rows
of its passes, so that it ends with the very weights of an unbroken one. Where not even one row fits, activations are
computed again instead of kept, which costs a fifth of the time and changes nothing else.

Rollouts differ in length, and the rows of a pass are as long as its longest. They are sorted by length into passes, of
which there are a few also where one would fit (`by_length`).

    PROOFMILL_ROWS_PER_DEVICE           most rows of one forward pass on one device, whatever the plan says
    PROOFMILL_GRADIENT_CHECKPOINTING    1 or 0: activations are computed again, or kept, whatever the plan says
    PROOFMILL_ATTENTION                 how attention is computed, as transformers names it, such as flash_attention_2

How we differ from accelerate's `find_executable_batch_size`:
1. We plan before anything is loaded. Out of memory is an exception on a GPU; on a CPU it is the end of the process, and
   often of others.
2. Fewer rows at a time never make a smaller batch: that would be another training.
"""

import json
import math
import os
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import torch

from proofmill.artifacts.jobs import Job
from proofmill.runtime import processes
from proofmill.runtime.progress import say
from proofmill.schema.errors import RecipeError, SettingError
from proofmill.training import memory
from proofmill.training.checkpoints import last_checkpoint

LENGTHS = 4  # passes of rollouts, at least: more of them are hardly faster (docs/measurements.md)


def split(entry: Any, job: Job, batch: int, tokens: int, at_least: int = 1, **more: Any) -> dict[str, Any]:
    """Trainer arguments for a batch of `batch` rows over all devices: rows per device and pass, passes per step, checkpointing.

    Says what it chose, how often it saves, and the memory plan, before anything is allocated. `tokens` is the largest
    number in a row; there are `at_least` so many passes if there are as many rows; `more` goes to `memory.plan`. Raises
    SettingError if the batch does not divide evenly, if one process sees several GPUs, or if what is trained cannot fit
    at all; RecipeError if rollouts may be longer than the model's context.
    """
    share = share_of(job, batch)
    by_hand, again = rows_by_hand(job, share), checkpointing_by_hand(job)
    chosen = None
    if processes.rank() == 0:
        available, cuda = memory.device_memory()
        network = memory.made(job.parent(entry.model).weights())
        if "learned_tokens" in more:
            check_context(entry.model, network, more["learned_tokens"] + 1, "a prompt with its answer may have")
        planned = planner(
            network, entry, tokens, devices=processes.world(), sharded=processes.sharding(),
            offloaded=processes.offloads(), there=available, cuda=cuda, **more,
        )  # fmt: skip
        limit = available if cuda or available is None else available * memory.part_of_machine(job.threads)
        rows = by_hand or _rows_before(job, share)
        chosen = choice(planned, share, limit, max(share // at_least, 1), rows, again)
        _announce(job, batch, *chosen, share, planned(*chosen), by_hand=by_hand is not None)
    rows, again = processes.broadcast(chosen)
    return {
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": share // rows,
        "gradient_checkpointing": again,
    }


def check_context(model: str, network: Any, tokens: int, what: str) -> None:
    """RecipeError where a row is longer than the model's context: it would learn positions that mean nothing to it."""
    context = memory.context_of(network)
    if context is not None and tokens > context:
        raise RecipeError(
            f"{model}: {what} {tokens:,} tokens, and its context has {context:,}; expected shorter ones. Lower the limit, or raise "
            "`context` of its `base`, with a higher `rope-theta`."
        )


Planned = Callable[[int, bool], memory.Plan]


def planner(network: Any, entry: Any, tokens: int, **more: Any) -> Planned:
    """The plan of memory of an entry for so many rows of a pass, with activations computed again or kept.

    A row alone in its pass is not padded, and so attention gets no mask; nor does it from FlashAttention. Packed rows are
    several examples, which are masked from each other.
    """
    masked = getattr(entry, "packing", False)
    flash = os.environ.get("PROOFMILL_ATTENTION", "").startswith(("flash", "kernels-community/flash"))

    def planned(rows: int, checkpointing: bool = False) -> memory.Plan:
        return memory.plan(
            network,
            rows=rows,
            tokens_per_row=tokens,
            precision=entry.precision,
            adapter=entry.adapter,
            checkpointing=checkpointing,
            masked=not flash and (masked or rows > 1),
            **more,
        )

    return planned


def choice(
    planned: Planned, share: int, limit: float | None, most: int, rows: int | None = None, again: bool | None = None
) -> tuple[int, bool]:
    """The rows of a pass, and whether activations are computed again: only where they do not fit otherwise."""
    for checkpointing in [False, True] if again is None else [again]:
        taken = rows or fitting(lambda rows: planned(rows, checkpointing), share, limit, most)  # noqa: B023 (called here)
        if limit is None or planned(taken, checkpointing).step <= memory.TIGHT * limit:
            break
    return taken, checkpointing


def share_of(job: Job, batch: int) -> int:
    """The rows of a batch that fall to each device. SettingError if it does not divide, or a process sees several GPUs."""
    world = processes.world()
    if world == 1 and torch.cuda.device_count() > 1:
        raise SettingError(
            f"{job.name}: one process sees {torch.cuda.device_count()} GPUs; expected a process for each. Start it by a launch "
            "line (workflow/accelerate), or set CUDA_VISIBLE_DEVICES to one."
        )
    if batch % world:
        raise SettingError(
            f"{job.name}: a batch of {batch} does not divide among {world} devices; expected a multiple. "
            "Change the number of devices in the profile: another batch would be another training."
        )
    return batch // world


def rows_by_hand(job: Job, share: int) -> int | None:
    """PROOFMILL_ROWS_PER_DEVICE, at most the share of a device; None if unset. SettingError if it does not divide it."""
    value = os.environ.get("PROOFMILL_ROWS_PER_DEVICE")
    if value is None:
        return None
    if not value.isdigit() or int(value) < 1:
        raise SettingError(
            f"PROOFMILL_ROWS_PER_DEVICE is `{value}`; expected a whole number of rows. Set it, or unset it."
        )
    rows = min(share, int(value))
    if share % rows:
        raise SettingError(
            f"{job.name}: {share} rows of a batch fall to each device, which are no multiple of {rows} at a time "
            "(PROOFMILL_ROWS_PER_DEVICE); expected a divisor. Set one: another batch would be another training."
        )
    return rows


def checkpointing_by_hand(job: Job) -> bool | None:
    """PROOFMILL_GRADIENT_CHECKPOINTING as a decision; None if unset, and False where the launch file does it already."""
    value = os.environ.get("PROOFMILL_GRADIENT_CHECKPOINTING")
    if value not in (None, "0", "1"):
        raise SettingError(
            f"PROOFMILL_GRADIENT_CHECKPOINTING is `{value}`; expected 1 or 0. Set it, or unset it to leave it to the plan."
        )
    if processes.offloads():
        if value == "1":
            raise SettingError(
                f"{job.name}: PROOFMILL_GRADIENT_CHECKPOINTING is 1, and the launch file has activations computed again "
                "(fsdp_activation_checkpointing); expected one of them. Unset it."
            )
        return False
    return None if value is None else value == "1"


def fitting(planned: Callable[[int], memory.Plan], share: int, limit: float | None, most: int | None = None) -> int:
    """The most rows of a pass, a divisor of a device's share, whose step leaves some of the memory free; at least 1."""
    divisors = [rows for rows in range(most or share, 1, -1) if share % rows == 0]
    return next((rows for rows in divisors if limit is None or planned(rows).step <= memory.TIGHT * limit), 1)


def by_length(rows: dict[str, Any], passes: int, learned_N: torch.Tensor) -> list[dict[str, Any]]:
    """The learned rows of a step in passes of similar lengths, as equal in number as they can be, and never without rows.

    A pass for which none is left has one of which nothing is learned.
    """
    order = (rows["prompt_mask"].sum(dim=1) + rows["completion_mask"].sum(dim=1)).argsort(stable=True)
    learned, others = order[learned_N[order]], order[~learned_N[order]]
    parts = [part if len(part) else others[:1] for part in learned.tensor_split(passes)]
    return [trimmed({name: value[part] if value.dim() else value for name, value in rows.items()}) for part in parts]


def trimmed(inputs: dict[str, Any]) -> dict[str, Any]:
    """Rows without the columns that are padding in each of them: prompts begin with it, replies end with it."""
    lengths = {side: int(inputs[f"{side}_mask"].sum(dim=1).max()) for side in ("prompt", "completion")}

    def short(name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() < 2:
            return value
        is_prompt = name.startswith("prompt")
        return value[:, -lengths["prompt"] :] if is_prompt else value[:, : max(lengths["completion"], 1)]

    return {name: short(name, value) for name, value in inputs.items()}


MEANS = (
    *("entropy", "kl", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"),
    *("ratio/mean", "ratio/effective-share"),
)
EXTREMES = {"clip_ratio/low_min": min, "clip_ratio/high_max": max, "ratio/max": max}


def measured(metrics: MutableMapping[str, list[float]], tokens: Sequence[int]) -> None:
    """Put one value in the place of those of a step's passes, which learned so many tokens each; none for no tokens."""
    for name in {*MEANS, *EXTREMES} & metrics.keys():
        values = metrics[name][-len(tokens) :]
        del metrics[name][-len(tokens) :]
        if name in MEANS and any(tokens):
            metrics[name].append(sum(v * count for v, count in zip(values, tokens, strict=True)) / sum(tokens))
        elif known := [v for v, count in zip(values, tokens, strict=True) if count and not math.isnan(v)]:
            metrics[name].append(EXTREMES[name](known))
        if not metrics[name]:
            del metrics[name]


def _rows_before(job: Job, share: int) -> int | None:
    """The rows of a pass in the checkpoint that the training goes on from, if any."""
    checkpoint = last_checkpoint(job)
    if checkpoint is None:
        return None
    rows = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["train_batch_size"]
    return rows if rows and share % rows == 0 else None


def _announce(job: Job, batch: int, rows: int, again: bool, share: int, plan: memory.Plan, by_hand: bool) -> None:
    """Say what was chosen, and the plan. SettingError when what does not depend on rows is more than there is."""
    if rows != batch or again:
        why = ", as many at a time as the memory has room for" if not by_hand and rows != share else ""
        why += "; activations are computed again" * again
        split = f"{processes.world()} x {rows:,} x {share // rows:,} (devices, rows at a time, turns)"
        say(job.name, f"{batch:,} rows a step: {split}{why}")
    for line in plan.lines():
        say(job.name, line)
    if plan.there is not None and plan.least > plan.there:
        raise SettingError(
            f"{job.name}: training {plan.parameters:,} parameters takes {memory.size(plan.least)} for weights, gradients and the "
            f"optimizer alone, and a device has {memory.size(plan.there)}; expected more memory than that. What helps: "
            f"{plan.changes['optimizer']}."
        )

"""Split of a batch into micro-batches: over the devices, and on each by available memory.

An entry sets the rows of a step, never the rows of a micro-batch. On each device a micro-batch has as many rows as the
plan (memory.py) allows, and the rest of the batch is accumulated. The loss is a sum over the tokens of the full batch, so
a step is the same up to the rounding of sums. A training that resumes from a checkpoint keeps its micro-batch size (unless
the variable below is set), so it ends with exactly the weights of an uninterrupted one. If not even one row fits,
activations are recomputed, which takes a fifth more time and changes nothing else.

Rollouts differ in length, and a micro-batch is padded to its longest row. Rows are sorted by length into micro-batches,
several even if one would fit (`by_length`).

    PROOFMILL_MICRO_BATCH_SIZE          rows of a micro-batch on one device, whatever the plan says
    PROOFMILL_GRADIENT_CHECKPOINTING    1 or 0: recompute activations, or keep them, whatever the plan says
    PROOFMILL_ATTENTION                 attention implementation, as transformers names it, such as flash_attention_2

Differences from accelerate's `find_executable_batch_size`:
1. The plan is made before anything is loaded. Out of memory is an exception on a GPU; on a CPU it ends the process, and
   often others.
2. A smaller micro-batch never makes a smaller batch, because that would change the training.
"""

import json
import os
from collections.abc import Callable
from typing import Any

import torch

from proofmill.artifacts.jobs import Job
from proofmill.runtime import processes
from proofmill.runtime.progress import log
from proofmill.schema.errors import RecipeError, SettingError
from proofmill.training import memory
from proofmill.training.checkpoints import last_checkpoint

LENGTHS = 4  # minimum micro-batches of rollouts: more are hardly faster (docs/performance.md)


def split(entry: Any, job: Job, batch: int, tokens: int, at_least: int = 1, **more: Any) -> dict[str, Any]:
    """Choose micro-batch size, gradient accumulation and checkpointing for `batch` rows over all devices.

    Logs the choice and the memory plan before anything is allocated. `tokens` is the maximum of a row. A batch
    with enough rows has at least `at_least` micro-batches. `more` goes to `memory.plan`. Raises SettingError if the batch
    does not divide evenly, if one process sees several GPUs, or if the training cannot fit; RecipeError if rollouts may be
    longer than the model's context.
    """
    share = share_of(job, batch)
    override, recompute = override_rows(job, share), override_checkpointing(job)
    chosen = None
    if processes.rank() == 0:
        available, cuda = memory.device_memory()
        network = memory.build_empty(job.parent(entry.model).weights())
        if "trained_tokens" in more:
            check_context(entry.model, network, more["trained_tokens"] + 1, "a prompt with its answer may have")
        plan_rows = planner(network, entry, tokens, place=place_here(available, cuda), **more)
        limit = available if cuda or available is None else available * memory.part_of_machine(job.threads)
        rows = override or _rows_before(job, share)
        chosen = choice(plan_rows, share, limit, max(share // at_least, 1), rows, recompute)
        plan = plan_rows(*chosen)
        _announce(job, batch, *chosen, share, plan, by_choice=override is None)
        job.stamp["planned_bytes"] = plan.step
    rows, recompute = processes.broadcast(chosen)
    return {
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": share // rows,
        "gradient_checkpointing": recompute,
    }


def check_context(model: str, network: Any, tokens: int, what: str) -> None:
    """Raise RecipeError if a row may be longer than the model's context: the model has no such positions."""
    context = memory.context_of(network)
    if context is not None and tokens > context:
        raise RecipeError(
            f"{model}: {what} {tokens:,} tokens, but the model's context has {context:,}; expected rows that fit. Lower the limit, or raise "
            "`context` of its `base`, with a higher `rope-theta`."
        )


def check_prompts(entry: Any, job: Job, table: str, longest: int) -> None:
    """Raise RecipeError if the longest prompt of a table, in tokens, and its answer may exceed the policy's context."""
    network, tokens = memory.build_empty(job.parent(entry.model).weights()), longest + entry.max_tokens
    check_context(entry.model, network, tokens, f"the longest prompt of {table} with its answer may have")


def place_here(device_bytes: int | None, cuda: bool) -> memory.Placement:
    """Return the placement of the training that this process belongs to."""
    world, sharding, offloads = processes.world(), processes.sharding(), processes.offloads()
    return memory.Placement(world, sharding, offloads, device_bytes, cuda)


Planned = Callable[[int, bool], memory.MemoryPlan]


def planner(network: Any, entry: Any, tokens: int, **more: Any) -> Planned:
    """Return a function that plans an entry's memory, given micro-batch size and whether activations are recomputed.

    A single row is not padded, so its attention needs no mask; neither does FlashAttention. Packed rows are several
    examples, which are masked from each other.
    """
    masked = getattr(entry, "packing", False)
    flash = os.environ.get("PROOFMILL_ATTENTION", "").startswith(("flash", "kernels-community/flash"))

    def plan_rows(rows: int, checkpointing: bool = False) -> memory.MemoryPlan:
        return memory.plan(
            network,
            rows=rows,
            tokens_per_row=tokens,
            precision=entry.precision,
            adapter=entry.lora,
            checkpointing=checkpointing,
            masked=not flash and (masked or rows > 1),
            **more,
        )

    return plan_rows


def choice(
    plan_rows: Planned,
    share: int,
    limit: float | None,
    most: int,
    rows: int | None = None,
    recompute: bool | None = None,
) -> tuple[int, bool]:
    """Choose the micro-batch size, and whether to recompute activations: only if they do not fit otherwise."""
    for checkpointing in [False, True] if recompute is None else [recompute]:
        taken = rows or fitting(lambda rows: plan_rows(rows, checkpointing), share, limit, most)  # noqa: B023 (called here)
        if limit is None or plan_rows(taken, checkpointing).step <= memory.TIGHT * limit:
            break
    return taken, checkpointing


def share_of(job: Job, batch: int) -> int:
    """Return the batch rows per device. Raises SettingError if it does not divide, or if a process sees several GPUs."""
    world = processes.world()
    if world == 1 and torch.cuda.device_count() > 1:
        raise SettingError(
            f"{job.name}: one process sees {torch.cuda.device_count()} GPUs; expected a process for each. Start it by a launch "
            "line (workflow/accelerate), or set CUDA_VISIBLE_DEVICES to one."
        )
    if batch % world:
        raise SettingError(
            f"{job.name}: a batch of {batch} cannot be split evenly over {world} devices; expected a multiple. "
            "Change the number of devices in the profile: another batch would be another training."
        )
    return batch // world


def override_rows(job: Job, share: int) -> int | None:
    """Read PROOFMILL_MICRO_BATCH_SIZE, at most `share`; None if unset. Raises SettingError if it does not divide `share`."""
    value = os.environ.get("PROOFMILL_MICRO_BATCH_SIZE")
    if value is None:
        return None
    if not value.isdigit() or int(value) < 1:
        raise SettingError(
            f"PROOFMILL_MICRO_BATCH_SIZE is `{value}`; expected a whole number of rows. Fix or unset it."
        )
    rows = min(share, int(value))
    if share % rows:
        raise SettingError(
            f"{job.name}: PROOFMILL_MICRO_BATCH_SIZE is {rows}; expected a divisor of {share}, the rows of a batch on each "
            "device, because another batch would be another training. Set a divisor, or unset it."
        )
    return rows


def override_checkpointing(job: Job) -> bool | None:
    """Read PROOFMILL_GRADIENT_CHECKPOINTING; None if unset, False if the launch file enables it already."""
    value = os.environ.get("PROOFMILL_GRADIENT_CHECKPOINTING")
    if value not in (None, "0", "1"):
        raise SettingError(
            f"PROOFMILL_GRADIENT_CHECKPOINTING is `{value}`; expected 1 or 0. Fix it, or unset it to let the memory plan decide."
        )
    if processes.offloads():
        if value == "1":
            raise SettingError(
                f"{job.name}: PROOFMILL_GRADIENT_CHECKPOINTING is 1, and the launch file has activations recomputed "
                "(fsdp_activation_checkpointing); expected one of them. Unset it."
            )
        return False
    return None if value is None else value == "1"


def fitting(
    plan_rows: Callable[[int], memory.MemoryPlan], share: int, limit: float | None, most: int | None = None
) -> int:
    """Return the largest divisor of `share` whose step leaves some memory free; at least 1."""
    divisors = [rows for rows in range(most or share, 1, -1) if share % rows == 0]
    return next((rows for rows in divisors if limit is None or plan_rows(rows).step <= memory.TIGHT * limit), 1)


def by_length(rows: dict[str, Any], count: int, learned_N: torch.Tensor) -> list[dict[str, Any]]:
    """Split the trained rows of a step into micro-batches of similar lengths and nearly equal size, none of them empty.

    If there are too few trained rows, a micro-batch gets a row without a gradient.
    """
    order = _order(rows)
    learned, others = order[learned_N[order]], order[~learned_N[order]]
    parts = [part if len(part) else others[:1] for part in learned.tensor_split(count)]
    return [trim({name: value[part] if value.dim() else value for name, value in rows.items()}) for part in parts]


def _order(rows: dict[str, Any]) -> torch.Tensor:
    """Return the rows sorted by length; where most tokens are in prompts, copies of a prompt stay together.

    A micro-batch reads each of its prompts once (losses/shared_prompts.py).
    """
    prompts_N, completions_N = rows["prompt_mask"].sum(dim=1), rows["completion_mask"].sum(dim=1)
    order = (prompts_N + completions_N).argsort(stable=True)
    if prompts_N.sum() > completions_N.sum():
        _, place_N = rows["prompt_ids"].unique(dim=0, return_inverse=True)
        for key in (place_N, prompts_N):
            order = order[key[order].argsort(stable=True)]
    return order


def trim(inputs: dict[str, Any]) -> dict[str, Any]:
    """Remove the columns that are padding in every row: at the start of prompts, at the end of completions."""
    lengths = {side: int(inputs[f"{side}_mask"].sum(dim=1).max()) for side in ("prompt", "completion")}

    def short(name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() < 2:
            return value
        is_prompt = name.startswith("prompt")
        return value[:, -lengths["prompt"] :] if is_prompt else value[:, : max(lengths["completion"], 1)]

    return {name: short(name, value) for name, value in inputs.items()}


def _rows_before(job: Job, share: int) -> int | None:
    """Return the micro-batch size of the checkpoint that the training resumes from, if any."""
    checkpoint = last_checkpoint(job)
    if checkpoint is None:
        return None
    rows = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["train_batch_size"]
    return rows if rows and share % rows == 0 else None


def _announce(
    job: Job, batch: int, rows: int, recompute: bool, share: int, plan: memory.MemoryPlan, by_choice: bool
) -> None:
    """Log the choice and the plan. Raises SettingError if the memory that does not depend on rows exceeds the device's."""
    if rows != batch or recompute:
        why = ", as many as fit into memory" if by_choice and rows != share else ""
        why += "; recomputing activations" * recompute
        split = f"{processes.world()} x {rows:,} x {share // rows:,} (devices, micro-batch, accumulation steps)"
        log(job.name, f"{batch:,} rows a step: {split}{why}")
    for line in plan.lines():
        log(job.name, line)
    if plan.device_bytes is not None and plan.fixed_bytes > plan.device_bytes:
        raise SettingError(
            f"{job.name}: training {plan.parameters:,} parameters takes {memory.size(plan.fixed_bytes)} for weights, gradients and the "
            f"optimizer alone, and a device has {memory.size(plan.device_bytes)}; expected more memory than that. To reduce it: "
            f"{plan.remedies['optimizer']}."
        )

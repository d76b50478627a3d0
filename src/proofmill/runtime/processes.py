"""One training may be several processes, a device each: which of them writes, and what all of them agree on.

`accelerate launch` or torchrun starts them and says so in the environment (RANK, WORLD_SIZE, LOCAL_RANK); without one of these
there is one process. The first one, the leader, takes the lock, says what is to be said and writes; the others follow it step by
step and write nothing but their own part of a checkpoint.
"""

import os
from datetime import timedelta
from typing import Any

# A leader may be busy alone for a while: reading a table, asking a judge.
WAIT = timedelta(hours=2)


def world() -> int:
    """How many processes train this model; a WORLD_SIZE that no launcher set (LOCAL_RANK) is a cluster's own."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def rank() -> int:
    """Which of them this one is; 0 leads."""
    return int(os.environ.get("RANK", "0")) if world() > 1 else 0


def sharding() -> str:
    """How the processes share the weights, as accelerate's configuration says: none, zero2, zero3 or fsdp2."""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        return "fsdp2"
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        return f"zero{os.environ.get('ACCELERATE_DEEPSPEED_ZERO_STAGE', '2')}"
    return "none"


def broadcast(value: Any = None) -> Any:
    """Rank 0's value, in every process; what the others pass is ignored."""
    if world() == 1:
        return value
    import torch

    _join_group()
    values = [value]
    torch.distributed.broadcast_object_list(values, src=0)
    return values[0]


def leave() -> None:
    """Wait for all processes and leave their group: one that ends while it is still in the group may take others with it."""
    if world() > 1:
        import torch

        broadcast()
        torch.distributed.destroy_process_group()


def any_of(flag: bool) -> bool:
    """Whether the flag is up in any of the processes; all have to ask."""
    return flag if world() == 1 else _summed(float(flag)) > 0


def mean(value: float) -> float:
    """The mean of a number over the processes; all have to ask, and all are there when one goes on."""
    return value if world() == 1 else _summed(value) / world()


def _summed(value: float) -> float:
    import torch

    number = torch.tensor(value, dtype=torch.float32, device=_join_group().device)
    torch.distributed.all_reduce(number)
    return number.item()


def _join_group() -> Any:
    """Where this process stands among the others, after meeting them if they have not met yet."""
    import torch
    from accelerate import PartialState

    cpu = not torch.cuda.is_available()
    if cpu:  # accelerate would number the one CPU for each process, and torch 2.13 restores no optimizer to `cpu:1`
        os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
    return PartialState(cpu=cpu, **({} if torch.distributed.is_initialized() else {"timeout": WAIT}))

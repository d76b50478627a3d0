"""The processes that train one model, one for each device: which of them writes, and what all of them agree on.

`accelerate launch` or torchrun starts them and describes them in the environment (RANK, WORLD_SIZE, LOCAL_RANK);
without WORLD_SIZE or LOCAL_RANK there is one process. Rank 0, the leader, takes the lock, logs and writes. The others
follow it step by step and write only their own part of a checkpoint.
"""

import os
from datetime import timedelta
from typing import Any

# The leader may be busy alone for a while: reading a table, asking a judge.
WAIT = timedelta(hours=2)


def world() -> int:
    """The number of processes that train this model. WORLD_SIZE without LOCAL_RANK is a cluster's own, and ignored."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def rank() -> int:
    """The rank of this process; 0 is the leader."""
    return int(os.environ.get("RANK", "0")) if world() > 1 else 0


def sharding() -> str:
    """How the processes share the weights, by accelerate's configuration: none, zero2, zero3 or fsdp2."""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        return "fsdp2"
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        return f"zero{os.environ.get('ACCELERATE_DEEPSPEED_ZERO_STAGE', '2')}"
    return "none"


def offloads() -> bool:
    """Whether the shares of FSDP2 and the inputs of layers stand in the host's memory (fsdp2-offload.yaml)."""
    return sharding() == "fsdp2" and os.environ.get("FSDP_OFFLOAD_PARAMS", "").lower() == "true"


def broadcast(value: Any = None) -> Any:
    """Rank 0's value, in every process; the values of the others are ignored. Every process has to call this."""
    if world() == 1:
        return value
    import torch

    _join_group()
    values = [value]
    torch.distributed.broadcast_object_list(values, src=0)
    return values[0]


def leave() -> None:
    """Wait for all processes and leave their group: a process that ends while in the group may take others with it."""
    if world() > 1:
        import torch

        broadcast()
        torch.distributed.destroy_process_group()


def any_of(flag: bool) -> bool:
    """Whether the flag is set in any of the processes. Every process has to call this."""
    return flag if world() == 1 else _summed(float(flag)) > 0


def mean(value: float) -> float:
    """The mean of a number over the processes. Every process has to call this, and waits until all have."""
    return value if world() == 1 else _summed(value) / world()


def _summed(value: float) -> float:
    import torch

    number = torch.tensor(value, dtype=torch.float32, device=_join_group().device)
    torch.distributed.all_reduce(number)
    return number.item()


def _join_group() -> Any:
    """accelerate's state of this process in the group, which the process joins first if it has not yet."""
    import torch
    from accelerate import PartialState

    cpu = not torch.cuda.is_available()
    if cpu:  # accelerate would number the CPU by process, and torch 2.13 restores no optimizer to `cpu:1`
        os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
    return PartialState(cpu=cpu, **({} if torch.distributed.is_initialized() else {"timeout": WAIT}))

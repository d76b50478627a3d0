"""The processes that train one model, one per device: ranks, and values that all of them share.

`accelerate launch` or torchrun starts them and describes them in the environment (RANK, WORLD_SIZE, LOCAL_RANK);
without WORLD_SIZE or LOCAL_RANK there is one process. Rank 0, the leader, takes the lock, logs and writes. The others
follow it step by step and write only their own part of a checkpoint.
"""

import os
from datetime import timedelta
from typing import Any

# The leader may work alone for a while: reading a table, calling a judge.
WAIT = timedelta(hours=2)


def world() -> int:
    """Return the number of processes that train this model. WORLD_SIZE without LOCAL_RANK is a cluster's: ignored."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def rank() -> int:
    """Return the rank of this process; 0 is the leader."""
    return int(os.environ.get("RANK", "0")) if world() > 1 else 0


def sharding() -> str:
    """Return how accelerate's configuration shards the weights: none, zero2, zero3 or fsdp2."""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        return "fsdp2"
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        return f"zero{os.environ.get('ACCELERATE_DEEPSPEED_ZERO_STAGE', '2')}"
    return "none"


def offloads() -> bool:
    """Return whether the shards of FSDP2 and the inputs of layers are in host memory (fsdp2-offload.yaml)."""
    return sharding() == "fsdp2" and os.environ.get("FSDP_OFFLOAD_PARAMS", "").lower() == "true"


def broadcast(value: Any = None) -> Any:
    """Return rank 0's value in every process; other values are ignored. Every process must call this."""
    if world() == 1:
        return value
    import torch

    _join_group()
    values = [value]
    torch.distributed.broadcast_object_list(values, src=0)
    return values[0]


def leave() -> None:
    """Wait for all processes and leave their group: a process that ends inside the group may stop others."""
    if world() > 1:
        import torch

        broadcast()
        torch.distributed.destroy_process_group()


def any_of(flag: bool) -> bool:
    """Return whether the flag is set in any process. Every process must call this."""
    return flag if world() == 1 else _sum(float(flag)) > 0


def mean(value: float) -> float:
    """Return the mean of a number over the processes. Every process must call this, and waits for all."""
    return value if world() == 1 else _sum(value) / world()


def _sum(value: float) -> float:
    import torch

    number = torch.tensor(value, dtype=torch.float32, device=_join_group().device)
    torch.distributed.all_reduce(number)
    return number.item()


def _join_group() -> Any:
    """Return accelerate's state of this process in the group; joins the group if needed."""
    import torch
    from accelerate import PartialState

    cpu = not torch.cuda.is_available()
    if cpu:  # accelerate would number the CPU by process, and torch 2.13 restores no optimizer to `cpu:1`
        os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
    return PartialState(cpu=cpu, **({} if torch.distributed.is_initialized() else {"timeout": WAIT}))

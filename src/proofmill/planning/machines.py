"""Machines by name, such as `8xH100` or `2x8xH100` (two of them), and the ways a training is spread over their GPUs.

The figures of a GPU are those of the vendor's paper that is named beside it (2026-11-23), without sparsity: memory and
bandwidth as sold, the rate of bfloat16 with sums in float32, the rate of plain float32. A GPU of 80 GB has a little more bytes than 80 billion, as
torch counts them; plans take the name at its word. Host memory is that of the vendor's own machine with eight (DGX), or
where there is none an assumption. `8x48GB` is a GPU of one's own; without rates its hours are not known.
"""

import re
from dataclasses import dataclass

from proofmill.runtime import free_memory
from proofmill.schema.errors import SettingError
from proofmill.text.suggestions import among
from proofmill.training import memory

GB = 10**9


@dataclass(frozen=True)
class Gpu:
    """One GPU: bytes, bytes a second, and operations a second in bfloat16 and in float32; `host`: bytes beside each."""

    bytes: int
    host: int
    bandwidth: float | None = None
    bfloat16: float | None = None
    float32: float | None = None

    def rate(self, precision: str) -> float | None:
        """Operations a second in a precision of the arithmetic, if known."""
        return self.bfloat16 if precision == "bfloat16" else self.float32


def _gpu(gigabytes: int, host: int, bandwidth: float, bfloat16: float, float32: float) -> Gpu:
    """In GB, GB a GPU, TB/s, and TFLOP/s."""
    return Gpu(gigabytes * GB, host * GB, bandwidth * 1e12, bfloat16 * 1e12, float32 * 1e12)


GPUS = {
    "B200": _gpu(
        180, 256, 8.0, 2250, 75
    ),  # NVIDIA, DGX B200 datasheet: 1,440 GB, 64 TB/s and 2 TB of host memory for 8
    "H200": _gpu(141, 256, 4.8, 989.5, 67),  # NVIDIA H200 datasheet (SXM); DGX H200: 2 TB
    "H100": _gpu(80, 256, 3.35, 989.5, 67),  # NVIDIA H100 datasheet (SXM); DGX H100: 2 TB
    "A100-80": _gpu(80, 256, 2.039, 312, 19.5),  # NVIDIA A100 datasheet (SXM); DGX A100: 2 TB
    "A100-40": _gpu(40, 128, 1.555, 312, 19.5),  # the same; DGX A100 of 320 GB: 1 TB
    "L40S": _gpu(48, 128, 0.864, 362, 91.6),  # NVIDIA L40S datasheet; host memory assumed
    "RTX-4090": _gpu(24, 64, 1.008, 165.2, 82.6),  # NVIDIA Ada whitepaper, appendix A; host memory assumed
}
OWN_HOST = 128 * GB  # of host memory beside a GPU that is not in the list (assumed)
ALSO = {"A100": "A100-80", "A100-80GB": "A100-80", "A100-40GB": "A100-40", "4090": "RTX-4090", "RTX4090": "RTX-4090"}
CPU = "cpu"
THREADS = 1  # of a job, as its rule has it (workflow/rules)


@dataclass(frozen=True)
class Machine:
    """`nodes` computers of `each` GPUs; without a GPU, this computer and its processors."""

    name: str
    gpu: Gpu | None
    each: int = 1
    nodes: int = 1

    @property
    def devices(self) -> int:
        return self.each * self.nodes

    @property
    def bytes(self) -> int | None:
        """Of one GPU, or what is free of this computer, whether it has GPUs or not."""
        return self.gpu.bytes if self.gpu else free_memory.least()

    @property
    def limit(self) -> float | None:
        """The bytes for which a job chooses the rows of a pass: all of a GPU, of this computer the part of its threads."""
        there = self.bytes
        return there if self.gpu or there is None else there * memory.part_of_machine(THREADS)

    @property
    def host(self) -> int | None:
        """Bytes of host memory of one computer; None where it is the memory that is planned with."""
        return self.gpu.host * self.each if self.gpu else None

    def computers(self, devices: int) -> int | None:
        """The fewest of its computers that have so many GPUs together, each as many as the others; None if none have."""
        numbers = range(1, self.nodes + 1)
        return next((n for n in numbers if devices % n == 0 and devices // n <= self.each), None)

    def larger(self, nodes: int) -> "Machine":
        """So many of its computers, each with as many GPUs as most have: eight."""
        kind = self.name.rpartition("x")[2]
        return Machine(f"{nodes}x8x{kind}" if nodes > 1 else f"8x{kind}", self.gpu, 8, nodes)


def machine(name: str) -> Machine:
    """The machine of a name; SettingError for one that nobody knows."""
    if name.lower() == CPU:
        return Machine(CPU, None)
    found = re.fullmatch(r"((?:[1-9]\d*x){0,2})(.+)", name, re.IGNORECASE)
    counts, called = (found[1].lower().split("x")[:-1], found[2]) if found else ([], name)
    kind = ALSO.get(called.upper(), called.upper())
    own = re.fullmatch(r"([1-9]\d*)GB", kind)
    if kind not in GPUS and not own:
        raise SettingError(
            f"--machine {name}: no such machine; expected GPUs with their number, such as 8xH100, 2x8xH100 (two computers) or "
            f"8x48GB (GPUs of your own), of {among(kind, GPUS)} Or cpu, this computer."
        )
    gpu = Gpu(int(own[1]) * GB, OWN_HOST) if own else GPUS[kind]
    nodes, each = [1, 1, *map(int, counts)][-2:]
    return Machine("x".join([*counts, kind]), gpu, each, nodes)


# ---------------------------------------------------------------------------------------------------------------- layouts


@dataclass(frozen=True)
class Layout:
    """How a training is spread over devices: its file in workflow/accelerate, and what that means for `memory.plan`."""

    name: str
    sharded: str = "none"
    offloaded: bool = False

    @property
    def file(self) -> str:
        return f"workflow/accelerate/{self.name}.yaml"


ONE = Layout("one process")
DDP, FSDP2, OFFLOADED = Layout("ddp"), Layout("fsdp2", "fsdp2"), Layout("fsdp2-offload", "fsdp2", offloaded=True)
# From the fastest on. DeepSpeed is in no lock, and shares out no more than FSDP2: it is planned only when it is launched.
LAYOUTS = (DDP, FSDP2, OFFLOADED)

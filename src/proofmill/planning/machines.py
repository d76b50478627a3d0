"""Machines by name, such as `8xH100` or `2x8xH100` (two nodes).

The figures of a GPU are from the NVIDIA document named next to it (2026-11-23), without sparsity: nominal memory and
bandwidth, bfloat16 rate with float32 accumulation, plain float32 rate, and the link between GPUs of a node in one
direction (NVLink, or PCIe of generation 4). torch sees more than the nominal size (85.0 billion bytes of an H100). Host
memory is that of a DGX with eight GPUs, else assumed. `8x48GB` is any GPU by its memory; its GPU-hours are unknown.
"""

import re
from dataclasses import dataclass

from proofmill.runtime import free_memory
from proofmill.schema.errors import SettingError
from proofmill.text.suggestions import among

GB, T = 10**9, 10**12


@dataclass(frozen=True)
class Gpu:
    """A GPU: bytes, bytes of host memory for it, and if known bytes and operations per second (else 0)."""

    bytes: int
    host: int
    bandwidth: float = 0
    bfloat16: float = 0
    float32: float = 0
    link: float = 0


GPUS = {
    "B200": Gpu(180 * GB, 256 * GB, 8.0 * T, 2250 * T, 75 * T, 900 * GB),  # DGX B200 datasheet, for 8: 64 TB/s, 2 TB
    "H200": Gpu(141 * GB, 256 * GB, 4.8 * T, 989.5 * T, 67 * T, 450 * GB),  # H200 datasheet (SXM); DGX H200: 2 TB
    "H100": Gpu(80 * GB, 256 * GB, 3.35 * T, 989.5 * T, 67 * T, 450 * GB),  # H100 datasheet (SXM); DGX H100: 2 TB
    "A100-80": Gpu(80 * GB, 256 * GB, 2.039 * T, 312 * T, 19.5 * T, 300 * GB),  # A100 datasheet (SXM); DGX A100: 2 TB
    "A100-40": Gpu(40 * GB, 128 * GB, 1.555 * T, 312 * T, 19.5 * T, 300 * GB),  # the same; DGX A100 of 320 GB: 1 TB
    "L40S": Gpu(48 * GB, 128 * GB, 0.864 * T, 362 * T, 91.6 * T, 32 * GB),  # L40S datasheet; host memory assumed
    "RTX-4090": Gpu(24 * GB, 64 * GB, 1.008 * T, 165.2 * T, 82.6 * T, 32 * GB),  # Ada whitepaper, A; host assumed
}
OWN_HOST = 128 * GB  # host memory for a GPU that is not listed (assumed)
ALSO = {"A100": "A100-80", "A100-80GB": "A100-80", "A100-40GB": "A100-40", "4090": "RTX-4090", "RTX4090": "RTX-4090"}


@dataclass(frozen=True)
class Machine:
    """`nodes` nodes with `each` GPUs; without a GPU, the CPUs of this machine."""

    name: str
    gpu: Gpu | None
    each: int = 1
    nodes: int = 1

    @property
    def devices(self) -> int:
        return self.each * self.nodes

    @property
    def bytes(self) -> int | None:
        """Bytes of one GPU, or the free memory of this machine; None if unknown."""
        return self.gpu.bytes if self.gpu else free_memory.least()

    @property
    def host(self) -> int:
        """Bytes of host memory of a node; 0 without a GPU, where `bytes` is the host memory."""
        return self.gpu.host * self.each if self.gpu else 0

    def nodes_for(self, devices: int) -> int | None:
        """Return the minimum number of nodes with `devices` GPUs in all, equally many on each; None if impossible."""
        numbers = range(1, self.nodes + 1)
        return next((n for n in numbers if devices % n == 0 and devices // n <= self.each), None)


def machine(name: str) -> Machine:
    """Return the machine of a name. Raises SettingError for an unknown one."""
    if name.lower() == "cpu":
        return Machine("cpu", None)
    match = re.fullmatch(r"((?:[1-9]\d*x){0,2})(.+)", name, re.IGNORECASE)
    counts, called = (match[1].lower().split("x")[:-1], match[2]) if match else ([], name)
    kind = ALSO.get(called.upper(), called.upper())
    own = re.fullmatch(r"([1-9]\d*)GB", kind)
    if kind not in GPUS and not own:
        raise SettingError(
            f"--machine {name}: no such machine; expected GPUs with their number, such as 8xH100, 2x8xH100 (two nodes) or "
            f"8x48GB (any GPU, by its memory); or cpu, this machine. Known GPUs: {among(kind, GPUS)}"
        )
    gpu = Gpu(int(own[1]) * GB, OWN_HOST) if own else GPUS[kind]
    nodes, each = [1, 1, *map(int, counts)][-2:]
    return Machine("x".join([*counts, kind]), gpu, each, nodes)

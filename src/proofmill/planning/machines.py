"""Reads machines by name, such as `8xH100` or `2x8xH100` (two of them).

The figures of a GPU are those of the vendor's paper that is named beside it (2026-11-23), without sparsity: memory and
bandwidth as sold, the rate of bfloat16 with sums in float32, the rate of plain float32. A GPU of 80 GB has a little more
bytes than 80 billion, as torch counts them; plans take the name at its word. Host memory is that of the vendor's own
machine with eight (DGX), or where there is none an assumption. `8x48GB` is a GPU of one's own; its hours are not known.
"""

import re
from dataclasses import dataclass

from proofmill.runtime import free_memory
from proofmill.schema.errors import SettingError
from proofmill.text.suggestions import among

GB, T = 10**9, 10**12


@dataclass(frozen=True)
class Gpu:
    """One GPU: bytes, bytes of host memory for it, and if known bytes and operations a second."""

    bytes: int
    host: int
    bandwidth: float = 0
    bfloat16: float = 0
    float32: float = 0


GPUS = {
    "B200": Gpu(180 * GB, 256 * GB, 8.0 * T, 2250 * T, 75 * T),  # NVIDIA DGX B200 datasheet, for 8: 64 TB/s, 2 TB
    "H200": Gpu(141 * GB, 256 * GB, 4.8 * T, 989.5 * T, 67 * T),  # NVIDIA H200 datasheet (SXM); DGX H200: 2 TB
    "H100": Gpu(80 * GB, 256 * GB, 3.35 * T, 989.5 * T, 67 * T),  # NVIDIA H100 datasheet (SXM); DGX H100: 2 TB
    "A100-80": Gpu(80 * GB, 256 * GB, 2.039 * T, 312 * T, 19.5 * T),  # NVIDIA A100 datasheet (SXM); DGX A100: 2 TB
    "A100-40": Gpu(40 * GB, 128 * GB, 1.555 * T, 312 * T, 19.5 * T),  # the same; DGX A100 of 320 GB: 1 TB
    "L40S": Gpu(48 * GB, 128 * GB, 0.864 * T, 362 * T, 91.6 * T),  # NVIDIA L40S datasheet; host memory assumed
    "RTX-4090": Gpu(
        24 * GB, 64 * GB, 1.008 * T, 165.2 * T, 82.6 * T
    ),  # NVIDIA Ada whitepaper, appendix A; host memory assumed
}
OWN_HOST = 128 * GB  # of host memory for a GPU that is not in the list (assumed)
ALSO = {"A100": "A100-80", "A100-80GB": "A100-80", "A100-40GB": "A100-40", "4090": "RTX-4090", "RTX4090": "RTX-4090"}


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
        """Return the bytes of one GPU, or those that are free on this computer, None if unknown."""
        return self.gpu.bytes if self.gpu else free_memory.least()

    @property
    def host(self) -> int:
        """Return the bytes of host memory of one computer; 0 for this one, whose memory is planned with itself."""
        return self.gpu.host * self.each if self.gpu else 0

    def computers(self, devices: int) -> int | None:
        """Return the fewest computers that have so many GPUs, as many on each; None if none have."""
        numbers = range(1, self.nodes + 1)
        return next((n for n in numbers if devices % n == 0 and devices // n <= self.each), None)


def machine(name: str) -> Machine:
    """Return the machine of a name; raise SettingError for an unknown one."""
    if name.lower() == "cpu":
        return Machine("cpu", None)
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

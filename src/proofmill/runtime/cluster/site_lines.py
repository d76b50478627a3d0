"""Lines of `site.yaml` for planned jobs: launch line, engine, GPUs, cores and host memory (see site_resources.py)."""

import math
from collections.abc import Iterator
from typing import Any

from proofmill.schema.kinds import list_trained
from proofmill.schema.names import kind_of

LAUNCHED = ("ddp", "fsdp2", "fsdp2-offload")  # files of workflow/accelerate, fastest first
LAUNCHING = "python -m proofmill.runtime.cluster.launching"
CORES = 8  # for each GPU; few machines have fewer
SPARE = 8e9  # bytes of host memory for each GPU that no plan counts: graders, tables, memory pinned by CUDA


def format_lines(verdicts: list[Any], machine: Any) -> Iterator[str]:
    """Yield a line for each kind of job, by which most stages start in their fastest way, and lines of other stages."""
    shared: dict[str, str] = {}
    own: dict[str, str] = {}
    for sort in (*list_trained(), "inference"):
        ways: dict[Any, dict[str, Any]] = {}
        for v in verdicts:
            if v.fits and not v.judge and sort == ("inference" if v.asks else kind_of(v.stage)):
                ways.setdefault(v.ways[0].start, {})[v.stage] = v.ways[0]
        for start in sorted(ways, key=lambda start: (len(ways[start]), start), reverse=True):
            words = _format_words(sort, [*ways[start].values()], machine)
            own |= dict.fromkeys(ways[start], words) if sort in shared else {}
            shared.setdefault(sort, words)
    if shared:
        yield ""
        yield "for `site.yaml` (docs/cluster.md), for all stages that fit:"
        yield from (f"  {part}: {words}" for part, words in {**shared, **own}.items())


def _format_words(sort: str, ways: list[Any], machine: Any) -> str:
    """Return the settings for jobs that start in one way, with vLLM's server on GPUs of its own.

    Several nodes are requested with all their GPUs, since SLURM could otherwise give each a different number.
    """
    way, alone = ways[0], machine.nodes == 1
    nodes, flags = machine.nodes_for(way.devices) or 1, ""
    if way.devices // nodes != machine.each - way.apart * alone:
        flags += f" --processes {way.devices // nodes}"
    if way.apart:
        flags += f" --rollout-gpus {way.apart}" if alone else " --rollout-node"
        nodes += not alone
        if way.parallel > 1:
            replicas = f"--data-parallel-size {way.apart // way.parallel}"
            flags += f' --server-args="--tensor-parallel-size {way.parallel} {replicas}"'
    gpus = (machine.each * nodes if nodes > 1 else way.devices + way.apart) // nodes  # on each node
    needed = min(max(way.host_bytes for way in ways) + SPARE * gpus, machine.host)
    megabytes = 1000 * math.ceil(needed / 2**20 / 1000)  # SLURM's unit is 2^20 bytes
    words = [f"nodes: {nodes}"] * (nodes > 1)
    words += [f"gpu: {gpus * nodes}", f"cpus_per_task: {CORES * gpus}", f"mem_mb: {megabytes}"]
    if way.layout in LAUNCHED or way.apart:
        words.append(f"launch: {LAUNCHING} {way.layout if way.layout in LAUNCHED else LAUNCHED[0]}{flags}")
    words += [f"engine: vllm{'-server' * bool(way.apart)}"] * (sort != "sft")
    words += [f"engine_args: --tensor-parallel-size {way.parallel}"] * (way.parallel > 1 and not way.apart)
    return f"{{{', '.join(words)}}}"

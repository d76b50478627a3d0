"""Verdicts on a machine as text: a table, what does not fit and what would, and lines for `site.yaml`."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from proofmill.planning import hours
from proofmill.planning.trainings import LAUNCHED
from proofmill.schema.kinds import list_trained
from proofmill.schema.names import kind_of
from proofmill.training.memory import size

LAUNCHING = "python -m proofmill.runtime.cluster.launching"
CORES = 8  # for each GPU; few machines have fewer
SPARE = 8e9  # bytes of host memory for each GPU that no plan counts: graders, tables, memory pinned by CUDA
HEAD = ("", "model", "tokens", "how", "a GPU", "", "GPU-hours")
WORDS = {True: "fits", False: "does not fit", None: "not known"}


def lines(feasibility: Any) -> Iterator[str]:
    """Yield a line for each stage, then why some do not fit and what would, then sums and lines of `site.yaml`."""
    machine, verdicts = feasibility.machine, feasibility.verdicts
    if machine.gpu:
        about = f"{machine.devices} GPUs of {size(machine.gpu.bytes)}, {size(machine.host)} of host memory for {machine.each}"
    else:
        about = "this machine, no GPU" + (f", {size(machine.bytes)} free" if machine.bytes is not None else "")
    yield f"{feasibility.plan.target} on {machine.name}: {about}"
    if not verdicts:
        yield "none of the stages to run loads weights"
        return
    yield ""
    yield from _table(verdicts)
    yield ""
    yield from _summary(verdicts, feasibility.fill)
    if machine.gpu:
        yield from _site(verdicts, machine)


def _table(verdicts: list[Any]) -> Iterator[str]:
    """Yield the verdicts as a table. Stages of a kind that use equal weights in the same way share a row."""
    groups: dict[Any, list[Any]] = {}
    for verdict in verdicts:
        key = (kind_of(verdict.stage) if verdict.asks else verdict.stage, verdict.model, _cells(verdict))
        groups.setdefault(key, []).append(verdict)
    rows = [HEAD]
    for (_, _, cells), alike in groups.items():
        known = [verdict.gpu_hours for verdict in alike if verdict.gpu_hours is not None]
        others = f" and {len(alike) - 1} more" * (len(alike) > 1)
        rows.append((alike[0].stage + others, *cells, _hours(sum(known)) if len(known) == len(alike) else ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, "<>><><>", widths, strict=True)
        yield "  ".join(f"{cell:{side}{width}}" for cell, side, width in cells).rstrip()


def _cells(verdict: Any) -> tuple[str, ...]:
    """Return the cells of a row: parameters, tokens, how the stage runs, bytes per device, and the verdict."""
    parameters = "?" if verdict.parameters is None else f"{verdict.parameters / 1e9:,.2f} B"
    how = taken = ""
    if verdict.fits:
        way, taken = verdict.ways[0], size(verdict.ways[0].bytes)
        words = [way.layout + f" x {way.devices}" * (way.devices > 1)]
        words += [f"{way.rows} row{'s' * (way.rows > 1)}"] * bool(way.rows) + ["recomputed"] * way.again
        if way.share is not None:
            words.append(f"vLLM {way.share:.0%}" + f" by {way.parallel}" * (way.parallel > 1))
        how = ", ".join(words + [f"server {way.apart}"] * bool(way.apart))
    return parameters, f"{verdict.tokens:,}", how, taken, WORDS[verdict.fits]


def _hours(number: float) -> str:
    """Return hours with a precision that fits their size."""
    return "< 0.1" if number < 0.05 else f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def _summary(verdicts: list[Any], fill: float) -> Iterator[str]:
    """Yield why stages do not fit and what would help, each reason once; then the sums."""
    faults: dict[str, list[str]] = {}
    for verdict in verdicts:
        for fault in verdict.faults:
            faults.setdefault(fault, []).append(verdict.stage)
    for fault, stages in faults.items():
        others = f" and {len(stages) - 2} more" * (len(stages) > 2)
        yield f"{', '.join(stages[:2])}{others}: {fault}"
    counts = {word: sum(verdict.fits is fits for verdict in verdicts) for fits, word in WORDS.items()}
    yield ", ".join(f"{word}: {count}" for word, count in counts.items() if count)
    if known := [verdict.gpu_hours for verdict in verdicts if verdict.gpu_hours is not None]:
        yield (
            f"{_hours(sum(known))} GPU-hours for {len(known)} of {len(verdicts)}, if the mean length of texts is {fill:g} of the maximum; "
            f"assumes {hours.LEARNING:.0%} of the GPU's peak rate in training and {hours.READING:.0%} of its bandwidth in "
            "sampling; without judges"
        )
    benchmarks = sorted(
        {verdict.stage.split("@")[1] for verdict in verdicts if "@" in verdict.stage and verdict.gpu_hours}
    )
    hours_of = {each: sum(v.gpu_hours or 0 for v in verdicts if f"@{each}@" in v.stage) for each in benchmarks}
    if len(hours_of) > 1:
        yield "by benchmark: " + ", ".join(f"{name} {_hours(number)}" for name, number in hours_of.items())


def _site(verdicts: list[Any], machine: Any) -> Iterator[str]:
    """Yield lines of `site.yaml`: for each kind of job, the line that fits most stages; then the exceptions."""
    shared: dict[str, str] = {}
    own = []
    for sort in (*list_trained(), "inference"):
        left = [v for v in verdicts if v.fits and sort == ("inference" if v.asks else kind_of(v.stage))]
        while left:
            number = Counter(way.start for v in left for way in v.ways)
            most = max((v.ways[0].start for v in left), key=lambda start: (number[start], start))
            started = {v.stage: way for v in left for way in v.ways if way.start == most}
            words = _words(sort, list(started.values()), machine)
            if sort in shared:
                own.append(f"in a separate run: {', '.join(started)} with {words}")
            shared.setdefault(sort, words)
            left = [v for v in left if v.stage not in started]
    if shared:
        yield ""
        yield f"for `site.yaml` (docs/cluster.md), for all stages that fit{', with the exceptions below' * bool(own)}:"
        yield from (f"  {sort}: {words}" for sort, words in shared.items())
        yield from own


def _words(sort: str, ways: list[Any], machine: Any) -> str:
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

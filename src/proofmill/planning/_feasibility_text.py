"""The verdicts on a machine as text for people: a table, what does not fit and what would, and lines for `site.yaml`."""

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from proofmill.engines import fitting
from proofmill.planning import hours
from proofmill.planning.machines import DDP, LAYOUTS, ONE
from proofmill.planning.trainings import Training
from proofmill.schema.kinds import learned
from proofmill.schema.names import kind_of
from proofmill.training import memory
from proofmill.training.memory import size

LAUNCHING = "python -m proofmill.runtime.cluster.launching"
CORES = 8  # for each GPU; hardly a computer has fewer
SPARE = 8e9  # bytes of host memory for each GPU, for what no plan counts: graders, tables, what CUDA pins
NAME = 40  # characters of a name that a line has room for
HEAD = ("", "model", "tokens", "how", "a GPU", "GPU-hours", "")


def lines(whole: Any) -> Iterator[str]:
    """The verdicts: a line for each stage, then what does not fit, then sums and the lines of `site.yaml`."""
    machine, verdicts = whole.machine, whole.verdicts
    yield f"{whole.plan.target} on {machine.name}: {_about(machine)}"
    if not verdicts:
        yield "no stage to be made holds weights"
        return
    yield ""
    yield from _table([HEAD, *(_row(alike) for alike in _alike(verdicts))])
    yield from _remarks(verdicts)
    yield ""
    yield from _sums(whole)
    yield from _site(whole)


def _about(machine: Any) -> str:
    if machine.gpu is None:
        there = machine.bytes
        return f"this computer, {'memory unknown' if there is None else f'{size(there)} free'}, no GPU"
    host = f"{size(machine.host)} of host memory{' in each of ' * (machine.nodes > 1)}"
    return f"{machine.devices} GPUs of {size(machine.gpu.bytes)}, {host}{f'{machine.nodes} computers' * (machine.nodes > 1)}"


def _alike(verdicts: list[Any]) -> list[list[Any]]:
    """The verdicts in groups: stages that ask weights of one shape in one way, on however many problems, are a line."""
    groups: dict[Any, list[Any]] = {}
    for verdict in verdicts:
        same = verdict.model, verdict.tokens, verdict.parallel, verdict.fits, kind_of(verdict.stage)
        groups.setdefault(same if verdict.asks else verdict.stage, []).append(verdict)
    return list(groups.values())


def _row(alike: list[Any]) -> tuple[str, ...]:
    verdict, known = alike[0], [one.gpu_hours for one in alike if one.gpu_hours is not None]
    parameters = "?" if verdict.parameters is None else _billions(verdict.parameters)
    taken = size(verdict.bytes) if verdict.fits and verdict.bytes is not None else ""
    gpu_hours = _hours(sum(known)) if len(known) == len(alike) else ""
    word = {None: "not known", True: "fits", False: "does not fit"}[verdict.fits]
    others = f" and {len(alike) - 1} more" * (len(alike) > 1)
    name, room = verdict.stage, NAME - len(others)
    shown = name if len(name) <= room else f"{name[: room // 2 - 1]}…{name[-(room // 2) :]}"
    return shown + others, parameters, f"{verdict.tokens:,}", _how(verdict), taken, gpu_hours, word


def _how(verdict: Any) -> str:
    """The layout of a training, the rows of a pass, whether activations are recomputed, vLLM's share; or vLLM's GPUs."""
    if not verdict.fits:
        return ""
    if verdict.asks:
        return f"vLLM on {verdict.parallel} GPU{'s' * (verdict.parallel > 1)}" if verdict.parallel else "processors"
    again = ", recomputed" if verdict.again else ""
    together = f" by {verdict.parallel}" if verdict.parallel > 1 else ""
    share = f", vLLM {verdict.share:.0%}{together}" if verdict.share is not None else ""
    share += f", server {verdict.apart}" * bool(verdict.apart)
    spread = verdict.layout.name if verdict.layout == ONE else f"{verdict.layout.name} x {verdict.devices}"
    return f"{spread}, {verdict.rows} row{'s' * (verdict.rows > 1)}{again}{share}"


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:,.1f} B" if parameters >= 1e8 else f"{parameters / 1e6:,.1f} M"


def _hours(number: float) -> str:
    if number < 0.05:
        return "< 0.1"
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        shown = [
            f"{cell:<{width}}" if number in (0, 3, 6) else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(shown).rstrip()


def _remarks(verdicts: list[Any]) -> Iterator[str]:
    """Why stages do not fit and what would, and what else is worth knowing: the same of several stages once."""
    said: dict[str, list[str]] = {}
    for verdict in verdicts:
        for text in (*(["; ".join(verdict.faults)] if verdict.faults else []), *verdict.notes):
            said.setdefault(text, []).append(verdict.stage)
    if said:
        yield ""
    for text, stages in said.items():
        others = f" and {len(stages) - 2} more" * (len(stages) > 2)
        yield f"{', '.join(stages[:2])}{others}: {text}"


def _sums(whole: Any) -> Iterator[str]:
    verdicts = whole.verdicts
    counts = [sum(verdict.fits is fits for verdict in verdicts) for fits in (True, False, None)]
    words = ("fit", "do not fit", "not known until their models are fetched")
    yield ", ".join(f"{count} {word}" for count, word in zip(counts, words, strict=True) if count)
    known = [verdict.gpu_hours for verdict in verdicts if verdict.gpu_hours is not None]
    if known:
        length = (
            "if each text is as long as is allowed" if whole.fill == 1 else f"at {whole.fill:g} of the length allowed"
        )
        unknown = len(verdicts) - len(known)
        without = f", without {unknown} stage{'s' * (unknown > 1)}" * bool(unknown)
        yield (
            f"{_hours(sum(known))} GPU-hours {length}{without}; assumed are {hours.LEARNING:.0%} of the GPU's rate while learning "
            f"and {hours.READING:.0%} of its bandwidth while writing; judges are not in it"
        )


def _site(whole: Any) -> Iterator[str]:
    """Lines of `site.yaml`: for each sort of job what most of its stages take; then those that take something else."""
    if whole.machine.gpu is None:
        return
    wanted, apart = {}, []
    for kind in learned():
        trained = [v for v in whole.verdicts if v.fits and not v.asks and kind_of(v.stage) == kind]
        for group in _groups(trained, whole):
            first, words = group[0], _training(kind, group, whole.machine)
            if first.apart:
                why = "vLLM's server samples ahead (`lag`)"
            elif kind not in wanted:
                wanted[kind] = words
                continue
            else:
                why = (
                    "whole weights are kept on each GPU" if all(v.whole for v in group) else "spread unlike the others"
                )
            apart.append(f"{', '.join(v.stage for v in group)} by {words}: {why}")
    asking = [v for v in whole.verdicts if v.fits and v.asks]
    for parallel in sorted({v.parallel for v in asking}, reverse=True):
        if whole.share([v for v in asking if v.parallel <= parallel], parallel):
            wanted["serve"] = _serving([v for v in asking if v.parallel <= parallel], parallel, whole.machine)
            for v in (v for v in asking if v.parallel > parallel):
                own = _serving([v], v.parallel, whole.machine)
                apart.append(f"{v.stage} by {own}: others are not shared out to so many")
            break
    if wanted:
        yield ""
        yield f"for `site.yaml` (docs/cluster.md), so that all that fits does{', but for what is below' * bool(apart)}:"
        yield from (f"  {sort}: {words}" for sort, words in wanted.items())
    yield from (f"in a run of its own: {text}" for text in apart)


def _groups(verdicts: list[Any], whole: Any) -> Iterator[list[Any]]:
    """The verdicts on trainings in groups that one line starts: the largest first, of equal ones the neediest."""
    while verdicts:
        ways = {(v.layout, v.devices, v.parallel, v.apart): v for v in verdicts}
        groups = [[alike for v in verdicts if (alike := _started(v, way, whole))] for way in ways.values()]
        largest = max(groups, key=lambda group: (not group[0].apart, len(group), *_need(group[0])))
        yield largest
        verdicts = [v for v in verdicts if v.stage not in {alike.stage for alike in largest}]


def _need(verdict: Any) -> tuple[int, int]:
    return (ONE, *LAYOUTS).index(verdict.layout), verdict.devices


def _started(verdict: Any, way: Any, whole: Any) -> Any:
    """The verdict on a training that is started as another one, on as many GPUs; None where it does not fit so."""
    if (verdict.devices, verdict.parallel, verdict.apart) != (way.devices, way.parallel, way.apart):
        return None
    if verdict.layout == way.layout:
        return verdict
    entry = whole.plan.book.entries[verdict.stage]
    training, shape = Training(verdict.stage, entry, whole.plan, whole.shapes), whole.shapes.of(entry.model)
    attempt = training.attempt(shape, whole.machine, way.layout)
    if attempt.fault or attempt.parallel != way.parallel or way.layout not in training.layouts(shape, whole.machine):
        return None
    return replace(verdict, layout=way.layout, host_bytes=attempt.host_bytes)


def _training(kind: str, group: list[Any], machine: Any) -> str:
    """The words for trainings on the GPUs of their verdicts, with vLLM's server on the others that they have apart.

    Several nodes are asked for whole, since SLURM need not give as many GPUs on each of them.
    """
    layout, devices, parallel, apart = group[0].layout, group[0].devices, group[0].parallel, group[0].apart
    nodes, words, options = machine.computers(devices) or 1, [], ""
    if devices // nodes != machine.each - (apart if machine.nodes == 1 else 0):
        options = f" --processes {devices // nodes}"
    if apart:
        options += f" --rollout-gpus {apart}" if machine.nodes == 1 else " --rollout-node"
        if parallel > 1:
            options += f' --server-args="--tensor-parallel-size {parallel} --data-parallel-size {apart // parallel}"'
        nodes += machine.nodes > 1
    gpus = machine.each * nodes if nodes > 1 else devices + apart
    beside = [_served_bytes(v, apart) if apart and nodes == 1 else 0 for v in group]
    there = max(v.host_bytes + more for v, more in zip(group, beside, strict=True))
    words += [f"nodes: {nodes}"] * (nodes > 1) + [f"gpu: {gpus}", _beside(gpus // nodes, there, machine)]
    if layout != ONE or apart:
        words.append(f"launch: {LAUNCHING} {DDP.name if layout == ONE else layout.name}{options}")
    words += [f"engine: vllm{'-server' * bool(apart)}"] * (kind != "sft")
    words += [f"engine_args: --tensor-parallel-size {parallel}"] * (parallel > 1 and not apart)
    return f"{{{', '.join(words)}}}"


def _serving(verdicts: list[Any], parallel: int, machine: Any) -> str:
    """The words for jobs that ask weights of ours, on so many GPUs."""
    there = max(_served_bytes(v, parallel) for v in verdicts)
    shared = f", engine_args: --tensor-parallel-size {parallel}" * (parallel > 1)
    return f"{{gpu: {parallel}, {_beside(parallel, there, machine)}, engine: vllm{shared}}}"


def _served_bytes(verdict: Any, gpus: int) -> float:
    """Bytes of host memory of vLLM on so many GPUs: a process for each and one before them, and the files it reads."""
    return (gpus + 1) * fitting.LIBRARIES + memory.WIDTH["bfloat16"] * (verdict.parameters or 0)


def _beside(gpus: int, there: float, machine: Any) -> str:
    """The words for the cores and the memory of a computer that a job takes with so many of its GPUs."""
    megabytes = 1000 * math.ceil(min(there + SPARE * gpus, machine.host) / 2**20 / 1000)  # to SLURM, of 2^20 bytes
    return f"cpus_per_task: {CORES * gpus}, mem_mb: {megabytes}"


def data(whole: Any) -> dict[str, Any]:
    """The verdicts for programs."""
    machine = whole.machine
    return {
        "machine": machine.name,
        "devices": machine.devices,
        "bytes": machine.bytes,
        "fits": whole.fits,
        "stages": [
            {**asdict(verdict), "layout": verdict.layout.name if verdict.layout else None} for verdict in whole.verdicts
        ],
    }

"""Plan a training on a machine: possible layouts, their memory, and GPU-hours.

Rows and layouts are chosen by the code that the job uses (training/micro_batches.py); memory is estimated by `memory.plan`.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from proofmill import grpo, selfplay
from proofmill.engines import rollout_engines, vllm_memory
from proofmill.planning import hours, machines
from proofmill.planning.hours import Estimate, Rollouts, Server
from proofmill.planning.machines import Machine
from proofmill.planning.plan import RunPlan
from proofmill.planning.shapes import Shapes
from proofmill.runtime.cluster.site_lines import LAUNCHED
from proofmill.schema.entries.evaluation_fields import count_evaluations
from proofmill.schema.names import kind_of
from proofmill.training import memory, micro_batches

# Distribution of a stage over devices, in order of increasing requirements, with its arguments of `memory.plan`. Layouts of
# several processes have the names of files in workflow/accelerate. DeepSpeed, which shards no more, is not planned.
LAYOUTS: dict[str, dict[str, Any]] = {
    **{"processors": {}, "vLLM": {}, "one process": {}, "ddp": {}, "fsdp2": {"sharded": "fsdp2"}},
    "fsdp2-offload": {"sharded": "fsdp2", "offloaded": True},
}
THREADS = 1  # threads of a job in its rule (workflow/rules)
LARGER = ("8x", "2x8x", "4x8x", "8x8x", "16x8x", "32x8x")  # larger machines to try if a stage does not fit


@dataclass(frozen=True)
class Way:
    """A way to run a stage on a machine: its resources and settings, and why it does not fit ("" if it does)."""

    layout: str
    devices: int = 1
    rows: int = 0  # of a micro-batch
    again: bool = False  # activations are recomputed
    parallel: int = 1  # GPUs that share vLLM's weights
    share: float | None = None  # share of a GPU for vLLM during a training
    apart: int = 0  # further GPUs for vLLM's server of asynchronous rollouts (`max-staleness`)
    bytes: int = 0  # on each device
    host_bytes: int = 0  # host memory on each node
    fault: str = ""
    trained: int = 0  # parameters

    @property
    def start(self) -> tuple[int, ...]:
        """Sort key of its line in `site.yaml`; a larger key needs more."""
        return [*LAYOUTS].index(self.layout), self.devices, self.parallel, self.apart


class Training:
    """The parts of an entry that determine memory and time of a training. Methods need a known shape (`network`)."""

    def __init__(self, name: str, entry: Any, plan: RunPlan, shapes: Shapes):
        self.entry, self.kind, self.plan = entry, kind_of(name), plan
        self.network = shapes.of(entry.model)
        self.samples = self.kind != "sft"
        self.others: list[str] = []  # further models that the training loads: preference models and a teacher
        self.teacher: Any = None
        self.staleness = getattr(entry, "max_staleness", 0)
        self.mini_batches = getattr(entry, "mini_batches", 1)  # steps per rollout batch
        self.at_least = micro_batches.LENGTHS if self.kind == "grpo" and not self.staleness else 1
        if self.kind == "sft":
            self.batch, self.footprint = entry.batch_size, {"tokens": entry.max_length}
        elif self.kind == "grpo":
            self.batch, preferences = entry.problems_per_step * entry.group_size, grpo.reward_models(entry)
            taught_by = grpo.find_loaded_teacher(entry)
            self.others = [*preferences, *([taught_by] if taught_by else [])]
            self.teacher, tasters = taught_by and shapes.of(taught_by), [*map(shapes.of, preferences)]
            self.footprint = grpo.footprint(entry, self.network, tasters, teacher=self.teacher)
        else:
            self.batch, self.footprint = entry.rows, selfplay.footprint(entry)
        self.tokens = self.footprint["tokens"]
        self.longest = self.footprint.get("trained_tokens", self.tokens)
        self.reference = bool(self.footprint.get("reference"))  # for a KL divergence
        quantized = ["`quantized`"] * bool((entry.lora or {}).get("quantized"))
        # The fields that need full weights on each device.
        self.unsharded = ["`reference-sync-steps`"] * bool(getattr(entry, "reference_sync_steps", None)) + quantized

    def ways(self, machine: Machine, any_layout: bool = False, fill: float = 1.0) -> list[Way]:
        """Return the ways to run it, the fastest first; with `any_layout`, also those that its settings forbid.

        Each uses the most devices, equally many on each node, that divide the batch, and with `summarizer` the rollouts of
        a problem. If none fits, the faults are those of the first split of the GPUs.
        """
        together = self.entry.group_size * self.entry.summaries if getattr(self.entry, "summarizer", None) else 1
        ways: list[Way] = []
        for replica, apart in self._servers(machine):
            alone = replace(machine, each=machine.each - apart)
            rest = alone if machine.nodes == 1 else replace(machine, nodes=machine.nodes - bool(apart))
            divisors = (d for d in range(rest.devices, 0, -1) if self.batch % d == 0 and rest.nodes_for(d))
            devices = next((d for d in divisors if self.batch // d * self.mini_batches % together == 0), 1)
            layouts = LAUNCHED if devices > 1 else ("one process",)
            allowed = layouts[:1] if self.unsharded and not any_layout else layouts
            split = [way for layout in allowed for way in self._lay_out(machine, layout, devices, apart, replica)]
            ways += [way for way in split if not way.fault or not ways]
        fewest = {way.layout: way.parallel for way in sorted(ways, key=lambda way: way.parallel, reverse=True)}

        def rank(way: Way) -> tuple[bool, float]:
            estimate = None if way.fault else self.estimate(way, machine, fill)
            gain = hours.GAIN ** ((way.parallel > fewest[way.layout]) + (way.layout == "fsdp2-offload"))
            return bool(way.fault), estimate.wall.mean() * gain if estimate else way.parallel

        return sorted(ways, key=rank)

    def _servers(self, machine: Machine) -> list[tuple[int, int]]:
        """Return the GPUs of a replica and of the server for rollouts ahead: some of one node, or all of the last; or 0."""
        if not (machine.gpu and self.staleness):
            return [(0, 0)]
        room = vllm_memory.ALONE * machine.gpu.bytes
        numbers = vllm_memory.shares_for(self.network, machine.each, room, self.tokens) or [machine.each]
        if machine.nodes > 1:
            return [(replica, machine.each) for replica in numbers]
        splits = [(replica, apart) for replica in numbers for apart in range(replica, machine.each, replica)]
        return splits or [(numbers[0], 0)]

    def _lay_out(self, machine: Machine, layout: str, devices: int, apart: int, replica: int) -> list[Way]:
        """Return the ways of a layout, which differ in the GPUs that share vLLM's weights (with more, caches hold more)."""
        part, device_bytes = self.batch // devices, machine.bytes
        at_once = {} if machine.gpu or not self.samples else rollout_engines.footprint({}, part * self.mini_batches)
        place = memory.Placement(devices, **LAYOUTS[layout], device_bytes=device_bytes, cuda=machine.gpu is not None)
        planned = micro_batches.planner(self.network, self.entry, place=place, **self.footprint, **at_once)
        limit = device_bytes if machine.gpu or device_bytes is None else device_bytes * memory.part_of_machine(THREADS)
        offloaded = layout == "fsdp2-offload"  # its launch file turns on recomputation
        most, again = max(part // self.at_least, 1), False if offloaded else None
        rows, again = micro_batches.choice(planned, part, limit, most, recompute=again)
        plan, together = planned(rows, again), devices // (machine.nodes_for(devices) or 1)
        # Each DDP process loads its weights and moves them to its GPU before it loads a reference; FSDP2's first loads both.
        models = 1 + self.reference if "sharded" in LAYOUTS[layout] else together
        held = memory.precision_in_memory(self.network.config, self.entry.precision, self.entry.lora)
        read = memory.WIDTH[held] * plan.parameters * models + plan.learning["reward models"]
        kept = plan.host * together
        taken = max(read, kept) + round(vllm_memory.LIBRARIES) * together
        taken += vllm_memory.count_server_bytes(self.network, apart) * bool(apart and machine.nodes == 1)
        share, room, numbers = None, 0, [replica or 1]
        if self.samples and machine.gpu and not replica:
            share = vllm_memory.share_left(plan.resident, machine.gpu.bytes)
            room = round(share * machine.gpu.bytes)
            numbers = vllm_memory.shares_for(self.network, together, room, self.tokens)
        fault = ""
        if replica and not apart:
            fault = f"`max-staleness` needs at least {replica} further GPUs for its rollout server, which {machine.name} does not have"
        elif device_bytes is not None and plan.needed > memory.TIGHT * device_bytes:
            needed, most = memory.size(plan.needed), memory.size(device_bytes)
            fault = f"{layout}: needs {needed}, more than 90 % of {most} (largest part: {plan.largest})"
        elif machine.host and max(read, kept) > memory.TIGHT * machine.host:
            sizes = f"needs {memory.size(read)} of host memory to load the weights, {memory.size(kept)} in training"
            fault = f"{layout}: {sizes}, of {memory.size(machine.host)}"
        elif not numbers:
            fault = f"{layout}: {memory.size(plan.resident)} of permanent memory leave vLLM no room for a rollout"
        device = max(plan.step, plan.resident + room)
        way = Way(layout, devices, rows, again or offloaded, 1, share, apart, device, taken, fault, plan.trained)
        return [replace(way, parallel=number) for number in numbers or [1]]

    def remedy(self, machine: Machine) -> str:
        """Return a remedy: the machine without settings that need full weights, or the smallest larger machine."""
        names = " and ".join(self.unsharded)
        without = names and f"without {names}, which need full weights on each device, "
        larger = [machines.machine(count + machine.name.rpartition("x")[2]) for count in LARGER]
        for other in [*[machine] * bool(names), *(m for m in larger if m.devices > machine.devices)]:
            if way := next((way for way in self.ways(other, any_layout=True) if not way.fault), None):
                return f"{without}fits {other.name} with {way.layout}, {memory.size(way.bytes)} per GPU"
        return f"{without}does not fit {larger[-1].name} either: use a smaller model"

    def estimate(self, way: Way, machine: Machine, fill: float) -> Estimate | None:
        """Return the GPU-hours and days if texts have `fill` of the maximum length; None if unknown."""
        rows, gpu, sampled = self._count_rows(), machine.gpu, self._count_texts() if self.samples else 0
        if not (gpu and gpu.bandwidth) or rows is None or sampled is None:
            return None
        texts = Rollouts(sampled, self.tokens - self.longest, fill * self.longest, self.longest)
        entry, devices, batches, forwards = self.entry, way.devices, rows / self.batch, float(self.reference)
        if self.teacher:
            forwards += hours.active(self.teacher) / hours.active(self.network)
        if self.samples and not self.staleness:
            # A further forward pass computes the probabilities of rollouts before their first step. Several steps need
            # them, and so does the correction of vLLM's. Asynchronous rollouts come with their own.
            several = self.mini_batches > 1 or entry.iterations > 1
            forwards += several or rollout_engines.correction(entry)["vllm_importance_sampling_correction"]
        length = texts.prompt + texts.written
        learned = hours.learning(self.network, rows * length, length, gpu, entry.precision, way.again, forwards)
        micro_batches, added = math.ceil(self.batch / devices / max(way.rows, 1)), np.zeros(2)
        sizes = memory.parameters(self.network), way.trained
        if devices > 1:
            link = gpu.link if machine.nodes_for(devices) == 1 else hours.NETWORK
            added += hours.exchanging(*sizes, micro_batches * ("sharded" in LAYOUTS[way.layout]), link)
        if way.layout == "fsdp2-offload":
            inputs = memory.layer_inputs(self.network, round(way.rows * length), entry.precision)
            added += hours.offloading(*sizes, inputs, devices, micro_batches)
        training = learned / devices + batches * added / 3600
        if not self.samples:
            return Estimate(learned, training, devices)
        at_once = self.batch * self.mini_batches * (1 + self.staleness) * way.parallel / (way.apart or devices)
        room = (vllm_memory.ALONE if way.share is None else way.share) * gpu.bytes
        busy, waited = hours.sampling(self.network, texts, Server(gpu, room, way.parallel, max(1.0, at_once)))
        moved = memory.WIDTH["bfloat16"] * memory.parameters(self.network) / hours.COPYING / 3600
        moving = batches / getattr(entry, "iterations", 1) / self.mini_batches * moved
        # A server samples next to the training; the slower of both decides.
        wall = np.maximum(training, busy / way.apart) if way.apart else training + (busy + waited) / devices
        return Estimate(learned + busy, wall + moving, devices + way.apart)

    def _count_texts(self) -> float | None:
        """Return the number of texts that a training samples; None if unknown."""
        entry, sampled = self.entry, self.count_rollouts()
        evaluated = count_evaluations(entry, self.plan.rows_of)
        if getattr(entry, "summarizer", None):  # reasoning turns of each problem
            sampled += sampled * entry.turns / (entry.summaries * entry.group_size)
        if self.kind == "selfplay" and entry.proposer != "absent":  # proposals that are not trained on, and attempts
            each = (entry.proposer == "frozen") + entry.attempts * entry.needs_accuracy
            sampled += entry.steps / entry.iterations * entry.batch_size * len(entry.tasks) * each
        return None if evaluated is None else sampled + evaluated

    def count_rollouts(self) -> float:
        """Return the number of rollouts that are graded for a reward, at most."""
        rounds = self.entry.idle_rounds if getattr(self.entry, "idle", "") == "replace" else 1
        return rounds * (self._count_rows() or 0) / getattr(self.entry, "iterations", 1)

    def _count_rows(self) -> float | None:
        """Return the rows of a training, without those of one that it continues; None if unknown."""
        rows, before = self._rows(self.entry), getattr(self.entry, "continues", None)
        return rows - (self._rows(self.plan.config.entries[before]) or 0) if rows and before else rows

    def _rows(self, entry: Any) -> float | None:
        """Return the rows from the first step to the last, including those of a continued training; None if unknown."""
        if steps := getattr(entry, "last_step", None) or entry.steps:
            return steps * self.batch
        examples = self.plan.rows_of(entry.examples)
        return None if examples is None else examples * entry.epochs

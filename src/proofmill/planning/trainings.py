"""Plan a training on a machine: possible layouts, their memory, and GPU-hours.

Rows and layouts are chosen by the code that the job uses (training/micro_batches.py); memory is estimated by `memory.plan`.
"""

from dataclasses import dataclass, replace
from typing import Any

from proofmill import grpo, selfplay
from proofmill.engines import rollout_engines, vllm_memory
from proofmill.planning import hours, machines
from proofmill.planning.machines import Machine
from proofmill.planning.plan import RunPlan
from proofmill.planning.shapes import Shapes
from proofmill.schema.entries.evaluation_fields import count_evaluations
from proofmill.schema.names import kind_of
from proofmill.training import memory, micro_batches

# Distribution of a stage over devices, in order of increasing requirements, with its arguments of `memory.plan`. Layouts of
# several processes have the names of files in workflow/accelerate. DeepSpeed is in no lock file and shards no more than
# FSDP2, so it is planned only when it is launched.
LAYOUTS: dict[str, dict[str, Any]] = {
    **{"processors": {}, "vLLM": {}, "one process": {}, "ddp": {}, "fsdp2": {"sharded": "fsdp2"}},
    "fsdp2-offload": {"sharded": "fsdp2", "offloaded": True},
}
LAUNCHED = ("ddp", "fsdp2", "fsdp2-offload")  # fastest first
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

    @property
    def start(self) -> tuple[int, ...]:
        """Sort key of its line in `site.yaml`; a larger key needs more."""
        return [*LAYOUTS].index(self.layout), self.devices, self.parallel, self.apart


def shares(network: Any, devices: int) -> list[int]:
    """Return the numbers of GPUs over which vLLM can split a model: powers of two that divide its heads.

    Key-value heads must divide evenly, or be replicated evenly; vLLM refuses other numbers.
    """
    model_config = network.config.get_text_config()
    heads = model_config.num_attention_heads
    groups = getattr(model_config, "num_key_value_heads", None) or heads
    numbers = [p for p in (1, 2, 4, 8) if p <= devices and devices % p == 0 and heads % p == 0]
    return [p for p in numbers if groups % p == 0 or p % groups == 0]


def shares_for(network: Any, devices: int, room: float, tokens: int, stored: str = "") -> list[int]:
    """Return the numbers of GPUs on which vLLM, with `room` bytes of each, holds a model and a row of `tokens`."""
    return [p for p in shares(network, devices) if vllm_memory.count_cached_tokens(network, room, p, stored) >= tokens]


def count_server_bytes(network: Any, gpus: int) -> int:
    """Return vLLM's host memory in bytes: one process per GPU and one more, and the files that it reads."""
    return round((gpus + 1) * vllm_memory.LIBRARIES) + memory.WIDTH["bfloat16"] * memory.parameters(network)


class Training:
    """The parts of an entry that determine memory and time of a training of any kind.

    `network` is None if its shape is unknown. The other methods need a known shape.
    """

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
            self.others = [*preferences, *([entry.teacher] if entry.teacher else [])]
            self.teacher, tasters = entry.teacher and shapes.of(entry.teacher), [*map(shapes.of, preferences)]
            self.footprint = grpo.footprint(entry, self.network, tasters, teacher=self.teacher)
        else:
            self.batch, self.footprint = entry.rows, selfplay.footprint(entry)
        self.tokens = self.footprint["tokens"]
        self.longest = self.footprint.get("trained_tokens", self.tokens)
        self.reference = bool(self.footprint.get("reference"))  # for a KL divergence
        quantized = ["`quantized`"] * bool((entry.lora or {}).get("quantized"))
        # The fields that need full weights on each device.
        self.unsharded = ["`reference-sync-steps`"] * bool(getattr(entry, "reference_sync_steps", None)) + quantized

    def ways(self, machine: Machine, any_layout: bool = False) -> list[Way]:
        """Return the ways to run it, the fastest first; with `any_layout`, also those that its settings forbid.

        Uses the largest number of devices, equally many on each node, that divides the batch, and with `summarizer` also
        the rollouts of a problem. An asynchronous rollout server gets some GPUs of a single node, or all of the last of
        several.
        """
        served, rest = 0, machine
        if machine.gpu and self.staleness:
            room, alone = vllm_memory.ALONE * machine.gpu.bytes, machine.nodes == 1
            served = next(iter(shares_for(self.network, machine.each, room, self.tokens)), machine.each)
            rest = replace(machine, each=machine.each - served * alone, nodes=machine.nodes - (not alone))
        together = self.entry.group_size * self.entry.summaries if getattr(self.entry, "summarizer", None) else 1
        divisors = (d for d in range(rest.devices, 0, -1) if self.batch % d == 0 and rest.nodes_for(d))
        devices = next((d for d in divisors if self.batch // d * self.mini_batches % together == 0), 1)
        layouts = LAUNCHED if devices > 1 else ["one process"]
        allowed = layouts if any_layout else layouts[:1] if self.unsharded else layouts
        return [self._way(machine, layout, devices, served) for layout in allowed]

    def _way(self, machine: Machine, layout: str, devices: int, served: int) -> Way:
        """Return the way of a layout, with a rollout server that needs at least `served` GPUs (0: no server)."""
        part, device_bytes = self.batch // devices, machine.bytes
        at_once = {} if machine.gpu or not self.samples else rollout_engines.footprint({}, part * self.mini_batches)
        place = memory.Placement(devices, **LAYOUTS[layout], device_bytes=device_bytes, cuda=machine.gpu is not None)
        planned = micro_batches.planner(self.network, self.entry, place=place, **self.footprint, **at_once)
        limit = device_bytes if machine.gpu or device_bytes is None else device_bytes * memory.part_of_machine(THREADS)
        offloaded = layout == "fsdp2-offload"  # its launch file turns on recomputation
        most, again = max(part // self.at_least, 1), False if offloaded else None
        rows, again = micro_batches.choice(planned, part, limit, most, recompute=again)
        plan, together = planned(rows, again), devices // (machine.nodes_for(devices) or 1)
        # Trained weights are loaded as float32. Each DDP process loads the full model, and moves it to its GPU before it
        # loads a reference. With FSDP2, the first process loads both before sharding them.
        models = 1 + self.reference if "sharded" in LAYOUTS[layout] else together
        held = memory.precision_in_memory(self.network.config, self.entry.precision, self.entry.lora)
        read = memory.WIDTH[held] * plan.parameters * models + plan.learning["reward models"]
        kept = plan.host * together
        taken, apart = max(read, kept) + round(vllm_memory.LIBRARIES) * together, 0
        if served:
            apart = (machine.each - devices * (machine.nodes == 1)) // served * served
            taken += count_server_bytes(self.network, apart) * (machine.nodes == 1)
        share, room, numbers = None, 0.0, [served or 1]
        if self.samples and machine.gpu and not served:
            share = vllm_memory.share_left(plan.resident, machine.gpu.bytes)
            room = share * machine.gpu.bytes
            numbers = shares_for(self.network, together, room, self.tokens)
        fault = ""
        if served and not apart:
            fault = f"`max-staleness` needs at least {served} further GPUs for its rollout server, which {machine.name} does not have"
        elif device_bytes is not None and plan.needed > memory.TIGHT * device_bytes:
            needed, most = memory.size(plan.needed), memory.size(device_bytes)
            fault = f"{layout}: needs {needed}, more than 90 % of {most} (largest part: {plan.largest})"
        elif machine.host and max(read, kept) > memory.TIGHT * machine.host:
            sizes = f"needs {memory.size(read)} of host memory to load the weights, {memory.size(kept)} in training"
            fault = f"{layout}: {sizes}, of {memory.size(machine.host)}"
        elif not numbers:
            fault = f"{layout}: {memory.size(plan.resident)} of permanent memory leave vLLM no room for a rollout"
        parallel, device = next(iter(numbers), 1), max(plan.step, plan.resident + round(room))
        return Way(layout, devices, rows, again or offloaded, parallel, share, apart, device, taken, fault)

    def remedy(self, machine: Machine) -> str:
        """Return a remedy: the machine without settings that need full weights, or the smallest larger machine."""
        names = " and ".join(self.unsharded)
        without = names and f"without {names}, which need full weights on each device, "
        larger = [machines.machine(count + machine.name.rpartition("x")[2]) for count in LARGER]
        for other in [*[machine] * bool(names), *(m for m in larger if m.devices > machine.devices)]:
            if way := next((way for way in self.ways(other, any_layout=True) if not way.fault), None):
                return f"{without}fits {other.name} with {way.layout}, {memory.size(way.bytes)} per GPU"
        return f"{without}does not fit {larger[-1].name} either: use a smaller model"

    def gpu_hours(self, way: Way, machine: Machine, fill: float) -> float | None:
        """Return the maximum GPU-hours if texts have `fill` of the maximum length; None if unknown."""
        rows, entry, gpu = self._rows(self.entry), self.entry, machine.gpu
        if not (gpu and gpu.bandwidth) or rows is None:
            return None
        if before := getattr(entry, "continues", None):
            rows -= self._rows(self.plan.config.entries[before]) or 0
        prompt, forwards = self.tokens - self.longest, float(self.reference)
        if self.teacher:
            forwards += hours.active(self.teacher) / hours.active(self.network)
        if self.samples and not self.staleness:
            # A further forward pass computes the probabilities of rollouts before their first step. Several steps need
            # them, and so does the correction of vLLM's. Asynchronous rollouts come with their own.
            several = self.mini_batches > 1 or entry.iterations > 1
            forwards += several or rollout_engines.correction(entry)["vllm_importance_sampling_correction"]
        length = prompt + fill * self.longest
        taken = hours.learning(self.network, rows * length, length, gpu, entry.precision, way.again, forwards)
        if not self.samples:
            return taken
        sampled = rows / getattr(entry, "iterations", 1)
        if getattr(entry, "summarizer", None):  # reasoning turns of each problem
            sampled += sampled * entry.turns / (entry.summaries * entry.group_size)
        if getattr(entry, "idle", "") == "replace":
            sampled *= entry.idle_rounds
        attempts = count_evaluations(entry, self.plan.rows_of)
        if attempts is None:
            return None
        sampled += attempts
        if self.kind == "selfplay":  # attempts at each valid task
            sampled += entry.steps * entry.batch_size * len(entry.tasks) * entry.attempts
        texts = hours.Rollouts(sampled, prompt, fill * self.longest)
        each = self.batch // way.devices * self.mini_batches * way.parallel
        room = (vllm_memory.ALONE if way.share is None else way.share) * gpu.bytes
        return taken + hours.sampling(self.network, texts, gpu, room, way.parallel, each)

    def _rows(self, entry: Any) -> float | None:
        """Return the rows from the first step to the last, including those of a continued training; None if unknown."""
        if steps := getattr(entry, "last_step", None) or entry.steps:
            return steps * self.batch
        examples = self.plan.rows_of(entry.examples)
        return None if examples is None else examples * entry.epochs

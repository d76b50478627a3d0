"""Plans a training on a machine: the layouts it may take, what each needs, and the GPU-hours.

Rows and layouts are chosen as the job itself chooses them (training/passes.py), and memory is that of `memory.plan`.
"""

from dataclasses import dataclass, replace
from typing import Any

from proofmill import grpo, selfplay
from proofmill.engines import fitting, rollouts
from proofmill.planning import hours, machines
from proofmill.planning.machines import Machine
from proofmill.planning.plan import Plan
from proofmill.planning.shapes import Shapes
from proofmill.schema.names import kind_of
from proofmill.training import memory, passes

# How a stage is spread over devices, from the one that needs least on, and what that means for `memory.plan`. Trainings by
# several processes bear the names of files in workflow/accelerate. DeepSpeed is in no lock, and shares out no more than
# FSDP2: it is planned only when it is launched.
LAYOUTS: dict[str, dict[str, Any]] = {
    **{"processors": {}, "vLLM": {}, "one process": {}, "ddp": {}, "fsdp2": {"sharded": "fsdp2"}},
    "fsdp2-offload": {"sharded": "fsdp2", "offloaded": True},
}
LAUNCHED = ("ddp", "fsdp2", "fsdp2-offload")  # from the fastest on
THREADS = 1  # of a job, as its rule has it (workflow/rules)
LARGER = ("8x", "2x8x", "4x8x", "8x8x", "16x8x", "32x8x")  # machines that are tried where a stage does not fit


@dataclass(frozen=True)
class Way:
    """One way to run a stage on a machine: what its job takes and chooses, and why that does not fit ("" if it does)."""

    layout: str
    devices: int = 1
    rows: int = 0  # of a pass
    again: bool = False  # activations are computed again
    parallel: int = 1  # GPUs that share vLLM's weights
    share: float | None = None  # of a GPU, that vLLM takes next to a training
    apart: int = 0  # further GPUs, of vLLM's server, where rollouts are made ahead (`lag`)
    bytes: int = 0  # on each device
    host_bytes: int = 0  # of the memory of each computer, outside its GPUs
    fault: str = ""

    @property
    def start(self) -> tuple[int, ...]:
        """Return what a line of `site.yaml` says of it: a larger one needs more."""
        return [*LAYOUTS].index(self.layout), self.devices, self.parallel, self.apart


def shares(network: Any, devices: int) -> list[int]:
    """Return the numbers of GPUs that vLLM can share a model out to: powers of two that divide its heads.

    Its groups of keys are divided too, or each is on as many GPUs as others: vLLM refuses what is neither.
    """
    config = network.config.get_text_config()
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    numbers = [p for p in (1, 2, 4, 8) if p <= devices and devices % p == 0 and heads % p == 0]
    return [p for p in numbers if groups % p == 0 or p % groups == 0]


def shares_for(network: Any, devices: int, room: float, tokens: int, stored: str = "") -> list[int]:
    """Return those on which vLLM, with so many bytes of each GPU, holds a model and a row of so many tokens."""
    return [p for p in shares(network, devices) if fitting.held_on_gpu(network, room, p, stored) >= tokens]


def served_bytes(network: Any, gpus: int) -> int:
    """Return the bytes of host memory of vLLM on so many GPUs: a process for each and one more, and the files it reads."""
    return round((gpus + 1) * fitting.LIBRARIES) + memory.WIDTH["bfloat16"] * memory.parameters(network)


class Training:
    """A training by the parts of its entry that decide memory and time, whatever its kind.

    `network` is None while its shape is not known; the ways are those of a known one.
    """

    def __init__(self, name: str, entry: Any, plan: Plan, shapes: Shapes):
        self.entry, self.kind, self.plan = entry, kind_of(name), plan
        self.network = shapes.of(entry.model)
        self.samples = self.kind != "sft"
        self.tasters: list[str] = []  # reward models, whose weights are next to its own
        self.lag = getattr(entry, "lag", 0)
        self.rounds = getattr(entry, "batches", 1)  # steps that share a round of rollouts
        self.at_least = passes.LENGTHS if self.kind == "grpo" and not self.lag else 1
        if self.kind == "sft":
            self.batch, self.beside = entry.batch, {"tokens": entry.max_length}
        elif self.kind == "grpo":
            self.batch, self.tasters = entry.problems_per_step * entry.group, grpo.reward_models(entry)
            self.beside = grpo.footprint(entry, self.network, [shapes.of(other) for other in self.tasters])
        else:
            self.batch, self.beside = entry.rows, selfplay.footprint(entry)
        self.tokens = self.beside["tokens"]
        self.longest = self.beside.get("learned_tokens", self.tokens)
        self.reference = bool(self.beside.get("reference"))  # of a divergence
        quantized = ["`quantized`"] * bool((entry.adapter or {}).get("quantized"))
        # The fields that need whole weights on each device.
        self.whole = ["`sync-reference`"] * bool(getattr(entry, "sync_reference", None)) + quantized

    def ways(self, machine: Machine, any_layout: bool = False) -> list[Way]:
        """Return the ways to run it, the fastest first; with `any_layout` also those that its settings forbid.

        It takes the most devices, as many on each computer, among which its batch divides, and with `summarizer` the
        rollouts of a problem too. A server that samples ahead has some GPUs of the only computer, or all of the last of
        several.
        """
        served, rest = 0, machine
        if machine.gpu and self.lag:
            room, alone = fitting.ALONE * machine.gpu.bytes, machine.nodes == 1
            served = next(iter(shares_for(self.network, machine.each, room, self.tokens)), machine.each)
            rest = replace(machine, each=machine.each - served * alone, nodes=machine.nodes - (not alone))
        together = self.entry.group * self.entry.states if getattr(self.entry, "summarizer", None) else 1
        divisors = (d for d in range(rest.devices, 0, -1) if self.batch % d == 0 and rest.computers(d))
        devices = next((d for d in divisors if self.batch // d * self.rounds % together == 0), 1)
        layouts = LAUNCHED if devices > 1 else ["one process"]
        allowed = layouts if any_layout else layouts[:1] if self.whole else layouts
        return [self._way(machine, layout, devices, served) for layout in allowed]

    def _way(self, machine: Machine, layout: str, devices: int, served: int) -> Way:
        """Return what its job chooses in a layout, with a server that takes so many GPUs at least (0: none)."""
        part, there = self.batch // devices, machine.bytes
        at_once = {} if machine.gpu or not self.samples else rollouts.footprint({}, part * self.rounds)
        planned = passes.planner(
            self.network, self.entry, devices=devices, there=there, cuda=machine.gpu is not None,
            **LAYOUTS[layout], **self.beside, **at_once,
        )  # fmt: skip
        limit = there if machine.gpu or there is None else there * memory.part_of_machine(THREADS)
        offloaded = layout == "fsdp2-offload"  # whose launch file has activations computed again
        most, again = max(part // self.at_least, 1), False if offloaded else None
        rows, again = passes.choice(planned, part, limit, most, again=again)
        plan, together = planned(rows, again), devices // (machine.computers(devices) or 1)
        # Weights are read as float32. Each process of DDP reads the whole model, and moves it to its GPU before it reads a
        # reference. Of FSDP2 the first one does, and shares both out when they are there.
        models = 1 + self.reference if "sharded" in LAYOUTS[layout] else together
        read = memory.WIDTH["float32"] * plan.parameters * models + plan.learning["reward models"]
        kept = plan.host * together
        taken, apart = max(read, kept) + round(fitting.LIBRARIES) * together, 0
        if served:
            apart = (machine.each - devices * (machine.nodes == 1)) // served * served
            taken += served_bytes(self.network, apart) * (machine.nodes == 1)
        share, room, numbers = None, 0.0, [served or 1]
        if self.samples and machine.gpu and not served:
            share = fitting.share_left(plan.resident, machine.gpu.bytes)
            room = share * machine.gpu.bytes
            numbers = shares_for(self.network, together, room, self.tokens)
        fault = ""
        if served and not apart:
            fault = f"`lag` samples on GPUs of its own, {served} of them at least, and {machine.name} has no more"
        elif there is not None and plan.needed > memory.TIGHT * there:
            needed, most = memory.size(plan.needed), memory.size(there)
            fault = f"{layout}: {needed}, more than nine tenths of {most} ({plan.largest} most)"
        elif machine.host and max(read, kept) > memory.TIGHT * machine.host:
            sizes = f"{memory.size(read)} of host memory for reading the weights, {memory.size(kept)} for what it keeps there"
            fault = f"{layout}: {sizes}, of {memory.size(machine.host)}"
        elif not numbers:
            fault = f"{layout}: {memory.size(plan.resident)} stay all the time and leave vLLM no room for a rollout"
        parallel, device = next(iter(numbers), 1), max(plan.step, plan.resident + round(room))
        return Way(layout, devices, rows, again or offloaded, parallel, share, apart, device, taken, fault)

    def remedy(self, machine: Machine) -> str:
        """Return what would fit: the same without settings that keep weights whole, or the smallest larger machine."""
        names = " and ".join(self.whole)
        without = names and f"without {names}, for which each device has whole weights, "
        larger = [machines.machine(count + machine.name.rpartition("x")[2]) for count in LARGER]
        for other in [*[machine] * bool(names), *(m for m in larger if m.devices > machine.devices)]:
            if way := next((way for way in self.ways(other, any_layout=True) if not way.fault), None):
                return f"{without}fits {other.name} by {way.layout}, {memory.size(way.bytes)} a GPU"
        return f"{without}does not fit {larger[-1].name} either: a smaller model"

    def gpu_hours(self, way: Way, machine: Machine, fill: float) -> float | None:
        """Return the most GPU-hours, if what is learned and written is `fill` of the longest; None if that is not known."""
        rows, entry, gpu = self._rows(self.entry), self.entry, machine.gpu
        if not (gpu and gpu.bandwidth) or rows is None:
            return None
        if before := getattr(entry, "continues", None):
            rows -= self._rows(self.plan.book.entries[before]) or 0
        prompt, beside = self.tokens - self.longest, int(self.reference)
        if self.samples and not self.lag:
            # A further pass computes the probabilities that rollouts had before the first of their steps: those of several
            # steps need them, and vLLM's are corrected by them. What samples ahead sends its own.
            several = self.rounds > 1 or entry.iterations > 1
            beside += several or rollouts.correction(entry)["vllm_importance_sampling_correction"]
        length = prompt + fill * self.longest
        taken = hours.learning(self.network, rows * length, length, gpu, entry.precision, way.again, beside)
        if not self.samples:
            return taken
        sampled = rows / getattr(entry, "iterations", 1)
        if getattr(entry, "summarizer", None):  # each problem is thought about in turns before
            sampled += sampled * entry.turns / (entry.states * entry.group)
        if self.kind == "selfplay":  # each valid task is attempted, too
            sampled += entry.steps * entry.batch * len(entry.tasks) * entry.attempts
        texts = hours.Rollouts(sampled, prompt, fill * self.longest)
        each = self.batch // way.devices * self.rounds * way.parallel
        room = (fitting.ALONE if way.share is None else way.share) * gpu.bytes
        return taken + hours.sampling(self.network, texts, gpu, room, way.parallel, each)

    def _rows(self, entry: Any) -> float | None:
        """Return the rows from the first step to the last, whichever training makes them; None if not known."""
        if steps := getattr(entry, "last_step", None) or entry.steps:
            return steps * self.batch
        examples = self.plan.rows_of(entry.examples)
        return None if examples is None else examples * entry.epochs

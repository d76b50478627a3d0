"""A training on a machine that is not there: the layouts it may take, what each needs, and the GPU-hours.

Rows and layouts are chosen as the job itself chooses them (training/passes.py), and memory is that of `memory.plan`.
"""

from dataclasses import dataclass, replace
from typing import Any

from proofmill import grpo, selfplay
from proofmill.engines import fitting, rollouts
from proofmill.planning import hours
from proofmill.planning.architectures import Shape, Shapes
from proofmill.planning.machines import DDP, LAYOUTS, ONE, Layout, Machine
from proofmill.planning.plan import Plan
from proofmill.schema.entries import Examples
from proofmill.schema.errors import SettingError
from proofmill.schema.names import kind_of
from proofmill.training import memory, passes

CLUSTERS = (1, 2, 4, 8, 16, 32)  # computers of eight GPUs that are tried where a stage does not fit


@dataclass(frozen=True)
class Attempt:
    """A training in one layout: what it chose, and why that does not fit ("" if it does)."""

    layout: Layout
    devices: int
    rows: int
    again: bool
    plan: memory.Plan
    fault: str = ""
    parallel: int = 1
    share: float | None = None
    together: int = 1  # processes on a computer
    reference: bool = False  # of a divergence, which is read, too

    @property
    def bytes(self) -> int:
        return max(self.plan.step, self.plan.resident + round((self.share or 0) * (self.plan.there or 0)))

    @property
    def read_bytes(self) -> int:
        """Bytes of host memory of a computer while weights are read, as float32.

        Each process of DDP reads the whole model, and moves it to its GPU before it reads a reference. Of FSDP2 the first
        one does, and shares both out when they are there. Reward models stand beside them in the first.
        """
        whole = memory.WIDTH["float32"] * self.plan.parameters
        shared_out = self.layout.sharded == "fsdp2"
        models = 1 + self.reference if shared_out else self.together
        return whole * models + self.plan.learning["reward models"]

    @property
    def kept_bytes(self) -> int:
        """Bytes of host memory of a computer for what stands there in the place of the GPUs (fsdp2-offload.yaml)."""
        return self.plan.host * self.together

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory that the processes of a computer take, with their libraries."""
        return max(self.read_bytes, self.kept_bytes) + round(fitting.LIBRARIES) * self.together


def shares(network: Any, devices: int) -> list[int]:
    """The numbers of GPUs that vLLM can share a model out to: powers of two that divide its heads.

    Its groups of keys are divided too, or each stands on as many GPUs as others: vLLM refuses what is neither.
    """
    config = network.config.get_text_config()
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    return [
        p
        for p in (1, 2, 4, 8)
        if p <= devices and devices % p == 0 and heads % p == 0 and (groups % p == 0 or p % groups == 0)
    ]


class Training:
    """A training by the parts of its entry that decide memory and time, whatever its kind."""

    def __init__(self, name: str, entry: Any, plan: Plan, shapes: Shapes):
        self.name, self.entry, self.kind, self.plan, self.shapes = name, entry, kind_of(name), plan, shapes
        self.samples = self.kind != "sft"
        self.tasters: list[str] = []  # reward models, whose weights stand beside its own
        self.lag = getattr(entry, "lag", 0)
        self.at_least = passes.LENGTHS if self.kind == "grpo" and not self.lag else 1
        if self.kind == "sft":
            self.batch, self.beside, self.limit = entry.batch, {"tokens": entry.max_length}, "max-length"
        elif self.kind == "grpo":
            self.batch, self.limit = entry.problems_per_step * entry.group, "max-tokens"
            self.tasters = grpo.reward_models(entry)
            tasters = [self._network(other) for other in self.tasters]
            self.beside = grpo.footprint(entry, self._network(entry.model), tasters)
        else:
            self.batch, self.beside, self.limit = entry.rows, selfplay.footprint(entry), "max-tokens"

    def _network(self, name: str) -> Any:
        """A model without numbers, which takes the memory of its shape; None while that is not known."""
        return (shape := self.shapes.of(name)) and shape.network

    @property
    def longest(self) -> int:
        """The most tokens of what is learned."""
        return self.beside.get("learned_tokens", self.beside["tokens"])

    @property
    def rounds(self) -> int:
        """Steps that share a round of rollouts."""
        return getattr(self.entry, "batches", 1)

    @property
    def forbidden(self) -> list[str]:
        """The fields of the entry that need whole weights on each device."""
        quantized = ["quantized"] * bool((self.entry.adapter or {}).get("quantized"))
        return ["sync-reference"] * bool(getattr(self.entry, "sync_reference", None)) + quantized

    def layouts(self, shape: Shape, machine: Machine) -> list[Layout]:
        """The layouts that its settings allow."""
        return [DDP] if self.forbidden and self.devices(shape, machine) > 1 else self.any_layouts(shape, machine)

    def any_layouts(self, shape: Shape, machine: Machine) -> list[Layout]:
        """The layouts that there are for so many devices, whatever its settings."""
        return [ONE] if self.devices(shape, machine) == 1 else list(LAYOUTS)

    def served(self, shape: Shape, machine: Machine) -> int:
        """The fewest GPUs of a server that samples ahead of the training (`lag`); 0 where nothing does, or no GPU is there."""
        if machine.gpu is None or not self.lag:
            return 0
        room, tokens = fitting.ALONE * machine.gpu.bytes, self.beside["tokens"]
        numbers = shares(shape.network, machine.each)
        return next((p for p in numbers if fitting.held_on_gpu(shape.network, room, p) >= tokens), machine.each)

    def devices(self, shape: Shape, machine: Machine) -> int:
        """The most devices, as many on each computer, among which its batch divides, and with `summarizer` the rollouts
        of a problem too. A server that samples ahead has some of the only computer, or all of the last of several.
        """
        together = self.entry.group * self.entry.states if getattr(self.entry, "summarizer", None) else 1
        if served := self.served(shape, machine):
            alone = machine.nodes == 1
            machine = (
                replace(machine, each=machine.each - served) if alone else replace(machine, nodes=machine.nodes - 1)
            )
        divisors = (d for d in range(machine.devices, 0, -1) if self.batch % d == 0 and machine.computers(d))
        return next((d for d in divisors if self.batch // d * self.rounds % together == 0), 1)

    def attempt(self, shape: Shape, machine: Machine, layout: Layout) -> Attempt:
        """The training in a layout, with what it would choose."""
        devices, served, there = self.devices(shape, machine), self.served(shape, machine), machine.bytes
        share = self.batch // devices
        at_once = {} if machine.gpu or not self.samples else rollouts.footprint({}, share * self.rounds)
        planned = passes.planner(
            shape.network, self.entry, devices=devices, sharded=layout.sharded, offloaded=layout.offloaded,
            there=there, cuda=machine.gpu is not None, **self.beside, **at_once,
        )  # fmt: skip
        most, again = max(share // self.at_least, 1), False if layout.offloaded else None
        rows, again = passes.choice(planned, share, machine.limit, most, again=again)
        attempt = Attempt(
            layout, devices, rows, again, planned(rows, again), parallel=served or 1,
            together=devices // (machine.computers(devices) or 1), reference=bool(self.beside.get("reference")),
        )  # fmt: skip
        resident, fault = attempt.plan.resident, self._fault(attempt, machine)
        if served and devices + served > machine.devices:
            fault = f"`lag` samples on GPUs of its own, {served} of them at least, and {machine.name} has no more"
        if fault or served or not (self.samples and machine.gpu and there):
            return replace(attempt, fault=fault)
        for parallel in shares(shape.network, attempt.together):
            asked = {"tensor_parallel_size": parallel}
            try:
                options = fitting.beside_training(
                    self.name, shape.network, resident, there, self.beside["tokens"], asked
                )
            except SettingError:
                continue
            return replace(attempt, parallel=parallel, share=options["gpu_memory_utilization"])
        no_room = f"{layout.name}: {memory.size(resident)} stand all the time and leave vLLM no room for a rollout"
        return replace(attempt, fault=no_room)

    def _fault(self, attempt: Attempt, machine: Machine) -> str:
        """Why the device or its host is too small, if one is."""
        there, plan, layout = machine.bytes, attempt.plan, attempt.layout
        needed = plan.step if machine.gpu else plan.needed
        if there is not None and needed > memory.TIGHT * there:
            return f"{layout.name}: {memory.size(needed)}, more than nine tenths of {memory.size(there)} ({plan.largest} most)"
        parts = (("reading the weights", attempt.read_bytes), ("what it keeps there", attempt.kept_bytes))
        for what, bytes_there in parts:
            if machine.host is not None and bytes_there > memory.TIGHT * machine.host:
                return f"{layout.name}: {memory.size(bytes_there)} of host memory for {what}, of {memory.size(machine.host)}"
        return ""

    def remedies(self, shape: Shape, machine: Machine) -> list[str]:
        """What would fit: the same without a setting that forbids sharing, or the smallest larger machine."""
        if machine.gpu is None:
            return []
        said = ""
        if forbidden := self.forbidden:
            said = "without it, " if forbidden == ["sync-reference"] else "without them, "
            names = " and ".join(f"`{name}`" for name in forbidden)
            said = f"{names} keep{'s' * (len(forbidden) == 1)} whole weights on each device; {said}"
        larger = [machine.larger(nodes) for nodes in CLUSTERS]
        for other in [*([machine] if said else []), *(m for m in larger if m.devices > machine.devices)]:
            for layout in self.any_layouts(shape, other):
                if not (attempt := self.attempt(shape, other, layout)).fault:
                    return [f"{said}fits {other.name} by {layout.name}, {memory.size(attempt.bytes)} a GPU"]
        return [f"{said}fits no {CLUSTERS[-1]} computers of 8 such GPUs either: a smaller model"]

    def gpu_hours(self, shape: Shape, chosen: Attempt, machine: Machine, fill: float) -> float | None:
        """At most so many GPU-hours, if what is learned and written is `fill` of the longest; None if that is not known."""
        rows = self._rows()
        if machine.gpu is None or rows is None:
            return None
        prompt = self.beside["tokens"] - self.longest
        length, entry = prompt + fill * self.longest, self.entry
        beside = bool(self.beside.get("reference")) + self.probabilities_before
        again = chosen.again or chosen.layout.offloaded
        taken = hours.learning(shape.network, rows * length, length, machine.gpu, entry.precision, again, beside)
        if not self.samples or taken is None:
            return taken
        sampled = rows / getattr(entry, "iterations", 1)
        if getattr(entry, "summarizer", None):  # each problem is thought about in turns before
            sampled += sampled * entry.turns / (entry.states * entry.group)
        if self.kind == "selfplay":  # each valid task is attempted, too
            sampled += entry.steps * entry.batch * len(entry.tasks) * entry.attempts
        texts = hours.Rollouts(sampled, prompt, fill * self.longest)
        each = self.batch // chosen.devices * self.rounds * chosen.parallel
        room = (fitting.ALONE if chosen.share is None else chosen.share) * machine.gpu.bytes
        written = hours.sampling(shape.network, texts, machine.gpu, room, chosen.parallel, each)
        return None if written is None else taken + written

    @property
    def probabilities_before(self) -> bool:
        """Whether a further pass computes the probabilities that rollouts had before the first of their steps.

        Those of several steps need them, and vLLM's are corrected by them; what samples ahead sends its own (`lag`).
        """
        if not self.samples or self.lag:
            return False
        several = self.rounds > 1 or self.entry.iterations > 1
        return several or rollouts.correction(self.entry)["vllm_importance_sampling_correction"]

    def _rows(self) -> float | None:
        """The rows that its steps learn, at most; None while the number of examples is not known."""
        rows, before = self._rows_to_the_end(self.entry), 0.0
        if self.kind == "sft" and self.entry.continues:
            before = self._rows_to_the_end(self.plan.book.entries[self.entry.continues]) or 0.0
        return None if rows is None else rows - before

    def _rows_to_the_end(self, entry: Any) -> float | None:
        """The rows from the first step to the last, whichever training makes them."""
        if steps := getattr(entry, "last_step", None) or entry.steps:
            return steps * self.batch
        examples = most_rows(self.plan, entry.examples)
        return None if examples is None else examples * entry.epochs


def most_rows(plan: Plan, name: str) -> int | None:
    """The rows of a table of examples if nothing is refused; None if that is not known either."""
    rows, entry = plan.rows_of(name), plan.book.entries[name]
    if rows is not None or not isinstance(entry, Examples):
        return rows
    if entry.join:
        parts = [(most_rows(plan, other), share) for other, share in entry.join.items()]
        return None if any(n is None for n, _ in parts) else round(sum((n or 0) * share for n, share in parts))
    source = (entry.grades and plan.book.entries[entry.grades].responses) or entry.responses or entry.problems
    return plan.rows_of(source) if source else None

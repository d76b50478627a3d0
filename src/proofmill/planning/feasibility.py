"""Plan the stages of a target on a named machine, which need not exist: memory, context, settings and GPU-hours.

Trainings are planned in trainings.py, models for inference here. A plan predicts what a job does on that machine. If a
stage does not fit, its verdict says what would.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from proofmill import grpo
from proofmill.engines import vllm_memory
from proofmill.graders.escalation import wants
from proofmill.planning import _feasibility_text, hours
from proofmill.planning.machines import Machine
from proofmill.planning.plan import RunPlan
from proofmill.planning.shapes import Shapes
from proofmill.planning.trainings import Training, Way, count_server_bytes, shares_for
from proofmill.schema import references
from proofmill.schema.entries.declared import Api
from proofmill.schema.errors import RecipeError
from proofmill.schema.fields import require
from proofmill.schema.kinds import list_trained
from proofmill.schema.names import kind_of
from proofmill.training import memory, micro_batches

TRAINED = list_trained()
WRITTEN = 128  # default of `max-tokens` (schema/entries/response_entries.py)


@dataclass
class FitVerdict:
    """The memory of a stage on a machine, and whether it fits; None if the shape of its model is unknown."""

    stage: str
    model: str  # the base of its weights
    parameters: int | None
    tokens: int  # maximum of a row, or of a prompt with its response
    asks: bool = False  # inference with these weights; else training
    fits: bool | None = None
    ways: list[Way] = field(default_factory=list)  # that fit; the job takes the first
    gpu_hours: float | None = None  # maximum
    faults: list[str] = field(default_factory=list)  # why it does not fit or is unknown, and what would help


class Feasibility:
    """Verdicts on the stages of a plan that would run and load weights, on a machine.

    fill: mean length of texts as a share of the maximum, for GPU-hours.
    """

    def __init__(self, plan: RunPlan, machine: Machine, fill: float = 1.0):
        self.plan, self.machine, self.fill = plan, machine, fill
        self.shapes = Shapes(plan.config, plan.results)

    @cached_property
    def verdicts(self) -> list[FitVerdict]:
        """One verdict for each training, and for each model of a stage."""
        return [v for name, stage in self.plan.stages.items() if stage.state == "make" for v in self._of(name)]

    def lines(self) -> Iterator[str]:
        """Yield the verdicts as text."""
        return _feasibility_text.lines(self)

    def data(self) -> dict[str, Any]:
        """Return the verdicts as JSON data."""
        return {"machine": asdict(self.machine), "fits": self.fits, "stages": list(map(asdict, self.verdicts))}

    @property
    def fits(self) -> bool:
        """Return whether no stage is known not to fit."""
        return all(verdict.fits is not False for verdict in self.verdicts)

    def _of(self, name: str) -> Iterator[FitVerdict]:
        """Yield the verdicts on a stage: on its training, and on each local model that it calls."""
        entry, declared = self.plan.config.entries[name], self.plan.config.declared
        relied = {} if getattr(entry, "taken", False) else references.list_used(entry, declared)
        # Local models in the role of an API: judges of any grader, normalizers, summarizers.
        judges = {judge: api for judge, api in relied.items() if isinstance(api, Api) and api.weights}
        if kind_of(name) in TRAINED:
            yield self._training(name, entry, judges if self.machine.gpu else {})
            if self.machine.gpu:
                return
        # The weights, the maximum tokens of a response in their prompt, and of their output.
        own = [model for model in self.plan.models(name) if kind_of(model) in ("base", *TRAINED)]
        asked = [(model, 0, getattr(entry, "max_tokens", None) or WRITTEN) for model in own]
        for judge, api in judges.items():
            is_writer = kind_of(name) == "responses" and judge == entry.model
            limit = (is_writer and entry.max_tokens) or api.max_tokens
            asked.append((require(api.weights), 0 if is_writer else self._count_judged_tokens(name, entry), limit))
        longest = {one[0]: one for one in sorted(asked, key=lambda one: one[1] + one[2])}
        for one in longest.values():
            yield self._check_inference(name, *one)

    def _count_judged_tokens(self, name: str, entry: Any) -> int:
        """Return the maximum tokens of a response that a stage's judges read; 0 for none, or for its final answer."""
        declared, kind = self.plan.config.declared, kind_of(name)
        if kind not in ("grades", "responses", *TRAINED):
            return 0
        if {wants(grader, prompt, declared) for grader, prompt in entry.graders()} == {"answers"}:
            return 0
        attempts = self.plan.config.entries[entry.responses] if kind == "grades" else entry
        written = declared.get(attempts.model)
        return attempts.max_tokens or (written.max_tokens if written else 0 if attempts.model == "given" else WRITTEN)

    def _begun(self, name: str, weights: str, tokens: int, longest: int, *others: str) -> FitVerdict:
        """Return a new verdict on a model with a context of `longest` tokens, and `others` on the same machine.

        Its faults list unknown shapes; `fits` is False if a shape can never be known.
        """
        network = self.shapes.of(weights)
        verdict = FitVerdict(name, self.shapes.base_of(weights), network and memory.parameters(network), tokens)
        for base in dict.fromkeys(map(self.shapes.base_of, (weights, *others))):
            if self.shapes.of(base) is None:
                fault = self.shapes.faults.get(base)
                verdict.fits = False if fault else verdict.fits
                verdict.faults.append(fault or f"{base}: its shape is unknown until it is downloaded")
        if network is not None:
            try:
                micro_batches.check_context(verdict.model, network, longest, "a row may have")
            except RecipeError as error:
                verdict.faults.append(str(error))
        return verdict

    def _training(self, name: str, entry: Any, judges: Mapping[str, Api]) -> FitVerdict:
        """Return the verdict on a training that calls `judges`, which are local models, in its own process."""
        training = Training(name, entry, self.plan, self.shapes)
        longest = training.longest + training.samples
        verdict = self._begun(name, entry.model, training.tokens, longest, *training.others)
        if None in map(self.shapes.of, (entry.model, *training.others)):
            return verdict
        for judge, api in judges.items():
            verdict.faults.append(
                f"{judge} is {api.weights}, which each job would load on the GPUs of the training: name it by `id` instead of "
                "`weights`, and use a server or a service (docs/models.md)"
            )
        ways = training.ways(self.machine)
        verdict.ways = [way for way in ways if not way.fault]
        if verdict.ways:
            verdict.gpu_hours = training.gpu_hours(verdict.ways[0], self.machine, self.fill)
        else:
            verdict.faults += dict.fromkeys(way.fault for way in ways)
            verdict.faults += [training.remedy(self.machine)] if self.machine.gpu else []
        verdict.fits = not verdict.faults
        return verdict

    def _check_inference(self, name: str, weights: str, shown: int, limit: int) -> FitVerdict:
        """Return the verdict on inference with local weights: vLLM alone on its GPUs, or the CPUs of this machine."""
        network, gpu = self.shapes.of(weights), self.machine.gpu
        context = network and memory.context_of(network)
        prompt = grpo.PROMPT_TOKENS + shown if shown else grpo.max_prompt_tokens(limit, context)
        tokens, memory_bytes = prompt + limit, self.machine.bytes
        verdict = self._begun(name, weights, tokens, tokens)
        verdict.asks = True
        if network is None:
            return verdict
        weights_bytes = memory.parameters(network) * memory.WIDTH["float32"]
        if gpu is None:
            taken = weights_bytes + memory.key_value_cache(network, tokens)
            verdict.ways = [Way("processors", bytes=taken)] * (
                memory_bytes is None or taken <= memory.TIGHT * memory_bytes
            )
        else:
            stored = vllm_memory.read_quantization(network) if kind_of(weights) == "base" else ""
            room, rows = vllm_memory.ALONE * gpu.bytes, self.plan.stages[name].calls
            weights_bytes = round(vllm_memory.weights_on_gpu(network, 1, stored))
            for n in shares_for(network, self.machine.each, room, tokens, stored):
                verdict.ways.append(
                    Way("vLLM", n, parallel=n, bytes=round(room), host_bytes=count_server_bytes(network, n))
                )
            if verdict.ways and rows is not None and gpu.bandwidth:
                texts = hours.Rollouts(rows, round(prompt - (1 - self.fill) * shown), self.fill * limit)
                parallel = verdict.ways[0].parallel
                verdict.gpu_hours = hours.sampling(network, texts, gpu, room, parallel, rows, stored)
        if not verdict.ways:
            verdict.faults.append(
                f"its weights take {memory.size(weights_bytes)}, and with a row of {tokens:,} tokens do not fit "
                f"{self.machine.each} x {memory.size(memory_bytes or 0)}: use a larger machine"
            )
        verdict.fits = not verdict.faults
        return verdict

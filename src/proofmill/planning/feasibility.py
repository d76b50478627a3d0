"""Plan the stages of a target on a named machine, which need not exist: memory, context, settings and GPU-hours.

Trainings are planned in trainings.py, models for inference here. If a stage does not fit, its verdict says what would.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from proofmill import grpo
from proofmill.engines import vllm_memory
from proofmill.graders.escalation import wants
from proofmill.planning import _feasibility_text, hours
from proofmill.planning.hours import Ends, Estimate, Rollouts, Server
from proofmill.planning.machines import Machine
from proofmill.planning.plan import RunPlan
from proofmill.planning.shapes import Shapes
from proofmill.planning.trainings import Training, Way
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
    ways: list[Way] = field(default_factory=list)  # that fit, the fastest first
    hours: Estimate | None = None
    judge: str = ""  # the model behind a server of its own that a training calls; these ways are its server's
    faults: list[str] = field(default_factory=list)  # why it does not fit or is unknown, and what would help


class Feasibility:
    """Verdicts on the stages of a plan that would load weights; `fill` is the mean length of texts, of the maximum."""

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
        """Return the verdicts as JSON data; figures are lists of the fast and the slow end."""
        stages = [{**asdict(verdict), "hours": verdict.hours and verdict.hours.data()} for verdict in self.verdicts]
        days = None if self.days is None else self.days.tolist()
        return {"machine": asdict(self.machine), "fits": self.fits, "days": days, "stages": stages}

    @property
    def fits(self) -> bool:
        """Return whether no stage is known not to fit."""
        return all(verdict.fits is not False for verdict in self.verdicts)

    @property
    def booked(self) -> Ends | None:
        """GPU-hours of all stages whose hours are known, with their judges; None if none is known."""
        known = [verdict.hours.booked for verdict in self.verdicts if verdict.hours]
        return sum(known, np.zeros(2)) if known else None

    @cached_property
    def days(self) -> Ends | None:
        """Days of the longest chain of stages, and at least of all GPUs at work. Servers of judges run next to them."""
        known = [(verdict.stage, verdict.hours) for verdict in self.verdicts if verdict.hours and not verdict.judge]
        ends: dict[str, Ends] = {}
        for name in self.plan.stages:  # parents first
            before = [ends[parent] for parent in self.plan.reads(name) if parent in ends]
            own = sum((estimate.days for stage, estimate in known if stage == name), np.zeros(2))
            ends[name] = own + np.max(before, 0) if before else own
        busiest = sum((estimate.booked for _, estimate in known), np.zeros(2)) / self.machine.devices / 24
        return np.max([busiest, *ends.values()], 0) if known else None

    def _of(self, name: str) -> Iterator[FitVerdict]:
        """Yield the verdicts on a stage: on its training, and on each local model that it calls."""
        entry, declared = self.plan.config.entries[name], self.plan.config.declared
        relied = {} if getattr(entry, "taken", False) else references.list_used(entry, declared)
        # Local models in the role of an API: judges of any grader, normalizers, summarizers.
        judges = {judge: api for judge, api in relied.items() if isinstance(api, Api) and api.weights}
        if kind_of(name) in TRAINED:
            training = Training(name, entry, self.plan, self.shapes)
            verdict = self._check_training(name, training, judges if self.machine.gpu else {})
            yield verdict
            if self.machine.gpu:
                yield from self._check_judges(verdict, training, relied)
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
        """Return a new verdict on a model with a context of `longest`, and `others` next to it; faults list unknown shapes."""
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

    def _check_training(self, name: str, training: Training, judges: Mapping[str, Api]) -> FitVerdict:
        """Return the verdict on a training that calls `judges`, which are local models, in its own process."""
        model, longest = training.entry.model, training.longest + training.samples
        verdict = self._begun(name, model, training.tokens, longest, *training.others)
        if None in map(self.shapes.of, (model, *training.others)):
            return verdict
        verdict.faults += [
            f"{judge} is {api.weights}, which each job would load on the GPUs of the training: name it by `id` instead of "
            "`weights`, and use a server or a service (docs/models.md)"
            for judge, api in judges.items()
        ]
        ways = training.ways(self.machine, fill=self.fill)
        verdict.ways = [way for way in ways if not way.fault]
        if verdict.ways:
            verdict.hours = training.estimate(verdict.ways[0], self.machine, self.fill)
        else:
            verdict.faults += dict.fromkeys(way.fault for way in ways)
            verdict.faults += [training.remedy(self.machine)] if self.machine.gpu else []
        verdict.fits = not verdict.faults
        return verdict

    def _check_judges(self, graded: FitVerdict, training: Training, relied: Mapping[str, Any]) -> Iterator[FitVerdict]:
        """Yield a verdict on each model of open weights that judges a training, on a server that keeps pace with it.

        A call has the `expected-tokens`, or else the maximum. A model with a price per token is a service.
        """
        calls, fill = Counter[str](), self.fill
        if getattr(training.entry, "graded", True) and (rewarding := self.plan.grader(training.entry)):
            calls.update(dict.fromkeys(rewarding.judges, round(training.count_rollouts())))
        for judge, number in self.plan.further_models(training.entry):
            calls[judge] += number or 0
        for judge in sorted(judge for judge in calls if calls[judge] and isinstance(relied.get(judge), Api)):
            api, shown = relied[judge], self._count_judged_tokens(graded.stage, training.entry)
            if not api.weights and (not api.commit or (isinstance(api.price, dict) and any(api.price.values()))):
                continue
            model, tokens = api.weights or api.id, grpo.PROMPT_TOKENS + shown + api.max_tokens
            network = self.shapes.of(model) if api.weights else self.shapes.build_published(model)
            verdict = FitVerdict(graded.stage, model, network and memory.parameters(network), tokens, True, judge=judge)
            if network is None:
                verdict.faults.append(f"{judge}: the shape of {model} is unknown; its GPU-hours are not included")
            else:
                guess = {"input": grpo.PROMPT_TOKENS + fill * shown, "output": fill * api.max_tokens}
                texts = Rollouts(calls[judge], *(guess | (api.expected_tokens or {})).values())
                self._serve(verdict, network, texts, math.inf, vllm_memory.read_quantization(network))
                pace = verdict.hours.wall.mean() / graded.hours.wall.mean() if verdict.hours and graded.hours else 1
                verdict.ways = [replace(way, devices=way.parallel * math.ceil(pace)) for way in verdict.ways[:1]]
                verdict.fits = bool(verdict.ways) or None
                few = f"{judge}: no {self.machine.each} of these GPUs hold it; serve it on larger ones"
                verdict.faults += [few] * (not verdict.ways)
            yield verdict

    def _serve(self, verdict: FitVerdict, network: Any, texts: Rollouts | None, most: float, stored: str) -> None:
        """Set the ways to serve a model by one replica of vLLM, the best first, and the hours of `texts`."""
        gpu = require(self.machine.gpu)
        room = vllm_memory.ALONE * gpu.bytes
        numbers = vllm_memory.shares_for(network, self.machine.each, room, verdict.tokens, stored)
        hosts = {n: vllm_memory.count_server_bytes(network, n) for n in numbers}
        verdict.ways = [Way("vLLM", n, parallel=n, bytes=round(room), host_bytes=hosts[n]) for n in numbers]
        if numbers and texts and gpu.bandwidth:
            estimates = {n: hours.serving(network, texts, Server(gpu, room, n, most, stored)) for n in numbers}
            best = min(numbers, key=lambda n: estimates[n].booked.mean() * hours.GAIN ** (n > numbers[0]))
            verdict.ways.sort(key=lambda way: way.parallel != best)
            verdict.hours = estimates[best]

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
        if gpu is None:
            weights_bytes = memory.parameters(network) * memory.WIDTH["float32"]
            taken = weights_bytes + memory.key_value_cache(network, tokens)
            fits = memory_bytes is None or taken <= memory.TIGHT * memory_bytes
            verdict.ways = [Way("processors", bytes=taken)] * fits
        else:
            stored = vllm_memory.read_quantization(network) if kind_of(weights) == "base" else ""
            weights_bytes, rows = round(vllm_memory.weights_on_gpu(network, 1, stored)), self.plan.stages[name].calls
            texts = None if rows is None else Rollouts(rows, prompt - (1 - self.fill) * shown, self.fill * limit, limit)
            self._serve(verdict, network, texts, max(rows or 1, 1), stored)
        if not verdict.ways:
            verdict.faults.append(
                f"its weights take {memory.size(weights_bytes)}, and with a row of {tokens:,} tokens do not fit "
                f"{self.machine.each} x {memory.size(memory_bytes or 0)}: use a larger machine"
            )
        verdict.fits = not verdict.faults
        return verdict

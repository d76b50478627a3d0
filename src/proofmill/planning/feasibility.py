"""Whether the stages of a plan fit a machine that is named and not there: memory, context, settings, and GPU-hours.

Trainings are planned in trainings.py; models that are asked are here. What is said is what a job does there; what does
not fit says what would.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from proofmill import grpo
from proofmill.engines import fitting
from proofmill.graders.escalation import wants
from proofmill.planning import _feasibility_text, hours
from proofmill.planning.architectures import Shape, Shapes
from proofmill.planning.machines import Layout, Machine
from proofmill.planning.plan import Plan
from proofmill.planning.trainings import Attempt, Training, shares
from proofmill.schema import references
from proofmill.schema.declared import Api
from proofmill.schema.fields import required
from proofmill.schema.kinds import learned
from proofmill.schema.names import kind_of
from proofmill.sources import models
from proofmill.training import memory

TRAINED = learned()
WRITTEN = 128  # `max-tokens` of an entry that has none (schema/entries.py)


@dataclass
class Verdict:
    """What a stage takes on a machine, and whether it fits; None where its model's shape is not known."""

    stage: str
    model: str  # the base of its weights
    parameters: int | None = None
    tokens: int = 0  # of a row, or of a prompt with its answer, at most
    asks: bool = False  # whether the stage asks these weights; else it learns them
    fits: bool | None = None
    layout: Layout | None = None  # of a training
    devices: int = 1
    rows: int = 0  # of a pass
    again: bool = False  # activations are computed again
    parallel: int = 1  # GPUs that share vLLM's weights; 0 on processors
    bytes: int | None = None  # on each device
    host_bytes: int | None = None  # of the memory of each computer beside its GPUs, of a training
    share: float | None = None  # of a GPU, that vLLM takes beside a training
    apart: int = 0  # further GPUs, of vLLM's server, where rollouts are made ahead (`lag`)
    gpu_hours: float | None = None  # at most
    whole: bool = False  # its settings need whole weights on each device
    faults: list[str] = field(default_factory=list)  # why it does not fit, and what would
    notes: list[str] = field(default_factory=list)


class Feasibility:
    """The verdicts on the stages of a plan that would be made and that hold weights, on a machine.

    fill: the mean length of what is written and learned, as a share of the longest that is allowed, for hours.
    """

    def __init__(self, plan: Plan, machine: Machine, fill: float = 1.0):
        self.plan, self.machine, self.fill = plan, machine, fill
        self.shapes = Shapes(plan.book, plan.results)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return [
            verdict for name, stage in self.plan.stages.items() if stage.state == "make" for verdict in self._of(name)
        ]

    def lines(self) -> Iterator[str]:
        """The verdicts as text."""
        return _feasibility_text.lines(self)

    def data(self) -> dict[str, Any]:
        """The verdicts for programs."""
        return _feasibility_text.data(self)

    @property
    def fits(self) -> bool:
        """Whether nothing is known not to fit."""
        return all(verdict.fits is not False for verdict in self.verdicts)

    def _of(self, name: str) -> Iterator[Verdict]:
        entry = self.plan.book.entries[name]
        judges = self._judges(entry)
        if kind_of(name) in TRAINED:
            yield self._training(name, entry, judges if self.machine.gpu else {})
            if self.machine.gpu:
                return
        for weights, texts in self._texts(name, entry, judges).items():
            yield self._asked(name, weights, *texts)

    def _judges(self, entry: Any) -> dict[str, Api]:
        """The models of ours that play a server and that a stage may ask: judges of any grader, normalizers, summarizers."""
        relied = {} if getattr(entry, "taken", False) else references.relied_on(entry, self.plan.book.declared)
        return {name: api for name, api in relied.items() if isinstance(api, Api) and api.weights}

    def _texts(self, name: str, entry: Any, judges: Mapping[str, Api]) -> dict[str, tuple[int, int]]:
        """By weights of ours that a stage asks: the most tokens of an attempt that they are shown, and of their answer."""
        own = [model for model in self.plan.models(name) if kind_of(model) in ("base", *TRAINED)]
        asked = [(model, 0, getattr(entry, "max_tokens", None) or WRITTEN) for model in own]
        for judge, api in judges.items():
            writes = kind_of(name) == "responses" and judge == entry.model
            limit = (writes and entry.max_tokens) or api.max_tokens
            asked.append((required(api.weights), 0 if writes else self._shown(name, entry), limit))
        return {weights: (shown, limit) for weights, shown, limit in sorted(asked, key=lambda one: one[1] + one[2])}

    def _shown(self, name: str, entry: Any) -> int:
        """The most tokens of an attempt that the judges of a stage read; 0 for none, and for its final answer alone."""
        declared, kind = self.plan.book.declared, kind_of(name)
        if kind not in ("grades", "responses", *TRAINED):
            return 0
        if {wants(grader, prompt, declared) for grader, prompt in entry.graders()} == {"answers"}:
            return 0
        attempts = self.plan.book.entries[entry.responses] if kind == "grades" else entry
        written = declared.get(attempts.model)
        return attempts.max_tokens or (written.max_tokens if written else 0 if attempts.model == "given" else WRITTEN)

    def _begun(self, name: str, weights: str, tokens: int, *others: str) -> Verdict:
        """A verdict on a model and on `others` beside it: `fits` is None where a shape is not known, False where none can be."""
        shape = self.shapes.of(weights)
        verdict = Verdict(name, self.shapes.base_of(weights), shape.parameters if shape else None, tokens)
        unbuilt = [base for base in map(self.shapes.base_of, (weights, *others)) if self.shapes.of(base) is None]
        for base in dict.fromkeys(unbuilt):
            if fault := self.shapes.faults.get(base):
                verdict.fits = False
                verdict.faults.append(fault)
            else:
                verdict.notes.append(f"{base}: its shape is not known until it is fetched")
        return verdict

    # -------------------------------------------------------------------------------------------------------- trainings

    def _training(self, name: str, entry: Any, judges: Mapping[str, Api]) -> Verdict:
        """The verdict on a training that asks `judges`, models of ours, in its own process."""
        training = Training(name, entry, self.plan, self.shapes)
        shape = self.shapes.of(entry.model)
        verdict = self._begun(name, entry.model, training.beside["tokens"], *training.tasters)
        if shape is None or verdict.notes or verdict.faults:
            return verdict
        if shape.stored:
            if uneven := models.uneven_blocks(memory.linear_layers(shape.network).items()):
                verdict.faults.append(
                    f"the 8-bit files of {verdict.model} have layers without whole blocks ({uneven[0].rpartition('.')[2]}), which "
                    "transformers does not read: a copy in bfloat16"
                )
            verdict.notes.append(
                f"the files of {verdict.model} are {shape.stored} and are multiplied out: {memory.size(4 * shape.parameters)} "
                "of host memory while they are read"
            )
        for judge, api in judges.items():
            verdict.faults.append(
                f"{judge} is {api.weights}, which each job opens by itself, here beside the training on the same GPUs: "
                "name it by `id` in the place of `weights`, behind a server or a service (docs/models.md)"
            )
        longest = training.longest
        if shape.context is not None and longest > shape.context - training.samples:
            verdict.faults.append(
                f"`{training.limit}` is {longest:,} tokens, and the context of {verdict.model} has {shape.context:,}: a higher "
                "`context` with a higher `rope-theta` of it, or a shorter limit"
            )
        tried = [training.attempt(shape, self.machine, layout) for layout in training.layouts(shape, self.machine)]
        chosen = next((attempt for attempt in tried if not attempt.fault), None)
        if chosen:
            self._choose(verdict, chosen, training, shape)
        else:
            verdict.faults += [
                *dict.fromkeys(attempt.fault for attempt in tried),
                *training.remedies(shape, self.machine),
            ]
        verdict.fits, verdict.whole = not verdict.faults, bool(training.forbidden)
        return verdict

    def _choose(self, verdict: Verdict, chosen: Attempt, training: Training, shape: Shape) -> None:
        verdict.layout, verdict.devices, verdict.bytes = chosen.layout, chosen.devices, chosen.bytes
        verdict.host_bytes = chosen.host_bytes if self.machine.gpu else None
        verdict.rows, verdict.again = chosen.rows, chosen.again or chosen.layout.offloaded
        verdict.parallel, verdict.share = chosen.parallel, chosen.share
        if served := training.served(shape, self.machine):
            left = self.machine.each - (chosen.devices if self.machine.nodes == 1 else 0)
            verdict.apart = left // served * served
        elif chosen.devices < self.machine.devices:
            evenly = ", as many on each computer" * (self.machine.nodes > 1)
            verdict.notes.append(
                f"on {chosen.devices} of {self.machine.devices} GPUs: its batch of {training.batch} does not divide among more{evenly}"
            )
        verdict.gpu_hours = training.gpu_hours(shape, chosen, self.machine, self.fill)

    # ----------------------------------------------------------------------------------------------------- asked models

    def share(self, verdicts: list[Verdict], parallel: int) -> bool:
        """Whether vLLM can share the weights of all these stages out to so many GPUs."""
        shapes = [self.shapes.of(verdict.model) for verdict in verdicts]
        return all(shape and parallel in shares(shape.network, self.machine.each) for shape in shapes)

    def _asked(self, name: str, weights: str, shown: int, limit: int) -> Verdict:
        """A stage that asks weights of ours: vLLM alone on its GPUs, or the processors of this computer.

        Answers have up to `limit` tokens, to prompts with attempts of up to `shown`.
        """
        shape = self.shapes.of(weights)
        context = shape.context if shape else None
        prompt = grpo.PROMPT_TOKENS + shown if shown else grpo.prompt_beside(limit, context)
        verdict = self._begun(name, weights, prompt + limit)
        verdict.asks = True
        if shape is None:
            return verdict
        if context is not None and limit >= context:
            verdict.faults.append(
                f"`max-tokens` is {limit:,}, and the context of {verdict.model} has {context:,}: every row would be too-long"
            )
        elif context is not None and shown and prompt + limit > context:
            verdict.faults.append(
                f"{verdict.model} reads attempts of up to {shown:,} tokens and writes up to {limit:,}, and its context has "
                f"{context:,}: long ones would be too-long; a judge with a longer context, or shorter attempts"
            )
        network, there = shape.network, self.machine.bytes
        if self.machine.gpu is None or there is None:
            verdict.parallel = 0
            verdict.bytes = memory.parameters(network) * memory.WIDTH["float32"] + memory.key_value_cache(
                network, verdict.tokens
            )
            if there is not None and verdict.bytes > memory.TIGHT * there:
                verdict.faults.append(f"takes {memory.size(verdict.bytes)}, and {memory.size(there)} are free")
        else:
            room, stored = fitting.ALONE * there, shape.stored if kind_of(weights) == "base" else ""
            numbers, tokens = shares(network, self.machine.each), verdict.tokens
            found = next((p for p in numbers if fitting.held_on_gpu(network, room, p, stored) >= tokens), None)
            verdict.bytes, verdict.parallel = round(room), found or numbers[-1]
            if found is None:
                weights_each = memory.size(fitting.weights_on_gpu(network, numbers[-1], stored))
                verdict.faults.append(
                    f"vLLM's weights take {weights_each} on each of {numbers[-1]} GPUs, and a row of {tokens:,} tokens does not fit "
                    f"beside them: {'more or ' * (numbers[-1] == self.machine.each)}larger GPUs"
                )
            rows = self.plan.stages[name].calls
            if found and rows is not None:
                texts = hours.Rollouts(rows, round(prompt - (1 - self.fill) * shown), self.fill * limit)
                verdict.gpu_hours = hours.sampling(network, texts, self.machine.gpu, room, found, rows, stored)
        verdict.fits = not verdict.faults
        return verdict

"""Plans the stages of a target on a machine that is named and not there: memory, context, settings, and GPU-hours.

Trainings are planned in trainings.py; models that are asked are here. What is said is what a job does there; what does
not fit says what would.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from proofmill import grpo
from proofmill.engines import fitting
from proofmill.graders.escalation import wants
from proofmill.planning import _feasibility_text, hours
from proofmill.planning.machines import Machine
from proofmill.planning.plan import Plan
from proofmill.planning.shapes import Shapes
from proofmill.planning.trainings import Training, Way, served_bytes, shares_for
from proofmill.schema import references
from proofmill.schema.declared import Api
from proofmill.schema.errors import RecipeError
from proofmill.schema.fields import required
from proofmill.schema.kinds import learned
from proofmill.schema.names import kind_of
from proofmill.training import memory, passes

TRAINED = learned()
WRITTEN = 128  # `max-tokens` of an entry that has none (schema/entries.py)


@dataclass
class Verdict:
    """What a stage takes on a machine, and whether it fits; None where its model's shape is not known."""

    stage: str
    model: str  # the base of its weights
    parameters: int | None
    tokens: int  # of a row, or of a prompt with its answer, at most
    asks: bool = False  # whether the stage asks these weights; else it trains them
    fits: bool | None = None
    ways: list[Way] = field(default_factory=list)  # that fit; the first one is taken
    gpu_hours: float | None = None  # at most
    faults: list[str] = field(default_factory=list)  # why it does not fit, or is not known, and what would help


class Feasibility:
    """The verdicts on the stages of a plan that would be made and that hold weights, on a machine.

    fill: the mean length of what is written and learned, as a share of the longest that is allowed, for hours.
    """

    def __init__(self, plan: Plan, machine: Machine, fill: float = 1.0):
        self.plan, self.machine, self.fill = plan, machine, fill
        self.shapes = Shapes(plan.book, plan.results)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return [v for name, stage in self.plan.stages.items() if stage.state == "make" for v in self._of(name)]

    def lines(self) -> Iterator[str]:
        """Yield the verdicts as text."""
        return _feasibility_text.lines(self)

    def data(self) -> dict[str, Any]:
        """Return the verdicts for programs."""
        return {"machine": asdict(self.machine), "fits": self.fits, "stages": list(map(asdict, self.verdicts))}

    @property
    def fits(self) -> bool:
        """Return whether nothing is known not to fit."""
        return all(verdict.fits is not False for verdict in self.verdicts)

    def _of(self, name: str) -> Iterator[Verdict]:
        """Yield the verdicts on a stage: on its training, and on each model of ours that it asks."""
        entry, declared = self.plan.book.entries[name], self.plan.book.declared
        relied = {} if getattr(entry, "taken", False) else references.relied_on(entry, declared)
        # Models of ours that play a server: judges of any grader, normalizers, summarizers.
        judges = {judge: api for judge, api in relied.items() if isinstance(api, Api) and api.weights}
        if kind_of(name) in TRAINED:
            yield self._training(name, entry, judges if self.machine.gpu else {})
            if self.machine.gpu:
                return
        # The weights, the most tokens of an attempt that they read, and those of their answer.
        own = [model for model in self.plan.models(name) if kind_of(model) in ("base", *TRAINED)]
        asked = [(model, 0, getattr(entry, "max_tokens", None) or WRITTEN) for model in own]
        for judge, api in judges.items():
            writes = kind_of(name) == "responses" and judge == entry.model
            limit = (writes and entry.max_tokens) or api.max_tokens
            asked.append((required(api.weights), 0 if writes else self._shown(name, entry), limit))
        longest = {one[0]: one for one in sorted(asked, key=lambda one: one[1] + one[2])}
        for one in longest.values():
            yield self._asked(name, *one)

    def _shown(self, name: str, entry: Any) -> int:
        """Return the most tokens of an attempt that a stage's judges read; 0 for none, and for its final answer alone."""
        declared, kind = self.plan.book.declared, kind_of(name)
        if kind not in ("grades", "responses", *TRAINED):
            return 0
        if {wants(grader, prompt, declared) for grader, prompt in entry.graders()} == {"answers"}:
            return 0
        attempts = self.plan.book.entries[entry.responses] if kind == "grades" else entry
        written = declared.get(attempts.model)
        return attempts.max_tokens or (written.max_tokens if written else 0 if attempts.model == "given" else WRITTEN)

    def _begun(self, name: str, weights: str, tokens: int, longest: int, *others: str) -> Verdict:
        """Begin a verdict on a model, which reads or writes `longest` tokens, with `others` next to it.

        Its faults say whose shape is not known; `fits` is False where one can never be.
        """
        network = self.shapes.of(weights)
        verdict = Verdict(name, self.shapes.base_of(weights), network and memory.parameters(network), tokens)
        for base in dict.fromkeys(map(self.shapes.base_of, (weights, *others))):
            if self.shapes.of(base) is None:
                fault = self.shapes.faults.get(base)
                verdict.fits = False if fault else verdict.fits
                verdict.faults.append(fault or f"{base}: its shape is not known until it is fetched")
        if network is not None:
            try:
                passes.check_context(verdict.model, network, longest, "a row may have")
            except RecipeError as error:
                verdict.faults.append(str(error))
        return verdict

    def _training(self, name: str, entry: Any, judges: Mapping[str, Api]) -> Verdict:
        """Return the verdict on a training that asks `judges`, models of ours, in its own process."""
        training = Training(name, entry, self.plan, self.shapes)
        longest = training.longest + training.samples
        verdict = self._begun(name, entry.model, training.tokens, longest, *training.tasters)
        if None in map(self.shapes.of, (entry.model, *training.tasters)):
            return verdict
        for judge, api in judges.items():
            verdict.faults.append(
                f"{judge} is {api.weights}, which each job opens by itself, here next to the training on the same GPUs: "
                "name it by `id` in the place of `weights`, behind a server or a service (docs/models.md)"
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

    def _asked(self, name: str, weights: str, shown: int, limit: int) -> Verdict:
        """Return the verdict on a stage that asks weights of ours: vLLM alone on its GPUs, or this computer's processors."""
        network, gpu = self.shapes.of(weights), self.machine.gpu
        context = network and memory.context_of(network)
        prompt = grpo.PROMPT_TOKENS + shown if shown else grpo.prompt_beside(limit, context)
        tokens, there = prompt + limit, self.machine.bytes
        verdict = self._begun(name, weights, tokens, tokens)
        verdict.asks = True
        if network is None:
            return verdict
        weights_bytes = memory.parameters(network) * memory.WIDTH["float32"]
        if gpu is None:
            taken = weights_bytes + memory.key_value_cache(network, tokens)
            verdict.ways = [Way("processors", bytes=taken)] * (there is None or taken <= memory.TIGHT * there)
        else:
            stored = fitting.stored(network) if kind_of(weights) == "base" else ""
            room, rows = fitting.ALONE * gpu.bytes, self.plan.stages[name].calls
            weights_bytes = round(fitting.weights_on_gpu(network, 1, stored))
            for n in shares_for(network, self.machine.each, room, tokens, stored):
                verdict.ways.append(Way("vLLM", n, parallel=n, bytes=round(room), host_bytes=served_bytes(network, n)))
            if verdict.ways and rows is not None and gpu.bandwidth:
                texts = hours.Rollouts(rows, round(prompt - (1 - self.fill) * shown), self.fill * limit)
                parallel = verdict.ways[0].parallel
                verdict.gpu_hours = hours.sampling(network, texts, gpu, room, parallel, rows, stored)
        if not verdict.ways:
            verdict.faults.append(
                f"its weights take {memory.size(weights_bytes)}, and with a row of {tokens:,} tokens do not fit "
                f"{self.machine.each} x {memory.size(there or 0)}: a larger machine"
            )
        verdict.fits = not verdict.faults
        return verdict

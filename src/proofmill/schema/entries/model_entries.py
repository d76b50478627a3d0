"""Define the entries of `base` (weights from elsewhere) and `sft` (supervised fine-tuning)."""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from proofmill.schema.context import Context
from proofmill.schema.fields import Count, Entry, ProblemsRef, Ref, Share, Strict, WeightsRef, description_of, doc

SOURCES = ("scratch", "folder", "hub", "gguf", "tokenizer")  # of a base, in addition to the weights of another entry


@dataclass(frozen=True, config=Strict)
class Base(Entry):
    """One row is a file of a model: from the hub, a folder, a GGUF file, another entry, or a tiny randomly initialized model."""

    revision: ClassVar[int] = 3
    source: Annotated[str, Ref("weights", *SOURCES)] = doc(
        "Source of the weights: `scratch` (random), `folder`, `hub`, `gguf` (one file in llama.cpp's format, converted to float32), `tokenizer` (a folder or hub model without its weights, to count tokens), or another entry, e.g. `sft/<name>`."
    )
    path: str | None = doc(
        "Folder, GGUF file or its public address. `${VARIABLES}` are read from the environment.", None
    )
    id: str | None = doc("Model id on the hub.", None)
    commit: str | None = doc("Pinned commit on the hub. Required with `id`.", None)
    step: Count | None = doc(
        "Step of the training `source` whose weights to take, one that its `save-every` keeps. By default, its final weights.",
        None,
    )
    problems: ProblemsRef | None = doc("Problems whose text trains the tokenizer of a scratch model.", None)
    vocabulary: int = doc("Vocabulary size of a scratch model's byte-level BPE tokenizer.", 350, ge=270)
    hidden: Count = doc("Hidden size of a scratch model.", 64)
    layers: Count = doc("Number of layers of a scratch model.", 3)
    heads: Count = doc("Number of attention heads of a scratch model, with 32 dimensions each.", 2)
    feed_forward: Count = doc("Feed-forward size of a scratch model.", 192)
    initializer_range: float = doc(
        "Standard deviation of a scratch model's initial weights. With 0.02, a model of the default size does not learn.",
        0.08,
        gt=0,
    )
    context: Count | None = doc(
        "Maximum sequence length in tokens. Default: 512 (scratch), else as in config.json.", None
    )
    rope_theta: float | None = doc(
        "Base of the rotary position embeddings; overrides config.json. A longer `context` needs a higher base, and training.",
        None,
        gt=0,
    )
    chat_template: str | None = doc(
        "Chat template that overrides the model's own: the path of a file, e.g. `chat.jinja`, or `plain` (`User: ... Assistant: ...`) for a model without one.",
        None,
    )
    seed: int = doc("Seed of a scratch model's initial weights.", 0)

    def faults(self, context: Context) -> Iterator[str]:
        needs = "source" if "/" in self.source else {"scratch": "problems", "hub": "id"}.get(self.source, "path")
        if getattr(self, needs) is None and not (self.source == "tokenizer" and self.id):
            yield f"source `{self.source}` needs `{needs}`; expected a value. {description_of(Base, needs)}"
        if self.path and self.id:
            yield "found both `path` and `id`; expected one of them. Remove one."
        if "/" in self.source and (self.path or self.id):
            yield f"source `{self.source}` is an entry, and `path` or `id` is set; expected neither. Remove it."
        if self.step:
            every = getattr(context.entries.get(self.source), "save_every", None)
            steps = getattr(context.entries.get(self.source), "steps", 0)
            if every is None:
                yield f"`step` is {self.step} and the source `{self.source}` keeps no weights of steps; expected a `grpo` or `selfplay` with `save-every`."
            elif self.step % every or self.step > steps:
                yield f"`step` is {self.step} and {self.source} keeps the weights of every {every} of its {steps} steps (`save-every`); expected one of these."
        if self.source == "tokenizer" and (self.context or self.rope_theta):
            yield "source `tokenizer` has no weights, and `context` or `rope-theta` is set; expected neither. Remove it."
        if self.chat_template not in (None, "plain") and not self.chat_template.endswith((".jinja", ".jinja2", ".j2")):
            yield f"`chat-template` is `{self.chat_template}`; expected `plain`, or a file such as `chat.jinja`."
        if self.id and not self.commit:
            yield f"source `{self.source}` has `id` and no `commit`; expected the commit that the files come from. Set it."


@with_config(ConfigDict(extra="forbid", strict=True))
class Adapter(TypedDict):
    """Low-rank adapters of the linear layers (LoRA; QLoRA with 4-bit weights)."""

    rank: Count
    alpha: Annotated[float, Field(gt=0)]
    dropout: NotRequired[Share]  # default: 0
    target_modules: NotRequired[list[str]]  # names of linear layers; default: all
    quantized: NotRequired[bool]  # QLoRA: 4-bit base weights during training


Schedule = Literal["cosine", "linear", "constant", "constant_with_warmup"]
SFT_WARMUP = 0.03  # default of `warmup-ratio`
WARMUP_RATIO = "Share of the steps with a rising learning rate (warm-up). `schedule: constant` has no warm-up."


def warmup_faults(entry: Any, default: float = 0.0) -> Iterator[str]:
    """Yield a fault if the schedule of a training has no warm-up and one is set; the default is for other schedules."""
    if entry.schedule == "constant" and entry.warmup_ratio not in (0, default):
        yield f"`warmup-ratio` is {entry.warmup_ratio:g} and `schedule` is `constant`, which has no warm-up; expected `constant_with_warmup`. Set it, or remove `warmup-ratio`."


@dataclass(frozen=True, config=Strict)
class Sft(Entry):
    """One row is a metric of a training step. The weights are in a folder next to the table."""

    revision: ClassVar[int] = 4
    cosmetic: ClassVar[tuple[str, ...]] = ("save_state",)
    model: WeightsRef = doc("Model to start training from.")
    examples: Annotated[str, Ref("examples")] = doc("Table whose kept rows are trained on.")
    steps: Count | None = doc("Number of optimizer steps. Set this or `epochs`.", None)
    epochs: float | None = doc("Number of epochs. Set this or `steps`.", None, gt=0)
    last_step: Count | None = doc(
        "Step after which training ends. The schedule still spans all of `steps` or `epochs`. By default, the last one.",
        None,
    )
    continues: Annotated[str, Ref("sft")] | None = doc(
        "Training to continue, with the same fields except its length. `{continue: sft/x, steps: 40}` copies them.",
        None,
    )
    save_state: bool = doc(
        "Save weights, optimizer state and data position of the last step, so that a later entry can continue from it. Always saved if another entry continues from this one.",
        False,
    )
    batch_size: Count = doc("Examples in one step, over all devices. With `packing`, rows of `max-length` tokens.", 8)
    learning_rate: float = doc("Peak learning rate.", 3e-5, gt=0)
    schedule: Schedule = doc("Learning rate schedule after the warm-up.", "cosine")
    min_learning_rate_ratio: Share = doc("Final learning rate of a cosine schedule, as a share of the peak.", 0.0)
    warmup_ratio: Share = doc(WARMUP_RATIO, SFT_WARMUP, lt=1)
    beta2: Share = doc("Beta 2 of AdamW.", 0.999, lt=1)
    weight_decay: float = doc("Weight decay of AdamW.", 0.0, ge=0)
    max_grad_norm: float = doc("Maximum gradient norm; larger gradients are scaled down to it.", 1.0, gt=0)
    max_length: Count = doc("Maximum length of an example in tokens; longer ones: `too-long`.", 512)
    too_long: Literal["error", "drop"] = doc(
        "Handling of examples longer than `max-length`: stop the stage before training (`error`), or skip and count them (`drop`).",
        "error",
    )
    train_on: Literal["answer", "assistant", "all"] = doc(
        "Tokens to train on: the last answer (`answer`), every assistant turn (`assistant`), or the full conversation (`all`).",
        "answer",
    )
    packing: bool = doc("Pack examples into rows of `max-length` tokens, without attention between them.", False)
    lora: Adapter | None = doc(
        "Train LoRA adapters: `{rank: , alpha: , dropout: , target-modules: , quantized: }`. They are merged into the weights at the end. By default, all weights are trained.",
        None,
    )
    evaluate: Annotated[str, Ref("examples")] | None = doc("Other examples to compute the evaluation loss on.", None)
    evaluate_share: Share = doc("Share of the examples held out for the evaluation loss.", 0.0, lt=1)
    evaluate_every: Count = doc("Steps between two evaluations.", 100)
    precision: Literal["float32", "bfloat16"] = doc("Floating-point format of the computation.", "float32")
    log_every: Count = doc("Steps between two logged rows.", 10)
    seed: int = doc("Seed of the example order.", 0)

    def faults(self, context: Context) -> Iterator[str]:
        if (self.steps is None) == (self.epochs is None):
            yield "found both `steps` and `epochs`, or neither; expected exactly one of them. Set one."
        if self.evaluate and self.evaluate_share:
            yield "found both `evaluate` and `evaluate-share`; expected one of them. Remove one."
        if self.evaluate == self.examples:
            yield f"`evaluate` is {self.evaluate}, which is trained on; expected other examples. Set `evaluate-share` to hold out some of these."
        if self.last_step and self.steps and self.last_step > self.steps:
            yield f"`last-step` is {self.last_step} and `steps` is {self.steps}; expected at most {self.steps}."
        yield from warmup_faults(self, SFT_WARMUP)
        if self.min_learning_rate_ratio and self.schedule != "cosine":
            yield f"`min-learning-rate-ratio` is set and `schedule` is `{self.schedule}`; expected `cosine`. Remove `min-learning-rate-ratio`, or set `schedule: cosine`."
        if isinstance(before := context.entries.get(self.continues), Sft):
            yield from (f"continues {self.continues}, {fault}" for fault in self._continuing_faults(before))

    def _continuing_faults(self, before: "Sft") -> Iterator[str]:
        """Yield reasons why this training cannot continue another as if both were one."""
        own = ("steps", "epochs", "last_step", "continues", "save_state")
        differing = [
            f.name for f in fields(Sft) if f.name not in own and getattr(self, f.name) != getattr(before, f.name)
        ]
        if differing:
            yield f"which has another `{differing[0].replace('_', '-')}`; expected equal fields. To start a new training from its weights, set `model: {self.continues}`."
        elif (self.steps, self.epochs) == (before.steps, before.epochs):
            if before.last_step is None or (self.last_step or math.inf) <= before.last_step:
                yield "and ends at the same step; expected more `steps` or `epochs`, or a later `last-step`."
        elif before.schedule != "constant":
            yield (
                f"whose schedule `{before.schedule}` spans {before.steps or before.epochs} {'steps' if before.steps else 'epochs'} and would change "
                f"with the length; expected `schedule: constant`, or the full length in both entries and `last-step` in {self.continues}. To train "
                f"further with a new schedule, set `model: {self.continues}`."
            )
        elif (self.steps is None) != (before.steps is None):
            yield f"whose length is in `{'steps' if before.steps else 'epochs'}`; expected the same unit here."
        elif (self.last_step or self.steps or self.epochs or 0) <= (
            before.last_step or before.steps or before.epochs or 0
        ):
            yield "and ends before it does; expected more `steps` or `epochs`."

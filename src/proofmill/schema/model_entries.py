"""The entries of models and their training: fields, defaults, and the manual's sentences."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from proofmill.schema.fields import (
    ASKED,
    PROMPT_OF_JUDGE,
    Count,
    Entry,
    GraderRef,
    JudgeRef,
    ProblemsRef,
    Ref,
    Share,
    Strict,
    WeightsRef,
    doc,
)
from proofmill.schema.names import kind_of


@dataclass(frozen=True, config=Strict)
class Base(Entry):
    """A file of a model's weights a row: from the hub, from a folder, or a tiny model made here from random numbers."""

    revision: ClassVar[int] = 2
    source: Literal["scratch", "folder", "hub", "tokenizer"] = doc(
        "where the weights come from; `tokenizer` is a folder without any, to count tokens with"
    )
    path: str | None = doc("the folder; `${VARIABLES}` come from the environment", None)
    id: str | None = doc("the hub id", None)
    commit: str | None = doc("the pinned commit on the hub", None)
    problems: ProblemsRef | None = doc("text from which a scratch model's tokenizer is trained", None)
    vocabulary: int = doc("tokens of a scratch model's byte-level BPE", 350, ge=270)
    hidden: Count = doc("hidden size (scratch)", 64)
    layers: Count = doc("layers (scratch)", 3)
    heads: Count = doc("attention heads of 32 dimensions (scratch)", 2)
    feed_forward: Count = doc("feed-forward size (scratch)", 192)
    initializer_range: float = doc(
        "standard deviation of the first weights; 0.02 learns nothing at this size", 0.08, gt=0
    )
    context: Count = doc("longest sequence (scratch)", 512)
    template: Literal["plain"] | None = doc(
        "a chat template for a model that has none: `plain` is `User: ... Assistant: ...`", None
    )
    seed: int = doc("of the first weights (scratch)", 0)


class Adapter(TypedDict):
    """Low-rank additions to the linear layers that are trained in their place (LoRA; QLoRA over 4-bit weights)."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    rank: Count
    alpha: Annotated[float, Field(gt=0)]
    dropout: NotRequired[Share]  # 0 without it
    layers: NotRequired[list[str]]  # names of the linear layers; all without it
    quantized: NotRequired[bool]  # QLoRA: the weights under it stand in 4 bits while training


Schedule = Literal["cosine", "linear", "constant", "constant_with_warmup"]


@dataclass(frozen=True, config=Strict)
class Sft(Entry):
    """A measured training step a row; the weights stand beside the table."""

    revision: ClassVar[int] = 2
    model: WeightsRef = doc("where training starts")
    examples: Annotated[str, Ref("examples")] = doc("whose kept rows are learned")
    steps: Count | None = doc("optimizer steps; give this or `epochs`", None)
    epochs: float | None = doc("passes over the examples; give this or `steps`", None, gt=0)
    last_step: Count | None = doc(
        "stop after this step, although the schedule goes on to the end of `steps` or `epochs`", None
    )
    batch: Count = doc("examples in one step, over all devices; with `packing`, rows", 8)
    learning_rate: float = doc("at its highest", 3e-5, gt=0)
    schedule: Schedule = doc("of the learning rate", "cosine")
    floor: Share = doc("of the highest learning rate, where a cosine ends", 0.0)
    warmup: Share = doc("share of the steps that warm up", 0.03)
    beta2: Share = doc("of AdamW", 0.999)
    weight_decay: float = doc("of AdamW", 0.0, ge=0)
    clip: float = doc("largest norm of the gradient", 1.0, gt=0)
    max_length: Count = doc("tokens; no example is cut", 512)
    too_long: Literal["stop", "drop"] = doc(
        "an example longer than `max-length` stops the stage before training, or is left out and counted", "stop"
    )
    learn: Literal["answer", "assistant", "all"] = doc(
        "the last answer, every turn of the assistant, or the whole conversation", "answer"
    )
    packing: bool = doc("several examples share a row of `max-length` tokens; they do not see each other", False)
    adapter: Adapter | None = doc(
        "train low-rank additions `{rank: , alpha: , dropout: , layers: , quantized: }`, merged into the weights at the end",
        None,
    )
    evaluate: Annotated[str, Ref("examples")] | None = doc("other examples, whose loss is measured", None)
    evaluate_share: Share = doc("share of the examples that is not learned and whose loss is measured", 0.0, lt=1)
    evaluate_every: Count = doc("steps between measurements of the loss on them", 100)
    precision: Literal["float32", "bfloat16"] = doc("of the arithmetic", "float32")
    log_every: Count = doc("steps between rows of the table", 10)
    seed: int = doc("of the order of examples", 0)


class Preference(TypedDict):
    """How much a judge's or a reward model's taste counts, and for what."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    weight: float
    sees: NotRequired[Literal["summary", "all"]]  # what stands after the reasoning, or everything; `all` without it
    from_step: NotRequired[Annotated[int, Field(ge=0)]]  # 0 without it
    asks: NotRequired[list[Literal["proof", "answer", "code", "talk"]]]  # which problems; all without it
    prompt: NotRequired[str]  # of a judge that is asked alone


@dataclass(frozen=True, config=Strict)
class Grpo(Entry):
    """A measured training step a row; the weights and the rollouts stand beside the table."""

    revision: ClassVar[int] = 4
    model: WeightsRef = doc("where training starts")
    problems: ProblemsRef = doc("whose kept rows are attempted")
    schemes: Annotated[str, Ref("schemes")] | None = doc("the marking schemes the judge is shown", None)
    grader: GraderRef = doc("as in `grades`")
    prompt: str | None = doc(PROMPT_OF_JUDGE, None)
    ask: str = doc("the solver's prompt by name", "solve")
    rewards: dict[str, float | dict[str, Any]] = doc(
        "named rewards and their weights, such as `{grade: 1, format: 0.1}`, or with arguments `{overlong: {weight: 1, buffer: 64}}`",
        {},
    )
    preferences: dict[Annotated[str, Ref(*ASKED, "base", "sft")], Preference] = doc(
        "further rewards by taste: a judge, or a model with one score a text, with `{weight: , sees: , from-step: , asks: , prompt: }`",
        {},
    )
    unscored: Literal["drop", "zero"] = doc(
        "an attempt without a verdict: `drop` gives it no gradient and leaves it out of its group's mean"
    )
    group: int = doc("attempts at each problem", 8, ge=2)
    problems_per_step: Count = doc("problems in one step", 16)
    steps: Count = doc("optimizer steps")
    learning_rate: float = doc("at its highest", 1e-6, gt=0)
    schedule: Schedule = doc("of the learning rate", "constant")
    warmup: Share = doc("share of the steps that warm up", 0.0)
    beta2: Share = doc("of AdamW", 0.999)
    weight_decay: float = doc("of AdamW", 0.0, ge=0)
    clip: float = doc("largest norm of the gradient", 1.0, gt=0)
    temperature: float = doc("of the rollouts", 1.0, gt=0)
    top_p: float = doc("nucleus sampling of the rollouts", 1.0, gt=0, le=1)
    max_tokens: Count = doc("the most tokens of one rollout", 128)
    loss: Literal["grpo", "dapo", "bnpo", "dr_grpo", "sequence_sum"] = doc(
        "how tokens are summed: `grpo` mean of each attempt's mean, `dapo` mean over all tokens of a step, `bnpo` of a batch, "
        "`dr_grpo` sum by attempts times `max-tokens`, `sequence_sum` sum by attempts (QED-Nano)",
        "dapo",
    )
    policy: Literal["clipped", "reinforce"] = doc(
        "the clipped ratio of PPO, or log-probabilities weighed by the ratio up to 1 + `epsilon-high`", "clipped"
    )
    scale: Literal["group", "batch", "none"] = doc("what the advantage is divided by the deviation of", "group")
    kl: float = doc("weight of the divergence from the reference, which is where training started", 0.0, ge=0)
    sync_reference: Count | None = doc("steps after which the reference becomes the model as it then is", None)
    entropy: float = doc("weight of the entropy: of its mean over tokens; with `sequence_sum` of its sum", 0.0, ge=0)
    epsilon: float = doc("clip below", 0.2, gt=0)
    epsilon_high: float | None = doc("clip above, if different", None, gt=0)
    iterations: Count = doc("updates for each batch of rollouts", 1)
    batches: Count = doc("steps that share one round of rollouts, each with its own part of them", 1)
    mask_truncated: bool = doc("leave cut-off rollouts out of the loss", False)
    adapter: Adapter | None = doc("train low-rank additions, as in `sft`", None)
    precision: Literal["float32", "bfloat16"] = doc("of the arithmetic", "float32")
    # Reasoning cache (QED-Nano): the policy thinks in turns, and is trained to go on from summaries of its own thoughts.
    summarizer: JudgeRef | None = doc(
        "who sums up each turn of thought; with it the policy is trained on its own turns", None
    )
    turns: Count = doc("turns of thought before the state from which is gone on (`summarizer`)", 3)
    states: Count = doc("states of one problem that are trained on, of its turns and the one after (`summarizer`)", 2)
    turn_prompt: str = doc("the solver's prompt with a summary (`summarizer`)", "go-on")
    summary_prompt: str = doc("the summarizer's prompt (`summarizer`)", "summarize")
    # A second opinion, which is no reward: where the two drift apart, the reward is being gamed.
    hold_out: GraderRef | None = doc("a second grader, which marks some rollouts and rewards none", None)
    hold_out_prompt: str | None = doc("its rubric, where it is a judge asked alone", None)
    hold_out_every: Count = doc("steps between its samples", 10)
    hold_out_rows: Count = doc("rollouts in a sample", 16)
    hold_out_apart: Share | None = doc(
        "stop when the reward's marks exceed its own by so much more, as a share of full marks, than they did at first",
        None,
    )
    log_every: Count = doc("steps between rows of the table", 5)
    seed: int = doc("of the problems' order and the rollouts", 0)

    def graders(self) -> list[tuple[str, str | None]]:
        """Who rewards, whose taste counts (reward models have no prompt and are asked nothing), and who looks on."""
        judged = [(name, taste.get("prompt")) for name, taste in self.preferences.items() if kind_of(name) in ASKED]
        return [
            (self.grader, self.prompt),
            *judged,
            *([(self.hold_out, self.hold_out_prompt)] if self.hold_out else []),
        ]

    def prompts(self) -> list[str]:
        return [self.ask, *([self.turn_prompt, self.summary_prompt] if self.summarizer else [])]

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return self.steps * self.problems_per_step * self.group // self.iterations

    def calls_beside(self) -> dict[tuple[str, str | None], int]:
        """About how many calls go to (judge or grader, prompt) besides the marks that reward: taste, second opinions, summaries."""
        step = self.problems_per_step * self.group
        calls = {
            (name, taste.get("prompt")): max(self.steps - max(taste.get("from_step", 0) - 1, 0), 0) * step
            for name, taste in self.preferences.items()
            if kind_of(name) in ASKED
        }
        if self.hold_out:
            calls[self.hold_out, self.hold_out_prompt] = self.steps // self.hold_out_every * self.hold_out_rows
        calls = {marker: number // self.iterations for marker, number in calls.items()}
        if self.summarizer:
            problems = self.steps * self.problems_per_step // (self.iterations * self.states)
            calls[self.summarizer, None] = problems * self.turns
        return calls

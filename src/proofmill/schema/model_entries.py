"""The entries of models and their training: fields, defaults, and the manual's sentences."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from proofmill.schema.fields import (
    ASKED,
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

SOURCES = ("scratch", "folder", "hub", "gguf", "tokenizer")  # of a base, besides the weights of another entry


@dataclass(frozen=True, config=Strict)
class Base(Entry):
    """One row is a file of a model's weights: from the hub, a folder or a GGUF file, or of a tiny model of random numbers."""

    revision: ClassVar[int] = 3
    source: Annotated[str, Ref("weights", *SOURCES)] = doc(
        "Where the weights come from; `sft/<name>` takes those of another entry; `gguf` is one file of llama.cpp's format, whose weights become float32; `tokenizer` is a folder, or a model of the hub, without its weights, for counting tokens."
    )
    path: str | None = doc(
        "The folder, or the GGUF file or its public address; `${VARIABLES}` come from the environment.", None
    )
    id: str | None = doc("The model's id on the hub.", None)
    commit: str | None = doc("The pinned commit on the hub.", None)
    problems: ProblemsRef | None = doc("The problems on whose text a scratch model's tokenizer is trained.", None)
    vocabulary: int = doc("Number of tokens of a scratch model's byte-level BPE.", 350, ge=270)
    hidden: Count = doc("Hidden size of a scratch model.", 64)
    layers: Count = doc("Number of layers of a scratch model.", 3)
    heads: Count = doc("Number of attention heads of a scratch model, 32 dimensions each.", 2)
    feed_forward: Count = doc("Feed-forward size of a scratch model.", 192)
    initializer_range: float = doc(
        "Standard deviation of a scratch model's first weights; with 0.02 a model of this size learns nothing.",
        0.08,
        gt=0,
    )
    context: Count | None = doc(
        "The longest sequence in tokens: of a scratch model, by default 512; of another, in place of what its config.json says.",
        None,
    )
    rope_theta: float | None = doc(
        "The base of the rotary position embeddings, in place of what config.json says; a longer `context` needs a higher one, and training.",
        None,
        gt=0,
    )
    template: str | None = doc(
        "A chat template: `plain` is `User: ... Assistant: ...`, for a model without one; a path such as `chat.jinja` is a file with one, in place of the model's own.",
        None,
    )
    seed: int = doc("Seed of a scratch model's first weights.", 0)


@with_config(ConfigDict(extra="forbid", strict=True))
class Adapter(TypedDict):
    """Low-rank additions to the linear layers that are trained in their place (LoRA; QLoRA over 4-bit weights)."""

    rank: Count
    alpha: Annotated[float, Field(gt=0)]
    dropout: NotRequired[Share]  # 0 without it
    layers: NotRequired[list[str]]  # names of the linear layers; all without it
    quantized: NotRequired[bool]  # QLoRA: the weights under it stand in 4 bits while training


Schedule = Literal["cosine", "linear", "constant", "constant_with_warmup"]


@dataclass(frozen=True, config=Strict)
class Sft(Entry):
    """One row is a measured training step; the weights stand beside the table."""

    revision: ClassVar[int] = 3
    undeciding: ClassVar[tuple[str, ...]] = ("keep_state",)
    model: WeightsRef = doc("The model where training starts.")
    examples: Annotated[str, Ref("examples")] = doc("The table whose kept rows are learned.")
    steps: Count | None = doc("Number of optimizer steps; give this or `epochs`.", None)
    epochs: float | None = doc("Number of passes over the examples; give this or `steps`.", None, gt=0)
    last_step: Count | None = doc(
        "Training ends after this step, although the schedule is laid out for all of `steps` or `epochs`.", None
    )
    continues: Annotated[str, Ref("sft")] | None = doc(
        "The training that this one goes on from, with equal fields but its length; `{continue: sft/x, steps: 40}` takes them over.",
        None,
    )
    keep_state: bool = doc(
        "Keep weights, optimizer and place in the data of the last step, so that an entry written later can go on from it; where one does now, they are kept anyway.",
        False,
    )
    batch: Count = doc("Examples in one step, over all devices; with `packing`, rows of `max-length` tokens.", 8)
    learning_rate: float = doc("The highest learning rate of the schedule.", 3e-5, gt=0)
    schedule: Schedule = doc("How the learning rate changes after the warm-up.", "cosine")
    floor: Share = doc("Where a cosine schedule ends, as a share of the highest learning rate.", 0.0)
    warmup: Share = doc("Share of the steps during which the learning rate rises.", 0.03)
    beta2: Share = doc("Beta 2 of AdamW.", 0.999)
    weight_decay: float = doc("Weight decay of AdamW.", 0.0, ge=0)
    clip: float = doc("Gradients are clipped to this norm.", 1.0, gt=0)
    max_length: Count = doc("The longest example in tokens; no example is cut.", 512)
    too_long: Literal["stop", "drop"] = doc(
        "What an example longer than `max-length` does: it stops the stage before training, or is left out and counted.",
        "stop",
    )
    learn: Literal["answer", "assistant", "all"] = doc(
        "Which tokens are learned: the last answer, every turn of the assistant, or the whole conversation.", "answer"
    )
    packing: bool = doc(
        "Put several examples into one row of `max-length` tokens, where they do not see each other.", False
    )
    adapter: Adapter | None = doc(
        "Train low-rank additions `{rank: , alpha: , dropout: , layers: , quantized: }`, which are merged into the weights at the end.",
        None,
    )
    evaluate: Annotated[str, Ref("examples")] | None = doc(
        "Other examples, whose loss is measured during training.", None
    )
    evaluate_share: Share = doc(
        "Share of the examples that is held out, and whose loss is measured during training.", 0.0, lt=1
    )
    evaluate_every: Count = doc("Steps between two measurements of that loss.", 100)
    precision: Literal["float32", "bfloat16"] = doc("Floating-point format of the arithmetic.", "float32")
    log_every: Count = doc("Steps between two rows of the table.", 10)
    seed: int = doc("Seed of the order of the examples.", 0)


@with_config(ConfigDict(extra="forbid", strict=True))
class Preference(TypedDict):
    """How much a judge's or a reward model's taste counts, and for what."""

    weight: float
    sees: NotRequired[Literal["summary", "all"]]  # what stands after the reasoning, or everything; `all` without it
    from_step: NotRequired[Annotated[int, Field(ge=0)]]  # 0 without it
    asks: NotRequired[list[Literal["proof", "answer", "code", "talk"]]]  # which problems; all without it
    prompt: NotRequired[str]  # of a judge that is asked alone


@dataclass(frozen=True, config=Strict)
class Grpo(Entry):
    """One row is a measured training step; the weights and the rollouts stand beside the table."""

    revision: ClassVar[int] = 9
    undeciding: ClassVar[tuple[str, ...]] = ("max_unscored", "max_attack")
    model: WeightsRef = doc("The model where training starts.")
    problems: ProblemsRef = doc("The table whose kept rows are attempted.")
    schemes: Annotated[str, Ref("schemes")] | None = doc("The marking schemes that the judge is shown.", None)
    grader: GraderRef = doc("Who marks the rollouts, as in `grades`.")
    prompt: str | None = doc(
        "The rubric of a judge that is asked alone, `grade-strict` by default; a `grader/<name>` has its own.", None
    )
    ask: str = doc("The solver's prompt by name.", "solve")
    rewards: dict[str, float | dict[str, Any]] = doc(
        "Named rewards and their weights, such as `{grade: 1, format: 0.1}`; with arguments, `{overlong: {weight: 1, buffer: 64}}`.",
        {},
    )
    preferences: dict[Annotated[str, Ref(*ASKED, "base", "sft")], Preference] = doc(
        "Further rewards where no answer is right: a judge, or a model that scores texts, with `{weight: , sees: , from-step: , asks: , prompt: }`.",
        {},
    )
    unscored: Literal["drop", "zero"] = doc(
        "What happens to an attempt without a verdict: `drop` gives it no gradient and leaves it out of its group's mean, `zero` counts what is missing as 0."
    )
    max_unscored: Share = doc(
        "The training stops, with its checkpoints, when a larger share of the rollouts of its last ten rounds has no verdict.",
        0.1,
    )
    max_attack: Share | None = doc(
        "The training does not start when one of the attacks below earns a larger mean share of full marks from `grader`, on eight of the `problems`; by default none is tried.",
        None,
    )
    group: int = doc("Attempts at each problem.", 8, ge=2)
    problems_per_step: Count = doc("Problems in one step.", 16)
    steps: Count = doc("Number of optimizer steps.")
    learning_rate: float = doc("The highest learning rate of the schedule.", 1e-6, gt=0)
    schedule: Schedule = doc("How the learning rate changes after the warm-up.", "constant")
    warmup: Share = doc("Share of the steps during which the learning rate rises.", 0.0)
    beta2: Share = doc("Beta 2 of AdamW.", 0.999)
    weight_decay: float = doc("Weight decay of AdamW.", 0.0, ge=0)
    clip: float = doc("Gradients are clipped to this norm.", 1.0, gt=0)
    temperature: float = doc("Sampling temperature of the rollouts.", 1.0, gt=0)
    top_p: float = doc("Share of the probability that nucleus sampling of the rollouts draws from.", 1.0, gt=0, le=1)
    top_k: Count | None = doc("How many of the likeliest tokens the rollouts draw from; by default all.", None)
    min_p: float | None = doc(
        "Tokens below this share of the likeliest token's probability are not drawn; by default all may be.",
        None,
        gt=0,
        le=1,
    )
    max_tokens: Count = doc("The most tokens of one rollout.", 128)
    loss: Literal["grpo", "dapo", "bnpo", "dr_grpo", "sequence_sum"] = doc(
        "How the losses of tokens are combined: `grpo` takes the mean over attempts of each attempt's mean, `bnpo` the mean over all tokens of a step, `dapo` the same, where each of the `batches` of a round divides by the mean number of tokens of a step; `dr_grpo` divides the sum by attempts times `max-tokens`, `sequence_sum` by attempts (QED-Nano).",
        "dapo",
    )
    policy: Literal["clipped", "reinforce"] = doc(
        "The policy's objective: PPO's clipped ratio, or log-probabilities weighted by the ratio up to 1 + `epsilon-high`.",
        "clipped",
    )
    scale: Literal["group", "batch", "none"] = doc(
        "Whose standard deviation divides the advantage: the group's, the batch's, or `none`.", "group"
    )
    kl: float = doc("Weight of the divergence from the reference model, which is where training started.", 0.0, ge=0)
    sync_reference: Count | None = doc("Steps after which the reference becomes the model as it is then.", None)
    entropy: float = doc("Weight of the entropy, of its mean over tokens; with `sequence_sum`, of its sum.", 0.0, ge=0)
    epsilon: float = doc("How far below 1 the ratio is clipped.", 0.2, gt=0)
    epsilon_high: float | None = doc("How far above 1 the ratio is clipped, if not by `epsilon`.", None, gt=0)
    iterations: Count = doc("Updates on each batch of rollouts.", 1)
    batches: Count = doc("Steps that share one round of rollouts, each with its own part of them.", 1)
    lag: int = doc(
        "Steps by which rollouts may be older than the weights that learn from them: sampling, judging and learning then go on side by side. 0: one after the other.",
        0,
        ge=0,
    )
    mask_truncated: bool = doc("Leave rollouts that were cut off out of the loss.", False)
    adapter: Adapter | None = doc("Train low-rank additions, as in `sft`.", None)
    precision: Literal["float32", "bfloat16"] = doc("Floating-point format of the arithmetic.", "float32")
    # Reasoning cache (QED-Nano): the policy thinks in turns, and is trained to go on from summaries of its own thoughts.
    summarizer: JudgeRef | None = doc(
        "The model that summarises each of the policy's thoughts; with it the policy is trained to continue from summaries.",
        None,
    )
    turns: Count = doc(
        "How many times the policy thinks and is summarised before the attempts that are trained on (`summarizer`).", 3
    )
    states: Count = doc("How many summaries of one problem are continued by a group of attempts (`summarizer`).", 2)
    turn_prompt: str = doc("The solver's prompt when it continues from a summary (`summarizer`).", "go-on")
    summary_prompt: str = doc("The summarizer's prompt (`summarizer`).", "summarize")
    # A second opinion, which is no reward: where the two drift apart, the reward is being gamed.
    hold_out: GraderRef | None = doc("A second grader, which marks some rollouts and rewards none of them.", None)
    hold_out_prompt: str | None = doc("The second grader's rubric, where it is a judge asked alone.", None)
    hold_out_every: Count = doc("Steps between two samples for the second grader.", 10)
    hold_out_rows: Count = doc("Rollouts in one sample for the second grader.", 16)
    hold_out_apart: Share | None = doc(
        "Stop when the gap between the reward's marks and the second grader's has grown by more than this share of full marks since the start.",
        None,
    )
    log_every: Count = doc("Steps between two rows of the table.", 5)
    seed: int = doc("Seed of the order of the problems and of the rollouts.", 0)

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

    @property
    def rounds(self) -> int:
        """How many rounds of rollouts are made, of `batches` steps each, which are gone through `iterations` times."""
        return -(-self.steps // (self.batches * self.iterations))

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

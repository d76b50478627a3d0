"""The entry of self-play: fields, defaults, and the manual's sentences.

Defaults are the published settings of Absolute Zero Reasoner (Zhao et al. 2025, arXiv 2505.03335, section 4.1 and its code).
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, NotRequired, get_args

from pydantic import ConfigDict, Field, with_config
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from proofmill.schema.fields import Count, Entry, ProblemsRef, Share, Strict, WeightsRef, doc
from proofmill.schema.model_entries import Adapter, Schedule

Penalty = Annotated[float, Field(le=0)]
TaskName = Literal["abduce", "deduce", "induce", "error"]
Part = Literal[  # of what is asked (tasks/asking.py)
    "propose-abduce",
    "propose-deduce",
    "propose-induce",
    "propose-error",
    "solve-abduce",
    "solve-deduce",
    "solve-induce",
    "solve-error",
    "example",
    "pair",
    "reply",
]
Intrinsic = Literal[
    "complexity", "edit-distance", "halstead", "answer-diversity", "input-diversity", "output-diversity"
]


@with_config(ConfigDict(extra="forbid", strict=True))
class Term(TypedDict):
    """How much an intrinsic reward counts."""

    weight: float
    most: NotRequired[float]  # 0.5 without it
    hierarchical: NotRequired[bool]  # of diversity: by type and by value given the type


@with_config(ConfigDict(extra="forbid", strict=True))
class Composite(TypedDict):
    """How likely a new program must call known ones, and how many (published: every 50 steps from 101 more of both)."""

    chance: Share
    functions: NotRequired[Count]
    gain: NotRequired[Share]
    most: NotRequired[Share]
    most_functions: NotRequired[Count]
    start: NotRequired[Count]
    every: NotRequired[Count]


@dataclass(frozen=True, config=Strict)
class Selfplay(Entry):
    """One row is a measured training step; the weights, the rollouts and the buffer of tasks stand beside the table."""

    revision: ClassVar[int] = 1
    undeciding: ClassVar[tuple[str, ...]] = ("max_unscored",)
    model: WeightsRef = doc("The model where training starts.")
    tasks: list[TaskName] = doc(
        "Which tasks are proposed and solved: `deduce` the output, `abduce` an input, `induce` the program, name the `error`.",
        ["abduce", "deduce", "induce"],
        min_length=1,
    )
    proposer: Literal["trained", "frozen", "absent"] = doc(
        "Whether proposing is `trained` too; `frozen` proposes and is not trained for it, `absent` leaves the solver with the first tasks.",
        "trained",
    )
    wording: Literal["tasks", "tasks-terse"] = doc(
        "The folder of prompts: `tasks` says in words what is asked, `tasks-terse` is for a tiny model that was taught its form.",
        "tasks",
    )
    reworded: dict[Part, str] = doc(
        "Other prompts in the place of some of these, by name or path, such as `{propose-deduce: mine.md}`.", {}
    )
    # The tasks that self-play begins with.
    seed_tasks: ProblemsRef | None = doc(
        "A table of first tasks; without one the model writes them itself, starting from the function that returns its argument.",
        None,
    )
    seeds: Count = doc("How many first tasks there are, of programs and of tasks to induce each, at most.", 256)
    # A step.
    steps: Count = doc("Number of optimizer steps.")
    batch: int = doc("Rollouts of each task in each role in one step.", 64, ge=2)
    references: int = doc("How many tasks of the buffer a proposer is shown; 0 shows none.", 6, ge=0)
    attempts: Count = doc("How many attempts of the solver measure how hard a proposed task is.", 8)
    inputs: int = doc("How many inputs a task to induce has; the solver sees the first half.", 10, ge=2)
    # The buffer of tasks.
    buffer: Count = doc("The most tasks that the buffer of each kind holds.", 16384)
    buffer_keeps: Literal["newest", "oldest"] = doc(
        "Which tasks a full buffer keeps; with `oldest` it takes no further ones.", "oldest"
    )
    reference_draw: Literal["uniform", "step"] = doc(
        "How references are drawn; `step` weighs a task by the step that proposed it, plus one.", "uniform"
    )
    solver_draw: Literal["max-new", "half-new", "uniform", "step"] = doc(
        "Which tasks are solved: as many as possible (`max-new`), or half of them (`half-new`), are of the step before, the others any; `uniform` takes any, `step` any by its step plus one.",
        "max-new",
    )
    admits: Literal["all", "non-one", "non-extremes"] = doc(
        "Which valid tasks enter the buffer: `all`, those that not every attempt solves, or of these those that some attempt solves.",
        "all",
    )
    # Rewards.
    learnability: Literal["one-minus", "inverse", "none"] = doc(
        "What a valid task earns its proposer: `one-minus` the share of attempts that solve it, and 0 if none does; `inverse` also then; `none` 1 for any.",
        "one-minus",
    )
    malformed: Penalty = doc(
        "The reward of a reply in another form than was asked for, and of a task that is not valid.", -1.0
    )
    nothing: Penalty = doc("The reward of a wrong answer, and of a task that all or no attempts solve.", -0.5)
    induced: Literal["all", "mean", "any"] = doc(
        "What an induced program earns: 1 if it fits `all` hidden pairs, the share that it fits (`mean`), 1 if it fits `any`.",
        "all",
    )
    intrinsic: dict[Intrinsic, Term] = doc(
        "Further rewards of a task that is worth something, `{complexity: {weight: 0.5, most: 0.5}}`; `answer-diversity` is of what the solver is to find, `input-` and `output-diversity` are of tasks to induce.",
        {},
    )
    combine: Literal["sum", "multiply", "sum-multiply", "multiply-sum"] = doc(
        "How they are combined with the learnability: it plus their `sum`, times their product (`multiply`), plus their product, or times their sum.",
        "sum",
    )
    composite: Composite | None = doc(
        "A curriculum in which new programs must call known ones, `{chance: 0.1, functions: 1}`.", None
    )
    max_unscored: Share = doc(
        "The training stops, with its checkpoints, when a larger share of the rollouts of its last ten steps has no verdict.",
        0.1,
    )
    # Sampling.
    prompt_tokens: Count = doc("The longest prompt in tokens; longer ones are drawn again.", 6144)
    max_tokens: Count = doc("The most tokens of one reply.", 8096)
    temperature: float = doc("Sampling temperature, of the attempts too.", 1.0, gt=0)
    top_p: float = doc("Share of the probability that nucleus sampling draws from.", 1.0, gt=0, le=1)
    top_k: Count | None = doc("How many of the likeliest tokens are drawn from; by default all.", None)
    seconds: float = doc("The longest that a program may run.", 10.0, gt=0)
    one_function: bool = doc("A proposal may define one function only.", False)
    # Learning.
    baselines: Literal["task-and-role", "one"] = doc(
        "Whose rewards an advantage is centred and scaled by: those of the same `task-and-role` (TRR++), or of all in `one` (REINFORCE++).",
        "task-and-role",
    )
    baseline_over: Literal["token", "sample"] = doc(
        "Whether a rollout counts in its baseline once for each of its tokens, as in the published code, or once, as in the paper.",
        "token",
    )
    learning_rate: float = doc("The highest learning rate of the schedule.", 1e-6, gt=0)
    schedule: Schedule = doc("How the learning rate changes after the warm-up.", "constant")
    warmup: Share = doc("Share of the steps during which the learning rate rises.", 0.0)
    beta2: Share = doc("Beta 2 of AdamW.", 0.999)
    weight_decay: float = doc("Weight decay of AdamW.", 0.0, ge=0)
    clip: float = doc("Gradients are clipped to this norm.", 1.0, gt=0)
    epsilon: float = doc("How far below 1 the ratio is clipped.", 0.2, gt=0)
    epsilon_high: float | None = doc("How far above 1 the ratio is clipped, if not by `epsilon`.", None, gt=0)
    dual_clip: float | None = doc("The largest ratio that counts where the advantage is negative.", None, gt=1)
    entropy: float = doc("Weight of the entropy, of its mean over tokens.", 0.001, ge=0)
    iterations: Count = doc("Updates on the rollouts of a step; each counts as a step.", 1)
    adapter: Adapter | None = doc("Train low-rank additions, as in `sft`.", None)
    precision: Literal["float32", "bfloat16"] = doc("Floating-point format of the arithmetic.", "float32")
    log_every: Count = doc("Steps between two rows of the table.", 1)
    seed: int = doc("Seed of what is drawn and sampled.", 0)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that are trained."""
        return ("propose", "solve") if self.proposer == "trained" else ("solve",)

    @property
    def rows(self) -> int:
        """How many rollouts are learned from in a step."""
        return len(self.tasks) * len(self.roles) * self.batch

    @property
    def words(self) -> dict[str, str]:
        """The prompt of each part of what is asked."""
        return {part: f"{self.wording}/{part}" for part in get_args(Part)} | self.reworded

    def prompts(self) -> list[str]:
        unused = {f"{role}-{task}" for role in ("propose", "solve") for task in {*get_args(TaskName)} - {*self.tasks}}
        return [prompt for part, prompt in self.words.items() if part not in unused]

    def expected_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return self.steps * self.rows // self.iterations

"""Define the entry of `selfplay`.

Defaults are the published settings of Absolute Zero Reasoner (Zhao et al. 2025, arXiv 2505.03335, section 4.1 and its code).
"""

from collections.abc import Callable, Iterator
from typing import Annotated, ClassVar, Literal, NotRequired, get_args

from pydantic import ConfigDict, Field, with_config
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from proofmill.schema.context import Context
from proofmill.schema.entries.evaluation_fields import (
    EVALUATE,
    EVALUATE_ATTEMPTS,
    EVALUATE_EVERY,
    EVALUATE_TEMPERATURE,
    KEEP_BEST,
    SAVE_EVERY,
    evaluation_faults,
)
from proofmill.schema.entries.model_entries import WARMUP_RATIO, Adapter, Schedule, warmup_faults
from proofmill.schema.fields import (
    TOP_K,
    TOP_P,
    Count,
    Entry,
    ProblemsRef,
    Ref,
    Share,
    Strict,
    WeightsRef,
    defaults_of,
    doc,
    require,
)

Penalty = Annotated[float, Field(le=0)]


TaskName = Literal["abduce", "deduce", "induce", "error"]


Part = Literal[  # of the requests (selfplay_tasks/requests.py)
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
    """The weight and the limit of an intrinsic reward."""

    weight: float
    max: NotRequired[float]  # default: 0.5
    hierarchical: NotRequired[bool]  # for diversity: by type, then by value within the type


@with_config(ConfigDict(extra="forbid", strict=True))
class Composite(TypedDict):
    """Probability that a new program must call known ones, and their number (published: both grow every 50 steps from 101)."""

    probability: Share
    functions: NotRequired[Count]
    gain: NotRequired[Share]
    max_probability: NotRequired[Share]
    max_functions: NotRequired[Count]
    start_step: NotRequired[Count]
    every: NotRequired[Count]


@dataclass(frozen=True, config=Strict)
class Selfplay(Entry):
    """One row is a metric of a training step. The weights, the rollouts and the task buffer are in a folder next to the table."""

    revision: ClassVar[int] = 5
    cosmetic: ClassVar[tuple[str, ...]] = ("max_unscored",)
    model: WeightsRef = doc("Model to start training from.")
    tasks: list[TaskName] = doc(
        "Tasks to propose and solve: find the output (`deduce`), an input (`abduce`), the program (`induce`), or the exception (`error`).",
        ["abduce", "deduce", "induce"],
        min_length=1,
    )
    proposer: Literal["trained", "frozen", "absent"] = doc(
        "Role of the proposer: `trained` proposes and is trained, `frozen` proposes without training, `absent` leaves only the seed tasks.",
        "trained",
    )
    prompt_set: Literal["tasks", "tasks-terse"] = doc(
        "Folder of prompts: `tasks` explains each task in words, `tasks-terse` is for a tiny model that was trained on its form.",
        "tasks",
    )
    prompts: dict[Part, str] = doc("Replacements of some prompts, e.g. `{propose-deduce: mine.md}`.", {})
    # Seed tasks.
    seed_tasks: ProblemsRef | None = doc(
        "Table of seed tasks. By default, the model writes them from the identity function.", None
    )
    max_seed_tasks: Count = doc("Maximum number of seed tasks: of programs, and of `induce` tasks.", 256)
    # One step.
    steps: Count = doc("Number of optimizer steps.")
    batch_size: int = doc("Rollouts in one step for each task and role.", 64, ge=2)
    references: int = doc("Number of tasks from the buffer to show the proposer. 0 shows none.", 6, ge=0)
    attempts: Count = doc("Attempts of the solver that estimate the difficulty of a proposed task.", 8)
    inputs: int = doc("Inputs of an `induce` task. The solver sees the first half.", 10, ge=2)
    # Task buffer.
    buffer_size: Count = doc("Maximum number of tasks in the buffer of each kind of task.", 16384)
    buffer_keeps: Literal["newest", "oldest"] = doc("Tasks that a full buffer keeps.", "oldest")
    reference_sampling: Literal["uniform", "step"] = doc(
        "Sampling of the references: `uniform`, or weighted by the proposing step plus one (`step`).", "uniform"
    )
    solver_sampling: Literal["max-new", "half-new", "uniform", "step"] = doc(
        "Sampling of the tasks to solve: as many as possible (`max-new`) or half (`half-new`) from the previous step and the rest from the buffer; `uniform` from the buffer; `step` from the buffer, weighted by the proposing step plus one.",
        "max-new",
    )
    buffer_admits: Literal["all", "non-one", "non-extremes"] = doc(
        "Valid tasks that enter the buffer: `all`; those that not every attempt solves (`non-one`); those that some but not all attempts solve (`non-extremes`).",
        "all",
    )
    # Rewards.
    learnability: Literal["one-minus", "inverse", "none"] = doc(
        "Proposer's reward for a valid task: 1 minus the share of attempts that solve it, but 0 if none does (`one-minus`); the same without the exception (`inverse`); always 1 (`none`).",
        "one-minus",
    )
    malformed_reward: Penalty = doc(
        "Reward of a malformed reply, of an `induce` solution without a program, and of an invalid task.", -1.0
    )
    wrong_reward: Penalty = doc("Reward of a wrong answer, and of a task that all or none of the attempts solve.", -0.5)
    induction_reward: Literal["all", "mean", "any"] = doc(
        "Reward of an `induce` solution: 1 if it fits `all` hidden pairs, the share that it fits (`mean`), or 1 if it fits `any`.",
        "all",
    )
    intrinsic_rewards: dict[Intrinsic, Term] = doc(
        "Intrinsic rewards of a task whose learnability is above 0, e.g. `{complexity: {weight: 0.5, max: 0.5}}`. `answer-diversity` compares what the solver must find; `input-diversity` and `output-diversity` apply to `induce`.",
        {},
    )
    combine: Literal["sum", "multiply", "sum-multiply", "multiply-sum"] = doc(
        "Combination of the learnability and the intrinsic rewards: add their sum (`sum`), multiply by their product (`multiply`), add their product (`sum-multiply`), or multiply by their sum (`multiply-sum`).",
        "sum",
    )
    composite: Composite | None = doc(
        "Curriculum in which new programs must call known ones, e.g. `{probability: 0.1, functions: 1}`. By default, off.",
        None,
    )
    max_unscored: Share = doc(
        "Maximum share of unscored rollouts in the last ten steps. Above it, training stops and keeps its checkpoints.",
        0.1,
    )
    # Sampling.
    max_prompt_tokens: Count = doc("Maximum tokens of a prompt. Longer prompts are drawn again.", 5600)
    max_tokens: Count = doc("Maximum tokens of one reply. Longer replies are truncated.", 8096)
    temperature: float = doc("Sampling temperature, also of the attempts.", 1.0, gt=0)
    top_p: float = doc(TOP_P, 1.0, gt=0, le=1)
    top_k: Count | None = doc(TOP_K, None)
    program_timeout: float = doc("Time limit of a program in seconds.", 10.0, gt=0)
    one_function: bool = doc("Allow only one function in a proposal.", False)
    entry_function: Literal["f-or-first", "f-or-last", "first", "last"] = doc(
        "Function of a proposal that becomes `f`: one of this name, or else the first (`f-or-first`) or the last (`f-or-last`); always the `first` or the `last`.",
        "f-or-first",
    )
    # Training.
    baselines: Literal["task-and-role", "global"] = doc(
        "Rewards that normalize an advantage: those of the same task and role (`task-and-role`, TRR++), or all (`global`, REINFORCE++).",
        "task-and-role",
    )
    baseline_over: Literal["token", "rollout"] = doc(
        "Weight of a rollout in its baseline: once per `token` (the published code), or once (`rollout`, the paper).",
        "token",
    )
    learning_rate: float = doc("Peak learning rate.", 1e-6, gt=0)
    schedule: Schedule = doc("Learning rate schedule after the warm-up.", "constant")
    warmup_ratio: Share = doc(WARMUP_RATIO, 0.0, lt=1)
    beta2: Share = doc("Beta 2 of AdamW.", 0.999, lt=1)
    weight_decay: float = doc("Weight decay of AdamW.", 0.0, ge=0)
    max_grad_norm: float = doc("Maximum gradient norm; larger gradients are scaled down to it.", 1.0, gt=0)
    epsilon: float = doc("Lower clipping range of the ratio, below 1.", 0.2, gt=0)
    epsilon_high: float | None = doc("Upper clipping range of the ratio, above 1. Default: `epsilon`.", None, gt=0)
    dual_clip: float | None = doc("Maximum ratio for negative advantages (dual-clip PPO).", None, gt=1)
    entropy: float = doc("Weight of the entropy bonus (mean over tokens).", 0.001, ge=0)
    iterations: Count = doc("Updates on the rollouts of a step. Each update counts as a step.", 1)
    lora: Adapter | None = doc("Train LoRA adapters, as in `sft`. By default, all weights are trained.", None)
    precision: Literal["float32", "bfloat16"] = doc("Floating-point format of the computation.", "float32")
    # Held-out problems.
    evaluate: ProblemsRef | None = doc(EVALUATE, None)
    evaluate_every: Count = doc(EVALUATE_EVERY, 10)
    evaluate_attempts: Count = doc(EVALUATE_ATTEMPTS, 1)
    evaluate_temperature: float | None = doc(EVALUATE_TEMPERATURE, None, ge=0)
    evaluate_grader: Annotated[str, Ref(named="graders")] | None = doc("Program that grades the evaluations.", None)
    prompt: str = doc("Name or path of the prompt that the policy is given for a problem of `evaluate`.", "solve")
    keep_best: bool = doc(KEEP_BEST, False)
    save_every: Count | None = doc(SAVE_EVERY, None)
    log_every: Count = doc("Steps between two logged rows.", 1)
    seed: int = doc("Seed of all random draws and of the sampling.", 0)

    @property
    def roles(self) -> tuple[str, ...]:
        """The trained roles."""
        return ("propose", "solve") if self.proposer == "trained" else ("solve",)

    @property
    def needs_accuracy(self) -> bool:
        """True if the solver attempts proposed tasks, to reward the proposer or to select tasks for the buffer."""
        return self.proposer == "trained" or self.buffer_admits != "all"

    @property
    def rows(self) -> int:
        """The number of rollouts that one step trains on."""
        return len(self.tasks) * len(self.roles) * self.batch_size

    @property
    def words(self) -> dict[str, str]:
        """The prompt of each part of a request."""
        return {part: f"{self.prompt_set}/{part}" for part in get_args(Part)} | self.prompts

    def prompt_names(self) -> list[str]:
        unused = {f"{role}-{task}" for role in ("propose", "solve") for task in {*get_args(TaskName)} - {*self.tasks}}
        used = [prompt for part, prompt in self.words.items() if part not in unused]
        return [*used, self.prompt] if self.evaluate else used

    @property
    def evaluated_by(self) -> tuple[str, None, None]:
        """The grader of the evaluations, which has neither a rubric nor grading schemes."""
        return require(self.evaluate_grader), None, None

    def graders(self) -> list[tuple[str, str | None]]:
        """Return the program that grades the evaluations, if any."""
        return [self.evaluated_by[:2]] if self.evaluate else []

    def estimate_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return self.steps * self.rows // self.iterations

    def faults(self, context: Context) -> Iterator[str]:
        yield from evaluation_faults(self)
        yield from warmup_faults(self)
        if self.evaluate and not self.evaluate_grader:
            yield "found `evaluate` without `evaluate-grader`; expected a program that grades its problems. Set it."
        yield from context.asking_faults("prompt", self.prompt)
        for part, prompt in self.prompts.items():
            if fault := context.prompt_fault(prompt):
                yield f"`prompts` > `{part}` {fault}"
            usual = context.prompt(f"{self.prompt_set}/{part}")
            yield from context.asking_faults(f"prompts` > `{part}", prompt, (*usual.needs, *usual.optional))
        if twice := [task for task in dict.fromkeys(self.tasks) if self.tasks.count(task) > 1]:
            yield f"`tasks` names `{twice[0]}` {self.tasks.count(twice[0])} times; expected each task once."
        if self.proposer == "absent" and self.seed_tasks is None:
            yield "`proposer: absent` needs `seed-tasks`; expected problems/<name>. Set it."
        if self.proposer != "trained":
            for field in ("intrinsic_rewards", "learnability"):
                if (getattr(self, field),) != defaults_of(Selfplay, field) and getattr(self, field):
                    key = field.replace("_", "-")
                    yield f"`{key}` rewards proposals and `proposer` is {self.proposer}; expected `trained`. Set it, or remove `{key}`."
        if self.composite and not {"abduce", "deduce", "error"} & {*self.tasks}:
            yield "`composite` applies to new programs, which `induce` does not propose; expected another task in `tasks`. Add one, or remove `composite`."
        if self.dual_clip is not None and self.dual_clip <= 1 + (self.epsilon_high or self.epsilon):
            yield f"`dual-clip` is {self.dual_clip:g}; expected more than 1 + `epsilon-high`, the upper clipping limit."

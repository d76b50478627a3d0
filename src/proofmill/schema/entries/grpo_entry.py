"""Define the entry of `grpo`: reinforcement learning from grades and other rewards."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Literal, NotRequired

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
    count_evaluations,
    evaluation_faults,
)
from proofmill.schema.entries.model_entries import WARMUP_RATIO, Adapter, Schedule, warmup_faults
from proofmill.schema.fields import (
    ASKED,
    MIN_P,
    RUBRIC,
    TOP_K,
    TOP_P,
    Count,
    Entry,
    GraderRef,
    JudgeRef,
    ProblemsRef,
    Ref,
    Share,
    Strict,
    WeightsRef,
    defaults_of,
    doc,
)
from proofmill.schema.names import kind_of


@with_config(ConfigDict(extra="forbid", strict=True))
class Preference(TypedDict):
    """The weight and the scope of a preference reward, from a judge or a reward model."""

    weight: float
    input: NotRequired[Literal["summary", "all"]]  # the text after the reasoning, or all text; default: `all`
    from_step: NotRequired[Annotated[int, Field(ge=0)]]  # default: 0
    question_types: NotRequired[list[Literal["proof", "answer", "code", "chat"]]]  # question types; default: all
    prompt: NotRequired[str]  # rubric of a single judge


@dataclass(frozen=True, config=Strict)
class Grpo(Entry):
    """One row is a metric of a training step. The weights and the rollouts are in a folder next to the table."""

    revision: ClassVar[int] = 13
    cosmetic: ClassVar[tuple[str, ...]] = ("max_unscored", "max_attack")
    model: WeightsRef = doc("Model to start training from.")
    problems: ProblemsRef = doc("Table whose kept rows are attempted.")
    schemes: Annotated[str, Ref("schemes")] | None = doc("Grading schemes to show the judge. By default, none.", None)
    grader: GraderRef = doc(
        "Grader of the rollouts, as in `grades`. With a `teacher` and no rewards, rollouts are not graded; it grades evaluations."
    )
    grader_prompt: str | None = doc(RUBRIC, None)
    prompt: str = doc("Name or path of the prompt that the policy is given.", "solve")
    rewards: dict[str, float | dict[str, Any]] = doc(
        "Rewards (listed below) and their weights, e.g. `{grade: 1, format: 0.1}`; with arguments, `{overlong: {weight: 1, buffer: 64}}`.",
        {},
    )
    preferences: dict[Annotated[str, Ref(*ASKED, "base", "sft")], Preference] = doc(
        "Preference rewards, for problems without a correct answer: a judge or a reward model, with `{weight: , input: , from-step: , question-types: , prompt: }`.",
        {},
    )
    teacher: WeightsRef | None = doc(
        "Teacher of on-policy distillation: a model with the same tokens, whose log-probability of each token of a rollout, minus that of the policy, is added to the token's advantage (reverse KL divergence). Works with or without `rewards`. By default, no model teaches.",
        None,
    )
    teacher_weight: float | None = doc(
        "Weight of the divergence from the `teacher`, next to advantages of rewards. Default: 1.", None, gt=0
    )
    unscored: Literal["drop", "zero"] = doc(
        "Handling of a rollout without a verdict: `drop` excludes it from the gradient and from its group's mean, `zero` counts the missing reward as 0."
    )
    max_unscored: Share = doc(
        "Maximum share of unscored rollouts in the last ten rollout batches. Above it, training stops and keeps its checkpoints.",
        0.1,
    )
    max_attack: Share | None = doc(
        "Maximum mean share of the points that an attack (listed below) may earn from `grader`, on eight of the `problems`. Above it, training does not start. By default, no attack is tried.",
        None,
    )
    group_size: int = doc("Rollouts of each problem.", 8, ge=2)
    problems_per_step: Count = doc("Problems in one optimizer step.", 16)
    steps: Count = doc("Number of optimizer steps.")
    learning_rate: float = doc("Peak learning rate.", 1e-6, gt=0)
    schedule: Schedule = doc("Learning rate schedule after the warm-up.", "constant")
    warmup_ratio: Share = doc(WARMUP_RATIO, 0.0, lt=1)
    beta2: Share = doc("Beta 2 of AdamW.", 0.999, lt=1)
    weight_decay: float = doc("Weight decay of AdamW.", 0.0, ge=0)
    max_grad_norm: float = doc("Maximum gradient norm; larger gradients are scaled down to it.", 1.0, gt=0)
    temperature: float = doc("Sampling temperature of the rollouts.", 1.0, gt=0)
    top_p: float = doc(TOP_P, 1.0, gt=0, le=1)
    top_k: Count | None = doc(TOP_K, None)
    min_p: float | None = doc(MIN_P, None, gt=0, le=1)
    max_tokens: Count = doc("Maximum tokens of one rollout. Longer rollouts are truncated.", 128)
    loss: Literal["grpo", "dapo", "bnpo", "dr_grpo", "sequence_sum"] = doc(
        "Aggregation of the token losses. `grpo`: mean over rollouts of each rollout's mean. `bnpo`: mean over all tokens of a step. `dapo`: the same, but each of the `mini-batches` of a rollout batch divides by the mean number of tokens of a step. `dr_grpo`: sum divided by rollouts times `max-tokens`. `sequence_sum`: sum divided by rollouts (QED-Nano).",
        "dapo",
    )
    objective: Literal["clipped", "gspo", "reinforce", "cispo"] = doc(
        "Policy objective: PPO's clipped ratio of each token (`clipped`), or of each rollout (`gspo`, in its paper with `loss: grpo`); or log-probabilities weighted by the ratio, capped at 1 + `epsilon-high` (`reinforce`) and also at 1 - `epsilon` from below (`cispo`).",
        "clipped",
    )
    scale_rewards: Literal["group", "batch", "none"] = doc(
        "Divide advantages by the standard deviation of the `group`, of the `batch`, or not at all (`none`).", "group"
    )
    kl: float = doc("Weight of the KL divergence from the reference model, which is the initial model.", 0.0, ge=0)
    reference_sync_steps: Count | None = doc(
        "Steps between two updates of the reference model to the current policy. By default, it is never updated.", None
    )
    entropy: float = doc("Weight of the mean entropy over tokens (`sequence_sum`: of the sum).", 0.0, ge=0)
    epsilon: float = doc("Lower clipping range of the ratio, below 1.", 0.2, gt=0)
    epsilon_high: float | None = doc("Upper clipping range of the ratio, above 1. Default: `epsilon`.", None, gt=0)
    dual_clip: float | None = doc("Maximum ratio for negative advantages (dual-clip PPO).", None, gt=1)
    mask_divergence: float | None = doc(
        "Exclude rollouts with a negative advantage whose mean log-probability of a token has fallen by more than this since they were sampled (off-policy sequence masking of DeepSeek-V3.2). By default, none is excluded.",
        None,
        ge=0,
    )
    idle: Literal["count", "leave-out", "replace"] = doc(
        "Handling of groups without a learning signal: `count` them in the denominators of the loss, `leave-out` of these, or `replace` them by groups of further problems (dynamic sampling of DAPO) and leave out what stays idle.",
        "count",
    )
    idle_rounds: Count = doc("Maximum number of rounds of sampling for one rollout batch (`idle: replace`).", 3)
    # Problems that the policy solves too often or too seldom have no learning signal. They are drawn less.
    retire_solved: Share | None = doc(
        "Retire a problem when the mean grade of its last group is at least this share of the points: it is no longer drawn. By default, no solved problem is retired.",
        None,
    )
    retire_unsolved: Share | None = doc(
        "Retire a problem when the mean grade of its last group is at most this share of the points, e.g. 0. By default, no unsolved problem is retired.",
        None,
    )
    return_after: Count | None = doc("Steps after which a retired problem is drawn again. By default, never.", None)
    known_grades: Annotated[str, Ref("grades")] | None = doc(
        "Grades of other attempts at the problems, by any model, which retire problems before the first step.", None
    )
    iterations: Count = doc("Updates on each rollout batch.", 1)
    mini_batches: Count = doc("Mini-batches: optimizer steps for one rollout batch, each on its own part.", 1)
    max_staleness: int = doc(
        "Maximum staleness: steps by which rollouts may be older than the weights that train on them first. Sampling, grading and training then run concurrently; with 0 they run in turn.",
        0,
        ge=0,
    )
    mask_truncated: bool = doc("Exclude truncated rollouts from the loss.", False)
    lora: Adapter | None = doc("Train LoRA adapters, as in `sft`. By default, all weights are trained.", None)
    precision: Literal["float32", "bfloat16"] = doc("Floating-point format of the computation.", "float32")
    # Reasoning cache (QED-Nano): the policy reasons in turns, and is trained to continue from summaries of its reasoning.
    summarizer: JudgeRef | None = doc(
        "Model that summarizes the policy's reasoning. If set, the policy is trained to continue from summaries (reasoning cache).",
        None,
    )
    turns: Count = doc("Turns of reasoning and summary before the rollouts that are trained on (`summarizer`).", 3)
    summaries: Count = doc("Summaries of one problem that a group of rollouts continues from (`summarizer`).", 2)
    turn_prompt: str = doc("Prompt to continue from a summary (`summarizer`).", "continue-from-summary")
    summary_prompt: str = doc("Prompt of the summarizer (`summarizer`).", "summarize")
    # The audit grader gives no reward. A growing gap between the two graders means that the policy exploits the reward.
    audit: GraderRef | None = doc("Audit grader: grades some rollouts, without effect on rewards.", None)
    audit_prompt: str | None = doc("Rubric of the audit grader, if it is a single judge `api/<name>`.", None)
    audit_every: Count = doc("Steps between two audits.", 10)
    audit_rows: Count = doc("Rollouts in one audit.", 16)
    audit_gap: Share | None = doc(
        "Maximum growth, since the start, of the gap between the two graders, as a share of the points. Above it, training stops. By default, there is no limit.",
        None,
    )
    # Held-out problems give no reward. Their grades say whether the policy learns more than its own problems.
    evaluate: ProblemsRef | None = doc(EVALUATE, None)
    evaluate_every: Count = doc(EVALUATE_EVERY, 10)
    evaluate_attempts: Count = doc(EVALUATE_ATTEMPTS, 1)
    evaluate_temperature: float | None = doc(EVALUATE_TEMPERATURE, None, ge=0)
    evaluate_grader: GraderRef | None = doc("Grader of the evaluations. By default, `grader` with its rubric.", None)
    evaluate_prompt: str | None = doc("Rubric of `evaluate-grader`, if it is a single judge `api/<name>`.", None)
    evaluate_schemes: Annotated[str, Ref("schemes")] | None = doc(
        "Grading schemes of the problems of `evaluate`. By default, `schemes`.", None
    )
    keep_best: bool = doc(KEEP_BEST, False)
    save_every: Count | None = doc(SAVE_EVERY, None)
    log_every: Count = doc("Steps between two logged rows.", 5)
    seed: int = doc("Seed of the problem order and of the rollouts.", 0)

    @property
    def evaluated_by(self) -> tuple[str, str | None, str | None]:
        """The grader of the evaluations, with its rubric and the table of grading schemes; a program needs none."""
        grader, prompt = self.grader, self.grader_prompt
        if self.evaluate_grader:
            grader, prompt = self.evaluate_grader, self.evaluate_prompt
        return grader, prompt, self.evaluate_schemes or (self.schemes if "/" in grader else None)

    def graders(self) -> list[tuple[str, str | None]]:
        """Return the graders called in training: reward, preference (not reward models), audit and evaluation."""
        judged = [
            (name, preference.get("prompt")) for name, preference in self.preferences.items() if kind_of(name) in ASKED
        ]
        return [
            (self.grader, self.grader_prompt),
            *judged,
            *([(self.audit, self.audit_prompt)] if self.audit else []),
            *([self.evaluated_by[:2]] if self.evaluate else []),
        ]

    def prompt_names(self) -> list[str]:
        return [self.prompt, *([self.turn_prompt, self.summary_prompt] if self.summarizer else [])]

    @property
    def graded(self) -> bool:
        """True if rollouts are graded; a teacher alone needs no grades."""
        return bool(self.rewards or self.preferences)

    @property
    def retires(self) -> bool:
        """True if problems are retired by their grades."""
        return self.retire_solved is not None or self.retire_unsolved is not None

    @property
    def block(self) -> int:
        """The number of steps that train on one rollout batch: `mini-batches`, repeated `iterations` times."""
        return self.mini_batches * self.iterations

    @property
    def rounds(self) -> int:
        """The number of rollout batches."""
        return -(-self.steps // self.block)

    def estimate_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return self.graded * self.rounds * self.mini_batches * self.problems_per_step * self.group_size

    def other_calls(self, rows_of: Callable[[str], int | None]) -> dict[tuple[str, str | None], int | None]:
        """Estimate the calls by (grader, prompt) in addition to the reward grades, None if unknown.

        They are of preferences, audits, evaluations and summaries.
        """
        step = self.problems_per_step * self.group_size
        calls: dict[tuple[str, str | None], int | None] = {
            (name, preference.get("prompt")): max(self.steps - max(preference.get("from_step", 0) - 1, 0), 0)
            * step
            // self.iterations
            for name, preference in self.preferences.items()
            if kind_of(name) in ASKED
        }
        if self.audit:
            audits = self.rounds * self.block // max(self.audit_every, self.block)  # at most one of a rollout batch
            calls[self.audit, self.audit_prompt] = audits * self.audit_rows
        if self.summarizer:
            problems = self.steps * self.problems_per_step // (self.iterations * self.summaries)
            calls[self.summarizer, None] = problems * self.turns
        if self.evaluate:
            grader, prompt, _ = self.evaluated_by
            attempts, before = count_evaluations(self, rows_of), calls.get((grader, prompt), 0)
            calls[grader, prompt] = None if attempts is None or before is None else before + attempts
        return calls

    def faults(self, context: Context) -> Iterator[str]:
        yield from context.grading_faults(self.grader, self.grader_prompt, self.schemes)
        yield from context.asking_faults("prompt", self.prompt)
        if not (self.graded or self.teacher):
            yield "found no `rewards`, `preferences` or `teacher`; expected at least one. Set one."
        yield from self._teacher_faults(context)
        yield from self._preference_faults(context)
        if self.dual_clip is not None and self.objective not in ("clipped", "gspo"):
            yield f"found `dual-clip` with `objective: {self.objective}`; expected `clipped` or `gspo`. Remove `dual-clip`."
        if self.dual_clip is not None and self.dual_clip <= 1 + (self.epsilon_high or self.epsilon):
            yield f"`dual-clip` is {self.dual_clip:g}; expected more than 1 + `epsilon-high`, the upper clipping limit."
        if self.reference_sync_steps and (not self.kl or self.lora):
            yield "`reference-sync-steps` needs a separate reference model; expected `kl` above 0 and no `lora`."
        if self.audit:
            yield from context.grading_faults(self.audit, self.audit_prompt, self.schemes, "audit-prompt")
        elif self.audit_gap is not None or self.audit_prompt:
            yield "found `audit-prompt` or `audit-gap` without `audit`; expected the audit grader as `audit`. Set it."
        if self.audit and (self.audit, self.audit_prompt) == (self.grader, self.grader_prompt):
            yield f"`audit` is {self.audit}, which is the reward grader; expected another grader or another prompt."
        yield from evaluation_faults(self)
        yield from self._retirement_faults()
        yield from warmup_faults(self)
        if self.evaluate:
            yield from context.grading_faults(*self.evaluated_by, "evaluate-prompt")
        if self.idle == "replace" and self.scale_rewards == "batch":
            yield "found `idle: replace` with `scale-rewards: batch`, whose deviation is that of the problems as drawn; expected `group` or `none`. Set it."
        if self.idle == "replace" and self.summarizer:
            yield "found `idle: replace` with `summarizer`; expected one of them. Set `idle: leave-out`, or remove `summarizer`."
        if self.idle == "replace" and self.max_staleness:
            yield "found `idle: replace` with `max-staleness`; expected one of them. Set `idle: leave-out`, or `max-staleness: 0`."
        if self.max_staleness and self.summarizer:
            yield "found `max-staleness` with `summarizer`; expected one of them. Remove `summarizer`, or set `max-staleness: 0`."
        if self.max_staleness and self.lora and self.lora.get("quantized"):
            yield "found `max-staleness` with a quantized `lora`; expected one that is not quantized. Remove `quantized`, or set `max-staleness: 0`."
        if not self.summarizer and (self.turns, self.summaries) != defaults_of(Grpo, "turns", "summaries"):
            yield "found `turns` or `summaries` without `summarizer`; expected the model that summarizes. Set `summarizer`."
        if self.summarizer:
            yield from context.asking_faults("turn-prompt", self.turn_prompt, ("statement", "summary"))
            yield from context.asking_faults(
                "summary-prompt", self.summary_prompt, ("statement", "summary", "reasoning")
            )
            if self.summaries > self.turns + 1:
                yield f"`summaries` is {self.summaries} with {self.turns} `turns`; expected at most {self.turns + 1}."
            if self.problems_per_step * self.mini_batches % self.summaries:
                yield f"`problems-per-step` times `mini-batches` is {self.problems_per_step * self.mini_batches}; expected a multiple of `summaries`, {self.summaries}."

    def _retirement_faults(self) -> Iterator[str]:
        solved, unsolved = self.retire_solved, self.retire_unsolved
        if not self.retires and (self.return_after or self.known_grades):
            yield "found `return-after` or `known-grades` without `retire-solved` and `retire-unsolved`; expected at least one of them. Set it."
        if self.retires and not self.graded:
            yield "found `retire-solved` or `retire-unsolved` without rewards; expected graded rollouts. Set `rewards`, or remove them."
        if solved is not None and unsolved is not None and solved <= unsolved:
            yield f"`retire-solved` is {solved:g} and `retire-unsolved` is {unsolved:g}; expected more than that, so that problems are left."
        if solved == 0 or unsolved == 1:
            yield "found `retire-solved: 0` or `retire-unsolved: 1`, which retires every problem; expected shares of the points that leave some. Change it."

    def _teacher_faults(self, context: Context) -> Iterator[str]:
        if self.teacher is None:
            if self.teacher_weight is not None:
                yield "found `teacher-weight` without `teacher`; expected the model that teaches as `teacher`. Set it."
            return
        if not self.graded and (self.audit or self.max_attack is not None):
            yield "found `audit` or `max-attack` with a `teacher` and no rewards; expected graded rollouts. Set `rewards`, or remove them."
        if self.idle != "count":
            yield f"found `idle: {self.idle}` with `teacher`, who gives every group a signal; expected `idle: count`. Remove `idle`."
        if self.max_staleness:
            yield "found `teacher` with `max-staleness`; expected one of them. Set `max-staleness: 0`."
        roots = [context.root_of(name) for name in (self.model, self.teacher)]
        made = [
            (root.source, root.problems, root.vocabulary) if getattr(root, "source", None) == "scratch" else None
            for root in roots
        ]
        if made[0] != made[1] and all(roots):
            yield f"{self.model} and its `teacher` {self.teacher} have tokenizers of their own; expected one vocabulary. Make both from a `base` with the same `problems` and `vocabulary`."

    def _preference_faults(self, context: Context) -> Iterator[str]:
        names = [name.partition("/")[2] for name in self.preferences]
        for name in names:
            if name in self.rewards or names.count(name) > 1:
                yield f"two rewards have the name `{name}`; expected different names. Rename the one in `preferences`."
        for name, settings in self.preferences.items():
            if settings.get("from_step", 0) > self.steps:
                yield f"`preferences` > `{name}` has `from-step: {settings['from_step']}` and `steps` is {self.steps}; expected at most {self.steps}."
            if getattr(context.entries.get(name), "source", "") == "scratch":
                yield f"`preferences` > `{name}` has random weights; expected a reward model from a folder or the hub."
            prompt = settings.get("prompt")
            if prompt is not None and (fault := context.prompt_fault(str(prompt))):
                yield f"`preferences` > `{name}`: `prompt` {fault}"
            elif kind_of(name) not in ASKED and prompt:
                yield f"`preferences` > `{name}` is a reward model and has a `prompt`; expected none. Remove `prompt`."
            elif kind_of(name) == "api" and not prompt:
                yield f"`preferences` > `{name}` is a single judge; expected a `prompt`, such as `prefer-helpful`. Set it."
            elif kind_of(name) in ASKED:
                yield from (
                    f"`preferences` > `{name}`: {f}" for f in context.grading_faults(name, prompt, None, "prompt")
                )

"""One row of `grpo` is a number logged at a step of reinforcement learning; weights and rollouts are next to the table.

Group relative policy optimization (DeepSeekMath, section 4; DeepSeek-R1, section 2.2) with TRL's GRPOTrainer, rewarded
by the grader that also grades the benchmarks.

Differences from the original:
1. With `unscored: drop`, a rollout without a verdict gets no gradient instead of the grade 0. Its group is normalized
   without it, even if other rewards (format) could be computed.
2. Judges are called through the journal: a killed run resumes from its checkpoint and repeats no call.
3. Every rollout is kept with its rewards, its advantage and its verdict: results/grpo/<name>/rollouts.parquet.
4. An audit grader (`audit`) can grade samples. It stops a training that exploits its reward.
5. Problems that the grader cannot grade, for lack of an answer or a scheme, are left out.
6. A teacher's log-probabilities can be a reward of each token (`teacher`: on-policy distillation).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.joins import mean_grades, schemes_of
from proofmill.calls import records
from proofmill.calls.calls import MANY, Asker, Spent
from proofmill.calls.stream import Stream
from proofmill.engines import open_engine, rollout_engines
from proofmill.engines.rollout_servers.served_teacher import ServedTeacher
from proofmill.graders import robustness
from proofmill.graders.graders import SubmissionGrader
from proofmill.metrics import notices
from proofmill.runtime import environment, processes
from proofmill.runtime.progress import log
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.errors import GraderError, SettingError, TableError
from proofmill.schema.fields import ASKED
from proofmill.schema.kinds import EVALUATIONS, ROLLOUTS
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import TRANSIENT
from proofmill.training import memory
from proofmill.training.preferences import JudgedPreference, ModelPreference
from proofmill.training.reasoning_cache_rollouts import ReasoningCache
from proofmill.training.rollout_log import ROLLOUT_LOG, RolloutLog, columns, constant
from proofmill.training.rollout_rewards import Rewarding
from proofmill.training.rollouts import problems
from proofmill.training.rollouts.held_out import HeldOut

if TYPE_CHECKING:  # importing transformers is left to the trainings
    from proofmill.training.rollouts.kept_weights import KeptWeights


def main(entry: Grpo, job: Job) -> None:
    rollout_engines.before_trl(job)
    from trl import GRPOConfig

    from proofmill.training import checkpoints, micro_batches, run
    from proofmill.training import grpo_trainer as trainers
    from proofmill.training.rollouts import teacher
    from proofmill.training.rollouts.kept_weights import KeptWeights

    checkpoints.settle(job)
    batch = entry.problems_per_step * entry.group_size
    at_once = micro_batches.share_of(job, batch) * entry.mini_batches
    check_devices(entry, job, at_once)
    attacks = check_reward_robustness(entry, job)
    tokenizer = run.tokenizer_of(job, entry.model)
    data = attempts_at(entry, job, tokenizer)
    if entry.max_staleness:
        _train_async(entry, job, batch, at_once, attacks, tokenizer, data)
        return
    longest = max(map(len, problems.in_tokens(data["prompt"], tokenizer)))
    extra_memory = _extra_memory(entry, job, longest)
    sampling = rollout_engines.sampling(job, entry, at_once, **extra_memory)
    rows = micro_batches.split(
        entry,
        job,
        batch,
        at_least=micro_batches.LENGTHS,
        **extra_memory,
        **rollout_engines.footprint(sampling, at_once),
    )
    micro_batches.check_prompts(entry, job, entry.problems, longest)
    config = GRPOConfig(
        **run.arguments(entry, job, entry.log_every),
        **rows,
        **sampling,
        max_steps=entry.steps,
        steps_per_generation=rows["gradient_accumulation_steps"] * entry.mini_batches,
        num_generations=entry.group_size,
        num_iterations=entry.iterations,
        max_completion_length=entry.max_tokens,
        temperature=entry.temperature,
        top_p=entry.top_p,
        top_k=entry.top_k or 0,
        min_p=entry.min_p,
        beta=entry.kl,
        mask_truncated_completions=entry.mask_truncated,
        **rollout_engines.correction(entry),
        sync_ref_model=entry.reference_sync_steps is not None,
        ref_model_sync_steps=entry.reference_sync_steps or 512,
        ref_model_mixup_alpha=1.0,
    )
    remote = ServedTeacher(entry, job) if entry.teacher and not find_loaded_teacher(entry) else None
    taught_by = teacher.load(entry, job, tokenizer, remote)
    model, _ = run.load(job, entry)
    with open_rewards(entry, job, tokenizer) as (rewards, cache, held_out):
        names, weights = Rewarding.columns(entry)
        after = checkpoints.step_of_last(job)
        kept_rollouts = RolloutLog(job.checkpoints / ROLLOUT_LOG, columns(names), after) if rewards else None
        trainer = trainers.GrpoTrainer(
            entry, job.name, rewards, kept_rollouts, cache, after, held_out, at_once, taught_by,
            model=model, args=config, train_dataset=data, processing_class=tokenizer,
            reward_funcs=[_name_reward(name) for name in names or ["teacher"]],  # TRL takes no empty list
        )  # fmt: skip
        rollout_engines.report_at_once(job, model, trainer)
        trainer.reward_weights = trainer.reward_weights.new_tensor(weights or [0.0])
        kept = KeptWeights.of(trainer, tokenizer, job, entry, after)
        seconds = run.train(trainer, job, last=processes.broadcast(after if trainer.over else None))
    finish(entry, job, trainer, kept, kept_rollouts, training_seconds=seconds, **attacks)


def _train_async(
    entry: Grpo, job: Job, batch: int, at_once: int, attacks: dict[str, Any], tokenizer: Any, data: Any
) -> None:
    """Train asynchronously on rollouts up to `max-staleness` steps old; sampling, grading and training run concurrently."""
    from trl.experimental.async_grpo import AsyncGRPOConfig

    from proofmill.engines.rollout_servers import samplers
    from proofmill.training import adapters, checkpoints, micro_batches, run
    from proofmill.training.asynchronous.rollout_queue import RolloutQueue
    from proofmill.training.asynchronous.trainer import AsyncGrpoTrainer
    from proofmill.training.rollouts.kept_weights import KeptWeights

    leads, after = not processes.rank(), checkpoints.step_of_last(job)
    served = {"use_vllm": True} if job.engine == "vllm-server" else {}
    data = data.add_column("tokens", list(problems.in_tokens(data["prompt"], tokenizer)))
    longest = max(map(len, data["tokens"]))
    extra_memory = _extra_memory(entry, job, longest)
    rows = micro_batches.split(entry, job, batch, **extra_memory, **rollout_engines.footprint(served, at_once))
    micro_batches.check_prompts(entry, job, entry.problems, longest)
    sampler = samplers.sampler(entry, job, tokenizer)
    config = AsyncGRPOConfig(
        **run.arguments(entry, job, entry.log_every),
        **rows,
        max_steps=entry.steps,
        num_generations=entry.group_size,
        max_completion_length=entry.max_tokens,
        temperature=entry.temperature,
        max_staleness=entry.max_staleness,
        token_budget=0,
        model_init_kwargs=adapters.loading_options(job.parent(entry.model).weights(), entry.precision, entry.lora),
        **({"vllm_server_base_url": sampler.url} if isinstance(sampler, samplers.ServerSampler) else {}),
    )
    with open_rewards(entry, job, tokenizer, at_once=True) as (rewards, _, held_out):
        names, _ = Rewarding.columns(entry)
        kept_rollouts = RolloutLog(job.checkpoints / ROLLOUT_LOG, columns(names), after) if leads else None
        attempts = RolloutQueue(job.checkpoints, after, entry.max_staleness, job.advanced) if leads else None
        trainer = AsyncGrpoTrainer(
            entry, job.name, rewards, kept_rollouts, attempts, sampler if leads else None, after, held_out,
            weight_transfer=sampler if isinstance(sampler, samplers.ProcessSampler) else None,
            model=str(job.parent(entry.model).weights()), args=config, train_dataset=data, processing_class=tokenizer,
            peft_config=adapters.lora(entry.lora) if entry.lora else None,
        )  # fmt: skip
        kept = KeptWeights.of(trainer, tokenizer, job, entry, after)
        seconds = run.train(trainer, job, last=processes.broadcast(after if trainer.over else None))
    finish(entry, job, trainer, kept, kept_rollouts, training_seconds=seconds, **attacks)


def finish(
    entry: Grpo, job: Job, trainer: Any, kept: "KeptWeights", kept_rollouts: RolloutLog | None, **facts: Any
) -> None:
    """Write the table of steps, the weights and the rollouts; `facts` are further fields of the stamp."""
    from proofmill.training import run

    weights, step_facts = kept.save()
    facts |= step_facts
    if kept_rollouts is None:  # not the main process
        return
    kept_rollouts.write(weights / ROLLOUTS)
    if trainer.held_out:
        trainer.held_out.kept.write(weights / EVALUATIONS)
    written, names = pl.scan_parquet(weights / ROLLOUTS), Rewarding.columns(entry)[0]
    verdicts = written.select("unscored", "reason").collect()
    idle = constant(written, [f"reward_{name}" for name in names], "group")
    noticed = notices.of_rewards([column.removeprefix("reward_") for column in idle], names)
    counts = {"rollouts": verdicts.height, "unscored": verdicts.filter("unscored").height}
    if (step := trainer.state.global_step) < entry.steps:
        counts["steps before the audit grader stopped it"] = step
    spent = Spent(failures=verdicts.filter(pl.col("reason").is_in(TRANSIENT)).height)
    for row in records.all_rows(job.table.calls):
        spent.add(row.answer.paid, row.answer.tokens)
    job.finish(list(run.steps(trainer)), counts, weights, spent=spent, notices=noticed, **facts)
    for sentence in noticed:
        log(job.name, sentence)


def check_reward_robustness(entry: Grpo, job: Job) -> dict[str, Any]:
    """Grade attacks with the reward grader and return the results for the stamp; empty without `max-attack`.

    Raises GraderError on all ranks if an attack earns more than `max-attack`, since a policy would learn to exploit it.
    """
    if entry.max_attack is None:
        return {}
    facts, fault = processes.broadcast(None if processes.rank() else _run_attacks(entry, job, entry.max_attack))
    if fault:
        raise GraderError(fault)
    return {"attacks": facts}


def _run_attacks(entry: Grpo, job: Job, most: float) -> tuple[dict[str, Any], str]:
    """Return the points of each attack, and why the training must not start (empty if it may)."""
    schemes = schemes_of(job.parent, entry.schemes) if entry.schemes else None
    problems = job.parent(entry.problems).rows(*robustness.COLUMNS)
    tried = robustness.attempts(robustness.targets(problems, schemes, entry.grader))
    submission_grader = SubmissionGrader(entry.grader, entry.grader_prompt, job.declared, entry.schemes is not None)
    with open_engine.asking_for(job, submission_grader):
        results = robustness.sum_points(tried, submission_grader.verdicts(robustness.submissions(tried)))
    for line in robustness.lines(results):
        log(job.name, line)
    fault = robustness.fault(results, most, entry.grader, job.name)
    return {result.attack: result.facts() for result in results}, fault


def check_devices(entry: Grpo, job: Job, at_once: int) -> None:
    """Raise SettingError if the devices cannot share this training, with `at_once` rollouts of a batch on each.

    `reference-sync-steps` needs unsharded weights on each device; `summarizer` needs all rollouts of a problem on one device.
    """
    problem_rollouts = entry.group_size * entry.summaries
    if entry.reference_sync_steps and processes.sharding() != "none":
        raise SettingError(
            f"{job.name}: `reference-sync-steps` and weights that are shared out ({processes.sharding()}); expected whole weights on each device, "
            "whose reference a checkpoint can hold. Choose workflow/accelerate/ddp.yaml, or no `reference-sync-steps`."
        )
    if entry.summarizer and at_once % problem_rollouts:
        raise SettingError(
            f"{job.name}: each device makes {at_once} rollouts of a round; expected a multiple of the {problem_rollouts} of a problem "
            "(`group-size` times `summaries`), which are thought about together. Change the number of devices in the profile."
        )


def _name_reward(name: str) -> Any:
    """Return a placeholder for a reward function: TRL logs its name, and `Rewarding` computes all rewards at once."""

    def reward(**_: Any) -> list[float]:
        raise AssertionError("rewards are made in Trainer._calculate_rewards")

    reward.__name__ = name
    return reward


def attempts_at(entry: Grpo, job: Job, tokenizer: Any) -> Any:
    """Build a dataset with a row per problem: the prompt, and the fields that its grader needs.

    Raises TableError if fewer problems remain than one rollout batch takes.
    """
    from datasets import Dataset

    rows = problems.read(job, entry.problems, entry.grader, entry.schemes, entry.prompt, tokenizer)
    if entry.retires:
        known = dict(mean_grades(job.parent(entry.known_grades))) if entry.known_grades else {}
        rows = [{**row, "known_grade": known.get(row["problem"])} for row in rows]
        if entry.known_grades and not any(row["known_grade"] is not None for row in rows):
            raise TableError(
                f"{entry.known_grades}: has no grade of a problem of {entry.problems}; expected grades of attempts at them. "
                "Name another table as `known-grades`, or remove it."
            )
    needed = entry.problems_per_step * entry.mini_batches // (entry.summaries if entry.summarizer else 1)
    if len(rows) < needed:
        raise TableError(
            f"{entry.problems}: {len(rows)} problems remain; expected at least the {needed} of one rollout batch "
            "(`problems-per-step`)."
        )
    return Dataset.from_list(rows)


@contextmanager
def open_rewards(
    entry: Grpo, job: Job, tokenizer: Any, at_once: bool = False
) -> Iterator[tuple[Rewarding | None, ReasoningCache | None, HeldOut | None]]:
    """Yield the rewards, the reasoning cache and the held-out problems, with their engines and the one journal open.

    Only the main process has rewards and calls models; others get None. Without `summarizer` there is no cache, and
    without `evaluate` there are no held-out problems. With `at_once`, raises SettingError for judges that cannot be
    called during the training.
    """
    evaluator = None
    if entry.evaluate and not processes.rank():
        name, prompt, table = entry.evaluated_by
        evaluator = SubmissionGrader(name, prompt, job.declared, table is not None, of=MANY)
    held_out = HeldOut.of(entry, job, tokenizer, evaluator)
    if processes.rank():
        yield None, ReasoningCache(entry, job.declared, {}, tokenizer) if entry.summarizer else None, held_out
        return
    schemes = entry.schemes is not None
    grader = SubmissionGrader(entry.grader, entry.grader_prompt, job.declared, schemes)
    audit = SubmissionGrader(entry.audit, entry.audit_prompt, job.declared, schemes, of=MANY) if entry.audit else None
    judges = {
        name: SubmissionGrader(name, preference.get("prompt"), job.declared)
        for name, preference in entry.preferences.items()
        if kind_of(name) in ASKED
    }
    submission_graders = [one for one in (grader if entry.graded else None, audit, evaluator, *judges.values()) if one]
    summarizers = [entry.summarizer] if entry.summarizer else []
    with (
        open_engine.asking_for(job, *submission_graders, further=summarizers) as askers,
        judge_at_once(job.name, submission_graders, askers) as stream,
    ):
        if at_once and askers and stream is None:
            raise SettingError(
                f"{job.name}: `max-staleness` is {entry.max_staleness} and a judge's weights would be loaded in this process; expected "
                "judges behind servers, which grade during training. Declare the judge by `id` and serve it in its own job "
                "(`proofmill serve`), or set `max-staleness: 0`."
            )
        preferences = {
            name: JudgedPreference(judges[name], preference.get("input", "all"))
            if name in judges
            else ModelPreference(job, name, preference.get("input", "all"))
            for name, preference in entry.preferences.items()
        }
        cache = ReasoningCache(entry, job.declared, askers, tokenizer, stream) if entry.summarizer else None
        yield Rewarding(entry, grader, preferences, audit), cache, held_out


@contextmanager
def judge_at_once(
    name: str, submission_graders: Sequence[SubmissionGrader], askers: Mapping[str, Asker]
) -> Iterator[Stream | None]:
    """Call judges about each rollout as soon as it is finished, while others are sampled or trained on.

    Yields None without judges, or if a judge takes no requests while others are in progress: they are batched then.
    """
    if not askers or not all(asker.flows for asker in askers.values()):
        yield None
        return
    with Stream(name, askers, of=MANY) as stream:
        for submission_grader in submission_graders:
            submission_grader.stream = stream
        yield stream


PROMPT_TOKENS = 1024  # assumed of a prompt where none can be read yet, and of one that has a summary in it


def max_prompt_tokens(answer: int, context: int | None, prompt: int = PROMPT_TOKENS) -> int:
    """Return the longest prompt, in tokens, that leaves room for `answer` tokens in the context."""
    return prompt if context is None else max(1, min(prompt, context - answer))


def footprint(
    entry: Grpo, network: Any, tasters: Sequence[Any], prompt: int = PROMPT_TOKENS, teacher: Any = None
) -> dict[str, Any]:
    """Return the maximum tokens of a rollout with its prompt, and what takes memory in addition to the model and vLLM.

    `network` is the trained model, with or without weights; None while unknown. `tasters` are reward models. A prompt has
    `prompt` tokens, or fewer if the model's context leaves less room.
    """
    context = network and memory.context_of(network)
    prompt = max_prompt_tokens(entry.max_tokens, context, prompt)
    return {
        "tokens": prompt + entry.max_tokens,
        "trained_tokens": entry.max_tokens,
        "reference": entry.kl > 0 and entry.lora is None,
        "reward_models": tasters,
        "teacher": teacher,
    }


def reward_models(entry: Grpo) -> list[str]:
    """Return the names of the preferences that are local models, on the first of the devices."""
    return [name for name in entry.preferences if kind_of(name) not in ASKED]


def find_loaded_teacher(entry: Grpo) -> str | None:
    """Return the name of the teacher that the training loads; None without one, or if it is a service."""
    return None if entry.teacher is None or environment.is_service(entry.teacher) else entry.teacher


def _extra_memory(entry: Grpo, job: Job, longest: int) -> dict[str, Any]:
    """Return the `footprint` of a job whose longest prompt has `longest` tokens."""
    prompt = max(longest, PROMPT_TOKENS) if entry.summarizer else longest
    tasters = [job.parent(name).weights() for name in reward_models(entry)]
    taught_by = find_loaded_teacher(entry)
    teacher = job.parent(taught_by).weights() if taught_by else None
    return footprint(entry, memory.build_empty(job.parent(entry.model).weights()), tasters, prompt, teacher)


if __name__ == "__main__":
    run(main)

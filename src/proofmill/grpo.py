"""One row of `grpo` is a number measured at a step of reinforcement learning; weights and rollouts lie beside it.

Group relative policy optimisation (DeepSeekMath, section 4; DeepSeek-R1, section 2.2) with TRL's GRPOTrainer, rewarded
by the same grader that marks the benchmarks.

How we differ:
1. With `unscored: drop`, a rollout without a verdict gets no gradient instead of 0 marks, and its group is normalised
   without it, even when other rewards (format) could be computed.
2. Judges are asked through the journal: a killed run resumes from its checkpoint and asks no judge twice.
3. Every rollout is kept with its rewards, its advantage and its verdict: results/grpo/<name>/rollouts.parquet.
4. A second grader (`hold-out`) can mark along. It stops a training whose reward is being gamed.
5. Problems whose attempts could never be marked, for want of an answer or a scheme, are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.joins import schemes_of
from proofmill.calls import records
from proofmill.calls.calls import MANY, Asker, Spent
from proofmill.calls.stream import Stream
from proofmill.engines import opening, rollouts
from proofmill.graders import robustness
from proofmill.graders.graders import Marker
from proofmill.measures import notices
from proofmill.prompts import templates
from proofmill.prompts.escapes import ControlTokens
from proofmill.runtime import processes
from proofmill.runtime.progress import say
from proofmill.schema.errors import GraderError, SettingError, TableError
from proofmill.schema.fields import ASKED
from proofmill.schema.kinds import ROLLOUTS
from proofmill.schema.model_entries import Grpo
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import PASSING
from proofmill.sources import models
from proofmill.training import memory
from proofmill.training.preferences import JudgedPreference, ModelPreference
from proofmill.training.reasoning_cache import ReasoningCache
from proofmill.training.rollout_rewards import Rewarding
from proofmill.training.rollouts import DIARY, Diary, columns, constant

# TRL's names for losses whose sums are our own (grpo_trainer.py): `luspo` is replaced, `dapo` is given other counts.
LOSSES = {"sequence_sum": "luspo", "bnpo": "dapo"}


def main(entry: Grpo, job: Job) -> None:
    rollouts.before_trl(job)
    from trl import GRPOConfig

    from proofmill.training import checkpoints, passes, run
    from proofmill.training import grpo_trainer as trainers

    checkpoints.settle(job)
    batch = entry.problems_per_step * entry.group
    at_once = passes.share_of(job, batch) * entry.batches
    check_devices(entry, job, at_once)
    attacks = withstood(entry, job)
    tokenizer = run.tokenizer_of(job, entry.model)
    data = attempts_at(entry, job, tokenizer)
    if entry.lag:
        _ahead(entry, job, batch, at_once, attacks, tokenizer, data)
        return
    beside = _beside(entry, job, max(map(len, in_tokens(data, tokenizer))))
    sampling = rollouts.sampling(job, entry, at_once, **beside)
    rows = passes.split(entry, job, batch, at_least=passes.LENGTHS, **beside, **rollouts.footprint(sampling, at_once))
    config = GRPOConfig(
        **run.arguments(entry, job, entry.log_every),
        **rows,
        **sampling,
        max_steps=entry.steps,
        steps_per_generation=rows["gradient_accumulation_steps"] * entry.batches,
        num_generations=entry.group,
        num_iterations=entry.iterations,
        max_completion_length=entry.max_tokens,
        temperature=entry.temperature,
        top_p=entry.top_p,
        top_k=entry.top_k or 0,
        min_p=entry.min_p,
        beta=entry.kl,
        use_bias_correction_kl=False,  # as in DeepSeekMath; TRL's default weighs the divergence by the ratio
        epsilon=entry.epsilon,
        epsilon_high=entry.epsilon_high,
        loss_type=LOSSES.get(entry.loss, entry.loss),
        scale_rewards=entry.scale,
        mask_truncated_completions=entry.mask_truncated,
        **rollouts.correction(entry),
        sync_ref_model=entry.sync_reference is not None,
        ref_model_sync_steps=entry.sync_reference or 512,
        ref_model_mixup_alpha=1.0,
    )
    model, _ = run.load(job, entry.model, entry.adapter, entry.seed)
    with rewarded(entry, job, tokenizer) as (rewards, cache):
        names, weights = Rewarding.columns(entry)
        after = checkpoints.step_of_last(job)
        diary = Diary(job.checkpoints / DIARY, columns(names), after) if rewards else None
        trainer = trainers.Trainer(
            entry, job.name, rewards, diary, cache, after,
            model=model, args=config, train_dataset=data, processing_class=tokenizer,
            reward_funcs=[_named(name) for name in names],
        )  # fmt: skip
        rollouts.heard_at_once(job, model, trainer)
        trainer.reward_weights = trainer.reward_weights.new_tensor(weights)
        seconds = run.train(trainer, job, last=processes.broadcast(after if trainer.over else None))
    finish(entry, job, trainer, tokenizer, diary, training_seconds=seconds, **attacks)


def _ahead(entry: Grpo, job: Job, batch: int, at_once: int, attacks: dict[str, Any], tokenizer: Any, data: Any) -> None:
    """Train on rollouts that are up to `lag` steps old: sampling, judging and learning go on side by side."""
    from trl.experimental.async_grpo import AsyncGRPOConfig

    from proofmill.engines.ahead import samplers
    from proofmill.training import adapters, checkpoints, passes, run
    from proofmill.training.asynchronous.attempts import Attempts
    from proofmill.training.asynchronous.trainer import Trainer

    leads, after = not processes.rank(), checkpoints.step_of_last(job)
    served = {"use_vllm": True} if job.engine == "vllm-server" else {}
    data = data.add_column("tokens", list(in_tokens(data, tokenizer)))
    beside = _beside(entry, job, max(map(len, data["tokens"])))
    rows = passes.split(entry, job, batch, **beside, **rollouts.footprint(served, at_once))
    sampler = samplers.sampler(entry, job, tokenizer)
    config = AsyncGRPOConfig(
        **run.arguments(entry, job, entry.log_every),
        **rows,
        max_steps=entry.steps,
        num_generations=entry.group,
        max_completion_length=entry.max_tokens,
        temperature=entry.temperature,
        epsilon=entry.epsilon,
        epsilon_high=entry.epsilon_high,
        max_staleness=entry.lag,
        token_budget=0,
        model_init_kwargs=models.in_float32(job.parent(entry.model).weights()),
        **({"vllm_server_base_url": sampler.url} if isinstance(sampler, samplers.ServerSampler) else {}),
    )
    with rewarded(entry, job, tokenizer, at_once=True) as (rewards, _):
        names, _ = Rewarding.columns(entry)
        diary = Diary(job.checkpoints / DIARY, columns(names), after) if leads else None
        attempts = Attempts(job.checkpoints, after, entry.lag, job.advanced) if leads else None
        trainer = Trainer(
            entry, job.name, rewards, diary, attempts, sampler if leads else None, after,
            weight_transfer=sampler if isinstance(sampler, samplers.ProcessSampler) else None,
            model=str(job.parent(entry.model).weights()), args=config, train_dataset=data, processing_class=tokenizer,
            peft_config=adapters.lora(entry.adapter) if entry.adapter else None,
        )  # fmt: skip
        seconds = run.train(trainer, job, last=processes.broadcast(after if trainer.over else None))
    finish(entry, job, trainer, tokenizer, diary, training_seconds=seconds, **attacks)


def finish(entry: Grpo, job: Job, trainer: Any, tokenizer: Any, diary: Diary | None, **facts: Any) -> None:
    """Write the table of steps, the weights, and the rollouts beside them; `facts` are further fields of the stamp."""
    from proofmill.training import run

    weights = run.save(trainer, tokenizer, job)
    if diary is None:  # not the main process
        return
    diary.write(weights / ROLLOUTS)
    written, names = pl.scan_parquet(weights / ROLLOUTS), Rewarding.columns(entry)[0]
    verdicts = written.select("unscored", "reason").collect()
    idle = constant(written, [f"reward_{name}" for name in names], "group")
    noticed = notices.of_rewards([column.removeprefix("reward_") for column in idle], names)
    counts = {"rollouts": verdicts.height, "unscored": verdicts.filter("unscored").height}
    if (step := trainer.state.global_step) < entry.steps:
        counts["steps before the second grader stopped it"] = step
    spent = Spent(failures=verdicts.filter(pl.col("reason").is_in(PASSING)).height)
    for row in records.all_rows(job.table.calls):
        spent.add(row.answer.paid, row.answer.tokens)
    job.finish(list(run.steps(trainer)), counts, weights, spent=spent, notices=noticed, **facts)
    for sentence in noticed:
        say(job.name, sentence)


def withstood(entry: Grpo, job: Job) -> dict[str, Any]:
    """What attacks earn from the grader that rewards, for the stamp; nothing where the entry sets no `max-attack`.

    Raises GraderError, in all processes, where one earns more than that: a training would learn to earn it too.
    """
    if entry.max_attack is None:
        return {}
    facts, fault = processes.broadcast(None if processes.rank() else _attacked(entry, job, entry.max_attack))
    if fault:
        raise GraderError(fault)
    return {"attacks": facts}


def _attacked(entry: Grpo, job: Job, most: float) -> tuple[dict[str, Any], str]:
    """What each policy earns, and why no training may begin (empty: it may)."""
    schemes = schemes_of(job.parent, entry.schemes) if entry.schemes else None
    problems = job.parent(entry.problems).rows(*robustness.COLUMNS)
    tried = robustness.attempts(robustness.targets(problems, schemes, entry.grader))
    marker = Marker(entry.grader, entry.prompt, job.declared, entry.schemes is not None)
    with opening.asking_for(job, marker):
        results = robustness.earned(tried, marker.verdicts(robustness.submissions(tried)))
    for line in robustness.lines(results):
        say(job.name, line)
    fault = robustness.fault(results, most, entry.grader, job.name)
    return {result.policy: result.facts() for result in results}, fault


def check_devices(entry: Grpo, job: Job, at_once: int) -> None:
    """Raise SettingError when the devices cannot share this training, `at_once` rollouts of a round on each.

    `sync-reference` needs whole weights on each device; `summarizer` needs all rollouts of a problem on one device.
    """
    problem_rollouts = entry.group * entry.states
    if entry.sync_reference and processes.sharding() != "none":
        raise SettingError(
            f"{job.name}: `sync-reference` and weights that are shared out ({processes.sharding()}); expected whole weights on each device, "
            "whose reference a checkpoint can hold. Choose workflow/accelerate/ddp.yaml, or no `sync-reference`."
        )
    if entry.summarizer and at_once % problem_rollouts:
        raise SettingError(
            f"{job.name}: each device makes {at_once} rollouts of a round; expected a multiple of the {problem_rollouts} of a problem "
            "(`group` times `states`), which are thought about together. Change the number of devices in the profile."
        )


def _named(name: str) -> Any:
    """A stand-in for a reward function: TRL logs its name, and `Rewarding` computes all rewards at once."""

    def reward(**_: Any) -> list[float]:
        raise AssertionError("rewards are made in Trainer._calculate_rewards")

    reward.__name__ = name
    return reward


def attempts_at(entry: Grpo, job: Job, tokenizer: Any) -> Any:
    """A dataset with a row for each problem: the prompt, and the fields that its attempts are marked by.

    Raises TableError when fewer problems remain than one round of rollouts takes.
    """
    from datasets import Dataset

    schemes = schemes_of(job.parent, entry.schemes)
    problems = job.parent(entry.problems).rows("problem", "statement", "answer", "solution", "asks")
    needed_schemes = schemes if entry.schemes else None
    total = len(problems)
    problems = [p for p in problems if p["asks"] == "talk" or robustness.markable(entry.grader, p, needed_schemes)]
    if len(problems) < total and not processes.rank():
        say(
            job.name,
            f"{total - len(problems):,} of {total:,} problems are left out: their attempts could never be marked",
        )
    needed = entry.problems_per_step * entry.batches // (entry.states if entry.summarizer else 1)
    if len(problems) < needed:
        raise TableError(
            f"{entry.problems}: {len(problems)} problems are kept; expected at least the {needed} of one round of rollouts "
            "(`problems-per-step`)."
        )

    control = ControlTokens(tokenizer)

    def prompt(statement: str) -> list[dict[str, str]]:
        return control.escaped([{"role": "user", "content": templates.fill(entry.ask, {"statement": statement})}])

    def tokens(text: str | None) -> int | None:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else None

    return Dataset.from_list(
        [
            {
                "prompt": prompt(p["statement"]),
                **p,
                "asks": p["asks"] or "proof",
                "scheme": schemes.get(p["problem"]),
                "question_tokens": tokens(p["statement"]),
                "reference_tokens": tokens(p["solution"]),
            }
            for p in problems
        ]
    )


@contextmanager
def rewarded(
    entry: Grpo, job: Job, tokenizer: Any, at_once: bool = False
) -> Iterator[tuple[Rewarding | None, ReasoningCache | None]]:
    """The rewards and the reasoning cache, with their engines and the one journal open inside.

    Only the main process has rewards and asks models; others get None. Without `summarizer` there is no cache. With
    `at_once`, judges that cannot be asked while the training goes on are refused with SettingError.
    """
    if processes.rank():
        yield None, ReasoningCache(entry, job.declared, {}, tokenizer) if entry.summarizer else None
        return
    schemes = entry.schemes is not None
    grader = Marker(entry.grader, entry.prompt, job.declared, schemes)
    hold_out = Marker(entry.hold_out, entry.hold_out_prompt, job.declared, schemes, of=MANY) if entry.hold_out else None
    judges = {
        name: Marker(name, taste.get("prompt"), job.declared)
        for name, taste in entry.preferences.items()
        if kind_of(name) in ASKED
    }
    markers = [marker for marker in (grader, hold_out, *judges.values()) if marker]
    summarizers = [entry.summarizer] if entry.summarizer else []
    with (
        opening.asking_for(job, *markers, further=summarizers) as askers,
        judged_at_once(job.name, markers, askers) as stream,
    ):
        if at_once and askers and stream is None:
            raise SettingError(
                f"{job.name}: `lag` has judges asked while the training learns, and one of them has its weights in this process; "
                "expected judges behind a server. Give it the engine vllm-server in the profile, or take `lag: 0`."
            )
        preferences = {
            name: JudgedPreference(judges[name], taste.get("sees", "all"))
            if name in judges
            else ModelPreference(job, name, taste.get("sees", "all"))
            for name, taste in entry.preferences.items()
        }
        cache = ReasoningCache(entry, job.declared, askers, tokenizer, stream) if entry.summarizer else None
        yield Rewarding(entry, grader, preferences, hold_out), cache


@contextmanager
def judged_at_once(name: str, markers: Sequence[Marker], askers: Mapping[str, Asker]) -> Iterator[Stream | None]:
    """Ask about each rollout as soon as it has ended, while others are written or learned from.

    None where nobody is asked, and where a judge takes no questions while others are under way: all are asked together.
    """
    if not askers or not all(asker.flows for asker in askers.values()):
        yield None
        return
    with Stream(name, askers, of=MANY) as stream:
        for marker in markers:
            marker.stream = stream
        yield stream


def in_tokens(data: Any, tokenizer: Any) -> Iterator[list[int]]:
    """The prompt of each row as the tokens that a rollout begins with."""
    for prompt in data["prompt"]:
        yield tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)


PROMPT_TOKENS = 1024  # assumed of a prompt where none can be read yet, and of one that has a summary in it


def prompt_beside(answer: int, context: int | None, prompt: int = PROMPT_TOKENS) -> int:
    """The most tokens of a prompt that a model's context leaves beside an answer of so many."""
    return prompt if context is None else max(1, min(prompt, context - answer))


def footprint(entry: Grpo, network: Any, tasters: Sequence[Any], prompt: int = PROMPT_TOKENS) -> dict[str, Any]:
    """The most tokens of a rollout with its prompt, and what takes memory besides the trained model and vLLM.

    `network` is the trained model, with numbers or without; None while it is not known. A prompt is as long as `prompt`,
    and never longer than the model's context leaves beside an answer.
    """
    context = network and memory.context_of(network)
    prompt = prompt_beside(entry.max_tokens, context, prompt)
    return {
        "tokens": prompt + entry.max_tokens,
        "learned_tokens": entry.max_tokens,
        "reference": entry.kl > 0 and entry.adapter is None,
        "reward_models": tasters,
    }


def reward_models(entry: Grpo) -> list[str]:
    """The names of the preferences that are models of ours, on the first of the devices."""
    return [name for name in entry.preferences if kind_of(name) not in ASKED]


def _beside(entry: Grpo, job: Job, longest: int) -> dict[str, Any]:
    """`footprint` of a job whose longest prompt has so many tokens."""
    prompt = max(longest, PROMPT_TOKENS) if entry.summarizer else longest
    tasters = [job.parent(name).weights() for name in reward_models(entry)]
    return footprint(entry, memory.made(job.parent(entry.model).weights()), tasters, prompt)


if __name__ == "__main__":
    run(main)

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

    PROOFMILL_TRAINER_VLLM_URL    TRL's vLLM server for the rollouts (`engine: vllm-server`, on GPUs)
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from proofmill.artifacts.jobs import Job, run
from proofmill.artifacts.joins import schemes_of
from proofmill.calls import records
from proofmill.calls.calls import MANY, Spent
from proofmill.engines import opening
from proofmill.graders.graders import Marker
from proofmill.graders.programs import PROGRAMS
from proofmill.prompts import templates
from proofmill.prompts.escapes import ControlTokens
from proofmill.runtime import processes
from proofmill.runtime.progress import say
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.fields import ASKED
from proofmill.schema.kinds import ROLLOUTS
from proofmill.schema.model_entries import Grpo
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import PASSING
from proofmill.training.preferences import JudgedPreference, ModelPreference
from proofmill.training.reasoning_cache import ReasoningCache
from proofmill.training.rollout_rewards import Rewarding
from proofmill.training.rollouts import DIARY, Diary

# TRL's names for losses whose sums are our own (grpo_trainer.py): `luspo` is replaced, `dapo` is given other counts.
LOSSES = {"sequence_sum": "luspo", "bnpo": "dapo"}


def main(entry: Grpo, job: Job) -> None:
    if job.engine == "transformers":
        _without_vllm()
    from trl import GRPOConfig

    from proofmill.training import checkpoints, passes, run
    from proofmill.training import grpo_trainer as trainers

    batch = entry.problems_per_step * entry.group
    at_once = passes.share_of(job, batch) * entry.batches
    check_devices(entry, job, at_once)
    sampling = sampler(entry, job, at_once)
    rows = passes.split(entry, job, batch, **footprint(entry, job, at_once, sampling))
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
        # vLLM's probabilities are those among the tokens that are drawn from (`top-p`, `top-k`, `min-p`), the trained
        # model's are of all tokens: their ratio would weigh tokens by what was left out, which transformers' sampling
        # does not.
        vllm_importance_sampling_correction=entry.top_p == 1 and entry.top_k is None and entry.min_p is None,
        # Each token has its own weight, at most 3. TRL's default weighs a whole rollout by the product of its tokens'
        # ratios, which is 0 for nearly all rollouts of 50,000 tokens, however little vLLM and the training differ.
        vllm_importance_sampling_mode="token_truncate",
        sync_ref_model=entry.sync_reference is not None,
        ref_model_sync_steps=entry.sync_reference or 512,
        ref_model_mixup_alpha=1.0,
    )
    model, tokenizer = run.load(job, entry.model, entry.adapter, entry.seed)
    data = attempts_at(entry, job, tokenizer)
    with rewarded(entry, job, tokenizer) as (rewards, cache):
        names, weights = Rewarding.columns(entry)
        after = _step_of(checkpoints.last_checkpoint(job))
        diary = Diary(job.checkpoints / DIARY, names, after) if rewards else None
        trainer = trainers.Trainer(
            entry, job.name, rewards, diary, cache, after,
            model=model, args=config, train_dataset=data, processing_class=tokenizer,
            reward_funcs=[_named(name) for name in names],
        )  # fmt: skip
        trainer.reward_weights = trainer.reward_weights.new_tensor(weights)
        seconds = run.train(trainer, job, last=processes.broadcast(after if trainer.over else None))
    finish(entry, job, trainer, tokenizer, diary, seconds)


def finish(entry: Grpo, job: Job, trainer: Any, tokenizer: Any, diary: Diary | None, seconds: float) -> None:
    """Write the table of steps, the weights, and the rollouts beside them."""
    from proofmill.training import run

    weights = run.save(trainer, tokenizer, job)
    if diary is None:  # not the main process
        return
    diary.write(weights / ROLLOUTS)
    verdicts = pl.scan_parquet(weights / ROLLOUTS).select("unscored", "reason").collect()
    counts = {"rollouts": verdicts.height, "unscored": verdicts.filter("unscored").height}
    if (step := trainer.state.global_step) < entry.steps:
        counts["steps before the second grader stopped it"] = step
    spent = Spent(failures=verdicts.filter(pl.col("reason").is_in(PASSING)).height)
    for row in records.all_rows(job.table.calls):
        spent.add(row.answer.paid, row.answer.tokens)
    job.finish(list(run.steps(trainer)), counts, weights, spent=spent, training_seconds=seconds)


def _markable(entry: Grpo, problem: Mapping[str, Any], schemes: Mapping[str, str]) -> bool:
    """Whether the grader has what it marks by: the fields that its program needs, and a scheme if it uses schemes."""
    if problem["asks"] == "talk":
        return True
    needs = PROGRAMS[entry.grader].needs if entry.grader in PROGRAMS else ()
    return all(problem[field] for field in needs) and (entry.schemes is None or problem["problem"] in schemes)


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


def _step_of(checkpoint: Path | None) -> int:
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0


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
    total, problems = len(problems), [p for p in problems if _markable(entry, p, schemes)]
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
def rewarded(entry: Grpo, job: Job, tokenizer: Any) -> Iterator[tuple[Rewarding | None, ReasoningCache | None]]:
    """The rewards and the reasoning cache, with their engines and the one journal open inside.

    Only the main process has rewards and asks models; others get None. Without `summarizer` there is no cache.
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
    with opening.asking_for(job, *markers, further=[entry.summarizer] if entry.summarizer else []) as askers:
        preferences = {
            name: JudgedPreference(judges[name], taste.get("sees", "all"))
            if name in judges
            else ModelPreference(job, name, taste.get("sees", "all"))
            for name, taste in entry.preferences.items()
        }
        cache = ReasoningCache(entry, job.declared, askers, tokenizer) if entry.summarizer else None
        yield Rewarding(entry, grader, preferences, hold_out), cache


def _without_vllm() -> None:
    """Keep TRL from importing all of vLLM where it is installed: that takes 4 s in each job that does not use it."""
    import trl.import_utils as installed

    installed.is_vllm_available = lambda *_, **__: False


PROMPT_TOKENS = 1024  # assumed length of a prompt in the memory plan, which is made before prompts are tokenized


def _tokens(entry: Grpo) -> int:
    """The assumed tokens of a rollout with its prompt, at most."""
    return min(PROMPT_TOKENS, entry.max_tokens) + entry.max_tokens


def footprint(entry: Grpo, job: Job, at_once: int, sampling: dict[str, Any]) -> dict[str, Any]:
    """What takes memory besides the trained model: the reference, reward models, and the rollouts' cache or vLLM."""
    return {
        "tokens": _tokens(entry),
        "learned_tokens": entry.max_tokens,
        "reference": entry.kl > 0 and entry.adapter is None,
        "reward_models": [job.parent(n).weights() for n in entry.preferences if kind_of(n) not in ASKED],
        "sampled": 0 if sampling else at_once,
        "vllm_share": sampling.get("vllm_gpu_memory_utilization", 0.0),
        "vllm_sleeps": bool(sampling.get("vllm_enable_sleep_mode")),
    }


def sampler(entry: Grpo, job: Job, at_once: int) -> dict[str, Any]:
    """GRPOConfig's options for sampling rollouts: by transformers, by vLLM in this process, or by TRL's vLLM server.

    Raises SettingError when the server has no address.
    """
    import torch

    if job.engine == "transformers":
        return {}
    if job.engine == "vllm-server":
        if not (url := os.environ.get("PROOFMILL_TRAINER_VLLM_URL")):
            raise SettingError(
                f"{job.name}: the engine is vllm-server and the environment has no PROOFMILL_TRAINER_VLLM_URL; expected the "
                "address of `trl vllm-serve`. Set it, or choose the engine vllm, which runs beside the training."
            )
        return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": url}
    from proofmill.engines import fitting
    from proofmill.engines.vllm import vllm_options
    from proofmill.training import grpo_trainer, memory

    options = vllm_options(job.engine_args)
    if not torch.cuda.is_available():
        grpo_trainer.keep_linear_weights()
        if not any(option in options for option in fitting.MEMORY):
            # A share of the machine would have to hold this process with all that it trains, too: the cache is given in
            # bytes, which TRL has no word for.
            tokens = at_once * _tokens(entry)
            gigabytes = fitting.gigabytes_for_rollouts(job.parent(entry.model).weights(), tokens)
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(gigabytes))
            there, _ = memory.device_memory()
            options["gpu_memory_utilization"] = min(1.0, gigabytes * 2**30 / there) if there else 0.1
    options.setdefault("gpu_memory_utilization", 0.3)  # the training needs the rest
    known = {
        "gpu_memory_utilization": "vllm_gpu_memory_utilization",
        "tensor_parallel_size": "vllm_tensor_parallel_size",
        "max_model_len": "vllm_max_model_length",
        "enable_sleep_mode": "vllm_enable_sleep_mode",
    }
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        **{theirs: options[ours] for ours, theirs in known.items() if ours in options},
    }


if __name__ == "__main__":
    run(main)

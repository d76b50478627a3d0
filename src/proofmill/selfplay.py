"""One row of `selfplay` is a number measured at a step of self-play; weights, rollouts and task buffer are next to it.

Absolute Zero (Zhao et al. 2025, arXiv 2505.03335): one model proposes programming tasks and solves them, and a program
that runs is the only judge. The game is in tasks/, its update (TRR++ on TRL's GRPOTrainer) in training/selfplay_trainer.py.

Differences from the published code:
1. Programs run in a sandbox; a proposal is a task if two executions in different processes agree.
2. Ungraded replies get no reward and no gradient. The original counts them as wrong.
3. A killed training resumes from its checkpoint, with the same tasks, and ends with the same table and weights.
4. Every reply that was trained on is kept: results/selfplay/<name>/rollouts.parquet.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import polars as pl

from proofmill.artifacts.jobs import Job, run
from proofmill.engines import rollout_engines
from proofmill.graders.graders import SubmissionGrader
from proofmill.metrics import notices
from proofmill.runtime import processes
from proofmill.runtime.progress import log
from proofmill.sandbox.executor import Executor
from proofmill.schema.columns import PLAYED_COLUMNS
from proofmill.schema.entries.selfplay_entry import Selfplay
from proofmill.schema.kinds import BUFFER, EVALUATIONS, ROLLOUTS
from proofmill.selfplay_tasks.tasks import ROLES, TASKS
from proofmill.training.rollout_log import ROLLOUT_LOG, RolloutLog, constant


def main(entry: Selfplay, job: Job) -> None:
    rollout_engines.before_trl(job)
    leads = not processes.rank()
    with ExitStack() as opened:
        executor = opened.enter_context(Executor(seconds=entry.program_timeout)) if leads else None
        grader = (
            opened.enter_context(SubmissionGrader(*entry.evaluated_by[:2], {})) if leads and entry.evaluate else None
        )
        trainer, kept, seconds = train(entry, job, executor, grader)
    finish(job, trainer, kept, seconds)


def train(
    entry: Selfplay, job: Job, executor: Executor | None, grader: SubmissionGrader | None
) -> tuple[Any, Any, float]:
    """Train; return the trainer, its kept weights and the seconds it took. The main process has executor and grader."""
    from datasets import Dataset
    from trl import GRPOConfig

    from proofmill.training import checkpoints, micro_batches, run
    from proofmill.training.rollouts.held_out import HeldOut
    from proofmill.training.rollouts.kept_weights import KeptWeights
    from proofmill.training.selfplay_trainer import SelfplayTrainer

    checkpoints.settle(job)
    at_once = micro_batches.share_of(job, entry.rows)
    extra_memory = footprint(entry)
    sampling = rollout_engines.sampling(job, entry, at_once, **extra_memory)
    rows = micro_batches.split(entry, job, entry.rows, **extra_memory, **rollout_engines.footprint(sampling, at_once))
    config = GRPOConfig(
        **run.arguments(entry, job, entry.log_every),
        **rows,
        **sampling,
        **sampling_options(entry),
        max_steps=entry.steps,
        steps_per_generation=rows["gradient_accumulation_steps"],
    )
    model, tokenizer = run.load(job, entry)
    rollout_engines.decode_by_ours(job, model)
    groups = len(entry.tasks) * len(entry.roles)
    empty = Dataset.from_list([{"prompt": [{"role": "user", "content": ""}]}] * groups)  # the game makes the prompts
    schema = {name: kind for name, (kind, _) in PLAYED_COLUMNS.items()}
    after, held_out = checkpoints.step_of_last(job), HeldOut.of(entry, job, tokenizer, grader)
    kept_rollouts = RolloutLog(job.checkpoints / ROLLOUT_LOG, schema, after) if executor else None
    first = list(first_tasks(entry, job)) if executor else []
    trainer = SelfplayTrainer(
        entry, job.name, executor, first, kept_rollouts, held_out, at_once,
        model=model, args=config, train_dataset=empty, processing_class=tokenizer,
    )  # fmt: skip
    kept = KeptWeights.of(trainer, tokenizer, job, entry, after)
    return trainer, kept, run.train(trainer, job)


def finish(job: Job, trainer: Any, kept: Any, seconds: float) -> None:
    """Write the table of steps, the weights, the rollouts and the tasks."""
    from proofmill.training import run

    weights, facts = kept.save()
    if trainer.play is None:  # not the main process
        return
    trainer.kept_rollouts.write(weights / ROLLOUTS)
    trainer.play.save(weights / BUFFER)
    if trainer.held_out:
        trainer.held_out.kept.write(weights / EVALUATIONS)
    played = pl.scan_parquet(weights / ROLLOUTS)
    count, unscored = played.select(pl.len(), pl.col("reward").is_null().sum().alias("unscored")).collect().row(0)
    counts = {"rollouts": count, "unscored": unscored, "tasks": len(trainer.play.buffers)}
    sides = [f"{task}/{role}" for task in trainer.entry.tasks for role in trainer.entry.roles]
    side = pl.format("{}/{}", "task", "role")
    noticed = notices.of_rewards([s for s in sides if constant(played.filter(side == s), ["reward"])], sides)
    rows = list(in_long_form(run.steps(trainer)))
    job.finish(rows, counts, weights, training_seconds=seconds, notices=noticed, **facts)
    for sentence in noticed:
        log(job.name, sentence)


def footprint(entry: Selfplay) -> dict[str, Any]:
    """Return the maximum tokens of a rollout with its prompt, and of those that are trained on."""
    return {"tokens": entry.max_prompt_tokens + entry.max_tokens, "trained_tokens": entry.max_tokens}


def sampling_options(entry: Selfplay) -> dict[str, Any]:
    """Return GRPOConfig's options for sampling; the objective is the trainer's own."""
    return {
        "num_generations": entry.batch_size,  # the replies of one task and role, which TRL takes for a group
        "num_iterations": entry.iterations,
        "max_completion_length": entry.max_tokens,
        "temperature": entry.temperature,
        "top_p": entry.top_p,
        "top_k": entry.top_k or 0,
        "beta": 0.0,
        "shuffle_dataset": False,
        **rollout_engines.correction(entry),
    }


def first_tasks(entry: Selfplay, job: Job) -> Iterator[dict[str, Any]]:
    """Yield the rows of first tasks, which the `answer` of each problem holds as JSON (sources `azr-...`)."""
    for problem in job.parent(entry.seed_tasks).rows("answer") if entry.seed_tasks else []:
        yield json.loads(problem["answer"])


def in_long_form(steps: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the trainer's rows, with task and role taken from the names of metrics.

    Of the reasons for which proposals are invalid, those that were never met have no row; nor has what TRL logs twice.
    """
    rows = list(steps)
    met = {row["metric"] for row in rows if row["value"] or "/invalid/" not in row["metric"]}
    for row in (row for row in rows if row["metric"] in met and not row["metric"].startswith("rewards/")):
        task, _, rest = row["metric"].partition("/")
        role, _, metric = rest.partition("/")
        of_task = task in TASKS and role in ROLES
        yield {
            "step": row["step"],
            "task": task if of_task else None,
            "role": role if of_task else None,
            "metric": metric if of_task else row["metric"],
            "value": row["value"],
        }


if __name__ == "__main__":
    run(main)

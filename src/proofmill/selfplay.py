"""One row of `selfplay` is a number measured at a step of self-play; weights, rollouts and the buffer of tasks lie beside.

Absolute Zero (Zhao et al. 2025, arXiv 2505.03335): one model proposes programming tasks and solves them, and a program
that runs is the only judge. The game is in tasks/, its update (TRR++ on TRL's GRPOTrainer) in training/selfplay_trainer.py.

How we differ from the published code:
1. Programs run in a sandbox; a proposal is a task if two executions in different processes agree.
2. What could not be marked has no reward and no gradient. There, it was wrong.
3. A killed training goes on from its checkpoint, with its tasks as they were, to the same table and the same weights.
4. Every reply that was learned from is kept: results/selfplay/<name>/rollouts.parquet.
"""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import polars as pl

from proofmill.artifacts.jobs import Job, run
from proofmill.engines import rollouts
from proofmill.measures import notices
from proofmill.runtime import processes
from proofmill.runtime.progress import say
from proofmill.sandbox.executor import Executor
from proofmill.schema.columns import PLAYED_COLUMNS
from proofmill.schema.kinds import BUFFER, ROLLOUTS
from proofmill.schema.selfplay_entry import Selfplay
from proofmill.tasks.tasks import ROLES, TASKS
from proofmill.training.rollouts import DIARY, Diary, constant


def main(entry: Selfplay, job: Job) -> None:
    rollouts.before_trl(job)
    with Executor(seconds=entry.seconds) if not processes.rank() else nullcontext() as executor:
        trainer, tokenizer, seconds = trained(entry, job, executor)
    finish(job, trainer, tokenizer, seconds)


def trained(entry: Selfplay, job: Job, executor: Executor | None) -> tuple[Any, Any, float]:
    """The trainer after its last step, the tokenizer, and the seconds it took; the main process has the executor."""
    from datasets import Dataset
    from trl import GRPOConfig

    from proofmill.training import checkpoints, passes, run
    from proofmill.training.selfplay_trainer import Trainer

    checkpoints.settle(job)
    at_once = passes.share_of(job, entry.rows)
    beside = footprint(entry)
    sampling = rollouts.sampling(job, entry, at_once, **beside)
    rows = passes.split(entry, job, entry.rows, **beside, **rollouts.footprint(sampling, at_once))
    config = GRPOConfig(
        **run.arguments(entry, job, entry.log_every),
        **rows,
        **sampling,
        **objective(entry),
        max_steps=entry.steps,
        steps_per_generation=rows["gradient_accumulation_steps"],
    )
    model, tokenizer = run.load(job, entry.model, entry.adapter, entry.seed)
    rollouts.decoded_by_ours(job, model)
    groups = len(entry.tasks) * len(entry.roles)
    empty = Dataset.from_list([{"prompt": [{"role": "user", "content": ""}]}] * groups)  # the game makes the prompts
    schema = {name: kind for name, (kind, _) in PLAYED_COLUMNS.items()}
    diary = Diary(job.checkpoints / DIARY, schema, checkpoints.step_of_last(job)) if executor else None
    first = list(first_tasks(entry, job)) if executor else []
    trainer = Trainer(
        entry, job.name, executor, first, diary, at_once,
        model=model, args=config, train_dataset=empty, processing_class=tokenizer,
    )  # fmt: skip
    return trainer, tokenizer, run.train(trainer, job)


def finish(job: Job, trainer: Any, tokenizer: Any, seconds: float) -> None:
    """Write the table of steps, the weights, and the rollouts and tasks beside them."""
    from proofmill.training import run

    weights = run.save(trainer, tokenizer, job)
    if trainer.play is None:  # not the main process
        return
    trainer.diary.write(weights / ROLLOUTS)
    trainer.play.save(weights / BUFFER)
    played = pl.scan_parquet(weights / ROLLOUTS)
    count, unscored = played.select(pl.len(), pl.col("reward").is_null().sum().alias("unscored")).collect().row(0)
    counts = {"rollouts": count, "unscored": unscored, "tasks": len(trainer.play.buffers)}
    sides = [f"{task}/{role}" for task in trainer.entry.tasks for role in trainer.entry.roles]
    side = pl.format("{}/{}", "task", "role")
    noticed = notices.of_rewards([s for s in sides if constant(played.filter(side == s), ["reward"])], sides)
    rows = list(in_long_form(run.steps(trainer)))
    job.finish(rows, counts, weights, training_seconds=seconds, notices=noticed)
    for sentence in noticed:
        say(job.name, sentence)


def footprint(entry: Selfplay) -> dict[str, Any]:
    """The most tokens of a rollout with its prompt, and of those that are learned."""
    return {"tokens": entry.prompt_tokens + entry.max_tokens, "learned_tokens": entry.max_tokens}


def objective(entry: Selfplay) -> dict[str, Any]:
    """GRPOConfig's options for what is sampled, and for the objective: PPO's, clipped, as a mean over a step's tokens."""
    return {
        "num_generations": entry.batch,  # the replies of one task and role, which TRL takes for a group
        "num_iterations": entry.iterations,
        "max_completion_length": entry.max_tokens,
        "temperature": entry.temperature,
        "top_p": entry.top_p,
        "top_k": entry.top_k or 0,
        "beta": 0.0,
        "epsilon": entry.epsilon,
        "epsilon_high": entry.epsilon_high,
        "delta": entry.dual_clip,
        "loss_type": "dapo",
        "shuffle_dataset": False,
        **rollouts.correction(entry),
    }


def first_tasks(entry: Selfplay, job: Job) -> Iterator[dict[str, Any]]:
    """The rows of first tasks: what the `answer` of each problem holds as JSON (sources `azr-...`)."""
    for problem in job.parent(entry.seed_tasks).rows("answer") if entry.seed_tasks else []:
        yield json.loads(problem["answer"])


def in_long_form(steps: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The trainer's rows, with task and role taken from the names of measures.

    Of the reasons for which proposals are invalid, those that were never met have no row; nor has what TRL logs twice.
    """
    rows = list(steps)
    met = {row["measure"] for row in rows if row["value"] or "/invalid/" not in row["measure"]}
    for row in (row for row in rows if row["measure"] in met and not row["measure"].startswith("rewards/")):
        task, _, rest = row["measure"].partition("/")
        role, _, measure = rest.partition("/")
        of_task = task in TASKS and role in ROLES
        yield {
            "step": row["step"],
            "task": task if of_task else None,
            "role": role if of_task else None,
            "measure": measure if of_task else row["measure"],
            "value": row["value"],
        }


if __name__ == "__main__":
    run(main)

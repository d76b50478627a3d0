"""One row of `grpo` is a number measured at a step of reinforcement learning; weights and rollouts stand beside the table.

Group relative policy optimisation (DeepSeekMath, section 4; DeepSeek-R1, section 2.2) with TRL's GRPOTrainer, rewarded by
the same grader that marks the benchmarks.

How we differ:
1. A rollout without a verdict is not a rollout with 0 marks: with `unscored: drop` it has no gradient and its group is
   normalised without it, also when other rewards (format) could be computed.
2. Verdicts go through the journal: a killed run goes on from its checkpoint and asks no judge twice.
3. Every rollout is kept, with each reward, its advantage, its verdict: results/grpo/<name>/rollouts.parquet.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from proofmill import kinds, templates
from proofmill.calls import Spent
from proofmill.graders import Grader
from proofmill.grades import schemes_of
from proofmill.jobs import Job, run
from proofmill.rewards import REWARDS, Group, Rollout, weight
from proofmill.scripts import Script
from proofmill.tables import PASSING, ROLLOUTS, TableError

LOG_EVERY = 5


def main(entry: kinds.Grpo, job: Job) -> None:
    from datasets import Dataset
    from trl import GRPOConfig

    from proofmill import training

    model, tokenizer = training.load(job, entry.model)
    schemes = schemes_of(job, entry.schemes)
    problems = job.parent(entry.problems).rows("problem", "statement", "answer", "solution")
    if len(problems) < entry.problems_per_step:
        raise TableError(
            f"{entry.problems}: {len(problems)} problems are kept; expected at least `problems-per-step` {entry.problems_per_step}."
        )
    data = Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": templates.fill(entry.ask, {"statement": p["statement"]})}],
                **p,
                "scheme": schemes.get(p["problem"]),
                "reference_tokens": len(tokenizer(p["solution"], add_special_tokens=False)["input_ids"])
                if p["solution"]
                else None,
            }
            for p in problems
        ]
    )
    config = GRPOConfig(
        **training.arguments(entry, job, LOG_EVERY, entry.iterations),
        max_steps=entry.steps,
        per_device_train_batch_size=training.per_device(job, entry.problems_per_step * entry.group),
        num_generations=entry.group,
        num_iterations=entry.iterations,
        max_completion_length=entry.max_tokens,
        temperature=entry.temperature,
        beta=entry.kl,
        epsilon=entry.epsilon,
        epsilon_high=entry.epsilon_high,
        loss_type=entry.loss,
        scale_rewards=entry.scale,
        mask_truncated_completions=entry.mask_truncated,
        reward_weights=[weight(given) for given in entry.rewards.values()],
    )
    diary = Diary(job.checkpoints / "rollouts.jsonl", after=_step_of(training.last_checkpoint(job)))
    with Grader(entry.grader, entry.prompt, job, schemes=entry.schemes is not None) as grader:
        judge = Judge(entry, grader, tokenizer.eos_token_id)
        trainer = _trainer_class()(
            model=model, args=config, train_dataset=data, processing_class=tokenizer, reward_funcs=judge.functions()
        )
        trainer.unscored, trainer.judge, trainer.diary = entry.unscored, judge, diary
        seconds = training.train(trainer, job)
    rows = list(training.steps(trainer))
    weights = training.save(trainer, tokenizer, job)
    rollouts = diary.write_parquet(weights / ROLLOUTS)
    counts = {"rollouts": rollouts.height, "unscored": rollouts["grade"].null_count()}
    spent = Spent()
    for verdict in rollouts.iter_rows(named=True):
        spent.add(verdict["cost"] or 0.0 if verdict["reason"] in PASSING else verdict["cost"], verdict["judge_tokens"])
    job.finish(rows, counts, weights, spent=spent, training_seconds=seconds)


def _step_of(checkpoint: Path | None) -> int:
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0


class Judge:
    """Grades a batch of rollouts once and hands each named reward its numbers."""

    def __init__(self, entry: kinds.Grpo, grader: Grader, end_token: int):
        self.entry, self.grader, self.end_token = entry, grader, end_token
        self.batch: list[Rollout] = []

    def functions(self) -> list[Any]:
        """One reward function for each name in the entry, in its order, as TRL calls them."""
        return [self._function(name, first=place == 0) for place, name in enumerate(self.entry.rewards)]

    def _function(self, name: str, first: bool) -> Any:
        def reward(completions, completion_ids, **columns) -> list[float | None]:
            if first:
                self._grade(completions, completion_ids, columns)
            values = [v for group in self.groups() for v in REWARDS[name].of(group, self.entry.rewards[name])]
            return [0.0 if v is None and self.entry.unscored == "zero" else v for v in values]

        reward.__name__ = name
        return reward

    def groups(self) -> Iterator[Group]:
        """The attempts at each problem: they come one after another."""
        for start in range(0, len(self.batch), self.entry.group):
            yield Group(self.batch[start : start + self.entry.group], self.entry.max_tokens)

    def _grade(self, completions: list, completion_ids: list[list[int]], columns: dict[str, list]) -> None:
        scripts = [
            Script(
                statement,
                answer,
                scheme,
                completion[0]["content"],
                stop="end" if ids[-1] == self.end_token else "length",
                reference=solution,
            )
            for statement, answer, scheme, solution, completion, ids in zip(
                *(columns[name] for name in ("statement", "answer", "scheme", "solution")),
                completions,
                completion_ids,
                strict=True,
            )
        ]
        verdicts = self.grader(scripts, quiet=True)
        lengths = [len(ids) for ids in completion_ids]
        references = columns["reference_tokens"]
        made = zip(scripts, verdicts, lengths, references, strict=True)
        self.batch = [Rollout(*rollout) for rollout in made]


def _trainer_class() -> type:
    """TRL's trainer with two additions; made here because importing TRL takes seconds."""
    from trl import GRPOTrainer

    class RubricGrpoTrainer(GRPOTrainer):
        def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
            """A rollout without a verdict has no reward at all: TRL leaves rows that are all NaN out of the group."""
            rewards_PK = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
            missing_P = rewards_PK.isnan().any(dim=1)
            rewards_PK[missing_P] = float("nan")
            self._log_metric("unscored", missing_P.float().mean().item())
            self._problems = [row["problem"] for row in inputs]
            return rewards_PK

        def _generate_and_score_completions(self, inputs):
            scored = super()._generate_and_score_completions(inputs)
            count = len(inputs)
            rewards = {name: list(self._logs["rewards"][name])[-count:] for name in self.judge.entry.rewards}
            advantages = list(self._logs["advantages"])[-count:]
            self.diary.add(self.state.global_step + 1, self._problems, self.judge.batch, rewards, advantages)
            return scored

    return RubricGrpoTrainer


class Diary:
    """Rollouts as they are made, one JSON line each; what came after the checkpoint a run goes on from is forgotten."""

    def __init__(self, path: Path, after: int):
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in _whole_lines(path) if json.loads(line)["step"] <= after] if after else []
        self.path, new = path, path.with_suffix(".new")
        new.write_text("".join(kept), encoding="utf-8")
        os.replace(new, path)

    def add(
        self, step: int, problems: list[str], rollouts: list[Rollout], rewards: dict[str, list], advantages: list
    ) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            for place, (problem, rollout) in enumerate(zip(problems, rollouts, strict=True)):
                row = {
                    "step": step,
                    "problem": problem,
                    "text": rollout.script.text,
                    "stop": rollout.script.stop,
                    "tokens": rollout.tokens,
                    "grade": rollout.verdict.grade,
                    "reason": rollout.verdict.reason,
                    "verdict": rollout.verdict.text,
                    "cost": rollout.verdict.cost,
                    "judge_tokens": rollout.verdict.tokens,
                    "advantage": advantages[place],
                    **{
                        f"reward_{name}": None if values[place] != values[place] else values[place]
                        for name, values in rewards.items()
                    },
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def write_parquet(self, path: Path) -> pl.DataFrame:
        rollouts = pl.read_ndjson(self.path, infer_schema_length=None)
        rollouts.write_parquet(path)
        return rollouts


def _whole_lines(path: Path) -> list[str]:
    """Lines that end; JSON leaves characters as they are that `splitlines` would take for ends of lines."""
    if not path.exists():
        return []
    return [f"{line.decode()}\n" for line in path.read_bytes().split(b"\n")[:-1]]


if __name__ == "__main__":
    run(main)

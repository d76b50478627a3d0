"""Grades on held-out problems while a policy trains: the curve that says whether it learns more than its own problems.

At intervals the weights at hand attempt each problem of `evaluate`, with random numbers of their own, so that a training
with evaluations has the same weights as one without (except with vLLM, whose engine has one stream of random numbers).
An evaluation of a killed training is repeated after the resume, with the same attempts; their verdicts are in the journal.

As in rewards, a response that no program can decide earns 0 (rollout_rewards.py). The interval is over problems
(metrics/uncertainty/intervals.py). The best of several evaluations is too high by chance: score the weights of
`keep-best` on other problems.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from proofmill.artifacts.jobs import Job
from proofmill.graders.graders import SubmissionGrader
from proofmill.metrics.uncertainty import intervals
from proofmill.runtime import processes
from proofmill.runtime.progress import log
from proofmill.schema.columns import EVALUATION_COLUMNS
from proofmill.schema.errors import ServiceError, TableError
from proofmill.schema.ids import digest
from proofmill.schema.reasons import StopReason
from proofmill.training import micro_batches, rollout_log
from proofmill.training.checkpoints import step_of_last
from proofmill.training.rollout_log import EVALUATION_LOG, RolloutLog
from proofmill.training.rollout_rewards import decide
from proofmill.training.rollouts import problems

GRADE = "evaluate/grade"  # the metric that `keep-best` goes by
SCHEMA = {name: kind for name, (kind, _) in EVALUATION_COLUMNS.items()}

# (prompts in tokens, temperature, seed) -> the tokens after each prompt, in all processes
Sample = Callable[[Sequence[Sequence[int]], float, int], Sequence[Sequence[int]]]


class HeldOut:
    """The held-out problems with their prompts in tokens; only the main process has a `grader` and a `log`."""

    def __init__(
        self,
        name: str,
        entry: Any,
        rows: Sequence[dict[str, Any]],
        prompts: Sequence[Sequence[int]],
        grader: SubmissionGrader | None,
        kept: RolloutLog | None,
    ):
        """Take the name and the entry of the training. Raises TableError without problems that have a grade."""
        asked = [place for place, row in enumerate(rows) if row["question_type"] != "chat"]
        if not asked:
            raise TableError(
                f"{entry.evaluate}: no problem that the grader of the evaluation can grade; expected at least one. Name "
                "other problems in `evaluate`, or another `evaluate-grader`."
            )
        self.name, self.entry, self.grader, self.kept = name, entry, grader, kept
        places = [place for place in asked for _ in range(entry.evaluate_attempts)]
        self.problems, self.prompts = [rows[place] for place in places], [prompts[place] for place in places]

    @classmethod
    def of(cls, entry: Any, job: Job, tokenizer: Any, grader: SubmissionGrader | None) -> "HeldOut | None":
        """Read the held-out problems of an entry of `grpo` or `selfplay`; None without `evaluate`."""
        if entry.evaluate is None:
            return None
        name, _, schemes = entry.evaluated_by
        rows = problems.read(job, entry.evaluate, name, schemes, entry.prompt, tokenizer)
        prompts = [*problems.in_tokens([row["prompt"] for row in rows], tokenizer)]
        micro_batches.check_prompts(entry, job, entry.evaluate, max(map(len, prompts), default=0))
        kept = RolloutLog(job.checkpoints / EVALUATION_LOG, SCHEMA, step_of_last(job)) if grader else None
        return cls(job.name, entry, rows, prompts, grader, kept)

    def evaluate(self, step: int, sample: Sample, describe: Callable[..., dict[str, Any]]) -> dict[str, float]:
        """Return the metrics of the weights after `step`, in all processes; `describe(problem, ids)` gives a row.

        Raises ServiceError in all of them if more attempts are unscored than `max-unscored`.
        """
        temperature = (
            self.entry.temperature if self.entry.evaluate_temperature is None else self.entry.evaluate_temperature
        )
        seed = int(digest(self.entry.seed, "evaluate", step), 16) % 2**63
        completions = sample(self.prompts, temperature, seed)
        rows = [describe(problem, ids) for problem, ids in zip(self.problems, completions, strict=True)]
        metrics, fault = processes.broadcast(self._grade(step, rows) if self.grader else None)
        if fault:
            raise ServiceError(fault)
        return metrics

    def _grade(self, step: int, rows: Sequence[dict[str, Any]]) -> tuple[dict[str, float], str]:
        """Grade and keep attempts; return their metrics, and a fault if too many are unscored."""
        assert self.grader is not None and self.kept is not None, "the main process has them"
        verdicts = map(decide, self.grader([*map(rollout_log.submission, rows)], quiet=True))
        kept = [
            {
                "rollout": digest(self.name, "evaluate", step, index),
                "step": step,
                "attempt": index % self.entry.evaluate_attempts,
                **{key: row[key] for key in ("problem", "prompt", "text", "stop_reason", "tokens")},
                **{key: getattr(verdict, key) for key in ("grade", "max_points", "reason", "cost")},
                "verdict": verdict.text,
                "judge_tokens": verdict.tokens,
            }
            for index, (row, verdict) in enumerate(zip(rows, verdicts, strict=True))
        ]
        self.kept.add(iter(kept))
        metrics = compute_metrics(kept, step)
        shown = f"{metrics[GRADE]:.3f} of all points" if GRADE in metrics else "no grade"
        ends = [f"{metrics[f'{GRADE}/{end}']:.3f}" for end in ("low", "high") if f"{GRADE}/{end}" in metrics]
        interval = f" [{', '.join(ends)}]" * bool(ends)
        log(self.name, f"step {step:,}: {shown}{interval} on {self.entry.evaluate}, {len(rows):,} attempts")
        unscored = sum(row["grade"] is None for row in kept)
        if unscored <= self.entry.max_unscored * len(rows):
            return metrics, ""
        return metrics, (
            f"{self.name}: {unscored:,} of {len(rows):,} attempts at held-out problems have no verdict at step {step:,}; expected "
            f"at most {self.entry.max_unscored:.0%} (`max-unscored`). Fix the grader of the evaluation, or raise the limit. Rerun "
            "the same command to resume from the last checkpoint."
        )


def compute_metrics(rows: Sequence[dict[str, Any]], step: int) -> dict[str, float]:
    """Return the metrics of an evaluation: mean grade as a share of all points with its interval, and shares of attempts."""
    frame = pl.DataFrame(rows, schema=SCHEMA)
    scored = frame.drop_nulls("grade").with_columns(share=pl.col("grade") / pl.col("max_points"))
    metrics = {
        "evaluate/unscored": 1 - scored.height / frame.height,
        "evaluate/tokens": float(np.mean(frame["tokens"].to_numpy())),
        "evaluate/truncated": float(np.mean(frame["stop_reason"].to_numpy() == StopReason.LENGTH)),
    }
    if not scored.height:
        return metrics
    means = scored.group_by("problem", maintain_order=True).agg(pl.col("share").mean())["share"].to_numpy()
    low, high = intervals.of_mean(means, (0.0, 1.0), seed=step)
    ends = {f"{GRADE}/{end}": value for end, value in (("low", low), ("high", high)) if value is not None}
    solved = float(np.mean(scored["share"].to_numpy() >= 1))
    return {GRADE: float(means.mean()), **ends, "evaluate/solved": solved, **metrics}


def best_step(history: Sequence[dict[str, Any]]) -> int | None:
    """Return the step with the highest mean grade in a trainer's log, the first of equal ones; None without any."""
    grades = {row["step"]: row[GRADE] for row in reversed(history) if GRADE in row}
    return max(sorted(grades), key=lambda step: grades[step]) if grades else None

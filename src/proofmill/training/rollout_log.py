"""Rollouts of a run, with text, rewards, advantage and verdict.

A rollout log collects them during the training; at the end they become results/grpo/<name>/rollouts.parquet.
"""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from proofmill.artifacts.checked_parquet import writer
from proofmill.graders.submissions import Submission
from proofmill.runtime import append_log, durable
from proofmill.schema.columns import ROLLOUT_COLUMNS
from proofmill.schema.ids import digest
from proofmill.schema.reasons import StopReason
from proofmill.training.rollout_rewards import EQUAL, Rewarded

ROLLOUT_LOG, EVALUATION_LOG = LOGS = ("rollouts.jsonl", "evaluations.jsonl")  # among the checkpoints


class RolloutLog:
    """A file of rollouts, one JSON line each. Opening it drops the steps beyond `after`, where the run resumes.

    A long training writes more than fits in memory, so lines are read one at a time.
    """

    def __init__(self, path: Path, schema: Mapping[str, Any], after: int):
        """Take the columns of the Parquet file with their types as `schema`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.schema, new = path, schema, path.with_suffix(".new")
        with open(new, "wb") as file:
            file.writelines(line for line in whole_lines(path) if after and json.loads(line)["step"] <= after)
        durable.replace(new, path)

    def add(self, rows: Iterable[dict]) -> None:
        """Append rows and flush them to the disk."""
        append_log.append(self.path, (f"{json.dumps(row, ensure_ascii=False)}\n".encode() for row in rows))

    def rows(self) -> Iterator[dict]:
        return map(json.loads, whole_lines(self.path))

    def write(self, path: Path) -> None:
        """Write all rollouts as a Parquet file, a few megabytes at a time."""
        empty = pl.DataFrame(schema=self.schema).to_arrow()
        with writer(path, empty.schema) as file:
            for lines in _chunks(whole_lines(self.path)):
                file.write_table(pl.read_ndjson(b"".join(lines), schema=self.schema).to_arrow())


def columns(names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of the rollouts of a `grpo` with these rewards, with their types."""
    return {
        **{name: kind for name, (kind, _) in ROLLOUT_COLUMNS.items()},
        **{f"reward_{name}": pl.Float64 for name in names},
    }


def decode(tokenizer: Any, completions: Sequence[Sequence[int]], ends: Collection[int]) -> list[str]:
    """Decode completions, without the tokens that end them.

    Special tokens within a text are kept, so that a policy cannot hide text from a grader.
    """
    whole = ([*dropwhile(ends.__contains__, reversed(ids))][::-1] for ids in completions)
    return tokenizer.batch_decode(list(whole), skip_special_tokens=False)


# What a rollout has of its problem.
PROBLEM = (
    *("problem", "statement", "answer", "solution", "scheme", "question_type"),
    *("reference_tokens", "question_tokens", "turn"),
)


def describe(
    problem: Mapping[str, Any], ids: Sequence[int], tokenizer: Any, ends: Collection[int], opening: str
) -> dict[str, Any]:
    """Return a rollout's row: its problem's fields, and its text with the `opening` of the template."""
    (text,) = decode(tokenizer, [ids], ends)
    return {
        **{key: problem.get(key) for key in PROBLEM},
        "prompt": problem["prompt"][-1]["content"],
        "text": opening + text,
        "tokens": len(ids),
        "token_ids": [*ids],
        "stop_reason": StopReason.END if ids[-1] in ends else StopReason.LENGTH,
    }


def submission(row: Mapping[str, Any]) -> Submission:
    """Return the submission that a grader receives."""
    return Submission(
        row["statement"], row["answer"], row["scheme"], row["text"],
        stop_reason=row["stop_reason"], reference=row["solution"], question_type=row["question_type"],
    )  # fmt: skip


def entries(
    run: str, step: int, rows: Sequence[Mapping[str, Any]], rewarded: Rewarded, names: Sequence[str], group: int,
    counted_NK: np.ndarray, advantages: Sequence[float], audited: Sequence[float | None], uses_P: Sequence[str],
    done: int = 0,
) -> Iterator[dict]:  # fmt: skip
    """Yield the log's rows of a step; `rows` has problem, prompt, turn, question_tokens and policy of each rollout.

    `uses_P` are the uses of its groups, and `done` groups of the step are in the log.
    """
    for index, rollout in enumerate(rewarded.rollouts):
        yield {
            "rollout": digest(run, step, done * group + index),
            "step": step,
            "group": done + index // group,
            "use": uses_P[index // group],
            **{key: rows[index].get(key) for key in ("problem", "turn", "prompt", "question_tokens")},
            "policy_step": rows[index].get("policy_step", step - 1),
            "text": rollout.submission.text,
            "stop_reason": rollout.submission.stop_reason,
            "tokens": rollout.tokens,
            "token_ids": rows[index]["token_ids"],
            "logprobs": _round(rows[index]["logprobs"]),
            "reference_tokens": rollout.reference_tokens,
            "grade": rollout.verdict.grade,
            "max_points": rollout.verdict.max_points,
            "reason": rollout.verdict.reason,
            "verdict": rollout.verdict.text,
            "cost": rollout.verdict.cost,
            "judge_tokens": rollout.verdict.tokens,
            "audit": audited[index],
            "unscored": bool(rewarded.unscored_N[index]),
            "rewards_defined": [
                name for name, applies in zip(names, rewarded.applies_NK[index], strict=True) if applies
            ],
            "advantage": advantages[index],
            **{
                f"reward_{name}": None if value != value else float(value)
                for name, value in zip(names, counted_NK[index], strict=True)
            },
        }


def _round(logprobs: Sequence[float | None] | None) -> list[float | None] | None:
    """Round for the log; an unknown value is null, since JSON has no NaN."""
    if logprobs is None:
        return None
    return [round(value, 5) if value is not None and math.isfinite(value) else None for value in logprobs]


def constant(rollouts: pl.LazyFrame, rewards: Sequence[str], *group: str) -> list[str]:
    """Return the columns of rewards that differ within no group of any step; missing rewards are ignored."""
    if not rewards:
        return []
    columns = pl.col(rewards)
    spreads = rollouts.group_by("step", *group).agg(columns.max() - columns.min())
    largest = spreads.select(columns.max()).collect().row(0)
    return [name for name, spread in zip(rewards, largest, strict=True) if not (spread or 0) > EQUAL]


def _chunks(lines: Iterator[bytes], size: int = 1 << 24) -> Iterator[list[bytes]]:
    """Yield lists of lines of at least `size` bytes each; the last one may be shorter."""
    chunk: list[bytes] = []
    length = 0
    for line in lines:
        chunk.append(line)
        length += len(line)
        if length >= size:
            yield chunk
            chunk, length = [], 0
    if chunk:
        yield chunk


def whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the complete lines, as bytes.

    A line that a power cut damaged is left out: it was written after the last checkpoint, which was synced after all others.
    """
    return filter(_is_object, append_log.complete_lines(path))


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False

"""Define the columns of all tables. A name means the same in every table (`problem`, `response`, `grade`, `dropped`).

The columns of a kind are in their order, each with its type and its sentence in the manual.
"""

from typing import Any

import polars as pl

from proofmill.schema.reasons import Reason, StopReason

ROLE = pl.Struct({"role": pl.String, "content": pl.String})
STEP = pl.Struct({
    "step": pl.String, "role": pl.String, "model": pl.String, "inputs": pl.List(pl.Int64), "depth": pl.Int64,
    "text": pl.String, "reasoning": pl.String, "stop_reason": pl.String, "reason": pl.String, "prompt_tokens": pl.Int64,
    "tokens": pl.Int64, "reasoning_tokens": pl.Int64, "cost": pl.Float64,
})  # fmt: skip
MESSAGE = pl.Struct({"role": pl.String, "content": pl.String, "extra": pl.String})  # text/messages.py
CHECKPOINT = pl.Struct({"chain": pl.String, "points": pl.Float64, "weight": pl.String, "text": pl.String})
DEDUCTION = pl.Struct({"minus": pl.Int64, "cap": pl.Int64, "text": pl.String})
OPINION = pl.Struct(
    {"judge": pl.String, "round": pl.String, "grade": pl.Float64, "reason": pl.String, "text": pl.String}
)

# Texts with a known grade, for the self-test of a grading scheme. Each has a column `<probe>_grade` in `schemes`.
PROBES = ("reference", "empty", "restated", "unrelated", "gapped")

# Columns with the values of an enum, in all tables.
ENUMS = {"stop_reason": StopReason, "reason": Reason}

COLUMNS: dict[str, dict[str, tuple[Any, str]]] = {
    "problems": {
        "problem": (pl.String, "id, derived from the statement"),
        "statement": (pl.String, "problem statement"),
        "solution": (pl.String, "selected or official solution, if any"),
        "answer": (pl.String, "final answer, or the tests as JSON, if any"),
        "candidates": (pl.List(pl.String), "other posts of the thread, or other official solutions"),
        "guidelines": (pl.String, "grading guidelines that came with the problem, if any"),
        "question_type": (
            pl.String,
            "question type: `proof`, `answer`, `code` (with tests) or `chat` (without a correct answer)",
        ),
        "origin": (pl.String, "source of the problem: contest, forum or file"),
        "year": (pl.Int64, "year of the contest or post, if known"),
        "date": (pl.String, "day on which it was published, `YYYY-MM-DD`, if known"),
        "level": (pl.String, "difficulty, in the source's own words"),
        "tags": (pl.List(pl.String), "topics, in the source's own words"),
        "dropped": (pl.String, "name of the filter that the row failed; null if kept"),
        "evidence": (pl.String, "what the filter matched or computed"),
        "matched": (pl.String, "`<table>#<problem>` of the other row, if the filter compares rows"),
    },
    "overlaps": {
        "overlap": (pl.String, "id, derived from the two rows and the method"),
        "problems": (pl.String, "table whose rows were searched for"),
        "problem": (pl.String, "id of its row"),
        "against": (pl.String, "table in which it was found"),
        "against_problem": (pl.String, "id of the row there"),
        "method": (pl.String, "method that found it"),
        "span": (pl.String, "shared text, as written in the row of `problems`; for `embedding` the beginnings of both"),
        "similarity": (
            pl.Float64,
            "1 for `exact` and `number-free`; Jaccard similarity for `minhash`; share of the other statement in the shared run for `ngram`; cosine similarity of vectors for `embedding`, of words or vectors for `judge`",
        ),
        "reason": (pl.String, "`ok`, or why the judge did not decide"),
    },
    "labels": {
        "problem": (pl.String, "problem id"),
        "incomplete": (pl.Boolean, "statement or solution is incomplete"),
        "difficulty": (pl.Int64, "1 to 10"),
        "gaps": (pl.Boolean, "the solution skips a large part"),
        "wrong": (pl.Boolean, "the solution indicates that the statement is ambiguous or false"),
        "disagreement": (pl.Boolean, "a comment objects to the solution"),
        "computational": (pl.Boolean, "the main difficulty is to evaluate an expression"),
        "reason": (pl.String, "`ok`, or why there are no labels"),
        "verdict": (pl.String, "full output of the judge"),
        "cost": (pl.Float64, "dollars; null if the price is unknown"),
    },
    "schemes": {
        "problem": (pl.String, "problem id"),
        "scheme": (pl.String, "grading scheme; null if it could not be parsed or written"),
        "points": (pl.Int64, "points of the best chain of checkpoints"),
        "checkpoints": (pl.List(CHECKPOINT), "items that earn points; an item without `chain` counts in every chain"),
        "zero_credit": (pl.List(pl.String), "items that earn no points"),
        "deductions": (pl.List(DEDUCTION), "items that cost points or cap the grade"),
        "faults": (pl.List(pl.String), "faults that the linter found"),
        "reason": (pl.String, "`ok`, or why there is no scheme"),
        "reference_grade": (pl.Float64, "self-test: grade of the reference solution; null without one"),
        "empty_grade": (pl.Float64, "self-test: grade of an empty text"),
        "restated_grade": (pl.Float64, "self-test: grade of the problem statement"),
        "unrelated_grade": (pl.Float64, "self-test: grade of a proof of another problem"),
        "gapped_grade": (pl.Float64, "self-test: grade of the reference without its longest step"),
        "self_test": (pl.String, "self-test: `ok`, the texts with an unexpected grade, or `unscored`; null without it"),
        "verdict": (pl.String, "full output of the judge"),
        "cost": (pl.Float64, "dollars, including the self-test; null if the price is unknown"),
        "dropped": (pl.String, "name of the filter that the scheme failed; null if kept"),
    },
    "base": {
        "file": (pl.String, "path in the weights folder"),
        "bytes": (pl.Int64, "size in bytes"),
        "sha256": (pl.String, "SHA-256 of the file"),
    },
    "responses": {
        "response": (pl.String, "id, derived from the problem, the model and the attempt"),
        "problem": (pl.String, "problem id"),
        "attempt": (pl.Int64, "number of the attempt, from 0"),
        "writer": (pl.String, "author, if the attempts came with the problems"),
        "text": (pl.String, "text of the response, including reasoning unless that is in `reasoning`"),
        "reasoning": (pl.String, "reasoning that the server or the source gave separately"),
        "stop_reason": (pl.String, "stop reason: `end`, `length`, `loop` or `error`"),
        "reason": (
            pl.String,
            "`ok`, `no-output` (no output), `no-proof` (only a heading), or why there is no response",
        ),
        "prompt_tokens": (pl.Int64, "tokens of the request"),
        "tokens": (pl.Int64, "generated tokens, including reasoning"),
        "reasoning_tokens": (pl.Int64, "reasoning tokens, if the server reports them"),
        "cost": (pl.Float64, "dollars; null if the price is unknown"),
        "request_messages": (
            pl.List(ROLE),
            "messages of the request; empty with a scaffold, and for attempts that came with the problems",
        ),
        "steps": (pl.List(STEP), "calls of the scaffold, in order of completion; null without one"),
        "answer_step": (pl.Int64, "number of the scaffold's step that gave the text, from 0"),
        "given_grade": (pl.Float64, "grade that came with the attempt, from a person or a program"),
        "max_points": (pl.Int64, "maximum points of `given_grade`"),
    },
    "grades": {
        "response": (pl.String, "response id"),
        "problem": (pl.String, "problem id"),
        "attempt": (pl.Int64, "number of the attempt, from 0"),
        "grade": (pl.Float64, "grade in points; null if unscored"),
        "max_points": (pl.Int64, "maximum points"),
        "reason": (pl.String, "`ok`, `empty` or `no-answer` (both with grade 0), or why the row is unscored"),
        "well_formed": (pl.Boolean, "complete, with closed reasoning and one box; null without a response"),
        "answer": (pl.String, "final answer of the response, as the grader parsed it"),
        "answer_extraction": (
            pl.String,
            "how the final answer can be extracted: `strict` (from a box or `####`), `several` (from several boxes; all count if the problem asks for several values), `flexible` (from a sentence, or as the last value); null if there is no response or no final answer",
        ),
        "stop_reason": (pl.String, "stop reason, as in `responses`"),
        "verdict": (pl.String, "full output of the judge that gave the grade, or the findings of the program"),
        "opinions": (pl.List(OPINION), "output of each judge in each round; `text` only if several judges were called"),
        "prompt_tokens": (pl.Int64, "tokens of the judges' requests"),
        "tokens": (pl.Int64, "tokens that the judges generated"),
        "cost": (pl.Float64, "dollars; null if the price is unknown"),
    },
    "examples": {
        "example": (pl.String, "id"),
        "problem": (pl.String, "problem id; for a conversation, derived from the messages before the first answer"),
        "response": (pl.String, "response id, if made from a response"),
        "messages": (pl.List(MESSAGE), "conversation to train on; `extra`: further fields as JSON, e.g. tool calls"),
        "tools": (pl.String, "JSON of the functions that the assistant may call, if any"),
        "grade": (pl.Float64, "grade in points, if graded"),
        "origin": (pl.String, "source table, or file and line"),
        "dropped": (
            pl.String,
            "name of the filter that the row failed, or why it cannot be trained on: `no-response`, `empty`, `unknown-role`, `not-text` (an image), `no-assistant`; null if kept",
        ),
    },
    "sft": {
        "step": (pl.Int64, "optimizer step"),
        "epoch": (pl.Float64, "epochs so far"),
        "metric": (pl.String, "name of the metric"),
        "value": (pl.Float64, "value of the metric"),
    },
    "grpo": {
        "step": (pl.Int64, "optimizer step"),
        "epoch": (pl.Float64, "epochs over the problems so far"),
        "metric": (pl.String, "name of the metric"),
        "value": (pl.Float64, "value of the metric"),
    },
    "selfplay": {
        "step": (pl.Int64, "optimizer step"),
        "task": (pl.String, "`abduce`, `deduce`, `induce` or `error`; null for a metric over all tasks"),
        "role": (pl.String, "`propose` or `solve`; null for a metric over both roles"),
        "metric": (pl.String, "name of the metric"),
        "value": (pl.Float64, "value of the metric"),
    },
    "scores": {
        "model": (pl.String, "model evaluated, if any"),
        "baseline": (pl.String, "baseline model or gold grades, in a comparison"),
        "problems": (pl.String, "benchmark"),
        "sampling": (pl.String, "sampling setting"),
        "grader": (pl.String, "grader"),
        "metric": (pl.String, "name of the metric"),
        "slice": (
            pl.String,
            "slice: `all`, a level, family, year, writer or seed, `budget` (point of a cost curve), or `training`",
        ),
        "value": (pl.Float64, "value of the metric; null if no row is scored or it is undefined"),
        "low": (pl.Float64, "lower end of the confidence interval"),
        "high": (pl.Float64, "upper end of the confidence interval"),
        "p_value": (pl.Float64, "two-sided p of a difference, of the test that its interval inverts"),
        "p_adjusted": (pl.Float64, "`p_value` adjusted by Holm for all comparisons of the table"),
        "n": (pl.Int64, "number of responses"),
        "n_problems": (pl.Int64, "number of problems"),
        "n_above_zero": (
            pl.Int64,
            "number of problems at which the metric is above 0; null for metrics over attempts or runs",
        ),
        "n_seeds": (pl.Int64, "number of seeds that a difference is tested over; 1: over problems only"),
        "unscored": (pl.Float64, "share of unscored responses"),
        "tokens_per_problem": (pl.Float64, "generated tokens per problem, of a cost curve or at equal budgets"),
        "dollars_per_problem": (pl.Float64, "dollars per problem, likewise; null if unknown or free"),
    },
}

# Rollouts of a training by rewards. Each reward has a column `reward_<name>` in addition.
ROLLOUT_COLUMNS: dict[str, tuple[Any, str]] = {
    "rollout": (pl.String, "id, derived from the run, the step and the position"),
    "step": (pl.Int64, "optimizer step that trained on it; the first one if several did"),
    "policy_step": (pl.Int64, "optimizer step of the weights that started the rollout"),
    "group": (pl.Int64, "index of the group in the step"),
    "use": (
        pl.String,
        "use of the group: `trained`; `idle`, without a learning signal: equal rewards, or fewer than two; `spare`, sampled and not needed",
    ),
    "problem": (pl.String, "problem id"),
    "turn": (pl.Int64, "turn of reasoning that it continues from; null without a summarizer"),
    "prompt": (pl.String, "prompt"),
    "text": (pl.String, "generated text"),
    "stop_reason": (pl.String, "stop reason: `end` or `length`"),
    "tokens": (pl.Int64, "generated tokens"),
    "token_ids": (pl.List(pl.Int32), "their ids, with the one that ends the text"),
    "logprobs": (
        pl.List(pl.Float16),
        "their log-probabilities at the temperature of sampling, from the engine that sampled; null where it returns none (sharded weights)",
    ),
    "question_tokens": (pl.Int64, "tokens of the statement"),
    "reference_tokens": (pl.Int64, "tokens of the reference solution, if any"),
    "grade": (pl.Float64, "grade in points; null if unscored"),
    "max_points": (pl.Int64, "maximum points"),
    "reason": (pl.String, "`ok`, or why it is unscored; `not-asked` if no grade was needed"),
    "verdict": (pl.String, "full output of the judge"),
    "cost": (pl.Float64, "dollars of the verdict; null if the price is unknown"),
    "judge_tokens": (pl.Int64, "tokens that the judges generated"),
    "audit": (pl.Float64, "grade of the audit grader as a share of the points, if audited"),
    "unscored": (pl.Boolean, "a reward defined for this rollout is missing"),
    "rewards_defined": (pl.List(pl.String), "names of the rewards defined for this rollout"),
    "advantage": (
        pl.Float64,
        "advantage in the policy-gradient update, which `spare` groups have no part in; without the part of a `teacher`, which differs by token",
    ),
}

# Attempts at held-out problems during a training.
EVALUATION_COLUMNS: dict[str, tuple[Any, str]] = {
    "rollout": (pl.String, "id, derived from the run, the step and the position"),
    "step": (pl.Int64, "optimizer step of the weights; 0 before the first one"),
    "problem": (pl.String, "problem id"),
    "attempt": (pl.Int64, "index of the attempt at the problem"),
    **{
        name: ROLLOUT_COLUMNS[name]
        for name in (
            *("prompt", "text", "stop_reason", "tokens", "grade", "max_points", "reason", "verdict"),
            *("cost", "judge_tokens"),
        )
    },
}

# Proposals and solutions of self-play.
PLAYED_COLUMNS: dict[str, tuple[Any, str]] = {
    "rollout": (pl.String, "id, derived from the run, the step and the position"),
    "step": (pl.Int64, "optimizer step that it was generated for"),
    "task": (pl.String, "`abduce`, `deduce`, `induce` or `error`"),
    "role": (pl.String, "`propose` or `solve`"),
    "task_id": (pl.String, "id of the proposed or solved task; null if the proposal is invalid"),
    "prompt": (pl.String, "prompt"),
    "text": (pl.String, "generated text"),
    "stop_reason": (pl.String, "stop reason: `end` or `length`"),
    "tokens": (pl.Int64, "generated tokens"),
    "reason": (pl.String, "`ok`, or why the proposal is invalid, or why there is no verdict"),
    "well_formed": (pl.Boolean, "the text has the requested form"),
    "detail": (pl.String, "details of why the proposal is invalid"),
    "accuracy": (
        pl.Float64,
        "of a solution: 1 if correct, 0 if not, or a share of hidden pairs; of a proposal: mean over the solver's attempts; null if not computed",
    ),
    "reward": (pl.Float64, "reward; null if unscored"),
    "advantage": (pl.Float64, "advantage used in the policy-gradient update"),
}

# Tasks in the buffer of self-play.
BUFFER_COLUMNS: dict[str, tuple[Any, str]] = {
    "id": (pl.String, "id, derived from the content of the task"),
    "kind": (pl.String, "`abduce`, `deduce`, `induce` or `error`"),
    "program": (pl.String, "program"),
    "input": (pl.String, "arguments of the call; empty for `induce`"),
    "output": (pl.String, "value, or the exception of an `error`; empty for `induce`"),
    "inputs": (pl.List(pl.String), "arguments of all calls of an `induce`"),
    "outputs": (pl.List(pl.String), "values of all calls of an `induce`"),
    "message": (pl.String, "hint for the solver of an `induce`"),
    "step": (pl.Int64, "step that proposed the task; 0 for a seed task"),
    "proposed": (pl.String, "part of the program that the proposer wrote; empty if all of it"),
}

# Files next to the weights of trainings.
FILE_COLUMNS: dict[str, dict[str, dict[str, tuple[Any, str]]]] = {
    "grpo": {
        "rollouts.parquet": {
            **ROLLOUT_COLUMNS,
            "reward_<name>": (pl.Float64, "value of the reward; null if it is missing or not defined for this rollout"),
        },
        "evaluations.parquet": EVALUATION_COLUMNS,
    },
    "selfplay": {
        "rollouts.parquet": PLAYED_COLUMNS,
        "evaluations.parquet": EVALUATION_COLUMNS,
        "buffer.parquet": BUFFER_COLUMNS,
    },
}

"""The columns of every table: one word is one column, the same in all of them (`problem`, `response`, `grade`, `dropped`).

A kind's columns stand here in their order, each with its type and its sentence in the manual.
"""

from typing import Any

import polars as pl

from proofmill.schema.reasons import Reason, Stop

ROLE = pl.Struct({"role": pl.String, "content": pl.String})
STEP = pl.Struct({
    "step": pl.String, "role": pl.String, "model": pl.String, "shown": pl.List(pl.Int64), "depth": pl.Int64,
    "text": pl.String, "reasoning": pl.String, "stop": pl.String, "reason": pl.String, "prompt_tokens": pl.Int64,
    "tokens": pl.Int64, "reasoning_tokens": pl.Int64, "cost": pl.Float64,
})  # fmt: skip
MESSAGE = pl.Struct({"role": pl.String, "content": pl.String, "more": pl.String})  # text/messages.py
CHECKPOINT = pl.Struct({"chain": pl.String, "points": pl.Float64, "weight": pl.String, "text": pl.String})
DEDUCTION = pl.Struct({"minus": pl.Int64, "cap": pl.Int64, "text": pl.String})
OPINION = pl.Struct(
    {"judge": pl.String, "round": pl.String, "grade": pl.Float64, "reason": pl.String, "text": pl.String}
)

# The known answers that try out a marking scheme; each has a column `<probe>_marks` in `schemes`.
PROBES = ("reference", "blank", "restated", "unrelated", "cut")

# Columns that hold one of the values of an enum, in whatever table they stand.
ENUMS = {"stop": Stop, "reason": Reason}

COLUMNS: dict[str, dict[str, tuple[Any, str]]] = {
    "problems": {
        "problem": (pl.String, "id, from the statement"),
        "statement": (pl.String, "what is asked"),
        "solution": (pl.String, "the selected or official solution, if there is one"),
        "answer": (pl.String, "the final answer, or the tests as JSON, if there is one"),
        "candidates": (pl.List(pl.String), "other posts of the thread or other official solutions"),
        "guidelines": (pl.String, "the marking scheme the problem came with, if any"),
        "asks": (pl.String, "`proof`, `answer`, `code` (tests are the answer) or `talk` (nothing is right or wrong)"),
        "origin": (pl.String, "where it stood: contest, forum, file"),
        "year": (pl.Int64, "of the contest or post, if known"),
        "level": (pl.String, "difficulty in the source's own words"),
        "tags": (pl.List(pl.String), "topics in the source's own words"),
        "dropped": (pl.String, "the filter that refused the row; null when it is kept"),
        "evidence": (pl.String, "what the filter saw"),
        "matched": (pl.String, "`<table>#<problem>` of the other row, where there is one"),
    },
    "overlaps": {
        "overlap": (pl.String, "id, from the two rows and the method"),
        "problems": (pl.String, "the table it was found in"),
        "problem": (pl.String, "the row"),
        "against": (pl.String, "the table it also stands in"),
        "other": (pl.String, "the row there"),
        "method": (pl.String, "how it was found"),
        "span": (pl.String, "the text they share, as the row writes it"),
        "similarity": (
            pl.Float64,
            "1 for exact and number-free, Jaccard for minhash, the share of the other statement in the run for ngram, the cosine of words for judge",
        ),
        "reason": (pl.String, "`ok`, or why the judge left the pair undecided"),
    },
    "labels": {
        "problem": (pl.String, "id"),
        "incomplete": (pl.Boolean, "statement or solution is partial"),
        "difficulty": (pl.Int64, "1 to 10"),
        "gaps": (pl.Boolean, "the solution skips a large part"),
        "wrong": (pl.Boolean, "the solution signals that the statement is ambiguous or false"),
        "disagreement": (pl.Boolean, "a comment objects to the solution"),
        "computational": (pl.Boolean, "the difficulty is evaluating an expression"),
        "reason": (pl.String, "`ok`, or why there are no labels"),
        "verdict": (pl.String, "the judge's whole answer"),
        "cost": (pl.Float64, "dollars; null when the price is unknown"),
    },
    "schemes": {
        "problem": (pl.String, "id"),
        "scheme": (pl.String, "the marking scheme; null when there is none"),
        "points": (pl.Int64, "sum of the points of the best chain"),
        "checkpoints": (pl.List(CHECKPOINT), "what earns points; without a chain it counts in every chain"),
        "zero_credit": (pl.List(pl.String), "what is worth nothing"),
        "deductions": (pl.List(DEDUCTION), "what costs points, or caps the mark"),
        "faults": (pl.List(pl.String), "what the linter finds"),
        "reason": (pl.String, "`ok`, or why there is no scheme"),
        "reference_marks": (
            pl.Float64,
            "self-test: marks of the reference solution; null when it was not tried or not marked",
        ),
        "blank_marks": (pl.Float64, "self-test: of no solution"),
        "restated_marks": (pl.Float64, "self-test: of the problem said again"),
        "unrelated_marks": (pl.Float64, "self-test: of another problem's proof"),
        "cut_marks": (pl.Float64, "self-test: of the reference without its longest step"),
        "tested": (
            pl.String,
            "`ok`, the known answers that got other marks than they must, or `unscored`; null without a tester",
        ),
        "verdict": (pl.String, "the judge's whole answer"),
        "cost": (pl.Float64, "dollars, tests included; null when the price is unknown"),
        "dropped": (pl.String, "the demand of `keep` that it does not fulfil; null when it is kept"),
    },
    "base": {
        "file": (pl.String, "path below the weights folder"),
        "bytes": (pl.Int64, "size"),
        "sha256": (pl.String, "digest"),
    },
    "responses": {
        "response": (pl.String, "id, from the problem, the model and the attempt"),
        "problem": (pl.String, "id"),
        "attempt": (pl.Int64, "0, 1, ..."),
        "writer": (pl.String, "who wrote it, where the attempts were given"),
        "text": (pl.String, "the answer; with its reasoning, unless that was sent or split apart"),
        "reasoning": (
            pl.String,
            "reasoning that the server sent apart, or that stands apart where the attempts were given",
        ),
        "stop": (pl.String, "`end`, `length`, `loop` or `error`"),
        "reason": (
            pl.String,
            "`ok`, `silent` (nothing came at all), `no-proof` (nothing but a heading), or why there is no answer",
        ),
        "prompt_tokens": (pl.Int64, "tokens read"),
        "tokens": (pl.Int64, "tokens written, those of reasoning included"),
        "reasoning_tokens": (pl.Int64, "of them reasoning, where the server says so"),
        "cost": (pl.Float64, "dollars; null when the price is unknown"),
        "history": (pl.List(ROLE), "the conversation; with a scaffold the problem as it was posed"),
        "steps": (pl.List(STEP), "the calls of a scaffold, in the order in which they were answered; null without one"),
        "answered_by": (pl.Int64, "of a scaffold: the number of the step whose text it is, from 0 on"),
        "mark": (pl.Float64, "what a human or another program gave, where the attempts came with marks"),
        "out_of": (pl.Int64, "of which this mark is a part"),
    },
    "grades": {
        "response": (pl.String, "id"),
        "problem": (pl.String, "id"),
        "attempt": (pl.Int64, "0, 1, ..."),
        "grade": (pl.Float64, "marks; null when there is no verdict"),
        "out_of": (pl.Int64, "full marks"),
        "reason": (
            pl.String,
            "`ok`, `empty` or `no-answer` (nothing was written, or no final answer: 0 marks), or why there is no grade",
        ),
        "well_formed": (pl.Boolean, "it ended and has closed reasoning and one box; null where there is no response"),
        "answer": (pl.String, "the final answer of the response, if it has one; as the grader reads it"),
        "answer_found": (
            pl.String,
            "how a final answer is found: `strict` (a box, `####`), `several` (boxes of which it depends on the question whether all count), `flexible` (only as what the text says it is, or the last value); null for not at all",
        ),
        "stop": (pl.String, "as in responses"),
        "verdict": (pl.String, "the whole answer of the judge whose mark it is, or what a program found"),
        "opinions": (pl.List(OPINION), "what each judge said in each round; the text only where several were asked"),
        "prompt_tokens": (pl.Int64, "tokens that the judges read"),
        "tokens": (pl.Int64, "tokens that the judges wrote"),
        "cost": (pl.Float64, "dollars; null when the price is unknown"),
    },
    "examples": {
        "example": (pl.String, "id"),
        "problem": (pl.String, "id; of a conversation of a file, from what stands before its first answer"),
        "response": (pl.String, "id of the attempt it was, if it was one"),
        "messages": (
            pl.List(MESSAGE),
            "the conversation to learn; `more` is JSON of what else a message has, such as calls of tools",
        ),
        "tools": (pl.String, "JSON of the functions that the assistant may call, if any"),
        "grade": (pl.Float64, "marks, if it was graded"),
        "origin": (pl.String, "the table it comes from, or file and line"),
        "dropped": (
            pl.String,
            "the selector that refused the row, or why nothing can be learned from it: `answered` (there was no response), `empty`, `unknown-role`, `not-text` (an image), `no-assistant`; null when it is kept",
        ),
    },
    "sft": {
        "step": (pl.Int64, "optimizer step"),
        "epoch": (pl.Float64, "passes over the examples"),
        "measure": (pl.String, "what was measured"),
        "value": (pl.Float64, "its value"),
    },
    "grpo": {
        "step": (pl.Int64, "optimizer step"),
        "epoch": (pl.Float64, "passes over the problems"),
        "measure": (pl.String, "what was measured"),
        "value": (pl.Float64, "its value"),
    },
    "selfplay": {
        "step": (pl.Int64, "optimizer step"),
        "task": (pl.String, "`abduce`, `deduce`, `induce` or `error`; null where the measure is of all"),
        "role": (pl.String, "`propose` or `solve`; null where the measure is of both"),
        "measure": (pl.String, "what was measured"),
        "value": (pl.Float64, "its value"),
    },
    "scores": {
        "model": (pl.String, "what was measured, if it is a model"),
        "against": (pl.String, "the model or the marks it is compared with, if it is a comparison"),
        "problems": (pl.String, "on which problems"),
        "sampling": (pl.String, "how it was sampled"),
        "grader": (pl.String, "who marked"),
        "measure": (pl.String, "which number"),
        "split": (pl.String, "`all`, a level, family, year or writer, a seed, or `budget` for a point of a curve"),
        "value": (pl.Float64, "the number; null when nothing was scored, or it is not defined"),
        "low": (pl.Float64, "lower end of the interval"),
        "high": (pl.Float64, "upper end of the interval"),
        "p": (pl.Float64, "of a comparison: two-sided permutation test by problem, adjusted by Holm over this table's"),
        "n": (pl.Int64, "attempts it rests on"),
        "problems_n": (pl.Int64, "problems it rests on"),
        "unscored": (pl.Float64, "share of the attempts without a verdict"),
        "spent_tokens": (
            pl.Float64,
            "of a curve or a comparison at equal budgets: tokens written for a problem, on average",
        ),
        "spent_dollars": (pl.Float64, "and dollars paid; null where a price is unknown or everything is free"),
    },
}

# Of the rollouts beside a training by rewards; each reward has a column `reward_<name>` besides.
ROLLOUT_COLUMNS: dict[str, tuple[Any, str]] = {
    "rollout": (pl.String, "id, from the run, the step and the place"),
    "step": (pl.Int64, "the step that learned from it, the first of them where several do"),
    "policy": (pl.Int64, "the step after which its weights were those of the training, when it began"),
    "group": (pl.Int64, "which of the step's groups"),
    "problem": (pl.String, "id"),
    "turn": (pl.Int64, "turn of thought it goes on from; null without a summarizer"),
    "prompt": (pl.String, "what was asked"),
    "text": (pl.String, "what was written"),
    "stop": (pl.String, "`end` or `length`"),
    "tokens": (pl.Int64, "tokens written"),
    "question_tokens": (pl.Int64, "tokens of the statement"),
    "reference_tokens": (pl.Int64, "tokens of the official solution, if there is one"),
    "grade": (pl.Float64, "marks; null when there is no verdict"),
    "out_of": (pl.Int64, "full marks"),
    "reason": (pl.String, "`ok`, or why there is no grade; `not-asked` where none was wanted"),
    "verdict": (pl.String, "the judge's whole answer"),
    "cost": (pl.Float64, "dollars of the verdict; null when the price is unknown"),
    "judge_tokens": (pl.Int64, "tokens that the judges wrote"),
    "hold_out": (pl.Float64, "the second grader's share of full marks, where it was asked"),
    "unscored": (pl.Boolean, "whether a reward that it should have is missing"),
    "applies": (pl.List(pl.String), "the rewards that the attempt should have"),
    "advantage": (pl.Float64, "what it was learned with"),
}

# Of the proposals and solutions beside self-play.
PLAYED_COLUMNS: dict[str, tuple[Any, str]] = {
    "rollout": (pl.String, "id, from the run, the step and the place"),
    "step": (pl.Int64, "the step that it was made for"),
    "task": (pl.String, "`abduce`, `deduce`, `induce` or `error`"),
    "role": (pl.String, "`propose` or `solve`"),
    "subject": (pl.String, "id of the task that was proposed or solved; null where what was proposed is no valid one"),
    "prompt": (pl.String, "what was asked"),
    "text": (pl.String, "what was written"),
    "stop": (pl.String, "`end` or `length`"),
    "tokens": (pl.Int64, "tokens written"),
    "reason": (pl.String, "`ok`, or why what was proposed is no valid task, or why there is no verdict"),
    "well_formed": (pl.Boolean, "whether it has the form that was asked for"),
    "detail": (pl.String, "what was found, where what was proposed is no valid task"),
    "accuracy": (
        pl.Float64,
        "of a solution: 1 if it is right, 0 if not, or a share of hidden pairs; of a proposal: the mean of the solver's attempts; null when nothing was measured",
    ),
    "reward": (pl.Float64, "what it earned; null when there is no verdict"),
    "advantage": (pl.Float64, "what it was learned with"),
}

# Of the tasks beside self-play.
BUFFER_COLUMNS: dict[str, tuple[Any, str]] = {
    "id": (pl.String, "id, from what the task is"),
    "kind": (pl.String, "`abduce`, `deduce`, `induce` or `error`"),
    "program": (pl.String, "what runs"),
    "input": (pl.String, "the arguments of a call; empty for `induce`"),
    "output": (pl.String, "the value, or the exception of an `error`; empty for `induce`"),
    "inputs": (pl.List(pl.String), "of `induce`"),
    "outputs": (pl.List(pl.String), "of `induce`"),
    "message": (pl.String, "what the solver of an `induce` is told"),
    "step": (pl.Int64, "the step that proposed it; 0 for a first task"),
    "written": (pl.String, "the part of the program that its proposer wrote; empty where that is all of it"),
}

# Of what stands beside the weights of trainings.
BESIDE: dict[str, dict[str, dict[str, tuple[Any, str]]]] = {
    "grpo": {
        "rollouts.parquet": {
            **ROLLOUT_COLUMNS,
            "reward_<name>": (pl.Float64, "each reward; null where it could not be had or does not apply"),
        }
    },
    "selfplay": {"rollouts.parquet": PLAYED_COLUMNS, "buffer.parquet": BUFFER_COLUMNS},
}

"""Measures that turn graded attempts into a number, problem by problem, so that intervals can resample problems.

A kernel (`OfAttempts`, `OfProblem`, ...) says what a measure is computed from. A row is an attempt with the columns of
`grades`, and besides them `seed`, `level`, `year`, `loader`, `writer`, its `response_tokens` and `reasoning_tokens`, the
`max_tokens` it was allowed, its `response_cost`, how its grader `reads` final answers, the `selecting` mark with its
tokens and cost, and the `human` mark.

From: estimates.py (pass@k, majority@k, best-of-k, variance), agreement.py (grader against human), QED-Nano's `stats`.

How we differ from QED-Nano's statistics:
1. A missing grade is left out and its share is reported; QED-Nano counts it as 0 over several runs and leaves it out of
   one.
2. `cot-tokens` and `solution-tokens` are QED-Nano's definitions (tokens that the judge read are the solution, the
   others are thought); `reasoning-tokens` are those that the server counted.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from proofmill.measures import estimates
from proofmill.measures.agreement import AGREEMENTS, DECISIONS, Agreement
from proofmill.measures.attempts import Row, Rows, parts, scored
from proofmill.measures.estimates import Variance
from proofmill.measures.text_lengths import OF_CORPUS, Lengths
from proofmill.schema.named import Named
from proofmill.schema.reasons import Reason, Stop


@dataclass(frozen=True)
class OfAttempts:
    """`value` of one attempt, None if it does not count; the measure is the mean of the problems' means.

    `scale` is the largest value: a number, `marks` for full marks, None for no bound.
    """

    value: Callable[[Row], float | None]
    scale: float | str | None


@dataclass(frozen=True)
class OfProblem:
    """`value(rows, k, success)` of a problem's attempts in one seed; None if they are too few for k."""

    value: Callable[[Rows, int, float], float | None]
    scale: float | str | None
    needs: str = ""  # a column that the measure requires


@dataclass(frozen=True)
class OfPooled:
    """Mean of `value` over all attempts, so that a problem weighs by the number of its attempts."""

    value: Callable[..., float | None]


@dataclass(frozen=True)
class OfRuns:
    """A number of whole runs; a run is one attempt at every problem. Only `variance-*` have an interval."""

    value: Callable[[Rows], float | None]


@dataclass(frozen=True)
class OfHuman:
    """Agreement of a grader with human marks; the measure's argument is the threshold of a decision."""

    agreement: Agreement | Callable[[float, float], Agreement]  # of marks, or of decisions from two thresholds
    marks: bool  # whether it compares marks, which must have one scale; decisions need none
    scale: float | str | None  # as in OfAttempts


@dataclass(frozen=True)
class OfCorpus:
    """A number of a table of problems, from the lengths of its texts."""

    value: Callable[[Lengths], float | None]


def per_problem(kernel: OfAttempts | OfProblem, argument: Any, success: float, rows: Rows) -> dict[str, float]:
    """The value of each problem that counts: its mean over attempts (`OfAttempts`) or seeds (`OfProblem`)."""
    values_by_problem = {}
    for attempts in parts(rows, lambda row: row["problem"]):
        if isinstance(kernel, OfAttempts):  # attempts weigh alike, whatever their seed
            values = [kernel.value(row) for row in attempts]
        else:
            seeds = parts(attempts, lambda row: row["seed"])
            values = [kernel.value(of_seed, argument, success) for of_seed in seeds]
        if found := [value for value in values if value is not None]:
            values_by_problem[attempts[0]["problem"]] = fmean(found)
    return values_by_problem


# ------------------------------------------------------------------------------------------------------- of one attempt


def _marks(row: Row) -> float | None:
    return row["grade"]


def _full(row: Row) -> float | None:
    return None if row["grade"] is None else float(row["grade"] == row["out_of"])


def _well_formed(row: Row) -> float | None:
    return None if row["well_formed"] is None else float(row["well_formed"])


def _cut_off(row: Row) -> float | None:
    return None if row["well_formed"] is None else float(row["stop"] == Stop.LENGTH)


def _empty(row: Row) -> float | None:
    return None if row["well_formed"] is None else float(row["reason"] == Reason.EMPTY)


def _strict(row: Row) -> float | None:
    return None if row["well_formed"] is None else float(row["answer_found"] in ("strict", "several"))


def _several(row: Row) -> float | None:
    return None if row["well_formed"] is None else float(row["answer_found"] == "several")


def _flexible(row: Row) -> float | None:
    return None if row["well_formed"] is None else float(row["answer_found"] is not None)


# ------------------------------------------------------------------------------------------------- of k of the attempts


def _scored(rows: Rows, k: int) -> list[Row] | None:
    """The attempts with a grade, or None if they are fewer than k."""
    found = list(filter(scored, rows))
    return found if len(found) >= k else None


def _passes(rows: Rows, k: int, success: float) -> float | None:
    if (found := _scored(rows, k)) is None:
        return None
    passed = sum(row["grade"] >= success * row["out_of"] - 1e-9 for row in found)
    return estimates.pass_at_k(passed, len(found), k)


def _majority(rows: Rows, k: int, success: float) -> float | None:
    """All right answers count as one answer, however written; wrong ones are distinguished by their normal form."""
    from proofmill.text.answers import normal

    if (found := _scored(rows, k)) is None:
        return None
    full = [row["grade"] == row["out_of"] for row in found]
    texts = [row["answer"] and normal(row["answer"]) for row in found]
    right = {text for text, is_full in zip(texts, full, strict=True) if is_full}
    answers = [None if text is None else "" if text in right else text for text in texts]
    return estimates.majority_at_k(answers, [float(f) for f in full], k)


def _best(rows: Rows, k: int, success: float) -> float | None:
    candidates = [row for row in _scored(rows, k) or () if row["selecting"] is not None]
    if len(candidates) < k:
        return None
    return estimates.best_at_k([row["selecting"] for row in candidates], [row["grade"] for row in candidates], k)


def _most(rows: Rows, k: int, success: float) -> float | None:
    if (found := _scored(rows, k)) is None:
        return None
    marks = [row["grade"] for row in found]
    return estimates.best_at_k(marks, marks, k)


# -------------------------------------------------------------------------------------------------------------- of runs


def _by_run(rows: Rows, value: Callable[[Row], float | None]) -> list[array]:
    """A value of the attempts of each run, where they have one."""
    runs: dict[tuple[int, int], array] = defaultdict(lambda: array("d"))
    for row in rows:
        run = runs[
            row["seed"], row["attempt"]
        ]  # also of one without: the order of runs is that of their first attempts
        if (found := value(row)) is not None:
            run.append(found)
    return [run for run in runs.values() if run]


def _of_runs(how: str) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        if not (marks := _by_run(rows, _marks)):
            return None
        merged = estimates.merged(marks, "mean" if how == "std" else how)
        return merged.std if how == "std" else merged.value

    return value


# ------------------------------------------------------------------------------------------------------------ of tokens


def _solution_tokens(row: Row) -> int | None:
    return row["prompt_tokens"] or None  # a verdict without a call has read nothing


def _cot_tokens(row: Row) -> int | None:
    solution, written = _solution_tokens(row), row["response_tokens"]
    return None if None in (solution, written) else written - solution


TOKENS: dict[str, tuple[Callable[[Row], int | None], str]] = {
    "tokens": (lambda row: row["response_tokens"], "tokens of an attempt"),
    "reasoning-tokens": (lambda row: row["reasoning_tokens"], "tokens of reasoning, as the server counts them"),
    "solution-tokens": (
        _solution_tokens,
        "tokens that the judges read, which QED-Nano takes for those of the solution",
    ),
    "cot-tokens": (
        _cot_tokens,
        "tokens of an attempt less `solution-tokens`, which QED-Nano takes for those of reasoning",
    ),
    "verdict-tokens": (lambda row: row["tokens"] or None, "tokens that the judges wrote"),
}
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "p95": lambda counts: float(np.quantile(counts, 0.95)),
}


def _tokens_of(count: Callable[[Row], int | None], statistic: Callable) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        counts = array("q", (found for row in rows if (found := count(row)) is not None))
        return float(statistic(counts)) if counts else None

    return value


def _per_run(rows: Rows) -> float | None:
    sums = [sum(run) for run in _by_run(rows, lambda row: row["response_tokens"] or 0)]
    return fmean(sums) if any(sums) else None


def _tokens_where(right: bool) -> Callable[[Row, float], float | None]:
    """Tokens of attempts with at least `least` marks (`right`), or of those with fewer; never of unscored ones."""

    def value(row: Row, least: float) -> float | None:
        counts = row["grade"] is not None and (row["grade"] >= least) == right
        return row["response_tokens"] if counts else None

    return value


def _share_of_marks(row: Row, marks: float) -> float | None:
    return None if row["grade"] is None else float(row["grade"] == marks)


# ---------------------------------------------------------------------------------------------------------- of variance


def verdicts(rows: Rows) -> Iterator[tuple[str, tuple, float]]:
    """Problem, attempt and marks of each first-round verdict."""
    for row in rows:
        opinions = [grade for grade in row["opinions"] if grade is not None]
        for grade in opinions if len(opinions) > 1 else [row["grade"]]:
            if grade is not None:
                yield row["problem"], (row["seed"], row["attempt"], row["writer"]), grade


def split_variance(rows: Rows) -> Variance:
    """Variance of marks between problems, attempts at a problem, and first-round judges of an attempt."""
    return estimates.split_variance(verdicts(rows))


def _component(name: str) -> Callable[[Rows], float | None]:
    return lambda rows: getattr(split_variance(rows), name)


def _detectable(rows: Rows) -> float | None:
    """Detectable difference for marks with this spread: same problems, as many attempts, no help from correlation."""
    variance = split_variance(rows)
    if variance.problem is None or not (variance.problem or variance.sample or variance.judge):
        return None  # equal marks say nothing about the spread of others
    samples = max(1, round(variance.n_samples / variance.n_problems))
    verdicts = max(1, round(variance.n_verdicts / variance.n_samples))
    return estimates.detectable(estimates.difference_error(variance, variance.n_problems, samples, verdicts))


# ------------------------------------------------------------------------------------------------------------- the list

# Measures of agreement whose largest value is not 1; bias and kappa may be negative and have no bound here.
_SCALES: dict[str, float | str | None] = {
    "mae": "marks", "advantage-difference": "marks", "bias": None, "cohen-kappa": None
}  # fmt: skip

MEASURES: dict[str, Named] = {
    "avg-at-k": Named(OfAttempts(_marks, "marks"), "mean marks of the k attempts at a problem, averaged over problems"),
    "full-mark-rate": Named(OfAttempts(_full, 1.0), "share of attempts with full marks"),
    "pass-at-k": Named(
        OfProblem(_passes, 1.0), "chance that one of k attempts succeeds (`success`), without bias", "count"
    ),
    "majority-at-k": Named(
        OfProblem(_majority, 1.0, "answer"), "chance that the answer most of k attempts give is right", "count"
    ),
    "best-at-k": Named(
        OfProblem(_best, "marks", "selecting"), "marks of the attempt that `selected-by` puts first among k", "count"
    ),
    "max-at-k": Named(
        OfProblem(_most, "marks"), "highest marks among k attempts: what a perfect selector had", "count"
    ),
    "format-rate": Named(OfAttempts(_well_formed, 1.0), "share of attempts with closed reasoning, one box and an end"),
    "cut-off-rate": Named(OfAttempts(_cut_off, 1.0), "share of attempts that were cut off"),
    "empty-rate": Named(OfAttempts(_empty, 1.0), "share of attempts with nothing to grade: cut off before an answer"),
    "answers-found-strict": Named(
        OfAttempts(_strict, 1.0),
        "share of attempts with a final answer in the declared form: in a box, or after `####`",
    ),
    "answers-found-flexible": Named(
        OfAttempts(_flexible, 1.0), "share of attempts with a final answer in any form: such a one, or a last value"
    ),
    "answers-of-several-boxes": Named(
        OfAttempts(_several, 1.0),
        "share of attempts with several boxes, of which all count only where several values are asked for",
    ),
    "run-mean": Named(OfRuns(_of_runs("mean")), "mean of the runs' mean marks; a run is one attempt at every problem"),
    "run-max": Named(OfRuns(_of_runs("max")), "mean marks of the best run"),
    "run-min": Named(OfRuns(_of_runs("min")), "mean marks of the worst run"),
    "run-std": Named(OfRuns(_of_runs("std")), "standard deviation of the runs' mean marks (n - 1); none for one run"),
    "variance-problem": Named(OfRuns(_component("problem")), "variance of marks between problems"),
    "variance-sample": Named(
        OfRuns(_component("sample")), "variance of marks between attempts at a problem; of judges too, where one marked"
    ),
    "variance-judge": Named(OfRuns(_component("judge")), "variance of marks between the judges of an attempt"),
    "detectable": Named(
        OfRuns(_detectable),
        "least difference of two models that such a run shows with 80 % chance at 95 % confidence",
    ),
    "share-of-marks": Named(
        OfPooled(_share_of_marks), "share of the scored attempts with exactly this many marks", "number"
    ),
    "tokens-per-run": Named(OfRuns(_per_run), "tokens of a run, summed; the mean over runs"),
    "tokens-correct": Named(
        OfPooled(_tokens_where(True)), "mean tokens of attempts with at least this many marks", "number"
    ),
    "tokens-incorrect": Named(OfPooled(_tokens_where(False)), "mean tokens of attempts with fewer marks", "number"),
    **{
        f"{name}-mean": Named(OfPooled(lambda row, _=None, count=count: count(row)), f"mean of {what}")
        for name, (count, what) in TOKENS.items()
    },
    **{
        f"{name}-{statistic}": Named(OfRuns(_tokens_of(count, of)), f"{statistic} of {what}")
        for name, (count, what) in TOKENS.items()
        for statistic, of in STATISTICS.items()
    },
    **{
        name: Named(OfHuman(agreement, True, _SCALES.get(name, 1.0)), agreement.doc)
        for name, agreement in AGREEMENTS.items()
    },
    **{
        name: Named(
            OfHuman(decision, False, _SCALES.get(name, 1.0)), decision(5, 5).doc.replace("5", "the argument"), "number"
        )
        for name, decision in DECISIONS.items()
    },
    **{name: Named(OfCorpus(value), f"{what}; of `problems`") for name, (value, what) in OF_CORPUS.items()},
    "shared-problems": Named(None, "problems that two tables have in common, by normalised statement; of `problems`"),
}

FOUND = ("answers-found-strict", "answers-found-flexible")  # beside every score of final answers


def label(measure: str, argument: Any, attempts: int) -> str:
    """The name of a measure in a table: `avg@4` for `avg-at-k` with 4 attempts, `pass@8` for `{pass-at-k: 8}`."""
    if measure == "avg-at-k":
        return f"avg@{attempts}"
    if measure.endswith("-at-k"):
        return f"{measure.removesuffix('-at-k')}@{argument}"
    return measure if argument is None else f"{measure}({argument:g})"

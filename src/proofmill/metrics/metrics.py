"""Metrics: numbers of graded attempts, computed per problem so that intervals can resample problems.

Each metric is a kernel (kernels.py) with its sentence in the manual and its argument.

From: estimates.py (pass@k, majority@k, best-of-k, variance), agreement.py (grader against human), QED-Nano's `stats`.

Differences from QED-Nano's statistics:
1. A missing grade is left out and its share is reported. QED-Nano counts it as 0 with several runs, and leaves it out
   with one.
2. `tokens` of `solution` and of `chain-of-thought` have QED-Nano's definitions: the solution is what the judge read, the
   chain of thought is the rest of the response. Those of `reasoning` are counted by the server.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from proofmill.metrics import estimates
from proofmill.metrics.agreement import AGREEMENTS, DECISIONS, ORDERS
from proofmill.metrics.attempt_table import Row, Rows, is_scored
from proofmill.metrics.estimates import Variance
from proofmill.metrics.kernels import ByOptions, OfAttempts, OfCorpus, OfHuman, OfPooled, OfProblem, OfRuns, OfTraining
from proofmill.metrics.text_lengths import STATISTICS, TEXTS, correlation
from proofmill.rewards.format_checks import FORMS
from proofmill.schema.kinds import ROLLOUTS
from proofmill.schema.reasons import Reason, StopReason
from proofmill.schema.registry_items import Named

# ------------------------------------------------------------------------------------------------------- of one attempt


def _grades(row: Row) -> float | None:
    return row["grade"]


def _is_solved(row: Row) -> float | None:
    return None if row["grade"] is None else float(row["grade"] == row["max_points"])


def _share(holds: Callable[[Row], bool]) -> OfAttempts:
    """Return the kernel of the share of responses for which `holds` is true; missing responses do not count."""
    return OfAttempts(lambda row: None if row["well_formed"] is None else float(holds(row)), 1.0)


def _share_with(form: str) -> OfAttempts:
    """Return the kernel of the share of texts with a form; those whose reasoning is separate do not count."""
    return OfAttempts(lambda row: None if row["forms"] is None else float(form in row["forms"]), 1.0)


# ------------------------------------------------------------------------------------------------- of k of the attempts


def _select_scored(rows: Rows, k: int) -> list[Row] | None:
    """Return the attempts with a grade, or None if there are fewer than k."""
    graded = list(filter(is_scored, rows))
    return graded if len(graded) >= k else None


def _pass_at_k(rows: Rows, k: int, success: float) -> float | None:
    if (graded := _select_scored(rows, k)) is None:
        return None
    passed = sum(row["grade"] >= success * row["max_points"] - 1e-9 for row in graded)
    return estimates.pass_at_k(passed, len(graded), k)


def _majority_at_k(rows: Rows, k: int, success: float) -> float | None:
    """Compute majority@k. All correct answers count as one answer; wrong ones are compared in normal form."""
    from proofmill.answers.extraction import normal

    if (graded := _select_scored(rows, k)) is None:
        return None
    full = [row["grade"] == row["max_points"] for row in graded]
    texts = [row["answer"] and normal(row["answer"]) for row in graded]
    right = {text for text, is_full in zip(texts, full, strict=True) if is_full}
    # A text without a normal form, such as a full stop, does not vote. True stands for all correct answers.
    answers = [None if not text else True if text in right else text for text in texts]
    return estimates.majority_at_k(answers, [float(f) for f in full], k)


def _first_by(rank: Callable[[Row], float | None]) -> Callable[[Rows, int, float], float | None]:
    """Return the metric of the attempt with the highest rank among k; attempts without a rank do not count."""

    def value(rows: Rows, k: int, success: float) -> float | None:
        ranked = [row for row in filter(is_scored, rows) if rank(row) is not None]
        ranks: list[Any] = list(map(rank, ranked))
        return estimates.best_at_k(ranks, [row["grade"] for row in ranked], k) if len(ranked) >= k else None

    return value


# -------------------------------------------------------------------------------------------------------------- of runs


def _by_run(rows: Rows, value: Callable[[Row], float | None]) -> list[array]:
    """Return the values of each run's attempts; attempts without a value are skipped."""
    runs: dict[tuple[int, int], array] = defaultdict(lambda: array("d"))
    for row in rows:
        run = runs[
            row["seed"], row["attempt"]
        ]  # also without a value: the order of runs is that of their first attempts
        if (number := value(row)) is not None:
            run.append(number)
    return [run for run in runs.values() if run]


def _of_runs(how: str) -> Callable[[Rows], float | None]:
    def value(rows: Rows) -> float | None:
        if not (grades := _by_run(rows, _grades)):
            return None
        merged = estimates.merge_runs(grades, "mean" if how == "std" else how)
        return merged.std if how == "std" else merged.value

    return value


# ------------------------------------------------------------------------------------------------------------ of tokens


def _solution_tokens(row: Row) -> int | None:
    return row["prompt_tokens"] or None  # a verdict without a call read no tokens


def _cot_tokens(row: Row) -> int | None:
    solution, written = _solution_tokens(row), row["response_tokens"]
    return None if None in (solution, written) else written - solution


TOKENS: dict[str, Callable[[Row], int | None]] = {
    "response": lambda row: row["response_tokens"],
    "reasoning": lambda row: row["reasoning_tokens"],
    "solution": _solution_tokens,
    "chain-of-thought": _cot_tokens,
    "verdict": lambda row: row["tokens"] or None,
}
TOKEN_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "min": min,
    "max": max,
    "p95": lambda counts: float(np.quantile(counts, 0.95)),
}


def _tokens(of: str, stat: str) -> OfPooled | OfRuns:
    """Return the kernel of a statistic of token counts; only the mean has an interval."""
    count, statistic = TOKENS[of], TOKEN_STATISTICS[stat]

    def value(rows: Rows) -> float | None:
        counts = array("q", (tokens for row in rows if (tokens := count(row)) is not None))
        return float(statistic(counts)) if counts else None

    return OfPooled(lambda row, _=None: count(row)) if stat == "mean" else OfRuns(value)


def _text_tokens(of: str, stat: str) -> OfCorpus:
    """Return the kernel of a statistic of the lengths of statements or solutions."""
    field, statistic = TEXTS[of], STATISTICS[stat]
    return OfCorpus(lambda lengths: statistic(getattr(lengths, field)), field if stat == "mean" else "")


def _rollout_tokens(_: Any, folder: Path) -> float | None:
    import polars as pl

    file = folder / ROLLOUTS
    return float(pl.scan_parquet(file).select("tokens").sum().collect().item()) if file.exists() else None


def _per_run(rows: Rows) -> float | None:
    sums = [sum(run) for run in _by_run(rows, lambda row: row["response_tokens"] or 0)]
    return fmean(sums) if any(sums) else None


def _tokens_where(right: bool) -> Callable[[Row, float], float | None]:
    """Count tokens of attempts with at least `least` points (`right`) or with fewer; unscored attempts do not count."""

    def value(row: Row, least: float) -> float | None:
        counts = row["grade"] is not None and (row["grade"] >= least) == right
        return row["response_tokens"] if counts else None

    return value


def _share_of_grades(row: Row, grades: float) -> float | None:
    return None if row["grade"] is None else float(row["grade"] == grades)


# ---------------------------------------------------------------------------------------------------------- of variance


def verdicts(rows: Rows) -> Iterator[tuple[str, tuple, float]]:
    """Yield problem, attempt and grade of each first-round verdict."""
    for row in rows:
        opinions = [grade for grade in row["opinions"] if grade is not None]
        for grade in opinions if len(opinions) > 1 else [row["grade"]]:
            if grade is not None:
                yield row["problem"], (row["seed"], row["attempt"], row["writer"]), grade


def split_variance(rows: Rows) -> Variance:
    """Split the variance of grades: between problems, attempts at a problem, and first-round judges of an attempt."""
    return estimates.split_variance(verdicts(rows))


def _component(name: str) -> Callable[[Rows], float | None]:
    return lambda rows: getattr(split_variance(rows), name)


def _detectable(rows: Rows) -> float | None:
    """Compute the detectable difference for grades with this spread: same problems and attempts, no correlation.

    None over several seeds: their spread is not that of attempts.
    """
    if len({row["seed"] for row in rows}) > 1:
        return None
    variance = split_variance(rows)
    if variance.problem is None or not (variance.problem or variance.sample or variance.judge):
        return None  # equal grades do not determine the spread
    samples = max(1, round(variance.n_samples / variance.n_problems))
    verdicts = max(1, round(variance.n_verdicts / variance.n_samples))
    error = estimates.difference_error(variance, variance.n_problems, samples, verdicts)
    most = max((points for row in rows if (points := row["max_points"])), default=None)  # unknown of others' logs
    return estimates.detectable(error, variance.n_problems, most)


# ------------------------------------------------------------------------------------------------------------- the list

METRICS: dict[str, Named] = {
    "avg-at-k": Named(
        OfAttempts(_grades, "grade"), "mean grade of the k attempts at a problem, averaged over problems"
    ),
    "solve-rate": Named(OfAttempts(_is_solved, 1.0), "share of attempts with all points"),
    "pass-at-k": Named(
        OfProblem(_pass_at_k, 1.0),
        "probability that one of k attempts succeeds (`success-threshold`), unbiased",
        "count",
    ),
    "majority-at-k": Named(
        OfProblem(_majority_at_k, 1.0, "answer"),
        "probability that the most frequent answer of k attempts is correct",
        "count",
    ),
    "best-at-k": Named(
        OfProblem(_first_by(lambda row: row["selecting"]), "grade", "selecting"),
        "grade of the attempt that `selected-by` ranks first among k",
        "count",
    ),
    "max-at-k": Named(
        OfProblem(_first_by(_grades), "grade"),
        "highest grade among k attempts, as a perfect `selected-by` would choose",
        "count",
    ),
    "shortest-at-k": Named(
        OfProblem(_first_by(lambda row: row["response_tokens"] and -row["response_tokens"]), "grade"),
        "grade of the shortest of k",
        "count",
    ),
    "longest-at-k": Named(
        OfProblem(_first_by(lambda row: row["response_tokens"]), "grade"), "grade of the longest of k attempts", "count"
    ),
    "format-rate": Named(
        _share(lambda row: row["well_formed"]), "share of attempts with closed reasoning, one box, and not truncated"
    ),
    **{f"{form}-rate": Named(_share_with(form), f"share of attempts that the reward `{form}` pays") for form in FORMS},
    "truncation-rate": Named(
        _share(lambda row: row["stop_reason"] == StopReason.LENGTH), "share of attempts that were truncated"
    ),
    "empty-rate": Named(
        _share(lambda row: row["reason"] == Reason.EMPTY),
        "share of attempts with nothing to grade: truncated before the answer",
    ),
    "strict-answer-rate": Named(
        _share(lambda row: row["answer_extraction"] in ("strict", "several")),
        "share of attempts with a final answer in the declared form: in a box, or after `####`",
    ),
    "flexible-answer-rate": Named(
        _share(lambda row: row["answer_extraction"] is not None),
        "share of attempts with a final answer in any form: a declared one, or else the last value",
    ),
    "multiple-box-rate": Named(
        _share(lambda row: row["answer_extraction"] == "several"),
        "share of attempts with several boxes; all of them count only if the problem asks for several values",
    ),
    "run-mean": Named(OfRuns(_of_runs("mean")), "mean of the runs' mean grades; a run is one attempt at every problem"),
    "run-max": Named(OfRuns(_of_runs("max")), "mean grade of the best run"),
    "run-min": Named(OfRuns(_of_runs("min")), "mean grade of the worst run"),
    "run-std": Named(
        OfRuns(_of_runs("std")), "standard deviation of the runs' mean grades (n - 1); undefined for one run"
    ),
    "variance-problem": Named(OfRuns(_component("problem")), "variance of grades between problems"),
    "variance-sample": Named(
        OfRuns(_component("sample")),
        "variance of grades between attempts at a problem; with a single judge this includes its noise",
    ),
    "variance-judge": Named(OfRuns(_component("judge")), "variance of grades between the judges of an attempt"),
    "minimum-detectable-effect": Named(
        OfRuns(_detectable),
        "smallest difference of two models that such a run detects: 80 % power, 95 % confidence",
    ),
    "grade-share": Named(
        OfPooled(_share_of_grades, 1.0), "share of the scored attempts with exactly this grade", "number"
    ),
    "tokens-per-run": Named(OfRuns(_per_run), "total tokens of a run, averaged over runs"),
    "tokens-correct": Named(
        OfPooled(_tokens_where(True)), "mean tokens of attempts with at least this grade", "number"
    ),
    "tokens-incorrect": Named(OfPooled(_tokens_where(False)), "mean tokens of attempts with a lower grade", "number"),
    "tokens": Named(
        ByOptions(_tokens),
        "tokens of the `response`; of its `reasoning` as counted by the server; of the `solution`, the part that the judges "
        "read (QED-Nano); of the `chain-of-thought`, the rest of the response (QED-Nano); or of the judges' `verdict`",
        "options",
        options={"of": tuple(TOKENS), "stat": tuple(TOKEN_STATISTICS)},
    ),
    **{name: Named(OfHuman(agreement, "grades"), agreement.doc) for name, agreement in AGREEMENTS.items()},
    **{name: Named(OfHuman(build, "pairs"), build(()).doc) for name, build in ORDERS.items()},
    **{
        name: Named(OfHuman(decision, "decisions"), decision(5, 5).doc.replace("5", "the argument"), "number")
        for name, decision in DECISIONS.items()
    },
    "text-tokens": Named(
        ByOptions(_text_tokens),
        "tokens of the statement or solution; `trimmed-max` excludes the longest 2.5 %; of `problems`",
        "options",
        options={"of": tuple(TEXTS), "stat": tuple(STATISTICS)},
    ),
    "length-correlation": Named(
        OfCorpus(lambda lengths: correlation(lengths.statement_N, lengths.solution_N)),
        "correlation of the tokens of the statement and the solution; of `problems`",
    ),
    "steps-correlation": Named(
        OfCorpus(lambda lengths: correlation(lengths.steps_N, lengths.solution_N)),
        "correlation of the logic steps and the tokens of the solution; of `problems`",
    ),
    "training-seconds": Named(
        OfTraining(lambda stamp, _: stamp.get("training_seconds")),
        "seconds of the training of each of `models`, and those saved against its baseline in `compare`",
    ),
    "training-tokens": Named(OfTraining(_rollout_tokens), "tokens of all rollouts of the training, likewise"),
    "shared-problems": Named(None, "problems that two tables have in common, by normalized statement; of `problems`"),
}

FOUND = ("strict-answer-rate", "flexible-answer-rate")  # reported with every score of final answers


def kernel_of(metric: str, argument: Any = None) -> Any:
    """Return the kernel of a metric with its argument; None for `shared-problems`."""
    record = METRICS[metric]
    return record.apply.choose(**record.chosen(argument)) if isinstance(record.apply, ByOptions) else record.apply


def label(metric: str, argument: Any, attempts: int) -> str:
    """Return the name of a metric in a table.

    `avg@4` is `avg-at-k` with 4 attempts, `pass@8` is `{pass-at-k: 8}`, and `tokens(reasoning, p95)` is
    `{tokens: {of: reasoning, stat: p95}}`.
    """
    if metric == "avg-at-k":
        return f"avg@{attempts}"
    if metric.endswith("-at-k"):
        return f"{metric.removesuffix('-at-k')}@{argument}"
    if options := METRICS[metric].chosen(argument if METRICS[metric].options else None):
        return f"{metric}({', '.join(options.values())})"
    return metric if argument is None else f"{metric}({argument:g})"

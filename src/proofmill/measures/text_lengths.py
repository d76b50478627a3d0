"""Lengths of problems' statements and solutions in tokens, without special tokens: a corpus before training.

From: the GSM8K length study (its data analysis): lengths, logic steps, their correlations, and the longest answers that
a limit would cut.

How we differ:
1. Logic steps, which class the problems, are counted in the text: the lines of the solution that do not begin with
   `####`. No second configuration of the dataset is needed.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from proofmill.text.formats import logic_steps

TRIMMED = 0.025  # share of the longest texts that `trimmed-max` leaves out
AT_ONCE = 1_000  # texts in one call of the tokenizer


class Lengths(NamedTuple):
    """Tokens of N problems' statements and solutions, and their logic steps."""

    problem_N: np.ndarray
    solution_N: np.ndarray
    steps_N: np.ndarray

    def where(self, chosen_N: np.ndarray) -> "Lengths":
        """The lengths of the problems that a mask or an index chooses."""
        return Lengths(*(values[chosen_N] for values in self))


def measured(tokenizer: Any, rows: Iterable[dict]) -> Lengths:
    """Lengths of `statement` and `solution` (a missing text counts as empty) by a tokenizer of transformers.

    Some rows are held at a time.
    """
    rows, parts = iter(rows), [(np.zeros(0, int),) * 3]
    while batch := list(islice(rows, AT_ONCE)):
        statements, solutions = ([row[column] or "" for row in batch] for column in ("statement", "solution"))
        steps = np.array([logic_steps(text) for text in solutions])
        parts.append((_counts(tokenizer, statements), _counts(tokenizer, solutions), steps))
    return Lengths(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _counts(tokenizer: Any, texts: list[str]) -> np.ndarray:
    token_ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return np.array([len(ids) for ids in token_ids], dtype=int)


def trimmed_max(lengths_N: np.ndarray) -> float:
    """The longest text after leaving out the floor(0.025 n) longest."""
    kept = len(lengths_N) - int(TRIMMED * len(lengths_N))
    return float(np.sort(lengths_N)[kept - 1])


def correlation(one_N: np.ndarray, other_N: np.ndarray) -> float | None:
    """Pearson's correlation; None without spread."""
    if len(one_N) < 2 or one_N.std() == 0 or other_N.std() == 0:
        return None
    return float(np.corrcoef(one_N, other_N)[0, 1])


def _variance(lengths_N: np.ndarray) -> float | None:
    return float(lengths_N.var(ddof=1)) if len(lengths_N) > 1 else None


STATISTICS: dict[str, tuple[Callable[[np.ndarray], float | None], str]] = {
    "mean": (lambda lengths_N: float(lengths_N.mean()), "mean"),
    "min": (lambda lengths_N: float(lengths_N.min()), "least"),
    "max": (lambda lengths_N: float(lengths_N.max()), "largest"),
    "variance": (_variance, "sample variance of the"),
    "trimmed-max": (trimmed_max, "largest, without the longest 2.5 %,"),
}


def _of_texts(field: str, of: Callable[[np.ndarray], float | None], lengths: Lengths) -> float | None:
    return of(getattr(lengths, field))


TEXTS = {
    "problem-length": ("problem_N", "tokens of a statement"),
    "solution-length": ("solution_N", "tokens of a solution"),
}
OF_CORPUS: dict[str, tuple[Callable[[Lengths], float | None], str]] = {
    **{
        f"{text}-{name}": (partial(_of_texts, field, of), f"{how} {what}")
        for text, (field, what) in TEXTS.items()
        for name, (of, how) in STATISTICS.items()
    },
    "length-correlation": (
        lambda lengths: correlation(lengths.problem_N, lengths.solution_N),
        "correlation of the tokens of a statement and of its solution",
    ),
    "steps-correlation": (
        lambda lengths: correlation(lengths.steps_N, lengths.solution_N),
        "correlation of the logic steps of a solution and its tokens",
    ),
}

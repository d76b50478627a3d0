"""Token lengths of the statements and solutions of a problems table, without special tokens.

From: the GSM8K length study (its data analysis): lengths, logic steps, their correlations, and the longest answers that
a limit would truncate.

Differences from the original:
1. Logic steps, which group the problems, are counted in the text: the lines of the solution that do not begin with
   `####`. This needs no second configuration of the dataset.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from proofmill.rewards.format_checks import solution_steps

TRIMMED = 0.025  # share of the longest texts that `trimmed-max` excludes
AT_ONCE = 1_000  # texts per call of the tokenizer


class Lengths(NamedTuple):
    """Tokens of the statements and solutions of N problems, and their logic steps."""

    statement_N: np.ndarray
    solution_N: np.ndarray
    steps_N: np.ndarray

    def where(self, chosen_N: np.ndarray) -> "Lengths":
        """Return the lengths of the problems that a mask or an index selects."""
        return Lengths(*(values[chosen_N] for values in self))


def count_tokens(tokenizer: Any, rows: Iterable[dict]) -> Lengths:
    """Count the tokens of `statement` and `solution` with a tokenizer of transformers; a missing text counts as empty.

    Reads the rows in batches.
    """
    rows, parts = iter(rows), [(np.zeros(0, int),) * 3]
    while batch := list(islice(rows, AT_ONCE)):
        statements, solutions = ([row[column] or "" for row in batch] for column in ("statement", "solution"))
        steps = np.array([solution_steps(text) for text in solutions])
        parts.append((_counts(tokenizer, statements), _counts(tokenizer, solutions), steps))
    return Lengths(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _counts(tokenizer: Any, texts: list[str]) -> np.ndarray:
    token_ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return np.array([len(ids) for ids in token_ids], dtype=int)


def compute_trimmed_max(lengths_N: np.ndarray) -> float:
    """Return the largest length without the floor(0.025 n) longest."""
    kept = len(lengths_N) - int(TRIMMED * len(lengths_N))
    return float(np.sort(lengths_N)[kept - 1])


def correlation(one_N: np.ndarray, other_N: np.ndarray) -> float | None:
    """Return Pearson's correlation; None without spread."""
    if len(one_N) < 2 or one_N.std() == 0 or other_N.std() == 0:
        return None
    return float(np.corrcoef(one_N, other_N)[0, 1])


def _variance(lengths_N: np.ndarray) -> float | None:
    return float(lengths_N.var(ddof=1)) if len(lengths_N) > 1 else None


STATISTICS: dict[str, Callable[[np.ndarray], float | None]] = {
    "mean": lambda lengths_N: float(lengths_N.mean()),
    "min": lambda lengths_N: float(lengths_N.min()),
    "max": lambda lengths_N: float(lengths_N.max()),
    "variance": _variance,  # of the sample, n - 1
    "trimmed-max": compute_trimmed_max,
}
TEXTS = {"statement": "statement_N", "solution": "solution_N"}

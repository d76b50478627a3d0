"""Find the rows nearest to each benchmark statement, by their words or by vectors, for a judge to compare.

From: weights by rarity and cosines (Salton and Buckley 1988); the nearest few rows of each benchmark statement go to a
model, as in lm-sys's LLM decontaminator (Yang et al. 2023, arXiv 2311.04850), which embeds the texts.

Differences from the original:
1. Words, numbers and short pieces of formulas are weighted by their rarity among the benchmark statements. Finding
   candidates so needs no model. With the method `embedding`, vectors are compared instead (embeddings.py).
2. Rows are streamed and only the nearest are kept, so the corpus need not fit in memory.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np

from proofmill.text.statements import cache_tokens


class Near(NamedTuple):
    """A row and its cosine to a benchmark statement."""

    cosine: float
    order: int  # minus the number of earlier rows: of equally near rows the first is kept
    row: tuple[str, ...]  # its identity
    statement: str


class Nearest:
    """Keeps, per benchmark statement, the `most` nearest of the streamed rows with a cosine of at least `least`."""

    def __init__(self, statements: Sequence[str], most: int, least: float):
        counts = [_count_terms(text) for text in statements]
        holders = Counter(token for one in counts for token in one)
        self._rarity = {token: math.log(1 + len(counts) / number) for token, number in holders.items()}
        self._unknown = math.log(1 + max(len(counts), 1))
        by_token: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for other, one in enumerate(counts):
            for token, weight in self._weights(one).items():
                by_token[token].append((other, weight))
        self._places = {
            token: (np.array([other for other, _ in some]), np.array([weight for _, weight in some]))
            for token, some in by_token.items()
        }
        self._most, self._seen = most, 0
        self._least_B = np.full(len(statements), max(least - 1e-9, 0.0))  # a cosine of 0 is never near
        self._heaps: list[list[Near]] = [[] for _ in statements]

    def see(
        self,
        row: tuple[str, ...],
        statement: str,
        apart: Container[int] = (),
        cosine_B: np.ndarray | None = None,
    ) -> None:
        """Compare a row with all benchmark statements except the positions in `apart`, by words if `cosine_B` is None."""
        if cosine_B is None:
            cosine_B = np.zeros(len(self._heaps))
            for token, weight in self._weights(_count_terms(statement)).items():
                if token in self._places:
                    others, weights = self._places[token]
                    cosine_B[others] += weight * weights
        for other in np.flatnonzero(cosine_B > self._least_B).tolist():
            if other not in apart:
                heap = self._heaps[other]
                heapq.heappush(heap, Near(min(float(cosine_B[other]), 1.0), -self._seen, row, statement))
                if len(heap) > self._most:
                    heapq.heappop(heap)
                if len(heap) == self._most:
                    self._least_B[other] = max(self._least_B[other], heap[0].cosine)
        self._seen += 1

    def of(self, other: int) -> list[Near]:
        """Return the nearest rows of a benchmark statement, the nearest first."""
        return sorted(self._heaps[other], reverse=True)

    def _weights(self, counts: Counter[str]) -> dict[str, float]:
        """Return the weight of each token of a text; their squares add up to 1."""
        weights = {token: number * self._rarity.get(token, self._unknown) for token, number in counts.items()}
        norm = math.sqrt(sum(weight * weight for weight in weights.values()))
        return {token: weight / norm for token, weight in weights.items()}


def _count_terms(text: str) -> Counter[str]:
    """Count the tokens of a text, and the runs of two and three tokens in its formulas, such as `2^3`."""
    own = cache_tokens(text)
    runs = (own[start : start + size] for size in (2, 3) for start in range(len(own) - size + 1))
    formulas = (" ".join(token.text for token in run) for run in runs if all(token.kind != "word" for token in run))
    return Counter((*(token.text for token in own), *formulas))

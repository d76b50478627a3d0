"""Compare statements by the cosine of their vectors (embeddings), exactly: there is no approximate index.

A long statement may have several vectors, of its windows. The similarity of two statements is that of their nearest
windows. A block of cosines takes 64 MB. Cosines are rounded: their last digits depend on the machine. Drawings are left
out, because other problems have the same commands of Asymptote.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from proofmill.text.seen_texts import hash64
from proofmill.text.statements import DRAWING

BLOCK = 1 << 24  # cosines
INPUTS = 32  # of a request at most; a common limit of servers
NONE = np.empty((0, 0))  # the vectors of a statement without any


def read_text(statement: str) -> str:
    """Return the part of a statement that is embedded; empty if it has no vector."""
    return DRAWING.sub(" ", statement).strip()


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the inputs of each request. A text ends one by its hash, so a new row changes few requests of a table."""
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == INPUTS or hash64(text) % INPUTS == 0:
            yield batch
            batch = []
    if batch:
        yield batch


def pack(groups: Iterable[np.ndarray]) -> str:
    """Return the normalized vectors of each input (windows x dimensions) as text, for a journal."""
    halves = [group.astype("<f2") for group in groups]
    return " ".join([str(halves[0].shape[1]), *(base64.b64encode(half.tobytes()).decode() for half in halves)])


def unpack(text: str) -> list[np.ndarray]:
    """Return the vectors of each input of a packed text."""
    dimensions, *groups = text.split(" ")
    return [np.frombuffer(base64.b64decode(group), "<f2").reshape(-1, int(dimensions)) for group in groups]


class Cosines:
    """The vectors of benchmark statements, which those of rows are compared with."""

    def __init__(self, statements: Sequence[np.ndarray]):
        sizes = np.array([len(group) for group in statements], np.int64)
        self._number, self._filled = len(statements), np.flatnonzero(sizes)
        self._starts = (np.cumsum(sizes) - sizes)[self._filled]
        self._vectors = _join(statements)

    def of(self, rows: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the cosines of each row to all statements, from 0 to 1; 0 also if one of the two has no vector."""
        step = max(1, BLOCK // max(len(self._vectors), 1))
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            ends = np.cumsum([len(group) for group in part])
            cosines_WB = np.zeros((ends[-1], self._number), np.float32)
            if ends[-1] and len(self._filled):
                products = _join(part) @ self._vectors.T
                cosines_WB[:, self._filled] = np.maximum.reduceat(products, self._starts, axis=1)
            for own in np.split(cosines_WB, ends[:-1]):
                yield own.max(axis=0, initial=0.0).clip(max=1.0).astype(float).round(4)


def _join(groups: Sequence[np.ndarray]) -> np.ndarray:
    filled = [group for group in groups if len(group)]
    return np.concatenate(filled).astype(np.float32) if filled else NONE

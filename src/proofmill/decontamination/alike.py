"""Find near duplicates: an index returns the earlier statements with nearly the same shingles as a new one.

From: exact set-similarity joins with prefix filtering (Chaudhuri et al. 2006; Bayardo et al. 2007).

Differences from the originals:
1. Similarity is exact: there are no random projections, so no pair is missed.
2. Statements arrive in a stream, with lookups between additions. Shingles are ordered by their rarity so far. The index is
   rebuilt with the current counts whenever the number of statements has quadrupled.
3. A statement takes about 8 bytes in memory for each of its rarest shingles, 200 to 450 in total. The sets, from which
   similarity is computed, are in a temporary file.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from proofmill.decontamination.similarity import MOVED, Shingles
from proofmill.runtime.temporary_rows import Records
from proofmill.text.seen_texts import hash64

_SETS = ("words", "formulas")
_MIX = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio (Knuth, The Art of Computer Programming, section 6.4)
_FEWEST, _GROWTH = 1 << 10, 4  # statements at the first rebuild of the index, and the growth until the next
_PART = (1 << 32) - 1
_COUNTED = 1 << 20  # classes of shingles with a counter


class Match(NamedTuple):
    id: str
    similarity: float
    by: str  # `words` or `formulas`


class Alike:
    """Index of statements that returns, for a new one, the most similar at or above a threshold.

    Two sets with a Jaccard similarity of at least t share at least t times the larger set. So they share one of the first
    n - ceil(t * n) + 1 members of each in any fixed order. Only these are indexed, the rarest first.
    """

    def __init__(self, threshold: float):
        self.threshold = threshold
        self._statements = _Statements()
        self._places = _Places(_FEWEST)
        self._numbers_C = bytearray(_COUNTED)  # by class of statements' numbers, whether it occurs
        self._seen_C = np.zeros(_COUNTED, np.uint32)  # by class of shingles, the number of statements
        self._known_C = self._seen_C.copy()  # the counts at the last rebuild of the index
        self._next_making = _FEWEST  # number of statements at the next rebuild

    def __len__(self) -> int:
        return len(self._statements)

    def add(self, id: str, new: Shingles) -> None:
        self._statements.append(id, new)
        self._numbers_C[_digest(new.numbers) % _COUNTED] = True
        for by in _SETS:
            self._seen_C[_classes(_members(new, by))] += 1
        if len(self) == self._next_making:
            self._next_making *= _GROWTH
            self._known_C = self._seen_C.copy()
            self._places = _Places(2 * len(self._places))
            for row in range(len(self)):
                self._index(self._statements[row][1])
        else:
            self._index(new)

    def find(self, new: Shingles) -> Match | None:
        """Return the most similar statement; ties go to similarity by words, then to the first."""
        best: Match | None = None
        for match in self.matches(new):
            if best is None or match.similarity > best.similarity:
                best = match
        return best

    def matches(self, new: Shingles) -> Iterator[Match]:
        """Yield all statements at or above the threshold, by words and then by formulas, in order of addition."""
        share, numbers = self.threshold - 1e-9, _digest(new.numbers)
        if not self._numbers_C[numbers % _COUNTED]:
            return
        for by in _SETS:
            mine = getattr(new, by)
            low, high = share * len(mine), len(mine) / max(share, 1e-9)
            for row in sorted({row for key in self._keys(new, by) for row in self._places.of(key)}):
                if not self._statements.may_match(row, by, numbers, low, high):
                    continue
                id, other = self._statements[row]
                if other.numbers != new.numbers:
                    continue
                similarity = _jaccard(mine, getattr(other, by))
                if similarity >= self.threshold and (similarity >= MOVED or other.order == new.order):
                    yield Match(id, similarity, by)

    def _index(self, statement: Shingles) -> None:
        self._places.add([key for by in _SETS for key in self._keys(statement, by)])

    def _keys(self, statement: Shingles, by: str) -> list[int]:
        """Return the keys of a set in the index: its rarest members, each combined with the statement's numbers."""
        members = _members(statement, by)
        first = len(members) - math.ceil(self.threshold * len(members) - 1e-9) + 1
        rarest = np.lexsort((members, self._known_C[_classes(members)]))[:first]
        salt = np.uint64(hash64(by) ^ _digest(statement.numbers))
        return ((members[rarest] ^ salt) * np.uint64(_MIX)).tolist()


def _digest(numbers: tuple[str, ...]) -> int:
    return hash64(" ".join(numbers))


def _members(statement: Shingles, by: str) -> np.ndarray:
    members = getattr(statement, by)
    return np.fromiter(members, np.uint64, len(members))


def _classes(members: np.ndarray) -> np.ndarray:
    return (members % np.uint64(_COUNTED)).astype(np.int64)


def _jaccard(one: frozenset[int], other: frozenset[int]) -> float:
    common = len(one & other)
    return common / (len(one) + len(other) - common)


class _Statements:
    """Statements in a temporary file, by position: sets, numbers in their order, and id."""

    def __init__(self) -> None:
        self._records = Records()
        self._numbers = array("I")  # part of a digest
        self._sizes = {by: array("I") for by in _SETS}

    def __len__(self) -> int:
        return len(self._records)

    def append(self, id: str, statement: Shingles) -> None:
        sets = [array("Q", getattr(statement, by)) for by in _SETS]
        texts = f"{' '.join(statement.order)}\0{id}".encode(errors="surrogatepass")
        self._records.append(b"".join((*sets, texts)))
        for own, sizes in zip(sets, self._sizes.values(), strict=True):
            sizes.append(len(own))
        self._numbers.append(_digest(statement.numbers) & _PART)

    def may_match(self, row: int, by: str, numbers: int, low: float, high: float) -> bool:
        """Return whether a statement may have these numbers (by digest) and a set of such a size, without reading it."""
        return self._numbers[row] == numbers & _PART and low <= self._sizes[by][row] <= high

    def __getitem__(self, row: int) -> tuple[str, Shingles]:
        record = self._records[row]
        words, formulas = (self._sizes[by][row] for by in _SETS)
        members = array("Q", record[: 8 * (words + formulas)])
        numbers, _, id = record[8 * (words + formulas) :].decode(errors="surrogatepass").partition("\0")
        order = tuple(numbers.split())
        return id, Shingles(tuple(sorted(order)), frozenset(members[:words]), frozenset(members[words:]), order)


class _Places:
    """Hash table from keys to rows, with chains of entries; a chain may include rows of other keys."""

    def __init__(self, expected: int):
        """Create the table; with `expected` entries a chain has about one, with more it is longer."""
        self._bits = max(expected - 1, _FEWEST).bit_length()
        self._heads = array("I", bytes(4 << self._bits))  # 1 + the last entry of a chain; 0 if empty
        self._before = array("I")  # by entry: 1 + the entry before it in its chain
        self._first = array("I")  # by row: its first entry

    def __len__(self) -> int:
        return len(self._before)

    def add(self, keys: list[int]) -> None:
        """Add the next row."""
        heads, before, shift = self._heads, self._before, 64 - self._bits
        self._first.append(len(before))
        for key in keys:
            before.append(heads[key >> shift])
            heads[key >> shift] = len(before)

    def of(self, key: int) -> Iterator[int]:
        """Yield the rows with this key, and possibly some without."""
        entry = self._heads[key >> (64 - self._bits)]
        while entry:
            yield bisect_right(self._first, entry - 1) - 1
            entry = self._before[entry - 1]

"""Propose candidates: pairs of a row and a benchmark statement whose tokens should be compared.

The rules follow from the definition of a finding in similarity.py, not from an n chosen for speed. A run that counts
contains three distinctive words, or the middle of one of the two statements, or a stretch of formulas. A near duplicate has
the same digits and shares a band of a MinHash sketch (Broder 1997; Leskovec, Rajaraman and Ullman, "Mining of Massive
Datasets", section 3.4).
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from proofmill.decontamination import similarity as similarities
from proofmill.decontamination._hashes import BASE, Places, Skeleton, ranges
from proofmill.decontamination.similarity import COVERAGE, FORMULA_RUN, LEAST
from proofmill.text.statements import StatementToken, tokens

_LENGTHS = (8, 4, 2)  # units of an anchor, the key of a benchmark statement: the longest that fits
_MIDDLE = 3  # units of the piece that is the key of a row's middle
_BANDS = 32  # of two hashes; two texts of similarity s share one with probability 1 - (1 - s^2)^32: 0.9999 at s = 0.5
_RANDOM = np.random.default_rng(0)
_MULTIPLIERS_H = _RANDOM.integers(1 << 32, size=2 * _BANDS, dtype=np.uint32) | np.uint32(1)
_MASKS_H = _RANDOM.integers(1 << 32, size=2 * _BANDS, dtype=np.uint32)
_FOR_BANDS, _FOR_DIGITS = (_RANDOM.integers(1 << 63, size=size, dtype=np.uint64) for size in (_BANDS, 10))

Pairs = tuple[np.ndarray, np.ndarray]  # positions of rows and of benchmark statements


class Proposals:
    """Index of benchmark statements that proposes pairs of a row and a statement for verification."""

    def __init__(self, texts: Sequence[str], words: int, similarity: float):
        self.words = words
        self.own = own = Skeleton(texts)
        self.tokens_B: list[list[str]] = []
        regions = []  # benchmark statement, and the characters of a part of it
        for number, text in enumerate(texts):
            own_tokens = tokens(text)
            self.tokens_B.append([token.text for token in own_tokens])
            regions += [(number, start, end) for start, end in _regions(own_tokens, words)]
        self.size_B = np.array([len(one) for one in self.tokens_B], np.int64)
        self.whole = Places(own.hash(own.first_T[:-1], own.first_T[1:]), np.arange(len(texts)))
        start, end = own.stretches()
        self.telling = Places(own.hash(start, end), start)
        grams = own.grams(_MIDDLE)
        self.middle = Places(grams, np.arange(len(grams)))
        self.anchors = dict(_anchors(texts, own, regions))
        self.signature_B = _signatures(own)
        has_formulas = np.array([bool(similarities.shingles(text).formulas) for text in texts], bool)
        self.sketches = [
            Sketches(own, np.flatnonzero(np.diff(own.first_T))),
            Sketches(own, np.flatnonzero(has_formulas), True),
        ]
        self.bands = [
            Places(one.bands(self.signature_B).ravel(), np.tile(np.arange(len(one.texts)), _BANDS))
            for one in self.sketches
        ]
        # A changed token changes as many shingles of units as of tokens, but there are up to three times fewer of them.
        # The margin of 0.15 covers two standard deviations of a sketch's estimate.
        changed = min(3 * (1 - similarity) / (1 + similarity), 1)
        self.least = max((1 - changed) / (1 + changed) - 0.15, 0.1)

    def pairs(self, texts: Sequence[str]) -> Iterator[tuple[int, list[int]]]:
        """Yield the position of each text with candidates, and the positions of the statements to compare, in order."""
        rows, B = Skeleton(texts), len(self.size_B)
        by_rule = [self._equal(rows), self._by_telling_words(rows), self._by_anchors(rows), self._by_middle(rows)]
        pairs = np.unique(np.concatenate([row * B + other for row, other in (*by_rule, *self._by_sketches(rows))]))
        for row, same in groupby(pairs.tolist(), key=lambda pair: pair // B):
            yield row, [pair % B for pair in same]

    def _equal(self, rows: Skeleton) -> Pairs:
        return self.whole.find(rows.hash(rows.first_T[:-1], rows.first_T[1:]))

    def _by_telling_words(self, rows: Skeleton) -> Pairs:
        """Find pairs that share the units from a distinctive word to the second next: every run with three of them."""
        start, end = rows.stretches()
        at, there = self.telling.find(rows.hash(start, end))
        row, other, start, end = self._extend(rows, start[at], end[at], there, self.words)
        ok = rows.most_tokens(start, end) >= np.minimum(self.words, self.size_B[other])
        return row[ok], other[ok]

    def _by_anchors(self, rows: Skeleton) -> Pairs:
        """Find pairs that share an anchor: every run that is or covers a benchmark statement, or is long in formulas."""
        parts = []
        for length, anchors in self.anchors.items():
            start, there = anchors.find(rows.grams(length))
            ok = (self.own.digits_T[self.own.text_U[there]] <= rows.digits_T[rows.text_U[start]]).all(axis=1)
            row, other, start, end = self._extend(rows, start[ok], start[ok] + length, there[ok])
            needed = np.minimum(COVERAGE * self.size_B[other], FORMULA_RUN * self.words)
            parts.append((row, other, rows.most_tokens(start, end) >= needed))
        return tuple(np.concatenate([part[n][part[2]] for part in parts]) for n in (0, 1))

    def _by_middle(self, rows: Skeleton) -> Pairs:
        """Find pairs that share the rarest piece of the row's middle: every run that covers a shorter row.

        All pieces of the middle must occur in the benchmark.
        """
        size_T = np.diff(rows.first_T)
        low, high = rows.middle(_MIDDLE)
        grams = rows.grams(_MIDDLE)
        missing = np.append(0, np.cumsum(~self.middle.may_have(grams)))
        long = np.flatnonzero(size_T >= _MIDDLE)
        here = long[missing[high[long]] == missing[low[long]]]
        places = ranges(low[here], high[here])
        start = _least(places, self.middle.count(grams[places]), high[here] - low[here])
        at, there = self.middle.find(grams[start])
        start = start[at]
        ok = (rows.digits_T[rows.text_U[start]] <= self.own.digits_T[self.own.text_U[there]]).all(axis=1)
        row, other, start, end = self._extend(rows, start[ok], start[ok] + _MIDDLE, there[ok])
        ok = (rows.most_tokens(start, end) >= self.words) & (end - start >= 0.5 * size_T[row])
        return row[ok], other[ok]

    def _extend(
        self, rows: Skeleton, start: np.ndarray, end: np.ndarray, there: np.ndarray, reach: int = 1 << 30
    ) -> tuple:
        """Extend shared pieces by at most `reach` units per side; return row, statement, start and end (in the row)."""
        row, other = rows.text_U[start], self.own.text_U[there]
        before = np.minimum(np.minimum(start - rows.first_T[row], there - self.own.first_T[other]), reach)
        after = np.minimum(rows.first_T[row + 1] - end, self.own.first_T[other + 1] - there - (end - start))
        after = np.minimum(after, reach)
        first = start - self._equal_units(rows, start - 1, there - 1, before, -1)
        return row, other, first, end + self._equal_units(rows, end, there + end - start, after, 1)

    def _equal_units(
        self, rows: Skeleton, here: np.ndarray, there: np.ndarray, most: np.ndarray, step: int
    ) -> np.ndarray:
        """Count equal units from `here` and `there`, in steps of 1 or -1, at most `most`."""
        count = np.zeros(len(here), np.int64)
        active = np.flatnonzero(most > 0)
        while len(active):
            offset = step * count[active]
            equal = rows.hashes_U.take(here[active] + offset) == self.own.hashes_U.take(there[active] + offset)
            active = active[equal]
            count[active] += 1
            active = active[count[active] < most[active]]
        return count

    def _by_sketches(self, rows: Skeleton) -> Iterator[Pairs]:
        signature_T = _signatures(rows)
        same = np.isin(signature_T, self.signature_B) & (np.diff(rows.first_T) > 0)
        for number, (known, bands) in enumerate(zip(self.sketches, self.bands, strict=True)):
            new = Sketches(rows, np.flatnonzero(same), formulas=number == 1)
            at, there = bands.find(new.bands(signature_T).ravel())
            pairs = np.unique(at % max(len(new.texts), 1) * len(known.texts) + there)
            row, other = np.divmod(pairs, max(len(known.texts), 1))
            close = (new.least_HT[:, row] == known.least_HT[:, other]).mean(axis=0) >= self.least
            yield new.texts[row[close]], known.texts[other[close]]


class Sketches:
    """MinHash sketches of the pairs of adjacent units of texts, or only of the pairs in their formulas."""

    def __init__(self, skeleton: Skeleton, texts: np.ndarray, formulas: bool = False):
        units = ranges(skeleton.first_T[texts], skeleton.first_T[texts + 1])
        if formulas:
            units = units[skeleton.in_formula_U[units]]
        text_U = skeleton.text_U[units]
        sizes = np.bincount(text_U, minlength=len(skeleton.first_T) - 1)[texts]
        self.texts = texts[sizes > 0]
        starts = (np.cumsum(sizes) - sizes)[sizes > 0]
        pair = np.append(text_U[1:] == text_U[:-1], False) & np.append(np.diff(units) == 1, False)
        shingles = (skeleton.hash(units, units + 1 + pair) >> np.uint64(32)).astype(np.uint32)
        self.least_HT = np.zeros((2 * _BANDS, len(starts)), np.uint32)
        if len(starts):
            for least_T, multiplier, mask in zip(self.least_HT, _MULTIPLIERS_H, _MASKS_H, strict=True):
                least_T[:] = np.minimum.reduceat((shingles ^ mask) * multiplier, starts)

    def bands(self, signature_T: np.ndarray) -> np.ndarray:
        """Return a key for each band and text, equal for texts with the same digits and the same two hashes of the band."""
        both = (self.least_HT[::2].astype(np.uint64) << np.uint64(32)) | self.least_HT[1::2]
        return (both + signature_T[self.texts] + _FOR_BANDS[:, None]) * np.uint64(BASE)


def _signatures(skeleton: Skeleton) -> np.ndarray:
    """Return a hash of each text's digits, equal for texts with the same numbers."""
    return (skeleton.digits_T.astype(np.uint64) * _FOR_DIGITS).sum(axis=1)


def _regions(all_tokens: Sequence[StatementToken], words: int) -> Iterator[tuple[int, int]]:
    """Yield character ranges of a statement; each run that counts without three distinctive words contains one."""
    size, block = len(all_tokens), FORMULA_RUN * words // 2
    if size < min(LEAST, words):
        return
    spare = int((1 - COVERAGE) * size) if size >= words else 0  # tokens that such a run may miss on one side
    yield all_tokens[spare].start, all_tokens[size - spare - 1].end
    formula = [token for token in all_tokens if token.kind != "word"]
    for first in range(0, len(formula) - block + 1, block):
        if len(formula) >= 2 * block:
            yield formula[first].start, formula[first + block - 1].end


def _anchors(
    texts: Sequence[str], own: Skeleton, regions: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, Places]]:
    """Yield, by length, the positions of the anchors: the rarest piece of each region, preferably without stock words."""
    number = np.array([region[0] for region in regions], np.int64)
    low = own.first_T[number] + np.diff(Skeleton(texts[n][:start] for n, start, _ in regions).first_T)
    high = own.first_T[number] + np.diff(Skeleton(texts[n][:end] for n, _, end in regions).first_T)
    narrow = high - low < _LENGTHS[-1]
    low = np.where(narrow, own.first_T[number], low)
    high = np.where(narrow, own.first_T[number + 1], high)
    stock = np.append(0, np.cumsum(own.stock_U))
    remaining = np.ones(len(low), bool)
    for length in _LENGTHS:
        fitting = remaining & (high - low >= length)
        remaining &= ~fitting
        from_, to = low[fitting], high[fitting] - length + 1
        places = ranges(from_, to)
        grams = own.grams(length)
        frequency = np.unique(grams, return_inverse=True, return_counts=True)
        commonness = frequency[2][frequency[1]][places] * (1 + stock[places + length] - stock[places])
        start = np.unique(_least(places, commonness, to - from_))
        yield length, Places(grams[start], start)


def _least(places: np.ndarray, values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the first place with the smallest value in each of the nonempty groups of these sizes."""
    if not len(places):
        return places
    numbered = values * len(places) + np.arange(len(places))
    return places[np.minimum.reduceat(numbered, np.cumsum(sizes) - sizes) % len(places)]

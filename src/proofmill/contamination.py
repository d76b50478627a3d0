"""One finding is a statement that also stands in a benchmark: where, by which method, the text they share, how similar.

    exact        the same tokens (statements.py)
    ngram        a run of tokens that counts (likeness.Overlap says what counts)
    minhash      nearly the same shingles and the same numbers (likeness.Alike), looked up by MinHash sketches
    plain-ngram  `words` words in a row, in lower case, split at spaces: the rule of open-r1 as it stands

From: open-r1 (`scripts/decontaminate.py`); rolling hashes (Karp and Rabin 1987); MinHash with banding (Broder 1997;
Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4).

How it differs:
1. Nothing is a finding before the tokens of both statements were compared. Reading tokens costs several times a plain
   lookup, so array arithmetic on the letters and digits of many rows at once proposes the pairs worth comparing.
2. A pair is proposed for what likeness.py demands, not for an n chosen to be fast: a run that counts holds three
   telling words, the middle of one of the two statements, or a stretch of formulas; a near duplicate has equal digits.
3. Each benchmark statement that matches is a finding of its own, up to MOST for a row and a method.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from proofmill import likeness, statements
from proofmill.statements import Token, cached, tokens

METHODS = ("exact", "ngram", "minhash", "plain-ngram")
MOST = 10  # findings for a row and a method
SPAN = 300  # characters
_CHUNK = 1 << 19  # characters looked at in one step: the arrays of a step stay near the processor


class Finding(NamedTuple):
    row: int  # position in the list given to `find`
    id: str
    method: str
    span: str  # as the row writes it
    similarity: float  # 1 for exact; Jaccard for minhash; share of the benchmark statement in the run for ngram


class Index:
    """Benchmark statements, and what of them stands in other rows. Holds nothing of the rows it has looked at."""

    def __init__(self, methods: Iterable[str] = METHODS[:3], words: int = 13, similarity: float = 0.9):
        self.methods, self.words, self.similarity = tuple(methods), words, similarity
        if not set(self.methods) <= set(METHODS):
            raise ValueError(
                f"methods: found {', '.join(self.methods)}; expected some of {', '.join(METHODS)}. Drop others."
            )
        self.ids: list[str] = []
        self.statements: list[str] = []
        self._shingles = lru_cache(maxsize=10_000)(lambda other: likeness.shingles(self.statements[other]))
        self._proposals: Proposals | None = None
        self._plain: PlainWords | None = None

    def add(self, ids: Iterable[str], statements: Iterable[str]) -> None:
        for id, statement in zip(ids, statements, strict=True):
            self.ids.append(id)
            self.statements.append(statement)
        self._proposals = self._plain = None

    def find(self, statements: Sequence[str]) -> Iterator[Finding]:
        """Findings in the order of the rows; those of a row by method, the most similar first."""
        if self._plain is None and "plain-ngram" in self.methods:
            self._plain = PlainWords(self.statements, self.words)
        if self._proposals is None and set(self.methods) != {"plain-ngram"}:
            self._proposals = Proposals(self.statements, self.words, self.similarity)
        for first, texts in _chunks(statements):
            found = list(self._plain.find(texts)) if self._plain else []
            if self._proposals:
                for row, others in self._proposals.pairs(texts):
                    found += self._verified(row, texts[row], others)
            found.sort(key=lambda one: (one[0], self.methods.index(one[2]), -one[4]))
            for _, same in groupby(found, key=lambda one: (one[0], one[2])):
                for row, other, method, span, similarity in list(same)[:MOST]:
                    yield Finding(first + row, self.ids[other], method, _short(span), similarity)

    def _verified(self, row: int, text: str, others: Iterable[int]) -> Iterator[tuple[int, int, str, str, float]]:
        """Row, benchmark statement, method, span and similarity of what is true of a row and some statements."""
        own = cached(text)
        texts = [token.text for token in own]
        windows = lru_cache(maxsize=None)(lambda length: _windows(texts, length))
        for other in others:
            theirs = self._proposals.tokens_B[other]
            equal = texts == theirs and bool(texts)
            if equal and "exact" in self.methods:
                yield row, other, "exact", text, 1.0
            if "ngram" in self.methods and (run := longest_run(own, texts, windows, theirs, self.words)):
                start, end = run
                yield row, other, "ngram", text[own[start].start : own[end - 1].end], (end - start) / len(theirs)
            if "minhash" in self.methods:
                # Equal tokens are 1, also where a price in one of the two was read as a formula.
                similarity = 1.0 if equal else self._similarity(text, other)
                if similarity >= self.similarity:
                    yield row, other, "minhash", text, similarity

    def _similarity(self, text: str, other: int) -> float:
        """As in likeness.Alike: of all tokens or of the formulas, whichever is larger; 0 with other numbers."""
        theirs = self._shingles(other)
        if theirs.numbers != tuple(sorted(token.text for token in cached(text) if token.kind == "number")):
            return 0.0
        mine = likeness.shingles(text)
        return max(likeness.jaccard(mine.words, theirs.words), likeness.jaccard(mine.formulas, theirs.formulas))


def _chunks(statements: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Rows in steps of about _CHUNK characters, each with the position of its first row."""
    first = size = 0
    for row, text in enumerate(statements):
        size += len(text)
        if size >= _CHUNK:
            yield first, statements[first : row + 1]
            first, size = row + 1, 0
    if first < len(statements):
        yield first, statements[first:]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SPAN else f"{line[: SPAN - 3]}..."


# ------------------------------------------------------------------------------------------------------- two statements


def longest_run(
    own: Sequence[Token],
    texts: list[str],
    windows: Callable[[int], dict[tuple[str, ...], list[int]]],
    other: list[str],
    words: int,
) -> tuple[int, int] | None:
    """Start and end, in the tokens of a row, of the longest run it shares with one benchmark statement that counts.

    The same as likeness.Overlap finds with this statement alone; `windows` tells where each window of a length stands.
    """
    length = min(words, len(other))
    if length < min(likeness.LEAST, words):
        return None
    if texts == other:
        return 0, len(texts)
    runs = []
    for there in range(len(other) - length + 1):
        for start in windows(length).get(tuple(other[there : there + length]), ()):
            if start and there and texts[start - 1] == other[there - 1]:
                continue  # part of the run that begins before
            end, after = start + length, there + length
            while end < len(texts) and after < len(other) and texts[end] == other[after]:
                end, after = end + 1, after + 1
            runs.append((start - end, start, end))
    return next(
        ((start, end) for _, start, end in sorted(runs) if likeness.counts(own, start, end, other, words)), None
    )


def _windows(texts: Sequence[str], length: int) -> dict[tuple[str, ...], list[int]]:
    places = defaultdict(list)
    for start in range(len(texts) - length + 1):
        places[tuple(texts[start : start + length])].append(start)
    return places


# --------------------------------------------------------------------------------------------------------------- hashes
#
# Axes: C bytes of all texts of a chunk, U units (words, letters, digits), T texts, B benchmark statements, K runs of
# words, P pairs of places, H hash functions. The hash of bytes b_0 b_1 ... is the sum of b_i * _BASE^(i+1) modulo 2^64,
# so that the hash of any piece is a difference of two running sums, shifted by the inverse of _BASE.

_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)
_BITS = 22


@lru_cache(maxsize=2)
def _powers_to(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Powers 0 to size - 1 of _BASE and of its inverse."""
    up, down = (np.full(size, base, np.uint64) for base in (_BASE, _INVERSE))
    up[0] = down[0] = 1
    return np.multiply.accumulate(up), np.multiply.accumulate(down)


def _powers(count: int) -> tuple[np.ndarray, np.ndarray]:
    """At least `count` of each."""
    return _powers_to(1 << count.bit_length())


def _sums(values: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Running sums of values times powers, from 0."""
    sums = np.zeros(len(values) + 1, np.uint64)
    np.multiply(values, powers, out=sums[1:])
    return np.cumsum(sums, out=sums)


def _slots(hashes: np.ndarray) -> np.ndarray:
    return (hashes >> np.uint64(64 - _BITS)).astype(np.int64)


def _spans(data_C: np.ndarray, start_U: np.ndarray, end_U: np.ndarray) -> np.ndarray:
    """Hashes of the bytes from each start to before each end."""
    powers, inverses = _powers(len(data_C) + 1)
    sums_C = _sums(data_C, powers[1 : len(data_C) + 1])
    return (sums_C.take(end_U) - sums_C.take(start_U)) * inverses.take(start_U)


def _hash(word: str) -> int:
    """Of one span, as `_spans` computes it."""
    return sum(byte * pow(_BASE, place, 1 << 64) for place, byte in enumerate(word.encode(), 1)) % (1 << 64)


def _joined(spans: Iterable[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """All texts in one array, a line end around each, and where each begins (one more than there are)."""
    lines = list(spans)
    starts_T = np.ones(len(lines) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1, out=starts_T[1:])
    starts_T[1:] += 1
    return np.frombuffer(b"\n" + b"\n".join(lines) + b"\n", np.uint8), starts_T


class Places:
    """Where keys stand: a sorted array behind a bitmap that most of the keys asked for never pass."""

    def __init__(self, keys: np.ndarray, places: np.ndarray):
        order = np.lexsort((places, keys))
        self.keys, self.places = keys[order], places[order]
        self.bitmap = np.zeros(1 << _BITS, bool)
        self.bitmap[_slots(self.keys)] = True

    def may_have(self, keys: np.ndarray) -> np.ndarray:
        return self.bitmap.take(_slots(keys))

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `keys` and the places of the key there, for each pair of the two."""
        asked = np.flatnonzero(self.may_have(keys))
        low, high = (np.searchsorted(self.keys, keys[asked], side) for side in ("left", "right"))
        return np.repeat(asked, high - low), self.places[_ranges(low, high)]

    def count(self, keys: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.keys, keys, "right") - np.searchsorted(self.keys, keys, "left")


# ------------------------------------------------------------------------------------------------------------- skeleton

_LETTER, _DIGIT = 1, 2
_KINDS = np.zeros(256, np.uint8)
_KINDS[[*range(ord("a"), ord("z") + 1), *range(128, 256)]] = _LETTER
_KINDS[list(b"0123456789")] = _DIGIT
_SIGNS = (_KINDS == 0).astype(np.int32)  # how many tokens a byte may add to those of letters and digits
_SIGNS[list(b' \t\n\v\f\r.,;:?"`~&#@$')] = 0
_SIGNS[list(b"\\_^")] = 2  # `\frac ab` is a, / and b, and `x_ab` is x, _, a and b, though `ab` is one unit

_STOCK, _SPELLING, _NAMED_SIGN = 1, 2, 4
_CLASSES = np.zeros(1 << _BITS, np.uint8)
_signs = {text for text in statements._MACROS.values() if text.isascii() and text.isalpha()}  # `mod`, `epsilon`
for _class, _words in (
    (_STOCK, likeness.STOCK),
    (_SPELLING, {*statements._MACROS, *statements._NOTHING, *statements._FRACTIONS}),
    (_NAMED_SIGN, {*_signs, *(name for name, text in statements._MACROS.items() if text in _signs)}),
):
    _CLASSES[[_hash(word.lower()) >> (64 - _BITS) for word in _words]] |= _class
_LEFT_OUT = re.compile(r"\[asy\](?:(?!\[asy\]).)*?\[/asy\]|\\(?:begin|end)\s*\{[^{}]*\}(?:\{[lcr|\s]*\})?", re.DOTALL)


class _Ascii(dict):
    """What str.translate writes for a character: letters stay, signs are written as their tokens or as `*`."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        if sign.isascii():
            written = sign
        else:
            written = "".join(token.text for token in tokens(sign)) or " "
            if not written.isascii() and (not sign.isalpha() or sign in statements._MACROS.values()):
                written = "*"
        self[code] = written
        return written


_ASCII = _Ascii()


def _plainer(text: str) -> bytes:
    if "[asy]" in text or "\\begin" in text or "\\end" in text:
        text = _LEFT_OUT.sub(" ", text)
    return (text if text.isascii() else text.translate(_ASCII)).lower().encode()


class Skeleton:
    """Letters and digits of texts, without macros that are mere spelling: equal where tokens are equal.

    A unit is a word, a lone letter or one digit. The hash of several units is that of their characters in a row: it
    does not depend on where one unit ends.
    """

    def __init__(self, texts: Iterable[str]):
        data_C, starts_T = _joined(map(_plainer, texts))
        kinds_C = _KINDS.take(data_C)
        letter_C, digit_C = kinds_C == _LETTER, kinds_C == _DIGIT
        edge = letter_C[1:] != letter_C[:-1]
        start_U = np.flatnonzero(edge & letter_C[1:] | digit_C[1:]) + 1
        end_U = np.flatnonzero(edge & letter_C[:-1] | digit_C[:-1]) + 1
        hashes_U = _spans(data_C, start_U, end_U)
        classes_U = _CLASSES.take(_slots(hashes_U))
        macro_U = data_C.take(start_U - 1) == ord("\\")
        kept = np.flatnonzero(
            (classes_U & np.where(macro_U, _SPELLING | _NAMED_SIGN, _NAMED_SIGN).astype(np.uint8)) == 0
        )
        start_U, end_U, macro_U = start_U.take(kept), end_U.take(kept), macro_U.take(kept)
        self.hashes_U, stock_U = hashes_U.take(kept), classes_U.take(kept) & _STOCK != 0
        width_U, first_byte_U = end_U - start_U, data_C.take(start_U)

        self.first_T = np.searchsorted(start_U, starts_T)  # units before each text, and of all
        self.text_U = np.repeat(np.arange(len(starts_T) - 1), np.diff(self.first_T))
        self.offset_U = np.zeros(len(width_U) + 1, np.int64)
        np.cumsum(width_U, out=self.offset_U[1:])
        powers, self._inverses = _powers(int(self.offset_U[-1]) + 1)
        self.sums_U = _sums(self.hashes_U, powers.take(self.offset_U[:-1]))
        # [i + 1] is the number of signs before unit i, or before the end; [0] is 0.
        bytes_U = np.concatenate(([0], start_U, [len(data_C) - 1]))
        self.signs_U = np.cumsum(_SIGNS.take(data_C)).take(bytes_U)

        digit_U = digit_C.take(start_U)
        self.word_U = (width_U > 1) & ~macro_U
        self.stock_U = stock_U | (width_U == 1)
        self.telling_U = self.word_U & ~stock_U
        self.in_formula_U = ~self.word_U & (first_byte_U != ord("a"))  # `a` is more often an article
        digits = np.flatnonzero(digit_U)
        numbered = self.text_U[digits] * 10 + (first_byte_U[digits] - ord("0"))
        self.digits_T = np.bincount(numbered, minlength=10 * (len(starts_T) - 1)).reshape(-1, 10)

    def hash(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Of the units from `start` to before `end`."""
        return (self.sums_U.take(end) - self.sums_U.take(start)) * self._inverses.take(self.offset_U.take(start))

    def grams(self, length: int) -> np.ndarray:
        """Of `length` units from each unit on; some run over the end of their text."""
        return (self.sums_U[length:] - self.sums_U[:-length]) * self._inverses.take(self.offset_U[:-length])

    def most_tokens(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """No run of tokens that has these units and no others is longer."""
        return end - start + self.signs_U.take(end + 1) - self.signs_U.take(start)

    def middle(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """First place of a piece of `length` units in the middle fifth of each text, and one after the last such place.

        The middle by tokens, which are about as many as units and signs.
        """
        size_U = np.arange(len(self.signs_U) - 1) + self.signs_U[1:]
        start_T, size_T = size_U[self.first_T[:-1]], np.diff(size_U[self.first_T])
        low, high = (np.searchsorted(size_U, start_T + share * size_T) for share in (0.4, 0.6))
        low = np.maximum(np.minimum(low, self.first_T[1:] - length), self.first_T[:-1])
        return low, np.maximum(np.minimum(high, self.first_T[1:]) - length + 1, low + 1)

    def stretches(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of the units from each telling word to the next but one."""
        telling = np.flatnonzero(self.telling_U)
        start, last = telling[:-2], telling[2:]
        one_text = self.text_U.take(start) == self.text_U.take(last)
        return start[one_text], last[one_text] + 1


# ------------------------------------------------------------------------------------------------------------ proposals

_LENGTHS = (8, 4, 2)  # units of the piece that stands for a benchmark statement: the longest that it has room for
_MIDDLE = 3  # units of the piece that stands for a row
_BANDS = 32  # of two hashes; two texts of similarity s share one with probability 1 - (1 - s^2)^32: 0.9999 at s = 0.5
_RANDOM = np.random.default_rng(0)
_MULTIPLIERS_H = _RANDOM.integers(1 << 32, size=2 * _BANDS, dtype=np.uint32) | np.uint32(1)
_MASKS_H = _RANDOM.integers(1 << 32, size=2 * _BANDS, dtype=np.uint32)
_FOR_BANDS, _FOR_DIGITS = (_RANDOM.integers(1 << 63, size=size, dtype=np.uint64) for size in (_BANDS, 10))

Pairs = tuple[np.ndarray, np.ndarray]  # rows and benchmark statements, both by position


class Proposals:
    """Pairs of a row and a benchmark statement that may be findings."""

    def __init__(self, texts: Sequence[str], words: int, similarity: float):
        self.words = words
        self.own = own = Skeleton(texts)
        self.tokens_B: list[list[str]] = []
        regions = []  # benchmark statement, and the characters of a part of it
        for number, text in enumerate(texts):
            made = tokens(text)
            self.tokens_B.append([token.text for token in made])
            regions += [(number, start, end) for start, end in _regions(made, words)]
        self.size_B = np.array([len(one) for one in self.tokens_B], np.int64)
        self.whole = Places(own.hash(own.first_T[:-1], own.first_T[1:]), np.arange(len(texts)))
        start, end = own.stretches()
        self.telling = Places(own.hash(start, end), start)
        grams = own.grams(_MIDDLE)
        self.middle = Places(grams, np.arange(len(grams)))
        self.anchors = dict(_anchors(texts, own, regions))
        self.signature_B = _signatures(own)
        tells = np.array([bool(likeness.shingles(text).formulas) for text in texts], bool)
        self.sketches = [
            Sketches(own, np.flatnonzero(np.diff(own.first_T))),
            Sketches(own, np.flatnonzero(tells), True),
        ]
        self.bands = [
            Places(one.bands(self.signature_B).ravel(), np.tile(np.arange(len(one.texts)), _BANDS))
            for one in self.sketches
        ]
        # A changed token changes as many shingles of units, of which there are up to three times fewer; and a sketch
        # may stray by two standard deviations.
        changed = min(3 * (1 - similarity) / (1 + similarity), 1)
        self.least = max((1 - changed) / (1 + changed) - 0.15, 0.1)

    def pairs(self, texts: Sequence[str]) -> Iterator[tuple[int, list[int]]]:
        """Positions of texts with the benchmark statements to compare each with, both in order."""
        rows, B = Skeleton(texts), len(self.size_B)
        found = [self._equal(rows), self._by_telling_words(rows), self._by_anchors(rows), self._by_middle(rows)]
        pairs = np.unique(np.concatenate([row * B + other for row, other in (*found, *self._by_sketches(rows))]))
        for row, same in groupby(pairs.tolist(), key=lambda pair: pair // B):
            yield row, [pair % B for pair in same]

    def _equal(self, rows: Skeleton) -> Pairs:
        return self.whole.find(rows.hash(rows.first_T[:-1], rows.first_T[1:]))

    def _by_telling_words(self, rows: Skeleton) -> Pairs:
        """A run with three telling words holds the units from one of them to the next but one."""
        start, end = rows.stretches()
        at, there = self.telling.find(rows.hash(start, end))
        row, other, start, end = self._extended(rows, start[at], end[at], there, self.words)
        ok = rows.most_tokens(start, end) >= np.minimum(self.words, self.size_B[other])
        return row[ok], other[ok]

    def _by_anchors(self, rows: Skeleton) -> Pairs:
        """A run that is a whole benchmark statement, covers one or is long in formulas holds one of its anchors."""
        found = []
        for length, anchors in self.anchors.items():
            start, there = anchors.find(rows.grams(length))
            ok = (self.own.digits_T[self.own.text_U[there]] <= rows.digits_T[rows.text_U[start]]).all(axis=1)
            row, other, start, end = self._extended(rows, start[ok], start[ok] + length, there[ok])
            needed = np.minimum(likeness.COVERAGE * self.size_B[other], likeness.FORMULA_RUN * self.words)
            found.append((row, other, rows.most_tokens(start, end) >= needed))
        return tuple(np.concatenate([pairs[n][pairs[2]] for pairs in found]) for n in (0, 1))

    def _by_middle(self, rows: Skeleton) -> Pairs:
        """A run that covers a shorter row holds its middle: all of it stands in the benchmark, and its rarest piece."""
        size_T = np.diff(rows.first_T)
        low, high = rows.middle(_MIDDLE)
        grams = rows.grams(_MIDDLE)
        missing = np.append(0, np.cumsum(~self.middle.may_have(grams)))
        long = np.flatnonzero(size_T >= _MIDDLE)
        here = long[missing[high[long]] == missing[low[long]]]
        places = _ranges(low[here], high[here])
        start = _least(places, self.middle.count(grams[places]), high[here] - low[here])
        at, there = self.middle.find(grams[start])
        start = start[at]
        ok = (rows.digits_T[rows.text_U[start]] <= self.own.digits_T[self.own.text_U[there]]).all(axis=1)
        row, other, start, end = self._extended(rows, start[ok], start[ok] + _MIDDLE, there[ok])
        ok = (rows.most_tokens(start, end) >= self.words) & (end - start >= 0.5 * size_T[row])
        return row[ok], other[ok]

    def _extended(
        self, rows: Skeleton, start: np.ndarray, end: np.ndarray, there: np.ndarray, reach: int = 1 << 30
    ) -> tuple:
        """Row, benchmark statement, start and end of pieces in both, made longer by up to `reach` units a side."""
        row, other = rows.text_U[start], self.own.text_U[there]
        before = np.minimum(np.minimum(start - rows.first_T[row], there - self.own.first_T[other]), reach)
        after = np.minimum(rows.first_T[row + 1] - end, self.own.first_T[other + 1] - there - (end - start))
        after = np.minimum(after, reach)
        first = start - self._equal_units(rows, start - 1, there - 1, before, -1)
        return row, other, first, end + self._equal_units(rows, end, there + end - start, after, 1)

    def _equal_units(
        self, rows: Skeleton, here: np.ndarray, there: np.ndarray, most: np.ndarray, step: int
    ) -> np.ndarray:
        """How many units are equal from here and there on, in steps of 1 or -1, at most `most`."""
        count = np.zeros(len(here), np.int64)
        going = np.flatnonzero(most > 0)
        while len(going):
            moved = step * count[going]
            equal = rows.hashes_U.take(here[going] + moved) == self.own.hashes_U.take(there[going] + moved)
            going = going[equal]
            count[going] += 1
            going = going[count[going] < most[going]]
        return count

    def _by_sketches(self, rows: Skeleton) -> Iterator[Pairs]:
        signature_T = _signatures(rows)
        same = np.isin(signature_T, self.signature_B) & (np.diff(rows.first_T) > 0)
        for place, (mine, bands) in enumerate(zip(self.sketches, self.bands, strict=True)):
            asked = Sketches(rows, np.flatnonzero(same), formulas=place == 1)
            at, there = bands.find(asked.bands(signature_T).ravel())
            pairs = np.unique(at % max(len(asked.texts), 1) * len(mine.texts) + there)
            row, other = np.divmod(pairs, max(len(mine.texts), 1))
            close = (asked.least_HT[:, row] == mine.least_HT[:, other]).mean(axis=0) >= self.least
            yield asked.texts[row[close]], mine.texts[other[close]]


class Sketches:
    """MinHash sketches of the pairs of neighbouring units of some texts, or of those of their formulas alone."""

    def __init__(self, of: Skeleton, texts: np.ndarray, formulas: bool = False):
        units = _ranges(of.first_T[texts], of.first_T[texts + 1])
        if formulas:
            units = units[of.in_formula_U[units]]
        sizes = np.bincount(of.text_U[units], minlength=len(of.first_T) - 1)[texts]
        self.texts = texts[sizes > 0]
        starts = (np.cumsum(sizes) - sizes)[sizes > 0]
        pair = np.append(of.text_U[units[1:]] == of.text_U[units[:-1]], False) & np.append(np.diff(units) == 1, False)
        shingles = (of.hash(units, units + 1 + pair) >> np.uint64(32)).astype(np.uint32)
        self.least_HT = np.zeros((2 * _BANDS, len(starts)), np.uint32)
        if len(starts):
            for least_T, multiplier, mask in zip(self.least_HT, _MULTIPLIERS_H, _MASKS_H, strict=True):
                least_T[:] = np.minimum.reduceat((shingles ^ mask) * multiplier, starts)

    def bands(self, signature_T: np.ndarray) -> np.ndarray:
        """A key for each band and text: equal for texts with the same digits and the same two hashes of the band."""
        both = (self.least_HT[::2].astype(np.uint64) << np.uint64(32)) | self.least_HT[1::2]
        return (both + signature_T[self.texts] + _FOR_BANDS[:, None]) * np.uint64(_BASE)


def _signatures(of: Skeleton) -> np.ndarray:
    """Equal for texts with the same digits, which those with the same numbers have."""
    return (of.digits_T.astype(np.uint64) * _FOR_DIGITS).sum(axis=1)


def _regions(made: Sequence[Token], words: int) -> Iterator[tuple[int, int]]:
    """Parts of a statement, by characters: a run that counts without three telling words holds one of them."""
    size, block = len(made), likeness.FORMULA_RUN * words // 2
    if size < min(likeness.LEAST, words):
        return
    spare = int((1 - likeness.COVERAGE) * size) if size >= words else 0  # tokens that such a run may lack on one side
    yield made[spare].start, made[size - spare - 1].end
    formula = [token for token in made if token.kind != "word"]
    for first in range(0, len(formula) - block + 1, block):
        if len(formula) >= 2 * block:
            yield formula[first].start, formula[first + block - 1].end


def _anchors(
    texts: Sequence[str], own: Skeleton, regions: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, Places]]:
    """By length: the piece of each region that fewest benchmark statements have, and that has fewest stock words."""
    number = np.array([region[0] for region in regions], np.int64)
    low = own.first_T[number] + np.diff(Skeleton(texts[n][:start] for n, start, _ in regions).first_T)
    high = own.first_T[number] + np.diff(Skeleton(texts[n][:end] for n, _, end in regions).first_T)
    narrow = high - low < _LENGTHS[-1]
    low = np.where(narrow, own.first_T[number], low)
    high = np.where(narrow, own.first_T[number + 1], high)
    stock = np.append(0, np.cumsum(own.stock_U))
    left = np.ones(len(low), bool)
    for length in _LENGTHS:
        chosen = left & (high - low >= length)
        left &= ~chosen
        from_, to = low[chosen], high[chosen] - length + 1
        places = _ranges(from_, to)
        grams = own.grams(length)
        frequency = np.unique(grams, return_inverse=True, return_counts=True)
        commonness = frequency[2][frequency[1]][places] * (1 + stock[places + length] - stock[places])
        start = np.unique(_least(places, commonness, to - from_))
        yield length, Places(grams[start], start)


def _ranges(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """low[0] .. high[0] - 1, low[1] .. high[1] - 1, ... in one array."""
    sizes = high - low
    return np.arange(sizes.sum()) + np.repeat(low - (np.cumsum(sizes) - sizes), sizes)


def _least(places: np.ndarray, values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """For groups of these sizes, none empty, the first place with the least value."""
    if not len(places):
        return places
    numbered = values * len(places) + np.arange(len(places))
    return places[np.minimum.reduceat(numbered, np.cumsum(sizes) - sizes) % len(places)]


# ---------------------------------------------------------------------------------------------------------- plain words

_IN_WORD = np.ones(256, bool)
_IN_WORD[list(b" \t\n\v\f\r\x1c\x1d\x1e\x1f")] = False  # where str.split splits ASCII


class PlainWords:
    """Words in a row that stand in a benchmark, by open-r1's rule: lower case, split at spaces, punctuation kept."""

    def __init__(self, texts: Sequence[str], words: int):
        self.words = words
        self.words_B = [text.lower().split() for text in texts]
        keys, self.text_K, self.place_K = self._keys(texts)
        self.keys = Places(keys, np.arange(len(keys)))

    def _keys(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Hash, text and first word of each run of `words` words."""
        data_C, starts_T = _joined(
            (text.lower() if text.isascii() else " ".join(text.lower().split())).encode() for text in texts
        )
        inside = _IN_WORD.take(data_C)
        edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
        start_U, end_U = edges[::2], edges[1::2]
        hashes_U = _spans(data_C, start_U, end_U)
        powers, inverses = _powers(len(hashes_U))
        sums_U = _sums(hashes_U, powers[: len(hashes_U)])
        first_T = np.searchsorted(start_U, starts_T)
        text_U = np.repeat(np.arange(len(texts)), np.diff(first_T))
        last = self.words - 1
        start = np.flatnonzero(text_U[: max(len(text_U) - last, 0)] == text_U[last:])
        return (
            (sums_U[start + self.words] - sums_U[start]) * inverses[start],
            text_U[start],
            start - first_T[text_U[start]],
        )

    def find(self, texts: Sequence[str]) -> Iterator[tuple[int, int, str, str, float]]:
        """Row, benchmark statement, method, their longest run of words, and its share of the benchmark statement's."""
        keys, text_K, place_K = self._keys(texts)
        at, there = self.keys.find(keys)
        hits = np.stack((text_K[at], self.text_K[there], place_K[at], self.place_K[there]), axis=1)
        offset_P = hits[:, 2] - hits[:, 3]
        hits = hits[np.lexsort((hits[:, 2], offset_P, hits[:, 1], hits[:, 0]))]
        ends = np.flatnonzero((np.diff(hits, axis=0, append=-1) != (0, 0, 1, 1)).any(axis=1)) + 1
        starts = np.append(0, ends)[: len(ends)]
        runs = np.column_stack((hits[starts], ends - starts + self.words - 1)).tolist()
        for row, in_row in groupby(runs, key=lambda run: run[0]):
            lower, written = texts[row].lower().split(), texts[row].split()
            for other, same in groupby(in_row, key=lambda run: run[1]):
                theirs = self.words_B[other]
                for _, _, here, there, size in sorted(same, key=lambda run: (-run[4], run[2])):
                    if lower[here : here + size] == theirs[there : there + size]:
                        yield row, other, "plain-ngram", " ".join(written[here : here + size]), size / len(theirs)
                        break

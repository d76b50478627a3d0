"""Skeletons of statements: only letters and digits, as arrays of hashed units, and an index of hashes.

Tokenizing (statements.py) costs several times a plain lookup. Skeletons of many rows are computed at once, as arrays.
From: rolling hashes (Karp and Rabin 1987).
"""

import re
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from proofmill.decontamination.similarity import STOCK
from proofmill.text.statements import FRACTIONS, MACROS, NOTHING, tokens

# --------------------------------------------------------------------------------------------------------------- hashes
#
# Axes: C bytes of all texts of a chunk, U units (words, letters, digits), T texts, B benchmark statements, K runs of
# words, P pairs of places, H hash functions. The hash of bytes b_0 b_1 ... is the sum of b_i * BASE^(i+1) modulo 2^64,
# so that the hash of any piece is a difference of two running sums, shifted by the inverse of BASE.

BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(BASE, -1, 1 << 64)
_BITS = 22


@lru_cache(maxsize=2)
def _powers_to(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the powers 0 to size - 1 of BASE and of its inverse."""
    up, down = (np.full(size, base, np.uint64) for base in (BASE, _INVERSE))
    up[0] = down[0] = 1
    return np.multiply.accumulate(up), np.multiply.accumulate(down)


def powers_of(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return at least `count` powers of BASE and of its inverse, from the power 0."""
    return _powers_to(1 << count.bit_length())


def sums(values: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return the running sums of values times powers, starting with 0: one more than values."""
    sums = np.zeros(len(values) + 1, np.uint64)
    np.multiply(values, powers, out=sums[1:])
    return np.cumsum(sums, out=sums)


def _slots(hashes: np.ndarray) -> np.ndarray:
    return (hashes >> np.uint64(64 - _BITS)).astype(np.int64)


def spans_of(data_C: np.ndarray, start_U: np.ndarray, end_U: np.ndarray) -> np.ndarray:
    """Hash the bytes from each start to before each end: one hash per unit."""
    powers, inverses = powers_of(len(data_C) + 1)
    sums_C = sums(data_C, powers[1 : len(data_C) + 1])
    return (sums_C.take(end_U) - sums_C.take(start_U)) * inverses.take(start_U)


def _hash(word: str) -> int:
    """Hash one word, as `spans_of` does."""
    return sum(byte * pow(BASE, place, 1 << 64) for place, byte in enumerate(word.encode(), 1)) % (1 << 64)


def join_texts(spans: Iterable[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Join texts into one array of bytes, with line ends around each; also return the starts, and one past the end."""
    lines = list(spans)
    starts_T = np.ones(len(lines) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1, out=starts_T[1:])
    starts_T[1:] += 1
    return np.frombuffer(b"\n" + b"\n".join(lines) + b"\n", np.uint8), starts_T


def ranges(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return low[0] .. high[0] - 1, low[1] .. high[1] - 1, ... in one array."""
    sizes = high - low
    return np.arange(sizes.sum()) + np.repeat(low - (np.cumsum(sizes) - sizes), sizes)


class Places:
    """Index from keys to places: a sorted array behind a bitmap, which rejects most missing keys."""

    def __init__(self, keys: np.ndarray, places: np.ndarray):
        order = np.lexsort((places, keys))
        self.keys, self.places = keys[order], places[order]
        self.bitmap = np.zeros(1 << _BITS, bool)
        self.bitmap[_slots(self.keys)] = True

    def may_have(self, keys: np.ndarray) -> np.ndarray:
        """Return False for keys that are certainly not in the index."""
        return self.bitmap.take(_slots(keys))

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all matches in two arrays: a position in `keys`, and a place of that key."""
        possible = np.flatnonzero(self.may_have(keys))
        low, high = (np.searchsorted(self.keys, keys[possible], side) for side in ("left", "right"))
        return np.repeat(possible, high - low), self.places[ranges(low, high)]

    def count(self, keys: np.ndarray) -> np.ndarray:
        """Count the places of each key."""
        return np.searchsorted(self.keys, keys, "right") - np.searchsorted(self.keys, keys, "left")


# ------------------------------------------------------------------------------------------------------------- skeleton

_LETTER, _DIGIT = 1, 2
_KINDS = np.zeros(256, np.uint8)
_KINDS[[*range(ord("a"), ord("z") + 1), *range(128, 256)]] = _LETTER
_KINDS[list(b"0123456789")] = _DIGIT
_SIGNS = (_KINDS == 0).astype(np.int32)  # tokens that a byte may add to those of letters and digits
_SIGNS[list(b' \t\n\v\f\r.,;:?"`~&#@$')] = 0
_SIGNS[list(b"\\_^")] = 2  # `\frac ab` is a, / and b, and `x_ab` is x, _, a and b, though `ab` is one unit

_STOCK, _SPELLING, _NAMED_SIGN = 1, 2, 4
_CLASSES = np.zeros(1 << _BITS, np.uint8)
_signs = {text for text in MACROS.values() if text.isascii() and text.isalpha()}  # `mod`, `epsilon`
for _class, _words in (
    (_STOCK, STOCK),
    (_SPELLING, {*MACROS, *NOTHING, *FRACTIONS}),
    (_NAMED_SIGN, {*_signs, *(name for name, text in MACROS.items() if text in _signs)}),
):
    _CLASSES[[_hash(word.lower()) >> (64 - _BITS) for word in _words]] |= _class
_LEFT_OUT = re.compile(r"\[asy\](?:(?!\[asy\]).)*?\[/asy\]|\\(?:begin|end)\s*\{[^{}]*\}(?:\{[lcr|\s]*\})?", re.DOTALL)


class _Ascii(dict):
    """Table for str.translate, filled on demand: letters stay, other signs become their tokens or `*`."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        if sign.isascii():
            written = sign
        else:
            written = "".join(token.text for token in tokens(sign)) or " "
            if not written.isascii() and (not sign.isalpha() or sign in MACROS.values()):
                written = "*"
        self[code] = written
        return written


_ASCII = _Ascii()


def _plainer(text: str) -> bytes:
    if "[asy]" in text or "\\begin" in text or "\\end" in text:
        text = _LEFT_OUT.sub(" ", text)
    return (text if text.isascii() else text.translate(_ASCII)).lower().encode()


class Skeleton:
    """Letters and digits of texts, without macros that are only spelling: equal if tokens are equal.

    A unit is a word, a single letter or one digit. The hash of several units is that of their concatenated characters: it
    does not depend on the boundaries between them.
    """

    def __init__(self, texts: Iterable[str]):
        data_C, starts_T = join_texts(map(_plainer, texts))
        kinds_C = _KINDS.take(data_C)
        letter_C, digit_C = kinds_C == _LETTER, kinds_C == _DIGIT
        edge = letter_C[1:] != letter_C[:-1]
        start_U = np.flatnonzero(edge & letter_C[1:] | digit_C[1:]) + 1
        end_U = np.flatnonzero(edge & letter_C[:-1] | digit_C[:-1]) + 1
        hashes_U = spans_of(data_C, start_U, end_U)
        classes_U = _CLASSES.take(_slots(hashes_U))
        macro_U = data_C.take(start_U - 1) == ord("\\")
        kept = np.flatnonzero(
            (classes_U & np.where(macro_U, _SPELLING | _NAMED_SIGN, _NAMED_SIGN).astype(np.uint8)) == 0
        )
        start_U, end_U, macro_U = start_U.take(kept), end_U.take(kept), macro_U.take(kept)
        self.hashes_U, stock_U = hashes_U.take(kept), classes_U.take(kept) & _STOCK != 0
        width_U, first_byte_U = end_U - start_U, data_C.take(start_U)

        self.first_T = np.searchsorted(start_U, starts_T)  # units before each text, and of all texts
        self.text_U = np.repeat(np.arange(len(starts_T) - 1), np.diff(self.first_T))
        self.offset_U = np.zeros(len(width_U) + 1, np.int64)
        np.cumsum(width_U, out=self.offset_U[1:])
        powers, self._inverses = powers_of(int(self.offset_U[-1]) + 1)
        self.sums_U = sums(self.hashes_U, powers.take(self.offset_U[:-1]))
        # Element i + 1 is the number of signs before unit i, or before the end; element 0 is 0.
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
        """Hash the units from each `start` to before each `end`."""
        return (self.sums_U.take(end) - self.sums_U.take(start)) * self._inverses.take(self.offset_U.take(start))

    def grams(self, length: int) -> np.ndarray:
        """Hash `length` units from each unit; some extend beyond the end of their text."""
        return (self.sums_U[length:] - self.sums_U[:-length]) * self._inverses.take(self.offset_U[:-length])

    def most_tokens(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return an upper bound of the tokens in a run with exactly the units from `start` to before `end`."""
        return end - start + self.signs_U.take(end + 1) - self.signs_U.take(start)

    def middle(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first place of a piece of `length` units in the middle fifth of each text, and one past the last.

        The middle is measured in tokens, approximately the sum of units and signs.
        """
        size_U = np.arange(len(self.signs_U) - 1) + self.signs_U[1:]
        start_T, size_T = size_U[self.first_T[:-1]], np.diff(size_U[self.first_T])
        low, high = (np.searchsorted(size_U, start_T + share * size_T) for share in (0.4, 0.6))
        low = np.maximum(np.minimum(low, self.first_T[1:] - length), self.first_T[:-1])
        return low, np.maximum(np.minimum(high, self.first_T[1:]) - length + 1, low + 1)

    def stretches(self) -> tuple[np.ndarray, np.ndarray]:
        """Return start and end of the units from each distinctive word to the second next in the same text."""
        telling = np.flatnonzero(self.telling_U)
        start, last = telling[:-2], telling[2:]
        one_text = self.text_U.take(start) == self.text_U.take(last)
        return start[one_text], last[one_text] + 1

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

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from proofmill import likeness
from proofmill.kinds import METHODS
from proofmill.proposals import Proposals
from proofmill.skeletons import Places, joined, powers_of, spans_of, sums
from proofmill.statements import Token, cached

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
        data_C, starts_T = joined(
            (text.lower() if text.isascii() else " ".join(text.lower().split())).encode() for text in texts
        )
        inside = _IN_WORD.take(data_C)
        edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
        start_U, end_U = edges[::2], edges[1::2]
        hashes_U = spans_of(data_C, start_U, end_U)
        powers, inverses = powers_of(len(hashes_U))
        sums_U = sums(hashes_U, powers[: len(hashes_U)])
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

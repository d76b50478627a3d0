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

from proofmill.contamination._candidates import Proposals
from proofmill.contamination._words import IN_WORD, PlainWords
from proofmill.contamination.similarity import LEAST, counts, jaccard, shingles
from proofmill.schema.entries import METHODS
from proofmill.text.statements import Token, cached

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
        self._shingles = lru_cache(maxsize=10_000)(lambda other: shingles(self.statements[other]))
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
        mine = shingles(text)
        return max(jaccard(mine.words, theirs.words), jaccard(mine.formulas, theirs.formulas))


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
    if length < min(LEAST, words):
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
    return next(((start, end) for _, start, end in sorted(runs) if counts(own, start, end, other, words)), None)


def _windows(texts: Sequence[str], length: int) -> dict[tuple[str, ...], list[int]]:
    places = defaultdict(list)
    for start in range(len(texts) - length + 1):
        places[tuple(texts[start : start + length])].append(start)
    return places


IN_WORD[list(b" \t\n\v\f\r\x1c\x1d\x1e\x1f")] = False  # where str.split splits ASCII

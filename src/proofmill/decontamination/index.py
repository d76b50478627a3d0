"""Find statements that also occur in a benchmark, with the method, the shared text and the similarity.

    exact        the same tokens (statements.py)
    ngram        a run of tokens that counts (defined in similarity.Overlap)
    minhash      nearly the same shingles and the same numbers (alike.Alike), looked up by MinHash sketches
    plain-ngram  `words` words in a row, in lower case, split at spaces: the unchanged rule of open-r1
    number-free  the same tokens except numbers and names (_number_free.py)

The method `embedding` compares vectors (embeddings.py), and `judge` lets a model compare the nearest rows (nearest.py).

From: open-r1 (`scripts/decontaminate.py`); rolling hashes (Karp and Rabin 1987); MinHash with banding (Broder 1997;
Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4).

Differences from open-r1:
1. Every finding is verified on the tokens of both statements (plain-ngram: on their words). Tokenizing costs several times
   a plain lookup, so array arithmetic on the letters and digits of many rows proposes the pairs to compare
   (_candidates.py).
2. The proposals follow from the definitions in similarity.py, not from an n chosen for speed. A run that counts contains
   three distinctive words, the middle of one of the two statements, or a stretch of formulas. A near duplicate has equal
   digits.
3. Each matching benchmark statement is a separate finding, up to MOST per row and method.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from proofmill.decontamination._candidates import Proposals
from proofmill.decontamination._number_free import NumberFree
from proofmill.decontamination._words import PlainWords
from proofmill.decontamination.similarity import LEAST, MOVED, counts, jaccard, shingles
from proofmill.schema.entries.problem_entries import EMBEDDING, JUDGE, METHODS
from proofmill.text.statements import StatementToken, cache_tokens, compose

LOOKED_UP = tuple(method for method in METHODS if method not in (EMBEDDING, JUDGE))
VERIFIED = LOOKED_UP[:3]  # on the tokens of both statements, of proposed pairs
MOST = 10  # findings per row and method
SPAN = 300  # characters
_CHUNK = 1 << 19  # characters per step; its arrays fit the processor's cache


class Finding(NamedTuple):
    row: int  # position in the list given to `find`
    id: str
    method: str
    span: str  # as the row writes it
    similarity: float  # exact, number-free: 1; minhash: Jaccard; ngrams: share of the benchmark statement in the run


class Index:
    """Index that finds benchmark statements in other rows; it stores no rows. Raises ValueError for an unknown method."""

    def __init__(self, methods: Iterable[str] = VERIFIED, words: int = 13, similarity: float = 0.7):
        self.methods, self.words, self.similarity = tuple(methods), words, similarity
        if not set(self.methods) <= set(LOOKED_UP):
            raise ValueError(
                f"methods: found {', '.join(self.methods)}; expected some of {', '.join(LOOKED_UP)}. Remove others."
            )
        self.ids: list[str] = []
        self.statements: list[str] = []
        self._shingles = lru_cache(maxsize=10_000)(lambda other: shingles(self.statements[other]))
        self._proposals: Proposals | None = None
        self._plain: PlainWords | None = None
        self._number_free: NumberFree | None = None

    def add(self, ids: Iterable[str], statements: Iterable[str]) -> None:
        for id, statement in zip(ids, statements, strict=True):
            self.ids.append(id)
            self.statements.append(compose(statement))
        self._proposals = self._plain = self._number_free = None

    def find(self, statements: Sequence[str]) -> Iterator[Finding]:
        """Yield findings in the order of the rows; within a row by method, the most similar first."""
        if self._plain is None and "plain-ngram" in self.methods:
            self._plain = PlainWords(self.statements, self.words)
        if self._number_free is None and "number-free" in self.methods:
            self._number_free = NumberFree(self.statements)
        if self._proposals is None and set(self.methods) & set(VERIFIED):
            self._proposals = Proposals(self.statements, self.words, self.similarity)
        for first, chunk in _chunks(statements):
            texts = [*map(compose, chunk)]
            matches = list(self._plain.find(texts)) if self._plain else []
            matches += self._number_free.find(texts) if self._number_free else []
            if proposals := self._proposals:
                for row, others in proposals.pairs(texts):
                    matches += self._verify(proposals, row, texts[row], others)
            matches.sort(key=lambda match: (match[0], self.methods.index(match[2]), -match[4]))
            for _, same in groupby(matches, key=lambda match: (match[0], match[2])):
                for row, other, method, span, similarity in list(same)[:MOST]:
                    yield Finding(first + row, self.ids[other], method, excerpt(span), similarity)

    def _verify(
        self, proposals: Proposals, row: int, text: str, others: Iterable[int]
    ) -> Iterator[tuple[int, int, str, str, float]]:
        """Yield row, benchmark statement, method, span and similarity of each verified proposal of a row."""
        own = cache_tokens(text)
        texts = [token.text for token in own]
        windows = lru_cache(maxsize=None)(lambda length: _windows(texts, length))
        for other in others:
            theirs = proposals.tokens_B[other]
            equal = texts == theirs and bool(texts)
            if equal and "exact" in self.methods:
                yield row, other, "exact", text, 1.0
            if "ngram" in self.methods and (run := longest_run(own, texts, windows, theirs, self.words)):
                start, end = run
                yield row, other, "ngram", text[own[start].start : own[end - 1].end], (end - start) / len(theirs)
            if "minhash" in self.methods:
                # Equal tokens have similarity 1, even if a price in one statement was parsed as a formula.
                similarity = 1.0 if equal else self._similarity(text, other)
                if similarity >= self.similarity:
                    yield row, other, "minhash", text, similarity

    def _similarity(self, text: str, other: int) -> float:
        """Compute similarity as alike.Alike: the larger Jaccard of tokens and formulas; 0 if the numbers differ or move."""
        theirs = self._shingles(other)
        if theirs.numbers != tuple(sorted(token.text for token in cache_tokens(text) if token.kind == "number")):
            return 0.0
        mine = shingles(text)
        similarity = max(jaccard(mine.words, theirs.words), jaccard(mine.formulas, theirs.formulas))
        return similarity if similarity >= MOVED or mine.order == theirs.order else 0.0


def _chunks(statements: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield chunks of about _CHUNK characters, each with the position of its first row."""
    first = size = 0
    for row, text in enumerate(statements):
        size += len(text)
        if size >= _CHUNK:
            yield first, statements[first : row + 1]
            first, size = row + 1, 0
    if first < len(statements):
        yield first, statements[first:]


def excerpt(text: str) -> str:
    """Return a text on one line, shortened to SPAN characters."""
    line = " ".join(text.split())
    return line if len(line) <= SPAN else f"{line[: SPAN - 3]}..."


# ------------------------------------------------------------------------------------------------------- two statements


def longest_run(
    own: Sequence[StatementToken],
    texts: list[str],
    windows: Callable[[int], dict[tuple[str, ...], list[int]]],
    other: list[str],
    words: int,
) -> tuple[int, int] | None:
    """Return start and end, in a row's tokens, of the longest run that counts and that a benchmark statement shares.

    similarity.Overlap with only this statement finds the same. `windows(length)` has the places of each window.
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
                continue  # part of a run that begins earlier
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

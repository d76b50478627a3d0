"""Define the similarity of statements of the same problem.

    shingles     the sets by which alike.py finds an earlier statement that is nearly the same
    Overlap      a run of text that a statement shares with a benchmark

From: the n-gram decontamination of open-r1 (`scripts/decontaminate.py`).

Differences from the original:
1. Two statements with different numbers are different problems, because templates are frequent in forums and in
   mathematics. So are two with the same numbers in another order, unless nearly all else is equal (MOVED).
2. The same formulas in other words are the same problem, if the formulas are long enough.
3. A shared run counts only if it is distinctive: "is $\\frac{m}{n}$, where $m$ and $n$ are relatively prime positive
   integers. Find $m+n$" has 17 tokens and occurs in hundreds of different problems.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from proofmill.text.seen_texts import hash64
from proofmill.text.statements import StatementToken, cache_tokens, compose, tokens

# Words that do not identify a problem: those in at least 1 % of the 2,145 statements of HARP, MATH, AIME 2024,
# IMO-ProofBench and IMO-AnswerBench, a few similar ones, and the words of well-known theorems.
STOCK = frozenset(
    """
    a acute adjacent after all also an and angle answer any are area as assume at base be below between blue board
    both but by called can center chosen circle circles circumcircle coefficient coefficients color colored common
    complex compute condition conditions consecutive consider constant contains convex coordinates decimal define
    defined degree degrees demonstrate denote determine diameter difference different digit digits distance distinct
    divided divisible divisor divisors does each either element elements enter equal equation evaluate every exactly
    example exist exists express expressed expression feet find finite first following for form formed four fraction
    from function functions game given graph greater greatest has have he hence her holds how if iff in incenter
    infinite inscribed inside integer integers intersect intersection intersects into is isosceles it its largest
    least left lemma length lengths less let lie lies line lines many maximum may measure midpoint minimum more most
    multiple must natural naturals nearest no non nonnegative nonzero not number numbers odd of on one only or order
    ordered other over pair pairs parallel perfect perimeter perpendicular plane play point points polynomial
    polynomials positive possible prime probability product prove proves quadrilateral radius random ratio rational
    real reals red region regular relatively remainder respectively right roots row same satisfies satisfy
    satisfying second segment sequence set she show shown side sides simplest simplify since six smaller smallest so
    solutions some square squares statement students such sum suppose tangent ten term terms th than that the their
    them then theorem there therefore these they third this three through thus time times to total triangle
    triangles two unit units up using value values verify vertex vertices volume ways we what when where which while
    whose will with written your
    cauchy cosine cosines euler exists fermat formula hold identity inequality infinitely jensen known law laws little mean
    means pythagorean says schwarz sine sines state states vieta whether
    """.split()  # noqa: SIM905
)
SHINGLE = 3  # tokens
_CLASS = 1 << 60
_MULTIPLIER = 0x9E3779B97F4A7C15  # odd, so that every token affects the id of a run
# Formulas are compared alone if they have 20 tokens, or 10 tokens and five numbers.
_TOKENS, _TOKENS_WITH_NUMBERS, _NUMBERS = 20, 10, 5
# At this similarity the numbers may have another order, as when "7 divides" became "is divisible by 7". Of 2,925 problems
# of the family `arithmetic`, 121 have another at 0.7 with its numbers exchanged, and 0 at 0.9.
MOVED = 0.9


class Shingles(NamedTuple):
    """The sets by which statements are compared: `words` are shingles of all tokens, `formulas` only of formulas."""

    numbers: tuple[str, ...]  # sorted, with repetitions
    words: frozenset[int]
    formulas: frozenset[int]  # empty if the formulas are too short to be compared alone
    order: tuple[str, ...]  # the numbers in order of occurrence


def telling(token: StatementToken) -> bool:
    """Return whether a token is a distinctive word, which few statements have."""
    return token.kind == "word" and token.text not in STOCK


@lru_cache(maxsize=4)
def shingles(text: str) -> Shingles:
    """Return the numbers and shingles of a statement, cached for consecutive filters of the same statement."""
    all_tokens = cache_tokens(text)
    formulas = _formulas(all_tokens)
    size = sum(len(formula) for formula in formulas)
    numbers = tuple(token.text for token in all_tokens if token.kind == "number")
    tells = size >= _TOKENS or (size >= _TOKENS_WITH_NUMBERS and len(numbers) >= _NUMBERS)
    return Shingles(
        tuple(sorted(numbers)),
        frozenset(_shingle_ids(all_tokens)),
        frozenset(i for formula in formulas for i in _shingle_ids(formula)) if tells else frozenset(),
        numbers,
    )


def _formulas(all_tokens: Sequence[StatementToken]) -> list[list[StatementToken]]:
    """Return the maximal stretches of tokens without a word, except those of only brackets and dashes."""
    stretches: list[list[StatementToken]] = [[]]
    for token in all_tokens:
        if token.kind != "word":
            stretches[-1].append(token)
        elif stretches[-1]:
            stretches.append([])
    return [formula for formula in stretches if any(token.text.isalnum() for token in formula)]


def _shingle_ids(some: Sequence[StatementToken]) -> Iterator[int]:
    """Yield a 64-bit id for each run of SHINGLE tokens (a shorter text is one run); distinctive runs have smaller ids."""
    hashes, tells = [_hash(token.text) for token in some], [telling(token) for token in some]
    for n in range(max(len(hashes) - SHINGLE + 1, 1) if hashes else 0):
        mixed = 0
        for one in hashes[n : n + SHINGLE]:
            mixed = (mixed * _MULTIPLIER + one) % _CLASS
        yield (SHINGLE - sum(tells[n : n + SHINGLE])) * _CLASS + mixed


@lru_cache(maxsize=1 << 16)
def _hash(token: str) -> int:
    return hash64(token) % _CLASS


def jaccard(a: Iterable[int], b: Iterable[int]) -> float:
    """Return the share of common members in the union of two sets; 0 if both are empty."""
    a, b = set(a), set(b)
    return len(a & b) / len(a | b) if a or b else 0.0


# ---------------------------------------------------------------------------------------------------------- shared runs

LEAST = 5  # tokens; a run of a shorter benchmark statement is not evidence
_TELLING_WORDS = 3  # distinctive words of a run; with fewer it may be a template
FORMULA_RUN = 3  # times `words`: tokens of formulas in a run that is not a common identity
COVERAGE, _PRESENT = 0.75, 0.9  # shares of one statement: in the run, and anywhere in the other


class SharedRun(NamedTuple):
    """A run of tokens shared with the benchmark statement `id`."""

    id: str
    words: int  # tokens of the run
    text: str  # as the new statement writes it


class Overlap:
    """Index of benchmark statements that finds a run of `words` tokens which a new statement shares with one.

    A run counts if

    - it is a complete benchmark statement (which may be shorter than `words`), or
    - it contains three distinctive words, or
    - it is three quarters of one of the two statements, and nine tenths and all numbers of that occur in the other, or
    - it has three times `words` tokens of formulas, and all numbers of the benchmark statement occur in the new one.
    """

    def __init__(self, words: int):
        self.words = words
        self.ids: list[str] = []
        self.statements: list[list[str]] = []
        self.places: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
        self.lengths = {words}
        self.known: set[str] = set()  # all tokens of runs

    def add(self, id: str, statement: str) -> None:
        own = tokens(statement)
        texts, row = [token.text for token in own], len(self.ids)
        self.ids.append(id)
        self.statements.append(texts)
        length = min(self.words, len(texts))
        if length >= min(LEAST, self.words):
            self.lengths.add(length)
            self.known.update(texts)
            for start in range(len(texts) - length + 1):
                self.places[tuple(texts[start : start + length])].append((row, start))

    def find(self, statement: str) -> SharedRun | None:
        """Return the longest run that counts, or None."""
        statement = compose(statement)
        own = cache_tokens(statement)
        texts = [token.text for token in own]
        reach = [0] * (len(texts) + 1)  # by place, the number of consecutive known tokens from there
        for place in range(len(texts) - 1, -1, -1):
            reach[place] = reach[place + 1] + 1 if texts[place] in self.known else 0
        best, best_span = None, (0, 0)
        # (row, offset) -> end of the last run there, so that a run is examined once, not at each of its places.
        ends: dict[tuple[int, int], int] = {}
        for length in sorted(self.lengths, reverse=True):
            for start in (start for start, known in enumerate(reach) if known >= length):
                for row, there in self.places.get(tuple(texts[start : start + length]), ()):
                    if ends.get((row, there - start), -1) >= start + length:
                        continue
                    end = self._extend(texts, start + length, row, there + length)
                    ends[row, there - start] = end
                    longer = end - start > best_span[1] - best_span[0]
                    if longer and counts(own, start, end, self.statements[row], self.words):
                        best, best_span = row, (start, end)
        if best is None:
            return None
        start, end = best_span
        shown = " ".join(statement[own[start].start : own[end - 1].end].split())
        return SharedRun(self.ids[best], end - start, shown)

    def _extend(self, texts: list[str], end: int, row: int, there: int) -> int:
        other = self.statements[row]
        while end < len(texts) and there < len(other) and texts[end] == other[there]:
            end, there = end + 1, there + 1
        return end


def counts(own: Sequence[StatementToken], start: int, end: int, other: Sequence[str], words: int) -> bool:
    """Return whether the run own[start:end] counts (Overlap); `other` are the tokens of the benchmark statement."""
    run = own[start:end]
    if len(run) == len(other):
        return True
    if len({token.text for token in run if telling(token)}) >= _TELLING_WORDS:
        return True
    here, there = Counter(token.text for token in own), Counter(other)
    covers = any(
        len(run) >= COVERAGE * one.total()
        and (one - two).total() <= (1 - _PRESENT) * one.total()
        and not any(text[0].isdigit() for text in one - two)
        for one, two in ((here, there), (there, here))
    )
    if covers:
        return True
    formula = sum(token.kind != "word" for token in run)
    return formula >= FORMULA_RUN * words and not any(text[0].isdigit() for text in there - here)

"""Statements that occur in a benchmark: on labeled pairs, against slow references, and for any text."""

import json
import random
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.decontamination.index import LOOKED_UP, MOST, VERIFIED, Finding, Index
from proofmill.decontamination.similarity import Overlap, jaccard, shingles
from proofmill.text.statements import normal

FOLDER = Path(__file__).parent
PAIRS = [
    json.loads(line) for name in ("same", "different") for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()
]
STATEMENTS = sorted({pair["statement"] for pair in PAIRS})
BENCHMARK = sorted({pair["benchmark"] for pair in PAIRS})
# What none of these methods can see: other words, other letters, other names, other languages.
OUT_OF_REACH = {"paraphrase", "renamed", "number words", "translated"}


def indexed(
    benchmark: list[str], methods: tuple[str, ...] = VERIFIED, words: int = 13, similarity: float = 0.7
) -> Index:
    made = Index(methods, words, similarity)
    made.add(map(str, range(len(benchmark))), benchmark)
    return made


def found(benchmark: str, statement: str, method: str, **given) -> list[Finding]:
    return list(indexed([benchmark], (method,), **given).find([statement]))


# ------------------------------------------------------------------------------------------------------- labeled pairs


def flagged(methods: tuple[str, ...], words: int) -> dict[str, list[bool]]:
    """Return, by method, whether each labeled pair is among the findings of all statements in all benchmark statements."""
    findings = indexed(BENCHMARK, methods, words).find([pair["statement"] for pair in PAIRS])
    known = {(one.row, BENCHMARK[int(one.id)], one.method) for one in findings}
    return {method: [(row, pair["benchmark"], method) in known for row, pair in enumerate(PAIRS)] for method in methods}


def precision_and_recall(flags: list[bool], pairs: list[dict]) -> tuple[float, float]:
    right = sum(flag and pair["contaminated"] for flag, pair in zip(flags, pairs, strict=True))
    return right / max(sum(flags), 1), right / sum(pair["contaminated"] for pair in pairs)


@pytest.fixture(scope="module")
def flags() -> dict[str, list[bool]]:
    """Return whether each labeled pair is found, by method, and by any of the three verified ones."""
    made = flagged(VERIFIED, words=13)
    together = [any(some) for some in zip(*made.values(), strict=True)]
    return {**made, "together": together, **flagged(("plain-ngram",), words=8), **flagged(("number-free",), words=13)}


def test_labelled_pairs_are_enough_of_each():
    """There are at least 120 distinct pairs, at least 40 of them hard negatives."""
    assert len({(pair["benchmark"], pair["statement"]) for pair in PAIRS}) == len(PAIRS) >= 120
    assert sum(not pair["contaminated"] for pair in PAIRS) >= 40


@pytest.mark.parametrize(
    ("method", "precision", "recall"),
    [
        ("exact", 1.0, 0.29),
        ("ngram", 0.94, 0.74),
        ("minhash", 0.95, 0.47),
        ("together", 0.92, 0.8),
        ("number-free", 0.72, 0.13),
        ("plain-ngram", 0.66, 0.54),
    ],
)
def test_labelled_pairs_are_told_apart_as_well_as_measured(flags, method, precision, recall):
    """Precision and recall on all pairs are at least those measured when the pairs were written.

    Measured with 13 tokens and a similarity of 0.7: exact 1.000 and 0.293, ngram 0.949 and 0.747, minhash 0.959 and
    0.475, the three together 0.930 and 0.808, number-free 0.722 and 0.131; open-r1's rule with its 8 words 0.667 and
    0.545.
    """
    measured = precision_and_recall(flags[method], PAIRS)
    assert measured[0] >= precision
    assert measured[1] >= recall


def test_labelled_pairs_within_reach_are_nearly_all_found(flags):
    """Of copies with the same words or formulas, whatever spelling, order or context, 0.925 are found."""
    within = [n for n, pair in enumerate(PAIRS) if pair["kind"] not in OUT_OF_REACH]
    measured = precision_and_recall([flags["together"][n] for n in within], [PAIRS[n] for n in within])
    assert measured[1] >= 0.92


def test_hard_negatives_fool_the_plain_rule_more_often(flags):
    """On common mathematical phrases, the three methods together flag less than half of what open-r1's rule flags."""
    negatives = [n for n, pair in enumerate(PAIRS) if not pair["contaminated"]]
    assert 2 * sum(flags["together"][n] for n in negatives) < sum(flags["plain-ngram"][n] for n in negatives)


# ------------------------------------------------------------------------------------------------------ slow references


class Slow:
    """Compares each row with each benchmark statement, only by similarity.py."""

    def __init__(self, benchmark: list[str], words: int, similarity: float):
        self.benchmark, self.similarity = benchmark, similarity
        self.normal, self.shingles = [normal(text) for text in benchmark], [shingles(text) for text in benchmark]
        self.overlap = []
        for text in benchmark:
            self.overlap.append(Overlap(words))
            self.overlap[-1].add("", text)

    def find(self, row: int, text: str) -> set[tuple]:
        """Return row, id, method and evidence of each finding."""
        found, mine, own = set(), shingles(text), normal(text)
        for n, (theirs, made, overlap) in enumerate(zip(self.normal, self.shingles, self.overlap, strict=True)):
            if own and own == theirs:
                found.add((row, str(n), "exact", 1.0))
            if run := overlap.find(text):
                found.add((row, str(n), "ngram", round(run.words / len(theirs.split()), 6)))
            if own == theirs:
                found.add((row, str(n), "minhash", 1.0)) if own else None
            elif mine.numbers == made.numbers:
                similarity = max(jaccard(mine.words, made.words), jaccard(mine.formulas, made.formulas))
                if similarity >= (self.similarity if mine.order == made.order else max(self.similarity, 0.9)):
                    found.add((row, str(n), "minhash", round(similarity, 6)))
        return found


def differences(benchmark: list[str], rows: list[str], words: int, similarity: float) -> tuple[set, set]:
    """Return the findings of only the slow reference, and of only the index."""
    slow = Slow(benchmark, words, similarity)
    expected = set().union(*(slow.find(row, text) for row, text in enumerate(rows)))
    made = indexed(benchmark, VERIFIED, words, similarity)
    actual = {(one.row, one.id, one.method, round(one.similarity, 6)) for one in made.find(rows)}
    return expected - actual, actual - expected


def changed(rng: random.Random, texts: list[str]) -> str:
    """Vary a statement: another word, a part removed, a part of another one, other LaTeX, other case."""
    words = rng.choice(texts).split(" ")
    for _ in range(rng.randrange(4)):
        place, way = rng.randrange(len(words)), rng.randrange(6)
        if way == 0:
            words[place] = rng.choice(("some", "apples", "$q$", "7", r"\alpha", "Tomas"))
        elif way == 1:
            words = words[: place + 1] if rng.random() < 0.5 else words[place:]
        elif way == 2:
            words[place:place] = rng.choice(texts).split(" ")[: rng.randint(1, 40)]
        elif way == 3:
            words = [word.replace(r"\frac", r"\dfrac").replace("=", " = ").replace("$", "$$") for word in words]
        elif way == 4:
            words = [word.upper() if "\\" not in word else word for word in words]
        else:
            del words[place : place + rng.randint(0, 3)]
            words = words or ["Find"]
    return " ".join(words)


@pytest.mark.parametrize(("words", "similarity"), [(13, 0.9), (8, 0.75)])
def test_find_of_labelled_pairs_is_what_all_comparisons_find(words, similarity):
    """For every labeled statement and every benchmark statement, no finding is missed or added."""
    assert differences(BENCHMARK, STATEMENTS, words, similarity) == (set(), set())


@pytest.mark.parametrize("seed", range(6))
def test_find_of_variations_is_what_all_comparisons_find(seed):
    """For rows cut, spliced and respelled at random, proposals miss no finding of the slow comparison."""
    rng = random.Random(seed)
    benchmark = [changed(rng, BENCHMARK) if rng.random() < 0.5 else text for text in BENCHMARK]
    rows = [changed(rng, BENCHMARK) for _ in range(200)]
    assert differences(benchmark, rows, *rng.choice([(13, 0.9), (8, 0.75), (20, 0.5)])) == (set(), set())


def test_find_of_real_problems_is_what_all_comparisons_find(data):
    """Real statements, complete and shortened, have the slow comparison's findings against the AIME's."""

    def read(path: str) -> list[str]:
        return [json.loads(line)["problem"] for line in (data / path).read_text().splitlines()]

    benchmark = read("aime/aime24.jsonl") + read("harp/proof_even.jsonl")[::3]
    rng = random.Random(0)
    rows = benchmark + read("math/train_every5th.jsonl")[:100]
    rows += [changed(rng, rows) for _ in range(150)]
    assert differences(benchmark, rows, 13, 0.9) == (set(), set())


# ---------------------------------------------------------------------------------------------------------------- plain

WORDS = ("a", "B", "b,", "İ", "ß", "Σ", "\x00", "\u200b", "é", "\x1b", "$x$")
SPACES = (" ", "  ", "\t", "\n", "\x1c", "\x85", "\xa0", "\u2003", "\u3000")
TEXTS = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from(SPACES)),
    max_size=12,
).map(lambda parts: "".join(word + space for word, space in parts))


def ngrams(text: str, n: int) -> set[str]:
    words = re.sub(r"\s+", " ", text.lower().strip()).split(" ")
    return {" ".join(words[start : start + n]) for start in range(len(words) - n + 1)}


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, max_size=4), st.lists(TEXTS, max_size=6), st.integers(1, 4))
def test_plain_ngram_flags_what_the_plain_rule_flags(benchmark, rows, words):
    """Rows and benchmark statements equal those of sets of strings, whatever the white space."""
    expected = {
        (row, str(n))
        for row, text in enumerate(rows)
        for n, theirs in enumerate(benchmark)
        if (ngrams(text, words) & ngrams(theirs, words)) - {""}
    }
    found = list(indexed(benchmark, ("plain-ngram",), words).find(rows))
    assert {(one.row, one.id) for one in found} == expected
    for one in found:
        assert len(one.span.split()) >= words
        assert " ".join(one.span.lower().split()) in " ".join(benchmark[int(one.id)].lower().split())


def test_plain_ngram_keeps_punctuation_apart_and_finds_no_short_text():
    """`x,` is not `x`, and a text with fewer words than `words` has no run: the unchanged rule of open-r1."""
    text = "one two three four five six seven eight"
    assert [one.similarity for one in found(text, text.upper(), "plain-ngram", words=8)] == [1.0]
    assert found(text, text.replace("four", "four,"), "plain-ngram", words=8) == []
    assert found(text, text, "plain-ngram", words=9) == []


# ------------------------------------------------------------------------------------------------------------- findings

ALICE = "Alice the architect and Bob the builder play a game on a board with seven rows, and Alice moves first."


def test_finding_shows_row_benchmark_method_span_and_similarity():
    """A post that quotes a statement in other LaTeX is evidence, in its own spelling."""
    rows = ["Nothing.", f"My teacher asked: {ALICE.replace('seven rows', '$7$ rows')} Any ideas?"]
    benchmark = ["Find $x$.", ALICE.replace("seven rows", r"\(7\) rows")]
    (one,) = indexed(benchmark, similarity=0.9).find(rows)
    assert (one.row, one.id, one.method, one.similarity) == (1, "1", "ngram", 1.0)
    assert one.span == ALICE.replace("seven rows", "$7$ rows")[:-1]


def test_similarity_of_a_run_is_the_share_of_the_benchmark_statement():
    """A row that quotes 13 of a statement's 20 tokens covers 0.65."""
    (one,) = found(ALICE, " ".join(ALICE.split()[:13]), "ngram")
    assert one.similarity == 13 / len(ALICE.split())


def test_minhash_takes_a_changed_number_for_another_problem():
    """A near duplicate with the same numbers is found with its Jaccard similarity; with another number it is not."""
    text = f"{ALICE} Each of them has 12 pieces, and a piece may move to any of the 5 nearest fields that nobody holds."
    near = text.replace("nobody", "no player")
    (one,) = found(text, near, "minhash", similarity=0.8)
    assert one.similarity == jaccard(shingles(text).words, shingles(near).words)
    assert found(text, near.replace("12", "14"), "minhash", similarity=0.8) == []


@pytest.mark.parametrize("method", LOOKED_UP)
def test_findings_of_a_row_are_at_most_ten_the_most_similar_first(method):
    """Of 17 matching benchmark statements, the ten most similar are findings, ties in their order."""
    longer = f"{ALICE} Carol the carpenter looks on."
    findings = indexed([longer] * 5 + [ALICE] * 12, (method,), similarity=0.5).find([ALICE])
    assert [(one.id, one.similarity) for one in findings] == [(str(n), 1.0) for n in range(5, 5 + MOST)]
    fewer = list(indexed([longer] * 5 + [ALICE] * 2, (method,), similarity=0.5).find([ALICE]))
    assert [one.id for one in fewer] == (
        ["5", "6"] if method in ("exact", "number-free") else ["5", "6", "0", "1", "2", "3", "4"]
    )


def test_span_is_one_line_of_at_most_three_hundred_characters():
    """A long span is shortened, white space becomes one space."""
    text = "  ".join(f"word{'abcdefgh'[n % 8]}" for n in range(90))
    for method in LOOKED_UP:
        (one,) = found(text, text, method)
        assert len(one.span) == 300
        assert one.span.startswith("worda wordb wordc")
        assert one.span.endswith("...")


def test_statements_added_after_a_search_are_found_too():
    """An index can grow at any time, and each finding has the right id."""
    made = Index(LOOKED_UP)
    assert list(made.find([ALICE])) == []
    made.add(["first"], ["Find $x$."])
    assert list(made.find([ALICE])) == []
    made.add(["second"], [ALICE])
    assert [(one.id, one.method) for one in made.find([ALICE])] == [("second", method) for method in LOOKED_UP]


def test_ids_without_a_statement_are_refused():
    """A superfluous id is an error, not a silent shift of those that follow."""
    with pytest.raises(ValueError, match="shorter"):
        Index().add(["one", "two"], ["Find $x$."])


def test_unknown_method_is_refused():
    """The message has the misspelled method and the known ones."""
    with pytest.raises(
        ValueError, match="found exakt; expected some of exact, ngram, minhash, plain-ngram, number-free"
    ):
        Index(["exakt"])


def test_find_does_not_depend_on_how_rows_are_divided(monkeypatch):
    """One row at a time, all at once, or chunks of a few hundred characters give the same findings."""
    made = indexed(BENCHMARK, LOOKED_UP)
    whole = list(made.find(STATEMENTS))
    assert len(whole) > 100
    single = [one._replace(row=row) for row, text in enumerate(STATEMENTS) for one in made.find([text])]
    assert single == whole
    monkeypatch.setattr("proofmill.decontamination.index._CHUNK", 700)
    assert list(made.find(STATEMENTS)) == whole


BROKEN = (
    "",
    " ",
    "$",
    "\\",
    r"\frac",
    "{}}",
    "[asy]",
    r"\begin{",
    "\x00",
    "٣",
    "½",
    "👍",
    "²",
    "\n\n",
    "((((",
    "$$$7$$",
    "é",
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(BROKEN), st.text(max_size=30)), max_size=6))
def test_find_takes_any_text(texts):
    """No text makes the search fail, and each text with a token equals itself."""
    found = {(one.row, one.id) for one in indexed(texts, LOOKED_UP).find(texts) if one.method == "exact"}
    same = {
        (a, str(b)) for a, one in enumerate(texts) for b, two in enumerate(texts) if normal(one) == normal(two) != ""
    }
    assert found == same


@pytest.mark.parametrize("method", VERIFIED)
@pytest.mark.parametrize(
    ("benchmark", "statement"),
    [
        (
            "Soit un entier pair supérieur à vingt; démontrer que chaque élément génère un idéal premier fermé.",
            unicodedata.normalize(
                "NFD", "Soit un entier pair supérieur à vingt; démontrer que chaque élément génère un idéal premier fermé."
            ),
        ),
        (
            "已知 函数 f(x)=x^2+3x+1, 求 最小 值. 设 a+b=7, 证明 ab<13; 并且 求 a-b.",
            "已知 函数 f（x）＝x^2＋3x＋1，求 最小 值。设 a＋b＝7，证明 ab＜13；并且 求 a－b。",
        ),
    ],
)  # fmt: skip
def test_statement_in_another_form_of_unicode_is_found(benchmark, statement, method):
    """Accents may be characters of their own, and signs may be full-width, on either side."""
    for one, other in ((benchmark, statement), (statement, benchmark)):
        (finding,) = found(one, f"Exercice. {other}" if method == "ngram" else other, method)
        assert normal(finding.span) == normal(other)

"""Near duplicates and shared runs: same problems, and problems that only look alike."""

import random

import pytest

from proofmill.decontamination.alike import Alike, Match
from proofmill.decontamination.similarity import Overlap, SharedRun, jaccard, shingles
from proofmill.text.statements import tokens

TEMPLATES = [  # pairs of different problems
    ("Prove that $7$ divides $3^2+5^3+2$.", "Prove that $7$ divides $3^2+5^3+9$."),
    ("Prove that $7$ divides $3^2+5^3+2$.", "Prove that $6$ divides $3^2+5^3+2$."),
    (
        "Let $x_0=5$ and $x_{n+1}=3x_n+4$. Find the remainder of $x_3$ modulo $7$.",
        "Let $x_0=5$ and $x_{n+1}=3x_n+4$. Find the remainder of $x_3$ modulo $4$.",
    ),
    (
        "Let $a,b,c$ be positive real numbers such that $a+b+c=1$. Prove that $ab+bc+ca \\le \\frac13$.",
        "Let $a,b,c$ be positive real numbers such that $a+b+c=1$. Prove that $a^3+b^3+c^3+6abc \\ge \\frac14$.",
    ),
    (
        "Find all functions $f:\\mathbb{R}\\to\\mathbb{R}$ such that for all real $x$ and $y$, $f(x+y)=f(x)f(y)+xy$.",
        "Find all functions $f:\\mathbb{R}\\to\\mathbb{R}$ such that for all real $x$ and $y$, $f(xf(y))=yf(x)$.",
    ),
    (
        "The chance that they meet is $\\frac{m}{n}$, where $m$ and $n$ are coprime positive integers. Find $m+n$.",
        "The area of the region is $\\frac{m}{n}$, where $m$ and $n$ are coprime positive integers. Find $m+n$.",
    ),
    (
        "Solve $x^2+y^2=z^2$ in positive integers.",
        "Prove that $x^2+y^2=z^2$ holds for infinitely many coprime triples.",
    ),
    (
        "Show that $a^2+b^2+c^2\\ge ab+bc+ca$ for the sides of a triangle with a right angle.",
        "Using $a^2+b^2+c^2\\ge ab+bc+ca$ or otherwise, find the largest sphere inside a box with diagonal $d$.",
    ),
    (
        "Let $F_1=F_2=1$ and $F_{n+1}=F_n+F_{n-1}$ be Fibonacci numbers. Show that $F_{5n}$ is divisible by $5$.",
        "Let $F_1=F_2=1$ and $F_{n+1}=F_n+F_{n-1}$ be Fibonacci numbers. Show that $\\gcd(F_m,F_n)=F_{\\gcd(m,n)}$.",
    ),
    (
        "Let $ABC$ be an acute triangle with circumcenter $O$ and orthocenter $H$. Prove that $AH=2OM$.",
        "Let $ABC$ be an acute triangle with circumcenter $O$ and orthocenter $H$. Prove that $AH \\perp BC$.",
    ),
    (
        "Let $n$ be a positive integer. Find, with proof, the least positive integer $k$ such that $k^2>n$ always.",
        "Let $n$ be a positive integer. Find, with proof, the least positive integer $k$ such that each graph has one.",
    ),
]
SAME = [  # pairs of one problem
    ("Prove that $7$ divides $3^2+5^3+2$.", "Show that $3^2+5^3+2$ is divisible by $7$."),
    (
        "Let $x_0=5$ and $x_{n+1}=3x_n+4$. Find the remainder of $x_3$ modulo $7$.",
        "A sequence has $x_0=5$ and $x_{n+1}=3x_n+4$. What is the remainder of $x_3$ modulo $7$?",
    ),
    (
        "Determine all positive integers $k$ such that \\[\\frac{1}{n+1}\\sum_{i=0}^{n}\\binom{n}{i}^{k}\\] is "
        "an integer for every positive integer $n$.",
        "Find all positive $k \\in \\mathbb Z$ where $$\\dfrac1{n+1} \\sum_{i=0}^n \\binom ni^k$$ is whole for all $n$.",
    ),
]


def test_alike_finds_exactly_the_pairs_that_all_pairs_jaccard_finds():
    """Prefix filtering misses and adds no pair, at any threshold, for 240 statements full of near repetitions."""
    rng = random.Random(0)
    words = [f"w{n}" for n in range(30)]
    texts = []
    for _ in range(240):
        text = [rng.choice(words) for _ in range(rng.randint(1, 25))]
        if texts and rng.random() < 0.7:
            text = [rng.choice(words) if rng.random() < 0.08 else w for w in rng.choice(texts).split()]
        if rng.random() < 0.3:
            text.insert(rng.randrange(len(text) + 1), f"$x_{rng.randint(1, 2)}={rng.randint(1, 2)}+y+z+3+4+5+6+y^2$")
        texts.append(" ".join(text))
    made = [shingles(text) for text in texts]
    for threshold in (0.3, 0.5, 0.75, 0.9, 1.0):
        index = Alike(threshold)
        for row, new in enumerate(made):
            index.add(str(row), new)
        for new in made:
            pairs = {
                str(row)
                for row, old in enumerate(made)
                if old.numbers == new.numbers
                and max(jaccard(old.words, new.words), jaccard(old.formulas, new.formulas))
                >= (threshold if old.order == new.order else max(threshold, 0.9))
            }
            found = {match.id for match in index.matches(new)}
            assert pairs == found


def test_alike_finds_the_same_after_it_was_made_anew():
    """Of 1,400 statements, beyond the first rebuild of the index, no pair is missed."""
    rng = random.Random(1)
    words = [f"{first}{second}" for first in "bcdfgklmpr" for second in ("ana", "ero", "ilu", "oto", "uda", "yxi")]
    made = []
    for _ in range(1_400):
        repeated = made and rng.random() < 0.5
        text = rng.choice(made).split() if repeated else [rng.choice(words) for _ in range(12)]
        made.append(" ".join(rng.choice(words) if rng.random() < 0.04 else word for word in text))
    index, sets = Alike(0.6), [shingles(text).words for text in made]
    for row, text in enumerate(made):
        found = {int(match.id): match.similarity for match in index.matches(shingles(text))}
        assert found == {n: near for n in range(row) if (near := jaccard(sets[n], sets[row])) >= 0.6}
        index.add(str(row), shingles(text))


def alike(one: str, other: str, threshold: float) -> Match | None:
    index = Alike(threshold)
    index.add("one", shingles(one))
    return index.find(shingles(other))


def test_numbers_that_change_places_make_another_problem():
    """Exchanged numbers are not a near duplicate; a number that moves with its words, and the same formula, is one."""
    steps = "Let $x_0=5$ and $x_{n+1}=4x_n+9$. Find the remainder of $x_4$ modulo $7$."
    exchanged = "Let $x_0=7$ and $x_{n+1}=4x_n+9$. Find the remainder of $x_4$ modulo $5$."
    assert alike(steps, exchanged, 0.7) is None
    assert alike(steps, steps.replace("Find", "Now find"), 0.7) is not None
    moved = alike("Show that $7$ divides $3^2+5^3+2$.", "Show that $3^2+5^3+2$ is divisible by $7$.", 0.7)
    assert moved == ("one", 1.0, "formulas")


@pytest.mark.parametrize(("one", "other"), TEMPLATES)
def test_alike_two_problems_of_one_template_are_different(one, other):
    """Common phrases do not make a near duplicate, even at a low threshold."""
    assert alike(one, other, 0.8) is None


@pytest.mark.parametrize(("one", "other"), SAME)
def test_alike_one_problem_in_other_words_is_found_by_its_formulas(one, other):
    """The same long formulas with the same numbers are the same problem."""
    match = alike(one, other, 0.5)
    assert match is not None
    assert match.by == "formulas"


def test_alike_a_changed_number_makes_another_problem():
    """A long statement that differs in a single number is not a near duplicate."""
    text = (
        "A blackboard contains {} pairs of nonzero integers. A student erases some of them so that no two add to zero."
    )
    assert alike(text.format(68), text.format(68) + " Why?", 0.8) is not None
    assert alike(text.format(68), text.format(69), 0.5) is None


def shared(benchmark: str, statement: str, words: int = 13) -> SharedRun | None:
    index = Overlap(words)
    index.add("bench", benchmark)
    return index.find(statement)


@pytest.mark.parametrize(("one", "other"), TEMPLATES)
def test_overlap_of_a_template_or_common_identity_does_not_count(one, other):
    """A shared run that occurs in hundreds of problems is not contamination."""
    assert shared(one, other) is None
    assert shared(other, one) is None


ALICE = (
    "Alice the architect and Bob the builder play a game. First, Alice chooses two points $P$ and $Q$ in the plane "
    "and a subset $\\mathcal{S}$ of the plane, which are announced to Bob. "
    "Next, Bob marks infinitely many points in the plane."
)


def test_overlap_of_half_a_statement_in_other_latex_shows_the_matched_span():
    """A run is found inside another text, whatever its LaTeX, and the evidence has the row's spelling."""
    row = (
        "First, Alice chooses two points \\(P\\) and \\(Q\\) in the plane and a subset $S$ of the plane, which I draw."
    )
    found = shared(ALICE, row)
    assert found is not None
    assert found.text.startswith("First, Alice chooses two points")
    assert found.text.endswith("of the plane, which")
    assert found.words == len(tokens(found.text))


def test_overlap_shorter_than_the_run_asked_for_does_not_count():
    """Ten shared tokens are found with `words` 10, not with 11."""
    row = "My sister Alice, the architect, and Bob, the builder, play a game of cards."
    length = len(tokens("Alice the architect and Bob the builder play a game"))
    assert shared(ALICE, row, length + 1) is None
    assert shared(ALICE, row, length).words == length


def test_overlap_of_a_short_benchmark_statement_is_the_whole_of_it():
    """A benchmark statement of five to twelve tokens counts as a run; one below five never does."""
    assert (
        shared(
            "Are there infinitely many twin primes?", "My teacher asked: are there infinitely many twin primes??"
        ).words
        == 6
    )
    assert shared("First solution.", "First solution. Let $x$ be real.") is None


def test_overlap_finds_the_longest_run_of_all_benchmarks():
    """Of several matches the longest is the evidence."""
    index = Overlap(13)
    index.add("half", ALICE.partition("Next")[0])
    index.add("whole", ALICE)
    assert index.find(ALICE).id == "whole"


def test_of_equally_similar_statements_the_first_is_found():
    """A benchmark with one problem twice names the first, whatever comes later."""
    index = Alike(0.7)
    for name in ("one", "two", "three"):
        index.add(name, shingles(TEMPLATES[3][0]))
    assert index.find(shingles(TEMPLATES[3][0])) == Match("one", 1.0, "words")

"""The rows nearest to each benchmark statement, against a plain computation of all cosines; number-free copies."""

import math
import random
from collections import Counter

import pytest

from proofmill.decontamination.index import Index
from proofmill.decontamination.nearest import Nearest
from proofmill.text.statements import tokens

ANNA = "Anna bakes 12 rye loaves for the market, and a heron steals 5 of them. How many loaves does Anna sell?"


def cosines(benchmark, row):
    """Compute the cosine of a row and each benchmark statement, from the definition."""
    counts = [Counter(token.text for token in tokens(text)) for text in (*benchmark, row)]
    holders = Counter(token for one in counts[:-1] for token in one)
    rarity = {token: math.log(1 + len(benchmark) / (holders[token] or 1)) for one in counts for token in one}
    vectors = [{token: number * rarity[token] for token, number in one.items()} for one in counts]
    norms = [math.sqrt(sum(weight**2 for weight in one.values())) for one in vectors]
    mine = vectors[-1]
    return [
        sum(weight * mine.get(token, 0) for token, weight in one.items()) / (norm * norms[-1] or 1)
        for one, norm in zip(vectors[:-1], norms, strict=False)
    ]


def test_nearest_rows_are_those_of_a_plain_computation():
    """Of 120 random rows the three nearest to each of 25 statements, with their cosines, above the minimum."""
    rng = random.Random(1)
    words = [f"word{letter}" for letter in "abcdefghijklmnopqrst"]
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(145)]
    benchmark, rows = texts[:25], texts[25:]
    index = Nearest(benchmark, most=3, least=0.4)
    for number, row in enumerate(rows):
        index.see((str(number),), row)
    all_cosines = [cosines(benchmark, row) for row in rows]
    for other in range(len(benchmark)):
        near = [(round(mine[other], 9), -number) for number, mine in enumerate(all_cosines) if mine[other] >= 0.4]
        expected = sorted(near, reverse=True)[:3]
        found = index.of(other)
        assert [round(one.cosine, 9) for one in found] == [cosine for cosine, _ in expected]
        assert all(all_cosines[int(one.row[0])][other] == pytest.approx(one.cosine) for one in found)


def test_terms_of_a_formula_tell_more_than_the_words_around_it():
    """The same sum in other words is nearer than the same words about another sum of the same digits."""
    index = Nearest(["Prove that $7$ divides $2^3+4^5+1$.", "Prove that $7$ divides $4^3+5^2+1$."], most=2, least=0.0)
    index.see(("same words",), "Prove that $7$ divides $5^3+2^4+1$.")
    index.see(("same sum",), "Show that $4^5+2^3+1$ is divisible by $7$.")
    assert [one.row for one in index.of(0)] == [("same sum",), ("same words",)]


def test_row_apart_leaves_its_place_to_the_next():
    """A statement excluded for a row does not keep it, and the row displaces no other."""
    index = Nearest([ANNA], most=1, least=0.1)
    index.see(("copy",), ANNA, {0})
    index.see(("near",), f"{ANNA} The heron eats rye.")
    assert [one.row for one in index.of(0)] == [("near",)]


def test_empty_texts_are_near_to_nothing():
    """No statements, empty ones and empty rows have no neighbors, and raise no error."""
    Nearest([], 3, 0.0).see(("a",), ANNA)
    index = Nearest(["", ANNA], most=3, least=0.0)
    for text in ("", "Unrelated."):
        index.see((text,), text)
    assert index.of(0) == index.of(1) == []


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (ANNA.replace("12", "340").replace("5", "17"), True),
        (ANNA.replace("12", "twelve"), True),
        (ANNA.replace("rye", "oat"), False),
        (f"Hello. {ANNA}", False),
    ],
)
def test_number_free_sees_the_same_text_with_other_numbers(row, found):
    """Other numbers, in digits or words, do not matter; another word does."""
    index = Index(("number-free",))
    index.add(["x"], [ANNA])
    assert [one.method for one in index.find([row])] == ["number-free"] * found


def test_number_free_sees_the_same_text_with_other_names():
    """A name that also occurs within a sentence does not matter."""
    index = Index(("number-free",))
    index.add(["x"], [ANNA])
    assert len(list(index.find([ANNA.replace("Anna", "Boris")]))) == 1


def test_number_free_takes_a_template_for_no_evidence():
    """Two statements that share fewer than three distinctive words share only a template."""
    index = Index(("number-free",))
    index.add(["x"], ["Find the remainder of $12345$ modulo $7$."])
    assert list(index.find(["Find the remainder of $999$ modulo $4$."])) == []

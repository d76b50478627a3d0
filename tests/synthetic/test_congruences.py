"""The family: its problems, statements and proofs."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.synthetic import congruences
from proofmill.synthetic.congruences import BOUNDS, FAMILIES, Congruence
from proofmill.synthetic.parts import PARTS

SOME = list(itertools.islice(congruences.problems("train", 0), 400))


def brute_residue(problem: Congruence) -> int:
    """Compute the residue by plain arithmetic on the formula, independent of the module."""
    n, m = problem.numbers, problem.modulus
    if problem.family == "recurrence":
        values = [n[0]]
        for _ in range(n[3]):
            values.append(n[1] * values[-1] + n[2])
        return values[-1] % m
    return eval(problem.formula.replace("^", "**")) % m


def test_residue_of_every_family_equals_plain_arithmetic():
    """The residue of a problem equals the result of plain arithmetic."""
    assert [brute_residue(p) for p in SOME] == [p.residue for p in SOME]


@pytest.mark.parametrize("wording", [0, 1])
def test_statement_is_parsed_in_every_wording(wording):
    """A statement in any wording is parsed as the problem that it was written for."""
    assert [congruences.read(congruences.statement(p, wording)) for p in SOME] == SOME


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Prove that $x$ divides $2$.",
        "Prove that $7$ divides $3^2+5^3$.",
        "Prove that $7$ divides $3^1+4$.",
        "Prove that $7$ divides $3^2+5*3+1$.",
        "Prove that $٧$ divides $3^2+1$.",
        "Compute $4*5$.",
        "Prove that $0$ divides $2^3+3^2+1$.",
        "Find the remainder of $5$ modulo $7$.",
        "Find the remainder of $57$ modulo $0$.",
        f"Find the remainder of ${'5' * 5000}$ modulo $7$.",
        "Let $x_0=1$ and $x_{n+1}=2x_n+3$. Find the remainder of $x_0$ modulo $7$.",
    ],
)
def test_statement_outside_the_family_is_not_parsed(text):
    """Statements outside the family give None."""
    assert congruences.read(text) is None


@given(st.integers(), st.sampled_from(FAMILIES))
def test_drawn_problem_is_true_or_false_as_requested(seed, family):
    """A drawn statement of divisibility is true, or false with true=False."""
    rng = random.Random(seed)
    assert not congruences.draw(rng, family).asks_for_proof or congruences.draw(rng, family).residue == 0
    wrong = congruences.draw(rng, family, true=False)
    assert not wrong.asks_for_proof or wrong.residue != 0


def test_parts_are_disjoint_for_all_seeds():
    """No problem of one part is in another, because its part is a function of its content."""
    drawn = {part: set(itertools.islice(congruences.problems(part, seed), 300)) for seed, part in enumerate(PARTS)}
    assert all(p.part == part for part, some in drawn.items() for p in some)
    assert not set.intersection(*drawn.values())


def test_part_is_the_same_for_terms_in_any_order():
    """A sum in another order is the same problem, in the same part."""
    for problem in itertools.islice(congruences.problems("train", 0, ("powers", "products")), 100):
        *numbers, last = problem.numbers
        turned = [n for pair in reversed(list(zip(numbers[::2], numbers[1::2], strict=True))) for n in pair]
        assert Congruence(problem.family, problem.modulus, (*turned, last)).part == "train"
        if problem.family == "products":
            assert Congruence("products", problem.modulus, (*reversed(numbers), last)).part == "train"


def test_problems_of_a_seed_are_distinct_and_reproducible():
    """The same seed gives the same problems, without duplicates."""
    again = list(itertools.islice(congruences.problems("train", 0), 400))
    assert again == SOME
    assert len(set(SOME)) == 400


@pytest.mark.parametrize("family", FAMILIES)
def test_size_is_the_number_of_parts(family):
    """A problem has the requested number of powers, products, digits or steps, and the lines for them."""
    least, most = BOUNDS[family][0], 9
    for size in range(least, most + 1):
        problem = congruences.draw(random.Random(size), family, sizes={family: [size, size]})
        parts = {"digits": len(problem.numbers), "recurrence": problem.numbers[-1]}
        assert parts.get(family, len(problem.numbers) // 2) == size
        lines = {"digits": size - 1, "recurrence": size}.get(family, size + 1)
        assert len(congruences.checkpoints(problem)) == lines
        assert congruences.read(congruences.statement(problem)) == problem


def test_family_without_a_size_has_the_default():
    """Sizes apply to their families; others keep the default."""
    drawn = itertools.islice(congruences.problems("dev", 0, ("digits", "recurrence"), {"digits": [7, 8]}), 60)
    sizes = {(p.family, len(p.numbers) if p.family == "digits" else p.numbers[3]) for p in drawn}
    assert sizes == {("digits", 7), ("digits", 8), ("recurrence", 2), ("recurrence", 3), ("recurrence", 4)}


def test_exhausted_family_ends_instead_of_running_forever():
    """Drawing from a family with few problems ends."""
    drawn = list(congruences.problems("dev", 0, ("recurrence",)))
    assert 300 < len(drawn) < 3000

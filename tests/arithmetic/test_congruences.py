"""The family, its checker and its rubric."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.arithmetic import congruences
from proofmill.arithmetic.congruences import FAMILIES, PARTS, Congruence

SOME = list(itertools.islice(congruences.problems("train", 0), 400))


def brute_residue(problem: Congruence) -> int:
    """The residue by plain arithmetic on the formula, independent of the module."""
    n, m = problem.numbers, problem.modulus
    if problem.family == "recurrence":
        values = [n[0]]
        for _ in range(n[3]):
            values.append(n[1] * values[-1] + n[2])
        return values[-1] % m
    return eval(problem.formula.replace("^", "**")) % m


def test_residue_of_every_family_equals_plain_arithmetic():
    """The residue that a problem is about is the one plain arithmetic gives."""
    assert [brute_residue(p) for p in SOME] == [p.residue for p in SOME]


@pytest.mark.parametrize("wording", [0, 1])
def test_statement_is_read_back_in_every_wording(wording):
    """A statement in any wording states the problem it was written for."""
    assert [congruences.read(congruences.statement(p, wording)) for p in SOME] == SOME


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Prove that $x$ divides $2$.",
        "Prove that $7$ divides $3^2+5^3$.",
        "Compute $4*5$.",
        "Prove that $0$ divides $2^3+3^2+1$.",
        "Find the remainder of $5$ modulo $7$.",
        "Find the remainder of $57$ modulo $0$.",
        f"Find the remainder of ${'5' * 5000}$ modulo $7$.",
        "Let $x_0=1$ and $x_{n+1}=2x_n+3$. Find the remainder of $x_0$ modulo $7$.",
    ],
)
def test_statement_outside_the_family_is_not_read(text):
    """What the family does not contain is not guessed at."""
    assert congruences.read(text) is None


def test_complete_proof_gets_full_marks():
    """The reference solution of every problem is worth 7 (the canary of the grader)."""
    assert {7} == {congruences.check(p, congruences.proof(p)).marks() for p in SOME}


@pytest.mark.parametrize(
    "text", ["", "So the residue is \\boxed{0}.", "<think>plan</think>", "<think>a</think><think>b</think>\n\\boxed{0}"]
)
def test_proof_in_the_wrong_format_gets_nothing(text):
    """Without closed reasoning and a box there are no marks, whatever else is there."""
    assert congruences.check(SOME[0], text).marks() == 0


def test_proof_without_its_last_line_gets_less():
    """A truncated proof is worth less than a complete one, and more than none."""
    for problem in SOME:
        lines = congruences.proof(problem).split("\n")
        shorter = "\n".join([*lines[:-2], lines[-1]])
        assert 0 < congruences.check(problem, shorter).marks() < 7


def test_false_line_caps_the_mark():
    """A proof with a false line is worth at most 4, even when all true lines are there too."""
    for problem in SOME:
        text = congruences.proof(problem).replace("\nSo the", "\n3*3=9≡8.\nSo the")
        assert congruences.check(problem, text).false
        assert congruences.check(problem, text).marks() <= 4


@pytest.mark.parametrize("line", ["1+1≡2", "a≡b", "2*3=6≡0 mod 3", "12≡≡3", "5*=5≡0", "9≡9", f"{'3' * 5000}≡0"])
def test_line_that_cannot_be_read_is_a_false_line(line):
    """Noise in the shape of a calculation earns nothing and costs the cap."""
    problem = Congruence("products", 3, (2, 3, 3, 3, 3))
    text = congruences.proof(problem).replace("\nSo the", f"\n{line}.\nSo the")
    assert (line,) == congruences.check(problem, text).false


def test_repeated_line_counts_once():
    """Writing one needed line several times does not replace the others."""
    problem = Congruence("products", 7, (2, 3, 4, 5, 2))
    first = congruences.checkpoints(problem)[0]
    text = f"<think>x</think>\n{first}.\n{first}.\n{first}.\nSo the residue is \\boxed{{0}}."
    assert congruences.check(problem, text).valid == 1


def test_conclusion_of_a_divisibility_needs_its_proof():
    """That the residue is 0 is given away by the statement: boxing it earns nothing by itself."""
    problem = next(p for p in SOME if p.asks_for_proof)
    assert congruences.check(problem, "<think>x</think>\nSo the residue is \\boxed{0}.").marks() == 0


@given(st.integers(), st.sampled_from(FAMILIES))
def test_drawn_problem_is_true_exactly_when_asked(seed, family):
    """A drawn statement of divisibility holds, or with true=False does not."""
    rng = random.Random(seed)
    assert not congruences.draw(rng, family).asks_for_proof or congruences.draw(rng, family).residue == 0
    wrong = congruences.draw(rng, family, true=False)
    assert not wrong.asks_for_proof or wrong.residue != 0


def test_parts_are_disjoint_whatever_the_seed():
    """No problem of one part is in another, for any seeds and sizes, because its part is a function of its content."""
    drawn = {part: set(itertools.islice(congruences.problems(part, seed), 300)) for seed, part in enumerate(PARTS)}
    assert all(p.part == part for part, some in drawn.items() for p in some)
    assert not set.intersection(*drawn.values())


def test_problems_of_a_seed_are_distinct_and_reproducible():
    """The same seed gives the same problems, and none twice."""
    again = list(itertools.islice(congruences.problems("train", 0), 400))
    assert again == SOME
    assert len(set(SOME)) == 400


def test_sloppy_proofs_span_the_scale():
    """Forum proofs are worth anything from little to full marks: there is something to reject and something to learn."""
    rng = random.Random(0)
    marks = {congruences.check(p, congruences.sloppy_proof(p, rng)).marks() for p in SOME}
    assert {0, 7} <= marks
    assert len(marks) >= 5


def test_exhausted_family_ends_instead_of_running_forever():
    """A family with few problems is not drawn from for ever."""
    found = list(congruences.problems("dev", 0, ("recurrence",)))
    assert 300 < len(found) < 3000

"""Small proofs: their points, and their grading as a task."""

import itertools
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.graders.program_graders import PROGRAMS
from proofmill.graders.submissions import Submission
from proofmill.graders.verdicts import read_boxed_number
from proofmill.sources.generated import proofs
from proofmill.synthetic.small_proofs import BOUNDS, GUIDELINES, check

STATEMENT = "Which number is the largest: 41, 7, 63? Prove it."


def made(part: str, seed: int, family: str, count: int, sizes=None) -> list[tuple[str, str]]:
    """Return statements and solutions of one family, as the source yields them."""
    entry = SimpleNamespace(split=part, seed=seed, families=[family], sizes=sizes or {})
    return [(row["statement"], row["solution"]) for row in itertools.islice(proofs(entry), count)]


@pytest.mark.parametrize(
    ("proof", "points"),
    [
        ("63\n63 > 41, 63 > 7", 3),
        (" 63 \n63 > 7, 63 > 41\n", 3),
        ("63\n63 > 41", 2),  # one is missing
        ("41\n63 > 41, 63 > 7", 2),  # another number
        ("63\n63 > 41, 41 > 7", 2),  # true, but it compares the largest only once
        ("63\n63 > 41, 7 > 63", 1),  # false
        ("63\n63 > 41, 63 > 8", 1),  # a number that is not given
        ("63\n63 > 63", 1),
        ("63", 1),
        ("63 > 41, 63 > 7", 0),  # no first line
        ("63\n63 > 41, 63 > 7 and so on", 1),
        ("63\n63 > 41, 63 > 7, 63 > 100", 1),
        ("41\n41 > 7", 1),
        ("41, 7, 63\n", 0),
        ("", 0),
        (f"63\n63 > {'1' * 5000}", 1),
    ],
)
def test_points_of_a_proof(proof, points):
    """A point for the number, for true comparisons of given numbers, for all comparisons of the largest."""
    found, lost = check(STATEMENT, proof)
    assert found == points
    assert lost.count("Lost: ") == 3 - points


@given(st.text(alphabet="0123456789>, \n", max_size=40))
def test_no_text_gets_more_than_a_proof_may(proof):
    """All points need the largest number and each comparison of it."""
    points, _ = check(STATEMENT, proof)
    assert 0 <= points <= 3
    if points == 3:
        assert proof.split("\n", 1)[0].strip() == "63" and {"63 > 41", "63 > 7"} <= set(re.findall(r"\d+ > \d+", proof))


@pytest.mark.parametrize("part", ["train", "test"])
def test_solutions_get_all_points(part):
    """The solution follows from the statement, for any size."""
    for statement, solution in made(part, 0, "proof", 200, {"proof": BOUNDS["proof"]}):
        assert check(statement, solution) == (3, "")
        assert solution.split("\n")[0] == max(re.findall(r"\d+", statement), key=int)


def test_grading_as_a_task_has_the_points_of_the_program():
    """A judge that answers so gives a verdict; every grade occurs, and no proof of one part is in another."""
    counts = Counter()
    for statement, solution in made("train", 0, "points", 300):
        problem, proof = re.search(r"\A(.*?)\n\n1 point.*them\.\n\n(.*?)\n\nPoints", statement, re.DOTALL).groups()
        assert GUIDELINES in statement
        assert read_boxed_number(solution, 3) == check(problem, proof)[0]
        counts[solution] += 1
    assert len(counts) == 4 and min(counts.values()) > 50


def test_parts_share_no_numbers():
    """Neither a proof nor its grading occurs in two parts."""
    seen = [
        {tuple(sorted(re.findall(r"\d+", solution))) for _, solution in made(part, seed, "proof", 150)}
        for part, seed in (("train", 0), ("dev", 0), ("test", 1))
    ]
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(seen, 2))


def test_grader_says_what_is_lost():
    """The program grades a submission, and its text names the points that are missing."""
    with PROGRAMS["small-proofs"].open() as grade:
        (verdict,) = grade([Submission(STATEMENT, None, None, "63\n63 > 41")])
        (untold,) = grade([Submission("Prove that the sum of two odd numbers is even.", None, None, "63\n63 > 41")])
    assert verdict.grade == 2 and untold.grade is None
    assert "the largest is compared with all others" in verdict.text

"""Synthetic forum threads: their contents and shares."""

import json

import pytest

from proofmill.sources.threads import thread
from proofmill.synthetic import congruences, forum, grading
from proofmill.synthetic.congruences import Congruence
from proofmill.synthetic.forum import SHARES
from proofmill.synthetic.grading import MAX_POINTS


@pytest.fixture(scope="module")
def made() -> list[dict]:
    return list(forum.threads("train", 0, 1500))


def statements(threads: list[dict]) -> list[Congruence | None]:
    return [congruences.read(t["response"]["response"]["posts"][0]["post_canonical"]) for t in threads]


def test_threads_with_the_same_seed_are_the_same(made):
    """A thread depends on part, seed and families alone, so more rows begin with the same threads."""
    assert json.dumps(made[:50]) == json.dumps(list(forum.threads("train", 0, 50)))
    assert json.dumps(made[:50]) != json.dumps(list(forum.threads("train", 1, 50)))


def test_threads_of_a_part_have_problems_of_that_part_only(made):
    """Every problem of the family in a thread belongs to the requested part."""
    for part, threads in (("train", made), ("test", list(forum.threads("test", 0, 200)))):
        assert {part} == {problem.part for problem in statements(threads) if problem}


def test_threads_have_each_fault_in_about_its_share(made):
    """Reposts, rewordings and threads outside the family have about the frequencies of SHARES."""
    stated = statements(made)
    known = [p for p in stated if p]
    again = 100 * (len(known) - len(set(known))) / len(made)
    other = 100 * (len(made) - len(known)) / len(made)
    false = 100 * sum(p.asks_for_proof and p.residue != 0 for p in known) / len(made)
    assert abs(again - SHARES["reworded"] - SHARES["repost"]) < 3
    assert abs(other - SHARES["spam"] - SHARES["image"] - SHARES["computational"]) < 3
    assert 0.5 < false < 4


def test_thread_of_a_true_problem_has_a_verbatim_forum_proof_as_its_solution(made):
    """The parser selects the most thanked proof and does not change it."""
    best = 0
    for record, problem in zip(made, statements(made), strict=True):
        if problem is None or (problem.asks_for_proof and problem.residue != 0):
            continue
        posts = record["response"]["response"]["posts"]
        proofs = [p for p in posts[1:] if "\\boxed" in p["post_canonical"]]
        if proofs:
            most = max(proofs, key=lambda p: p["thanks_received"])["post_canonical"]
            assert most == thread("x", record)["solution"]
            best += grading.check(problem, most).points() == MAX_POINTS
    assert best > len(made) // 4


def test_thread_with_an_objection_is_mostly_about_a_proof_with_a_false_line(made):
    """Most proofs with an objection have a false line."""
    founded = objections = 0
    for record, problem in zip(made, statements(made), strict=True):
        row = thread("x", record)
        if any(c.startswith("I think this is wrong: ") for c in row["candidates"]):
            objections += 1
            founded += bool(grading.check(problem, row["solution"]).false)
    assert objections > 20
    assert founded > 0.5 * objections


def test_thread_of_a_false_statement_says_so_in_its_solution(made):
    """The selected solution of a false statement is the reply that calls it false."""
    false = [
        thread("x", record)["solution"]
        for record, problem in zip(made, statements(made), strict=True)
        if problem and problem.asks_for_proof and problem.residue != 0
    ]
    assert false
    assert all("the statement is false" in solution for solution in false)


def test_threads_of_a_small_family_end_when_it_is_exhausted():
    """The threads end, instead of repeating, when no problem of the part is left."""
    threads = list(forum.threads("test", 0, 100_000, ("recurrence",)))
    assert 100 < len(threads) < 100_000

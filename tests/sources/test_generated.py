"""Tasks about tiny programs: proposed, solved and graded."""

import json
from collections import Counter
from itertools import islice

import pytest

from proofmill.graders.code_grading import read_tests
from proofmill.sandbox.executor import Executor
from proofmill.schema.entries.problem_entries import Problems
from proofmill.selfplay_tasks import proposals, solutions
from proofmill.selfplay_tasks.tasks import Task, from_row
from proofmill.selfplay_tasks.validity import valid
from proofmill.sources import generated
from proofmill.sources.generated import FAMILIES, INPUTS
from proofmill.text.fences import is_formed


def rows(count: int, **fields) -> list[dict]:
    return list(islice(generated.tasks(Problems(source="tiny-programs", **fields)), count))


@pytest.fixture(scope="module")
def executor():
    with Executor() as opened:
        yield opened


def test_solutions_of_every_family_get_full_grades(executor):
    """The answer of a demonstration is correct when it is executed."""
    solved = [row for row in rows(162) if row["answer"]]
    tasks = [from_row(json.loads(row["answer"])) for row in solved]
    answers = [solutions.parse(task.kind, row["solution"]) for task, row in zip(tasks, solved, strict=True)]
    assert solutions.grade(tasks, answers, executor) == [1.0] * 108


def test_answers_of_every_family_can_be_graded():
    """The grader `tests` parses each as a task."""
    assert all(isinstance(read_tests(row["answer"]), Task) for row in rows(162) if row["answer"])


def test_proposals_of_every_family_are_valid_tasks(executor):
    """A demonstration proposes a task with the number of lines of its family."""
    proposed = [row for row in rows(162) if not row["answer"]]
    read = [
        proposals.parse(row["tags"][0], row["solution"], row["statement"].partition("\n")[2], INPUTS)
        for row in proposed
    ]
    lines = [len(task.program.splitlines()) - 2 for task in valid(read, executor)]
    assert lines == [int(row["level"][-1]) for row in proposed]


def test_replies_are_in_the_form_that_self_play_asks_for():
    """A reply has reasoning in its tags, then an answer in its own."""
    assert all(is_formed(row["solution"]) for row in rows(81))


def test_rows_are_distinct_and_of_their_part():
    """No statement occurs twice; a program of one part occurs in no other."""
    train, test = rows(300, families=["deduce-2"]), rows(60, families=["deduce-2"], split="test")
    bodies = [{from_row(json.loads(row["answer"])).program for row in some} for some in (train, test)]
    assert len({row["statement"] for row in train}) == 300
    assert not bodies[0] & bodies[1]


def test_family_that_is_exhausted_leaves_the_rows_to_the_others():
    """Test programs have no family of one line, and few inductions: the others continue without repeats."""
    few = rows(300, families=["deduce-1", "induce-2", "abduce-3"], split="test")
    count = Counter(row["level"] for row in few)
    assert count == {"induce-2": 32, "abduce-3": 268}
    assert len({row["statement"] for row in few}) == 300


def test_families_are_a_role_a_task_and_a_number_of_lines():
    """The list that entries are checked against has all names; a brief family has no reasoning."""
    assert len(FAMILIES) == 81
    assert rows(1, families=["propose-abduce-4"])[0]["tags"] == ["abduce", "propose"]
    assert rows(1, families=["brief-induce-4"])[0]["solution"].startswith("<think></think>")

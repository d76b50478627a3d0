"""Tasks: what stands for one, as plain data and back, why there is none."""

import dataclasses

import pytest

from proofmill.tasks.tasks import REASONS, TASKS, Invalid, Task, from_row

DEDUCE = Task("deduce", "def f(a):\n    return a", "1", "1", step=3)
INDUCE = Task("induce", "def f(a):\n    return a", inputs=("1", "2", "3"), outputs=("1", "2", "3"), message="Same.")


@pytest.mark.parametrize("task", [DEDUCE, INDUCE, dataclasses.replace(DEDUCE, written="return a")])
def test_task_is_the_same_after_plain_data(task):
    """A row has an id and all fields, and gives the task back."""
    row = task.row()
    assert row["id"] == task.id and from_row(row) == task
    assert from_row({key: value for key, value in row.items() if value}) == task


def test_id_stands_for_the_task_and_not_for_its_step():
    """Who proposed it and when does not matter; kind, program, values and message do."""
    assert dataclasses.replace(DEDUCE, step=9, written="x").id == DEDUCE.id
    others = [{"kind": "abduce"}, {"program": "x"}, {"input": "2"}, {"output": "2"}, {"message": "m"}]
    assert len({DEDUCE.id, *(dataclasses.replace(DEDUCE, **other).id for other in others)}) == 6


@pytest.mark.parametrize(("pairs", "shown"), [(10, 5), (6, 3), (7, 3), (1, 0)])
def test_induction_shows_the_first_half(pairs, shown):
    """Rounded down: what is left is never fewer."""
    values = tuple(map(str, range(pairs)))
    assert Task("induce", "", inputs=values, outputs=values).shown == shown


def test_own_part_is_all_of_a_program_unless_functions_were_given():
    """`written` is empty where the proposer wrote it all."""
    assert DEDUCE.own == DEDUCE.program
    assert dataclasses.replace(DEDUCE, written="def f(a): return g_0(a)").own == "def f(a): return g_0(a)"


def test_reason_that_nobody_knows_is_refused():
    """Every reason is one that a page explains."""
    assert all(Invalid(reason).reason == reason for reason in REASONS)
    with pytest.raises(ValueError, match=r"'because'; expected one of format, no-program"):
        Invalid("because")


def test_every_reason_has_a_sentence():
    """They are shown to people."""
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in REASONS.values())
    assert len(TASKS) == 4

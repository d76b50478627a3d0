"""Tasks: ids, conversion to rows and back, and reasons."""

import dataclasses

import pytest

from proofmill.selfplay_tasks.tasks import REASONS, TASKS, Invalid, Task, from_row

DEDUCE = Task("deduce", "def f(a):\n    return a", "1", "1", step=3)
INDUCE = Task("induce", "def f(a):\n    return a", inputs=("1", "2", "3"), outputs=("1", "2", "3"), message="Same.")


@pytest.mark.parametrize("task", [DEDUCE, INDUCE, dataclasses.replace(DEDUCE, proposed="return a")])
def test_task_survives_conversion_to_a_row(task):
    """A row has an id and all fields, and is converted back to the same task."""
    row = task.row()
    assert row["id"] == task.id and from_row(row) == task
    assert from_row({key: value for key, value in row.items() if value}) == task


def test_id_depends_on_content_and_not_on_step():
    """Proposer and step do not matter; kind, program, values and message do."""
    assert dataclasses.replace(DEDUCE, step=9, proposed="x").id == DEDUCE.id
    others = [{"kind": "abduce"}, {"program": "x"}, {"input": "2"}, {"output": "2"}, {"message": "m"}]
    assert len({DEDUCE.id, *(dataclasses.replace(DEDUCE, **other).id for other in others)}) == 6


@pytest.mark.parametrize(("pairs", "shown"), [(10, 5), (6, 3), (7, 3), (1, 0)])
def test_induction_shows_the_first_half(pairs, shown):
    """The number of shown pairs is rounded down."""
    values = tuple(map(str, range(pairs)))
    assert Task("induce", "", inputs=values, outputs=values).shown == shown


def test_own_part_is_the_full_program_unless_functions_were_given():
    """`proposed` is empty if the proposer wrote the full program."""
    assert DEDUCE.own == DEDUCE.program
    assert dataclasses.replace(DEDUCE, proposed="def f(a): return g_0(a)").own == "def f(a): return g_0(a)"


def test_unknown_reason_is_refused():
    """Only the reasons of REASONS are accepted."""
    assert all(Invalid(reason).reason == reason for reason in REASONS)
    with pytest.raises(ValueError, match=r"'because'; expected one of format, no-program"):
        Invalid("because")


def test_every_reason_has_a_sentence():
    """Each begins with a capital letter and ends with a period."""
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in REASONS.values())
    assert len(TASKS) == 4

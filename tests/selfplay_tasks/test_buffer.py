"""Buffers: kept tasks, draws, and restoring the state."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill.selfplay_tasks.buffer import Buffers
from proofmill.selfplay_tasks.tasks import Task


def task(number, kind="deduce", step=0):
    """Build the task of a number."""
    return Task(kind, f"def f(a):\n    return a + {number}", "0", str(number), step=step)


def filled(count=20, capacity=100, keep="newest", kind="deduce"):
    """Build buffers with one task for each step from 0."""
    buffers = Buffers(["deduce", "abduce", "induce"], capacity, keep)
    buffers.add(task(number, kind, step=number) for number in range(count))
    return buffers


def numbers(tasks):
    """Return the numbers of tasks."""
    return [int(each.output) for each in tasks]


# ----------------------------------------------------------------------------------------------------------------- keep


@given(st.integers(1, 5), st.lists(st.integers(0, 9), max_size=30), st.sampled_from(["newest", "oldest"]))
@settings(deadline=None)
def test_full_buffer_keeps_what_is_declared(capacity, added, keep):
    """It keeps the last or the first of the distinct tasks, like a list that is truncated after each addition."""
    buffers = Buffers(["deduce"], capacity, keep)
    expected: list[int] = []
    for number in added:
        new = buffers.add([task(number)])
        if number not in expected and (keep == "newest" or len(expected) < capacity):
            expected.append(number)
            assert numbers(new) == [number]
        else:
            assert new == []
        expected = expected[-capacity:]
        assert numbers(buffers.tasks["deduce"]) == expected


def test_same_task_is_kept_once_for_each_kind():
    """Proposer and step do not matter."""
    buffers = Buffers(["deduce", "abduce"])
    assert len(buffers.add([task(1), task(1, step=5), task(1, "abduce"), replace(task(1), proposed="x")])) == 2
    assert len(buffers) == 2 and buffers.tasks["deduce"][0].step == 0


def test_task_of_a_kind_without_a_buffer_is_an_error():
    """A kind that the entry does not name has no buffer."""
    with pytest.raises(KeyError):
        Buffers(["deduce"]).add([task(1, "abduce")])


# ----------------------------------------------------------------------------------------------------------- references


def test_references_are_drawn_without_replacement():
    """The requested number or all tasks are drawn, with equal probabilities."""
    buffers, rng = filled(20), random.Random(0)
    drawn = [numbers(buffers.references("deduce", 6, rng)) for _ in range(1000)]
    assert all(len({*some}) == 6 for some in drawn)
    counts = Counter(number for some in drawn for number in some)
    assert min(counts.values()) > 220 and max(counts.values()) < 380  # 300 expected, standard deviation 14.5
    assert len(filled(3).references("deduce", 6, rng)) == 3
    assert buffers.references("abduce", 6, rng) == []


def test_references_by_step_prefer_late_tasks():
    """Drawn one at a time, each task's share is proportional to its step + 1."""
    buffers, rng = filled(4), random.Random(0)
    counts = Counter(numbers(buffers.references("deduce", 1, rng, "step"))[0] for _ in range(4000))
    assert [counts[number] / 4000 for number in range(4)] == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.03)
    assert sorted(numbers(buffers.references("deduce", 4, rng, "step"))) == [0, 1, 2, 3]


def test_references_that_do_not_fit_are_redrawn():
    """A prompt that is too long is redrawn, then drawn with fewer references, finally with none."""
    buffers, rng = filled(20), random.Random(0)
    small = buffers.references("deduce", 6, rng, fits=lambda tasks: max(numbers(tasks)) < 19)
    assert len(small) == 6 and 19 not in numbers(small)
    assert len(buffers.references("deduce", 6, rng, fits=lambda tasks: len(tasks) <= 2)) == 2
    assert buffers.references("deduce", 6, rng, fits=lambda tasks: False) == []


def test_induction_is_about_programs_of_the_other_kinds():
    """The programs of deductions and abductions are used, each once."""
    buffers = filled(3)
    buffers.add(
        [task(1, "abduce", step=9), task(7, "abduce"), Task("induce", "def f(a): ...", inputs=("1",), outputs=("1",))]
    )
    assert sorted(numbers(buffers.programs())) == [0, 1, 2, 7]
    assert {numbers(buffers.references("induce", 1, random.Random(seed)))[0] for seed in range(50)} == {0, 1, 2, 7}
    assert Buffers(["induce"]).programs() == []


# --------------------------------------------------------------------------------------------------------- solver tasks


@pytest.mark.parametrize(
    ("mix", "window", "count", "expected"),
    [
        ("max-new", 1, 2, {18, 19}),  # at step 19 those of steps 18 and 19 are new
        ("max-new", 3, 4, {16, 17, 18, 19}),
    ],
)
def test_new_tasks_come_first(mix, window, count, expected):
    """All new tasks are drawn first, in any order."""
    for seed in range(20):
        drawn = filled().to_solve("deduce", count, 19, random.Random(seed), mix, window)
        assert {*numbers(drawn)} == expected


def test_rest_is_filled_from_the_full_buffer_without_repeating():
    """Twenty tasks are the two new and all other ones; only more than twenty repeat some."""
    drawn = numbers(filled().to_solve("deduce", 20, 19, random.Random(0)))
    assert {*drawn[:2]} == {18, 19} and sorted(drawn) == list(range(20))
    assert len(filled().to_solve("deduce", 50, 19, random.Random(0))) == 50


def test_half_new_takes_new_tasks_for_at_most_half():
    """Of eight tasks, the first four are new and the rest are any."""
    for seed in range(20):
        drawn = numbers(filled().to_solve("deduce", 8, 19, random.Random(seed), "half-new", 9))
        assert {*drawn[:4]} <= {*range(10, 20)} and len({*drawn}) == 8
    others = [numbers(filled().to_solve("deduce", 8, 19, random.Random(seed), "half-new", 9))[4:] for seed in range(20)]
    assert any(number < 10 for some in others for number in some)


def test_uniform_ignores_steps():
    """All tasks have equal probabilities."""
    rng, buffers = random.Random(0), filled(4)
    counts = Counter(numbers(buffers.to_solve("deduce", 1, 3, rng, "uniform"))[0] for _ in range(4000))
    assert [counts[number] / 4000 for number in range(4)] == pytest.approx([0.25] * 4, abs=0.03)


def test_step_draws_with_replacement_by_step():
    """The weights are step + 1, so seeds can be drawn."""
    drawn = numbers(filled(4).to_solve("deduce", 4000, 3, random.Random(0), "step"))
    assert [drawn.count(number) / 4000 for number in range(4)] == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.03)


def test_seeds_are_never_new():
    """At the first step no task is new, and seeds fill the batch."""
    buffers = Buffers(["deduce"])
    buffers.add(task(number) for number in range(5))
    drawn = [numbers(buffers.to_solve("deduce", 2, 1, random.Random(seed), "half-new")) for seed in range(50)]
    assert {number for some in drawn for number in some} == {*range(5)}


@pytest.mark.parametrize("mix", ["max-new", "half-new", "uniform", "step"])
def test_tasks_that_do_not_fit_are_not_drawn(mix):
    """Others are drawn instead, repeatedly if there are too few."""
    drawn = filled().to_solve("deduce", 8, 19, random.Random(0), mix, fits=lambda each: each.step % 5 == 0)
    assert len(drawn) == 8 and {each.step % 5 for each in drawn} == {0}
    assert filled().to_solve("deduce", 8, 19, random.Random(0), mix, fits=lambda each: False) == []
    assert filled().to_solve("abduce", 8, 19, random.Random(0), mix) == []


def test_draws_are_those_of_their_seed():
    """The same seed gives the same tasks, also from restored buffers."""
    buffers = filled()
    again = Buffers.from_state(json.loads(json.dumps(buffers.state())))
    for draw in (
        lambda each, rng: each.references("deduce", 6, rng),
        lambda each, rng: each.references("deduce", 6, rng, "step"),
        lambda each, rng: each.to_solve("deduce", 12, 19, rng),
    ):
        assert draw(buffers, random.Random(5)) == draw(buffers, random.Random(5)) == draw(again, random.Random(5))


# ------------------------------------------------------------------------------------------------------------ plain data


def test_state_is_complete():
    """It has tasks, steps, order, capacity and policy; rolled-back buffers continue as before."""
    buffers = filled(5, capacity=6)
    state = json.loads(json.dumps(buffers.state()))
    buffers.add(task(number, step=9) for number in range(50, 60))
    back = Buffers.from_state(state)
    assert back.tasks == filled(5, capacity=6).tasks and back.capacity == 6 and back.keep == "newest"
    assert back.add([task(4)]) == [] and len(back.add([task(50), task(51)])) == 2
    assert numbers(back.tasks["deduce"]) == [1, 2, 3, 4, 50, 51]


def test_table_is_read_back():
    """It has one row per task, by kind, oldest first; an empty buffer gives a table without rows."""
    buffers = filled(3)
    buffers.add([Task("induce", "def f(a): ...", inputs=("1", "2"), outputs=("1", "2"), message="m", proposed="w")])
    table = buffers.table()
    again = Buffers(["deduce", "abduce", "induce"])
    assert len(again.add_table(table)) == 4 == table.num_rows
    assert again.tasks == buffers.tasks
    assert table.column("id").to_pylist() == [each.id for tasks in buffers.tasks.values() for each in tasks]
    assert Buffers(["deduce"]).table().schema == table.schema

"""Type counters: counts, surprise, and rollback."""

import json

import pytest

from proofmill.selfplay_tasks.counters import Counters, type_of
from proofmill.selfplay_tasks.tasks import Task


@pytest.mark.parametrize(
    ("literal", "name"),
    [("1", "int"), ("1.5", "float"), ("'a'", "str"), ("1, 2", "tuple"), ("[1]", "list"), ("{}", "dict"), ("None", "NoneType"),
     ("set()", "set"), ("True", "bool"), ("lambda x: x", "str"), ("x=1", "str"), ("", "str")],
)  # fmt: skip
def test_type_of_a_literal(literal, name):
    """Several arguments are a tuple, a text that is no literal is a str."""
    assert type_of(literal) == name


def counted():
    """Count four integers, three of them distinct, and one text."""
    counters = Counters()
    counters.add("input", ["1", "1", "2", "3", "'a'"])
    return counters


@pytest.mark.parametrize(
    ("literal", "flat", "hierarchical"),
    [
        ("1", 1 - 2 / 5, (1 / 5 + 2 / 4) / 2),
        ("2", 1 - 1 / 5, (1 / 5 + 3 / 4) / 2),
        ("9", 1, (1 / 5 + 1) / 2),
        ("'a'", 1 - 1 / 5, (4 / 5 + 0) / 2),
        ("[]", 1, 1),
    ],
)
def test_surprise_is_one_minus_the_share(literal, flat, hierarchical):
    """The share is of the literal, or of its type and of the literal within the type; it may be 0."""
    assert counted().surprise("input", literal) == pytest.approx(flat)
    assert counted().surprise("input", literal, hierarchical=True) == pytest.approx(hierarchical)
    assert counted().surprise("output", literal) == counted().surprise("output", literal, True) == 1


def test_mean_surprise_is_over_the_literals_of_a_task():
    """The mean over several literals; 0 without any."""
    assert counted().mean_surprise("input", ["1", "9"]) == pytest.approx((0.6 + 1) / 2)
    assert counted().mean_surprise("input", []) == 0


def test_tasks_are_counted_by_what_they_have():
    """All pairs of an induction are counted, and an exception as an error."""
    counters = Counters()
    counters.add_task(Task("deduce", "p", "1, 2", "3"))
    counters.add_task(Task("induce", "p", inputs=("1", "2"), outputs=("'a'", "'a'")))
    counters.add_task(Task("error", "p", "0", "ValueError"))
    assert counters.counts["input"] == {"tuple": {"1, 2": 1}, "int": {"1": 1, "2": 1, "0": 1}}
    assert counters.counts["output"] == {"int": {"3": 1}, "str": {"'a'": 2}}
    assert counters.surprise("error", "ValueError") == 0 and counters.surprise("error", "KeyError") == 1
    assert counters.metrics() == {
        "input-types": 2, "input-distinct": 4, "input-total": 4, "output-types": 2, "output-distinct": 2, "output-total": 3,
        "error-types": 1, "error-distinct": 1, "error-total": 1,
    }  # fmt: skip


def test_counters_are_rolled_back():
    """Counts after a checkpoint are lost on restoring it."""
    counters = counted()
    state = json.loads(json.dumps(counters.state()))
    counters.add("input", ["[]", "1"])
    back = Counters.from_state(state)
    assert back.counts == counted().counts
    back.add("input", ["[]"])
    assert back.surprise("input", "[]") == pytest.approx(1 - 1 / 6)

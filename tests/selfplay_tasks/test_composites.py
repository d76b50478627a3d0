"""Composites: given functions, their schedule, and programs that call them."""

import random

import pytest

from proofmill.selfplay_tasks.composites import CompositeSchedule, compose, draw_functions, is_single, misuse
from proofmill.selfplay_tasks.program_text import parse_program
from proofmill.selfplay_tasks.proposals import Proposal
from proofmill.selfplay_tasks.tasks import Invalid, Task

ADD = Task("deduce", "def f(a):\n    return a + 1", "1", "2")
FACT = Task("deduce", "import math\ndef f(n):\n    return 1 if n < 2 else n * f(n - 1)", "3", "6")
HELPED = Task("deduce", "def h(a):\n    return a\ndef f(a):\n    return h(a)", "1", "1")
STATE = Task("deduce", "seen = []\ndef f(a):\n    return a", "1", "1")


@pytest.mark.parametrize(
    ("step", "probability", "functions"),
    [(1, 0.1, 1), (100, 0.1, 1), (101, 0.11, 2), (150, 0.11, 2), (151, 0.12, 3), (201, 0.13, 3), (10_000, 0.8, 3)],
)
def test_schedule_rises_every_fifty_steps_from_step_101(step, probability, functions):
    """The probability rises by 0.01 up to 0.8, the number of functions by one up to three."""
    assert CompositeSchedule(probability=0.1).at(step) == (pytest.approx(probability), functions)


def test_schedule_may_be_constant():
    """Without gain the probability stays, even above the maximum."""
    assert CompositeSchedule(probability=0.5, gain=0, functions=2, max_functions=2).at(900) == (0.5, 2)
    assert CompositeSchedule(probability=0.9).at(900)[0] == 0.9
    assert CompositeSchedule(gain=0).at(900)[0] == 0


def test_functions_are_given_under_new_names():
    """They are named g_0 and g_1, including recursive calls, and run together."""
    source = draw_functions([ADD, FACT], 2, random.Random(0))
    spaces: dict = {}
    exec(source, spaces)
    assert sorted([spaces["g_0"](4), spaces["g_1"](4)]) == [5, 24] and "f" not in spaces


def test_only_single_functions_are_given():
    """Programs with helpers or global state are not given, because names could collide."""
    assert [is_single(task.program) for task in (ADD, FACT, HELPED, STATE)] == [True, True, False, False]
    assert draw_functions([ADD, ADD, HELPED, STATE], 2, random.Random(0)) == ""
    assert draw_functions([ADD], 0, random.Random(0)) == ""


def test_composed_program_keeps_its_own_part():
    """The given functions precede it, and an invalid proposal stays invalid."""
    own = Proposal("deduce", "def f(a):\n    return g_0(a)", ("1",))
    composite = compose(own, "def g_0(a):\n    return a")
    assert composite.program == "def g_0(a):\n    return a\n\ndef f(a):\n    return g_0(a)"
    assert composite.proposed == own.program
    assert compose(own, "") == own and compose(Invalid("syntax"), "x") == Invalid("syntax")


@pytest.mark.parametrize(
    ("own", "fault"),
    [
        ("def f(a):\n    return g_0(a) + g_1(a + 1)", None),
        ("import math\ndef f(a):\n    b = [g_0(x) for x in a]\n    return g_1(b, k=g_0(math.pi))", None),
        ("def f(a):\n    return g_0(a)", "it does not call `g_1`"),
        ("def h(a):\n    return g_0(a) + g_1(a)\ndef f(a):\n    return h(a)", "it does not call `g_0`"),
        ("def g_0(a):\n    return a\ndef f(a):\n    return g_0(g_1(a))", "it changes `g_0`"),
        ("def f(a):\n    g_1 = abs\n    return g_0(g_1(a))", "it changes `g_1`"),
        ("def f(g_0):\n    return g_0(g_1(1))", "it changes `g_0`"),
        ("k = 3\ndef f(a):\n    return g_0(k) + g_1(a)", "it passes `k`, which is not in the scope of `f`"),
        ("def h(a):\n    return g_0(a) + g_1(a)", "no function `f`"),
    ],
)
def test_program_must_call_the_given_functions(own, fault):
    """It must call each in `f`, redefine none, and pass only names from the scope of `f`."""
    source = "def g_0(a):\n    return a\ndef g_1(a, k=1):\n    return a\n"
    assert misuse(parse_program(f"{source}\n{own}"), parse_program(own)) == fault

"""Intrinsic rewards: complexity and distance of programs, on examples counted by hand."""

import math

import pytest

from proofmill.selfplay_tasks.intrinsic import (
    Science,
    cognitive_complexity,
    complexity,
    cyclomatic_complexity,
    edit_distance,
    halstead,
)
from proofmill.selfplay_tasks.program_text import parse_program

SUM_OF_PRIMES = """
def f(limit):
    total = 0
    for i in range(2, limit):          # +1
        for j in range(2, i):          # +2
            if i % j == 0:             # +3
                break
        else:
            total += i
    return total
"""
BRANCHES = """
def f(a, b):
    if a and b and not a:              # +1, +1 for `and`
        return 1
    elif a or b:                       # +1, +1 for `or`
        return f(b, a)                 # +1 for the recursion
    else:                              # +1
        try:
            return 1 if a else 2       # +2 (nested in else)
        except ValueError:             # +2
            while b:                   # +3
                b = f(b, b)
"""


@pytest.mark.parametrize(
    ("source", "cognitive", "cyclomatic"),
    [
        ("def f(a):\n    return a", 0, 1),
        (SUM_OF_PRIMES, 6, 5),
        (BRANCHES, 13, 9),
        ("def f(a):\n    return [x for x in a if x]", 2, 3),
        ("def f(a):\n    return any(x for y in a for x in y)", 2, 3),
        ("def f(a):\n    def g(b):\n        if b:\n            return 1\n    return g", 2, 2),
        ("def f(a):\n    return (lambda b: 1 if b else 0)(a)", 2, 2),
        ("def f(a):\n    assert a\n    return a", 0, 2),
        ("def f(a):\n    match a:\n        case 1:\n            return 1\n        case _:\n            return 2", 1, 2),
        ("class A:\n    def g(self):\n        if self:\n            return 1\ndef f(a):\n    return a", 1, 2),
        ("x = 1", 0, 0),
    ],
)
def test_complexities_are_those_counted_by_hand(source, cognitive, cyclomatic):
    """Breaks in the flow with their nesting, and paths of the largest function."""
    tree = parse_program(source)
    assert (cognitive_complexity(tree), cyclomatic_complexity(tree)) == (cognitive, cyclomatic)


def test_complexity_is_a_share_of_its_threshold():
    """A cognitive complexity of 6 gives 6 / 15, and a program that cannot be parsed 0."""
    assert complexity(SUM_OF_PRIMES) == 0.4 and complexity("def f(") == 0


def test_software_science_of_a_line():
    """a * b + 2 > a: three operators; a (twice), b, 2, and two compound operands."""
    science = Science.of(parse_program("def f(a, b):\n    return a * b + 2 > a"))
    assert (science.operators, science.operands, science.all_operators, science.all_operands) == (3, 5, 3, 6)
    assert science.volume == pytest.approx(9 * math.log2(8))
    assert science.effort == pytest.approx(3 / 2 * 6 / 5 * 27)
    expected = 0.5 * 48.6 / 10_000 + 0.3 * 1 / 10 + 0.2 * 27 / 500
    assert halstead("def f(a, b):\n    return a * b + 2 > a") == round(expected, 3) == 0.043


def test_software_science_separates_names_by_function():
    """The same name in two functions is two operands, an attribute is its own name, and augmented operations count."""
    two = Science.of(parse_program("def g(a):\n    a += 1\n    return a.x and a.x\ndef f(a):\n    return -a"))
    assert (two.operators, two.operands, two.all_operators, two.all_operands) == (3, 4, 3, 5)


def test_software_science_of_a_program_without_operations_is_0():
    """Nothing is divided by 0, and a program that cannot be parsed has the value 0."""
    nothing = Science.of(parse_program("def f(a):\n    pass"))
    assert nothing.volume == nothing.difficulty == nothing.effort == 0
    assert halstead("def f(a):\n    pass") == 0.03 and halstead("(") == 0


def test_halstead_is_at_most_1():
    """Each of the three parts is limited to its weight."""
    body = "\n".join(
        f"    if a > {n} and a * {n} < b + {n} - a % {n + 1}:\n        b += a // {n + 2}" for n in range(40)
    )
    assert halstead(f"def f(a, b):\n{body}\n    return b") == 1


def test_distance_ignores_layout():
    """Layout and comments do not matter; the mean is over the references that can be parsed."""
    program = "def f(a):\n    return a + 1"
    assert edit_distance(program, ["def f( a ):  # adds\n\n    return (a+1)"]) == 0
    near, far = "def f(a):\n    return a - 1", SUM_OF_PRIMES
    assert 0 < edit_distance(program, [near]) < edit_distance(program, [far]) < 1
    assert edit_distance(program, [program, far, "def f("]) == pytest.approx(edit_distance(program, [far]) / 2)
    assert edit_distance(program, []) == edit_distance("def f(", [program]) == 0


def test_deepest_program_that_is_parsed_has_values():
    """A program of the maximal depth has its values, and a deeper one the value 0."""
    for levels, measured in ((190, True), (5_000, False)):
        program = f"def f(a):\n    return {' + '.join(['a'] * levels)}"
        assert (halstead(program) > 0) is (edit_distance(program, ["def f(a):\n    return a"]) > 0) is measured
        assert complexity(program) == 0

"""Tiny programs and their worked solutions, compared with Python."""

import random

import pytest

from proofmill.synthetic import tiny_programs
from proofmill.synthetic.tiny_programs import Chain

SOME = [tiny_programs.draw(random.Random(seed), 1 + seed % 7, "train") for seed in range(200)]


def run(source: str, digit: int) -> int:
    """Execute a program and return its value."""
    names: dict = {}
    exec(source, names)
    return names["f"](digit)


@pytest.mark.parametrize("digit", range(10))
def test_value_of_a_chain_equals_that_of_python(digit):
    """A chain has the value of its executed source."""
    assert [chain(digit) for chain in SOME] == [run(chain.source, digit) for chain in SOME]


def test_part_of_a_chain_is_decided_by_its_function():
    """Programs with the same values are in the same part, for all letters and lines."""
    assert all(Chain(5, chain.lines).part == tiny_programs.shorten(chain)[1].part == "train" for chain in SOME)


def test_reasoning_is_true_line_by_line():
    """Each line is a true equation of last digits; the last one has the output, or the digit."""
    for chain in SOME:
        along, back = tiny_programs.forward(chain, 4).splitlines(), tiny_programs.backward(chain, 4).splitlines()
        assert all(map(is_true, [*along, *back]))
        assert (int(along[-1][-1]), int(back[-1][-1])) == (chain(4), 4)
        assert [line[0] for line in along] == list(chain.names[1:])
        assert [line[0] for line in back] == list(chain.names[-2::-1])


def is_true(line: str) -> bool:
    """Return whether an equation such as `d=4*3=2` is true modulo 10."""
    _, (left, sign, right), value = line.split("=")
    a, b, c = int(left), int(right), int(value)
    return (a - {"+": c - b, "-": c + b, "/": c * b}[sign]) % 10 == 0 if sign != "*" else a * b % 10 == c


def test_shortened_chain_gives_all_values_in_two_lines():
    """Two values determine a program that is correct on every digit."""
    for chain in SOME:
        _, short = tiny_programs.shorten(chain)
        assert [run(short.source, digit) for digit in range(10)] == [chain(digit) for digit in range(10)]
        assert len(short.lines) <= 2


def test_factors_are_those_of_the_family_and_other_numbers_are_digits():
    """Products use FACTORS, so that a chain keeps information; sums and differences use 1 to 9."""
    used = [(sign, number) for chain in SOME for sign, number in chain.lines]
    assert {number for sign, number in used if sign == "*"} <= set(tiny_programs.FACTORS)
    assert {number for sign, number in used if sign != "*"} == set(range(1, 10))

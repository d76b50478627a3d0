"""Tiny programs and their worked solutions, against Python."""

import random

import pytest

from proofmill.arithmetic import programs
from proofmill.arithmetic.programs import Chain

SOME = [programs.draw(random.Random(seed), 1 + seed % 7, "train") for seed in range(200)]


def called(source: str, digit: int) -> int:
    """The value that Python gives."""
    names: dict = {}
    exec(source, names)
    return names["f"](digit)


@pytest.mark.parametrize("digit", range(10))
def test_value_of_a_chain_is_what_python_gives(digit):
    """A chain's value is that of its source."""
    assert [chain(digit) for chain in SOME] == [called(chain.source, digit) for chain in SOME]


def test_part_of_a_chain_is_that_of_its_function():
    """Programs that give the same values are in the same part, whatever their letters and lines."""
    assert all(Chain(5, chain.lines).part == programs.shortened(chain)[1].part == "train" for chain in SOME)


def test_thoughts_are_true_line_by_line():
    """Each line notes a true equation of last digits; the last one finds the output, or the digit."""
    for chain in SOME:
        along, back = programs.forward(chain, 4).splitlines(), programs.backward(chain, 4).splitlines()
        assert all(map(is_true, [*along, *back]))
        assert (int(along[-1][-1]), int(back[-1][-1])) == (chain(4), 4)
        assert [line[0] for line in along] == list(chain.names[1:])
        assert [line[0] for line in back] == list(chain.names[-2::-1])


def is_true(line: str) -> bool:
    """Whether `d=4*3=2` holds modulo 10."""
    _, (left, sign, right), found = line.split("=")
    a, b, c = int(left), int(right), int(found)
    return (a - {"+": c - b, "-": c + b, "/": c * b}[sign]) % 10 == 0 if sign != "*" else a * b % 10 == c


def test_shortened_chain_gives_all_values_in_two_lines():
    """Two values are enough for a program that is right on every digit."""
    for chain in SOME:
        _, found = programs.shortened(chain)
        assert [called(found.source, digit) for digit in range(10)] == [chain(digit) for digit in range(10)]
        assert len(found.lines) <= 2

"""Tiny programs and their worked solutions, against Python."""

import random
import re

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


def test_part_of_a_chain_does_not_depend_on_its_letters():
    """The same program with other names is in the same part."""
    assert all(Chain(5, chain.lines).part == chain.part == "train" for chain in SOME)


def test_thoughts_note_the_digit_of_each_variable():
    """Forwards each line notes what it makes, backwards what it is made of, down to the digit itself."""
    for chain in SOME:
        made = [int(line[-1]) for line in programs.forward(chain, 4).splitlines()]
        used = [int(line[-1]) for line in programs.backward(chain, 4).splitlines()]
        assert (made, used) == (chain.values(4)[1:], chain.values(4)[-2::-1])
        assert [line[:-2] for line in programs.forward(chain, 4).splitlines()] == chain.source.splitlines()[1:-1]


def test_search_finds_a_program_that_gives_all_values():
    """Three pairs are enough for a program that is right on every digit; only the last line of thought says ok."""
    rng = random.Random(0)
    for chain in SOME:
        pairs = [(digit, chain(digit)) for digit in rng.sample(range(10), 3)]
        thought, found = programs.search(pairs)
        assert [found(digit) for digit in range(10)] == [chain(digit) for digit in range(10)]
        assert re.fullmatch(r"(?:.* no\n){0,3}.* ok", thought)


def test_search_says_when_no_program_fits():
    """Pairs that no factor fits are refused."""
    with pytest.raises(ValueError, match="no program"):
        programs.search([(0, 0), (1, 2), (2, 4)])

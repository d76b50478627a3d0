"""Tiny programs on one digit, with solutions worked out line by line: what a model of this size can play with itself.

A program is a chain. Each line makes a new variable of the one before, by adding, subtracting or multiplying:

    def f(c):
     d=c*3
     e=d+8
     return e%10

A solution copies the program line by line, each with the digit that it makes, as in a comment; to find an input it begins
with the last line, each with the digit that it is made of:

    f(4)       d=c*3#2   then   e=d+8#0    so 0
    f(?)=0     e=d+8#2   then   d=c*3#4    so 4

To find a program that fits pairs, it tries the factors in turn: `4*3=2+8=0 7*3=1+8=9 ok` is factor 3, with the summand that
the first pair needs, tried on the second pair. A chain of any length is one factor and one summand.

How we differ from programs that people write: the first variable is any letter, the others follow it in the alphabet, so
that a model that has seen two lines has met the names of ten.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from proofmill.arithmetic.congruences import PARTS

LETTERS = "abcdeghijklmnopq"  # no `f`, which is the function
FACTORS = (1, 3, 7, 9)  # those that can be undone modulo 10


@dataclass(frozen=True)
class Chain:
    """A program by its content: the place of its first letter, and for each line a sign and a number."""

    first: int
    lines: tuple[tuple[str, int], ...]

    @property
    def part(self) -> str:
        """The part that the program belongs to, whatever its letters: train, dev or test."""
        bucket = int(hashlib.sha256(f"chain{self.lines}".encode()).hexdigest(), 16) % 100
        return next(part for part, buckets in PARTS.items() if bucket in buckets)

    @property
    def names(self) -> str:
        """Its variables, in order."""
        return (LETTERS[self.first :] + LETTERS[: self.first])[: len(self.lines) + 1]

    @property
    def body(self) -> list[str]:
        """Its lines between the first and the last."""
        named = zip(self.names[1:], self.names, self.lines, strict=False)
        return [f" {new}={old}{sign}{number}" for new, old, (sign, number) in named]

    @property
    def source(self) -> str:
        return "\n".join([f"def f({self.names[0]}):", *self.body, f" return {self.names[-1]}%10"])

    def values(self, digit: int) -> list[int]:
        """The last digits of its variables."""
        values = [digit]
        for sign, number in self.lines:
            values.append(_apply(sign, values[-1], number))
        return values

    def __call__(self, digit: int) -> int:
        return self.values(digit)[-1]


def _apply(sign: str, value: int, number: int) -> int:
    return (value + number if sign == "+" else value - number if sign == "-" else value * number) % 10


def draw(rng: random.Random, lines: int, part: str) -> Chain:
    """A random program of a part with so many lines."""
    while True:
        signs = [rng.choice("+-*") for _ in range(lines)]
        numbers = [rng.choice(FACTORS[1:]) if sign == "*" else rng.randint(1, 9) for sign in signs]
        chain = Chain(rng.randrange(len(LETTERS)), tuple(zip(signs, numbers, strict=True)))
        if chain.part == part:
            return chain


# ------------------------------------------------------------------------------------------------------ worked solutions


def forward(chain: Chain, digit: int) -> str:
    """The thought that finds the output of a digit."""
    return "\n".join(map(_noted, chain.body, chain.values(digit)[1:]))


def backward(chain: Chain, digit: int) -> str:
    """The thought that finds a digit from its output."""
    return "\n".join(reversed([*map(_noted, chain.body, chain.values(digit)[:-1])]))


def _noted(line: str, digit: int) -> str:
    return f"{line}#{digit}"


def search(pairs: Sequence[tuple[int, int]]) -> tuple[str, Chain]:
    """The thought that finds a factor and a summand for two pairs, trying the factors in turn; and the program.

    Raises ValueError when no factor fits.
    """
    digit, output = pairs[0]
    other, expected = next(pair for pair in pairs[1:] if (pair[0] - digit) % 5)  # 5 times any factor ends in 5
    tried: list[str] = []
    for factor in FACTORS:
        product, second = digit * factor % 10, other * factor % 10
        summand = (output - product) % 10
        found = (second + summand) % 10
        fits = found == expected
        tried.append(
            f"{digit}*{factor}={product}+{summand}={output} {other}*{factor}={second}+{summand}={found} "
            + ("ok" if fits else "no")
        )
        if fits:
            times = [("*", factor)] * (factor != 1)
            return "\n".join(tried), Chain(0, (*times, *[("+", summand)] * (summand > 0 or not times)))
    raise ValueError(f"no program of one factor and one summand gives {pairs[:2]}")

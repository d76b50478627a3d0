"""Tiny programs on one digit, with solutions worked out line by line, for self-play of a tiny model.

A program is a chain. Each line computes a new variable from the previous one, by adding, subtracting or multiplying:

    def f(c):
     d=c*3
     e=d+8
     return e%10

A solution follows the chain forward, or backward from its end, with one line of reasoning for each line of the program.
It has last digits only; `2/3` is the digit that, times 3, ends in 2:

    f(4)      d=4*3=2   then   e=2+8=0   so 0
    f(?)=0    d=0-8=2   then   c=2/3=4   so 4

A chain of any length equals one factor and one summand. The value at 0 is the summand; with the value at 1 it gives the
factor:

    f(0)=8, f(1)=1    1-8=3   so   b=a*3, c=b+8

Differences from programs that people write:
1. There are only 40 functions, so the function decides the part (train, dev or test): no demonstration computes the
   function of a test problem. Proposals of self-play have no parts.
2. The first variable is any letter, and the others follow it in the alphabet. So programs of two lines already use the
   names of programs with ten.
"""

import random
from dataclasses import dataclass

from proofmill.synthetic.parts import part_of

LETTERS = "abcdeghijklmnopq"  # no `f`, which is the function
FACTORS = (3, 7, 9)  # the factors that are invertible modulo 10
_UNDONE = {"+": "-", "-": "+", "*": "/"}


@dataclass(frozen=True)
class Chain:
    """A program by its content: the index of its first letter, and for each line a sign and a number."""

    first: int
    lines: tuple[tuple[str, int], ...]

    @property
    def part(self) -> str:
        """The part of its function: train, dev or test. Programs of other lines can compute the same function."""
        return part_of(f"chain {self(0)} {self(1)}")

    @property
    def names(self) -> str:
        """The variables, in order."""
        return (LETTERS[self.first :] + LETTERS[: self.first])[: len(self.lines) + 1]

    @property
    def source(self) -> str:
        """The source code."""
        names = self.names
        body = (f" {names[i + 1]}={names[i]}{sign}{number}" for i, (sign, number) in enumerate(self.lines))
        return "\n".join([f"def f({names[0]}):", *body, f" return {names[-1]}%10"])

    def values(self, digit: int) -> list[int]:
        """Return the last digits of its variables."""
        values = [digit]
        for sign, number in self.lines:
            values.append(_apply(sign, values[-1], number))
        return values

    def __call__(self, digit: int) -> int:
        return self.values(digit)[-1]


def _apply(sign: str, value: int, number: int) -> int:
    return (value + number if sign == "+" else value - number if sign == "-" else value * number) % 10


def draw(rng: random.Random, lines: int, part: str) -> Chain | None:
    """Draw a random program of a part with `lines` lines; None if a thousand draws give none."""
    for _ in range(1_000):
        signs = [rng.choice("+-*") for _ in range(lines)]
        numbers = [rng.choice(FACTORS) if sign == "*" else rng.randint(1, 9) for sign in signs]
        chain = Chain(rng.randrange(len(LETTERS)), tuple(zip(signs, numbers, strict=True)))
        if chain.part == part:
            return chain
    return None


# ------------------------------------------------------------------------------------------------------ worked solutions


def forward(chain: Chain, digit: int) -> str:
    """Write the reasoning that computes the output of a digit."""
    names, values = chain.names, chain.values(digit)
    return "\n".join(
        f"{names[i + 1]}={values[i]}{sign}{number}={values[i + 1]}" for i, (sign, number) in enumerate(chain.lines)
    )


def backward(chain: Chain, digit: int) -> str:
    """Write the reasoning that computes a digit from its output."""
    names, values = chain.names, chain.values(digit)
    lines = [
        f"{names[i]}={values[i + 1]}{_UNDONE[sign]}{number}={values[i]}" for i, (sign, number) in enumerate(chain.lines)
    ]
    return "\n".join(reversed(lines))


def shorten(chain: Chain) -> tuple[str, Chain]:
    """Write the reasoning that finds a program from the values of a chain at 0 and 1. Return it with the program.

    The program has one or two lines.
    """
    summand, second = chain(0), chain(1)
    factor = (second - summand) % 10
    times = [("*", factor)] * (factor != 1)
    return f"{second}-{summand}={factor}", Chain(0, (*times, *[("+", summand)] * (summand > 0 or not times)))

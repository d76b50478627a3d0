"""Tiny programs on one digit, with solutions worked out line by line: with these a tiny model can play with itself.

A program is a chain. Each line makes a new variable of the one before, by adding, subtracting or multiplying:

    def f(c):
     d=c*3
     e=d+8
     return e%10

A solution works along the chain, or back from its end, one line of thought for each line of the program; it notes last
digits only, and `2/3` is the digit that times 3 ends in 2:

    f(4)      d=4*3=2   then   e=2+8=0   so 0
    f(?)=0    d=0-8=2   then   c=2/3=4   so 4

A chain of any length is one factor and one summand. The value at 0 is the summand, and with that at 1 gives the factor:

    f(0)=8, f(1)=1    1-8=3   so   b=a*3, c=b+8

How we differ from programs that people write:
1. There are only 40 functions, so the part (train, dev or test) is that of the function: no demonstration computes one of
   a test problem. What self-play proposes knows no parts.
2. The first variable is any letter, the others follow it in the alphabet, so that a model that has seen two lines has
   met the names of ten.
"""

import hashlib
import random
from dataclasses import dataclass

from proofmill.arithmetic.congruences import PARTS

LETTERS = "abcdeghijklmnopq"  # no `f`, which is the function
FACTORS = (3, 7, 9)  # those that can be undone modulo 10
_UNDONE = {"+": "-", "-": "+", "*": "/"}


@dataclass(frozen=True)
class Chain:
    """A program by its content: the place of its first letter, and for each line a sign and a number."""

    first: int
    lines: tuple[tuple[str, int], ...]

    @property
    def part(self) -> str:
        """The part of its function, which programs of other lines compute, too: train, dev or test."""
        bucket = int(hashlib.sha256(f"chain {self(0)} {self(1)}".encode()).hexdigest(), 16) % 100
        return next(part for part, buckets in PARTS.items() if bucket in buckets)

    @property
    def names(self) -> str:
        """Its variables, in order."""
        return (LETTERS[self.first :] + LETTERS[: self.first])[: len(self.lines) + 1]

    @property
    def source(self) -> str:
        names = self.names
        body = (f" {names[i + 1]}={names[i]}{sign}{number}" for i, (sign, number) in enumerate(self.lines))
        return "\n".join([f"def f({names[0]}):", *body, f" return {names[-1]}%10"])

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


def draw(rng: random.Random, lines: int, part: str) -> Chain | None:
    """A random program of a part with so many lines; None where a thousand draws find none."""
    for _ in range(1_000):
        signs = [rng.choice("+-*") for _ in range(lines)]
        numbers = [rng.choice(FACTORS) if sign == "*" else rng.randint(1, 9) for sign in signs]
        chain = Chain(rng.randrange(len(LETTERS)), tuple(zip(signs, numbers, strict=True)))
        if chain.part == part:
            return chain
    return None


# ------------------------------------------------------------------------------------------------------ worked solutions


def forward(chain: Chain, digit: int) -> str:
    """The thought that finds the output of a digit."""
    names, values = chain.names, chain.values(digit)
    return "\n".join(
        f"{names[i + 1]}={values[i]}{sign}{number}={values[i + 1]}" for i, (sign, number) in enumerate(chain.lines)
    )


def backward(chain: Chain, digit: int) -> str:
    """The thought that finds a digit from its output."""
    names, values = chain.names, chain.values(digit)
    lines = [
        f"{names[i]}={values[i + 1]}{_UNDONE[sign]}{number}={values[i]}" for i, (sign, number) in enumerate(chain.lines)
    ]
    return "\n".join(reversed(lines))


def shortened(chain: Chain) -> tuple[str, Chain]:
    """The thought that finds a program for the values of a chain at 0 and 1, and that program, of one or two lines."""
    summand, second = chain(0), chain(1)
    factor = (second - summand) % 10
    times = [("*", factor)] * (factor != 1)
    return f"{second}-{summand}={factor}", Chain(0, (*times, *[("+", summand)] * (summand > 0 or not times)))

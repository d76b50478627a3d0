"""Forms of a final answer: a number, an interval, several values, an equation, a word, ..."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Sign = Literal["=", "!=", "<", "<=", ">", ">=", "in", "~"]  # `~` means approximately


@dataclass(frozen=True)
class Number:
    """A number, exactly as written. `places`: digits after the point of a decimal; None for an exact number."""

    value: Fraction
    places: int | None = None
    percent: bool = False


@dataclass(frozen=True)
class Formula:
    """LaTeX that needs a parser of formulas."""

    latex: str


@dataclass(frozen=True)
class Words:
    """An answer in words, in lower case."""

    text: str


@dataclass(frozen=True)
class Several:
    """Several values: a `list` without brackets, a `tuple` in round ones, a `set` in curly ones, `either` option."""

    kind: Literal["list", "tuple", "set", "either"]
    members: tuple["Form", ...]


@dataclass(frozen=True)
class Interval:
    """An interval between two ends, each of which belongs to it (`closed`) or not."""

    low: "Form"
    high: "Form"
    closed: tuple[bool, bool]


@dataclass(frozen=True)
class NamedSet:
    """Numbers of a kind, `Z` or `R`, or a part of them: `>0`, `>=0`, `<0`, `<=0` or `!=0`."""

    name: Literal["N", "Z", "Q", "R", "C"]
    part: str = ""


@dataclass(frozen=True)
class Operation:
    """A union, intersection or difference of intervals, sets or inequalities."""

    sign: Literal["union", "intersection", "difference"]
    parts: tuple["Form", ...]


@dataclass(frozen=True)
class Relation:
    """Sides and the signs between them. `name`: the first side if it is only a name, or denotes a value."""

    sides: tuple["Form", ...]
    signs: tuple[Sign, ...]
    name: str | None = None


@dataclass(frozen=True)
class CongruenceAnswer:
    """A residue of a modulus. The name before it is None in `3 mod 4`."""

    name: str | None
    residue: "Form"
    modulus: "Form"


@dataclass(frozen=True)
class Quantity:
    """A value with a unit or a counted noun; `known` means a unit of measurement."""

    value: "Form"
    unit: str
    known: bool


@dataclass(frozen=True)
class Qualified:
    """A value with words that add meaning: `n odd`, `5 or more`."""

    value: "Form"
    words: str


@dataclass(frozen=True)
class InBase:
    """Digits of a number with an explicit base."""

    digits: str
    base: int


@dataclass(frozen=True)
class Clock:
    """Hours, minutes and seconds between colons; `half` is `am`, `pm` or empty. If it is not `sure`, it may be a ratio."""

    numbers: tuple[int, ...]
    half: str = ""
    sure: bool = False


@dataclass(frozen=True)
class Ratio:
    """Values between colons that are no time of day."""

    parts: tuple["Form", ...]


@dataclass(frozen=True)
class Family:
    """A form with letters that stand for any number of a kind: `k\\pi, k\\in\\mathbb{Z}`. `kind` may be unknown, ""."""

    value: "Form"
    letters: tuple[str, ...]
    kind: str


@dataclass(frozen=True)
class Labeled:
    """A choice, `(B)`, with the value after its label."""

    label: str
    value: "Form"


Form = (
    Number
    | Formula
    | Words
    | Several
    | Interval
    | NamedSet
    | Operation
    | Relation
    | CongruenceAnswer
    | Quantity
    | Qualified
    | InBase
    | Clock
    | Ratio
    | Family
    | Labeled
)


def formulas_in(form: Form) -> Iterator[Formula]:
    """Yield the formulas in a form that must be parsed to compare it, without the name before `=`."""
    parts: tuple[Form, ...] = ()
    match form:
        case Formula():
            yield form
        case Several(_, members):
            parts = members
        case Operation(_, some) | Ratio(some):
            parts = some
        case Interval(low, high):
            parts = (low, high)
        case Relation(sides, _, name):
            parts = sides if name is None else sides[1:]
        case CongruenceAnswer(_, residue, modulus):
            parts = (residue, modulus)
        case Quantity(value) | Qualified(value) | Family(value) | Labeled(_, value):
            parts = (value,)
    for part in parts:
        yield from formulas_in(part)

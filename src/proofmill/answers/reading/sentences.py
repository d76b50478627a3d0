r"""Read answers in which words join, order or restrict formulas: `x \text{ is at least } 1`, `\text{all odd } n`.

Each pattern is of the whole answer, without the commands that set text. What has no pattern stays unread.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations

from proofmill.answers.reading import words
from proofmill.answers.reading.forms import (
    CongruenceAnswer,
    Form,
    NamedSet,
    Number,
    Operation,
    Relation,
    Several,
    Words,
)
from proofmill.answers.reading.structures import STYLED, Read

_ORDERED = 5  # most members of a tuple whose permutations are written out
_WHOLE = r"(?:whole )?(?:integers?|numbers?)"


def _permutations(read: Read, values: str, cyclic: str | None) -> Form | None:
    """Return the different orders of a tuple, or of each tuple of a list."""
    form = read(values)
    rows = form.members if isinstance(form, Several) and form.kind in ("list", "set") else (form,)
    found: dict[Form, None] = {}
    for row in rows:
        if not isinstance(row, Several) or row.kind != "tuple" or len(row.members) > _ORDERED:
            return None
        some = row.members
        orders = [some[n:] + some[:n] for n in range(len(some))] if cyclic else permutations(some)
        found |= {Several("tuple", tuple(order)): None for order in orders}
    return Several("list", tuple(found))


def _except(read: Read, kind: str, values: str) -> Form | None:
    named, left = words.numbers(kind.lower()), read(values)
    if named is None or left is None:
        return None
    members = left.members if isinstance(left, Several) and left.kind in ("list", "set") else (left,)
    return Operation("difference", (NamedSet(*named), Several("set", members)))


def _multiples(read: Read, name: str | None, modulus: str) -> Form | None:
    found = read(modulus)
    return CongruenceAnswer(name, Number(Fraction(0)), found) if found else None


def _remark(read: Read, value: str, remark: str) -> Form | None:
    """Return a number with itself in brackets after it, in words or digits."""
    one, other = read(value), read(remark)
    return (one if isinstance(one, Number) else other) if one is not None and one == other else None


def _parity(read: Read, before: str | None, word: str, after: str | None) -> Form:
    return CongruenceAnswer(before or after, Number(Fraction(word == "odd")), Number(Fraction(2)))


_PATTERNS: tuple[tuple[re.Pattern[str], Callable[..., Form | None]], ...] = tuple(
    (re.compile(pattern, re.DOTALL), build)
    for pattern, build in (
        (r"(?:minus|negative) ?([0-9].*)", lambda read, value: read(f"-{value}")),
        (r"[Ee]ither (.+ or .+)", lambda read, values: read(values)),
        (r"([0-9]+) to ([0-9]+)", lambda read, one, other: read(f"{one}:{other}")),
        (r"([Yy]es|[Nn]o), ?([A-Za-z' ]+)", lambda read, word, rest: Words(f"{word} {rest}".lower())),
        (rf"(?:for |[Ff]or )?(?:[Aa]ll|[Ee]very|[Aa]ny) (?:{_WHOLE} |values? of )?([a-z] ?(?:[<>=]|\\[lg]e(?![a-z])).+)",
         lambda read, relation: read(relation)),
        (r"(?:for |[Ff]or )?(?:[Aa]ll|[Ee]very|[Aa]ny) (?:positive|non ?-?negative) (?:integers?|numbers?) ([a-z] ?(?:>|\\ge(?![a-z])) ?[0-9]+)",
         lambda read, relation: read(relation)),
        (r"(.+?),? ?(?:and|together with) (?:all )?(?:of )?(?:its|their|the|any)? ?(?:other )?(cyclic )?permutations?(?: (?:thereof|of it|of (?:this|these|them)))?",
         _permutations),
        (r"([A-Za-z ]*?[a-z]+),? (?:except(?: for)?|other than|but) (.+)", _except),
        (r"(?=.*(?:\b[a-z]\b|er))(?:all )?(?:([a-z]) (?:is |must be )?(?:an )?)?(?:all )?(odd|even)(?: integers?| numbers?)?(?: ([a-z]))?", _parity),
        (rf"(?:all )?(?:{_WHOLE} )?(?:([a-z]) (?:is )?)?(?:(?:a )?multiples? of|divisible by) ([0-9]+|[a-z])", _multiples),
        (r"([0-9]+)\\mid ?([a-z])", lambda read, modulus, name: _multiples(read, name, modulus)),
        (r"([^()]+?) ?\(([^()]+)\)", _remark),
        (r"(?:[a-z]: ?)?([a-z])\\mapsto(?![a-z]) ?(.+)", lambda read, name, value: read(f"f({name})={value}")),
    )
)  # fmt: skip
_COMPARED = {
    **{"at least": "\\ge", "at most": "\\le", "greater than or equal to": "\\ge", "less than or equal to": "\\le"},
    **{"greater than": ">", "more than": ">", "less than": "<", "equal to": "=", "not equal to": "\\ne"},
}
_RELATION = re.compile(rf"(.+?) (?:is |are |must be )?({'|'.join(_COMPARED)}) (.+)", re.DOTALL)


def read_sentence(text: str, read: Read) -> Form | None:
    """Return the form of an answer with words in one of the known orders; None for another answer."""
    if not re.search(r"[a-z]{2}|\\mid", text):
        return None
    plain = " ".join(STYLED.sub(r" \1 ", text).split()).rstrip(" .")
    if relation := _RELATION.fullmatch(plain):
        form = read(f"{relation[1]}{_COMPARED[relation[2]]} {relation[3]}")
        return None if isinstance(form, Relation) and any(isinstance(side, Words) for side in form.sides) else form
    if plain != text and re.fullmatch(r"(?:There|The|No|no) [A-Za-z ]+", plain):
        return read(plain)
    for pattern, build in _PATTERNS:
        if (found := pattern.fullmatch(plain)) and (form := build(read, *found.groups())) is not None:
            return form
    return None

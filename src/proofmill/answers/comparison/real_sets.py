"""Sets of real numbers as cuts of the line, so that one set has one form, however it is written.

A cut is a place before (0) or after (1) a value. A set is a sorted list of pairs of cuts, which do not touch.
"""

import re
from collections.abc import Callable, Iterable
from fractions import Fraction

from proofmill.answers.reading.forms import (
    Form,
    Formula,
    Interval,
    NamedSet,
    Number,
    Operation,
    Relation,
    Several,
    Sign,
)

TURNED: dict[Sign, Sign] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_ABSOLUTE = re.compile(r"\|([A-Za-z])\|")
INFINITE = Fraction(10) ** 400  # stands for infinity
Cut = tuple[Fraction, int]
Cuts = list[tuple[Cut, Cut]]
Value = Callable[[Form], Fraction | None]  # the value of a form without letters; None without one
_LINE: Cuts = [((-INFINITE, 1), (INFINITE, 0))]
_PARTS: dict[str, Cuts] = {
    "": _LINE,
    ">0": [((Fraction(0), 1), (INFINITE, 0))],
    ">=0": [((Fraction(0), 0), (INFINITE, 0))],
    "<0": [((-INFINITE, 1), (Fraction(0), 0))],
    "<=0": [((-INFINITE, 1), (Fraction(0), 1))],
}


def cuts_of(form: Form, value: Value, several: bool = False) -> tuple[str | None, Cuts] | None:
    """Return a variable's name, if it has one, and its values; None if the form is no set of known real numbers.

    With `several` a list, a tuple of two or a single value is a set, too: it is next to one, as in `(0,1) ∪ {2}`.
    """
    match form:
        case Interval(low, high, closed):
            return _between(None, low, high, closed, value)
        case NamedSet("R", part) if part in _PARTS:
            return None, _PARTS[part]
        case NamedSet("R", "!=0"):
            return None, _complement([((Fraction(0), 0), (Fraction(0), 1))])
        case Several("tuple", (low, high)) if several:
            return _between(None, low, high, (False, False), value)
        case Several("set" | "list", members) if several:
            found = [value(member) for member in members]
            return None if None in found else (None, _union(((one, 0), (one, 1)) for one in found if one is not None))
        case Operation(sign, parts):
            return _combine(sign, parts, value)
        case Several("list", members) if members and all(isinstance(member, Relation) for member in members):
            return _together(members, value)
        case Relation():
            return _of_relation(form, value)
        case Number() | Formula() if several and (point := value(form)) is not None:
            return None, [((point, 0), (point, 1))]
    return None


def _between(
    name: str | None, low: Form, high: Form, closed: tuple[bool, bool], value: Value
) -> tuple[str | None, Cuts] | None:
    first, last = value(low), value(high)
    if first is None or last is None:
        return None
    begin, end = (first, 0 if closed[0] else 1), (last, 1 if closed[1] else 0)
    return name, [(begin, end)] if begin < end else []


def _combine(sign: str, parts: tuple[Form, ...], value: Value) -> tuple[str | None, Cuts] | None:
    found = [cuts_of(part, value, several=True) for part in parts]
    known = [one for one in found if one is not None]
    names = {name for name, _ in known if name}
    if len(known) < len(parts) or len(names) > 1:
        return None
    first, *rest = (cuts for _, cuts in known)
    for cuts in rest:
        if sign == "union":
            first = _union([*first, *cuts])
        else:
            first = _common(first, cuts if sign == "intersection" else _complement(cuts))
    return names.pop() if names else None, first


def _together(members: Iterable[Form], value: Value) -> tuple[str | None, Cuts] | None:
    """Return the values that fulfill all inequalities of a list, which are about one variable."""
    found = [_of_relation(member, value) for member in members if isinstance(member, Relation)]
    known = [one for one in found if one is not None]
    names = {name for name, _ in known}
    if len(known) < len(found) or len(names) != 1:
        return None
    first, *rest = (cuts for _, cuts in known)
    for cuts in rest:
        first = _common(first, cuts)
    return names.pop(), first


def _of_relation(relation: Relation, value: Value) -> tuple[str | None, Cuts] | None:
    """Return the values that an inequality or `in` allows for its variable; None if it has no such form."""
    sides, signs = relation.sides, relation.signs
    for n, side in enumerate(sides):
        if isinstance(side, Formula) and (inside := _ABSOLUTE.fullmatch(side.latex)):
            plain = Relation((*sides[:n], Formula(inside[1]), *sides[n + 1 :]), signs)
            found = _of_relation(plain, value)
            return (found[0], _unfold(found[1])) if found else None
    if signs == ("in",) and (found := cuts_of(sides[1], value, several=True)):
        return variable(sides[0]), found[1]
    if len(sides) == 3 and {*signs} <= {">", ">="}:
        sides, signs = sides[::-1], tuple(TURNED[sign] for sign in signs[::-1])
    if len(sides) == 3 and {*signs} <= {"<", "<="} and (name := variable(sides[1])):
        return _between(name, sides[0], sides[2], (signs[0] == "<=", signs[1] == "<="), value)
    if len(sides) != 2 or signs[0] not in ("<", "<=", ">", ">=", "!="):
        return None
    sign: Sign = signs[0]
    name, end = variable(sides[0]), sides[1]
    if name is None or variable(end):
        name, end, sign = variable(sides[1]), sides[0], TURNED[sign]
    if name is None or variable(end):
        return None
    ends = end.members if isinstance(end, Several) and end.kind == "list" and sign == "!=" else (end,)
    values = [point for one in ends if (point := value(one)) is not None]
    if len(values) < len(ends):
        return None
    point = values[0]
    if sign == "!=":
        return name, _complement(_union(((point, 0), (point, 1)) for point in values))
    begin, end_cut = (-INFINITE, 1), (INFINITE, 0)
    if sign in ("<", "<="):
        return name, [(begin, (point, 1 if sign == "<=" else 0))]
    return name, [((point, 0 if sign == ">=" else 1), end_cut)]


def variable(form: Form) -> str | None:
    """Return the name of a variable; None for another form."""
    if not isinstance(form, Formula) or form.latex in ("e", "\\pi", "\\infty", "-\\infty"):
        return None
    text = form.latex
    if (
        re.fullmatch(r"[a-z]\([a-z]\)", text)
        or (text.isalpha() and len(text) == 1)
        or (text[0] == "\\" and text[1:].isalpha())
        or "_" in text[:2]
    ):
        return text
    return None


# ------------------------------------------------------------------------------------------------------ sets of cuts


def _union(parts: Iterable[tuple[Cut, Cut]]) -> Cuts:
    merged: Cuts = []
    for begin, end in sorted(parts):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _unfold(cuts: Cuts) -> Cuts:
    """Return the numbers whose absolute value is in a set."""
    positive = _common(cuts, _PARTS[">=0"])
    return _union([*positive, *(((-high, 1 - after), (-low, 1 - before)) for (low, before), (high, after) in positive)])


def _complement(cuts: Cuts) -> Cuts:
    edges = [(-INFINITE, 1), *(cut for pair in cuts for cut in pair), (INFINITE, 0)]
    return [(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True) if begin < end]


def _common(one: Cuts, other: Cuts) -> Cuts:
    return _complement(_union([*_complement(one), *_complement(other)]))

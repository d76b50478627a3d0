"""Compare sets of real numbers, and intervals whose ends are letters."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from proofmill.answers.comparison.families import Equal
from proofmill.answers.comparison.real_sets import TURNED, cuts_of, variable
from proofmill.answers.comparison.values import Unclear, value
from proofmill.answers.reading.forms import (
    Form,
    Formula,
    Interval,
    Labeled,
    NamedSet,
    Number,
    Operation,
    Relation,
    Several,
)
from proofmill.answers.reading.words import LETTERS

WRITTEN_OUT = 1000  # most whole numbers within bounds that are compared one by one


def find_cuts(gold: Form, answer: Form) -> Any:
    """Return the sets of real numbers of both forms; None unless both are some, and one of them surely is."""
    one, other = cuts_of(gold, value), cuts_of(answer, value)
    if one is None and other is not None:
        one = cuts_of(gold, value, several=isinstance(gold, Several))
    if other is None and one is not None:
        other = cuts_of(answer, value, several=isinstance(answer, Several))
    return (one, other) if one is not None and other is not None else None


def compare_sets(gold: Form, answer: Form, equal: Equal) -> bool:
    """Compare sets of real numbers by their cuts, or part by part if letters occur in them."""
    if found := find_cuts(gold, answer):
        (name, one), (other_name, other) = found
        if (isinstance(gold, Several) and not one) or (isinstance(answer, Several) and not other):
            raise Unclear("several inequalities that no number fulfills")
        return (None in (name, other_name) or name == other_name) and one == other
    if isinstance(gold, NamedSet) and isinstance(answer, NamedSet):
        natural = {("N", ""), ("Z", ">0")}, {("N", ""), ("Z", ">=0")}
        return gold == answer or {(gold.name, gold.part), (answer.name, answer.part)} in natural
    for one, other in ((gold, answer), (answer, gold)):
        if isinstance(one, Operation) and one.sign == "intersection" and one.parts[0] == NamedSet("Z"):
            return _whole_members(one.parts[1], other, equal)
    if isinstance(gold, Operation) and isinstance(answer, Operation) and gold.sign == answer.sign:
        if gold.sign == "difference":
            return all(map(equal, gold.parts, answer.parts))
        return match_members(gold.parts, answer.parts, equal)
    if isinstance(gold, Operation | NamedSet) or isinstance(answer, Operation | NamedSet):
        for one, other in ((gold, answer), (answer, gold)):
            if isinstance(one, Relation):
                if one.signs != ("in",) and _is_whole(other):
                    raise Unclear("a condition on whole numbers")
                return one.signs == ("in",) and equal(one.sides[1], other)
            if isinstance(one, Formula) and one.latex in LETTERS:
                raise Unclear("the name of a set, or a letter")
        if isinstance(gold, Several) or isinstance(answer, Several):
            raise Unclear("a set and a list of its parts")
        return False
    one, other = as_interval(gold), as_interval(answer)
    return one is not None and other is not None and _same_interval(one, other, equal)


def _is_whole(form: Form) -> bool:
    parts = form.parts if isinstance(form, Operation) else (form,)
    return any(isinstance(part, NamedSet) and part.name in "NZ" for part in parts)


def _whole_members(bounds: Form, other: Form, equal: Equal) -> bool:
    """Return whether a list or set holds the whole numbers within bounds."""
    found = cuts_of(bounds, value)
    if found is None or any(high[0] - low[0] > WRITTEN_OUT for low, high in found[1]):
        raise Unclear("a condition on whole numbers")
    members = [
        Number(Fraction(n))
        for (low, after), (high, end) in found[1]
        for n in range(int(low) - 1, int(high) + 2)
        if (low, after) <= (n, 0) and (n, 1) <= (high, end)
    ]
    return isinstance(other, Several) and other.kind != "tuple" and match_members(members, other.members, equal)


def as_interval(form: Form) -> Interval | None:
    """Return an interval, a tuple of two or `a<x<b` as an interval; None for another form."""
    if isinstance(form, Several) and form.kind == "tuple" and len(form.members) == 2:
        return Interval(form.members[0], form.members[1], (False, False))
    if isinstance(form, Relation) and len(form.sides) == 3 and variable(form.sides[1]):
        sides, signs = form.sides, form.signs
        if {*signs} <= {">", ">="}:
            sides, signs = sides[::-1], tuple(TURNED[sign] for sign in signs[::-1])
        if {*signs} <= {"<", "<="}:
            return Interval(sides[0], sides[2], (signs[0] == "<=", signs[1] == "<="))
    return form if isinstance(form, Interval) else None


def _same_interval(one: Interval, other: Interval, equal: Equal) -> bool:
    return one.closed == other.closed and equal(one.low, other.low) and equal(one.high, other.high)


def match_members(gold: Sequence[Form], answer: Sequence[Form], equal: Equal) -> bool:
    """Return whether two lists have the same members, in any order. An answer may repeat members of the gold answer."""
    rest, kinds = list(answer), list(gold)
    for member in kinds:
        places = sorted(range(len(rest)), key=lambda n: rest[n] != member)  # the same form first: others may be unclear
        place = next((n for n in places if equal(member, rest[n])), None)
        if place is None:
            return False
        del rest[place]
    if rest and any(equal(a, b) for n, a in enumerate(kinds) for b in kinds[n + 1 :]):
        return False
    return all(any(equal(member, other) for member in kinds) for other in rest)


def list_named(several: Several) -> list[tuple[str, Form]]:
    """Return name and value of each member, such as `x` and 3 of `x=3`, B and 3 of `(B) 3`; "" for one without a name."""
    named: list[tuple[str, Form]] = []
    for one in several.members:
        if isinstance(one, Labeled):
            named.append((one.label, one.value))
        elif isinstance(one, Relation) and one.signs == ("=",):
            named.append((one.name or "", one.sides[-1]))
        else:
            named.append(("", one))
    return named


def are_named_once(one: Several, other: Several) -> bool:
    """Return whether each value of one list has a name of its own, and no value of the other one has a name.

    Names that differ in their indices only, `x_1=2, x_2=3`, are those of one unknown.
    """
    names = [name.partition("_")[0] for name, _ in list_named(one)]
    return all(names) and len({*names}) == len(names) and not any(name for name, _ in list_named(other))

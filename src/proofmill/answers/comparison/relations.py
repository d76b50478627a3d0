"""Compare equations and inequalities, and the values that they give to a name."""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from proofmill.answers.comparison import identities
from proofmill.answers.comparison.families import Equal, are_alike, are_renamed, same_function
from proofmill.answers.comparison.real_sets import TURNED, variable
from proofmill.answers.comparison.sets import as_interval, compare_sets
from proofmill.answers.comparison.values import Unclear, expression, value
from proofmill.answers.reading.forms import Form, Formula, Number, Qualified, Relation, Several, Words


def compare_relations(gold: Form, answer: Form, equal: Equal) -> bool:
    if not (isinstance(gold, Relation) and isinstance(answer, Relation)):
        relation, other = (gold, answer) if isinstance(gold, Relation) else (answer, gold)
        assert isinstance(relation, Relation), "one of them is"
        if isinstance(other, Several) and other.kind == "tuple" and _gives_all(relation, len(other.members)):
            return all(equal(member, relation.sides[-1]) for member in other.members)
        if relation is answer and relation.signs == ("=",) and _is_letters(relation.sides[0]):
            return equal(gold, relation.sides[1])  # a gold answer like this is an equation
        if as_interval(relation) and as_interval(other):
            return compare_sets(gold, answer, equal)
        if isinstance(other, Words) and any(isinstance(side, Qualified) for side in relation.sides):
            raise Unclear("words that are not understood")
        chain = len(relation.sides) > 2 and {*relation.signs} == {"="}
        members = other.members if chain and isinstance(other, Several) and other.kind == "list" else ()
        if members and all(isinstance(member, Relation) for member in members):
            raise Unclear("several equations, and one")
        values = [*list_values(relation, equal)]
        unnamed = not values and relation.signs == ("=",) and relation.name is None
        if unnamed and equal(relation.sides[-1], other) and expression(relation.sides[0]).free_symbols:
            raise Unclear("the left side of an equation is no name")
        return any(equal(*((value, other) if relation is gold else (other, value))) for value in values)
    if len(gold.sides) == 3 and as_interval(gold) and as_interval(answer):
        return variable(gold.sides[1]) == variable(answer.sides[1]) and compare_sets(gold, answer, equal)
    gold, answer = _turn(gold), _turn(answer)
    if {*gold.signs, *answer.signs} == {"="} and gold.name and answer.name and _name_one(gold.name, answer.name):
        if equal(gold.sides[-1], answer.sides[-1]) or are_renamed(gold, answer):
            return True
        if gold.name == answer.name and gold.name in ("C", "c"):
            raise Unclear("constants may have other names")
        return False
    mine, theirs = _by_name(gold), _by_name(answer)
    if mine and theirs and mine.keys() == theirs.keys():
        return all(equal(mine[name], theirs[name]) for name in mine)
    if (pair := same_function(gold, answer)) is not None:
        return pair
    if len(gold.sides) == 2 == len(answer.sides):
        return _equivalent(gold, answer)
    if gold.signs == answer.signs:
        return all(map(equal, gold.sides, answer.sides))
    return False


def _name_one(one: str, other: str) -> bool:
    """Return whether two names are of one thing: `y` and `f(x)` are."""
    graph = {"y", *(name for name in (one, other) if re.fullmatch(r"[a-z]\([a-z]\)", name))}
    return are_alike(one, other) or (len(graph) == 2 and {one, other} == graph)


_SLOPE = re.compile(r"\\frac\{dy\}\{dx\}|dy/dx")


def _gives_all(relation: Relation, count: int) -> bool:
    """Return whether a relation gives one value to this number of names, `x=y=z=0`."""
    names = {variable(side) for side in relation.sides[:-1]}
    return {*relation.signs} == {"="} and count == len(names) == len(relation.sides) - 1 and None not in names


def _by_name(relation: Relation) -> dict[str, Form]:
    """Return the values of the names in `(p,q)=(2,3)`; empty for another relation."""
    if len(relation.sides) > 2 and _gives_all(relation, len(relation.sides) - 1):
        return {str(variable(side)): relation.sides[-1] for side in relation.sides[:-1]}
    if relation.signs != ("=",) or not all(
        isinstance(side, Several) and side.kind == "tuple" for side in relation.sides
    ):
        return {}
    names, values = (side.members for side in relation.sides if isinstance(side, Several))
    known = [name for name in map(variable, names) if name]
    return dict(zip(known, values, strict=True)) if len({*known}) == len(names) == len(values) else {}


def _turn(relation: Relation) -> Relation:
    """Return `5=x` and `2x=f(x)` as `x=5` and `f(x)=2x`, and the name `y'` for `dy/dx`."""
    first = relation.sides[0]
    if relation.name is None and isinstance(first, Formula) and _SLOPE.fullmatch(first.latex):
        return Relation(relation.sides, relation.signs, "y'")
    if relation.signs != ("=",) or relation.name is not None or not isinstance(relation.sides[1], Formula):
        return relation
    name = relation.sides[1].latex
    if not (name.isalpha() and len(name) == 1) and not re.fullmatch(r"[A-Za-z]'*\([A-Za-z](?:,[A-Za-z])*\)", name):
        return relation
    return Relation((relation.sides[1], relation.sides[0]), ("=",), name)


def list_values(relation: Relation, equal: Equal) -> Iterator[Form]:
    """Yield the values that a relation gives to its name: after `=` and `in`, on both sides of `~`."""
    if "~" in relation.signs:
        sides = [side for side in relation.sides if not (isinstance(side, Formula) and variable(side))]
        if relation.name is not None and "~" not in relation.signs[:1]:
            sides = sides[-2:] if len(sides) > 1 else sides
        if not _is_rounded(sides):
            raise Unclear("values next to an approximation sign differ")
        yield from sides
    elif ({*relation.signs} <= {"=", "in"} and (relation.name is not None or _is_calculation(relation, equal))) or (
        relation.signs == ("=",) and _turn(relation).name == "y'"
    ):
        yield relation.sides[-1]
    elif relation.signs == ("=",) and (_turn(relation) is not relation or _between_points(relation)):
        yield relation.sides[_between_points(relation)]


def _is_letters(form: Form) -> bool:
    """Return whether a side has several letters and without numbers but exponents: `m+n`, `a^2+b^2`."""
    text = form.latex if isinstance(form, Formula) else ""
    return bool(re.fullmatch(r"[a-z+](?:\^?[a-z+]|\^[0-9])+", text)) and len({*re.findall("[a-z]", text)}) > 1


_LENGTHS = re.compile(r"(?:\\frac|\\angle|\\triangle|\\cdot|[A-Z](?:_\w)?|[0-9{}/:|\[\]])+")


def _between_points(relation: Relation) -> bool:
    """Return whether a relation is about lengths between points, `\\frac{AB}{CD}=2`, not about letters."""
    first = relation.sides[0]
    return isinstance(first, Formula) and bool(_LENGTHS.fullmatch(first.latex)) and any(map(str.isupper, first.latex))


def _is_rounded(sides: Sequence[Form]) -> bool:
    """Return whether the values next to `\\approx` differ by one unit of the last decimal place at most."""
    values = [value(side) for side in sides]
    if len(values) < 2 or None in values:
        return True
    places = [side.places or 0 for side in sides if isinstance(side, Number)]
    known = [value for value in values if value is not None]
    unit = Fraction(1, 10 ** min(places)) if places else None
    return unit is None or max(known) - min(known) <= unit / 2 or _is_cut_off(known, unit)


def _is_cut_off(values: Sequence[Fraction], unit: Fraction) -> bool:
    """Return whether the smallest of some values is another one without its later decimals."""
    least, largest = min(values, key=abs), max(values, key=abs)
    return abs(largest) - abs(least) < unit and abs(least) % unit == 0


def _is_calculation(relation: Relation, equal: Equal) -> bool:
    """Return whether a chain of equations such as `a+b=2+3=5` has a number first or 3 sides, and a correct end."""
    first, *_ = sides = relation.sides
    begins = isinstance(first, Number) or (isinstance(first, Formula) and not expression(first).free_symbols)
    return (begins or len(sides) > 2) and equal(sides[-2], sides[-1])


def _equivalent(gold: Relation, answer: Relation) -> bool:
    """Return whether one equation or inequality is a multiple of the other (a positive one for `<`)."""
    import sympy

    one, other = (expression(r.sides[0]) - expression(r.sides[1]) for r in (gold, answer))
    sign = gold.signs[0]
    if sign != answer.signs[0]:
        if TURNED.get(sign) != answer.signs[0]:
            return False
        other = -other
    if not (isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr)) or one.free_symbols != other.free_symbols:
        return False
    symbols, small = sorted(one.free_symbols, key=str), sympy.Float(10, identities.DIGITS) ** -identities.AGREE
    ratios: list[Any] = []
    for point in identities.POINTS:
        values = identities.at(point, symbols)
        a, b = identities.value_of(one, values), identities.value_of(other, values)
        if a is None or b is None:
            continue
        if abs(b) < small or abs(a) < small:
            if max(abs(a), abs(b)) > small:
                return False
            continue
        ratios.append(a / b)
    if not ratios or any(abs(ratio - ratios[0]) > abs(ratios[0]) * small for ratio in ratios):
        return False
    return sign in ("=", "!=") or bool(ratios[0] > 0)

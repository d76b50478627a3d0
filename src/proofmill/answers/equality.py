"""Compare an answer with the gold answer, form by form. Raises `Unreadable` if a formula cannot be parsed.

These may be missing or written differently: a unit, a counted noun or a percent sign after a number; the name before
`=`; brackets around several values; the order of values in a list or set. These may not: a base, a word that adds
meaning, a value that the gold answer has twice, an end of an interval, the name if both have one.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from proofmill.answers import formulas, units
from proofmill.answers.forms import (
    Clock,
    CongruenceAnswer,
    Form,
    Formula,
    InBase,
    Interval,
    Labeled,
    Number,
    Qualified,
    Quantity,
    Relation,
    Several,
    Union,
    Words,
    formulas_in,
)
from proofmill.answers.parse import readings
from proofmill.answers.ranges import TURNED, open_interval, range_of, ranges

PLACES = 6  # decimals with at least this many digits after the point may be rounded values


class Unreadable(Exception):
    """A formula that cannot be parsed; `form` is the formula."""

    def __init__(self, form: Formula):
        super().__init__(form.latex)
        self.form = form


def unread(text: str) -> str | None:
    """Return the part of an answer's normal form that cannot be parsed or has no value, if any."""
    forms = readings(text)
    if not forms:
        return text
    parts = [formula.latex for formula in formulas_in(forms[0])]
    return next((latex for latex in parts if formulas.parse(latex) is None or formulas.is_undefined(latex)), None)


def doubt(gold: Form, answer: Form) -> str:
    """Return a remark for readers of the verdict on why two equal answers may differ; empty without doubts."""
    if isinstance(gold, Quantity) != isinstance(answer, Quantity):
        return "doubtful: only one of the two has a unit"
    if isinstance(gold, Number) and isinstance(answer, Number):
        if gold.percent != answer.percent:
            return "doubtful: only one of the two is a percentage"
        if gold.value != answer.value:
            return "doubtful: one is rounded from the other"
    if isinstance(gold, Relation) != isinstance(answer, Relation) and not (ranges(gold) and ranges(answer)):
        return "doubtful: only one of the two has a name before its value"
    if isinstance(gold, Labeled) != isinstance(answer, Labeled):
        return "doubtful: only one of the two has a label"
    return ""


def equal(gold: Form, answer: Form) -> bool:
    """Return whether two answers are equal."""
    if gold == answer and not isinstance(gold, Formula):
        return True
    for kind, compare in _COMPARED:
        if isinstance(gold, kind) or isinstance(answer, kind):
            return compare(gold, answer)
    return _expressions(gold, answer)


# -------------------------------------------------------------------------------- labels, units and words around values


def _compare_label(gold: Form, answer: Form) -> bool:
    """Compare an answer with a label: `(B) 12` equals B, and equals 12."""
    if isinstance(gold, Labeled) and isinstance(answer, Labeled):
        return gold.label == answer.label and equal(gold.value, answer.value)
    labeled, other = (gold, answer) if isinstance(gold, Labeled) else (answer, gold)
    assert isinstance(labeled, Labeled), "one of them is"
    if isinstance(other, Formula) and len(other.latex) == 1 and other.latex.isupper():
        return other.latex == labeled.label
    return equal(labeled.value, other)


def _compare_qualified(gold: Form, answer: Form) -> bool:
    return (
        isinstance(gold, Qualified)
        and isinstance(answer, Qualified)
        and _plain(gold.words) == _plain(answer.words)
        and equal(gold.value, answer.value)
    )


def _plain(words: str) -> list[str]:
    return [
        units.singular(word) for word in words.replace(",", " ").split() if word not in ("the", "a", "an", "is", "are")
    ]


def _quantities(gold: Form, answer: Form) -> bool:
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        factor = units.factor(answer.unit, gold.unit)
        if factor is None:
            return False
        if factor == 1:
            return equal(gold.value, answer.value)
        return formulas.same(_expression(gold.value), _expression(answer.value) * _rational(factor))
    quantity, other = (gold, answer) if isinstance(gold, Quantity) else (answer, gold)
    assert isinstance(quantity, Quantity), "one of them is"
    if isinstance(other, Several | Interval | Union | Words | InBase | Clock | CongruenceAnswer):
        return False
    if equal(quantity.value, other):
        return True
    part = {"%": Fraction(1, 100)}.get(quantity.unit)
    if part is not None:
        return formulas.same(_expression(quantity.value) * _rational(part), _expression(other))
    if quantity.unit == "degree":
        import sympy

        return formulas.same(_expression(quantity.value) * sympy.pi / 180, _expression(other))
    return False


def _congruences(gold: Form, answer: Form) -> bool:
    if not (isinstance(gold, CongruenceAnswer) and isinstance(answer, CongruenceAnswer)) or not equal(
        gold.modulus, answer.modulus
    ):
        return False
    if None not in (gold.name, answer.name) and gold.name != answer.name:
        return False
    one, other, modulus = gold.residue, answer.residue, gold.modulus
    if isinstance(one, Number) and isinstance(other, Number) and isinstance(modulus, Number) and modulus.value:
        return ((one.value - other.value) / modulus.value).denominator == 1
    return equal(one, other)


def _bases(gold: Form, answer: Form) -> bool:
    return gold == answer


def _clocks(gold: Form, answer: Form) -> bool:
    """Compare times of day part by part, ratios also by value. A time's minutes have two digits."""
    if isinstance(gold, Clock) and isinstance(answer, Clock):
        if gold.half and answer.half and gold.half != answer.half:
            return False
        if gold.numbers == answer.numbers or _pad(gold) == _pad(answer):
            return True
        one, other = gold.numbers, answer.numbers
        if (
            gold.half
            or answer.half
            or len(one) != len(other)
            or min(one[0], other[0]) == 0
            or not _ratios(gold, answer)
        ):
            return False
        return all(a * other[0] == b * one[0] for a, b in zip(one, other, strict=True))
    clock, other_form = (gold, answer) if isinstance(gold, Clock) else (answer, gold)
    assert isinstance(clock, Clock), "one of them is"
    if clock.half or len(clock.numbers) != 2 or not clock.numbers[1] or not isinstance(other_form, Number):
        return False
    return clock.numbers[0] / clock.numbers[1] == other_form.value


def _pad(clock: Clock) -> tuple[Fraction, ...]:
    return clock.numbers if len(clock.numbers) > 1 else (*clock.numbers, Fraction(0))


def _ratios(*clocks: Clock) -> bool:
    return any(number < 10 or number >= 60 for clock in clocks for number in clock.numbers[1:])


def _words(gold: Form, answer: Form) -> bool:
    if isinstance(gold, Words) and isinstance(answer, Words):
        return _plain(gold.text) == _plain(answer.text)
    words, other = (gold, answer) if isinstance(gold, Words) else (answer, gold)
    assert isinstance(words, Words), "one of them is"
    if isinstance(other, Formula) and other.latex.isalpha():
        return other.latex.lower() == words.text
    if isinstance(other, Formula):
        _expression(other)  # raises Unreadable, because an unparsable answer must not count as wrong
    return False


# ------------------------------------------------------------------------------------------------------- several values


def _several(gold: Form, answer: Form) -> bool:
    if not (isinstance(gold, Several) and isinstance(answer, Several)):
        one, other = (gold, answer) if isinstance(gold, Several) else (answer, gold)
        assert isinstance(one, Several), "one of them is"
        if isinstance(other, Interval):
            return one.kind == "tuple" and len(one.members) == 2 and _same_interval(open_interval(one), other)
        return len(one.members) == 1 and equal(*((one.members[0], other) if one is gold else (other, one.members[0])))
    kinds = {gold.kind, answer.kind}
    if kinds == {"set", "tuple"}:
        return False
    if "tuple" in kinds:
        return len(gold.members) == len(answer.members) and all(map(equal, gold.members, answer.members))
    return _match_members(gold.members, answer.members)


def _match_members(gold: Sequence[Form], answer: Sequence[Form]) -> bool:
    """Return whether two lists have the same members, in any order. An answer may repeat members of the gold answer."""
    rest, kinds = list(answer), list(gold)
    for member in kinds:
        place = next((n for n, other in enumerate(rest) if equal(member, other)), None)
        if place is None:
            return False
        del rest[place]
    if rest and any(equal(a, b) for n, a in enumerate(kinds) for b in kinds[n + 1 :]):
        return False
    return all(any(equal(member, other) for member in kinds) for other in rest)


# -------------------------------------------------------------------------------------- intervals, unions, inequalities


def _same_interval(one: Interval, other: Interval) -> bool:
    return one.closed == other.closed and equal(one.low, other.low) and equal(one.high, other.high)


def _in_ranges(gold: Form, answer: Form) -> bool:
    one, other = ranges(gold), ranges(answer)
    if one is None or other is None:
        if isinstance(gold, Relation) or isinstance(answer, Relation):
            return _relations(gold, answer)
        return False
    if None not in (one[0], other[0]) and one[0] != other[0]:
        return False
    return _match_parts(one[1], other[1])


def _match_parts(one: list[Interval | Form], other: list[Interval | Form]) -> bool:
    rest = list(other)
    for part in one:
        place = next((n for n, candidate in enumerate(rest) if _same_part(part, candidate)), None)
        if place is None:
            return False
        del rest[place]
    return not rest


def _same_part(one: Form, other: Form) -> bool:
    if isinstance(one, Interval) and isinstance(other, Interval):
        return _same_interval(one, other)
    return not isinstance(one, Interval) and not isinstance(other, Interval) and equal(one, other)


# ------------------------------------------------------------------------------------------------------------ relations


def _relations(gold: Form, answer: Form) -> bool:
    if not (isinstance(gold, Relation) and isinstance(answer, Relation)):
        relation, other = (gold, answer) if isinstance(gold, Relation) else (answer, gold)
        assert isinstance(relation, Relation), "one of them is"
        if (one_range := range_of(relation)) and (other_range := ranges(other)):
            return _match_parts(one_range[1], other_range[1])
        return any(equal(*((value, other) if relation is gold else (other, value))) for value in _values(relation))
    if range_of(gold) and range_of(answer):
        return _in_ranges(gold, answer)
    if {*gold.signs, *answer.signs} == {"="} and gold.name and answer.name and _alike(gold.name, answer.name):
        return equal(gold.sides[-1], answer.sides[-1])
    if len(gold.sides) == 2 == len(answer.sides):
        return _equivalent(gold, answer)
    if gold.signs == answer.signs:
        return all(map(equal, gold.sides, answer.sides))
    return False


def _alike(one: str, other: str) -> bool:
    return one.replace(" ", "") == other.replace(" ", "")


def _values(relation: Relation) -> Iterator[Form]:
    """Yield the values that a relation gives to its name: after `=` and `in`, on both sides of `~`."""
    if {*relation.signs} == {"~"}:
        yield from relation.sides
    elif "~" in relation.signs:
        yield from (side for side in relation.sides[1:])
    elif {*relation.signs} <= {"=", "in"} and (relation.name is not None or _is_calculation(relation)):
        yield relation.sides[-1]


def _is_calculation(relation: Relation) -> bool:
    """Return whether a chain of equations such as `a+b=2+3=5` has a number first or 3 sides, and a correct end."""
    first, *_ = sides = relation.sides
    begins = isinstance(first, Number) or (isinstance(first, Formula) and not _expression(first).free_symbols)
    return (begins or len(sides) > 2) and equal(sides[-2], sides[-1])


def _equivalent(gold: Relation, answer: Relation) -> bool:
    """Return whether one equation or inequality is a multiple of the other (a positive one for `<`)."""
    import sympy

    one, other = (_expression(r.sides[0]) - _expression(r.sides[1]) for r in (gold, answer))
    sign = gold.signs[0]
    if sign != answer.signs[0]:
        if TURNED.get(sign) != answer.signs[0]:
            return False
        other = -other
    if not (isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr)) or one.free_symbols != other.free_symbols:
        return False
    symbols = sorted(one.free_symbols, key=str)
    ratios: list[Any] = []
    for point in formulas.POINTS:
        values = formulas.at(point, symbols)
        a, b = formulas.value_of(one, values), formulas.value_of(other, values)
        if a is None or b is None:
            continue
        if abs(b) < 10**-20 or abs(a) < 10**-20:
            if max(abs(a), abs(b)) > 10**-20:
                return False
            continue
        ratios.append(a / b)
    if not ratios or any(abs(ratio - ratios[0]) > abs(ratios[0]) * 10**-15 for ratio in ratios):
        return False
    return sign in ("=", "!=") or bool(ratios[0] > 0)


# ---------------------------------------------------------------------------------------------------------- expressions


def _expressions(gold: Form, answer: Form) -> bool:
    if isinstance(gold, Number) and isinstance(answer, Number):
        return _numbers(gold, answer)
    for one, other in ((gold, answer), (answer, gold)):
        if isinstance(one, Number) and one.percent:
            plain = [Number(one.value / 100), Number(one.value)]
            return any(_expressions(*((n, other) if one is gold else (other, n))) for n in plain)
        if isinstance(one, Number) and one.places is not None and one.places >= PLACES:
            value = formulas.value_of(_expression(other))
            if value is not None and value.is_real:
                return bool(abs(value - _rational(one.value)) * 2 <= _rational(Fraction(1, 10**one.places)))
    return formulas.same(_expression(gold), _expression(answer))


def _numbers(gold: Number, answer: Number) -> bool:
    values = {gold.value / 100, gold.value} if gold.percent != answer.percent and gold.percent else {gold.value}
    others = {answer.value / 100, answer.value} if gold.percent != answer.percent and answer.percent else {answer.value}
    if values & others:
        return True
    places = [number.places for number in (gold, answer) if number.places is not None]
    if not places or min(places) < PLACES or gold.percent != answer.percent:
        return False
    return abs(gold.value - answer.value) * 2 <= Fraction(1, 10 ** min(places))


def _rational(value: Fraction) -> Any:
    import sympy

    return sympy.Rational(value.numerator, value.denominator)


def _expression(form: Form) -> Any:
    """Return the expression of a form that is one value. Raises Unreadable."""
    if isinstance(form, Number):
        return _rational(form.value / 100 if form.percent else form.value)
    if isinstance(form, Quantity):
        return _expression(form.value)
    if not isinstance(form, Formula):
        raise Unreadable(Formula(str(form)))
    if (expression := formulas.parse(form.latex)) is None:
        raise Unreadable(form)
    return expression


_COMPARED = (
    (Labeled, _compare_label),
    (Qualified, _compare_qualified),
    (Quantity, _quantities),
    (CongruenceAnswer, _congruences),
    (InBase, _bases),
    (Clock, _clocks),
    (Union, _in_ranges),
    (Relation, _relations),
    (Words, _words),
    (Several, _several),
    (Interval, _in_ranges),
)

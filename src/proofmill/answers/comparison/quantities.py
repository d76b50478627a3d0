"""Compare values with units and counted nouns."""

import re
from fractions import Fraction

from proofmill.answers.comparison import identities
from proofmill.answers.comparison.families import Equal
from proofmill.answers.comparison.values import Unclear, expression, rational
from proofmill.answers.reading import units
from proofmill.answers.reading.forms import (
    Clock,
    CongruenceAnswer,
    Form,
    Formula,
    InBase,
    Interval,
    Operation,
    Quantity,
    Several,
    Words,
)
from proofmill.answers.reading.parse import readings
from proofmill.answers.reading.structures import STYLED


def compare_quantities(gold: Form, answer: Form, equal: Equal) -> bool:
    """Compare values of which one or both have a unit or a counted noun."""
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        for one, two in ((gold, answer), (answer, gold)):
            if one.unit == "degree" and two.unit in ("rad", "radian"):
                return _in_radians(one, two)
            if (one.unit, two.unit) == ("celsius", "fahrenheit"):
                return identities.same(expression(one.value) * 9 / 5 + 32, expression(two.value))
        factor = units.factor(answer.unit, gold.unit)
        if factor is None:
            nouns = not gold.known and not answer.known
            if units.are_apart(gold.unit, answer.unit) or (nouns and not equal(gold.value, answer.value)):
                return False
            raise Unclear("units that are not converted")
        if factor == 1:
            return equal(gold.value, answer.value)
        return identities.same(expression(gold.value), expression(answer.value) * rational(factor))
    quantity, other = (gold, answer) if isinstance(gold, Quantity) else (answer, gold)
    assert isinstance(quantity, Quantity), "one of them is"
    if isinstance(other, Formula) and (bare := re.fullmatch(r"([0-9.]+) ([mghsLl](?:\^\{?[23]\}?)?)", other.latex)):
        return compare_quantities(
            quantity, Quantity(readings(bare[1])[0], str(units.canonical(bare[2])), known=True), equal
        )
    if isinstance(other, Several | Interval | Operation | Words | InBase | Clock | CongruenceAnswer):
        return False
    letters = (
        re.match(r"[0-9.]+( ?)([A-Za-z]+)", STYLED.sub(r"\1", other.latex)) if isinstance(other, Formula) else None
    )
    if letters and (letters[1] or units.canonical(letters[2]) == quantity.unit):
        raise Unclear("letters that may be a unit")
    if equal(quantity.value, other):
        return True
    part = {"%": Fraction(1, 100)}.get(quantity.unit)
    if part is not None:
        return identities.same(expression(quantity.value) * rational(part), expression(other))
    if quantity.unit == "degree":
        return _in_radians(quantity, other)
    return False


def _in_radians(degrees: Quantity, radians: Form) -> bool:
    import sympy

    return identities.same(expression(degrees.value) * sympy.pi / 180, expression(radians))

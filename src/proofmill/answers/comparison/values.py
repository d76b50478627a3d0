"""Values of forms: their expressions, numbers to 45 digits, and whether two of them are equal."""

from fractions import Fraction
from typing import Any

from proofmill.answers.comparison import identities
from proofmill.answers.comparison.real_sets import INFINITE, variable
from proofmill.answers.reading import formulas
from proofmill.answers.reading.descriptions import describe
from proofmill.answers.reading.forms import Form, Formula, Number, Quantity

PLACES = 6  # decimals with at least this many digits after the point may be rounded values
DOUBLE = 15  # significant digits from which on a decimal may be a floating-point number, with a wrong last digit


class Unreadable(Exception):
    """A formula that cannot be parsed; `form` is the formula."""

    def __init__(self, form: Formula):
        super().__init__(form.latex)
        self.form = form


class Unclear(Exception):
    """Two answers may be equal or not, by what their texts leave open; the message says what."""


def expression(form: Form) -> Any:
    """Return the expression of a form that is one value. Raises Unreadable."""
    if isinstance(form, Number):
        return rational(form.value / 100 if form.percent else form.value)
    if isinstance(form, Quantity):
        return expression(form.value)
    if not isinstance(form, Formula):
        raise Unreadable(Formula(describe(form)))
    if (found := formulas.parse(form.latex)) is None:
        raise Unreadable(form)
    return found


def rational(value: Fraction) -> Any:
    import sympy

    return sympy.Rational(value.numerator, value.denominator)


def value(form: Form) -> Fraction | None:
    """Return the value of a form without letters, to 45 digits; None if it has none that is real."""
    if isinstance(form, Number):
        return form.value
    if not isinstance(form, Formula):
        return None
    if form.latex.lstrip("+") in ("\\infty", "-\\infty"):
        return -INFINITE if form.latex.startswith("-") else INFINITE
    if variable(form) or expression(form).free_symbols:
        return None
    value = identities.value_of(expression(form))
    if value is None or not value.is_real:
        return None
    scaled = round(value * 10**identities.AGREE)  # a number of SymPy
    return Fraction(int(scaled), 10**identities.AGREE)


def equal_values(gold: Form, answer: Form) -> bool:
    if isinstance(gold, Number) and isinstance(answer, Number):
        return _numbers(gold, answer)
    for one, other in ((gold, answer), (answer, gold)):
        if isinstance(one, Number) and one.percent:
            plain = [Number(one.value / 100), Number(one.value)]
            return any(equal_values(*((n, other) if one is gold else (other, n))) for n in plain)
        if isinstance(one, Number) and one.places is not None and one.places >= PLACES:
            value = identities.value_of(expression(other))
            if value is not None and value.is_real:
                return bool(abs(value - rational(one.value)) <= rational(_tolerance(one)))
    same = identities.same(expression(gold), expression(answer))
    if (
        isinstance(gold, Formula)
        and isinstance(answer, Formula)
        and (reason := identities.unclear(gold.latex, answer.latex, same))
    ):
        raise Unclear(reason)
    return same


def _tolerance(number: Number) -> Fraction:
    """Return by how much a decimal may differ from its exact value: half a unit of its last place, or two of a double."""
    digits = len(str(abs(number.value.numerator) * 10 ** (number.places or 0) // number.value.denominator))
    half = Fraction(1, 2 * 10 ** (number.places or 0))
    return max(half, abs(number.value) * Fraction(1, 2**51)) if digits >= DOUBLE else half


def _numbers(gold: Number, answer: Number) -> bool:
    values = {gold.value / 100, gold.value} if gold.percent != answer.percent and gold.percent else {gold.value}
    others = {answer.value / 100, answer.value} if gold.percent != answer.percent and answer.percent else {answer.value}
    if values & others:
        if gold.value == answer.value and gold.percent != answer.percent and 0 < abs(gold.value) <= 1:
            raise Unclear("a percentage, or a share of 1")
        return True
    places = [number.places for number in (gold, answer) if number.places is not None]
    doubles = [number for number in (gold, answer) if (number.places or 0) >= DOUBLE]
    if doubles and abs(gold.value - answer.value) <= max(map(_tolerance, doubles)):
        return gold.percent == answer.percent
    if not places or min(places) < PLACES or gold.percent != answer.percent:
        return False
    return abs(gold.value - answer.value) <= max(
        _tolerance(number) for number in (gold, answer) if number.places == min(places)
    )

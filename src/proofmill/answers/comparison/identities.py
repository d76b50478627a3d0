r"""Compare the values of two expressions.

Differences from `math_verify.verify`:
1. Two expressions are equal if they agree in 45 digits at several points, instead of in six decimals (Schwartz 1980,
   Zippel 1979: a false identity fails nearly everywhere). Fractions are compared exactly. Letters are real: a point
   at which a root or logarithm is imaginary counts only if there is no other. A bound of a sum is a whole number.
2. A function without a known value, as in `f(2x)` or in the sum of `a_k`, stands for a generic one, and a greatest
   common divisor is compared at whole numbers (there, it is that of polynomials).
3. If no point has a value, as for sets, math-verify decides.
"""

import logging
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from proofmill.answers.reading.formulas import failures, numeric, parse

DIGITS = 60  # precision of the values that are compared
AGREE = 45  # number of these digits that must agree
WRITTEN_OUT = 1_000_000  # longest number, in digits, that is also compared exactly
# Values of the symbols in order, for each comparison of two expressions: small fractions, on both sides of 0. Each of
# the first four is once the largest and once the smallest of these, and none is a simple function of the others.
POINTS = (
    ("13/11", "5/7", "17/13", "19/23", "-11/6", "7/16"), ("31/17", "29/9", "3/23", "5/8", "23/12", "2/19"),
    ("-7/5", "-11/19", "8/3", "37/10", "9/14", "-15/8"), ("5/17", "-13/6", "-19/7", "-41/12", "1/15", "25/9"),
)  # fmt: skip
WHOLE = (
    ("12", "18", "30", "45", "21", "33"), ("7", "5", "11", "13", "8", "3"), ("4", "9", "6", "10", "15", "25"),
    ("15", "10", "3", "20", "14", "21"), ("2", "3", "8", "12", "27", "5"), ("5", "14", "7", "35", "4", "9"),
)  # fmt: skip
FAR = (("1009/7", "2003/11", "-3001/13"), ("-5003/6", "709/9", "907/10"))  # for step functions
FAR_WHOLE = (("1009", "2003", "3001"), ("100003", "70999", "90007"))
_PRODUCT = re.compile(r"(?:[A-Z](?:\^(?:-?[0-9A-Za-z]|\{[^{}]*\}))?|\([A-Z]{2,}\)\^(?:\{[^{}]*\}|.))+")
_DIGITS = re.compile(r"\\overline\{[A-Za-z0-9]{2,}\}")
_MATRIX = re.compile(r"^-?[IEO]_?\{?[0-9n]?\}?$|diag")
_TERMS = re.compile(r"(?<!\\)\b([FL])_(?:\{[^{}]*[nkm][^{}]*\}|[nkm])")  # Fibonacci and Lucas numbers
_BARE_LOG = re.compile(r"\\log(?![A-Za-z_])")
_SLASHED = re.compile(r"(/[0-9]+)(?=[A-Za-z(\\])(?!\\(?:cdot|times|text|pi\b$))")
_ASSUMED: ContextVar[bool] = ContextVar("assumed", default=False)
_VARIABLES = frozenset(("x", "y", "z", "t", "u", "v", "w", "X", "Y", "theta", "phi"))
_COUNTS = frozenset(("k", "l", "m", "n", "j", "K", "M", "N"))


def unclear(gold: str, answer: str, equal: bool) -> str:
    r"""Return why the texts of two formulas leave open whether they are equal; "" if they do not.

    Products of capital letters may be of matrices, `\log` has base 10 or e, and `1/2x` is read in two ways.
    """
    if equal:
        mine, theirs = map(_products, (gold, answer))
        if mine != theirs and _letters(mine) == _letters(theirs):
            return f"the order of factors may matter in {min(mine - theirs)}"
    elif _DIGITS.search(gold) or _DIGITS.search(answer):
        return "a line over letters may join digits, or name a segment"
    elif ("matrix" in gold) != ("matrix" in answer) and (_MATRIX.search(gold) or _MATRIX.search(answer)):
        return "a name of a matrix"
    elif {*_TERMS.findall(gold)} & {*_TERMS.findall(answer)}:
        return "terms of a sequence may depend on each other"
    elif _BARE_LOG.search(gold) or _BARE_LOG.search(answer):
        natural = [parse(_BARE_LOG.sub(r"\\ln ", text)) for text in (gold, answer)]
        if None not in natural and same(*natural):
            return "the base of a logarithm may be 10 or e"
    for text, other in ((gold, answer), (answer, gold)):
        if _SLASHED.search(text):
            first, last = parse(_SLASHED.sub(r"\1\\cdot ", text)), parse(other)
            if None not in (first, last) and same(first, last) != equal:
                return f"{text} can be read in two ways"
    return ""


def _letters(products: set[str]) -> list[list[str]]:
    return sorted(sorted(re.sub("[^A-Z]", "", product)) for product in products)


def _products(text: str) -> set[str]:
    """Return the products of capital letters in a formula, as written; a power of a product keeps its brackets."""
    found = _PRODUCT.findall(text.replace("\\cdot", "").replace(" ", ""))
    return {re.sub("[{}]", "", product) for product in found if len(re.sub("[^A-Z]", "", product)) > 1}


@contextmanager
def assuming() -> Iterator[None]:
    """Take letters for positive, except variables, and those that usually count for whole, in a `with` statement.

    The absolute value of a letter is then still another expression than the letter.
    """
    token = _ASSUMED.set(True)
    try:
        yield
    finally:
        _ASSUMED.reset(token)


def same(one: Any, other: Any) -> bool:
    """Return whether two expressions have the same value."""
    import sympy
    from math_verify import verify

    if isinstance(one, sympy.MatrixBase) or isinstance(other, sympy.MatrixBase):
        return _same_matrices(one, other)
    if one == other:
        return True
    one, other = _generic(one, other)
    expressions = isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr)
    if expressions and (equal := _same_values(one, other)) is not None:
        return equal
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns about the missing timeout
    return bool(verify([one], [other], strict=True, float_rounding=12, numeric_precision=DIGITS, timeout_seconds=None))


def _same_matrices(one: Any, other: Any) -> bool:
    import sympy

    if not (isinstance(one, sympy.MatrixBase) and isinstance(other, sympy.MatrixBase)) or one.shape != other.shape:
        return False
    return all(same(a, b) for a, b in zip(one.flat(), other.flat(), strict=True))


def _generic(one: Any, other: Any) -> tuple[Any, Any]:
    """Return both expressions with a smooth function without symmetries for each unknown one, `f(x)`.

    A letter that also occurs alone is a factor: `h(a+b)` and `ha+hb` are equal.
    """
    from sympy.core.function import AppliedUndef

    applied = [found for expression in (one, other) for found in expression.atoms(AppliedUndef)]
    if not applied:
        return one, other
    letters = {symbol.name for expression in (one, other) for symbol in expression.free_symbols}

    def meaning(name: str, *arguments: Any) -> Any:
        import sympy

        if name in letters and len(arguments) == 1:
            return sympy.Symbol(name) * arguments[0]
        seed = zlib.crc32(f"{name} {len(arguments)}".encode())
        parts = [sympy.Rational((seed >> n) % 89 + 10, 37 + n) for n in range(len(arguments) + 2)]
        inner = sum((part * argument for part, argument in zip(parts, arguments, strict=False)), parts[-1])
        return sympy.cos(inner) + arguments[0] ** 2 / parts[-2] if arguments else parts[-1]

    def replace(expression: Any) -> Any:
        return expression.replace(
            lambda part: isinstance(part, AppliedUndef),
            lambda part: meaning(part.func.__name__.lstrip("\\"), *part.args),
        )

    return replace(one), replace(other)


def at(point: Sequence[str], symbols: Sequence[Any]) -> dict[Any, Any]:
    """Return the values of symbols at one of `POINTS`. From the seventh on, values repeat, larger by 1."""
    import sympy

    return {symbol: sympy.Rational(point[n % len(point)]) + n // len(point) for n, symbol in enumerate(symbols)}


def _points(one: Any, other: Any, symbols: Sequence[Any], assumed: bool) -> Iterator[dict[Any, Any]]:
    """Yield the values of the symbols at which two expressions are compared."""
    import sympy

    functions = numeric()
    pair = [one, other]
    whole = any(e.has(functions["gcd"], functions["lcm"]) for e in pair) or any(
        limit.free_symbols
        for e in pair
        for part in e.atoms(sympy.Sum, sympy.Product)
        for limits in part.limits
        for limit in limits[1:]
    )
    steps = any(e.has(sympy.floor, sympy.ceiling, sympy.Mod, sympy.frac) for e in pair)
    if not symbols:
        yield {}
    elif whole:
        yield from (at(point, symbols) for point in WHOLE)
    elif assumed:
        dense = ((str(n), str(7 * n % 48), str(11 * n % 48)) for n in range(48 * steps))
        points = [(POINTS[n % len(POINTS)], counts) for n, counts in enumerate((*WHOLE, *dense))]
        for n, (point, counts) in enumerate((*points, *zip(FAR, FAR_WHOLE, strict=True)) if steps else points):
            general, whole_values = at(point, symbols), at(counts, symbols)
            yield {
                s: whole_values[s] if s.name in _COUNTS else general[s] if s.name in _VARIABLES else abs(general[s]) + n
                for s in symbols
            }
    else:
        yield from (at(point, symbols) for point in POINTS + FAR * steps)
        for n in range(48 * steps):
            yield at((f"{n * 5}/3", f"{n * 7 % 48}/3", f"{n * 11 % 48}/3"), symbols)


def _same_values(one: Any, other: Any) -> bool | None:
    """Return whether the values agree at all points at which both have one; None if there is no such point."""
    import sympy

    symbols = sorted(one.free_symbols | other.free_symbols, key=str)
    if not symbols and isinstance(one, sympy.Rational) and isinstance(other, sympy.Rational):
        return bool(one == other)
    looked = differ = False
    # `\\ln|x|` is not `\\ln x`, and positive values have fewer orders.
    strict = not symbols or any(e.has(sympy.Abs, sympy.Max, sympy.Min) for e in (one, other))
    for symbol_values in _points(one, other, symbols, assumed=_ASSUMED.get() and not strict):
        values = [value_of(expression, symbol_values) for expression in (one, other)]
        if values[0] is None or values[1] is None:
            if (values[0] is None) != (values[1] is None) and not symbols:
                return None
            continue
        if not _agree(*values) or _are_apart(one, other, symbol_values, max(map(abs, values))):
            if strict or not (_is_imaginary(one, symbol_values) or _is_imaginary(other, symbol_values)):
                return False
            differ = True
        else:
            looked = True
    return True if looked else False if differ else None


def _is_imaginary(expression: Any, symbol_values: Any) -> bool:
    """Return whether a root or a logarithm in an expression is not real at a point."""
    import sympy

    inner = [power.base for power in expression.atoms(sympy.Pow) if power.exp.is_Rational and not power.exp.is_Integer]
    inner += [part.args[0] for part in expression.atoms(sympy.log)]
    return any((value := value_of(part, symbol_values)) is not None and not value.is_nonnegative for part in inner)


def value_of(expression: Any, symbol_values: Any = None) -> Any:
    """Return the value in 60 digits, real or complex; None if it is undefined or infinite."""
    import sympy

    symbol_values = {s: value for s, value in (symbol_values or {}).items() if s in expression.free_symbols}
    if symbol_values and all(value.is_Integer for value in symbol_values.values()):
        expression, symbol_values = expression.subs(symbol_values).doit(), {}
    # `doit` comes last: it writes 9^{9^9} out.
    for evaluate in (
        lambda: expression.evalf(DIGITS, subs=symbol_values, maxn=200),
        lambda: _evaluate(expression, symbol_values),
    ):
        try:
            value = evaluate()
        except failures():
            continue
        if not value.is_number or value.is_finite is False or value.has(sympy.nan, sympy.zoo, sympy.oo):
            continue
        real, imaginary = value.as_real_imag()
        if real.is_Number and imaginary.is_Number:
            return value
    return None


def _evaluate(expression: Any, symbol_values: Any) -> Any:
    return expression.subs(symbol_values).doit().evalf(DIGITS, maxn=200)


def _agree(one: Any, other: Any) -> bool:
    gap, size = abs(one - other), max(abs(one), abs(other))
    return bool(gap <= size * 10**-AGREE) or bool(size < 10**-80)


def _are_apart(one: Any, other: Any, symbol_values: Any, size: Any) -> bool:
    """Return whether values that agree differ in later digits: `2^{2^{99}}` and `2^{2^{99}}+1`, or `e^{-999}` and 0."""
    import sympy

    if all(value.is_Integer for value in symbol_values.values()) and size < sympy.Float(10) ** WRITTEN_OUT:
        numbers = [expression.subs(symbol_values).doit() for expression in (one, other)]
        if all(isinstance(number, sympy.Rational) for number in numbers):
            return bool(numbers[0] != numbers[1])
    if 10**-80 <= size < 10**AGREE:
        return False
    terms = (*sympy.Add.make_args(one), *(-term for term in sympy.Add.make_args(other)))
    try:  # strict: an error if the terms cancel to fewer digits than are known
        return sympy.Add(*terms).evalf(15, subs=symbol_values, maxn=200, strict=True).is_zero is False
    except failures():
        return False

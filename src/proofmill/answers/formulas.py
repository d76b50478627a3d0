r"""Formulas: parse LaTeX into an expression of SymPy, and compare the values of two expressions.

The parser is that of math-verify, latex2sympy2_extended. Notation that it misreads is rewritten first. It parses a text
completely or not at all.

Differences from `math_verify.parse`:
1. Nothing is extracted from a text that does not parse; there, a fraction in it becomes the answer.
2. Capital and small letters are different letters, `I` is a letter, `f'` is not `f`, degrees are angles (there, they
   are dropped), and the last letter of `2m` is a factor, not a unit.
3. Decimals are exact fractions, and `i` is the imaginary unit unless it is an index.

Differences from `math_verify.verify`:
1. Two expressions are equal if they agree in 45 digits at several points, instead of in six decimals (Schwartz 1980,
   Zippel 1979: a false identity fails nearly everywhere). Fractions are compared exactly.
2. If no point has a value, as for sets, math-verify decides.
"""

import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from proofmill.answers import words
from proofmill.answers.brackets import pieces

DIGITS = 60  # precision of the values that are compared
AGREE = 45  # number of these digits that must agree
WRITTEN_OUT = 10_000  # longest number, in digits, that is also compared exactly
# Values of the symbols in order, for each comparison of two expressions: small fractions, on both sides of 0.
POINTS = (("13/11", "5/7", "17/13"), ("29/9", "31/17", "3/23"), ("-7/5", "-11/19", "8/3"), ("5/17", "-13/6", "-19/7"))
FAR = (("1009/7", "2003/11", "-3001/13"), ("-5003/6", "709/9", "907/10"))  # for step functions

_PARTS = {
    "\\frac": 2,
    "\\dfrac": 2,
    "\\tfrac": 2,
    "\\cfrac": 2,
    "\\binom": 2,
    "\\dbinom": 2,
    "\\tbinom": 2,
    "\\sqrt": 1,
}
_SPELLING = {
    **{"\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\dbinom": "\\binom", "\\tbinom": "\\binom"},
    **{"\\lg": "\\log_{10}", "π": "\\pi ", "√": "\\sqrt", "−": "-", "×": "\\times ", "÷": "\\div ", "∞": "\\infty "},
    **{"·": "\\cdot ", "²": "^{2}", "³": "^{3}", "½": "\\frac{1}{2}", "\\lvert": "|", "\\rvert": "|", "\\!": ""},
}
_GROUPED = re.compile(r"(?<=[0-9])(?:\{,\}|,\\!\s?|\\,|,)(?=[0-9]{3}(?![0-9]))")
_LETTER = re.compile(r"\\(?:text|mathrm|mathit|mathbf|operatorname)\{\s*([A-Za-z])\s*\}")
_DEGREES = re.compile(
    r"((?:[0-9]+(?:\.[0-9]+)?|(?<![A-Za-z\\])[A-Za-z]|\\[A-Za-z]+|\([^()]*\)))\s*\^\{?\\(?:circ|degree)\}?"
)
_PRIMES = re.compile(r"([A-Za-z])((?:'|\^\{?(?:\\prime\s*)+\}?)+)")
_MIXED = re.compile(r"(?<![0-9.^_}])([0-9]+)\s*(\\frac\s*\{([0-9]+)\}\{([0-9]+)\})")
_PROSE = re.compile(  # two words, or one that is neither a product of letters nor a function
    r"(?<![\\A-Za-z{])[A-Za-z]{2,} [A-Za-z]{2,}"
    r"|(?<![\\A-Za-z{])(?!floor|ceil|arc|infin|cosec)(?=[A-Za-z]{4})[A-Za-z][a-z]*[aeiou][a-z]*(?![A-Za-z])"
)
_UNREAD = re.compile(
    r"[?@#&]|(?<![_^0-9.])[0-9.]+ [0-9]|\.\.|\\[lc]?dots|\\pm|\\star|\\(?:text|mathrm)\{[^{}]*\s[^{}]*\}"
)
_LARGE_I = re.compile(r"(?<![A-Za-z\\])I(?![A-Za-z])|(?<![A-Za-z\\{])I(?=[A-Za-z(_^])")


@lru_cache(maxsize=4096)
def parse(latex: str) -> Any:
    """Return the expression of a text; None if the full text does not parse."""
    text = rewrite(latex)
    if _PROSE.search(text) or words.CONDITION.search(text) or (_UNREAD.search(text) and "matrix" not in text):
        return None
    try:
        return exact(_reader().parse(text))
    except Exception as error:
        plain = type(error) is Exception  # raised by the parser itself
        if isinstance(error, MemoryError) or not (plain or isinstance(error, failures())):
            raise
        return None


@lru_cache(maxsize=1)
def _reader() -> Any:
    """Return the parser, without its rule that takes `2(3)` for a mixed number."""
    import sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy

    class Reader(_Latex2Sympy):
        def convert_postfix_list(self, arr: Any, i: int = 0) -> Any:
            if i + 1 < len(arr) and isinstance(first := self.convert_postfix(arr[i]), sympy.Integer):
                rest = self.convert_postfix_list(arr, i + 1)
                if isinstance(rest, sympy.Rational):
                    return self.mul_flat(first, rest)
            return super().convert_postfix_list(arr, i)

    return Reader(config=ConversionConfig(lowercase_symbols=False))


@lru_cache(maxsize=4096)
def is_undefined(latex: str) -> bool:
    """Return whether a formula without letters has no value, such as `\\frac{1}{0}`."""
    import sympy

    expression = parse(latex)
    if not isinstance(expression, sympy.Expr) or expression.free_symbols:
        return False
    return bool(expression.evalf(15).has(sympy.zoo, sympy.nan))


def rewrite(latex: str) -> str:
    """Rewrite notation that the parser misreads."""
    text = _GROUPED.sub("", _LETTER.sub(r" \1 ", latex))
    text = _DEGREES.sub(r"(\1\\cdot\\frac{\\pi}{180})", text)
    text = _PRIMES.sub(lambda m: f"{m[1]}_{{{990 + m[2].count(chr(39)) + m[2].count('prime')}}}", text)
    text = _LARGE_I.sub(r"\\Upsilon ", text)
    return _MIXED.sub(_as_sum, add_braces(text))


def _as_sum(mixed: re.Match[str]) -> str:
    r"""Return `3\frac{1}{2}` as a sum."""
    return f"({mixed[1]}+{mixed[2]})" if int(mixed[3]) < int(mixed[4]) else mixed[0]


def add_braces(latex: str) -> str:
    r"""Add braces around the arguments of `\frac12`, `\frac \pi4` and `\sqrt3`."""
    signs = [_SPELLING.get(piece.sign, piece.sign) for piece in pieces(latex)]
    written: list[str] = []
    index = 0
    while index < len(signs):
        sign = signs[index]
        written.append(sign)
        index += 1
        if sign == "\\sqrt" and index < len(signs) and signs[index] == "[":
            end = index + signs[index:].index("]") + 1 if "]" in signs[index:] else index
            written += signs[index:end]
            index = end
        for _ in range(_PARTS.get(sign, 0)):
            while index < len(signs) and signs[index].isspace():
                index += 1
            if index >= len(signs) or signs[index] in ("{", "(", "}", ")"):
                if index < len(signs) and signs[index] == "{":
                    end = _shut(signs, index)
                    written.append(add_braces("".join(signs[index : end + 1])) if end > index + 1 else "{}")
                    index = end + 1
                continue
            written.append(f"{{{signs[index]}}}")
            index += 1
    return "".join(
        f"{sign} " if re.fullmatch(r"\\[A-Za-z]+", sign) and after[:1].isalpha() else sign
        for sign, after in pairwise([*written, ""])
    )


def _shut(signs: list[str], start: int) -> int:
    depth = 0
    for index in range(start, len(signs)):
        depth += (signs[index] == "{") - (signs[index] == "}")
        if depth == 0:
            return index
    return len(signs) - 1


def exact(expression: Any) -> Any:
    """Return an expression with decimals as fractions, and `i` as the imaginary unit unless it is an index."""
    import sympy

    if not isinstance(expression, sympy.Basic):
        return expression
    meaning: dict[Any, Any] = {number: sympy.Rational(str(number)) for number in expression.atoms(sympy.Float)}
    meaning |= {symbol: sympy.I for symbol in expression.free_symbols if symbol.name == "i"}
    return expression.xreplace(meaning) if meaning else expression


def same(one: Any, other: Any) -> bool:
    """Return whether two expressions have the same value."""
    import sympy
    from math_verify import verify

    if isinstance(one, sympy.MatrixBase) or isinstance(other, sympy.MatrixBase):
        return _same_matrices(one, other)
    if one == other:
        return True
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


def at(point: Sequence[str], symbols: Sequence[Any]) -> dict[Any, Any]:
    """Return the values of symbols at one of `POINTS`. From the fourth on, values repeat, larger by 1."""
    import sympy

    return {symbol: sympy.Rational(point[n % len(point)]) + n // len(point) for n, symbol in enumerate(symbols)}


def _same_values(one: Any, other: Any) -> bool | None:
    """Return whether the values agree at all points at which both have one; None if there is no such point."""
    import sympy

    symbols = sorted(one.free_symbols | other.free_symbols, key=str)
    if not symbols and isinstance(one, sympy.Rational) and isinstance(other, sympy.Rational):
        return bool(one == other)
    looked = False
    steps = one.has(sympy.floor, sympy.ceiling, sympy.Mod) or other.has(sympy.floor, sympy.ceiling, sympy.Mod)
    for point in POINTS + FAR * steps if symbols else POINTS[:1]:
        symbol_values = at(point, symbols)
        values = [value_of(expression, symbol_values) for expression in (one, other)]
        if values[0] is None or values[1] is None:
            if (values[0] is None) != (values[1] is None) and not symbols:
                return None
            continue
        if not _agree(*values):
            return False
        looked = True
    if looked and not symbols and abs(values[0]) < sympy.Integer(10) ** WRITTEN_OUT:
        numbers = [expression.doit() for expression in (one, other)]
        if all(isinstance(number, sympy.Rational) for number in numbers):
            return bool(numbers[0] == numbers[1])
    return True if looked else None


def value_of(expression: Any, symbol_values: Any = None) -> Any:
    """Return the value in 60 digits, real or complex; None if it is undefined or infinite."""
    import sympy

    # `doit` comes last: it writes 9^{9^9} out.
    for evaluate in (
        lambda: expression.evalf(DIGITS, subs=symbol_values or {}, maxn=200),
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
    return expression.subs(symbol_values or {}).doit().evalf(DIGITS, maxn=200)


def _agree(one: Any, other: Any) -> bool:
    gap, size = abs(one - other), max(abs(one), abs(other))
    return bool(gap <= size * 10**-AGREE) or bool(size < 10**-80)


@lru_cache(maxsize=1)
def failures() -> tuple[type[BaseException], ...]:
    """Return the exceptions of SymPy for an expression that it cannot handle. Any other exception ends the worker."""
    from mpmath.libmp.libhyper import NoConvergence
    from sympy import PoleError
    from sympy.polys.polyerrors import BasePolynomialError

    return (
        ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError,
        ValueError, BasePolynomialError, NoConvergence, PoleError,
    )  # fmt: skip

r"""Formulas: parse LaTeX into an expression of SymPy.

The parser is that of math-verify, latex2sympy2_extended. Notation that it misreads is rewritten first. It parses a text
completely or not at all.

Differences from `math_verify.parse`:
1. Nothing is extracted from a text that does not parse; there, a fraction in it becomes the answer.
2. Capital and small letters are different letters, `I` is a letter, `f'` is not `f`, degrees are angles (there, they
   are dropped), and the last letter of `2m` is a factor, not a unit.
3. Decimals are exact fractions, and `i` is the imaginary unit unless it is an index.
4. Functions of letters, `f(2x)`, are not products; a greatest common divisor is not that of polynomials; `\{x\}` next to
   something is a fractional part; roots of odd degree are real; the terms `a_k` of a sum depend on k.
"""

import re
from functools import lru_cache
from itertools import pairwise
from typing import Any

from proofmill.answers.reading import words
from proofmill.answers.reading.brackets import enclosing_pair, pieces, split

_PARTS = {"\\frac": 2, "\\binom": 2, "\\sqrt": 1}
_BASES = {"\\lg": "\\log_{10}"}
_GROUPED = re.compile(r"(?<=[0-9])(?:\{,\}|,\\!\s?|\\,|,)(?=[0-9]{3}(?![0-9]))")
_LETTER = re.compile(r"\\(?:text|mathrm|mathit|mathbf|operatorname)\{\s*([A-Za-z])\s*\}")
_NAMED = re.compile(r"\\(?:operatorname|mathrm|text)\{\s*(a?r?c?(?:sin|cos|tan|cot)h?|ln|log|lim|max|min|gcd)\s*\}")
_DEGREES = re.compile(
    r"((?:[0-9]+(?:\.[0-9]+)?|(?<![A-Za-z\\])[A-Za-z]|\\[A-Za-z]+|\([^()]*\)))\s*\^(?:\{\\circ\}|\\circ)"
)
_PRIMES = re.compile(r"([A-Za-z])((?:'|\^\{?(?:\\prime\s*)+\}?)+)")
_MIXED = re.compile(r"(?<![0-9.^_}])([0-9]+)\s*(\\frac\s*\{([0-9]+)\}\{([0-9]+)\})")
_ODD_ROOT = re.compile(r"\\sqrt\s*\[([0-9]*[13579])\]\s*(?=\{)")
_APPLIED = re.compile(  # what the parser would multiply out, or drop
    r"(?<![A-Za-z\\])(?P<name>[fghFGH]|C(?=\([^,()]+,[^,()]+\))|\\(?:var)?phi|\\(?:sigma|tau|psi|gcd|Re|Im|zeta|Gamma)|\\operatorname\{\s*(?P<word>[A-Za-z]+)\s*\})"
    r"(?P<index>(?:_(?:\w|\{[^{}]*\}))?(?:\^\{-1\})?)\s*(?=\()"
)
_FRACTIONAL = re.compile(r"(?=\\\{)")
_DOUBLE_FACTORIAL = re.compile(r"([0-9]+|(?<![A-Za-z\\])[A-Za-z]|\([^()]*\))!!")
_TRANSPOSED = re.compile(r"[A-Z)]\s*\^\{?\s*(?:T|\\top|\\intercal|\\(?:mathrm|mathsf|text)\{T\})\s*\}?(?![a-zA-Z])")
_BASIS = re.compile(r"\\(?:mathbf|boldsymbol|bm|hat|vec)\{\\?[ijk](?:math)?\}")  # of vectors
_VECTORS = re.compile(r"\\(?:vec|mathbf|boldsymbol|overrightarrow|hat)\W.*\\times|\\(?:circ|star|ast)(?![a-z}])")
_PROSE = re.compile(  # two words, or one that is neither a product of letters nor a function
    r"(?<![\\A-Za-z{])[A-Za-z]{2,} [A-Za-z]{2,}"
    r"|(?<![\\A-Za-z{])(?!floor|ceil|arc|infin|cosec)(?=[A-Za-z]{4})[A-Za-z][a-z]*[aeiou][a-z]*(?![A-Za-z])"
)
_UNREAD = re.compile(
    r"[0-9]'|[?@#&]|\\\{[^{}]*(?::|\\mid)|(?<![_^0-9.])[0-9.]+ [0-9]|\.\.|\\[lc]?dots|\\pm|\\star|\\(?:text|mathrm)\{[^{}]*(?:\s[^{}]*|[A-Za-z]{3}[^{}]*)\}"
)
_LARGE_I = re.compile(r"(?<![A-Za-z\\])I(?![A-Za-z])|(?<![A-Za-z\\{])I(?=[A-Za-z(_^])")


@lru_cache(maxsize=4096)
def parse(latex: str) -> Any:
    """Return the expression of a text; None if the full text does not parse."""
    if _BASIS.search(latex):
        return None
    text = rewrite(latex)
    if _PROSE.search(text) or words.CONDITION.search(text) or _TRANSPOSED.search(text) or _VECTORS.search(text):
        return None
    if not text.isascii() or any(
        words.value(run) is not None for run in re.findall(r"(?<![A-Za-z\\])[a-z]{3}(?![a-z])", text)
    ):
        return None  # `ten(10)`
    if _UNREAD.search(text) and "matrix" not in text:
        return None
    try:
        return _tree(text)
    except Exception as error:
        plain = type(error) is Exception  # raised by the parser itself
        if isinstance(error, MemoryError) or not (plain or isinstance(error, failures())):
            raise
        return None


def _tree(text: str, known: dict[Any, Any] | None = None) -> Any:
    """Return the expression of a text, whose functions, odd roots and fractional parts are parsed one by one.

    `known` has the expression of each symbol that replaces such a part, also within other parts.
    """
    import sympy

    known = {} if known is None else known

    def put(text: str, start: int, end: int, expression: Any) -> str:
        known[sympy.Symbol(f"Xi_{len(known)}")] = expression
        return f"{text[:start]}\\Xi_{{{len(known) - 1}}} {text[end:]}"

    while found := _DOUBLE_FACTORIAL.search(text):
        text = put(text, found.start(), found.end(), sympy.factorial2(_tree(found[1], known)))
    while (found := _APPLIED.search(text)) and "\\lim" not in text:
        name, (inside, end) = found["word"] or found["name"], _read_bracket(text, found.end())
        arguments = [_tree(part, known) for _, part in split(inside, (",",))]
        value = numeric().get(name.lstrip("\\"), sympy.Function(name.lstrip("\\") + (found["index"] or "")))(*arguments)
        text = put(text, found.start(), end, value)
    while found := _ODD_ROOT.search(text):
        inside, end = _read_bracket(text, found.end())
        text = put(text, found.start(), end, numeric()["root"](_tree(inside, known), sympy.Integer(found[1])))
    while (found := _FRACTIONAL.search(text)) and not enclosing_pair(text):
        inside, end = _read_bracket(text, found.start())
        text = put(text, found.start(), end, sympy.frac(_tree(inside, known)))
    return exact(_reader().parse(text)).xreplace(known) if known else exact(_reader().parse(text))


def _read_bracket(text: str, start: int) -> tuple[str, int]:
    """Return the content of the bracket that opens at a position, and the position after it. Raises LookupError."""
    signs = pieces(text[start:])
    shut = next((piece for piece in signs[1:] if piece.depth == 0), None)
    if shut is None:
        raise LookupError(text)
    return text[start + len(signs[0].sign) : start + shut.start], start + shut.start + len(shut.sign)


@lru_cache(maxsize=1)
def numeric() -> dict[str, Any]:
    """Return the functions that have a value only at numbers, by name."""
    import sympy

    class GreatestDivisor(sympy.Function):
        @classmethod
        def eval(cls, *numbers: Any) -> Any:
            return sympy.igcd(*numbers) if all(number.is_Integer for number in numbers) else None

    class LeastMultiple(sympy.Function):
        @classmethod
        def eval(cls, *numbers: Any) -> Any:
            return sympy.ilcm(*numbers) if all(number.is_Integer for number in numbers) else None

    class Root(sympy.Function):
        """The real root of an odd degree."""

        @classmethod
        def eval(cls, base: Any, degree: Any) -> Any:
            if base.is_negative:
                return -((-base) ** (1 / degree))
            return base ** (1 / degree) if base.is_nonnegative or base.is_real is False else None

    def part(name: str, function: Any) -> Any:
        return lambda number: function(number) if number.is_number else sympy.Function(name)(number)

    return {
        **{"gcd": GreatestDivisor, "lcm": LeastMultiple, "root": Root, "C": sympy.binomial},
        **{"zeta": sympy.zeta, "Gamma": sympy.gamma, "Re": part("Re", sympy.re), "Im": part("Im", sympy.im)},
    }


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
    text = _GROUPED.sub("", _LETTER.sub(r" \1 ", _NAMED.sub(r"\\\1 ", latex)))
    text = _DEGREES.sub(r"(\1\\cdot\\frac{\\pi}{180})", text)
    text = _PRIMES.sub(lambda m: f"{m[1]}_{{{990 + m[2].count(chr(39)) + m[2].count('prime')}}}", text)
    text = _LARGE_I.sub(r"\\Upsilon ", text)
    return _MIXED.sub(_as_sum, add_braces(text))


def _as_sum(mixed: re.Match[str]) -> str:
    r"""Return `3\frac{1}{2}` as a sum."""
    return f"({mixed[1]}+{mixed[2]})" if int(mixed[3]) < int(mixed[4]) else mixed[0]


def add_braces(latex: str) -> str:
    r"""Add braces around the arguments of `\frac12`, `\frac \pi4` and `\sqrt3`."""
    signs = [_BASES.get(piece.sign, piece.sign) for piece in pieces(latex)]
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

    if isinstance(expression, sympy.MatrixExpr):
        return expression.doit().as_mutable()
    if not isinstance(expression, sympy.Basic):
        return expression
    meaning: dict[Any, Any] = {number: sympy.Rational(str(number)) for number in expression.atoms(sympy.Float)}
    meaning |= {symbol: sympy.I for symbol in expression.free_symbols if symbol.name == "i"}
    expression = expression.xreplace(meaning) if meaning else expression
    sums = expression.atoms(sympy.Sum, sympy.Product)
    return expression.xreplace({one: _with_terms(one) for one in sums}) if sums else expression


def _with_terms(total: Any) -> Any:
    """Return a sum or product whose indexed terms, `a_k`, are functions of its variable."""
    import sympy

    variables = {str(limit[0]) for limit in total.limits}
    meaning = {}
    for symbol in total.function.free_symbols:
        name, _, index = symbol.name.partition("_")
        if variables & set(re.findall(r"[A-Za-z]", index)):
            meaning[symbol] = sympy.Function(name)(_reader().parse(index.removeprefix("{").removesuffix("}")))
    return total.func(total.function.xreplace(meaning), *total.limits)


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

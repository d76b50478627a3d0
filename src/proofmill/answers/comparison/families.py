"""Compare answers with letters that stand for any number of a kind: constants, multiples, arithmetic progressions."""

import re
from collections.abc import Callable
from itertools import permutations
from typing import Any

from proofmill.answers.comparison import identities
from proofmill.answers.comparison.values import Unclear, expression
from proofmill.answers.reading.forms import CongruenceAnswer, Family, Form, Formula, Number, Relation, Several

Equal = Callable[[Form, Form], bool]


def is_progression(congruence: CongruenceAnswer, other: Form) -> bool:
    """Return whether `4k+3`, in which one letter is any whole number, are the numbers of a congruence."""
    if isinstance(other, Family) and other.kind not in ("", "Z"):
        return False  # `4k+3` for positive k are not all of them
    value = other.value if isinstance(other, Family) else other
    value = value.sides[-1] if isinstance(value, Relation) and value.signs == ("=",) else value
    if not isinstance(value, Formula) or not isinstance(congruence.modulus, Number | Formula):
        return False
    letters = [str(symbol) for symbol in expression(value).free_symbols]
    line = _line(value, letters[0]) if len(letters) == 1 and letters[0] in "jklmnqrstpabcd" else None
    if line is None:
        return False
    step, offset = line
    return identities.same(abs(step), expression(congruence.modulus)) and _whole(
        (offset - expression(congruence.residue)) / step
    )


_FUNCTION = re.compile(r"([A-Za-z]'*(?:_\w)?)\(([xyztnsm])\)")
_CONSTANTS = frozenset(("alpha", "beta", "lambda", *"abcdkmnprstABCDKMN"))


def same_function(gold: Relation, answer: Relation) -> bool | None:
    """Return whether `f(x)=2x` and `f(t)=2t` define one function; None if they do not define one by two letters."""
    one, other = (_FUNCTION.fullmatch(relation.name or "") for relation in (gold, answer))
    if not one or not other or one[1] != other[1] or one[2] == other[2] or {*gold.signs, *answer.signs} != {"="}:
        return None
    value, changed = expression(gold.sides[-1]), expression(answer.sides[-1])
    letters = {str(symbol): symbol for symbol in value.free_symbols | changed.free_symbols}
    if other[2] not in letters or one[2] not in letters or letters[one[2]] in changed.free_symbols:
        return one[2] not in letters and identities.same(value, changed)
    return identities.same(value, changed.xreplace({letters[other[2]]: letters[one[2]]}))


def are_renamed(gold: Form, answer: Form, sure: bool = False) -> bool:
    """Return whether two answers are equal up to the names of constants that the problem does not give.

    These are the letters of `f(x)=ax+b` other than x, and a constant of integration, `+C`. Raises Unclear if the same
    letters are only in other places, unless the answers are `sure` to be equal.
    """
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        name = _FUNCTION.fullmatch(gold.name or "")
        if not name or not (gold.name and answer.name and are_alike(gold.name, answer.name)) or gold.signs != ("=",):
            return False
        one, other = gold.sides[-1], answer.sides[-1]
        variables = {name[2]}
    elif isinstance(gold, Formula) and isinstance(answer, Formula):
        one, other, variables = gold, answer, None
    else:
        return False
    if not isinstance(one, Formula) or not isinstance(other, Formula):
        return False
    first, second = expression(one), expression(other)
    constants = [
        [s for s in found.free_symbols if (s.name not in variables if variables else _is_added(s, found))]
        for found in (first, second)
        if hasattr(found, "free_symbols")
    ]
    if len(constants) < 2 or len(constants[0]) != len(constants[1]) or not 0 < len(constants[0]) < 4 or first == second:
        return False
    mine, theirs = ([symbol for symbol in some if symbol not in constants[1 - n]] for n, some in enumerate(constants))
    permuted = not mine  # `ax+b` and `bx+a`
    if permuted:
        mine = theirs = constants[0]
    equal = all(symbol.name in _CONSTANTS for symbol in theirs) and any(
        identities.same(first, second.xreplace(dict(zip(theirs, chosen, strict=True)))) for chosen in permutations(mine)
    )
    if equal and permuted and not sure:
        raise Unclear("constants may have other names")
    return equal and not permuted


def _is_added(symbol: Any, expression: Any) -> bool:
    """Return whether a letter is a constant of integration: added to an expression of other letters."""
    return (
        symbol.name in "CcKk" and expression.is_Add and symbol in expression.args and len(expression.free_symbols) > 1
    )


def compare_families(gold: Form, answer: Form, equal: Equal) -> bool:
    """Compare values with letters for any numbers, of whatever name; whole multiples also up to their beginning."""
    if not (isinstance(gold, Family) and isinstance(answer, Family)):
        family, other = (gold, answer) if isinstance(gold, Family) else (answer, gold)
        assert isinstance(family, Family), "one of them is"
        if isinstance(other, CongruenceAnswer):
            return is_progression(other, family)
        kind, letters = family.kind, family.letters
        pair: tuple[Form, Form] = (family.value, other) if family is gold else (other, family.value)
        if equal(*pair):
            return True
    elif gold.kind and answer.kind and gold.kind != answer.kind:
        return False
    else:
        kind, letters = gold.kind or answer.kind, (*gold.letters, *answer.letters)
        pair = (gold.value, answer.value)
        if are_renamed(*pair):
            return True
    sides = [form.sides[-1] if isinstance(form, Relation) and form.signs == ("=",) else form for form in pair]
    if kind == "Z":
        lines = [
            [_line(part, *letters) for part in (side.members if isinstance(side, Several) else (side,))]
            for side in sides
        ]
        covered = [[any(_same_line(one, other) for one in lines[n]) for other in lines[1 - n]] for n in (0, 1)]
        return all(map(all, covered))
    if not all(isinstance(side, Formula) for side in sides):
        return False
    if len({*letters}) in (1, 2):
        first, second = map(expression, sides)
        return any(
            identities.same(first, second.xreplace({theirs: mine}))
            for theirs in second.free_symbols - first.free_symbols
            for mine in first.free_symbols
            if mine.name in letters
        )
    return False


def _line(form: Form, *letters: str) -> tuple[Any, Any] | None:
    """Return (step, beginning) of a value that is linear in one of these letters; None for another one."""
    import sympy

    if not isinstance(form, Formula):
        return None
    found = expression(form)
    if not isinstance(found, sympy.Expr):
        return None
    for symbol in sorted(found.free_symbols, key=str):
        if symbol.name in letters:
            step = sympy.expand(found).coeff(symbol, 1)
            rest = sympy.expand(found - step * symbol)
            return None if step.has(symbol) or rest.has(symbol) else (step, rest)
    return None


def _same_line(one: tuple[Any, Any] | None, other: tuple[Any, Any] | None) -> bool:
    """Return whether two arithmetic progressions without end have the same members."""
    if one is None or other is None:
        return False
    return identities.same(abs(one[0]), abs(other[0])) and _whole((one[1] - other[1]) / one[0])


def _whole(expression: Any) -> bool:
    """Return whether the value of an expression is a whole number."""
    import sympy

    return bool(sympy.nsimplify(sympy.simplify(expression), rational=False).is_integer)


def are_alike(one: str, other: str) -> bool:
    return one.replace(" ", "") == other.replace(" ", "")

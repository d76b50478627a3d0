"""Compare answers with letters that stand for any number of a kind: constants, multiples, arithmetic progressions."""

import math
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from itertools import permutations
from typing import Any

from proofmill.answers.comparison import identities
from proofmill.answers.comparison.values import Unclear, expression
from proofmill.answers.reading.brackets import pieces
from proofmill.answers.reading.forms import (
    CongruenceAnswer,
    Family,
    Form,
    Formula,
    Number,
    Relation,
    Several,
    Words,
    formulas_in,
)

Equal = Callable[[Form, Form], bool]


def has_letters(form: Form) -> bool:
    """Return whether a small letter or a condition on whole numbers is a part of a form."""
    if isinstance(form, Several):
        return any(map(has_letters, form.members))
    if isinstance(form, Relation):
        return any(map(has_letters, form.sides))
    latex = " ".join(formula.latex for formula in formulas_in(form))
    return isinstance(form, CongruenceAnswer) or bool(re.search(r"(?<![A-Za-z\\])[a-z](?![a-z])", latex))


def is_progression(congruence: CongruenceAnswer, other: Form) -> bool:
    """Return whether `4k+3`, in which one letter is any whole number, are the numbers of a congruence."""
    if isinstance(other, Family) and other.kind not in ("", "Z"):
        return False  # `4k+3` for positive k are not all of them
    value = other.value if isinstance(other, Family) else other
    value = value.sides[-1] if isinstance(value, Relation) and value.signs == ("=",) else value
    if not isinstance(value, Formula) or not isinstance(congruence.modulus, Number | Formula):
        if has_letters(value):
            raise Unclear("a condition on whole numbers")
        return False
    letters = [str(symbol) for symbol in expression(value).free_symbols]
    line = _line(value, letters[0]) if len(letters) == 1 and letters[0] in "jklmnqrstpabcd" else None
    if line is None:
        return False
    (step,), (offset,) = line
    return identities.same(abs(step), expression(congruence.modulus)) and _whole(
        (offset - expression(congruence.residue)) / step
    )


MOST_RESIDUES = 100_000  # of a common modulus


def have_same_residues(gold: Form, answer: Form) -> bool:
    """Compare congruences of one name with several residues, `n = 1, 3 mod 4`, with one, `n = 1 mod 2`."""
    sides, names = list[list[tuple[int, int]]](), set[str]()
    for form in (gold, answer):
        members = form.members if isinstance(form, Several) else (form,)
        known = [m for m in members if isinstance(m, CongruenceAnswer)]
        numbers = [(m.residue.value, m.modulus.value) for m in known
                   if isinstance(m.residue, Number) and isinstance(m.modulus, Number)]  # fmt: skip
        if len(numbers) < len(members) or any(part.denominator > 1 or n < 1 for part, n in numbers):
            raise Unclear("a condition on whole numbers")
        sides.append([(int(residue), int(modulus)) for residue, modulus in numbers])
        names |= {m.name for m in known if m.name is not None}
    if len(names) > 1:
        return False
    common = math.lcm(*(modulus for side in sides for _, modulus in side))
    if common > MOST_RESIDUES:
        raise Unclear("a condition on whole numbers")
    one, other = ({n for n in range(common) if any((n - r) % m == 0 for r, m in side)} for side in sides)
    return one == other


def rename(form: Any, letters: dict[str, str]) -> Any:
    """Return a form, or a tuple of forms, whose formulas have other letters."""
    if isinstance(form, tuple):
        return tuple(rename(part, letters) for part in form)
    if isinstance(form, Formula):
        return Formula("".join(letters.get(piece.sign, piece.sign) for piece in pieces(form.latex)))
    if not is_dataclass(form):
        return form
    return replace(form, **{part.name: rename(getattr(form, part.name), letters) for part in fields(form)})  # type: ignore[type-var]  # a form


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
        if not (gold.name and answer.name and are_alike(gold.name, answer.name)) or gold.signs != ("=",):
            return False
        one, other = gold.sides[-1], answer.sides[-1]
        variables = {name[2]} if name else None
    elif isinstance(gold, Formula) and isinstance(answer, Formula):
        one, other, variables = gold, answer, None
    else:
        return False
    if not isinstance(one, Formula) or not isinstance(other, Formula):
        return False
    first, second = expression(one), expression(other)
    if _differ_by_constant(first, second):
        return True
    constants = [
        [s for s in found.free_symbols if (s.name not in variables if variables else _is_added(s, found))]
        for found in (first, second)
        if hasattr(found, "free_symbols")
    ]
    unsure = variables is None and not any(constants)
    if unsure:
        constants = [[s for s in found.free_symbols if _plain(s) in "ABCDK"] for found in (first, second)]
        if len(first.free_symbols) == len(constants[0]):
            return False
    if len(constants) < 2 or len(constants[0]) != len(constants[1]) or not 0 < len(constants[0]) < 4 or first == second:
        return False
    mine, theirs = ([symbol for symbol in some if symbol not in constants[1 - n]] for n, some in enumerate(constants))
    permuted = not mine  # `ax+b` and `bx+a`
    if permuted:
        mine = theirs = constants[0]
    equal = all(_plain(symbol) in _CONSTANTS for symbol in theirs) and any(
        identities.same(first, second.xreplace(dict(zip(theirs, chosen, strict=True)))) for chosen in permutations(mine)
    )
    if equal and (permuted or unsure) and not sure:
        raise Unclear("constants may have other names")
    return equal and not permuted and not unsure


def have_other_constants(gold: Form, answer: Form) -> bool:
    """Return whether each of two values has as many constants that the other does not have.

    One of them must be named as constants usually are: a capital, or with an index.
    """
    if isinstance(gold, Relation) and isinstance(answer, Relation) and {*gold.signs, *answer.signs} == {"="}:
        gold, answer = gold.sides[-1], answer.sides[-1]
    if isinstance(gold, Formula) and isinstance(answer, Formula):
        one, other = ({*getattr(expression(form), "free_symbols", ())} for form in (gold, answer))
        own = (one - other, other - one)
        named = any(_is_named_constant(symbol) for some in own for symbol in some)
        known = all(some and all(_plain(symbol) in _CONSTANTS for symbol in some) for some in own)
        return bool(one & other) and named and known and len(own[0]) == len(own[1])
    return False


def _is_named_constant(symbol: Any) -> bool:
    return bool(re.fullmatch(r"[ABCDK](?:_.+)?|[ck]_.+", symbol.name))


def _plain(symbol: Any) -> str:
    """Return the name of a letter without its index: `C` for `C_1`."""
    return str(symbol.name.partition("_")[0])


def _differ_by_constant(one: Any, other: Any) -> bool:
    """Return whether two antiderivatives with a constant, `+C`, have the same derivative."""
    import sympy

    added = sympy.Symbol("C")
    letters: list[set[Any]] = [getattr(found, "free_symbols", set()) - {added} for found in (one, other)]
    if not all(getattr(found, "is_Add", False) and added in found.args for found in (one, other)):
        return False
    return (
        letters[0] == letters[1]
        and len(letters[0]) == 1
        and identities.same(sympy.diff(one, *letters[0]), sympy.diff(other, *letters[0]))
    )


def _is_added(symbol: Any, expression: Any) -> bool:
    """Return whether a letter is a constant of integration: added to an expression of other letters."""
    return (
        symbol.name in "CcKk" and expression.is_Add and symbol in expression.args and len(expression.free_symbols) > 1
    )


_BEGINS = {"Z>0": 1, "Z>=0": 0}
_NATURAL = {"N", "Z>0", "Z>=0"}


def compare_families(gold: Form, answer: Form, equal: Equal) -> bool:
    """Compare values with letters for any numbers, of whatever name; whole multiples also up to their beginning.

    Raises Unclear if they may be the same numbers in another order, as `2^{k+1}` and `2^k`.
    """
    for one, other in ((gold, answer), (answer, gold)):
        if isinstance(one, CongruenceAnswer):
            return is_progression(one, other)
    if isinstance(gold, Words) or isinstance(answer, Words):
        raise Unclear("words that are not understood")
    kinds = {form.kind for form in (gold, answer) if isinstance(form, Family) and form.kind}
    sides = [_value(form) for form in (gold, answer)]
    mine, theirs = (_letters(form, side) for form, side in zip((gold, answer), sides, strict=True))
    alike = len(kinds) < 2 or kinds in ({"N", "Z>0"}, {"N", "Z>=0"})
    whole = [form.value if isinstance(form, Family) else form for form in (gold, answer)]
    if alike and (equal(*sides) or are_renamed(sides[0], sides[1]) or (whole != sides and equal(*whole))):
        return True
    if alike and len(mine) == len(theirs) < 4:
        for chosen in permutations(mine):
            letters = dict(zip(theirs, chosen, strict=True))
            if chosen != theirs and any(equal(one, rename(other, letters)) for one, other in (sides, whole)):
                return True
    lines = [[line for part in _parts(side) if (line := _line(_value(part), *(mine + theirs)))] for side in sides]
    if all(len(some) == len(_parts(side)) for some, side in zip(lines, sides, strict=True)):
        if kinds == {"Z"}:
            lines = _to_one_step(lines)
            covered = [[any(_same_line(one, other) for one in lines[n]) for other in lines[1 - n]] for n in (0, 1)]
            return all(map(all, covered))
        begins = [_BEGINS.get(form.kind) if isinstance(form, Family) else None for form in (gold, answer)]
        if None not in begins and [len(some) for some in lines] == [1, 1]:
            first, other_first = (
                [rest + begin * step for step, rest in zip(*some[0], strict=True)]
                for some, begin in zip(lines, begins, strict=True)
            )
            pairs = zip([*lines[0][0][0], *first], [*lines[1][0][0], *other_first], strict=False)
            return len(first) == len(other_first) and all(identities.same(a, b) for a, b in pairs)
    if any(isinstance(side, Relation) for side in sides):
        raise Unclear("a condition on whole numbers")
    if not mine or not theirs or (len(kinds) > 1 and ("R" in kinds or ("Z" in kinds and kinds & _NATURAL))):
        return False
    raise Unclear("letters stand for any numbers")


def _parts(form: Form) -> tuple[Form, ...]:
    return form.members if isinstance(form, Several) and form.kind != "tuple" else (form,)


def _value(form: Form) -> Form:
    value = form.value if isinstance(form, Family) else form
    return value.sides[-1] if isinstance(value, Relation) and value.signs == ("=",) else value


def _letters(form: Form, value: Form) -> tuple[str, ...]:
    """Return the letters that stand for any number: the declared ones, or all that count or are constants."""
    used = {piece.sign for formula in formulas_in(value) for piece in pieces(formula.latex)}
    declared = form.letters if isinstance(form, Family) else tuple("jklmnpqrstabcCKAB")
    return tuple(letter for letter in declared if letter in used)


Line = tuple[list[Any], list[Any]]


def _line(form: Form, *letters: str) -> Line | None:
    """Return the steps and the beginnings of a value, or of a tuple's values, that are linear in one of these letters."""
    import sympy

    parts = form.members if isinstance(form, Several) and form.kind == "tuple" else (form,)
    found = [expression(part) for part in parts if isinstance(part, Formula | Number)]
    if len(found) < len(parts) or not all(isinstance(one, sympy.Expr) for one in found):
        return None
    used = {symbol for one in found for symbol in one.free_symbols if symbol.name in letters}
    if len(used) != 1:
        return None
    symbol = used.pop()
    steps = [sympy.expand(one).coeff(symbol, 1) for one in found]
    rests = [sympy.expand(one - step * symbol) for one, step in zip(found, steps, strict=True)]
    return None if any(part.has(symbol) for part in steps + rests) else (steps, rests)


MOST_PARTS = 60  # progressions that one is split into


def _to_one_step(sides: list[list[Line]]) -> list[list[Line]]:
    """Split progressions of numbers so that all have one step: `k pi / 2` into `k pi` and `pi / 2 + k pi`.

    Returns tuples, and those whose steps have no common multiple, unchanged. Raises Unclear for different numbers of tuples,
    and for too many parts.
    """
    import sympy

    if any(len(line[0]) > 1 for lines in sides for line in lines):
        if len(sides[0]) != len(sides[1]):
            raise Unclear("letters stand for any numbers")
        return sides
    steps = [step for lines in sides for (step, *_), _ in lines]
    ratios = [sympy.nsimplify(sympy.simplify(step / steps[0]), rational=False) for step in steps]
    if not all(ratio.is_Rational and ratio != 0 for ratio in ratios):
        return sides
    whole = [abs(ratio * sympy.ilcm(1, *(r.q for r in ratios))) for ratio in ratios]
    common = sympy.ilcm(*whole)
    if sum(common // number for number in whole) > MOST_PARTS:
        raise Unclear("letters stand for any numbers")
    parts = iter([common // number for number in whole])
    return [
        [
            ([step * number for step in line[0]], [a + step * n for a, step in zip(line[1], line[0], strict=True)])
            for line in lines
            for number in [next(parts)]
            for n in range(number)
        ]
        for lines in sides
    ]


def _same_line(one: Line, other: Line) -> bool:
    """Return whether two arithmetic progressions without end, of numbers or of tuples, have the same members."""
    if len(one[0]) != len(other[0]):
        return False
    for sign in (1, -1):
        if all(identities.same(a, sign * b) for a, b in zip(one[0], other[0], strict=True)):
            gaps = [(a - b, step) for step, a, b in zip(*one, other[1], strict=True)]
            counts = [gap / step for gap, step in gaps if step != 0]
            if all(identities.same(gap, 0 * gap) for gap, step in gaps if step == 0):
                return _whole(counts[0]) and all(identities.same(count, counts[0]) for count in counts)
    return False


def _whole(expression: Any) -> bool:
    """Return whether the value of an expression is a whole number."""
    import sympy

    return bool(sympy.nsimplify(sympy.simplify(expression), rational=False).is_integer)


_EXTREME = re.compile(r"_\{?(?:\\text\{)?\\?(?:max|min|[0-9])\}*$")


def are_alike(one: str, other: str) -> bool:
    """Return whether two names are equal; one of them may have an index, `k_{max}`."""
    one, other = one.replace(" ", ""), other.replace(" ", "")
    return one == other or _EXTREME.sub("", one) == other or one == _EXTREME.sub("", other)

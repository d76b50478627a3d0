r"""Read the structure of an answer: lists, tuples, sets, intervals, relations, congruences, families, rows.

Each function takes a text, and the function that reads its parts.
"""

import re
from collections.abc import Callable, Iterable
from itertools import pairwise, product
from typing import Literal, TypeGuard

from proofmill.answers.reading import plain_numbers, words
from proofmill.answers.reading.brackets import enclosing_pair, is_closed, split
from proofmill.answers.reading.forms import (
    CongruenceAnswer,
    Family,
    Form,
    Formula,
    Interval,
    NamedSet,
    Number,
    Operation,
    Relation,
    Several,
    Sign,
)
from proofmill.answers.reading.spelling import STYLE as _STYLE

Read = Callable[[str], Form | None]

STYLED = re.compile(_STYLE + r"\{([^{}]*)\}")
_SEPARATORS = re.compile(
    _STYLE + r"\{[,\s]*(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:lor|land|vee|wedge|quad)(?![A-Za-z])"
)
_SIGNS: dict[str, Sign] = {
    **{"=": "=", "\\ne": "!=", "<": "<", ">": ">", "\\le": "<=", "\\ge": ">=", "\\in": "in", "\\approx": "~"},
}
_NAME = (
    r"(?:\\?[A-Za-z]+|\\(?:mathrm|mathbf|text|operatorname)\{[A-Za-z ]+\})(?:_(?:\w|\{[^{}]*\}))?'*(?:\^(?:\*|\{\*\}))?"
)
_NAMED = re.compile(rf"{_NAME}(?:(?:\^\{{-1\}})?\((?:{_NAME}|[0-9]+)(?:,(?:{_NAME}|[0-9]+))*\))?")
_VALUED = re.compile(  # something with a value: `\lim ... = 3` is no equation in its letters
    r"\\(?:lim|sum|prod|int|iint|angle|triangle|overline|max|min|inf|sup|mathbb\{[EP]\}|operatorname)|^\|.*\|$|^\\lvert"
)
_MODULUS = re.compile(
    rf"(?:\\pmod|\\bmod|\\mod|\(?(?:{_STYLE}\{{)?\s*mod(?:ulo)?\s*\}}?)\s*(?:\{{([^{{}}]+)\}}|([^(){{}}]+))\)?$"
)
_PLUS_MINUS = re.compile(r"\\([pm])[mp](?![A-Za-z])")
_ROWS = re.compile(r"\\begin\{(cases|array|aligned|gathered|split)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}", re.DOTALL)
_DOMAIN = re.compile(
    r"(.+?)(?:(?:[,\s(]|\\quad|\\forall)+(?P<letters>(?P<first>[A-Za-z])(?:,(?!(?P=first))[A-Za-z])*)\\in(?P<set>.+?)|[,\s(]*(?P<words>(?:(?:for|with|where)\s|[a-z] (?:is )?(?:any |an |some )?integer).*?))\)?",
    re.DOTALL,
)
_CONSTANT = re.compile(
    r"(?:(?:for|with|where)\s)?(?:some|any|all|every|arbitrary)?\s?(?P<kind>(?:(?:real|integer|whole|positive|arbitrary|fixed|constant"
    r"|number)s?\s?)*)(?P<letter>[A-Za-z](?:(?:,| and )[A-Za-z])*)(?:\\in(?P<set>.+)|\s?(?:is|are|being)?\s?(?:an?|any|some)?\s?"
    r"(?P<after>(?:\s?(?:real|integer|whole|positive|arbitrary|fixed|constant|number)s?)*))"
)
_NAMED_SET = re.compile(
    r"\\(?:mathbb|mathbf|Bbb)\{?([RZNQC])\}?(?:[_^]\{?\s*(\+|-|\*|>0|<0|\\ge0|\\le0|\\ne0|\\neq0|>=0)\s*\}?)?"
)
_IF = re.compile(rf"(?:{_STYLE}\{{)?\s*(?:if|for|when)\s*\}}?(?![a-z])")
_OPTIONS = tuple(Formula(letter) for letter in "ABCDEFGHIJ")
_OR = re.compile(r"(?<![A-Za-z])or(?![A-Za-z])|\\vee")
_GROUPED = re.compile(r"[^,]*[=<>~$ ]-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")  # `x=1,234` is one value
_BUILDER = ("|", ":", "\\mid", "\\colon")
_SET_PARTS = {"+": ">0", "-": "<0", "*": "!=0", "\\ge0": ">=0", "\\le0": "<=0", "\\ne0": "!=0"}
_OPERATIONS: dict[str, Literal["union", "intersection", "difference"]] = {
    **{"\\cup": "union", "\\cap": "intersection", "\\setminus": "difference"}
}


def _all(parts: Iterable[str], read: Read) -> tuple[Form, ...] | None:
    """Parse all parts; None if one of them cannot be parsed."""
    forms = [read(part) for part in parts]
    return None if None in forms else tuple(form for form in forms if form is not None)


def _flat(forms: Iterable[Form]) -> tuple[Form, ...]:
    """Return the members of a list, in which `\\pm 1` and `1, 2, \\ldots, 5` stand for several."""
    members = [one for form in forms for one in (form.members if _is_list(form) else (form,))]
    dots = [n for n, one in enumerate(members) if one == Formula("\\ldots")]
    if len(dots) == 1 and 2 <= dots[0] == len(members) - 2:
        known = [one.value for one in members if isinstance(one, Number)]
        steps = {b - a for a, b in pairwise(known[:-1])}
        if len(known) == len(members) - 1 and len(steps) == 1 and (step := steps.pop()):
            number = (known[-1] - known[0]) / step
            if number.denominator == 1 and len(known) <= number < 1000:
                return tuple(Number(known[0] + n * step) for n in range(int(number) + 1))
    return tuple(members)


def _is_list(form: Form) -> TypeGuard[Several]:
    return isinstance(form, Several) and form.kind == "list"


def read_congruence(text: str, read: Read) -> Form | None:
    if not (match := _MODULUS.search(text)):
        return None
    before, modulus = text[: match.start()].strip(), read((match[1] or match[2]).strip())
    parts = split(before.rstrip(" ,("), ("\\equiv", "="))
    residue = read(parts[-1][1])
    if residue is None or modulus is None or len(parts) > 2:
        return None
    name = parts[0][1] if len(parts) == 2 else None
    if isinstance(residue, Several) and residue.kind == "list":
        return Several("list", tuple(CongruenceAnswer(name, one, modulus) for one in residue.members))
    return CongruenceAnswer(name, residue, modulus)


def read_set_operation(text: str, read: Read) -> Form | None:
    """Parse unions, intersections and differences from left to right, and `\\mathbb{R}-\\{0\\}`."""
    if found := _NAMED_SET.fullmatch(text):
        return NamedSet(words.LETTERS[found[1]], _SET_PARTS.get(found[2] or "", found[2] or ""))
    parts = split(text, _OPERATIONS)
    if len(parts) == 1 and (minus := re.fullmatch(r"(\\mathbb\{[A-Z]\})-(\\\{.*\\\})", text)):
        parts = [("", minus[1]), ("\\setminus", minus[2])]
    if len(parts) == 1 or not all(part for _, part in parts):
        return None
    signs = [sign for sign, _ in parts[1:]]
    forms = _all((part for _, part in parts), read)
    if forms is None or len({*signs}) > 1:
        return None
    return Operation(_OPERATIONS[signs[0]], forms)


def read_family(text: str, read: Read) -> Form | None:
    """Parse a value with letters that are declared after it: `k\\pi, k\\in\\mathbb{Z}`, `cx for any constant c`."""
    plain = " ".join(STYLED.sub(r" \1 ", text).split())
    found = _DOMAIN.fullmatch(plain)
    if not found:
        return None
    letters, kind = (found["letters"] or "").split(","), found["set"]
    if found["words"]:
        if not (constant := _CONSTANT.fullmatch(found["words"].strip())):
            return None
        letters, kind = (
            re.findall(r"\b[A-Za-z]\b", constant["letter"]),
            constant["set"] or f"{constant['kind']} {constant['after'] or ''}",
        )
    value = read(found[1].rstrip(" ,("))
    names = read(kind.strip(" )")) if kind and "mathbb" in kind else None
    if value is None or (kind and "mathbb" in kind and not isinstance(names, NamedSet)):
        return None
    if found["set"] and re.match(r"[\s(]*(?:\\\{|[\[(]?-?[0-9])", found["set"]):
        return None  # `k\in\{0,1,2\}` has some values only
    if isinstance(value, Relation) and value.name and {*letters} <= {*re.findall(r"\((.*)\)", value.name)}:
        return value  # `f(x)=x for all x`
    if isinstance(names, NamedSet):
        return Family(value, tuple(letters), names.name + names.part)
    kind = kind or ""
    declared = "Z" if re.search("integer|whole", kind) else "R" if "real" in kind else ""
    return Family(value, tuple(letters), f"{declared}>0" if "positive" in kind else declared)


def read_several(text: str, read: Read) -> Form | None:
    """Parse values between commas, semicolons, `and`, `or`. Inequalities joined by `or` are a union."""
    if _GROUPED.fullmatch(text) or words.CONDITION.search(text):
        return None
    spelled = _SEPARATORS.sub(lambda sign: " ; " if _OR.search(sign[0]) else " , ", text) if _outside(text) else text
    if re.search(r"\\(?:wedge|vee)(?![a-z])", text) and not any(sign in text for sign in "=<>"):
        return None  # of statements
    groups = [part for _, part in split(spelled, (";",)) if part]
    parts = [part for group in groups for _, part in split(group, (",",)) if part]
    if len(parts) < 2 or not all(map(is_closed, parts)):
        return None
    if 1 < len(groups) < len(parts):  # `p=5,q=2 or p=7,q=2`
        rows = _all(groups, read)
        named = [row.members for row in rows or () if _is_list(row)]
        if rows and len(named) == len(rows) and all(isinstance(one, Relation) for row in named for one in row):
            return Several("list", tuple(Several("tuple", row) for row in named))
    kept = _all(parts, read)
    if kept is None:
        return None
    if isinstance(kept[0], Relation) and kept[0].signs == ("in",) and any("\\in" in part for part in parts[1:]):
        return None
    signs = {sign for member in kept if isinstance(member, Relation) for sign in member.signs}
    inequalities = all(isinstance(member, Relation | Interval) for member in kept) and signs & {"<", "<=", ">", ">="}
    if _OR.search(text) and inequalities:
        return Operation("union", kept)
    names = {member.name if isinstance(member, Relation) else member in _OPTIONS for member in kept}
    return Several(
        "either" if _OR.search(text) and (names == {True} or len(names - {True, False}) > 1) else "list", _flat(kept)
    )


def _outside(text: str) -> bool:
    """Return whether a separator in words is outside all brackets, unlike in `x_{or}` and `(a or b)`."""
    return any(is_closed(text[: match.start()]) for match in _SEPARATORS.finditer(text))


def read_bracketed(text: str, read: Read) -> Form | None:
    if not (pair := enclosing_pair(text)):
        return None
    first, inside, last = pair
    if first == "{" and last == "}":
        return read_set(inside, read)
    parts = [part for _, part in split(inside, (",", ";"))]
    if len(parts) == 1:
        inner = read(inside) if (first, last) == ("(", ")") else None
        return None if isinstance(inner, Several) else inner
    rows = [enclosing_pair(part) for part in parts]
    if first == "[" and all(row and row[0] == "[" for row in rows):  # as programs print a matrix
        cells = "\\\\".join(row[1].replace(",", "&") for row in rows if row)
        return Formula(f"\\begin{{pmatrix}}{cells}\\end{{pmatrix}}")
    kept = _all(parts, read)
    if kept is None:
        return None
    if (first, last) == ("(", ")"):
        return Several("tuple", kept)
    return Interval(kept[0], kept[1], (first == "[", last == "]")) if len(kept) == 2 else None


def read_set(inside: str, read: Read) -> Form | None:
    condition = split(inside, _BUILDER)
    if len(condition) > 1 and _NAMED.fullmatch(condition[0][1].split("\\in")[0].strip()):
        _, _, kind = condition[0][1].partition("\\in")
        value = read(inside[inside.index(condition[1][0], len(condition[0][1])) + len(condition[1][0]) :])
        known = read(kind) if kind else NamedSet("R")
        if known == NamedSet("R"):
            return value
        return Operation("intersection", (known, value)) if isinstance(known, NamedSet) and value else None
    if len(condition) == 2 and (family := read_family(",".join(part for _, part in condition), read)):
        return family
    if len(condition) > 1:
        return None
    members = _all((part for _, part in split(inside, (",", ";")) if part), read)
    return None if members is None else Several("set", _flat(members))


def read_rows(text: str, read: Read) -> Form | None:
    """Parse the rows of `cases` and of aligned lines: a list, or pairs of a value and its condition."""
    if not (match := _ROWS.fullmatch(text)):
        return None
    rows = [row.strip(" ,;") for row in re.split(r"\\\\(?:\[[^\]]*\])?", match[2]) if row.strip()]
    if match[1] != "cases" or not any("&" in row for row in rows):
        members = _all((row.replace("&", "") for row in rows), read)
        return Several("list", _flat(members)) if members else None
    pairs = [[_IF.sub("", cell).strip(" ,") for cell in row.split("&")] for row in rows]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        return None
    read_pairs = [_all(pair, read) for pair in pairs]
    return None if None in read_pairs else Several("set", tuple(Several("tuple", pair) for pair in read_pairs if pair))


def read_relation(text: str, read: Read) -> Form | None:
    parts = split(text, _SIGNS)
    if len(parts) == 1 or not parts[0][1] or words.CONDITION.search(text):
        return None
    sides = _all((part for _, part in parts), read)
    if sides is None:
        return None
    first = parts[0][1]
    name = first if _NAMED.fullmatch(first) or _VALUED.search(first) or _names(first) else None
    return Relation(sides, tuple(_SIGNS[sign] for sign, _ in parts[1:]), name)


def _names(text: str) -> bool:
    """Return whether a text is a tuple of names, `(x,y)`, or a ratio of them, `S_1:S_2`."""
    pair = enclosing_pair(text)
    inside, sign = (pair[1], ",") if pair else (text, ":")
    return all(_NAMED.fullmatch(part) for _, part in split(inside, (sign,)))


def read_plus_minus(text: str, read: Read) -> Form | None:
    """Parse `a \\pm b` as two values, `\\pm a \\pm b` as four, and `(\\pm a, \\mp b)` as two."""
    signs = _PLUS_MINUS.findall(text)
    if not signs or len(signs) > 3:
        return None
    together = "m" in signs
    if text.startswith("\\{") or (not together and split(text, (",", ";"))[1:]):
        return None
    choices = ("+" * len(signs), "-" * len(signs)) if together else map("".join, product("+-", repeat=len(signs)))
    found = [read(_with_signs(text, chosen)) for chosen in choices]
    return None if None in found else Several("list", _flat(form for form in found if form is not None))


def _with_signs(text: str, chosen: str) -> str:
    """Return a text with a sign for each `\\pm`, and the opposite one for `\\mp`; no plus is left at a beginning."""
    signs = iter(chosen)

    def sign(found: re.Match[str]) -> str:
        return next(signs) if found[1] == "p" else "-+"[next(signs) == "-"]

    return re.sub(r"(^|[(,=])\+|(?<=\{)\+", r"\1", _PLUS_MINUS.sub(sign, text))


def read_negative(text: str, read: Read) -> Form | None:
    """Parse `-(1,2)` as a tuple of the negative values."""
    inner = read(text[1:]) if text.startswith("-(") and enclosing_pair(text[1:]) else None
    if not isinstance(inner, Several) or inner.kind != "tuple":
        return None
    members = [part for _, part in split(text[2:-1], (",",))]
    negative = _all(
        (f"-({part})" if not plain_numbers.read(part) else f"-{part}".replace("--", "") for part in members), read
    )
    return Several("tuple", negative) if negative else None

r"""Parse a final answer from its normal form (answers/extraction.py), completely: no part is dropped or picked out.

    read(r"(-\infty,3]")          Interval(Formula("-\\infty"), Number(3), (False, True))
    read(r"3\text{ or }-3")       Several("list", (Number(3), Number(-3)))

The reader decides on structure, and parses plain numbers exactly. A `Formula` is left to a parser of LaTeX
(formulas.py). Units, bases, names before `=` and words are parts of the result; equality.py decides which of them may
be missing.

The forms are those of the gold answers of MATH, GSM8K and olympiads, and spellings of the same that models use.
"""

import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache

from proofmill.answers import plain_numbers, units, words
from proofmill.answers.brackets import enclosing_pair, is_closed, split
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
    Sign,
    Union,
    Words,
)

_STYLE = r"\\(?:text|textbf|textit|textrm|textsf|textnormal|mathrm|mathbf|mathit|mathsf|mbox|hbox|emph)"
_STYLED = re.compile(_STYLE + r"\{([^{}]*)\}")
_SEPARATORS = re.compile(
    _STYLE + r"\{[,\s]*(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:lor|land|vee|wedge|quad)(?![A-Za-z])"
)
_SIGNS: dict[str, Sign] = {
    **{"=": "=", "\\ne": "!=", "\\neq": "!=", "<": "<", "\\lt": "<", ">": ">", "\\gt": ">", "≤": "<=", "≥": ">="},
    **{"\\le": "<=", "\\leq": "<=", "\\leqslant": "<=", "\\ge": ">=", "\\geq": ">=", "\\geqslant": ">="},
    **{"\\in": "in", "\\approx": "~", "≈": "~", "≠": "!="},
}
_NAME = (
    r"(?:\\?[A-Za-z]+|\\(?:mathrm|mathbf|text|operatorname)\{[A-Za-z ]+\})(?:_(?:\w|\{[^{}]*\}))?'*(?:\^(?:\*|\{\*\}))?"
)
_NAMED = re.compile(rf"{_NAME}(?:\((?:{_NAME}|[0-9]+)(?:,(?:{_NAME}|[0-9]+))*\))?")
_VALUED = re.compile(  # something with a value: `\lim ... = 3` is no equation in its letters
    r"\\(?:lim|sum|prod|int|iint|angle|triangle|overline|max|min|inf|sup|mathbb\{[EP]\}|operatorname)|^\|.*\|$|^\\lvert"
)
_CHOICE = re.compile(rf"(?:{_STYLE}\{{)?\(?([A-J])(?:\)\}}?|\}}\)?|[.:)])?\s*(.*)", re.DOTALL)
_DEGREES = re.compile(r"\^\{?\\(?:circ|degree)\}?|\\degree|°")
_FUNCTION = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)")
_PERCENT = re.compile(rf"(?:\\?%|{_STYLE}\{{\s*(?:percent|percentage|pct)\s*\}}|percent)$")
_MONEY = re.compile(rf"^(?:\\\$|{_STYLE}\{{\s*\$\s*\}}|€|£|\\pounds|\\euro|Rs\.?)\s*")
_HALF = re.compile(rf"\s*(?:{_STYLE}\{{)?\s*([AaPp])\.?\s*[Mm]\.?\s*\}}?$")
_TAIL = re.compile(rf"^(.*?)\s*((?:{_STYLE}\{{[^{{}}]*\}}\s*(?:\^\{{?-?[0-9]\}}?)?\s*(?:/\s*)?)+)$", re.DOTALL)
_BARE_TAIL = re.compile(r"^(-?[\d.,/{}\\frac ]*[\d}])\s*([A-Za-z][A-Za-z]+(?:[ /][A-Za-z]+)*(?:\^\{?[23]\}?)?)$")
_BASED = re.compile(
    rf"(?:{_STYLE}|(?=\{{))?\{{?([0-9A-F]+)\}}?(?:_|\s*(?:{_STYLE}\{{)?\s*\(?(?:in\s+)?base\s*)\{{?(?:{_STYLE}\{{)?\s*([0-9]+|[a-z]+)\s*[)}}]*"
)
_MODULUS = re.compile(
    rf"(?:\\pmod|\\bmod|\\mod|\(?(?:{_STYLE}\{{)?\s*mod(?:ulo)?\s*\}}?)\s*(?:\{{([^{{}}]+)\}}|([^(){{}}]+))\)?$"
)
_WORD = re.compile(r"(?=.{3})[a-z]+[aeiouy][a-z]*|odd")  # `abc` is a product
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])|±")
_GROUPED = re.compile(r"[^,]*[=<>~$ ]-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")  # `x=1,234` is one value
_SENTENCE = re.compile(r"[A-Za-z]+(?:[ '-][A-Za-z]+)*[.!]?")
_BUILDER = ("|", ":", "\\mid", "\\vert", "\\colon")


@lru_cache(maxsize=4096)
def read(form: str) -> Form | None:
    """Return the answer; None if brackets are not closed or a part is empty."""
    text = form.strip().rstrip(".").strip() if not form.rstrip().endswith(("..", "\\.")) else form.strip()
    if not text or not (is_closed(text) or text[0] == "]" or text[-1] == "["):
        return None
    for reader in _READERS:
        if (answer := reader(text)) is not None:
            return answer
    return Formula(text) if is_closed(text) else None


def readings(form: str) -> list[Form]:
    """Return all possible meanings of an answer: `60,120` is one number, or two."""
    first = read(form)
    if first is None:
        return []
    if isinstance(first, Number) and re.fullmatch(r"-?[0-9]{1,3}(?:,[0-9]{3})+", form):
        return [first, Several("list", tuple(Number(Fraction(int(part))) for part in form.split(",")))]
    return [first]


def _all(parts: Iterable[str]) -> tuple[Form, ...] | None:
    """Parse all parts; None if one of them cannot be parsed."""
    forms = [read(part) for part in parts]
    return None if None in forms else tuple(form for form in forms if form is not None)


# -------------------------------------------------------------------------------------------------------------- readers


def _number(text: str) -> Form | None:
    return plain_numbers.read(text)


def _outer_braces(text: str) -> Form | None:
    """Parse `{5}` and `\\displaystyle 5` as 5."""
    if text.startswith("\\displaystyle"):
        return read(text.removeprefix("\\displaystyle"))
    return read(text[1:-1]) if text[0] == "{" and text[-1] == "}" and is_closed(text[1:-1]) else None


def _parse_styled(text: str) -> Form | None:
    """Parse `\\text{...}` around the full answer."""
    if not (match := _STYLED.fullmatch(text)):
        return None
    inside = match[1].strip()
    if len(inside) == 1 and inside.isalpha():
        return Formula(inside)
    return (_words(inside) or read(inside)) if inside else None


def _words(text: str) -> Form | None:
    """Parse a sentence or a word; `forty-two` is a number, `yes` and `true` have one spelling each."""
    if not _SENTENCE.fullmatch(text):
        return None
    plain = text.rstrip(".!").lower()
    if (number := words.value(plain)) is not None:
        return Number(Fraction(number))
    names = re.findall(r"[a-z]+", plain)
    if (" " in plain and all(len(word) > 1 or word in ("a", "i") for word in names)) or plain in words.SAME:
        return Words(" ".join(words.SAME.get(word, word) for word in names))
    return Words(plain) if _WORD.fullmatch(plain) else None


def _choice(text: str) -> Form | None:
    """Parse `(B)`, `B.` and `\\textbf{(B)} 12`. A bare letter is a formula, and equals a choice with this label."""
    match = _CHOICE.fullmatch(text)
    if not match or (label := text[: match.start(2)].strip()) == match[1] or not re.search(r"[):.}]", label):
        return None
    rest = match[2].strip()
    if not rest:
        return Formula(match[1])
    if rest[0] in ",;":
        return None
    value = read(rest)
    return Labeled(match[1], value) if value is not None else None


def _clock(text: str) -> Form | None:
    half = ""
    if match := _HALF.search(text):
        text, half = text[: match.start()], match[1].lower() + "m"
    if re.fullmatch(r"[0-9]+(?:\s*:\s*[0-9]+)+", text) or (half and re.fullmatch(r"[0-9]{1,2}", text)):
        return Clock(tuple(Fraction(part) for part in re.findall(r"[0-9]+", text)), half)
    return None


def _in_base(text: str) -> Form | None:
    if not (match := _BASED.fullmatch(text)):
        return None
    base = int(match[2]) if match[2].isdigit() else words.value(match[2])
    if base is None or not 2 <= base <= 36 or any(int(digit, 36) >= base for digit in match[1]):
        return None
    return InBase(match[1].lstrip("0") or "0", base)


def _congruence(text: str) -> Form | None:
    if not (match := _MODULUS.search(text)):
        return None
    before, modulus = text[: match.start()].strip(), read((match[1] or match[2]).strip())
    parts = split(before, ("\\equiv", "=", "≡"))
    residue = read(parts[-1][1])
    if residue is None or modulus is None or len(parts) > 2:
        return None
    return CongruenceAnswer(parts[0][1] if len(parts) == 2 else None, residue, modulus)


def _union(text: str) -> Form | None:
    texts = [part for _, part in split(text, ("\\cup", "∪"))]
    parts = _all(texts) if len(texts) > 1 else None
    return Union(parts) if parts else None


def _several(text: str) -> Form | None:
    """Parse values between commas, semicolons, `and`, `or`. Inequalities joined by `or` are a union."""
    if _GROUPED.fullmatch(text) or words.CONDITION.search(text):
        return None
    spelled = _SEPARATORS.sub(" ; ", text) if _outside(text) else text
    parts = [part for _, part in split(spelled, (",", ";")) if part]
    if len(parts) < 2 or not all(map(is_closed, parts)):
        return None
    kept = _all(parts)
    if kept is None:
        return None
    signs = {sign for member in kept if isinstance(member, Relation) for sign in member.signs}
    one_of = re.search(r"(?<![A-Za-z])or(?![A-Za-z])|\\(?:lor|vee)", text)
    inequalities = all(isinstance(member, Relation | Interval) for member in kept) and signs & {"<", "<=", ">", ">="}
    return Union(kept) if one_of and inequalities else Several("list", kept)


def _outside(text: str) -> bool:
    """Return whether a separator in words is outside all brackets, unlike in `x_{or}` and `(a or b)`."""
    return any(is_closed(text[: match.start()]) for match in _SEPARATORS.finditer(text))


def _parse_bracketed(text: str) -> Form | None:
    if not (pair := enclosing_pair(text)):
        return None
    first, inside, last = pair
    if first == "{" and last == "}":
        return _set(inside)
    parts = [part for _, part in split(inside, (",", ";"))]
    if len(parts) == 1:
        inner = read(inside) if (first, last) == ("(", ")") else None
        return None if isinstance(inner, Several) else inner
    kept = _all(parts)
    if kept is None:
        return None
    if (first, last) == ("(", ")"):
        return Several("tuple", kept)
    return Interval(kept[0], kept[1], (first == "[", last == "]")) if len(kept) == 2 else None


def _set(inside: str) -> Form | None:
    condition = [part for _, part in split(inside, _BUILDER)]
    if len(condition) == 2 and _NAMED.fullmatch(condition[0].split("\\in")[0].strip()):
        return read(condition[1])
    members = _all(part for _, part in split(inside, (",", ";")))
    return None if members is None else Several("set", members)


def _relation(text: str) -> Form | None:
    parts = split(text, _SIGNS)
    if len(parts) == 1 or not parts[0][1] or words.CONDITION.search(text):
        return None
    sides = _all(part for _, part in parts)
    if sides is None:
        return None
    first = parts[0][1]
    name = first if _NAMED.fullmatch(first) or _VALUED.search(first) or _names(first) else None
    return Relation(sides, tuple(_SIGNS[sign] for sign, _ in parts[1:]), name)


def _names(text: str) -> bool:
    """Return whether a text is a tuple of names, `(x,y)`."""
    pair = enclosing_pair(text)
    return pair is not None and all(_NAMED.fullmatch(part) for _, part in split(pair[1], (",",)))


def _plus_minus(text: str) -> Form | None:
    """Parse `a \\pm b` as two values."""
    if len(_PLUS_MINUS.findall(text)) != 1 or "\\mp" in text:
        return None
    both = _all(_PLUS_MINUS.sub(sign, text).lstrip("+") for sign in "+-")
    return Several("list", both) if both else None


def _percent(text: str) -> Form | None:
    if not (match := _PERCENT.search(text)):
        return None
    value = read(text[: match.start()])
    if isinstance(value, Number) and not value.percent:
        return Number(value.value, value.places, percent=True)
    return Quantity(value, "%", known=True) if value is not None else None


def _degrees(text: str) -> Form | None:
    match = _DEGREES.search(text)
    if not match or match.end() < len(text.rstrip()) or _FUNCTION.search(text):
        return None
    value = read(text[: match.start()])
    return Quantity(value, "degree", known=True) if value is not None else None


def _money(text: str) -> Form | None:
    if not (match := _MONEY.match(text)):
        return None
    value = read(text[match.end() :])
    unit = "$" if "$" in match[0] else match[0].strip("\\ .").lower()
    return Quantity(value, unit, known=True) if isinstance(value, Number | Formula) else None


def _parse_measured(text: str) -> Form | None:
    """Parse a value with a unit, a counted noun, or words that add meaning."""
    match = _TAIL.fullmatch(text) or _BARE_TAIL.fullmatch(text)
    if not match or not match[1].strip():
        return None
    tail = " ".join(_STYLED.sub(r" \1 ", match[2]).split())
    value = read(re.sub(r"(?:\\?[,;: ])+$", "", match[1]))
    if value is None or not tail:
        return value
    multiplier = units.MULTIPLIERS.get(units.singular(tail.split()[0]))
    if multiplier and isinstance(value, Number):
        multiplied = Number(value.value * multiplier)
        rest = tail.partition(" ")[2]
        unit = units.canonical(rest) if rest else None
        return Quantity(multiplied, unit, units.is_known(unit)) if unit else multiplied
    unit = units.canonical(tail)
    if unit is None or not (units.is_known(unit) or isinstance(value, Number)):
        return Qualified(value, tail.lower())
    return Quantity(value, unit, units.is_known(unit))


_READERS: tuple[Callable[[str], Form | None], ...] = (
    _number,
    _outer_braces,
    _parse_styled,
    _words,
    _choice,
    _clock,
    _in_base,
    _congruence,
    _union,
    _money,
    _several,
    _parse_bracketed,
    _relation,
    _percent,
    _degrees,
    _parse_measured,
    _plus_minus,
)

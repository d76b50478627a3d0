r"""Parse a final answer from its normal form (answers/extraction.py), completely: no part is dropped or picked out.

    read(r"(-\infty,3]")          Interval(Formula("-\\infty"), Number(3), (False, True))
    read(r"3\text{ or }-3")       Several("list", (Number(3), Number(-3)))

The reader decides on structure, and parses plain numbers exactly. A `Formula` is left to a parser of LaTeX
(formulas.py). Units, bases, names before `=` and words are parts of the result; equality.py decides which of them may
be missing.

The forms are those of the gold answers of MATH, GSM8K and olympiads, and spellings of the same that models use.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from proofmill.answers.reading import plain_numbers, structures, units, words
from proofmill.answers.reading.brackets import is_closed, split
from proofmill.answers.reading.forms import (
    Clock,
    Form,
    Formula,
    InBase,
    Labeled,
    NamedSet,
    Number,
    Qualified,
    Quantity,
    Ratio,
    Several,
    Words,
)
from proofmill.answers.reading.sentences import read_sentence
from proofmill.answers.reading.spelling import STYLE as _STYLE
from proofmill.answers.reading.structures import STYLED

_CHOICE = re.compile(
    rf"(?:{_STYLE}\{{)?(?:[Oo]ption |[Cc]hoice ?)?\(?([A-J])(?:\)\}}?|\}}\)?|[.:)])?\s*(.*)", re.DOTALL
)
_NO_VALUE = re.compile(  # what joins a label to something else, or speaks about it
    rf"[-+*/=^_,;&|<>(]|\\(?:cdot|times|cap|cup|wedge|vee|pm|ne|in)(?![a-z])|(?:{_STYLE}\{{)?\s*(?:or|and|nor|but|is|are|not|isn't)\b"
)
_LABEL = re.compile(rf"(?:{_STYLE}\{{[,;\s]*(?:and)?\s*)?\(([A-Ja-j]|[1-9]|[iv]+)\)\}}?")
_LABELS = ("123456789", ("i", "ii", "iii", "iv", "v"))
_AFTER_PART = re.compile(rf"(?:\s|[,;]|\\quad|(?<![A-Za-z])and|{_STYLE}\{{[,;\s]*(?:and)?\s*\}})+$")
_FURTHER_LABEL = re.compile(r"[,;]\s*\(?[A-J][.:)]")
_DEGREES = re.compile(r"\^\{?\\(?:circ|degree)\}?|\\degree|°")
_MINUTES = re.compile(r"([0-9]+)\^\{?\\circ\}? ?([0-9]{1,2})'(?: ?([0-9]{1,2})(?:''|\"))?")
_SCALE = re.compile(rf"(?<=circ)\}}? ?(?:{_STYLE}\{{)? ?([CF]) ?\}}?$")
_FUNCTION = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)")
_PERCENT = re.compile(rf"(?:\\?%|{_STYLE}\{{\s*(?:percent|percentage|pct)\s*\}}|percent)$")
_MONEY = re.compile(rf"^(?:\\\$|{_STYLE}\{{\s*\$\s*\}}|€|£|\\pounds|\\euro|Rs\.?)\s*")
_CURRENCIES = {"€": "euro", "euro": "euro", "£": "pound", "pound": "pound", "rs": "rupee"}
_HALF = re.compile(rf"\s*(?:{_STYLE}\{{)?\s*([AaPp])\.?\s*[Mm]\.?\s*\}}?$")
_TAIL = re.compile(rf"^(.*?)\s*((?:{_STYLE}\{{[^{{}}]*\}}\s*(?:\^\{{?-?[0-9]\}}?)?\s*(?:/\s*)?)+)$", re.DOTALL)
_BARE_TAIL = re.compile(
    r"^(-?[\d.,/{}\\fracpie ]*(?:[\d}]|\\pi))(\s*)([A-Za-z](?:[a-zA-Z]+|(?<= [A-Za-z])/[a-z]+)(?:[ /][A-Za-z]+)*(?:\^\{?[23]\}?)?)$"
)
_BASED = re.compile(
    rf"(?:{_STYLE}|(?=\{{))?\{{?(?:([0-9A-F]+)|\(([0-9A-F]+)\))\}}?(?:_|\s*(?:{_STYLE}\{{)?\s*\(?(?:in\s+)?base\s*\}}?)"
    rf"\{{?\(?(?:{_STYLE}\{{)?\s*([0-9]+|[a-z]+)\s*[)}}]*"
)
_WORD = re.compile(r"(?=.{3})[a-z]+[aeiouy][a-z]*|odd")  # `abc` is a product
_LEAD = re.compile(
    rf"(?:{_STYLE}\{{)?\s*(?:(?:so|thus|hence|therefore),? )?(?:the )?(?:final |total |minimum |maximum |smallest |largest |required )?"
    r"(?:answer|value|solution|number|sum|result|area|probability|minimum|maximum)s?(?:\})?\s*(?:is|are|:|=)"
    r"[\s:]*(?P<close>\})?\s*(?P<rest>.+)",
    re.IGNORECASE | re.DOTALL,
)
_BEFORE = re.compile(rf"{_STYLE}\{{\s*([A-Za-z ]+?)\s*\}}(.+)", re.DOTALL)
_SENTENCE = re.compile(r"[A-Za-z]+(?:[ '-][A-Za-z]+)*[.!]?")


@lru_cache(maxsize=4096)
def read(form: str) -> Form | None:
    """Return the answer; None if brackets are not closed or a part is empty."""
    text = form.strip().rstrip(".").strip() if not form.rstrip().endswith(("..", "\\.")) else form.strip()
    if not text or not (is_closed(text) or text[0] == "]" or text[-1] == "["):
        return _choice(text, read) if text else None  # `B) 12`
    for reader in _READERS:
        if (answer := reader(text, read)) is not None:
            return answer
    return Formula(text) if is_closed(text) else None


def readings(form: str) -> list[Form]:
    """Return all possible meanings of an answer: `60,120` is one number, or two."""
    first = read(form)
    if first is None:
        return []
    if isinstance(first, Number) and re.fullmatch(r"-?[0-9]{1,3}(?:,[1-9][0-9]{2})+", form):
        return [first, Several("list", tuple(Number(Fraction(int(part))) for part in form.split(",")))]
    return [first]


def _number(text: str, read: structures.Read) -> Form | None:
    return plain_numbers.read(text)


def _empty(text: str, read: structures.Read) -> Form | None:
    return Words("none") if text in ("\\emptyset", "\\{\\}") else None


def _outer_braces(text: str, read: structures.Read) -> Form | None:
    """Parse `{5}` as 5."""
    if text[0] != "{" or text[-1] != "}" or not is_closed(text[1:-1]):
        return None
    return read(
        "\\" + text[:-1] + "\\}" if re.match(r"\{[a-z](?:\||:|\\mid|\\in)", text) else text[1:-1]
    )  # a set, or 5


def _parse_styled(text: str, read: structures.Read) -> Form | None:
    """Parse `\\text{...}` around the full answer."""
    if not (match := STYLED.fullmatch(text)):
        return None
    inside = match[1].strip()
    if len(inside) == 1 and inside.isalpha():
        return Formula(inside)
    return (_words(inside, read) or read(inside)) if inside else None


def _date(text: str, read: structures.Read) -> Form | None:
    """Parse `March 5, 2024`, `5th of March` and `2024-03-05`."""
    plain = STYLED.sub(r"\1", text).strip()
    found = words.date(plain) if plain[:1].isalnum() and len(plain) < 40 else None
    return Words(found) if found else None


def _words(text: str, read: structures.Read) -> Form | None:
    """Parse a sentence or a word; `forty-two` is a number, `yes` and `true` have one spelling each."""
    if not _SENTENCE.fullmatch(text):
        return None
    plain = text.rstrip(".!").lower()
    if (number := words.value(plain)) is not None:
        return Number(Fraction(number))
    if (part := words.fraction(plain)) is not None:
        return Number(part)
    names = re.findall(r"[a-z]+", plain)
    if (named := words.numbers(" ".join(names))) and names[-1] not in ("integer", "real", "rational"):
        return NamedSet(*named)
    if (len(names) > 1 or len(plain) > 2) and (usual := words.meaning(" ".join(names))) is not None:
        return Formula("\\infty") if usual == "infinite" else Words(usual)
    if (" " in plain and all(len(word) > 1 or word in ("a", "i") for word in names)) or plain in words.SAME:
        return Words(" ".join(words.SAME.get(word, word) for word in names))
    return Words(plain) if _WORD.fullmatch(plain) else None


def _read_parts(text: str, read: structures.Read) -> Form | None:
    """Parse the labeled answers of several parts, `(a) 3 (b) 5`. The labels 1 and i are those of the part A."""
    head, *found = _LABEL.split(text)
    labels, values = "".join(found[::2]).upper(), [_AFTER_PART.sub("", value) for value in found[1::2]]
    if any(found[::2] == [*row[: len(values)]] for row in _LABELS):
        labels = "ABCDEFGHI"[: len(values)]
    if head or len(values) < 2 or not len({*labels} & {*"ABCDEFGHIJ"}) == len(labels) == len(values):
        return None
    if any(_NO_VALUE.match(value) or value.endswith(tuple("+-*/^=(")) for value in values):
        return None  # `(a)x+(b)y` is a sum
    forms = [read(value) for value in values]
    parts = [Labeled(label, form) for label, form in zip(labels, forms, strict=True) if form is not None]
    return Several("list", tuple(parts)) if len(parts) == len(values) else None


def _choice(text: str, read: structures.Read) -> Form | None:
    """Parse `(B)`, `B.` and `\\textbf{(B)} 12`. A bare letter is a formula, and equals a choice with this label."""
    match = _CHOICE.fullmatch(text)
    if not match or (label := text[: match.start(2)].strip()) == match[1] or not re.search(r"[):.} ]", label):
        return None
    rest = match[2].strip()
    if not rest:
        return Formula(match[1])
    if _NO_VALUE.match(rest) or _FURTHER_LABEL.search(rest):
        return None
    value = read(rest)
    return Labeled(match[1], value) if value is not None else None


def _clock(text: str, read: structures.Read) -> Form | None:
    if text in ("noon", "midnight"):
        return Clock((12, 0), "pm" if text == "noon" else "am", sure=True)
    half = ""
    if match := _HALF.search(text):
        text, half = text[: match.start()], match[1].lower() + "m"
    if re.fullmatch(r"[01]?[0-9]|2[0-4]" if half else r"(?:[01]?[0-9]|2[0-4])(?::[0-5][0-9]){1,2}", text) or (
        half and re.fullmatch(r"(?:0?[0-9]|1[0-2])(?::[0-5][0-9]){1,2}", text)
    ):
        sure = bool(half) or re.search(r":0", text) is not None  # `3:05`
        return Clock(tuple(int(part) for part in text.split(":")), half, sure)
    if half or text.startswith("\\{"):
        return None
    parts = [part for _, part in split(text, (":",))]
    values = [read(part) for part in parts] if 2 <= len(parts) <= 5 and all(parts) else []
    known = tuple(value for value in values if isinstance(value, Number | Formula))
    return Ratio(known) if known and len(known) == len(values) and "=" not in text else None


def _in_base(text: str, read: structures.Read) -> Form | None:
    if marked := re.fullmatch(r"0(?:x([0-9A-Fa-f]+)|b([01]+))", text):
        return InBase((marked[1] or marked[2]).upper().lstrip("0") or "0", 16 if marked[1] else 2)
    if not (match := _BASED.fullmatch(text)):
        return None
    digits, base = match[1] or match[2], int(match[3]) if match[3].isdigit() else words.value(match[3])
    if base is None or not 2 <= base <= 36 or any(int(digit, 36) >= base for digit in digits):
        return None
    if base == 10:
        return Number(Fraction(int(digits)))
    return InBase(digits.lstrip("0") or "0", base)


def _point(text: str, read: structures.Read) -> Form | None:
    """Parse `A(2,0)`, a named point, as `A=(2,0)`; `C(8,3)` and `P(8,3)` count choices, `N(0,1)` is a distribution."""
    found = re.fullmatch(r"([A-MO-TV-Z]'*(?:_[0-9])?)(\(.+,.+\))", text)
    if found and re.fullmatch(r"[CP]\([1-9a-z][0-9a-z+-]*,[0-9a-z][0-9a-z+-]*\)", text):
        return None
    return read(f"{found[1]}={found[2]}") if found and is_closed(found[2][1:-1]) else None


def _parse_after_words(text: str, read: structures.Read) -> Form | None:
    """Parse a value after `the answer is`, or after words that add meaning, `at least`."""
    if match := _LEAD.fullmatch(text):
        rest = match["rest"]
        if match["close"] is None and rest.endswith("}") and not is_closed(rest):
            rest = rest[:-1]
        return read(rest.strip(" .:"))
    if (match := _BEFORE.fullmatch(text)) and (value := read(match[2].strip(" ,:"))) is not None:
        names = match[1].lower().split()
        if isinstance(value, Number | Formula) and {*names} & units.MEANING:
            return Qualified(value, " ".join(names))
    return None


def _percent(text: str, read: structures.Read) -> Form | None:
    if not (match := _PERCENT.search(text)):
        return None
    value = read(text[: match.start()])
    if isinstance(value, Number) and not value.percent:
        return Number(value.value, value.places, percent=True)
    return Quantity(value, "%", known=True) if value is not None else None


def _degrees(text: str, read: structures.Read) -> Form | None:
    if minutes := _MINUTES.fullmatch(text):
        whole, part, last = (int(number or 0) for number in minutes.groups())
        return Quantity(Number(Fraction(whole * 3600 + part * 60 + last, 3600)), "degree", known=True)
    text, scale = _SCALE.sub("", text), _SCALE.search(text)
    match = _DEGREES.search(text)
    if not match or match.end() < len(text.rstrip()) or _FUNCTION.search(text):
        return None
    value = read(text[: match.start()])
    unit = {"C": "celsius", "F": "fahrenheit"}[scale[1]] if scale else "degree"
    return Quantity(value, unit, known=True) if value is not None else None


def _money(text: str, read: structures.Read) -> Form | None:
    if not (match := _MONEY.match(text)):
        return None
    value = read(text[match.end() :])
    unit = next((name for sign, name in _CURRENCIES.items() if sign in match[0].lower()), "$")
    return Quantity(value, unit, known=True) if isinstance(value, Number | Formula) else None


def _parse_measured(text: str, read: structures.Read) -> Form | None:
    """Parse a value with a unit, a counted noun, or words that add meaning."""
    if (total := _add_quantities(text, read)) is not None:
        return total
    match = _TAIL.fullmatch(text) or _BARE_TAIL.fullmatch(text)
    if not match or not match[1].strip():
        return None
    tail = " ".join(STYLED.sub(r" \1 ", match[match.re.groups]).split())
    unknown = not units.is_known(units.canonical(tail) or "") and not _WORD.match(tail)
    if match.re is _BARE_TAIL and unknown and (not match[2] or "^" in tail):
        return None  # `2ab` and `2 mv^2` are products
    if _UPRIGHT.fullmatch(tail) or match[1].rstrip()[-1] in "+-*/^=":
        return None  # `2\mathrm{e}^2` is a product, and `2+\mathrm{i}` a sum
    value = read(re.sub(r"(?:\\?[,;: ])+$", "", match[1]))
    if value is None or not tail or _BASIS.search(text):
        return value if not tail else None
    multiplier = units.MULTIPLIERS.get(units.singular(tail.split()[0]))
    if multiplier and isinstance(value, Number):
        multiplied = Number(value.value * multiplier)
        rest = tail.partition(" ")[2]
        unit = units.canonical(rest) if rest else None
        return Quantity(multiplied, unit, units.is_known(unit)) if unit else multiplied
    unit = units.canonical(tail)
    counted = isinstance(value, Number) or units.singular(tail) != tail.lower()  # `2^n subsets`, but not `n prime`
    if unit is None or not (units.is_known(unit) or counted):
        return Qualified(value, tail.lower())
    return Quantity(value, unit, units.is_known(unit))


_UPRIGHT = re.compile(r"(?:(?:[abefijknoqruvwxyz](?![a-z])|\^\{?-?[0-9]\}?|/) ?)+")  # letters that are no unit
_BASIS = re.compile(r"\\(?:mathbf|boldsymbol|bm)\{[ijk]\}")  # of vectors
_PART = re.compile(rf"([0-9.]+) ?(?:{_STYLE}\{{)? ?([a-z]+) ?\}}?,? ?(?:and )?")


def _add_quantities(text: str, read: structures.Read) -> Form | None:
    """Parse `2 hours 30 minutes` in the unit of the first part."""
    parts = _PART.findall(text)
    if len(parts) < 2 or _PART.sub("", text):
        return None
    named = [units.singular(unit) for _, unit in parts]
    factors = [units.factor(unit, named[0]) for unit in named]
    total = Fraction(0)
    for (amount, _), factor in zip(parts, factors, strict=True):
        if factor is None or not isinstance(number := read(amount), Number):
            return None
        total += number.value * factor
    return Quantity(Number(total), named[0], known=True)


_READERS: tuple[Callable[[str, structures.Read], Form | None], ...] = (
    _number,
    _point,
    _empty,
    _outer_braces,
    _date,
    read_sentence,
    _parse_styled,
    _clock,
    _words,
    _read_parts,
    _choice,
    _in_base,
    structures.read_rows,
    structures.read_family,
    structures.read_congruence,
    _money,
    structures.read_plus_minus,
    structures.read_several,
    structures.read_set_operation,
    structures.read_bracketed,
    structures.read_relation,
    _percent,
    _degrees,
    _parse_after_words,
    _parse_measured,
    structures.read_negative,
)

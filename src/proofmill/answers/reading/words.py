"""Parse numbers in words, `forty-two`, words with one meaning, and dates."""

import re
from fractions import Fraction
from typing import Literal

_SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = dict(
    zip(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], range(20, 100, 10), strict=True)
)
_ONES = {word: number for number, word in enumerate(_SMALL)}
_LARGE = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
CONDITION = re.compile(r"(?<![A-Za-z\\])(?:if|for|where|when|whenever|otherwise|unless|with|such)(?![A-Za-z])")
SAME = {"yes": "yes", "no": "no", "true": "true", "false": "false", "correct": "true", "incorrect": "false"}
SAME |= {"divergent": "diverges", "convergent": "converges"}
SAME |= {
    day[:n]: day
    for day in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    for n in (3, 4)
}
_MEANINGS = {
    "none": r"(?:the )?empty(?: set)?|none(?: exists?)?|no such [a-z]+(?: [a-z])?(?: exists?)?|(?:(?:there|(?:the|this) "
    r"(?:equation|system)) (?:is|are|exists?|has) )?no (?:such )?(?:(?:real|integer|positive|valid|possible|such) )*"
    r"(?:solutions?|roots?|values?|numbers?|integers?|pairs?|triples?|functions?|[a-z])(?: [a-z])?(?: exists?)?",
    "does not exist": r"dne|(?:it )?(?:does|do) not exist|(?:it )?doesn t exist",
    "infinite": r"infinite|infinity|(?:there are )?infinitely many(?: \w+)?",
}
Letter = Literal["N", "Z", "Q", "R", "C"]
LETTERS: dict[str, Letter] = {"N": "N", "Z": "Z", "Q": "Q", "R": "R", "C": "C"}
_KINDS: dict[str, Letter] = {"natural": "N", "integer": "Z", "rational": "Q", "real": "R", "complex": "C"}
_PARTS = {
    "positive": ">0",
    "negative": "<0",
    "nonnegative": ">=0",
    "non negative": ">=0",
    "nonzero": "!=0",
    "non zero": "!=0",
}
_NUMBERS = re.compile(
    r"(?:the )?(?:set of )?(?:all |any )?(?:the )?(positive |negative |non ?negative |non ?zero )?"
    r"(?:(natural|rational|real|complex) numbers?|(integer|real|rational)s?)"
)
_MONTHS = [
    *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november"),
    "december",
]
_MONTH = "|".join(rf"{month[:3]}(?:{month[3:]}|t)?\.?" for month in _MONTHS)
_DATES = (
    re.compile(
        rf"(?:on )?(?P<month>{_MONTH}) ?(?:the )?(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?(?:,? ?(?P<year>[0-9]{{4}}))?"
    ),
    re.compile(
        rf"(?:on )?(?:the )?(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<month>{_MONTH})(?:,? ?(?P<year>[0-9]{{4}}))?"
    ),
    re.compile(r"(?P<year>[12][0-9]{3})-(?P<month>0[1-9]|1[0-2])-(?P<day>[0-3][0-9])"),
)


def meaning(text: str) -> str | None:
    """Return the usual words for emptiness, infinity or a missing value; None if a text in lower case means neither."""
    return next((name for name, pattern in _MEANINGS.items() if re.fullmatch(pattern, text)), None)


def numbers(text: str) -> tuple[Letter, str] | None:
    """Return the letter of a set of numbers and the part of it, Z and `>0` for `positive integers`; None for another text."""
    found = _NUMBERS.fullmatch(text)
    if not found:
        return None
    name = _KINDS[found[2] or found[3]]
    return name, _PARTS.get((found[1] or "").strip(), "")


def date(text: str) -> str | None:
    """Return a date as `date 3 5 2024`: month, day, and the year if there is one; None for another text."""
    for pattern in _DATES:
        if found := pattern.fullmatch(text.lower()):
            month = found["month"]
            number = int(month) if month.isdigit() else [name[:3] for name in _MONTHS].index(month[:3]) + 1
            return f"date {number} {int(found['day'])} {found['year'] or ''}".strip()
    return None


_BELOW = dict(half=2, third=3, quarter=4, fourth=4, fifth=5, sixth=6, seventh=7, eighth=8, ninth=9, tenth=10)


def fraction(text: str) -> Fraction | None:
    """Return a fraction in words: `two-thirds`, `one half`, `half`; None for another text."""
    *above, below = re.sub("halves$", "half", text.replace("-", " ").lower()).split() or [""]
    known = _BELOW.get(below.removesuffix("s"))
    count = 1 if above in ([], ["a"]) else value(" ".join(above))
    return Fraction(count, known) if known and count and (above or below == "half") else None


def value(text: str) -> int | None:
    """Return the number that a text spells, None if none. `a hundred and one` and `one hundred one` are 101."""
    words = re.sub(r"[-,]", " ", text.lower()).split()
    minus = words[:1] in (["minus"], ["negative"])
    words = [w for w in (words[1:] if minus else words) if w != "and"]
    if words[:1] == ["a"] and len(words) > 1:
        words[0] = "one"
    if not words:
        return None
    total = part = 0
    last = 10**18  # scale of the last word, so that `two three` is no number
    for word in words:
        if word in _ONES and (last >= 20 or not part) and (_ONES[word] < 10 or last >= 100):
            part, last = part + _ONES[word], 1
        elif word in _TENS and last >= 100:
            part, last = part + _TENS[word], 20
        elif word == "hundred" and 0 < part < 10:
            part, last = part * 100, 100
        elif word in _LARGE and part > 0 and (not total or total % (_LARGE[word] * 1000) == 0):
            total, part, last = total + part * _LARGE[word], 0, 1000
        else:
            return None
    return -(total + part) if minus else total + part

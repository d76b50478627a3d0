"""Parse numbers in words, `forty-two`, and answers of one word."""

import re

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

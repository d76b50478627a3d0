r"""Parse plain numbers exactly: `-1{,}234.5`, `3\frac12`, `1 1/2`, `0.1\overline{6}`, `25\%`, `1.5e-4`."""

import re
from fractions import Fraction

from proofmill.answers.reading.forms import Number

_GROUPS = r"[0-9]{1,3}(?:(?:,|\{,\}|,\\!\s?|\\[,;! ]|~| )[0-9]{3})+(?![0-9])"
_DIGITS = rf"(?:{_GROUPS}|[0-9]+)"
_NUMBER = re.compile(rf"({_DIGITS}|[0-9]*)(?:\.([0-9]*))?")
_FRACTION = re.compile(
    rf"\\[dtc]?frac\s*(?:\{{(-?{_DIGITS})\}}|([0-9]))\s*(?:\{{(-?{_DIGITS})\}}|([0-9]))|(-?{_DIGITS})/({_DIGITS})"
)
_MIXED = re.compile(r"([0-9]+)\s*(\\[dtc]?frac.*)|([0-9]+)[ ~+]+([0-9]+/[0-9]+)|([0-9]+)-([0-9]+/[0-9]+)")
_REPEATING = re.compile(
    r"([0-9]*)\.([0-9]*)(?:\\overline\{([0-9]+)\}|\\bar\{?([0-9]+)\}?|\\dot\{?([0-9])\}?|\(([0-9]+)\))"
)
_DOTS = re.compile(r"([0-9]*)\.([0-9]*?)(?:([0-9]+)\3{2,}|([0-9])\4\4)(?:\\[lc]?dots|\.\.\.|…)")
_SCIENTIFIC = re.compile(
    r"([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]{1,3})|\s?(?:\\times|\\cdot)\s?10\^(?:([0-9])|\{([-+]?[0-9]{1,3})\}))"
)
_SIGN = re.compile(r"^([-+−])\s*")


def read(text: str) -> Number | None:
    """Return the number; None if the text is no plain number, or has over 300 characters."""
    minus = False
    if sign := _SIGN.match(text):
        minus, text = sign[1] != "+", text[sign.end() :]
    percent = bool(re.search(r"\\?%$", text))
    text = re.sub(r"\s*\\?%$", "", text)
    if len(text) > 300 or not text or text[0] in "+-":
        return None
    number = _plain(text) or _fraction(text) or _parse_mixed(text) or _repeating(text) or _scientific(text)
    if number is None:
        return None
    return Number(-number.value if minus else number.value, number.places, percent)


def _whole(digits: str) -> int:
    return int(re.sub(r"[^0-9]", "", digits))


def _plain(text: str) -> Number | None:
    match = _NUMBER.fullmatch(text)
    if not match or not (match[1] or match[2]):
        return None
    if not match[2]:
        return Number(Fraction(_whole(match[1])))
    return Number(Fraction(_whole((match[1] or "0") + match[2]), 10 ** len(match[2])), len(match[2]))


def _fraction(text: str) -> Number | None:
    if not (match := _FRACTION.fullmatch(text)):
        return None
    above, below = (next(part for part in match.group(*some) if part) for some in ((1, 2, 5), (3, 4, 6)))
    sign = -1 if above.startswith("-") != below.startswith("-") else 1
    return Number(Fraction(sign * _whole(above), _whole(below))) if _whole(below) else None


def _parse_mixed(text: str) -> Number | None:
    if not (match := _MIXED.fullmatch(text)):
        return None
    whole, part = (next(one for one in match.group(*some) if one) for some in ((1, 3, 5), (2, 4, 6)))
    fraction = _fraction(part)
    if fraction is None or not 0 < fraction.value < 1:
        return None
    return Number(int(whole) + fraction.value)


def _repeating(text: str) -> Number | None:
    if match := _REPEATING.fullmatch(text):
        whole, before = match[1], match[2]
        period = next(part for part in match.groups()[2:] if part)
    elif match := _DOTS.fullmatch(text):
        whole, before, period = match[1], match[2], match[3] or match[4]
    else:
        return None
    scale = 10 ** len(before)
    value = Fraction(int(whole + before or 0), scale)
    return Number(value + Fraction(int(period), (10 ** len(period) - 1) * scale))


def _scientific(text: str) -> Number | None:
    """Parse `1.5e-4` and `3\\times 10^{8}`."""
    if not (match := _SCIENTIFIC.fullmatch(text)):
        return None
    decimals, exponent = match[2] or "", int(next(part for part in match.group(3, 4, 5) if part))
    value = Fraction(int(match[1] + decimals), 10 ** len(decimals)) * Fraction(10) ** exponent
    return Number(value, max(len(decimals) - exponent, 0) if decimals else None)

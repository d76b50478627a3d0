"""Units after a number: their names, their conversion factors, and the words that change a value instead.

Factors are exact, by the SI brochure (9th edition) and the international yard and pound agreement of 1959.
"""

import re
from fractions import Fraction

# By dimension, each unit with its factor to the dimension's first unit (of a power, to that power of the unit).
_SCALES: dict[str, dict[str, Fraction | int | str]] = {
    "length": {
        "m": 1, "meter": 1, "metre": 1, "km": 1000, "kilometer": 1000, "kilometre": 1000, "dm": "1/10",
        "cm": "1/100", "centimeter": "1/100", "centimetre": "1/100", "mm": "1/1000", "millimeter": "1/1000",
        "millimetre": "1/1000", "inch": "127/5000", "in": "127/5000", "inche": "127/5000", "ft": "381/1250",
        "foot": "381/1250", "feet": "381/1250", "yd": "1143/1250", "yard": "1143/1250", "mi": "201168/125",
        "mile": "201168/125",
    },
    "length^2": {"ha": 10000, "acre": "4046.8564224"},
    "length^3": {
        "l": "1/1000", "liter": "1/1000", "litre": "1/1000", "ml": "1/1000000", "milliliter": "1/1000000",
        "millilitre": "1/1000000", "gallon": "0.003785411784", "gal": "0.003785411784", "quart": "0.000946352946",
        "pint": "0.000473176473",
    },
    "time": {
        "ms": "1/1000", "millisecond": "1/1000", "s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600, "day": 86400,
        "week": 604800,
    },
    "mass": {
        "g": 1, "gram": 1, "gm": 1, "kg": 1000, "kilogram": 1000, "mg": "1/1000", "t": 1000000, "ton": 1000000,
        "lb": "45359237/100000", "pound": "45359237/100000", "oz": "45359237/1600000", "ounce": "45359237/1600000",
    },
    "energy": {"j": 1, "kj": 1000, "mj": "1/1000", "megaj": 1000000, "kwh": 3600000},
    "power": {"w": 1, "kw": 1000, "mw": "1/1000", "megaw": 1000000},
    "frequency": {"hz": 1, "khz": 1000, "mhz": 1000000},
    "pressure": {"pa": 1, "kpa": 1000, "mpa": 1000000, "bar": 100000},
    "force": {"n": 1}, "voltage": {"v": 1}, "current": {"a": 1}, "resistance": {"ohm": 1},
    "calendar": {"month": 1, "year": 12, "yr": 12, "decade": 120, "century": 1200},
    "money": {"$": 1, "dollar": 1, "usd": 1, "cent": "1/100", "¢": "1/100"},
    "angle": {"degree": 1, "deg": 1, "°": 1},
}  # fmt: skip
FACTORS: dict[str, tuple[str, Fraction]] = {
    name: (dimension, Fraction(factor)) for dimension, units in _SCALES.items() for name, factor in units.items()
}
# Units without conversion factors.
_FURTHER = frozenset(
    (
        "mph", "kmh", "kmph", "km/h", "m/s", "ft/s", "knot", "rpm", "k", "celsius", "fahrenheit", "mol", "rad",
        "radian", "euro", "eur", "pound", "sterling", "rupee", "rs", "yen", "yuan", "franc", "peso", "megag",
        "megam", "megal", "megas", "megat", "megan", "megav", "megaa", "unit", "square-unit", "cubic-unit",
    )
)  # fmt: skip
MULTIPLIERS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
# Words next to a number that add meaning, and make it another answer.
MEANING = frozenset(
    (
        "or", "and", "not", "no", "more", "less", "fewer", "greater", "than", "least", "most", "at", "about",
        "approximately", "around", "nearly", "almost", "odd", "even", "prime", "minus", "plus", "times", "over",
        "under", "below", "above", "between", "to", "from", "up", "down", "only", "exactly", "except", "if",
        "when", "where", "mod", "modulo", "positive", "negative", "infinite", "infinitely", "undefined", "none",
        "half", "third", "quarter", "twice", "double", "triple", "percent", "real", "integer", "rational", "any",
        "all", "each", "every", "such", "some", "are", "is",
    )
)  # fmt: skip


_MEGA = re.compile(r"\bM(?=[JWVNAL]\b|[gmst]\b)")  # `MJ` is not `mJ`
_NAMES = {
    "newton": "n", "joule": "j", "watt": "w", "volt": "v", "ampere": "a", "kelvin": "k", "hectare": "ha",
}  # fmt: skip


def singular(word: str) -> str:
    word = word.lower()
    return word[:-1] if word.endswith("s") and len(word) > 2 and not word.endswith("ss") else word


def canonical(unit: str) -> str | None:
    """Return a unit or counted noun in one spelling, `square cm` as `cm^2`; None if the words add meaning."""
    text = (
        _MEGA.sub("mega", unit)
        .lower()
        .replace("{", "")
        .replace("}", "")
        .replace("\\", " ")
        .replace("-", " ")
        .replace("²", "^2")
    )
    text = re.sub(r"\s*(?:\bper\b|/)\s*", "/", text.replace("³", "^3"))
    text = re.sub(r"\b(?:sq\.?|square|squared)\s+(\w+)", r"\1^2", text)
    text = re.sub(r"\b(?:cu\.?|cubic)\s+(\w+)", r"\1^3", text)
    text = re.sub(r"[.,]", " ", text).strip()
    words = re.findall(r"[a-z$°¢€£µ]+|\^-?\d+|/", text)
    if not words or re.sub(r"[a-z$°¢€£µ^/\d\s-]+", "", text) or MEANING & set(words) or MULTIPLIERS.keys() & set(words):
        return None
    return (
        "".join(w if w[0] in "^/" else f" {_NAMES.get(singular(w), singular(w))}" for w in words)
        .strip()
        .replace("/ ", "/")
    )


def is_known(unit: str) -> bool:
    """Return whether a canonical unit is a unit of measurement, not a counted noun."""
    names = re.findall(r"[a-z$°¢€£µ]+", unit)
    return bool(names) and all(name in FACTORS or name in _FURTHER for name in names)


def are_apart(unit: str, other: str) -> bool:
    """Return whether two units surely measure different things; False if the dimension of one is unknown."""
    one, two = ([_scale(part) for part in _parts(each)] for each in (unit, other))
    if None in one or None in two:
        return False
    dimensions = [[scale[0] for scale in some if scale] for some in (one, two)]
    return dimensions[0] != dimensions[1] and {name for some in dimensions for name, _ in some} != {"time", "calendar"}


def factor(unit: str, other: str) -> Fraction | None:
    """Return how many `other` one `unit` is; None if their dimensions differ or a factor is unknown."""
    one, two = _parts(unit), _parts(other)
    if one == two:
        return Fraction(1)
    if len(one) != len(two):
        return None
    total = Fraction(1)
    for n, (mine, theirs) in enumerate(zip(map(_scale, one), map(_scale, two), strict=True)):
        if mine is None or theirs is None or mine[0] != theirs[0]:
            return None
        total *= (mine[1] / theirs[1]) ** (-1 if n else 1)
    return total


_SHORT = {"mph": "mile/hour", "kmh": "km/h", "kmph": "km/h", "kph": "km/h"}


def _parts(unit: str) -> list[str]:
    return _SHORT.get(unit, unit).split("/")


def _scale(unit: str) -> tuple[tuple[str, int], Fraction] | None:
    match = re.fullmatch(r"([a-z$°¢]+)(?:\^([23]))?", unit)
    if not match or match[1] not in FACTORS:
        return None
    dimension, scale = FACTORS[match[1]]
    name, _, exponent = dimension.partition("^")
    power = int(match[2] or 1)
    return (name, int(exponent or 1) * power), scale**power

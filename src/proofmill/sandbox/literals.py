"""Write values as text: of a program, in its own process, where zygote.py runs this source, and outside (values.py)."""

import array
import collections
import dataclasses
import datetime
import decimal
import fractions
import re
import sys

# A program can rebind names of `builtins` and of modules, so these are bound before it runs.
_dict, _getattr, _len, _list, _sorted, _str, _subclass, _tuple, _type, _bytes = (
    dict, getattr, len, list, sorted, str, issubclass, tuple, type, bytes,
)  # fmt: skip
_fields, _is_dataclass = dataclasses.fields, dataclasses.is_dataclass
_array, _datetime, _utc = array.array, datetime.datetime, datetime.UTC
_is_odd = re.compile("[fn]|^-|-0[j+-]").search  # the text of a complex number that Python reads as another one


def _float(value, write=float.__repr__):
    text = write(value)
    return f"float('{text}')" if text in ("nan", "inf", "-inf") else text


def _complex(value, write=complex.__repr__):
    text = write(value)
    return f"complex({_float(value.real)}, {_float(value.imag)})" if _is_odd(text) else text


def _of_dates(kind, write):
    """Return a writer of dates or times of any derived class; a time with a known offset is written as that of UTC."""

    def write_base(value):
        if kind is _datetime and value.tzinfo is not None:
            value = _datetime.astimezone(value, _utc)
        return f"datetime.{kind.__name__}({write(value).partition('(')[2]}"

    return write_base


_DATES = (_datetime, datetime.date, datetime.time, datetime.timedelta)
ATOMS: dict = {  # a kind comes before those that it is derived from
    **{kind: kind.__repr__ for kind in (bool, int, str, bytes, type(None), range, datetime.timezone)},
    float: _float,
    complex: _complex,
    bytearray: lambda value: f"bytearray({_bytes(value)!r})",
    fractions.Fraction: lambda value: f"Fraction({value._numerator}, {value._denominator})",
    decimal.Decimal: lambda value, write=decimal.Decimal.__str__: f"Decimal('{write(value)}')",
    **{kind: _of_dates(kind, kind.__repr__) for kind in _DATES},
}
CONTAINERS = (  # start and end of the text
    (_list, "[", "]", _list.__iter__),
    (_tuple, "(", ")", _tuple.__iter__),
    (set, "{", "}", set.__iter__),
    (frozenset, "frozenset({", "})", frozenset.__iter__),
    (collections.OrderedDict, "OrderedDict({", "})", collections.OrderedDict.items),
    (collections.Counter, "Counter({", "})", _dict.items),
    (_dict, "{", "}", _dict.items),
    (collections.deque, "deque([", "])", collections.deque.__iter__),
    (_array, "", "])", _array.__iter__),
)
_SETS = {set: "set()", frozenset: "frozenset()"}  # without members


class NoPlainData(ValueError):
    pass


def literal(value, room, deep=100):
    """Return a value as text, and the characters left of `room`. An object of a derived class counts as its base.

    Members of sets are sorted by their text, natural numbers by size. Mappings keep their order.
    """
    kind = _type(value)
    if (numpy := sys.modules.get("numpy")) is not None and _subclass(kind, (numpy.generic, numpy.ndarray)):
        value = value.item() if _subclass(kind, numpy.generic) else numpy.ndarray.tolist(value)
        if _type(value) is _list:
            text, room = literal(value, room - 2, deep - 1)
            return f"numpy.array({text})", room
        kind = _type(value)
    if deep < 0:
        raise NoPlainData("a value over 100 levels deep")
    for atom in (kind,) if _type(kind) is _type and kind in ATOMS else ATOMS:
        if kind is atom or _subclass(kind, atom):
            if kind is _str or kind is _bytes:
                room -= _len(value)
            text = ATOMS[atom](value) if room >= 0 else ""
            room -= 2 if kind is _str or kind is _bytes else _len(text)
            if room < 0:
                raise NoPlainData("a value over the greatest length")
            return text, room
    for parent, start, end, items in CONTAINERS:
        if _subclass(kind, parent):
            texts = []
            for item in items(value):
                if _subclass(parent, _dict):
                    key, room = literal(item[0], room - 2, deep - 1)
                    text, room = literal(item[1], room, deep - 1)
                    text = f"{key}: {text}"
                else:
                    text, room = literal(item, room, deep - 1)
                texts.append(text)
                if (room := room - 2) < 0:
                    raise NoPlainData("a value over the greatest length")
            if parent in _SETS:
                texts = _sorted(texts, key=lambda text: (_len(text), text))
                if not texts:
                    return _SETS[parent], room
            start = f"array('{value.typecode}', [" if parent is _array else start
            end = ",)" if parent is _tuple and _len(texts) == 1 else end
            return start + ", ".join(texts) + end, room
    if _is_dataclass(kind):
        texts = []
        for field in _fields(kind):
            if field.repr:
                text, room = literal(_getattr(value, field.name), room - _len(field.name) - 3, deep - 1)
                texts.append(f"{field.name}={text}")
        return f"{kind.__name__}({', '.join(texts)})", room
    raise NoPlainData(f"a value of the type {kind.__name__}, which is no plain data")

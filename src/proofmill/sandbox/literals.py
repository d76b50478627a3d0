"""Write a value as text in the process of the program that computed it. zygote.py runs this source inside the jail."""

import sys

# A program can rebind names of `builtins`, so these are bound before it runs.
_bool, _dict, _float, _frozenset, _int, _len, _list, _none, _set, _str, _tuple, _type, _bytes, _complex, _subclass = (
    bool, dict, float, frozenset, int, len, list, type(None), set, str, tuple, type, bytes, complex, issubclass,
)  # fmt: skip
ATOMS = (
    *((kind, vars(kind)["__repr__"]) for kind in (bool, int, str, float, bytes, type(None))),
    (complex, lambda value: f"complex({value.real!r}, {value.imag!r})"),
)


class NoPlainData(Exception):
    pass


def literal(value, room, deep=100):
    """Return a value as text, and the characters left of `room`. An object of a derived class counts as its base."""
    kind = _type(value)
    if "numpy" in sys.modules and _subclass(kind, sys.modules["numpy"].generic):
        value = value.item()
        kind = _type(value)
    if deep < 0:
        raise NoPlainData("a value over 100 levels deep")
    for atom, written in ATOMS:
        if kind is atom or _subclass(kind, atom):
            if kind is _str or kind is _bytes:
                room -= _len(value)
            text = written(value) if room >= 0 else ""
            room -= 2 if kind is _str or kind is _bytes else _len(text)
            if room < 0:
                raise NoPlainData("a value over the greatest length")
            return text, room
    for parent, start, end, items in (
        (_list, "[", "]", _list.__iter__),
        (_tuple, "(", ",)", _tuple.__iter__),
        (_set, "set((", ",))", _set.__iter__),
        (_frozenset, "frozenset((", ",))", _frozenset.__iter__),
        (_dict, "{", "}", _dict.items),
    ):
        if _subclass(kind, parent):
            texts = []
            for item in items(value):
                if parent is _dict:
                    key, room = literal(item[0], room - 2, deep - 1)
                    text, room = literal(item[1], room, deep - 1)
                    text = f"{key}: {text}"
                else:
                    text, room = literal(item, room, deep - 1)
                texts.append(text)
                if (room := room - 2) < 0:
                    raise NoPlainData("a value over the greatest length")
            if not texts:
                end = end.replace(",", "")
            return start + ", ".join(texts) + end, room
    raise NoPlainData(f"a value of the type {kind.__name__}, which is no plain data")

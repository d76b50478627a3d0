"""Writes a value as text in the process of the program that computed it. zygote.py runs this source inside the jail.

It has builtins of its own: a program may rebind what it finds in `builtins`.
"""

import sys

ATOMS = (
    *((kind, vars(kind)["__repr__"]) for kind in (bool, int, str, float, bytes, type(None))),
    (complex, lambda value: f"complex({value.real!r}, {value.imag!r})"),
)
CONTAINERS = (
    (list, "[", "]", list.__iter__),
    (tuple, "(", ",)", tuple.__iter__),
    (set, "set((", ",))", set.__iter__),
    (frozenset, "frozenset((", ",))", frozenset.__iter__),
    (dict, "{", "}", dict.items),
)


class NoPlainData(Exception):
    pass


def literal(value, room, deep=100):
    """A value as text and the characters left. An object of a derived class counts as what it is derived from."""
    kind = type(value)
    if "numpy" in sys.modules and issubclass(kind, sys.modules["numpy"].generic):
        value = value.item()
        kind = type(value)
    if deep < 0:
        raise NoPlainData("a value over 100 levels deep")
    for atom, written in ATOMS:
        if issubclass(kind, atom):
            if atom in (str, bytes) and len(value) > room:
                raise NoPlainData("a value over the greatest length")
            text = written(value)
            return text, left(room - (len(value) + 2 if atom in (str, bytes) else len(text)))
    for parent, start, end, items in CONTAINERS:
        if issubclass(kind, parent):
            texts = []
            for item in items(value):
                if parent is dict:
                    key, room = literal(item[0], room - 2, deep - 1)
                    text, room = literal(item[1], room, deep - 1)
                    text = f"{key}: {text}"
                else:
                    text, room = literal(item, room, deep - 1)
                texts.append(text)
                room = left(room - 2)
            return start + ", ".join(texts) + (end if texts else end.replace(",", "")), room
    raise NoPlainData(f"a value of the type {kind.__name__}, which is no plain data")


def left(room):
    if room < 0:
        raise NoPlainData("a value over the greatest length")
    return room

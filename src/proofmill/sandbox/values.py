"""Parse, write and compare the values of programs outside the sandbox, as text.

    parse("{'a': [1, nan]}")     the value; ValueError if the text is not plain data
    write(value)                 the text: the same for equal values of the same types
    same(value, other)           Python's ==, but NaN equals itself, and numbers may differ by a tolerance

Plain data are None, numbers, texts, bytes, ranges, dates and times, and lists, tuples, sets, dicts, arrays and the like
of plain data; also dataclasses, by their fields.

Differences from `ast.literal_eval`:
1. All that `repr` writes for plain data is accepted: `nan`, `set()`, `deque([1])`, `np.float64(0.5)`, also `math.inf`
   and `dict(a=1)`. Only the constructors of `_MAKERS` are called, and none takes much longer than reading its arguments.
2. Length, depth and exponents are bounded. Every fault of a text raises ValueError.
"""

import ast
import cmath
import math
import sys
import threading
import warnings
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from operator import eq, index
from typing import Any

from proofmill.sandbox import literals

LONGEST = 1_000_000  # characters of a text
DEEPEST = 100  # levels of a value
MOST_DIGITS = 10_000  # of a Decimal written out: comparing it with other numbers takes as many
MOST_BITS = 14_285  # of an integer: Python writes no longer one
MOST_ALIKE = 1_000  # members of a set with one hash
Tolerance = tuple[float, float]  # absolute; relative to the larger of two numbers
EXACT: Tolerance = (0, 0)


class Record(tuple[Any, ...]):
    """The values of a dataclass, or the nested list of an array of numpy, whose name is `array`.

    `Point(x=1, y=2)` may also be how `repr` wrote a named tuple. So it equals a tuple, as those do.
    """

    name: str
    fields: tuple[str, ...]

    def __new__(cls, name: str, fields: Iterable[str], items: Iterable[Any]) -> "Record":
        record = super().__new__(cls, items)
        record.name, record.fields = name, tuple(fields)
        return record

    def __eq__(self, other: object) -> bool:
        alike = (other.name, other.fields) == (self.name, self.fields) if isinstance(other, Record) else self.fields
        return bool(alike) and tuple.__eq__(self, other)

    __hash__ = tuple.__hash__


# -------------------------------------------------------------------------------------------------------------- parsing


def parse(text: str, longest: int = LONGEST) -> Any:
    """Parse a text into its value. Raises ValueError with a message that names the fault."""
    if len(text) > longest:
        raise ValueError(f"over {longest:,} characters")
    try:
        return _value(expression(text), DEEPEST)
    except (SyntaxError, TypeError, ArithmeticError, MemoryError, RecursionError) as error:
        raise ValueError(f"no plain data: {error}"[:200]) from None


def is_plain(text: str) -> bool:
    """Return whether a text can be parsed into a value."""
    with suppress(ValueError):
        return parse(text) is not ...
    return False


_READING = threading.RLock()  # CPython's parser and its warnings are not thread-safe


@contextmanager
def reading() -> Iterator[None]:
    """Hold the lock for parsing source, and suppress warnings."""
    with _READING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def expression(text: str) -> ast.expr:
    """Parse an expression into its tree. Raises the exceptions of `ast.parse`."""
    with reading():
        return ast.parse(text.strip(), mode="eval").body


def is_made(node: ast.AST) -> bool:
    """Return whether an expression calls a constructor of the standard library or of numpy with plain data."""
    return isinstance(node, ast.Call) and _name(node.func) in _MAKERS and is_plain(ast.unparse(node))


def _value(node: ast.AST, deepest: int) -> Any:
    if deepest < 0:
        raise ValueError(f"over {DEEPEST} levels deep")
    match node:
        case ast.Constant(value=int() as value) if value.bit_length() > MOST_BITS:  # in hexadecimal digits
            raise ValueError("an integer of over 4,300 digits")
        case ast.Constant(value=value) if value is not ...:
            return value
        case ast.List(elts=items):
            return [_value(item, deepest - 1) for item in items]
        case ast.Tuple(elts=items):
            return tuple([_value(item, deepest - 1) for item in items])
        case ast.Set(elts=items):
            return set(_keys([_value(item, deepest - 1) for item in items]))
        case ast.Dict(keys=keys, values=items) if None not in keys:
            written = _keys([_value(key, deepest - 1) for key in keys if key])
            return dict(zip(written, [_value(item, deepest - 1) for item in items], strict=True))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _number(operand, deepest)
            return -number if isinstance(sign, ast.USub) else +number
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=ast.Constant(value=complex() as imaginary)):
            number = _number(left, deepest)
            return number - imaginary if isinstance(sign, ast.Sub) else number + imaginary
        case ast.Name() | ast.Attribute() if (name := _name(node)) in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Call(func=function, args=items, keywords=named) if all(keyword.arg for keyword in named):
            name = _name(function)
            values = [_value(item, deepest - 1) for item in (items[1:] if name == "defaultdict" else items)]
            fields = {k.arg or "": _value(k.value, deepest - 1) for k in named if name != "array"}  # dtype, shape
            listed = () if name in ("array", "deque") else [v for v in values if isinstance(v, (list, tuple))]
            endless = any(isinstance(value, range) for value in (*values, *fields.values()))
            if name in _MAKERS and not endless and all(len(value) <= MOST_ALIKE for value in listed):
                return _MAKERS[name](*values, **fields)
            if name not in _MAKERS and name[:1].isupper() and fields and not values:
                return Record(name, fields, fields.values())
    raise ValueError(f"no plain data: {type(node).__name__}")


def _keys(items: list[Any]) -> list[Any]:
    """Return members or keys. Raises ValueError if a table of them took squared time, because their hashes are equal."""
    hashes = sorted(map(hash, items))
    if any(map(eq, hashes, hashes[MOST_ALIKE:])):
        raise ValueError(f"over {MOST_ALIKE:,} members with one hash")
    return items


def _number(node: ast.AST, deepest: int) -> Any:
    value = _value(node, deepest - 1)
    if type(value) not in (int, float, complex):
        raise ValueError("no plain data: a sign before what is no number")
    return value


_PREFIXES = {"array", "collections", "datetime", "decimal", "fractions", "math", "np", "numpy"}


def _name(node: ast.AST) -> str:
    """Return the name of a constructor or constant without its module; empty for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in _PREFIXES:
            return name
        case ast.Attribute(value=value, attr="utc") if _name(value) == "timezone":
            return "timezone.utc"
    return ""


def _decimal(digits: Any) -> Decimal:
    value = Decimal(digits)
    if max(abs(value.adjusted()), len(value.as_tuple().digits)) > MOST_DIGITS:
        raise ValueError(f"a Decimal of over {MOST_DIGITS:,} digits")
    return value


def _array(first: Any, items: Any = ()) -> Any:
    if not isinstance(first, (str, list)):
        raise TypeError("an array of what is no list")
    return array(first, items) if isinstance(first, str) else Record("array", (), [first])


_CONSTANTS = {"nan": math.nan, "inf": math.inf, "timezone.utc": UTC, "True_": True, "False_": False}
_MAKERS: dict[str, Callable[..., Any]] = {
    **{kind.__name__: kind for kind in (complex, float, range, dict, set, frozenset, Counter, OrderedDict, deque)},
    **{kind.__name__: kind for kind in (date, datetime, time, timedelta, timezone)},
    **{f"{kind}{bits}": int for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("float16", "float32", "float64"), float),
    "complex128": complex,
    "str_": "".__add__,
    "array": _array,
    "bytearray": lambda data: bytearray(memoryview(data)),
    "Decimal": _decimal,
    "defaultdict": dict,  # without its factory
    "Fraction": lambda *integers: Fraction(*map(index, integers)),
}

# -------------------------------------------------------------------------------------------------------------- writing


def write(value: Any) -> str:
    """Write a value as a literal, or as a call of a constructor.

    Members of sets are sorted by their text, mappings keep their order. Raises ValueError for a value that is not plain
    data or too deep, and for an integer of more digits than Python writes.
    """
    return literals.literal(value, sys.maxsize, DEEPEST)[0]


def _write_record(record: Record) -> str:
    if record.name == "array":
        return f"numpy.array({write(record[0])})"
    return (
        f"{record.name}({', '.join(f'{key}={write(item)}' for key, item in zip(record.fields, record, strict=True))})"
    )


literals.ATOMS[Record] = _write_record
_IMPORTS = {
    **{f"{kind.__name__}(": kind.__module__ for kind in (array, Counter, deque, OrderedDict, Decimal, Fraction)},
    **{"datetime.": "datetime", "numpy.": "numpy"},
}


def source(text: str) -> str:
    """Return the text of a value as source code that needs no names but Python's own.

    Raises ValueError for a dataclass, because its name may be that of a function of the reader.
    """
    value = parse(text)
    _refuse_records(value)
    written = write(value)
    used = {start[:-1]: f"__import__('{module}')" for start, module in _IMPORTS.items() if start in written}
    names = [imported if name in ("datetime", "numpy") else f"{imported}.{name}" for name, imported in used.items()]
    return f"(lambda {', '.join(used)}: {written})({', '.join(names)})" if used else written


def _refuse_records(value: Any) -> Any:
    if isinstance(value, Record) and value.fields:
        raise ValueError(f"an instance of the class {value.name}")
    return _change(value, _refuse_records)


# ------------------------------------------------------------------------------------------------------------ comparing


def same(value: Any, other: Any, tolerance: Tolerance = EXACT) -> bool:
    """Return whether two values of plain data are equal; NaN equals NaN, at any depth.

    With a tolerance, numbers may differ, except keys of mappings and members of sets.
    """
    one, its = _with_one_nan(value), _with_one_nan(other)
    return bool(one == its) or (tolerance != EXACT and bool(one == _snap(its, one, tolerance)))


def are_close(one: Any, other: Any, tolerance: Tolerance) -> bool:
    """Return whether two numbers are equal or within the tolerance. Only floats and complex numbers are rounded."""
    absolute, relative = tolerance
    kinds = {type(one), type(other)}
    with suppress(OverflowError):  # infinite, or too large for a complex number
        if one == other or complex in kinds or kinds == {float}:
            return bool(one == other) or cmath.isclose(complex(one), complex(other), rel_tol=relative, abs_tol=absolute)
        first, second = Fraction(one), Fraction(other)
        size = max(abs(first), abs(second))
        return abs(first - second) <= max(Fraction(absolute), Fraction(relative) * size)
    return False


_NAN = object()


def _with_one_nan(value: Any) -> Any:
    """Replace each NaN of a value by one object, which equals itself."""
    if value.is_nan() if isinstance(value, Decimal) else isinstance(value, (float, complex)) and value != value:
        return _NAN
    return _change(value, _with_one_nan)


def _change(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a container with each of its items changed, in order; other values are unchanged."""
    match value:
        case Record():
            return Record(value.name, value.fields, map(change, value))
        case list() | tuple() | deque() | set() | frozenset():
            return type(value)(map(change, value))
        case dict():
            return type(value)({change(key): change(item) for key, item in value.items()})
        case array():
            return Record("array.array", (), map(change, value))
    return value


def _snap(value: Any, goal: Any, tolerance: Tolerance) -> Any:
    """Return a value in which each number is replaced by that of `goal` at its place, if it is within the tolerance."""
    if all(isinstance(each, (int, float, complex, Decimal, Fraction)) for each in (value, goal)):
        return goal if are_close(value, goal, tolerance) else value
    if isinstance(value, dict) and isinstance(goal, dict):
        return type(value)({key: _snap(item, goal.get(key), tolerance) for key, item in value.items()})
    ordered = all(isinstance(each, (list, tuple, deque)) for each in (value, goal))
    goals = iter(goal) if ordered and len(goal) == len(value) else iter(())
    return _change(value, lambda item: _snap(item, next(goals, None), tolerance))

"""Parse, write and compare the values of programs outside the sandbox, as text.

    parse("{'a': [1, nan]}")     the value; ValueError if the text is not plain data
    write(value)                 the text: the same for equal values of the same types
    same(value, other)           Python's ==, but NaN equals itself

Plain data are None, bool, int, float, complex, str, bytes, and lists, tuples, dicts, sets and frozensets of plain data.

Differences from `ast.literal_eval`:
1. All that `repr` writes for plain data is accepted: `nan`, `inf`, `set()`, `frozenset({1})`, also `float('nan')`,
   `math.inf` and `dict(a=1)`.
2. Length and depth are bounded. Every fault of a text raises ValueError.
"""

import ast
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LONGEST = 1_000_000  # characters of a text
DEEPEST = 100  # levels of a value


def parse(text: str, longest: int = LONGEST) -> Any:
    """Parse a text into its value. Raises ValueError with a message that names the fault."""
    if len(text) > longest:
        raise ValueError(f"over {longest:,} characters")
    try:
        return _value(expression(text), DEEPEST)
    except (SyntaxError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise ValueError(f"no plain data: {error}"[:200]) from None


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


def _value(node: ast.AST, deepest: int) -> Any:
    if deepest < 0:
        raise ValueError(f"over {DEEPEST} levels deep")
    match node:
        case ast.Constant(value=value) if value is not ...:
            return value
        case ast.List(elts=items):
            return [_value(item, deepest - 1) for item in items]
        case ast.Tuple(elts=items):
            return tuple([_value(item, deepest - 1) for item in items])
        case ast.Set(elts=items):
            return {_value(item, deepest - 1) for item in items}
        case ast.Dict(keys=keys, values=items) if None not in keys:
            pairs = zip(keys, items, strict=True)
            return {_value(key, deepest - 1): _value(item, deepest - 1) for key, item in pairs if key}
        case ast.Name(id="nan") | ast.Attribute(value=ast.Name(id="math"), attr="nan"):
            return math.nan
        case ast.Name(id="inf") | ast.Attribute(value=ast.Name(id="math"), attr="inf"):
            return math.inf
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _number(operand, deepest)
            return -number if isinstance(sign, ast.USub) else +number
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=ast.Constant(value=complex() as imaginary)):
            number = _number(left, deepest)
            return number - imaginary if isinstance(sign, ast.Sub) else number + imaginary
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=named) if all(keyword.arg for keyword in named):
            return {keyword.arg: _value(keyword.value, deepest - 1) for keyword in named if keyword.arg}
        case ast.Call(func=ast.Name(id=name), args=items, keywords=[]) if name in _CALLS:
            return _CALLS[name](*[_value(item, deepest - 1) for item in items])
    raise ValueError(f"no plain data: {type(node).__name__}")


def _number(node: ast.AST, deepest: int) -> Any:
    value = _value(node, deepest - 1)
    if type(value) not in (int, float, complex):
        raise ValueError("no plain data: a sign before what is no number")
    return value


_CALLS: dict[str, Callable[..., Any]] = {"complex": complex, "float": float, "frozenset": frozenset, "set": set}


def write(value: Any, deepest: int = DEEPEST) -> str:
    """Write a value as a Python literal.

    Members of sets are sorted by their text, mappings keep their order. Raises ValueError for a value that is not plain
    data or too deep, and for an integer of more digits than Python writes.
    """
    if deepest < 0:
        raise ValueError(f"over {DEEPEST} levels deep")
    kind = type(value)
    if kind in (bool, int, str, bytes, type(None)):
        return repr(value)
    if kind is float:
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    if kind is complex:
        usual = "nan" not in repr(value) and "inf" not in repr(value) and repr(parse(repr(value))) == repr(value)
        return repr(value) if usual else f"complex({write(value.real)}, {write(value.imag)})"  # (-0-1j) is read as -1j
    if kind not in (list, tuple, dict, set, frozenset):
        raise ValueError(f"no plain data: {kind.__name__}")
    items = [write(item, deepest - 1) for item in value]
    if kind is list:
        return f"[{', '.join(items)}]"
    if kind is tuple:
        return f"({', '.join(items)}{',' * (len(items) == 1)})"
    if kind is dict:
        pairs = zip(items, value.values(), strict=True)
        return f"{{{', '.join([f'{key}: {write(item, deepest - 1)}' for key, item in pairs])}}}"
    members = f"{{{', '.join(sorted(items, key=_by_size))}}}" if items else ""
    return members if kind is set and items else f"{kind.__name__}({members})"


def _by_size(text: str) -> tuple[int, str]:
    """Return a sort key that keeps natural numbers in numeric order."""
    return len(text), text


def same(value: Any, other: Any) -> bool:
    """Return whether two values of plain data are equal; NaN equals NaN, at any depth."""
    return bool(_with_one_nan(value) == _with_one_nan(other))


_NAN = object()


def _with_one_nan(value: Any) -> Any:
    """Replace each NaN of a value by one object, which equals itself."""
    match value:
        case float() | complex() if value != value:
            return _NAN
        case list():
            return [_with_one_nan(item) for item in value]
        case tuple():
            return tuple([_with_one_nan(item) for item in value])
        case dict():
            return {_with_one_nan(key): _with_one_nan(item) for key, item in value.items()}
        case set() | frozenset():
            return frozenset(_with_one_nan(item) for item in value)
    return value

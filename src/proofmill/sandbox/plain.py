"""Recognize tame programs: those made of a closed list of constructs, which can change only their own values.

    is_tame("def f(x): return x + 1", "f(2)")

A tame program names only the attributes, built-in functions and modules listed here. None of these gives access to an
object that the program did not create: no `getattr`, `eval`, `type` or `str.format`, no name that begins with two
underscores, no class, and no attribute is set. So tame programs can share a process, sequentially (zygote.py). They leave
no code that runs later: a program with generators has no exception handlers, which would run when one is freed.
"""

import ast
import builtins
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from proofmill.sandbox import values

LONGEST = 4096  # characters of a program
# Allowed kinds of nodes, and their fields that hold further nodes. All operators and contexts are allowed.
_NODES = {
    kind: tuple(fields.split())
    for kinds, fields in (
        ((ast.Module, ast.Expression), "body"),
        ((ast.Break, ast.Constant, ast.Continue, ast.Global, ast.Import, ast.ImportFrom, ast.Name, ast.Nonlocal, ast.Pass, type(None)), ""),
        ((ast.Attribute, ast.Expr, ast.Return, ast.Starred, ast.Yield, ast.YieldFrom, ast.keyword), "value"),
        ((ast.FunctionDef,), "args body decorator_list returns"),
        ((ast.Lambda,), "args body"),
        ((ast.arguments,), "posonlyargs args vararg kwonlyargs kw_defaults kwarg defaults"),
        ((ast.arg,), "annotation"),
        ((ast.Assign,), "targets value"),
        ((ast.AugAssign, ast.NamedExpr), "target value"),
        ((ast.AnnAssign,), "target annotation value"),
        ((ast.Delete,), "targets"),
        ((ast.For,), "target iter body orelse"),
        ((ast.While, ast.If, ast.IfExp), "test body orelse"),
        ((ast.Raise,), "exc cause"),
        ((ast.Try,), "body handlers orelse finalbody"),
        ((ast.ExceptHandler,), "type body"),
        ((ast.Assert,), "test msg"),
        ((ast.BoolOp, ast.JoinedStr), "values"),
        ((ast.BinOp,), "left right"),
        ((ast.UnaryOp,), "operand"),
        ((ast.Compare,), "left comparators"),
        ((ast.Call,), "func args keywords"),
        ((ast.Subscript,), "value slice"),
        ((ast.Slice,), "lower upper step"),
        ((ast.FormattedValue,), "value format_spec"),
        ((ast.List, ast.Set, ast.Tuple), "elts"),
        ((ast.Dict,), "keys values"),
        ((ast.GeneratorExp, ast.ListComp, ast.SetComp), "elt generators"),
        ((ast.DictComp,), "key value generators"),
        ((ast.comprehension,), "target iter ifs"),
    )
    for kind in kinds
}  # fmt: skip
_MODULES = {"bisect", "collections", "functools", "heapq", "itertools", "math", "re", "string", "typing"}
_BUILTINS = {
    "abs", "all", "any", "ascii", "bin", "bool", "bytes", "chr", "complex", "dict", "divmod", "enumerate", "filter", "float",
    "frozenset", "hex", "int", "isinstance", "iter", "len", "list", "map", "max", "min", "next", "oct", "ord", "pow", "range",
    "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip",
    "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError", "LookupError",
    "NotImplementedError", "OverflowError", "RecursionError", "RuntimeError", "StopIteration", "TypeError",
    "UnicodeDecodeError", "UnicodeEncodeError", "ValueError", "ZeroDivisionError",
}  # fmt: skip
_ATTRIBUTES = {
    "Any", "Callable", "Counter", "Dict", "FrozenSet", "I", "IGNORECASE", "Iterable", "Iterator", "List", "Optional",
    "OrderedDict", "Sequence", "Set", "Tuple", "Union", "accumulate", "add", "append", "appendleft", "args",
    "ascii_letters", "ascii_lowercase", "ascii_uppercase", "bisect", "bisect_left", "bisect_right", "bit_length",
    "cache", "capitalize", "casefold", "ceil", "center", "chain", "clear", "cmp_to_key", "comb", "combinations",
    "combinations_with_replacement", "compile", "conjugate", "copy", "cos", "count", "cycle", "decode", "defaultdict",
    "deque", "difference", "difference_update", "digits", "discard", "dropwhile", "e", "elements", "encode", "end",
    "endswith", "escape", "exp", "expandtabs", "extend", "extendleft", "fabs", "factorial", "find", "findall",
    "finditer", "floor", "from_iterable", "fromkeys", "fullmatch", "gcd", "get", "group", "groupby", "groups",
    "heapify", "heappop", "heappush", "heappushpop", "heapreplace", "hex", "hexdigits", "imag", "index", "inf",
    "insert", "insort", "intersection", "intersection_update", "is_integer", "isalnum", "isalpha", "isascii",
    "isclose", "isdecimal", "isdigit", "isdisjoint", "isfinite", "isidentifier", "isinf", "islice", "islower",
    "isnan", "isnumeric", "isprintable", "isqrt", "isspace", "issubset", "issuperset", "istitle", "isupper", "items",
    "join", "keys", "lcm", "ljust", "log", "log10", "log2", "lower", "lru_cache", "lstrip", "maketrans", "match",
    "maxlen", "most_common", "move_to_end", "nan", "nlargest", "nsmallest", "partial", "partition", "perm",
    "permutations", "pi", "pop", "popitem", "popleft", "pow", "prod", "product", "punctuation", "real", "reduce",
    "remove", "removeprefix", "removesuffix", "repeat", "replace", "reverse", "rfind", "rindex", "rjust", "rotate",
    "rpartition", "rsplit", "rstrip", "search", "setdefault", "sin", "sort", "span", "split", "splitlines", "sqrt",
    "starmap", "start", "startswith", "strip", "sub", "subtract", "swapcase", "symmetric_difference", "takewhile",
    "tan", "title", "translate", "trunc", "union", "update", "upper", "values", "whitespace", "zfill", "zip_longest",
}  # fmt: skip


HIDDEN = "__"  # a hidden name, as all are that begin like this
# Built-in functions that are not allowed. Any other name is the program's own, or raises NameError.
_HIDDEN = {*dir(builtins), "exit", "quit"} - _BUILTINS


def is_tame(program: str, call: str) -> bool:
    """Return whether a program and a call can change only their own values; a program without a call is not tame."""
    return 0 < len(call) <= LONGEST and _is_tame(program, "exec") and _is_tame(call.strip(), "eval")


@lru_cache(maxsize=256)  # a program may have many tests
def _is_tame(source: str, mode: Literal["exec", "eval"]) -> bool:
    if len(source) > LONGEST:
        return False
    try:
        with values.reading():
            nodes: list[Any] = [ast.parse(source, mode=mode)]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    names: set[str] = set()
    kinds = set()
    for node in nodes:  # which grows
        kind = type(node)
        fields = _NODES.get(kind)
        if fields is None:
            return False
        if kind is ast.Name:
            names.add(node.id)
        elif kind in _NAMED:
            names |= _NAMED[kind](node)
        for field in fields:
            value = getattr(node, field)
            if type(value) is list:
                nodes += value
            else:
                nodes.append(value)
        kinds.add(kind)
    runs_later = ast.Try in kinds and not kinds.isdisjoint((ast.Yield, ast.YieldFrom))
    return not runs_later and names.isdisjoint(_HIDDEN) and not any(name.startswith("__") for name in names)


def _names_of_import(node: ast.Import | ast.ImportFrom) -> set[str]:
    imported = {alias.name for alias in node.names}
    is_listed = (
        imported <= _MODULES
        if isinstance(node, ast.Import)
        else node.module in _MODULES and not node.level and imported <= _ATTRIBUTES
    )
    return {alias.asname or alias.name for alias in node.names} if is_listed else {HIDDEN}


# The names of a node in addition to those of its fields; HIDDEN if one is not listed.
_NAMED: dict[type, Callable[[Any], set[str]]] = {
    ast.Attribute: lambda node: set() if node.attr in _ATTRIBUTES and type(node.ctx) is ast.Load else {HIDDEN},
    ast.ExceptHandler: lambda node: {node.name} if node.name else set(),
    ast.FunctionDef: lambda node: {HIDDEN} if getattr(node, "type_params", None) else {node.name},
    ast.Import: _names_of_import,
    ast.ImportFrom: _names_of_import,
    ast.arg: lambda node: {node.arg},
    ast.comprehension: lambda node: {HIDDEN} if node.is_async else set(),
}

"""Which programs are tame: made of a closed list of constructs, so that they can change nothing in CPython but their values.

    is_tame("def f(x): return x + 1", "f(2)")

A tame program names no attribute, built-in function or module but those that are listed here, and none of these leads to
what it did not make itself: no `getattr`, `eval`, `type` or `str.format`, no name that begins with two underscores, no
class, and nothing is set on an object. So it can share a process with others, one after another (zygote.py). Nor does it
leave anything behind that runs later: a generator has no handler of exceptions, which would run when it is freed.
"""

import ast
import builtins
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from proofmill.sandbox import values

LONGEST = 4096  # characters of a program
# Kinds of nodes, and which of their fields hold further ones; operators and contexts are all allowed.
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


# Built-in functions that are not listed. Any other name is a program's own, or is raised as unknown.
HIDDEN = "__"  # stands for any name that is hidden, as all are that begin so
_HIDDEN = {*dir(builtins), "exit", "quit"} - _BUILTINS


def is_tame(program: str, call: str) -> bool:
    """Return whether a program and a call can change nothing but their own values; without a call none is tame."""
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


# The names that a node has in addition to those of its fields; HIDDEN where one is not listed.
_NAMED: dict[type, Callable[[Any], set[str]]] = {
    ast.Attribute: lambda node: set() if node.attr in _ATTRIBUTES and type(node.ctx) is ast.Load else {HIDDEN},
    ast.ExceptHandler: lambda node: {node.name} if node.name else set(),
    ast.FunctionDef: lambda node: {HIDDEN} if getattr(node, "type_params", None) else {node.name},
    ast.Import: _names_of_import,
    ast.ImportFrom: _names_of_import,
    ast.arg: lambda node: {node.arg},
    ast.comprehension: lambda node: {HIDDEN} if node.is_async else set(),
}

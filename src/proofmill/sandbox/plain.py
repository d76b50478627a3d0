"""Which programs are plain: made of a closed list of constructs, so that something is known of them before they run.

    source = Source("def f(x): return x + 1", "f(2)")
    source.is_plain  # Monty runs it as CPython does
    source.is_tame   # it can change nothing in CPython but its own values

A tame program names no attribute, built-in function or module but those that are listed here, and none of these leads to
what it did not make itself: no `getattr`, `eval`, `type` or `str.format`, no name that begins with two underscores, no
class, and nothing is set on an object. So it can share a process with others, one after another (zygote.py).
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from proofmill.sandbox import values

LONGEST = 4096  # characters of a program

_NODES = (
    ast.Module, ast.Expression, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign,
    ast.For, ast.While, ast.If, ast.Break, ast.Continue, ast.Pass, ast.Expr, ast.Assert, ast.Nonlocal, ast.BoolOp, ast.BinOp,
    ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.List, ast.Tuple, ast.ListComp, ast.DictComp, ast.GeneratorExp,
    ast.comprehension, ast.Compare, ast.Call, ast.keyword, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Starred,
    ast.Name, ast.Import, ast.ImportFrom, ast.alias, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
_MODULES = {"math", "typing"}
_LAZY = {"enumerate", "filter", "map", "reversed", "zip"}  # these give lists in Monty
_WHOLE = {"dict", "join", "list", "max", "min", "sorted", "sum", "tuple"}  # these read all they are given
_BUILTINS = {  # of CPython, in which Monty is the same
    *_LAZY, *_WHOLE, "abs", "all", "any", "bool", "chr", "divmod", "float", "int", "isinstance", "len", "ord", "pow",
    "print", "range", "str",
}  # fmt: skip
_CHANGES = {  # methods that change what they belong to
    "append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update",
}  # fmt: skip
_ATTRIBUTES = {
    *_CHANGES, "copy", "count", "endswith", "find", "get", "index", "isalnum", "isalpha", "isdigit", "islower", "isspace",
    "isupper", "items", "join", "keys", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind",
    "rindex", "rpartition", "rsplit", "rstrip", "split", "startswith", "strip", "upper", "values", "zfill",
    # of modules
    "ceil", "comb", "floor", "gcd", "isqrt", "pi", "sqrt", "Any", "Dict", "List", "Optional", "Tuple", "Union",
}  # fmt: skip
_CONSTANTS = (str, int, float, type(None))


_TAME_NODES = (
    *_NODES, ast.Set, ast.SetComp, ast.JoinedStr, ast.FormattedValue, ast.NamedExpr, ast.Delete, ast.Global, ast.Raise,
    ast.Try, ast.ExceptHandler, ast.Yield, ast.YieldFrom,
)  # fmt: skip
_TAME_MODULES = {*_MODULES, "bisect", "collections", "functools", "heapq", "itertools", "re", "string"}
_TAME_BUILTINS = {
    *(_BUILTINS - {"print"}), "ascii", "bin", "bytes", "complex", "frozenset", "hex", "iter", "next", "oct", "repr", "round",
    "set", "slice", "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError",
    "LookupError", "NotImplementedError", "OverflowError", "RecursionError", "RuntimeError", "StopIteration", "TypeError",
    "UnicodeDecodeError", "UnicodeEncodeError", "ValueError", "ZeroDivisionError",
}  # fmt: skip
_TAME_ATTRIBUTES = {
    *_ATTRIBUTES, "add", "args", "bit_length", "capitalize", "casefold", "center", "conjugate", "decode", "difference",
    "difference_update", "discard", "encode", "expandtabs", "fromkeys", "hex", "imag", "intersection",
    "intersection_update", "is_integer", "isascii", "isdecimal", "isdisjoint", "isidentifier", "isnumeric", "isprintable",
    "issubset", "issuperset", "istitle", "ljust", "maketrans", "real", "rjust", "splitlines", "swapcase",
    "symmetric_difference", "title", "translate", "union",
    # of modules
    "Callable", "Counter", "FrozenSet", "I", "IGNORECASE", "Iterable", "Iterator", "OrderedDict", "Sequence", "Set",
    "accumulate", "appendleft", "ascii_letters", "ascii_lowercase", "ascii_uppercase", "bisect", "bisect_left",
    "bisect_right", "cache", "chain", "cmp_to_key", "combinations", "combinations_with_replacement", "compile", "cos",
    "cycle", "defaultdict", "deque", "digits", "dropwhile", "e", "elements", "end", "escape", "exp", "extendleft",
    "fabs", "factorial", "findall", "finditer", "from_iterable", "fullmatch", "group", "groupby", "groups", "heapify",
    "heappop", "heappush", "heappushpop", "heapreplace", "hexdigits", "inf", "insort", "isclose", "isfinite", "isinf",
    "islice", "isnan", "lcm", "log", "log10", "log2", "lru_cache", "match", "maxlen", "most_common", "move_to_end", "nan", "nlargest",
    "nsmallest", "partial", "perm", "permutations", "popleft", "pow", "prod", "product", "punctuation", "reduce",
    "repeat", "rotate", "search", "sin", "span", "start", "starmap", "sub", "subtract", "takewhile", "tan", "trunc",
    "whitespace", "zip_longest",
}  # fmt: skip


@dataclass(frozen=True)
class _Listed:
    """A closed list: kinds of nodes, and names of modules, built-in functions and attributes."""

    nodes: frozenset[type]
    modules: set[str]
    builtins: set[str]
    attributes: set[str]


def _kinds(nodes: tuple[type, ...]) -> frozenset[type]:
    return frozenset(kind for node in nodes for kind in (node, *node.__subclasses__()))


_PLAIN = _Listed(_kinds(_NODES), _MODULES, _BUILTINS, _ATTRIBUTES)
_TAME = _Listed(_kinds(_TAME_NODES), _TAME_MODULES, _TAME_BUILTINS, _TAME_ATTRIBUTES)
_BINDING = {ast.Name, ast.arg, ast.FunctionDef, ast.alias, ast.ExceptHandler}
_READERS = (ast.Call, ast.For, ast.comprehension)


class Source:
    """A program and a call, read: its nodes by their kinds; without any where Python refuses it, or where it is long."""

    def __init__(self, program: str, call: str):
        self.nodes: dict[type, list[Any]] = {}
        self._is_ascii = program.isascii() and call.isascii()
        if not call or len(program) + len(call) > LONGEST:  # without a call no program is plain
            return
        try:
            with values.reading():
                self._module = ast.parse(program)
                trees: list[ast.AST] = [self._module, ast.parse(call.strip(), mode="eval")]
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return
        while trees:
            node = trees.pop()
            self.nodes.setdefault(type(node), []).append(node)
            trees.extend(ast.iter_child_nodes(node))

    @cached_property
    def _own(self) -> set[str]:
        return {name for kind in _BINDING & self.nodes.keys() for node in self.nodes[kind] for name in _bound(node)}

    @cached_property
    def is_plain(self) -> bool:
        """Whether it is of the constructs that Monty runs as CPython does.

        Plain text, functions and loops over numbers, text, lists and mappings; no sets, classes, generators, handlers of
        exceptions, nor anything whose value depends on chance, time or addresses.
        """
        if not self._is_ascii or not self._is_of(_PLAIN) or any(n.decorator_list for n in self._all(ast.FunctionDef)):
            return False
        try:
            with values.reading():
                compile(self._module, "<program>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError):  # Monty runs some of what Python refuses
            return False
        read = {id(node) for kind in _READERS for reader in self._all(kind) for node in _read_whole(reader)}
        lazy = [n for n in self._all(ast.Name) if n.id in _LAZY] + self._all(ast.GeneratorExp)
        return (
            all(id(node) in read for node in lazy)
            and all(isinstance(n.value, _CONSTANTS) and str(n.value).isascii() for n in self._all(ast.Constant))
            and all(_compares_plainly(node) for node in self._all(ast.Compare))
            and not _changes_what_is_read([node for nodes in self.nodes.values() for node in nodes])
        )

    @cached_property
    def is_tame(self) -> bool:
        """Whether it can change nothing in CPython but its own values."""
        return self._is_of(_TAME)

    def _all(self, kind: type) -> list[Any]:
        return self.nodes.get(kind, [])

    def _is_of(self, listed: "_Listed") -> bool:
        """Whether all that it is made of is listed."""
        imported = [(n.module or "", alias.name) for n in self._all(ast.ImportFrom) for alias in n.names]
        return (
            bool(self.nodes)
            and self.nodes.keys() <= listed.nodes
            and all(n.id in listed.builtins or n.id in self._own for n in self._all(ast.Name))
            and all(n.attr in listed.attributes and isinstance(n.ctx, ast.Load) for n in self._all(ast.Attribute))
            and all(alias.name in listed.modules for n in self._all(ast.Import) for alias in n.names)
            and all(module in listed.modules and name in listed.attributes for module, name in imported)
            and not any(name.startswith("__") for name in self._own)
            and not any(node.level for node in self._all(ast.ImportFrom))
            and not any(node.is_async for node in self._all(ast.comprehension))
        )


def _compares_plainly(node: ast.Compare) -> bool:
    """Whether `is` is asked of None only: which other values are one object is CPython's own affair."""
    pairs = zip(node.ops, node.comparators, strict=True)
    return not any(
        isinstance(sign, (ast.Is, ast.IsNot)) and not (isinstance(other, ast.Constant) and other.value is None)
        for sign, other in pairs
    )


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a node gives to something; a built-in function that gets another meaning is not allowed."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name
        case ast.ExceptHandler(name=str(name)):
            yield name


def _read_whole(node: ast.AST) -> Iterator[ast.AST]:
    """What is read to its end where it is made: generators, and the names of functions that give iterators."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=items) if name in _WHOLE:
            found = items
        case ast.For(iter=items) | ast.comprehension(iter=items):
            found = [items]
        case _:
            return
    for item in found:
        if isinstance(item, ast.GeneratorExp):
            yield item
        elif isinstance(item, ast.Call) and isinstance(item.func, ast.Name):
            yield item.func


def _changes_what_is_read(nodes: Sequence[ast.AST]) -> bool:
    """Whether a loop over `enumerate(x)` or the like may change x, of which Monty has made a list beforehand.

    What is changed there must be new in the program (a list that it writes), and not what is read.
    """
    loops = [
        n for n in nodes if isinstance(n, ast.For) and isinstance(n.iter, ast.Call) and _name(n.iter.func) in _LAZY
    ]
    if not loops:
        return False
    old = {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Assign) and not isinstance(
            node.value, (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
        ):
            old |= {name for target in node.targets for part in ast.walk(target) for name in _bound(part)}
        elif isinstance(node, (ast.For, ast.comprehension)):
            old |= {name for part in ast.walk(node.target) for name in _bound(part)}
    for loop in loops:
        read = {node.id for node in ast.walk(loop.iter) if isinstance(node, ast.Name)}
        for node in (node for part in loop.body for node in ast.walk(part)):
            match node:
                case ast.Subscript(value=changed, ctx=ast.Store()):
                    pass
                case ast.Call(func=ast.Attribute(value=changed, attr=name)) if name in _CHANGES:
                    pass
                case ast.AugAssign(target=changed):
                    if isinstance(changed, ast.Name) and changed.id not in read:
                        continue
                case ast.Call(func=ast.Name(id=name)) if name not in _BUILTINS:  # it may change anything
                    return True
                case _:
                    continue
            if _name(changed) in read | old or not isinstance(changed, ast.Name):
                return True
    return False


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""

"""One lack is something that Python has and the sandbox's interpreter has not: a test that it ended is no failure of the program.

    is_lack(fault, program)       whether the exception that ended a test tells of one
    doubt(program, fault, ...)    in what the interpreter may have gone another way without an exception

From: differences between Python 3.11 and pydantic-monty 1.4, found by running the same programs in both. open-r1 counts
whatever goes wrong as a failure of the program.

How it works:
1. An exception that Python raises for the same reasons is the program's; one that names something which Python has is ours.
2. What the program raises itself is its own, whatever it says.
3. Where no exception tells, the program is read for what is known to go another way. A doubt is not proof: it is asked only
   of tests that were not passed.

Known gaps: what comes of generators being evaluated at once is looked for, but may be missed in a program that does it in an
unusual way.
"""

import ast
import builtins
import importlib
import importlib.util
import re
import sys
import types
from typing import NamedTuple

from proofmill.sandbox._prelude import LAZY
from proofmill.sandbox._programs import Program, name_of, nodes


class Fault(NamedTuple):
    """What ended a test before its end."""

    kind: str  # of exception; TimeoutError and MemoryError are limits; empty for a failure of ours
    text: str = ""
    lines: tuple[int, ...] = ()  # of the program, the outermost call first
    deep: int = 0  # calls under way

    def __str__(self) -> str:
        kind = "EOFError" if self.kind == "binascii.Incomplete" else self.kind
        return f"{kind}: {self.text}".strip(": ")[:200] + (f" (line {self.lines[-1]})" if self.lines else "")


DIED = Fault("", "its worker died")  # perhaps it was killed from outside
BUSY = Fault("", "it got too little processor time: the machine is busy")
# Kinds that the sandbox raises where Python does.
_RIGHT = {
    "ArithmeticError", "AssertionError", "BaseException", "Exception", "FileExistsError", "FileNotFoundError", "IndexError",
    "IsADirectoryError", "KeyError", "KeyboardInterrupt", "LookupError", "MemoryError", "NotADirectoryError", "OSError",
    "OverflowError", "PermissionError", "StopIteration", "SystemExit", "TimeoutError", "UnboundLocalError",
    "UnicodeDecodeError", "UnicodeEncodeError", "ValueError", "ZeroDivisionError", "binascii.Error", "binascii.Incomplete",
    "json.JSONDecodeError",
}  # fmt: skip
# What TypeError and RuntimeError say where Python raises none: found by running the operators, functions and methods of the
# built-in types, 40,000 expressions, in both.
_LACKS = re.compile(
    r"""
    can\ only\ concatenate\ list | (frozen)?set\.\w+\(\)\ takes\ exactly\ one\ argument | a\ bytes-like\ object\ is\ required
    | cannot\ convert\ '[\w.]+'\ object\ to\ bytes | ord\(\)\ expected\ string\ of\ length\ 1,\ but\ bytes | slice\ indices
    | .*between\ instances\ of\ 'dict_ | cannot\ use\ 'list_iterator'\ as | expected\ str,\ bytes\ or\ os\.PathLike\ object
    | isinstance\(\)\ arg\ 2 | type\(\)\ bases | exceptions\ must\ derive | Internal\ error\ in\ monty | suspension\ limit
    | .*is\ not\ supported\ in\ this\ environment
    """,
    re.VERBOSE,
)
MODULES = {  # that the sandbox has, in part
    "asyncio", "base64", "binascii", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "functools",
    "hashlib", "itertools", "json", "math", "os", "pathlib", "random", "re", "sys", "time", "typing", "unicodedata",
}  # fmt: skip
# Special methods that it calls; it passes over others, some without a word (`__bool__`).
CALLED = {
    f"__{name}__"
    for name in """
    abs add and call contains divmod enter eq exit float floordiv getitem hash index init int invert iter lshift matmul mod
    mul neg next or pos post_init pow radd rand repr rfloordiv rlshift rmatmul rmod rmul ror round rpow rrshift rshift
    rsub rtruediv rxor setitem str sub truediv xor
    """.split()  # noqa: SIM905
}
_ENDLESS = {"count", "cycle", "repeat"}  # of itertools
_CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove", "reverse",
    "setdefault", "sort", "update",
}  # fmt: skip


def is_lack(fault: Fault, program: Program) -> bool:
    """Whether an exception tells of something that Python has and the sandbox has not."""
    if fault.kind == "RecursionError":
        return fault.deep < 900  # where a function of its own calls the program, the sandbox allows a few levels only
    if fault.kind in _RIGHT or is_raised(fault, program):
        return False
    if fault.kind in ("TypeError", "RuntimeError"):
        return bool(_LACKS.match(fault.text))
    match fault.kind, re.findall(r"'([^']*)'", fault.text):
        case "NameError", [name]:
            return hasattr(builtins, name)
        case "ModuleNotFoundError", [name]:
            return _is_installed(name.partition(".")[0])
        case "ImportError", [name, module] if module in MODULES:
            return hasattr(importlib.import_module(module), name)
        case "AttributeError", [module, name] if module in MODULES and fault.text.startswith("module"):
            return hasattr(importlib.import_module(module), name)
        case "AttributeError", [owner, name]:
            return _has(owner, name, program)
    return True  # a kind of its own, such as its NotImplementedError


def is_raised(fault: Fault, program: Program) -> bool:
    """Whether the program itself raised it."""
    raises = (node for node in nodes(program.tree) if isinstance(node, ast.Raise))
    return bool(fault.lines) and any(node.lineno <= fault.lines[-1] <= node.end_lineno for node in raises)


def _is_installed(module: str) -> bool:
    """Whether this Python has a module; it is not imported."""
    try:
        return module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None
    except ValueError:  # it is loaded, and says not from where
        return True


def _has(owner: str, name: str, program: Program) -> bool:
    """Whether an object of the type so called may have an attribute in Python."""
    if any(isinstance(node, ast.ClassDef) and node.name == owner for node in nodes(program.tree)):
        return hasattr(types.SimpleNamespace(), name)
    if owner == "list_iterator":  # which stands for a generator
        return hasattr(types.GeneratorType, name)
    kind = getattr(builtins, owner, None) or getattr(types, owner, None)
    return kind is None or hasattr(kind, name)


def doubt(program: Program, fault: Fault | None, printed: str, expected: str) -> str:
    """In what the sandbox may have silently done otherwise than Python; empty where nothing of it is known."""
    classes = [node for node in nodes(program.tree) if isinstance(node, ast.ClassDef)]
    methods = {one.name for node in classes for one in node.body if isinstance(one, ast.FunctionDef)}
    if passed_over := sorted(name for name in methods - CALLED if re.fullmatch(r"__\w+__", name)):
        return f"special methods that it does not call ({passed_over[0]})"
    if "__getitem__" in methods and "__iter__" not in methods:
        return "objects that can be iterated because they have items"
    if fault and set(fault.lines) & program.generators:
        return "a generator that is evaluated to its end"
    if fault and fault.kind in ("MemoryError", "TimeoutError"):
        return "an endless iterator" if "itertools" in program.words and program.words & _ENDLESS else ""
    if _changed_while_read(program.tree):
        return "a sequence that is changed while it is read"
    sets = program.words & {"set", "frozenset"} or any(
        isinstance(n, (ast.Set, ast.SetComp)) for n in nodes(program.tree)
    )
    if sets and not fault and sorted("".join(printed.split())) == sorted("".join(expected.split())):
        return "the order of a set"
    return ""


def _changed_while_read(tree: ast.AST) -> bool:
    """Whether a loop over `enumerate(x)` or its like changes x, which the sandbox has read by then."""
    for loop in nodes(tree):
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and name_of(loop.iter.func) in LAZY:
            read = {node.id for node in ast.walk(loop.iter) if isinstance(node, ast.Name)}
            for node in (node for part in loop.body for node in ast.walk(part)):
                stored = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
                called = isinstance(node, ast.Attribute) and node.attr in _CHANGES
                if (stored or called) and name_of(node.value) in read:
                    return True
    return False

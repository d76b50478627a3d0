"""Features of CPython that the sandbox's interpreter (Monty) lacks.

A test that fails because of one says nothing about the program and is left unscored.

    is_lack(fault, program)       whether the exception that ended a test shows a lack
    doubt(program, fault, ...)    where the interpreter may have differed without an exception

From: differences between Python 3.11 and pydantic-monty 1.4, found by running the same programs in both. open-r1 counts
whatever goes wrong as a failure of the program.

How it works:
1. An exception that Python would raise for the same reason is the program's. An exception that names something which
   Python has shows a lack.
2. An exception that the program raises itself is the program's, whatever its text.
3. Where no exception tells, the program is searched for constructs that are known to behave differently. A doubt is not
   proof, so only tests that were not passed are searched.

Known gap: effects of generators being evaluated at once are looked for, but may be missed in a program that produces
them in an unusual way.
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
    """What ended a test early."""

    kind: str  # of exception; TimeoutError and MemoryError are limits; empty if the sandbox is at fault
    text: str = ""
    lines: tuple[int, ...] = ()  # of the program, the outermost call first
    deep: int = 0  # depth of the call stack

    def __str__(self) -> str:
        kind = "EOFError" if self.kind == "binascii.Incomplete" else self.kind
        return f"{kind}: {self.text}".strip(": ")[:200] + (f" (line {self.lines[-1]})" if self.lines else "")


DIED = Fault("", "its worker died")  # perhaps it was killed from outside
BUSY = Fault("", "it got too little processor time: the machine is busy")
# Kinds of exception that the sandbox raises where Python does.
_RIGHT = {
    "ArithmeticError", "AssertionError", "BaseException", "Exception", "FileExistsError", "FileNotFoundError", "IndexError",
    "IsADirectoryError", "KeyError", "KeyboardInterrupt", "LookupError", "MemoryError", "NotADirectoryError", "OSError",
    "OverflowError", "PermissionError", "StopIteration", "SystemExit", "TimeoutError", "UnboundLocalError",
    "UnicodeDecodeError", "UnicodeEncodeError", "ValueError", "ZeroDivisionError", "binascii.Error", "binascii.Incomplete",
    "json.JSONDecodeError",
}  # fmt: skip
# Messages of TypeError and RuntimeError where Python raises neither, found by running 40,000 expressions with the
# operators, functions and methods of the built-in types in both.
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
MODULES = {  # modules that the sandbox has, in part
    "asyncio", "base64", "binascii", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "functools",
    "hashlib", "itertools", "json", "math", "os", "pathlib", "random", "re", "sys", "time", "typing", "unicodedata",
}  # fmt: skip
# Special methods that the sandbox calls. It ignores others, some silently (`__bool__`).
CALLED = {
    f"__{name}__"
    for name in """
    abs add and call contains divmod enter eq exit float floordiv getitem hash index init int invert iter lshift matmul mod
    mul neg next or pos post_init pow radd rand repr rfloordiv rlshift rmatmul rmod rmul ror round rpow rrshift rshift
    rsub rtruediv rxor setitem str sub truediv xor
    """.split()  # noqa: SIM905
}
_ENDLESS = {"count", "cycle", "repeat"}  # of itertools
_CHANGES = {  # methods that change a sequence, a set or a mapping
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove", "reverse",
    "setdefault", "sort", "update",
}  # fmt: skip


def is_lack(fault: Fault, program: Program) -> bool:
    """Whether an exception shows something that Python has and the sandbox lacks."""
    if fault.kind == "RecursionError":
        return fault.deep < 900  # where its own function calls the program, the sandbox allows few levels
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
    return True  # a kind of the sandbox's own, such as its NotImplementedError


def is_raised(fault: Fault, program: Program) -> bool:
    """Whether the program itself raised the exception."""
    raises = (node for node in nodes(program.tree) if isinstance(node, ast.Raise))
    return bool(fault.lines) and any(node.lineno <= fault.lines[-1] <= (node.end_lineno or 0) for node in raises)


def _is_installed(module: str) -> bool:
    """Whether this Python has a module, which is not imported to find out."""
    try:
        return module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None
    except ValueError:  # the module is loaded without a record of its origin
        return True


def _has(owner: str, name: str, program: Program) -> bool:
    """Whether in Python an object of the type called `owner` may have an attribute."""
    if any(isinstance(node, ast.ClassDef) and node.name == owner for node in nodes(program.tree)):
        return hasattr(types.SimpleNamespace(), name)
    if owner == "list_iterator":  # the sandbox's stand-in for a generator
        return hasattr(types.GeneratorType, name)
    kind = getattr(builtins, owner, None) or getattr(types, owner, None)
    return kind is None or hasattr(kind, name)


def doubt(program: Program, fault: Fault | None, printed: str, expected: str) -> str:
    """How the sandbox may silently have differed from Python; empty where no known difference applies."""
    classes = [node for node in nodes(program.tree) if isinstance(node, ast.ClassDef)]
    methods = {part.name for node in classes for part in node.body if isinstance(part, ast.FunctionDef)}
    if uncalled := sorted(name for name in methods - CALLED if re.fullmatch(r"__\w+__", name)):
        return f"special methods that it does not call ({uncalled[0]})"
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
    """Whether a loop over `enumerate(x)` or the like changes x, of which the sandbox made a list beforehand."""
    for loop in nodes(tree):
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and name_of(loop.iter.func) in LAZY:
            read = {node.id for node in ast.walk(loop.iter) if isinstance(node, ast.Name)}
            for node in (node for part in loop.body for node in ast.walk(part)):
                if isinstance(node, ast.Subscript):
                    changes = isinstance(node.ctx, ast.Store)
                elif isinstance(node, ast.Attribute):
                    changes = node.attr in _CHANGES
                else:
                    continue
                if changes and name_of(node.value) in read:
                    return True
    return False

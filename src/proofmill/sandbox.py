r"""One run says which share of a problem's tests the program in a text passes, or that this cannot be known here.

    with Sandbox() as sandbox:
        for ran in sandbox.check(pairs):  # of (text, answer); the answer is the tests, as JSON
            ...

From: the code rewards of open-r1 (`code`, `binary_code`: the share of tests that the last ```python block passes), executed
by pydantic-monty, an interpreter of Python in Rust whose programs know no file, network, environment or process.

How it differs:
1. A failure of ours is no failure of the program. A test that was not passed says nothing where the interpreter lacks what
   Python has, or is known to do silently what Python does not: the run is `unsupported`, its share None. open-r1 counts a
   missing interpreter or package as 0.
2. Two outputs are the same if all their lines are. open-r1 compares as many as the shorter one has, so that an empty output
   passes every test.
3. The seconds of a test are the kernel's, of processor time. By the wall clock (5 s in open-r1) a program fails on a busy
   machine.
4. A program is Python as this process compiles it. What it does not compile has failed, and is not run.
5. The same program has the same share: `random` begins from one seed, and `sleep` takes no time.

Every test is a run of its own. Loops take about three times as long as in CPython.

Known gaps: what a handler of the program hides is looked for (`_hidden`), and what comes of generators being evaluated at
once (`_doubt`), but either may be missed in a program that does it in an unusual way.
"""

import ast
import builtins
import importlib
import importlib.util
import json
import math
import os
import re
import resource
import signal
import sys
import threading
import time
import types
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

Status = Literal["ok", "no-code", "failed", "unsupported"]
SECONDS = 5.0  # of processor time for one test (open-r1: 5 s by the wall)
MEGABYTES = 256.0  # for one test
LONGEST = 32_768  # characters of a program: this process compiles as many of any kind within half a second


class SandboxError(RuntimeError):
    """The sandbox cannot do here what it must; the message says what was found and what to do."""


@dataclass(frozen=True)
class Case:
    """One test: a program that reads `stdin` prints `stdout`; or, after it ran, the expression `call` has the value `result`."""

    stdin: str = ""
    stdout: str = ""
    call: str = ""
    result: str = ""  # as `repr` writes it

    @property
    def expected(self) -> str:
        return self.result if self.call else self.stdout

    def passed(self, text: str) -> bool:
        return same_value(text, self.result) if self.call else same_lines(text, self.stdout)


@dataclass(frozen=True)
class Ran:
    """`ok`: every test ran to its end. `failed`: some did not, which are not passed; or the program is no Python."""

    share: float | None  # of tests passed; None where it cannot be known
    passed: int
    of: int
    status: Status
    detail: str = ""  # the first thing that went wrong


# ------------------------------------------------------------------------------------------------------ texts and answers

_FENCE = re.compile(r"[ \t]*(`{3,})[ \t]*([^`\s]*)[^`]*")


def code_of(text: str) -> str | None:
    """The last closed block of a text that says it is Python; where none does, the last that says nothing."""
    last: dict[bool, str] = {}
    fence, said, start = "", "", 0
    lines = text.split("\n")
    for n, line in enumerate(lines):
        if not (found := _FENCE.fullmatch(line)):
            continue
        if not fence or found[2]:  # what stands before a new block is not closed
            fence, said, start = found[1], found[2].lower(), n + 1
        elif len(found[1]) >= len(fence):
            if said in ("python", "py", "python3", ""):
                last[bool(said)] = "\n".join(lines[start:n]) + "\n"
            fence = ""
    return last.get(True, last.get(False))


@lru_cache(maxsize=4096)
def cases_of(answer: str) -> tuple[Case, ...]:
    """The tests of a problem. ValueError says in a sentence what is wrong with them."""
    try:
        rows = json.loads(answer)
    except (ValueError, RecursionError):
        raise _wrong(f"`{answer[:60]}` is not JSON") from None
    if not isinstance(rows, list) or not rows:
        raise _wrong(f"`{answer[:60]}` is no list with a test in it")
    return tuple(_case(row, f"test {n}") for n, row in enumerate(rows, 1))


def _case(row: Any, where: str) -> Case:
    if not isinstance(row, dict) or set(row) not in ({"input", "output"}, {"call", "result"}):
        raise _wrong(f"{where} is `{json.dumps(row)[:60]}`")
    if "result" in row and not isinstance(row["result"], str):
        row["result"] = repr(row["result"])
    for name, text in row.items():
        if not isinstance(text, str) or re.search("[\ud800-\udfff]", text):
            raise _wrong(f"the {name} of {where} is no text")
    if "input" in row:
        return Case(stdin=row["input"], stdout=row["output"])
    try:
        ast.parse(row["call"], mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _wrong(f"the call of {where} is no expression of Python") from None
    return Case(call=row["call"], result=row["result"])


def _wrong(found: str) -> ValueError:
    return ValueError(
        f'tests: {found}; expected a JSON list of tests such as {{"input": "1 2\\n", "output": "3\\n"}} (what a program '
        'reads and prints) or {"call": "f(1, 2)", "result": "3"} (an expression and its value as Python writes it). '
        "Correct the answer of the problem."
    )


def same_lines(one: str, other: str) -> bool:
    """Whether two outputs have the same lines: blanks at the ends of lines and blank lines at the end aside."""
    lines, others = ([line.rstrip() for line in text.rstrip().split("\n")] for text in (one, other))
    return lines == others


def same_value(one: str, other: str) -> bool:
    """Whether two texts that `repr` may have written are the same, or literals of equal values."""
    if one.strip() == other.strip():
        return True
    try:
        return ast.literal_eval(one.strip()) == ast.literal_eval(other.strip())
    except (SyntaxError, TypeError, ValueError, MemoryError, RecursionError):
        return False


# ---------------------------------------------------------------------------------------------------------------- programs


class _Refused(Exception):
    """A program that is not run: its status and the detail."""


class _Program:
    """A program as it was written, and as the sandbox runs it."""

    def __init__(self, code: str):
        """_Refused where Python does not compile it, or where it is too long."""
        if len(code) > LONGEST:
            raise _Refused("unsupported", f"the program is over {LONGEST:,} characters")
        self.code = code.replace("\r\n", "\n").replace("\r", "\n")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.compiled = compile(self.code, "<program>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise _Refused("failed", f"{type(error).__name__}: {error}"[:300]) from None
        except (MemoryError, RecursionError):
            raise _Refused("failed", "SyntaxError: too deeply nested") from None
        self.words = frozenset(re.findall(r"\w+", self.code))
        self.depth = 100_000 if "setrecursionlimit" in self.words else 1000

    @cached_property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.code)
        except (MemoryError, RecursionError):  # where the stack is deeper than it was when the program was compiled
            raise _Refused("unsupported", "the program is nested too deeply to be read") from None

    @cached_property
    def source(self) -> str:
        edited = "sys" in self.words or _generates(self.compiled)
        return self._edited(_edits(self.tree) if edited else ())

    @cached_property
    def bare(self) -> str:
        """The program with handlers that catch nothing where they might catch what the sandbox lacks; empty without such."""
        edits = list(_unhandled(self.tree))
        return self._edited([*_edits(self.tree), *edits]) if edits else ""

    def _edited(self, edits: Iterable["_Edit"]) -> str:
        text, starts = self.code.encode(), [0]
        for line in text.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        for (line, column), (end_line, end_column), new in sorted(edits, key=_last_first, reverse=True):
            start, end = starts[line - 1] + column, starts[end_line - 1] + end_column
            text = text[:start] + new.encode() + text[end:]
        return text.decode() + "\nNone\n"  # the value of a last expression would be brought to this process

    @cached_property
    def generators(self) -> set[int]:
        """Lines of generators whose reader may stop before their end."""
        whole = {"sum", "min", "max", "sorted", "list", "tuple", "set", "frozenset", "dict", "join", "Counter", "deque"}
        calls = (node for node in _nodes(self.tree) if isinstance(node, ast.Call) and _name(node.func) in whole)
        read = {id(argument) for call in calls for argument in call.args}
        found = (node for node in _nodes(self.tree) if isinstance(node, ast.GeneratorExp) and id(node) not in read)
        return {line for node in found for line in range(node.lineno, node.end_lineno + 1)}


def _generates(compiled: types.CodeType) -> bool:
    """Whether there is a generator expression in it, which is looked for here because reading the tree takes long."""
    stack = [compiled]
    while stack:
        if (one := stack.pop()).co_name == "<genexpr>":
            return True
        stack.extend(constant for constant in one.co_consts if isinstance(constant, types.CodeType))
    return False


_Place = tuple[int, int]  # line from 1, byte from 0
_Edit = tuple[_Place, _Place, str]


def _last_first(edit: _Edit) -> tuple[_Place, _Place, bool]:
    """The order in which edits are made, reversed: where one generator ends and another begins, the end is made last."""
    start, end, new = edit
    return start, end, new != ")"


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those in f-strings, whose places Python 3.11 does not know."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.JoinedStr):
            stack.extend(ast.iter_child_nodes(node))


def _name(node: ast.AST) -> str:
    """`f` of `f` and of `x.f`."""
    return getattr(node, "id", getattr(node, "attr", ""))


def _start(node: ast.AST) -> _Place:
    return node.lineno, node.col_offset


def _end(node: ast.AST) -> _Place:
    return node.end_lineno, node.end_col_offset


def _edits(tree: ast.AST) -> Iterator[_Edit]:
    """A generator is a list in the sandbox: it becomes an iterator. `sys` has no streams there: it becomes the prelude's."""
    for node in _nodes(tree):
        if isinstance(node, ast.GeneratorExp):
            yield _start(node), _start(node), "(iter"
            yield _end(node), _end(node), ")"
        elif isinstance(node, (ast.Import, ast.ImportFrom)) and (new := _import(node)):
            yield _start(node), _end(node), new


def _import(node: ast.Import | ast.ImportFrom) -> str:
    """What stands for an import of `sys`, on as many lines; empty for another import."""
    if isinstance(node, ast.Import):
        others = [ast.unparse(ast.Import([alias])) for alias in node.names if alias.name != "sys"]
        made = [(alias.asname or "sys", "_sandbox_sys") for alias in node.names if alias.name == "sys"]
    elif node.module == "sys" and not node.level and node.names[0].name != "*":
        others, made = [], [(alias.asname or alias.name, f"_sandbox_sys.{alias.name}") for alias in node.names]
    else:
        return ""
    blank = "\n" * (node.end_lineno - node.lineno)
    values = [f"{name} = ({blank if n == 0 else ''}{value})" for n, (name, value) in enumerate(made)]
    return "; ".join(others + values) if made else ""


_BROAD = {
    "Exception", "BaseException", "AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "NotImplementedError",
    "RuntimeError", "TypeError",
}  # fmt: skip


def _unhandled(tree: ast.AST) -> Iterator[_Edit]:
    for node in _nodes(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            place = node.lineno, node.col_offset + len("except")
            yield place, place, " ()"
        elif isinstance(node, ast.ExceptHandler) and _BROAD & {_name(one) for one in ast.walk(node.type)}:
            yield _start(node.type), _end(node.type), "()"


# What the sandbox lacks or has otherwise, each with the words of programs that need it. `_sandbox_lines` are the lines of
# the input, the last one first.
_LAZY = ("enumerate", "filter", "map", "reversed", "zip")
_PRELUDE: list[tuple[set[str], str]] = [
    ({"EOFError", "input", "sys"}, "import binascii\nEOFError = binascii.Incomplete\n"),  # no class can be derived
    ({"file", "input", "sys"}, "_sandbox_print = print\n"),
    (
        {"input"},
        """
def input(prompt=''):
    _sandbox_print(prompt, end='')
    if not _sandbox_lines:
        raise EOFError('EOF when reading a line')
    return _sandbox_lines.pop().removesuffix('\\n')
""",
    ),
    (
        {"exit", "quit", "sys"},
        """
def exit(code=None):
    raise SystemExit(str(code or ''))
quit = exit
""",
    ),
    (
        {"sys"},
        """
class _sandbox_In:
    def __init__(self, binary):
        self._sandbox_binary = binary
    def _sandbox_as(self, text):
        return text.encode() if self._sandbox_binary else text
    def read(self, size=-1):
        if size >= 0:
            raise NotImplementedError("part of what is given")
        text = ''.join(_sandbox_lines[::-1])
        _sandbox_lines.clear()
        return self._sandbox_as(text)
    def readline(self):
        return self._sandbox_as(_sandbox_lines.pop() if _sandbox_lines else '')
    def readlines(self):
        return list(self)
    def __iter__(self):
        return self
    def __next__(self):
        if not _sandbox_lines:
            raise StopIteration
        return self.readline()
class _sandbox_Out:
    def __init__(self, shown):
        self._sandbox_shown = shown
    def write(self, text):
        if self._sandbox_shown:
            _sandbox_print(text, end='')
        return len(text)
    def writelines(self, lines):
        self.write(''.join(lines))
    def flush(self):
        pass
class _sandbox_Sys:
    def __init__(self, real):
        self.stdin, self.stdout, self.stderr = _sandbox_In(False), _sandbox_Out(True), _sandbox_Out(False)
        self.stdin.buffer = _sandbox_In(True)
        self.exit, self.argv, self.maxsize, self.maxunicode = exit, real.argv, real.maxsize, real.maxunicode
        self.float_info, self.byteorder, self.version_info = real.float_info, real.byteorder, (3, 11, 0, 'final', 0)
    def setrecursionlimit(self, limit):
        pass
    def getrecursionlimit(self):
        return 1000
import sys as _sandbox_sys
_sandbox_sys = _sandbox_Sys(_sandbox_sys)
""",
    ),
    (
        {"file"},
        """
def print(*values, sep=' ', end='\\n', file=None, flush=False):
    if file is None:
        _sandbox_print(*values, sep=sep, end=end)
    else:
        file.write((' ' if sep is None else sep).join([str(value) for value in values]) + ('\\n' if end is None else end))
""",
    ),
    (
        {"round"},  # the sandbox rounds the number times a power of ten: 30.415 to 30.42
        """
_sandbox_round = round
def round(number, ndigits=None):
    if ndigits is None:
        return _sandbox_round(number)
    if isinstance(number, float) and 0 <= ndigits < 300:
        return float(f'{number:.{ndigits}f}')
    return _sandbox_round(number, ndigits)
""",
    ),
    *(  # these give lists there
        (
            {name},
            f"_sandbox_{name} = {name}\ndef {name}(*some, **named):\n    return iter(_sandbox_{name}(*some, **named))\n",
        )
        for name in _LAZY
    ),
]


# ------------------------------------------------------------------------------------- failures of the program, and of ours


class _Fault(NamedTuple):
    """What ended a test before its end."""

    kind: str  # of exception; TimeoutError and MemoryError are limits; empty for a failure of ours
    text: str = ""
    lines: tuple[int, ...] = ()  # of the program, the outermost call first
    deep: int = 0  # calls under way

    def __str__(self) -> str:
        kind = "EOFError" if self.kind == "binascii.Incomplete" else self.kind
        return f"{kind}: {self.text}".strip(": ")[:200] + (f" (line {self.lines[-1]})" if self.lines else "")


_DIED = _Fault("", "its worker died")  # perhaps it was killed from outside
_BUSY = _Fault("", "it got too little processor time: the machine is busy")
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
_MODULES = {  # that the sandbox has, in part
    "asyncio", "base64", "binascii", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "functools",
    "hashlib", "itertools", "json", "math", "os", "pathlib", "random", "re", "sys", "time", "typing", "unicodedata",
}  # fmt: skip
# Special methods that it calls; it passes over others, some without a word (`__bool__`).
_CALLED = {
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


def _lack(fault: _Fault, program: _Program) -> bool:
    """Whether an exception tells of something that Python has and the sandbox has not."""
    if fault.kind == "RecursionError":
        return fault.deep < 900  # where a function of its own calls the program, the sandbox allows a few levels only
    if fault.kind in _RIGHT or _raised(fault, program):
        return False
    if fault.kind in ("TypeError", "RuntimeError"):
        return bool(_LACKS.match(fault.text))
    match fault.kind, re.findall(r"'([^']*)'", fault.text):
        case "NameError", [name]:
            return hasattr(builtins, name)
        case "ModuleNotFoundError", [name]:
            return _is_installed(name.partition(".")[0])
        case "ImportError", [name, module] if module in _MODULES:
            return hasattr(importlib.import_module(module), name)
        case "AttributeError", [module, name] if module in _MODULES and fault.text.startswith("module"):
            return hasattr(importlib.import_module(module), name)
        case "AttributeError", [owner, name]:
            return _has(owner, name, program)
    return True  # a kind of its own, such as its NotImplementedError


def _raised(fault: _Fault, program: _Program) -> bool:
    """Whether the program itself raised it."""
    nodes = (node for node in _nodes(program.tree) if isinstance(node, ast.Raise))
    return bool(fault.lines) and any(node.lineno <= fault.lines[-1] <= node.end_lineno for node in nodes)


def _is_installed(module: str) -> bool:
    """Whether this Python has a module; it is not imported."""
    try:
        return module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None
    except ValueError:  # it is loaded, and says not from where
        return True


def _has(owner: str, name: str, program: _Program) -> bool:
    """Whether an object of the type so called may have an attribute in Python."""
    if any(isinstance(node, ast.ClassDef) and node.name == owner for node in _nodes(program.tree)):
        return hasattr(types.SimpleNamespace(), name)
    if owner == "list_iterator":  # which stands for a generator
        return hasattr(types.GeneratorType, name)
    kind = getattr(builtins, owner, None) or getattr(types, owner, None)
    return kind is None or hasattr(kind, name)


def _doubt(program: _Program, fault: _Fault | None, printed: str, expected: str) -> str:
    """In what the sandbox may have silently done otherwise than Python; empty where nothing of it is known."""
    classes = [node for node in _nodes(program.tree) if isinstance(node, ast.ClassDef)]
    methods = {one.name for node in classes for one in node.body if isinstance(one, ast.FunctionDef)}
    if passed_over := sorted(name for name in methods - _CALLED if re.fullmatch(r"__\w+__", name)):
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
        isinstance(n, (ast.Set, ast.SetComp)) for n in _nodes(program.tree)
    )
    if sets and not fault and sorted("".join(printed.split())) == sorted("".join(expected.split())):
        return "the order of a set"
    return ""


def _changed_while_read(tree: ast.AST) -> bool:
    """Whether a loop over `enumerate(x)` or its like changes x, which the sandbox has read by then."""
    for loop in _nodes(tree):
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and _name(loop.iter.func) in _LAZY:
            read = {node.id for node in ast.walk(loop.iter) if isinstance(node, ast.Name)}
            for node in (node for part in loop.body for node in ast.walk(part)):
                stored = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
                called = isinstance(node, ast.Attribute) and node.attr in _CHANGES
                if (stored or called) and _name(node.value) in read:
                    return True
    return False


# ---------------------------------------------------------------------------------------------------------- known answers

_SUM = '[{"input": "1 2\\n", "output": "3\\n"}, {"input": "5 -7\\n", "output": "-2\\n"}]'
CANARIES: tuple[tuple[str, str, Status, float | None], ...] = (  # program, tests, status, share
    ("print(sum(map(int, input().split())))", _SUM, "ok", 1.0),
    ("print(sum(abs(int(x)) for x in input().split()))", _SUM, "ok", 0.5),
    ("import sys\na, b = map(int, sys.stdin.read().split())\nsys.stdout.write(f'{a + b}\\n')", _SUM, "ok", 1.0),
    ("a, b = map(int, input().split())\nassert a < b\nprint(a + b)", _SUM, "failed", 0.5),
    ("print(sum(map(int, input().split()))", _SUM, "failed", 0.0),
    ("def f(a, b):\n    return {a: b}", '[{"call": "f(1, [2.5])", "result": "{1: [2.5]}"}]', "ok", 1.0),
    ("import socket\nprint(sum(map(int, input().split())))", _SUM, "unsupported", None),
    ("print(open('/proc/self/environ').read())", _SUM, "failed", 0.0),
    ("def f(n):\n    return f(n + 1)\nprint(f(0))", _SUM, "failed", 0.0),
    ("x = 'x' * 10 ** 13\nprint(sum(map(int, input().split())))", _SUM, "failed", 0.0),
)


# ---------------------------------------------------------------------------------------------------------------- the pool

_PATIENCE = 12  # times a test's seconds, by the wall clock, for a machine that is busy
_PRINTED = 1 << 16  # characters that a program may give beyond four times what it should
_NOTHING = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC)


class _Closed(Exception):
    """The sandbox was closed while a program ran."""


class Sandbox:
    """A context manager: inside it, `check` runs programs against tests in worker processes.

    `seconds`: processor time of one test, to which the kernel adds up to one. `megabytes`: memory of one test. `workers`:
    None is one for each processor that this process may use. What a program does to its worker costs no other program
    anything; a worker that dies for want of memory says so on standard error. SandboxError when the known answers are not
    found.
    """

    def __init__(self, seconds: float = SECONDS, megabytes: float = MEGABYTES, workers: int | None = None):
        self.workers = len(os.sched_getaffinity(0)) if workers is None else workers
        self.seconds, self.megabytes = seconds, megabytes
        if not (self.workers >= 1 and 0 < seconds <= 3600 and 8 <= megabytes <= 1e6):
            raise SandboxError(
                f"sandbox: {workers} workers, {seconds} s and {megabytes} MB; expected at least one, more than 0 s and at "
                "most an hour, 8 MB to a terabyte."
            )
        self._pool: Any = None
        self._threads: ThreadPoolExecutor | None = None  # one for each worker
        self._closing = threading.Event()

    def __enter__(self) -> "Sandbox":
        try:
            from pydantic_monty import Monty

            self._pool = Monty(
                min_processes=self.workers,
                max_processes=self.workers,
                request_timeout=2 * _PATIENCE * self.seconds + 60,
                feed_duration_limit_grace=max(1.0, self.seconds),
            ).__enter__()
        except (ImportError, OSError, RuntimeError) as error:
            raise SandboxError(
                f"sandbox: pydantic-monty does not start ({error}); expected its module and its program `monty`. "
                "Install pydantic-monty, pydantic-monty-client and pydantic-monty-runtime as envs/cpu.txt has them."
            ) from None
        self._closing.clear()
        self._threads = ThreadPoolExecutor(self.workers, "sandbox")
        with ExitStack() as undone:
            undone.callback(self.__exit__)
            self._expect_known_answers()
            undone.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._closing.set()  # a program that runs ends with its test
        self._threads.shutdown(cancel_futures=True)
        self._threads = None
        self._pool.__exit__(None, None, None)

    def _expect_known_answers(self) -> None:
        found = self.check([(f"```python\n{code}\n```", answer) for code, answer, _, _ in CANARIES])
        for (code, _, status, share), ran in zip(CANARIES, found, strict=True):
            if (ran.status, ran.share) != (status, share):
                raise SandboxError(
                    f"sandbox: the program `{code}` is found {ran.status} with the share {ran.share} ({ran.detail}); expected "
                    f"{status} with {share}. Install pydantic-monty and its parts as envs/cpu.txt has them."
                )

    def check(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Ran]:
        """What became of the program in each (text, answer), in order. ValueError at once where an answer is no tests."""
        self._must_be_open()
        return self._checks([(text, cases_of(answer)) for text, answer in pairs])

    def _must_be_open(self) -> None:
        if self._threads is None:
            raise SandboxError("sandbox: it is not open; expected a `with` around it. Write `with Sandbox() as ...`.")

    def _checks(self, asked: Sequence[tuple[str, Sequence[Case]]]) -> Iterator[Ran]:
        window: deque[Ran | Future] = deque()
        try:
            for n, (text, cases) in enumerate(asked, 1):
                self._must_be_open()
                window.append(self._begin(text, cases))
                while window and (len(window) > 8 * self.workers or n == len(asked)):
                    yield self._ran(window.popleft())
        finally:
            for one in window:  # nobody waits for these any more
                if isinstance(one, Future):
                    one.cancel()

    def _begin(self, text: str, cases: Sequence[Case]) -> Ran | Future:
        code = code_of(text)
        if code is None:
            return Ran(0.0, 0, len(cases), "no-code", "no closed block of Python")
        try:
            return self._threads.submit(self._run, _Program(code), cases)
        except _Refused as refused:
            return _not_run(refused, cases)

    def _ran(self, one: Ran | Future) -> Ran:
        self._must_be_open()
        try:
            return one if isinstance(one, Ran) else one.result()
        except _Closed:
            self._must_be_open()
            raise

    # ------------------------------------------------------------------------------------------------------- one program

    def _run(self, program: _Program, cases: Sequence[Case]) -> Ran:
        passed, first = 0, ""
        try:
            for n, case in enumerate(cases, 1):
                if self._closing.is_set():
                    raise _Closed
                fault, text = self._test(program, program.source, case)
                if not fault and case.passed(text):
                    passed += 1
                elif unknown := self._unknown(program, case, fault, text):
                    return Ran(None, passed, len(cases), "unsupported", f"test {n}: {unknown}")
                elif fault:
                    first = first or f"test {n}: {fault}"
        except _Refused as refused:
            return _not_run(refused, cases)
        return Ran(passed / len(cases), passed, len(cases), "failed" if first else "ok", first)

    def _unknown(self, program: _Program, case: Case, fault: _Fault | None, text: str) -> str:
        """Why a test that was not passed may be our failure; empty where it is the program's."""
        if fault and not fault.kind:
            return fault.text
        if fault and _lack(fault, program):
            return f"not in the sandbox: {fault}"
        if doubt := _doubt(program, fault, text, case.expected):
            return f"the sandbox differs from Python in {doubt}"
        return self._hidden(program, case) if program.bare else ""

    def _hidden(self, program: _Program, case: Case) -> str:
        """What the program's own handlers may have hidden: it is run once more without them."""
        fault, _ = self._test(program, program.bare, case)
        return f"not in the sandbox: {fault}" if fault and fault.kind and _lack(fault, program) else ""

    def _test(self, program: _Program, source: str, case: Case) -> tuple[_Fault | None, str]:
        """What ended one test before its end, and what the program printed or its call gave."""
        fault, text = self._once(program, source, case)
        return self._once(program, source, case) if fault == _DIED else (fault, text)

    def _once(self, program: _Program, source: str, case: Case) -> tuple[_Fault | None, str]:
        from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError

        limits = {
            "max_feed_duration_secs": _PATIENCE * self.seconds,
            "max_memory": int(self.megabytes * 1e6),
            "max_recursion_depth": program.depth,
        }
        policy = {"sleep": "zero", "random_start": {"seed": 0}}
        printed = _Printed(_PRINTED + 4 * len(case.expected))
        fault, value = None, ""
        try:
            with self._pool.checkout(limits=limits, os_policy=policy, assert_message_annotations=False) as session:
                printed.worker = session.worker_pid
                _confine(session.worker_pid, self.seconds)
                session.feed_run(_prelude(program, case), inputs={"_sandbox_lines": _lines(case.stdin)[::-1]})
                session.feed_run(source, print_callback=printed)
                if case.call:
                    value = session.feed_run(f"repr({case.call})[:{printed.most}]", print_callback=printed)
        except (MontyRuntimeError, MontySyntaxError) as error:
            fault = _fault(error)
        except MontyCrashedError as error:
            fault = _BUSY if error.timed_out else _DIED
            if "SIGXCPU" in str(error):
                fault = _Fault("TimeoutError", f"more than {self.seconds:g} s of processor time")
        except ProcessLookupError:
            fault = _DIED
        if fault and fault.text.startswith("feed time limit") and not _raised(fault, program):
            fault = _BUSY
        if printed.left < 0:
            fault = _Fault("MemoryError", f"printed more than {printed.most:,} characters")
        return fault, value if case.call else "".join(printed.texts)


def _not_run(refused: _Refused, cases: Sequence[Case]) -> Ran:
    status, detail = refused.args
    return Ran(None if status == "unsupported" else 0.0, 0, len(cases), status, detail)


def _prelude(program: _Program, case: Case) -> str:
    words = program.words | set(re.findall(r"\w+", case.call))
    return "None\n" + "".join(source for needing, source in _PRELUDE if words & needing)


def _lines(text: str) -> list[str]:
    """Lines as a program reads them, each with its end."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


class _Printed:
    """What a program prints. One that prints too much loses its worker: else it would go on until its time is up."""

    def __init__(self, most: int):
        self.worker, self.most, self.left, self.texts = 0, most, most, []

    def __call__(self, stream: str, text: str) -> None:
        if self.left >= 0:
            self.left -= len(text)
            if stream == "stdout":
                self.texts.append(text)
            if self.left < 0:
                os.kill(self.worker, signal.SIGKILL)


def _confine(worker: int, seconds: float) -> None:
    """See that the kernel lets a worker open and start nothing, and compute for so many seconds more, in whole ones."""
    for limit in _NOTHING:
        resource.prlimit(worker, limit, (0, 0))
    _, most = resource.prlimit(worker, resource.RLIMIT_CPU)
    now = time.clock_gettime((~worker << 3) | 2)  # the id of another process's clock: clock_getcpuclockid(3)
    end = math.ceil(now + seconds)
    resource.prlimit(worker, resource.RLIMIT_CPU, (end if most == resource.RLIM_INFINITY else min(end, most), most))


def _fault(error: Any) -> _Fault | None:
    """An exception of the sandbox; None where the program ended itself, and well."""
    kind, _, text = error.display("type-msg").partition(": ")
    if kind == "SystemExit" and not text:
        return None
    frames = error.traceback()
    lines = tuple(frame.line for frame in frames if frame.filename == "<python-input-1>")  # the prelude is 0
    return _Fault(kind, text[:1000], lines, len(frames))

"""The program in a text: its last block of Python, as it was written and as the sandbox runs it.

    Program(code_of(text)).source

From: `extract_code` of open-r1, which takes the last ```python block.

How we differ:
1. A block that names no language counts where no block says that it is Python. A block that is not closed does not
   count.
2. A program must compile as Python in this process. Otherwise it is refused and does not run.
3. The source is edited where the interpreter reads it differently from Python: a generator becomes an iterator, and
   `sys` becomes the prelude's. Every line keeps its number.
"""

import ast
import re
import types
import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property

LONGEST = 32_768  # characters of a program: this process compiles any program of this length within half a second

# ---------------------------------------------------------------------------------------------------------------- texts

_FENCE = re.compile(r"[ \t]*+(`{3,}+)[ \t]*+([^`\s]*+)[^`]*+")


def code_of(text: str) -> str | None:
    """The last closed block that says it is Python; without one, the last closed block that names no language."""
    last: dict[bool, str] = {}
    fence, language, start = "", "", 0
    lines = text.split("\n")
    for n, line in enumerate(lines):
        if not (fence_line := _FENCE.fullmatch(line)):
            continue
        if not fence or fence_line[2]:  # a new block begins: an earlier one was not closed
            fence, language, start = fence_line[1], fence_line[2].lower(), n + 1
        elif len(fence_line[1]) >= len(fence):
            if language in ("python", "py", "python3", ""):
                last[bool(language)] = "\n".join(lines[start:n]) + "\n"
            fence = ""
    return last.get(True, last.get(False))


# ------------------------------------------------------------------------------------------------------------- programs


class Refused(Exception):
    """A program that must not run. Arguments: the status of the run, `failed` or `unsupported`, and the detail."""


class Program:
    """A program as it was written, and as the sandbox runs it."""

    def __init__(self, code: str):
        """Raises Refused where Python does not compile the code, or where the code is longer than LONGEST."""
        if len(code) > LONGEST:
            raise Refused("unsupported", f"the program is over {LONGEST:,} characters")
        self.code = code.replace("\r\n", "\n").replace("\r", "\n")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.compiled = compile(self.code, "<program>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise Refused("failed", f"{type(error).__name__}: {error}"[:300]) from None
        except (MemoryError, RecursionError):
            raise Refused("failed", "SyntaxError: too deeply nested") from None
        self.words = words(self.code)
        self.depth = 100_000 if "setrecursionlimit" in self.words else 1000

    @cached_property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.code)
        except (MemoryError, RecursionError):  # the stack may be deeper here than when the program was compiled
            raise Refused("unsupported", "the program is nested too deeply to be read") from None

    @cached_property
    def source(self) -> str:
        """The program as the sandbox runs it."""
        edited = "sys" in self.words or _generates(self.compiled)
        return self._edited(_edits(self.tree) if edited else ())

    @cached_property
    def bare(self) -> str:
        """The source with broad handlers disabled, which may hide what the sandbox lacks; empty without any."""
        edits = list(_unhandled(self.tree))
        return self._edited([*_edits(self.tree), *edits]) if edits else ""

    def _edited(self, edits: Iterable["_Edit"]) -> str:
        text, starts = self.code.encode(), [0]
        for row in text.split(b"\n"):
            starts.append(starts[-1] + len(row) + 1)
        for (line, column), (end_line, end_column), new in sorted(edits, key=_last_first, reverse=True):
            start, end = starts[line - 1] + column, starts[end_line - 1] + end_column
            text = text[:start] + new.encode() + text[end:]
        return text.decode() + "\nNone\n"  # else the value of a last expression would be sent to this process

    @cached_property
    def generators(self) -> set[int]:
        """Lines of generator expressions that may be read only in part."""
        whole = {"sum", "min", "max", "sorted", "list", "tuple", "set", "frozenset", "dict", "join", "Counter", "deque"}
        calls = (node for node in nodes(self.tree) if isinstance(node, ast.Call) and name_of(node.func) in whole)
        exhausted = {id(argument) for call in calls for argument in call.args}
        others = (n for n in nodes(self.tree) if isinstance(n, ast.GeneratorExp) and id(n) not in exhausted)
        return {line for node in others for line in range(node.lineno, _end(node)[0] + 1)}


def words(code: str) -> frozenset[str]:
    """The words and numbers in a program's source."""
    return frozenset(re.findall(r"\w+", code))


def _generates(compiled: types.CodeType) -> bool:
    """Whether a program has a generator expression; the byte code tells it faster than the tree."""
    stack = [compiled]
    while stack:
        if (code := stack.pop()).co_name == "<genexpr>":
            return True
        stack.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return False


# ------------------------------------------------------------------------------------------------------------- the tree


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree except those in f-strings, whose positions Python 3.11 does not know."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.JoinedStr):
            stack.extend(ast.iter_child_nodes(node))


def name_of(node: ast.AST) -> str:
    """The name `f` of `f` and of `x.f`; empty for other nodes."""
    return getattr(node, "id", getattr(node, "attr", ""))


# ------------------------------------------------------------------------------------------------------------ the edits

_Position = tuple[int, int]  # line from 1, byte from 0
_Edit = tuple[_Position, _Position, str]
_Placed = ast.expr | ast.stmt | ast.excepthandler  # nodes with a place in the text


def _last_first(edit: _Edit) -> tuple[_Position, _Position, bool]:
    """Sort key of edits, made in reverse: where one generator ends and another begins, the end is made last."""
    start, end, new = edit
    return start, end, new != ")"


def _start(node: _Placed) -> _Position:
    return node.lineno, node.col_offset


def _end(node: _Placed) -> _Position:
    assert node.end_lineno is not None and node.end_col_offset is not None, "the parser gives every node an end"
    return node.end_lineno, node.end_col_offset


def _edits(tree: ast.AST) -> Iterator[_Edit]:
    """Edits for two things that differ in the sandbox.

    A generator is a list there, and becomes an iterator. `sys` has no streams there, and becomes the prelude's.
    """
    for node in nodes(tree):
        if isinstance(node, ast.GeneratorExp):
            yield _start(node), _start(node), "(_sandbox_iter"
            yield _end(node), _end(node), ")"
        elif isinstance(node, (ast.Import, ast.ImportFrom)) and (new := _import(node)):
            yield _start(node), _end(node), new


def _import(node: ast.Import | ast.ImportFrom) -> str:
    """Source in the place of an import of `sys`, on as many lines; empty for another import."""
    if isinstance(node, ast.Import):
        others = [ast.unparse(ast.Import([alias])) for alias in node.names if alias.name != "sys"]
        assignments = [(alias.asname or "sys", "_sandbox_sys") for alias in node.names if alias.name == "sys"]
    elif node.module == "sys" and not node.level and node.names[0].name != "*":
        others, assignments = [], [(alias.asname or alias.name, f"_sandbox_sys.{alias.name}") for alias in node.names]
    else:
        return ""
    blank = "\n" * (_end(node)[0] - node.lineno)
    values = [f"{name} = ({blank if n == 0 else ''}{value})" for n, (name, value) in enumerate(assignments)]
    return "; ".join(others + values) if assignments else ""


_BROAD = {  # exceptions whose handlers may hide what the sandbox lacks
    "Exception", "BaseException", "AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "NotImplementedError",
    "RuntimeError", "TypeError",
}  # fmt: skip


def _unhandled(tree: ast.AST) -> Iterator[_Edit]:
    """Edits after which broad handlers catch nothing."""
    for node in nodes(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if node.type is None:
            position = node.lineno, node.col_offset + len("except")
            yield position, position, " ()"
        elif _BROAD & {name_of(part) for part in ast.walk(node.type)}:
            yield _start(node.type), _end(node.type), "()"

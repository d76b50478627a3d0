"""One program is the last block of Python in a text, as it was written and as the sandbox runs it.

    Program(code_of(text)).source

From: `extract_code` of open-r1, which takes the last ```python block.

How it differs:
1. A block that names no language is taken where none says that it is Python, and what is not closed is no block.
2. A program is Python as this process compiles it. What it does not compile is refused, and is not run.
3. The source is edited where the interpreter reads it otherwise than Python: a generator becomes an iterator, and `sys` the
   prelude's. Its lines stay where they are.
"""

import ast
import re
import types
import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property

LONGEST = 32_768  # characters of a program: this process compiles as many of any kind within half a second

# ------------------------------------------------------------------------------------------------------------------ texts

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


# ---------------------------------------------------------------------------------------------------------------- programs


class Refused(Exception):
    """A program that is not run. Its arguments are the status of the run, `failed` or `unsupported`, and the detail."""


class Program:
    """A program as it was written, and as the sandbox runs it."""

    def __init__(self, code: str):
        """Refused where Python does not compile it, or where it is longer than LONGEST."""
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
        except (MemoryError, RecursionError):  # where the stack is deeper than it was when the program was compiled
            raise Refused("unsupported", "the program is nested too deeply to be read") from None

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
        calls = (node for node in nodes(self.tree) if isinstance(node, ast.Call) and name_of(node.func) in whole)
        read = {id(argument) for call in calls for argument in call.args}
        found = (node for node in nodes(self.tree) if isinstance(node, ast.GeneratorExp) and id(node) not in read)
        return {line for node in found for line in range(node.lineno, node.end_lineno + 1)}


def words(code: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", code))


def _generates(compiled: types.CodeType) -> bool:
    """Whether there is a generator expression in it, which is looked for here because reading the tree takes long."""
    stack = [compiled]
    while stack:
        if (one := stack.pop()).co_name == "<genexpr>":
            return True
        stack.extend(constant for constant in one.co_consts if isinstance(constant, types.CodeType))
    return False


# --------------------------------------------------------------------------------------------------------------- the tree


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those in f-strings, whose places Python 3.11 does not know."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.JoinedStr):
            stack.extend(ast.iter_child_nodes(node))


def name_of(node: ast.AST) -> str:
    """`f` of `f` and of `x.f`."""
    return getattr(node, "id", getattr(node, "attr", ""))


# -------------------------------------------------------------------------------------------------------------- the edits

_Place = tuple[int, int]  # line from 1, byte from 0
_Edit = tuple[_Place, _Place, str]


def _last_first(edit: _Edit) -> tuple[_Place, _Place, bool]:
    """The order in which edits are made, reversed: where one generator ends and another begins, the end is made last."""
    start, end, new = edit
    return start, end, new != ")"


def _start(node: ast.AST) -> _Place:
    return node.lineno, node.col_offset


def _end(node: ast.AST) -> _Place:
    return node.end_lineno, node.end_col_offset


def _edits(tree: ast.AST) -> Iterator[_Edit]:
    """A generator is a list in the sandbox: it becomes an iterator. `sys` has no streams there: it becomes the prelude's."""
    for node in nodes(tree):
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
    for node in nodes(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            place = node.lineno, node.col_offset + len("except")
            yield place, place, " ()"
        elif isinstance(node, ast.ExceptHandler) and _BROAD & {name_of(one) for one in ast.walk(node.type)}:
            yield _start(node.type), _end(node.type), "()"

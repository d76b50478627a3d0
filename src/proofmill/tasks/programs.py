"""Programs as text: parsed, brought into one form, looked at for what they import and call.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3.3) and its code.

How we differ:
1. A program is parsed. There, regular expressions look for `def`, so that with one function allowed a nested function or
   a method counts as a second.
2. A module is forbidden wherever its name stands in what is imported or is reached by a dotted name from an import
   (`numpy.random`, also as `np.random`). There, `os.path` and the like match no import. `os`, `sys`, `builtins` and other
   ways to the interpreter are forbidden, too. That is a courtesy to the proposer: the sandbox holds what gets past it.
3. An input is arguments that are written out: of the program it may call classes and read variables, and it assigns
   nothing. There, an answer may assign to a function of the program and so decide what it returns.
"""

import ast
import re
import warnings
from collections.abc import Collection, Iterator
from typing import Literal

ENTRY = "f"
FORBIDDEN = frozenset({
    # the published list
    "logging", "random", "multiprocessing", "pebble", "subprocess", "threading", "datetime", "time", "hashlib", "hmac",
    "bcrypt", "calendar",
    # ways out of the program, and further sources of chance
    "os", "sys", "shutil", "socket", "ctypes", "importlib", "builtins", "asyncio", "concurrent", "gc", "inspect", "pathlib",
    "secrets", "signal", "tempfile", "uuid",
})  # fmt: skip
# Names that lead to the interpreter, or out of the program unless it gives them another meaning.
_DUNDERS = frozenset({
    "__builtins__", "__code__", "__globals__", "__import__", "__loader__", "__spec__", "__subclasses__",
})  # fmt: skip
_OUTWARD = frozenset({"breakpoint", "exit", "input", "open", "quit"})
# What an input may call besides classes of the program: values that are written out in another way.
_PLAIN = frozenset({
    "abs", "bool", "bytes", "chr", "complex", "dict", "enumerate", "filter", "float", "frozenset", "int", "len", "list", "map",
    "max", "min", "ord", "range", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip",
})  # fmt: skip
EntryRule = Literal["f-or-first", "f-or-last", "first", "last"]
Part = Literal["comments", "top-level", "prints", "inputs"]
DEEPEST = 200  # levels of a syntax tree
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Unfit(Exception):
    """A program or an input cannot be used; the first argument is one of tasks.REASONS."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def parsed(source: str) -> ast.Module:
    """The syntax tree of a program. Raises Unfit where it has none, or one that is nested too deeply to go through."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unfit("syntax", f"{type(error).__name__}: {error}") from error
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [part for node in level for part in ast.iter_child_nodes(node)]
    if level:
        raise Unfit("syntax", f"nested over {DEEPEST} levels deep")
    return tree


def written(tree: ast.AST) -> str:
    """The text of a syntax tree. Raises Unfit where it is nested too deeply to be written."""
    try:
        return ast.unparse(tree)
    except RecursionError as error:
        raise Unfit("syntax", "nested too deeply") from error


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """The functions that a program defines at its top level."""
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def normalised(
    source: str, entry: EntryRule = "f-or-first", drop: Collection[Part] = (), one_function: bool = False
) -> str:
    """The program with its entry function named `f`, and without what is to be dropped.

    Its text stays as it is, comments and all, unless something is renamed or dropped: then it is written anew. Raises
    Unfit: no program, none or several functions, no parameter.
    """
    tree = parsed(source)
    found = functions(tree)
    if not found:
        raise Unfit("no-function")
    if one_function and len(found) > 1:
        raise Unfit("many-functions", ", ".join(function.name for function in found))
    chosen = _entry(found, entry)
    if not _parameters(chosen):
        raise Unfit("no-parameter")
    renames = chosen.name != ENTRY
    if not renames and not drop:
        return source.strip()
    return written(_without(rename(tree, chosen.name, ENTRY) if renames else tree, drop))


def rename(tree: ast.Module, old: str, new: str) -> ast.Module:
    """The program with its function `old` called `new` wherever it is used.

    Raises Unfit if something is called `new` already, or something else is called `old`, too.
    """
    everything = [*bound(tree)]
    if new in {*everything, *(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))}:
        raise Unfit("no-function", f"`{old}` cannot be called `{new}`, which is something else already")
    if everything.count(old) > 1:
        raise Unfit("no-function", f"`{old}` cannot be called `{new}`: it is several things")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
        elif isinstance(node, ast.FunctionDef) and node.name == old:
            node.name = new
        elif isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [new if name == old else name for name in node.names]
    return tree


def bound(tree: ast.AST) -> Iterator[str]:
    """The names that a program binds: assigned, defined, imported, parameters. Attributes are none."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.arg(arg=name)
            ):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.partition(".")[0]


def _entry(found: list[ast.FunctionDef], rule: EntryRule) -> ast.FunctionDef:
    called_f = [function for function in found if function.name == ENTRY]
    if rule.startswith("f-or-") and called_f:
        return called_f[-1]  # the last definition is the one that a call meets
    return found[0] if rule.endswith("first") else found[-1]


def _parameters(function: ast.FunctionDef) -> int:
    given = function.args
    return len(given.posonlyargs) + len(given.args) + (given.vararg is not None)


def _without(tree: ast.Module, drop: Collection[Part]) -> ast.Module:
    if "inputs" in drop:
        tree.body = [node for node in tree.body if not _assigns_input(node)]
    if "top-level" in drop:
        kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        tree.body = [node for node in tree.body if isinstance(node, kept)]
    for node in ast.walk(tree):
        if "comments" in drop and isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])
        if "prints" in drop:
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list) and any(map(_is_print, block)):
                    rest = [statement for statement in block if not _is_print(statement)]
                    setattr(node, field, rest or ([ast.Pass()] if field == "body" else []))
    return ast.fix_missing_locations(tree)


def _assigns_input(node: ast.AST) -> bool:
    """Whether a statement is such as `input = (1, 2)` or `inputs = [...]`."""
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id in ("input", "inputs") for target in node.targets
    )


def _is_print(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"


# --------------------------------------------------------------------------------------------------- what is forbidden


def reaches(tree: ast.Module, forbidden: Collection[str] = FORBIDDEN) -> str | None:
    """The first forbidden module or hidden name that a program reaches for; None without any.

    A word forbids modules with that component at any place, a dotted entry those whose path begins with it.
    """
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {
                alias.asname or alias.name.partition(".")[0]: alias.name
                if alias.asname
                else alias.name.partition(".")[0]
                for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            imported |= {alias.asname or alias.name: f"{node.module or ''}.{alias.name}" for alias in node.names}
    hidden = _DUNDERS | _OUTWARD - {*bound(tree)}
    for node in ast.walk(tree):
        for path in _paths(node, imported):
            if _is_forbidden(path, forbidden):
                return path
        match node:
            case ast.Name(id=name) if name in hidden:
                return name
            case ast.Attribute(attr=name) if name in _DUNDERS:
                return name
    return None


def _paths(node: ast.AST, imported: dict[str, str]) -> Iterator[str]:
    """Dotted paths of modules that a node names: an import, or attributes of an imported name."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Attribute):
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in imported:
            yield ".".join([imported[inner.id], *reversed(parts)])


def _is_forbidden(path: str, forbidden: Collection[str]) -> bool:
    parts = path.split(".")
    starts = {".".join(parts[: end + 1]) for end in range(len(parts))}
    return not {*parts, *starts}.isdisjoint(forbidden)


def meets_hashes(tree: ast.AST) -> bool:
    """Whether a program makes sets or hashes: what it gives may depend on the seed of hashes, in small sets by chance."""
    for node in ast.walk(tree):
        match node:
            case ast.Set() | ast.SetComp() | ast.Name(id="set" | "frozenset" | "hash"):
                return True
            case ast.BinOp(left=ast.Call(func=ast.Attribute(attr="keys" | "items"))):
                return True
    return False


def keyword_in(source: str, keywords: Collection[str]) -> str | None:
    """The first of some words that a program has as a word; None without any."""
    return next((word for word in keywords if re.search(rf"\b{re.escape(word)}\b", source)), None)


# -------------------------------------------------------------------------------------------------------------- inputs


def arguments(text: str, tree: ast.Module | None = None) -> str:
    """The arguments of a call of `f`, stripped, those of several lines on one. Raises Unfit where they are not written out.

    They are literals, calls of plain constructors and functions, comprehensions, lambdas and methods of these. With the
    program's `tree` they may call its classes and read its global variables, then without attributes and lambdas: what
    is named could be changed by them.
    """
    text = text.strip()
    try:
        statements = parsed(f"{ENTRY}({text}\n)" if "\n" in text else f"{ENTRY}({text})").body
    except Unfit as unfit:
        raise Unfit("bad-input", unfit.detail) from unfit
    call = statements[0].value if len(statements) == 1 and isinstance(statements[0], ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise Unfit("bad-input", "no arguments of one call")
    given = [*call.args, *call.keywords]
    if fault := _input_fault([part for argument in given for part in ast.walk(argument)], tree):
        raise Unfit("bad-input", fault)
    return ", ".join(map(written, given)) if "\n" in text else text


def _input_fault(parts: list[ast.AST], tree: ast.Module | None) -> str | None:
    """What is not written out among the parts of an input."""
    classes, variables = _classes_and_variables(tree)
    names = [part for part in parts if isinstance(part, ast.Name)]
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    bound |= {part.arg for part in parts if isinstance(part, ast.arg)}
    own = {name.id for name in names} & (classes | variables) - bound
    callees = {part.func.id for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}
    if unknown := {name.id for name in names} - _PLAIN - bound - own | own & variables & callees:
        return f"`{min(unknown)}`"
    for part in parts:
        if isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return type(part).__name__
        if isinstance(part, ast.Attribute) and part.attr.startswith("_"):
            return f"`{part.attr}`"
        if own and isinstance(part, ast.Attribute | ast.Lambda):
            return f"{type(part).__name__} beside `{min(own)}`"
    return None


def _classes_and_variables(tree: ast.Module | None) -> tuple[set[str], set[str]]:
    """The classes that a program defines at its top level, and the variables that it assigns there."""
    body = tree.body if tree else []
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    variables = {target.id for target in targets if isinstance(target, ast.Name)}
    return {node.name for node in body if isinstance(node, ast.ClassDef)}, variables

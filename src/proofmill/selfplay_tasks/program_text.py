"""Parse and normalize programs, and check their imports, names and inputs.

From: Absolute Zero Reasoner (arXiv 2505.03335, section 3.3.3) and its code.

Differences from the original:
1. A program is parsed. There, regular expressions search for `def`, so a nested function or a method counts as a second
   function when only one is allowed.
2. A module is forbidden wherever its name occurs in an import or in a dotted name from an import (`numpy.random`, also
   as `np.random`). There, `os.path` and the like match no import. `os`, `sys`, `builtins` and other ways to the
   interpreter are also forbidden. This check gives the proposer a reason; the sandbox is what contains programs.
3. An input must be literal arguments. It may call classes and read variables of the program, but assigns nothing.
   There, an answer may assign to a function of the program and so decide its result.
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
    # ways out of the program, and other sources of randomness
    "os", "sys", "shutil", "socket", "ctypes", "importlib", "builtins", "asyncio", "concurrent", "gc", "inspect", "pathlib",
    "secrets", "signal", "tempfile", "uuid",
})  # fmt: skip
# Names that lead to the interpreter; and names that lead out of the program, unless it redefines them.
_DUNDERS = frozenset({
    "__builtins__", "__code__", "__globals__", "__import__", "__loader__", "__spec__", "__subclasses__",
})  # fmt: skip
_OUTWARD = frozenset({"breakpoint", "exit", "input", "open", "quit"})
# Functions that an input may call in addition to classes of the program: they only build values.
_PLAIN = frozenset({
    "abs", "bool", "bytes", "chr", "complex", "dict", "enumerate", "filter", "float", "frozenset", "int", "len", "list", "map",
    "max", "min", "ord", "range", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip",
})  # fmt: skip
EntryRule = Literal["f-or-first", "f-or-last", "first", "last"]
Part = Literal["comments", "top-level", "prints", "inputs"]
DEEPEST = 200  # levels of a syntax tree
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Unfit(Exception):
    """Raised for a program or an input that cannot be used; the first argument is one of tasks.REASONS."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def parse_program(source: str) -> ast.Module:
    """Parse a program into its syntax tree. Raises Unfit for a syntax error or a tree nested too deeply."""
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


def unparse(tree: ast.AST) -> str:
    """Write a syntax tree as text. Raises Unfit if it is nested too deeply."""
    try:
        return ast.unparse(tree)
    except RecursionError as error:
        raise Unfit("syntax", "nested too deeply") from error


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return the functions that a program defines at its top level."""
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def normalize(
    source: str, entry: EntryRule = "f-or-first", drop: Collection[Part] = (), one_function: bool = False
) -> str:
    """Name the entry function of a program `f`, and drop the given parts.

    The text, including comments, is unchanged unless something is renamed or dropped. Raises Unfit if the program cannot
    be parsed, has no function or more than allowed, or if its entry function has no parameter.
    """
    tree = parse_program(source)
    defined = functions(tree)
    if not defined:
        raise Unfit("no-function")
    if one_function and len(defined) > 1:
        raise Unfit("many-functions", ", ".join(function.name for function in defined))
    chosen = _entry(defined, entry)
    if not _parameters(chosen):
        raise Unfit("no-parameter")
    renames = chosen.name != ENTRY
    if not renames and not drop:
        return source.strip()
    return unparse(_without(rename(tree, chosen.name, ENTRY) if renames else tree, drop))


def rename(tree: ast.Module, old: str, new: str) -> ast.Module:
    """Rename the function `old` of a program to `new`, with all its uses.

    Raises Unfit if the name `new` is in use, or if `old` is also the name of something else.
    """
    everything = [*bound_names(tree)]
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


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a program binds: assigned, defined, imported, parameters. Attributes do not count."""
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


def _entry(defined: list[ast.FunctionDef], rule: EntryRule) -> ast.FunctionDef:
    named_f = [function for function in defined if function.name == ENTRY]
    if rule.startswith("f-or-") and named_f:
        return named_f[-1]  # a call reaches the last definition
    return defined[0] if rule.endswith("first") else defined[-1]


def _parameters(function: ast.FunctionDef) -> int:
    arguments = function.args
    return len(arguments.posonlyargs) + len(arguments.args) + (arguments.vararg is not None)


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
    """Return whether a statement assigns to `input` or `inputs`, as `input = (1, 2)` does."""
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id in ("input", "inputs") for target in node.targets
    )


def _is_print(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"


# ------------------------------------------------------------------------------------------------------ forbidden names


def find_forbidden(tree: ast.Module, forbidden: Collection[str] = FORBIDDEN) -> str | None:
    """Return the first forbidden module or hidden name that a program uses; None without any.

    An entry without dots forbids modules with that component anywhere in their path, a dotted entry those whose path
    begins with it.
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
    hidden = _DUNDERS | _OUTWARD - {*bound_names(tree)}
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
    """Yield the dotted paths of modules that a node names: in an import, or as attributes of an imported name."""
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


def uses_hashes(tree: ast.AST) -> bool:
    """Return whether a program makes sets or hashes. Its value may then depend on the hash seed, not always visibly."""
    for node in ast.walk(tree):
        match node:
            case ast.Set() | ast.SetComp() | ast.Name(id="set" | "frozenset" | "hash"):
                return True
            case ast.BinOp(left=ast.Call(func=ast.Attribute(attr="keys" | "items"))):
                return True
    return False


def keyword_in(source: str, keywords: Collection[str]) -> str | None:
    """Return the first of the keywords that occurs in a program as a word; None without any."""
    return next((word for word in keywords if re.search(rf"\b{re.escape(word)}\b", source)), None)


# -------------------------------------------------------------------------------------------------------------- inputs


def arguments(text: str, tree: ast.Module | None = None) -> str:
    """Check the arguments of a call of `f`, and return them stripped and on one line. Raises Unfit for others.

    Allowed are literals, calls of plain constructors and functions, comprehensions, lambdas and methods of these. With
    the program's `tree` they may call its classes and read its global variables. Attributes and lambdas are then
    refused, because they could change these objects.
    """
    text = text.strip()
    try:
        statements = parse_program(f"{ENTRY}({text}\n)" if "\n" in text else f"{ENTRY}({text})").body
    except Unfit as unfit:
        raise Unfit("bad-input", unfit.detail) from unfit
    call = statements[0].value if len(statements) == 1 and isinstance(statements[0], ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise Unfit("bad-input", "no arguments of one call")
    values = [*call.args, *call.keywords]
    if fault := _input_fault([part for value in values for part in ast.walk(value)], tree):
        raise Unfit("bad-input", fault)
    return ", ".join(map(unparse, values)) if "\n" in text else text


def _input_fault(parts: list[ast.AST], tree: ast.Module | None) -> str | None:
    """Return the first part of an input that is not allowed; None without any."""
    classes, variables = _classes_and_variables(tree)
    names = [part for part in parts if isinstance(part, ast.Name)]
    local = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    local |= {part.arg for part in parts if isinstance(part, ast.arg)}
    own = {name.id for name in names} & (classes | variables) - local
    callees = {part.func.id for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}
    if unknown := {name.id for name in names} - _PLAIN - local - own | own & variables & callees:
        return f"`{min(unknown)}`"
    for part in parts:
        if isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return type(part).__name__
        if isinstance(part, ast.Attribute) and part.attr.startswith("_"):
            return f"`{part.attr}`"
        if own and isinstance(part, ast.Attribute | ast.Lambda):
            return f"{type(part).__name__} next to `{min(own)}`"
    return None


def _classes_and_variables(tree: ast.Module | None) -> tuple[set[str], set[str]]:
    """Return the classes that a program defines at its top level, and the variables that it assigns there."""
    body = tree.body if tree else []
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    variables = {target.id for target in targets if isinstance(target, ast.Name)}
    return {node.name for node in body if isinstance(node, ast.ClassDef)}, variables

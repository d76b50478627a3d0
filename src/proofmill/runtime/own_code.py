"""The code that a plugin depends on, and its digest.

A plugin depends on
1. its record in the dictionary, and in the same file all that this refers to by name, transitively. Statements at the
   top level that bind no name, and star imports, count for every plugin. Code that looks names up by text (`eval`,
   `globals()`) depends on the complete file.
2. every module of the plugin's folder that this imports, transitively and completely: files, packages and parents,
   submodules that a star import of a package may load, and modules in import cycles.

Comments and formatting do not count. Code in other folders (installed packages, proofmill itself) and files that a
plugin opens are not covered. An import from the folder that cannot be resolved from the text is refused.
"""

import ast
import importlib.abc
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from proofmill.schema.errors import RecipeError
from proofmill.schema.ids import digest
from proofmill.text.own_files import read_text

BY_TEXT = {"eval", "exec", "compile", "globals", "locals", "vars"}
BY_NAME = {"import_module", "__import__"}  # with a name that is written out, they are imports
UNSEEN = {"run_path", "run_module", "spec_from_file_location", "SourceFileLoader"}


@dataclass(frozen=True)
class Module(importlib.abc.SourceLoader):
    """A Python file of a plugin's folder. `name` is the dotted name by which others import it.

    As a loader it runs the text that was read for the digest. It reports no file time, so that no bytecode is cached.
    """

    path: Path
    name: str

    def get_filename(self, fullname: str) -> str:
        return str(self.path)

    def get_data(self, path: Any) -> bytes:
        return self.text.encode()

    @cached_property
    def text(self) -> str:
        return read_text(self.path, "a Python file of your own (`plugins`). Check the path.")

    @cached_property
    def tree(self) -> ast.Module:
        try:
            compile(self.text, str(self.path), "exec", dont_inherit=True)  # finds errors that the parser accepts
            tree = ast.parse(self.text)
            ast.unparse(tree)  # as for the digest; it fails on code that is nested too deeply
            return tree
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            fault = (error.msg if isinstance(error, SyntaxError) else str(error)) or type(error).__name__
            raise RecipeError(
                f"{self.path}{line}: is not Python ({fault}); expected the Python code of a plugin. Fix the line."
            ) from error

    def imports(self, node: ast.AST) -> Iterator[tuple[str, bool]]:
        """Yield the dotted names that a node imports, and whether by a star. Raises RecipeError if unresolvable."""
        calls = {id(inner.func): inner.args for inner in ast.walk(node) if isinstance(inner, ast.Call)}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Import):
                yield from ((alias.name, False) for alias in inner.names)
            elif isinstance(inner, ast.ImportFrom):
                base = self._absolute(inner.module or "", inner.level)
                yield from ((base, True) if a.name == "*" else (f"{base}.{a.name}", False) for a in inner.names)
            elif (name := _name(inner)) in BY_NAME | UNSEEN:
                match calls.get(id(inner)):
                    case [ast.Constant(value=str(written)), *_] if name in BY_NAME:
                        yield self._absolute(written.lstrip("."), len(written) - len(written.lstrip("."))), False
                    case _:
                        raise RecipeError(
                            f"{self.path}:{getattr(inner, 'lineno', 1)}: `{name}` imports a module that cannot be resolved from the text; expected "
                            "a name in quotes, or an `import`. Import the module by its name."
                        )

    def _absolute(self, name: str, level: int) -> str:
        """Return the dotted name of an import with `level` leading dots."""
        package = self.name.split(".") if self.path.name == "__init__.py" else self.name.split(".")[:-1]
        return ".".join([*(package[: len(package) + 1 - level] if level else ()), *([name] if name else ())])


def _name(node: ast.AST) -> str | None:
    """Return the last name of a reference such as `importlib.import_module`, or the original name of an alias."""
    if isinstance(node, ast.alias):
        return node.name if node.asname else None
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


class Folder:
    """The modules of one folder, each read once."""

    def __init__(self, path: Path):
        self.path = path
        self._read: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """Return the module of a dotted name; None if this folder has none."""
        if name not in self._read:
            place = self.path.joinpath(*name.split("."))
            files = (place / "__init__.py", place.with_name(f"{place.name}.py"))
            path = next((file for file in files if name and file.is_file()), None)
            self._read[name] = Module(path, name) if path else None
        return self._read[name]

    def find_imports(self, module: Module, *nodes: ast.AST) -> dict[str, Module]:
        """Return the modules of the folder, by name and sorted, that some nodes of a module import, transitively."""
        modules: dict[str, Module] = {}
        pending = [(module, node) for node in nodes]
        while pending:
            importing, node = pending.pop()
            for name, star in importing.imports(node):
                parts = name.split(".")
                names = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
                if star:  # `__all__` may name submodules
                    names += [f"{name}.{sub.name}" for sub in pkgutil.iter_modules([str(self.path.joinpath(*parts))])]
                for each in names:
                    if each not in modules and (other := self.module(each)):
                        modules[each] = other
                        pending.append((other, other.tree))
        return dict(sorted(modules.items()))

    def digest_of(self, module: Module, dictionary: str, key: str) -> str:
        """Return a digest of one entry of a plugin's dictionary and of all that it depends on."""
        nodes = _slice(module.tree, dictionary, key)
        others = self.find_imports(module, *nodes)
        return digest(*map(ast.unparse, nodes), *([name, ast.unparse(other.tree)] for name, other in others.items()))


def _slice(tree: ast.Module, dictionary: str, key: str) -> list[ast.AST]:
    """Return the nodes of a file that one entry of a dictionary depends on, in the order of discovery."""
    bound: dict[str, list[ast.AST]] = {}
    effects: list[ast.AST] = []
    for statement in tree.body:
        names = _bound(statement)
        for name in names:
            bound.setdefault(name, []).append(statement)
        if not names and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            effects.append(statement)  # it may change anything
    if not (record := _record(bound.get(dictionary, []), key)):
        return list(tree.body)
    needed = [*record, *effects]
    for node in needed:  # the list grows
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        if names & BY_TEXT:
            return list(tree.body)
        needed += [other for name in sorted(names) for other in bound.get(name, []) if other not in needed]
    return needed


def _record(statements: list[ast.AST], key: str) -> list[ast.expr]:
    """Return the expression of an entry; nothing if the dictionary or one of its keys is not written out."""
    written = getattr(statements[0], "value", None) if len(statements) == 1 else None
    if not isinstance(written, ast.Dict) or not all(isinstance(name, ast.Constant) for name in written.keys):
        return []
    return [v for k, v in zip(written.keys, written.values, strict=True) if getattr(k, "value", None) == key][-1:]


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds; empty for one that may do anything else."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        names = {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
        return set() if "*" in names else names
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        inside = [node for target in targets for node in ast.walk(target)]
        if not any(isinstance(node, ast.Subscript | ast.Attribute) for node in inside):  # these change existing objects
            return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return set()

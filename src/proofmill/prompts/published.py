"""Read the text of a prompt from the file where others published it, and put our fields into its placeholders.

    github:OWNER/NAME@COMMIT/prompt.txt                 the whole file
    github:OWNER/NAME@COMMIT/agents.yaml#solver.prompt  a key of YAML or JSON; parts may be numbers of lists
    github:OWNER/NAME@COMMIT/agents.json#/solver/prompt the same as a JSON pointer (RFC 6901)
    github:OWNER/NAME@COMMIT/prompts.py#TEMPLATES.azr.0 a constant of Python, also of a class; the file is not run

The file is public data: `proofmill fetch` downloads it and checks its digest. Its text is nowhere in this project.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from string import Formatter
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError, meta

from proofmill.prompts.escapes import enclose
from proofmill.public_data.locations import local_path
from proofmill.public_data.registry import check_unchanged, copy_of, is_public, read_expected_digests
from proofmill.schema.errors import RecipeError, short, shorten
from proofmill.schema.ids import file_sha256
from proofmill.text.own_files import read_text, read_yaml

STYLES = ("format", "replace", "jinja")  # of placeholders: str.format, str.replace of `{name}`, Jinja
_STRIPS = ("strip", "lstrip", "rstrip")
_CLOSING = re.compile(r"</([A-Za-z][\w-]{0,63})>")


def file_of(address: str) -> str:
    """Return the address of the file, without the key."""
    return address.partition("#")[0]


def digest(address: str) -> str:
    """Return what identifies a text: digest and key of a public file, the same with and without a copy; else the text.

    A file whose digest is unknown and that is not here is identified by its address.
    """
    file, _, key = address.partition("#")
    if not is_public(file):
        return read(address)
    known = next(iter(read_expected_digests(file).values()), None)
    return f"{(file_sha256(copy) if (copy := copy_of(file)) and copy.is_file() else known or file)[:16]}#{key}"


def read(address: str) -> str:
    """Return the text at an address, or at the path of a file, with its key.

    Raises MissingData without a copy of the file, TableError if the copy has changed, RecipeError without such a text.
    """
    file, _, key = address.partition("#")
    path = local_path(file)
    text = read_text(path, "the file of a prompt. Check its address.")
    if is_public(file):
        check_unchanged(file, {str(path): file_sha256(path)})
    return _at(address, text, path.suffix, key)


@lru_cache
def _at(address: str, text: str, suffix: str, key: str) -> str:
    try:
        value = _find(address, text, suffix, key) if key else text
    except (LookupError, ValueError, TypeError, SyntaxError, RecursionError) as error:
        raise RecipeError(
            f"{address}: the file has no text at this key ({short(str(error))}); expected the key of a text. Fix the address."
        ) from error
    if not isinstance(value, str) or not value.strip():
        raise RecipeError(f"{address}: is {shorten(value)}; expected a text that is not empty. Fix the address.")
    return value


def _find(address: str, text: str, suffix: str, key: str) -> Any:
    """Return the value at a key of YAML, JSON or Python."""
    if key.startswith("/"):
        parts = [part.replace("~1", "/").replace("~0", "~") for part in key[1:].split("/")]
    else:
        parts = key.split(".")
    if suffix == ".py":
        return _constant(ast.parse(text), parts)
    value = json.loads(text) if suffix == ".json" else read_yaml(text, address, "keys with a prompt. Fix the address.")
    for part in parts:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def _constant(module: ast.Module, parts: Sequence[str]) -> Any:
    """Return a text of Python source: an assigned constant, or a part of one."""
    names = {**_list_assigned(module.body)}
    node: Any = module
    for part in parts:
        while isinstance(node, ast.Name):
            node = names[node.id]
        if isinstance(node, ast.Module | ast.ClassDef):
            node = _list_assigned(node.body)[part]
        elif isinstance(node, ast.Dict):
            node = {_key(key): value for key, value in zip(node.keys, node.values, strict=True)}[part]
        elif isinstance(node, ast.List | ast.Tuple):
            node = node.elts[int(part)]
        else:
            raise LookupError(f"`{part}` is no key of {type(node).__name__}")
    return _text(node, names)


def _key(node: ast.expr | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None


def _list_assigned(body: Sequence[ast.stmt]) -> dict[str, Any]:
    """Return what a module or a class assigns, by name; a class by its own name."""
    found: dict[str, Any] = {}
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.Assign):
            found |= {target.id: statement.value for target in statement.targets if isinstance(target, ast.Name)}
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            found[statement.target.id] = statement.value
    return found


def _text(node: Any, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression: constants, other names, `+`, and `.strip()` without arguments."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _text(names[name], names)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _text(left, names) + _text(right, names)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[], keywords=[]) if name in _STRIPS:
            return getattr(_text(inner, names), name)()
    raise ValueError(f"line {getattr(node, 'lineno', '?')} computes it")


# -------------------------------------------------------------------------------------------------------- placeholders


@dataclass(frozen=True)
class PublishedText:
    """A template at an address: `fields` maps its placeholders to ours or to numbers; None: its only one is the statement."""

    address: str
    fields: tuple[tuple[str, str | int], ...] | None = None
    style: str = "format"

    def render(self, values: Mapping[str, Any]) -> str:
        """Fill the text. A value can close neither our tags nor those of the text."""
        return _compile(self, read(self.address))(values)

    def check(self) -> None:
        """Raise RecipeError if the text has other placeholders than `fields`."""
        _compile(self, read(self.address))


@lru_cache
def _compile(prompt: PublishedText, text: str) -> Callable[[Mapping[str, Any]], str]:
    """Return the function that fills a text. Raises RecipeError for placeholders that are not those of `fields`."""
    fields: dict[str, str | int] | None = None if prompt.fields is None else dict(prompt.fields)
    escape = partial(enclose, tags=frozenset(_CLOSING.findall(text)))
    jinja = Environment(undefined=StrictUndefined, finalize=escape, keep_trailing_newline=True)
    pieces: list[tuple[str, str | None]] = []
    try:
        if prompt.style == "jinja":
            found = meta.find_undeclared_variables(jinja.parse(text))
        else:
            pieces = [*(_of_format(text) if prompt.style == "format" else _of_replace(text, fields or {}))]
            found = {name for _, name in pieces if name is not None}
    except (ValueError, TemplateError) as error:
        raise RecipeError(
            f"{prompt.address}: its placeholders cannot be read ({short(str(error))}); expected those of `style: "
            f"{prompt.style}`. Set another of {', '.join(STYLES)}."
        ) from error
    if fields is None and len(found) == 1:
        fields = {min(found): "statement"}
    if fields is None or found != set(fields):
        shown = ", ".join(f"`{name}`" for name in sorted(found)) or "no placeholder"
        wanted = "one, for the statement" if fields is None else ", ".join(f"`{name}`" for name in fields)
        raise RecipeError(
            f"{prompt.address}: the text has {shown}; expected {wanted}. Map each to a field of ours, in `fields` of the "
            "header of a Markdown file whose `text` is this address; other braces need `style: replace`."
        )
    ours = fields
    if prompt.style == "jinja":
        template = jinja.from_string(text)
        return lambda values: template.render(_fill_fields(ours, values))

    def fill(values: Mapping[str, Any]) -> str:
        filled = {name: escape(value) for name, value in _fill_fields(ours, values).items()}
        return "".join(literal if name is None else filled[name] for literal, name in pieces)

    return fill


def _fill_fields(fields: Mapping[str, str | int], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[ours] if isinstance(ours, str) else str(ours) for name, ours in fields.items()}


def _of_format(text: str) -> Iterator[tuple[str, str | None]]:
    for literal, name, form, conversion in Formatter().parse(text):
        yield literal, None
        if name is not None:
            if form or conversion:
                raise ValueError(f"`{{{name}}}` has a format")
            yield "", name


def _of_replace(text: str, fields: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    names = "|".join(map(re.escape, fields))
    for number, piece in enumerate(re.split(rf"\{{({names})\}}", text) if fields else [text]):
        yield (piece, None) if number % 2 == 0 else ("", piece)

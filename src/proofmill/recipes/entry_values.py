"""Reads one entry from the values of a configuration or a job, and reports every mistake in its fields."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import ValidationError

from proofmill.runtime import environment
from proofmill.schema.declared import Api
from proofmill.schema.errors import RecipeError
from proofmill.schema.fields import description_of
from proofmill.schema.kinds import ENTRY_TYPES
from proofmill.text.suggestions import among

# Parts of pydantic's location of a mistake that name types instead of fields.
_TYPE_PARTS = re.compile(r"^(str|dict\[.*|function-.*|Price|Guess|literal\[.*|constrained-.*|list\[.*)$")


def entry_from(kind: str, values: Mapping) -> Any:
    """The checked entry of one artifact. Raises RecipeError with every mistake in it."""
    mistakes: list[str] = []
    entry = read_entry(kind, ENTRY_TYPES[kind], values, mistakes)
    if mistakes:
        raise RecipeError("\n".join(mistakes))
    return entry


def read_entry(where: str, cls: type, values: Any, mistakes: list[str]) -> Any:
    """The entry; or None, after appending its faults to `mistakes`."""
    if not isinstance(values, Mapping):
        mistakes.append(f"{where}: found {values!r}; expected a mapping of fields.")
        return None
    try:
        # `null` means the default, so that an overlay can take back a value of the file below it.
        return cls(**{key: value for key, value in _underscored(values).items() if value is not None})
    except ValidationError as error:
        mistakes += (_sentence(where, cls, mistake) for mistake in error.errors())
        return None


def _sentence(where: str, cls: type, mistake: Mapping[str, Any]) -> str:
    parts = [str(part) for part in mistake["loc"] if not _TYPE_PARTS.match(str(part))]
    key = ".".join(part.replace("_", "-") for part in parts)
    if mistake["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        if cls is Api and (example := environment.meant_by(where.rpartition(" > ")[2], key)):
            return (
                f"{where}: `{key}` is no key of an entry, which says what a model is and not where; expected it in the "
                f"environment, in the shell or in a line of the file {environment.FILE}: {example}. Move it there."
            )
        known = {field.name.replace("_", "-") for field in fields(cls)}
        return f"{where}: unknown key `{key}`; expected one of {among(key, known)}"
    if mistake["type"] in ("missing", "missing_argument"):
        return f"{where}: `{key}` is missing; expected a value. {description_of(cls, key)}"
    message = mistake["msg"].replace("Input should be", "").strip()
    hint = _as_number(mistake["input"]) if mistake["type"] == "float_type" else ""
    return f"{where}: `{key}` is {mistake['input']!r}; expected {message}. {hint}{description_of(cls, key)}"


def _as_number(value: Any) -> str:
    """How a number is written that YAML 1.1 reads as a text, for want of a point or of a sign in its exponent."""
    found = re.fullmatch(r"([-+]?\d+)(\.\d*)?[eE]([-+]?)(\d+)", value) if isinstance(value, str) else None
    if found is None:
        return ""
    whole, fraction, sign, exponent = found.groups()
    return f"YAML reads it as a text: write {whole}{fraction or '.0'}e{sign or '+'}{exponent}. "


def _underscored(values: Mapping) -> dict:
    """Values by field: `max-tokens` becomes `max_tokens`, but keys that are names (in `mix`, `rewards`) stay."""

    def inside(named: Mapping) -> dict:
        return {name: _underscored(v) if isinstance(v, Mapping) else v for name, v in named.items()}

    nested = {"sampling": inside, "preferences": inside, "price": _underscored}
    plain = {str(key).replace("-", "_"): value for key, value in values.items()}
    return {k: nested[k](v) if k in nested and isinstance(v, Mapping) else v for k, v in plain.items()}

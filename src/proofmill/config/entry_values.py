"""Read one entry from the values of a configuration or a job, and report every mistake in its fields."""

import copy
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from pydantic import ValidationError

from proofmill.runtime import environment
from proofmill.schema.entries.declared import Api
from proofmill.schema.errors import RecipeError
from proofmill.schema.fields import description_of
from proofmill.schema.kinds import ENTRY_TYPES
from proofmill.text.suggestions import among, nearest

ITEM_FIELDS = ("keep", "metrics", "rewards")  # fields with registry items and their arguments, which have no types
# Mappings from which an overlay can remove a name by setting it to `null`.
REMOVABLE = ("rewards", "preferences", "mix", "concatenate", "sampling", "columns", "claims")
HINTS = {
    "seeds": " To repeat scores, with all trainings they need, for several seeds, add an entry "
    "`scores/seeds: {repeat: scores/<name>, seeds: [0, 1, 2]}`.",
    "continue": " Only an `sft` can continue another; to train a model further, set `model` to it.",
}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
_NUMBERS = ("float_type", "float_parsing", "int_type", "int_parsing")
_ALLOWED = re.compile(r"'([^']*)'")
# Parts of pydantic's error locations that are types, not fields.
_TYPE_PARTS = re.compile(r"^(str|int|bool|float|dict\[.*|function-.*|Price|Guess|literal\[.*|constrained-.*|list\[.*)$")


def entry_from(kind: str, values: Mapping) -> Any:
    """Return the checked entry of one artifact. Raises RecipeError with all its mistakes."""
    mistakes: list[str] = []
    entry = read_entry(kind, ENTRY_TYPES[kind], values, mistakes)
    if mistakes:
        raise RecipeError("\n".join(mistakes))
    return entry


def read_entry(where: str, cls: type, values: Any, mistakes: list[str]) -> Any:
    """Return the entry; or append its faults to `mistakes` and return None."""
    if not isinstance(values, Mapping):
        mistakes.append(f"{where}: found {values!r}; expected a mapping of fields.")
        return None
    try:
        given = _to_fields(values)
    except RecipeError as error:
        mistakes.append(f"{where}: {error}")
        return None
    # `null` means the default, so that an overlay can remove a value.
    return _read(where, cls, {key: value for key, value in given.items() if value is not None}, mistakes)


def _read(where: str, cls: type, values: dict, mistakes: list[str]) -> Any:
    try:
        return cls(**values)
    except ValidationError as error:
        faults = error.errors()
    if corrected := _convert_numbers(values, faults):
        return _read(where, cls, corrected, mistakes)
    groups: dict[str, list[Mapping[str, Any]]] = {}  # by key: one fault for each form that a field may have
    for fault in faults:
        groups.setdefault(".".join(_place(fault)), []).append(fault)
    # A fault inside of a value says more than that the value has none of the other forms.
    outer = {key for key in groups if any(other.startswith(f"{key}.") for other in groups)}
    mistakes += (_sentence(where, cls, key, group) for key, group in groups.items() if key not in outer)
    return None


def _place(fault: Mapping[str, Any]) -> list[str]:
    return [str(part).replace("_", "-") for part in fault["loc"] if not _TYPE_PARTS.match(str(part))]


def _sentence(where: str, cls: type, key: str, group: Sequence[Mapping[str, Any]]) -> str:
    """Return the sentence about the faults of one field."""
    mistake = group[0]
    if mistake["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        if cls is Api and (example := environment.meant_by(where.rpartition(" > ")[2], key)):
            return (
                f"{where}: `{key}` is not a key of an entry; expected it in the environment, in the shell or in the file "
                f"{environment.FILE}: {example}. Move it there."
            )
        known, word = _list_keys(cls, key), key.rpartition(".")[2]
        return f"{where}: unknown key `{key}`; expected one of {among(word, known)}{HINTS.get(key, '')}"
    if mistake["type"] in ("missing", "missing_argument"):
        return f"{where}: `{key}` is missing; expected a value. {description_of(cls, key)}"
    found = mistake["input"]
    expected = " or ".join(dict.fromkeys(_describe_expected(key, fault) for fault in group))
    allowed = [value for fault in group for value in _ALLOWED.findall(fault.get("ctx", {}).get("expected", ""))]
    meant = "".join(f" Did you mean `{near}`?" for near in nearest(found, allowed)[:1])
    return f"{where}: `{key}` is {found!r}; expected {expected}.{meant} {description_of(cls, key)}"


def _describe_expected(key: str, fault: Mapping[str, Any]) -> str:
    if fault["type"] == "list_type" and isinstance(fault["input"], str):
        return f"a list, such as `{key.rpartition('.')[2]}: [{fault['input']}]`"
    text = fault["msg"].replace("Input should be", "").strip().replace("a valid dictionary", "a mapping")
    return f"a number {text}" if text.startswith(("greater", "less")) else text


def _list_keys(cls: type, key: str) -> set[str]:
    """Return the keys that are known at the place of an unknown one: of the entry, or of a mapping in one of its fields."""
    first, dot, _ = key.partition(".")
    if not dot:
        return {field.name.replace("_", "-") for field in fields(cls)}
    keys, pending = set(), [get_type_hints(cls, include_extras=True)[first.replace("-", "_")]]
    while pending:
        part = pending.pop()
        keys |= {*getattr(part, "__annotations__", ())} if isinstance(part, type) else set()
        pending += get_args(part)
    return {name.replace("_", "-") for name in keys}


# ------------------------------------------------------------------------------------------------------------- numbers


def as_number(value: Any) -> Any:
    """Parse a number that YAML 1.1 reads as a text because it lacks a point or an exponent sign (`1e-5`)."""
    if not (isinstance(value, str) and _NUMBER.fullmatch(value)):
        return value
    number = float(value)
    return number if math.isfinite(number) else value


def _convert_numbers(values: dict, faults: Iterable[Mapping[str, Any]]) -> dict | None:
    """Return the values with such texts replaced where a number is expected; None if nothing was replaced."""
    corrected, is_changed = copy.deepcopy(values), False
    for fault in faults:
        written = fault["input"]
        if fault["type"] not in _NUMBERS or not isinstance(written, str) or (number := as_number(written)) is written:
            continue
        if fault["type"].startswith("int_"):
            if not number.is_integer() or abs(number) >= 2**63:
                continue
            number = int(number)
        holder, key = _find_holder(corrected, fault["loc"])
        if holder[key] == written:
            holder[key], is_changed = number, True
    return corrected if is_changed else None


def _find_holder(values: Any, place: Iterable[Any]) -> tuple[Any, Any]:
    """Return the mapping or list at pydantic's location of a mistake, and the key in it."""
    holder, key, inner = values, None, values
    for part in place:  # some parts are types
        if (isinstance(inner, Mapping) and part in inner) or (isinstance(inner, list) and isinstance(part, int)):
            holder, key, inner = inner, part, inner[part]
    return holder, key


def _convert_inside(value: Any, depth: int = 4) -> Any:
    """Replace such texts in a value of names and numbers. The depth is limited since an alias may contain itself."""
    if isinstance(value, Mapping) and depth:
        return {key: _convert_inside(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list) and depth:
        return [_convert_inside(inner, depth - 1) for inner in value]
    return as_number(value)


# ---------------------------------------------------------------------------------------------------------------- keys


def _to_fields(values: Mapping) -> dict:
    """Convert keys to fields: `max-tokens` becomes `max_tokens`. Keys that are names (in `mix`, `rewards`) stay.

    Raises RecipeError for a field in two spellings.
    """

    def inside(named: Mapping) -> dict:
        return {name: _to_fields(v) if isinstance(v, Mapping) else v for name, v in named.items()}

    own = dict.fromkeys(("price", "lora", "composite", "settings"), _to_fields)
    nested = {"sampling": inside, "preferences": inside, "published": inside, **own}
    spelled: dict[str, Any] = {}
    for key in values:
        if (other := spelled.setdefault(str(key).replace("-", "_"), key)) is not key:
            raise RecipeError(f"`{other}` and `{key}` are one field; expected one of them. Remove one.")
    plain = {str(key).replace("-", "_"): value for key, value in values.items()}
    for key in {*REMOVABLE} & {*plain}:
        if isinstance(plain[key], Mapping):
            plain[key] = {name: value for name, value in plain[key].items() if value is not None}
    plain |= {key: _convert_inside(plain[key]) for key in ITEM_FIELDS if key in plain}
    return {k: nested[k](v) if k in nested and isinstance(v, Mapping) else v for k, v in plain.items()}

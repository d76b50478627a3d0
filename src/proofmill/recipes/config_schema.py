"""The JSON Schema of configuration files, by which editors complete, explain and check them while they are written.

Made from the same dataclasses as the manual: `python -m proofmill.recipes.manual` writes workflow/config.schema.json, and
`proofmill manual --schema` prints one that knows a user's own parts too. It sees one file at a time and the form of an entry
only; what entries say of one another is checked when they are read (checks.py).
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from proofmill.recipes.lists import LISTS
from proofmill.rewards.rewards import Reward
from proofmill.schema.fields import Ref, ref_of
from proofmill.schema.kinds import ENTRY_TYPES, KINDS, accepted
from proofmill.schema.named import Named

PATH = Path("workflow/config.schema.json")
FILES = {"type": "array", "items": {"type": "string"}}
LIKE = "Another entry of this kind, with whose fields this one begins."
ARGUMENTS: dict[str, dict[str, Any]] = {
    "number": {"type": "number"},
    "count": {"type": "integer", "minimum": 1},
    "bounds": {"type": "array", "items": {"type": ["number", "null"]}, "minItems": 2, "maxItems": 2},
    "texts": {"type": "array", "items": {"type": "string"}, "minItems": 1},
}


def text() -> str:
    """The schema as a file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def schema() -> dict[str, Any]:
    """The schema of a configuration file or a recipe file."""
    inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = []
    inputs += ((kind, "validation", TypeAdapter(cls)) for kind, cls in ENTRY_TYPES.items())
    found, shared = TypeAdapter.json_schemas(inputs, ref_template="#/$defs/{model}")
    definitions = {name: _with_dashes(each) for name, each in shared["$defs"].items()}
    for (kind, _), made in found.items():
        name = made["$ref"].rpartition("/")[2]
        definitions[kind] = _entry(kind, definitions.pop(name))
    block = {
        "type": "object",
        "properties": {"with": {**FILES, "description": "Blocks and recipes that these entries refer to."}},
        "patternProperties": {f"^{kind}/[a-z0-9][a-z0-9.-]*$": {"$ref": f"#/$defs/{kind}"} for kind in ENTRY_TYPES},
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Recipes of proofmill",
        "type": "object",
        "properties": {
            "recipes": {**FILES, "description": "Further files, read as part of this one; paths start at this file."},
            "plugins": {**FILES, "description": "Files of your own filters, rewards, graders, ..."},
            "budget": {"type": "number", "minimum": 0, "description": "Dollars for all calls together."},
            "results": {"type": "string", "description": "The folder of all tables; `results` without it."},
            "shared": {"type": "object", "additionalProperties": {"$ref": "#/$defs/block"}},
        },
        "patternProperties": {"^_": {}},
        "additionalProperties": {"$ref": "#/$defs/block"},
        "$defs": {"block": block, **definitions},
    }


def _entry(kind: str, made: dict[str, Any]) -> dict[str, Any]:
    """The schema of an entry: what it refers to, the names it can use, `like`, and null for a default."""
    properties = made["properties"]
    for key, hint in _hints(kind):
        if ref := ref_of(hint):
            _refer(properties[key], ref)
    for field, word in KINDS[kind].lists if kind in KINDS else ():
        properties[field] |= _named(word) if word != "rewards" else _rewards()
    nullable = {
        key: {"anyOf": [each, {"type": "null"}], "description": each.pop("description", "")}
        for key, each in properties.items()
    }
    nullable["like"] = {"type": "string", "pattern": f"^{kind}/", "description": LIKE}
    required = made.pop("required", [])
    whole = {"anyOf": [{"required": required}, {"required": ["like"]}]} if required else {}
    return {**made, "properties": nullable, "additionalProperties": False, **whole}


def _hints(kind: str) -> list[tuple[str, Any]]:
    hints = get_type_hints(ENTRY_TYPES[kind], include_extras=True)
    return [(field.name.replace("_", "-"), hints[field.name]) for field in fields(ENTRY_TYPES[kind])]


def _refer(made: dict[str, Any], ref: Ref) -> None:
    """Say of every text in a field's schema (or every key of a mapping) what it may refer to."""
    if made.get("type") == "string":
        kinds = [word for word in accepted(ref) if word in ENTRY_TYPES]
        words = [word for word in accepted(ref) if word not in ENTRY_TYPES]
        names = [*words, *(LISTS[ref.named] if ref.named else ())]
        named = [{"enum": names}] if names else []
        made["anyOf"] = [*named, {"pattern": f"^({'|'.join(kinds)})/"}]
    elif made.get("type") == "object":
        made["propertyNames"] = {"type": "string"}
        _refer(made["propertyNames"], ref)
    else:
        for inner in [*made.get("anyOf", ()), *([made["items"]] if "items" in made else ())]:
            _refer(inner, ref)


def _named(word: str) -> dict[str, Any]:
    """A list of small named things: a name, or a name with its argument."""
    listed: dict[str, Named] = dict(LISTS[word])
    alone = [name for name, record in listed.items() if record.argument == "none"]
    arguments = {
        name: {**ARGUMENTS[record.argument], "description": record.doc}
        for name, record in listed.items()
        if record.argument != "none"
    }
    one = {"type": "object", "properties": arguments, "additionalProperties": False, "minProperties": 1}
    return {"items": {"anyOf": [{"enum": alone}, {**one, "maxProperties": 1}]}}


def _rewards() -> dict[str, Any]:
    """Rewards by name: a weight, or a mapping with the arguments."""
    listed: dict[str, Reward] = dict(LISTS["rewards"])
    weights = {
        name: {
            "anyOf": [
                {"type": "number"},
                {
                    "type": "object",
                    "properties": {"weight": {"type": "number"}, **{argument: {} for argument in record.arguments}},
                    "additionalProperties": False,
                },
            ],
            "description": record.doc,
        }
        for name, record in listed.items()
    }
    return {"properties": weights, "additionalProperties": False}


def _with_dashes(made: dict[str, Any]) -> dict[str, Any]:
    """The keys of an object as configuration writes them."""
    properties = {key.replace("_", "-"): each for key, each in made.get("properties", {}).items()}
    required = [key.replace("_", "-") for key in made.get("required", [])]
    return {**made, "properties": properties, **({"required": required} if required else {})}

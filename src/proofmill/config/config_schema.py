"""Generate the JSON Schema of configuration files, with which editors complete, explain and check them.

Generated from the same dataclasses as the manual. `python -m proofmill.config.manual` writes workflow/config.schema.json, and
`proofmill manual --schema` prints a schema that includes the user's plugins. The schema checks one file at a time and the form
of each entry only. References between entries are checked when the configuration is read (reference_checks.py).
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from proofmill.config.lists import LISTS
from proofmill.rewards.rewards import Reward
from proofmill.schema.fields import Ref, ref_of
from proofmill.schema.kinds import ENTRY_TYPES, KINDS, list_accepted
from proofmill.schema.registry_items import Named

PATH = Path("workflow/config.schema.json")
FILES = {"type": "array", "items": {"type": "string"}}
LIKE = "Another entry of this kind, whose fields this one copies and overrides."
ARGUMENTS: dict[str, dict[str, Any]] = {
    "number": {"type": "number"},
    "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "count": {"type": "integer", "minimum": 1},
    "bounds": {"type": "array", "items": {"type": ["number", "null"]}, "minItems": 2, "maxItems": 2},
    "texts": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "days": {"type": "array", "items": {"type": "string", "format": "date"}, "minItems": 2, "maxItems": 2},
}


def text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def schema() -> dict[str, Any]:
    """Return the schema of a configuration file or a recipe file."""
    inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = []
    inputs += ((kind, "validation", TypeAdapter(cls)) for kind, cls in ENTRY_TYPES.items())
    entries, shared = TypeAdapter.json_schemas(inputs, ref_template="#/$defs/{model}")
    definitions = {name: _to_kebab_case(each) for name, each in shared["$defs"].items()}
    for (kind, _), made in entries.items():
        name = made["$ref"].rpartition("/")[2]
        definitions[kind] = _complete(kind, definitions.pop(name))
    block = {
        "type": "object",
        "properties": {"with": {**FILES, "description": "Shared blocks and recipes that these entries refer to."}},
        "patternProperties": {f"^{kind}/[a-z0-9][a-z0-9.-]*$": {"$ref": f"#/$defs/{kind}"} for kind in ENTRY_TYPES},
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Recipes of proofmill",
        "type": "object",
        "properties": {
            "recipes": {
                **FILES,
                "description": "Further files to read as part of this one. Paths are relative to this file.",
            },
            "plugins": {**FILES, "description": "Python files with your own filters, rewards, graders, ... (plugins)."},
            "budget": {
                "type": "number",
                "minimum": 0,
                "description": "Budget in dollars for all calls together. By default, there is no limit.",
            },
            "results": {"type": "string", "description": "Folder of all tables. Default: `results`."},
            "shared": {"type": "object", "additionalProperties": {"$ref": "#/$defs/block"}},
        },
        "patternProperties": {"^_": {}},
        "additionalProperties": {"$ref": "#/$defs/block"},
        "$defs": {"block": block, **definitions},
    }


def _complete(kind: str, made: dict[str, Any]) -> dict[str, Any]:
    """Complete the schema of an entry with references, registry names, `like`, and null for a default."""
    properties = made["properties"]
    for key, hint in _hints(kind):
        if ref := ref_of(hint):
            _restrict(properties[key], ref)
    for field, word in KINDS[kind].registries if kind in KINDS else ():
        properties[field] |= _items_schema(word) if word != "rewards" else _rewards_schema()
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


def _restrict(made: dict[str, Any], ref: Ref) -> None:
    """Restrict every string in a field's schema, or every key of a mapping, to what it may refer to."""
    if made.get("type") == "string":
        kinds = [word for word in list_accepted(ref) if word in ENTRY_TYPES]
        words = [word for word in list_accepted(ref) if word not in ENTRY_TYPES]
        names = [*words, *(LISTS[ref.named] if ref.named else ())]
        named = [{"enum": names}] if names else []
        made["anyOf"] = [*named, {"pattern": f"^({'|'.join(kinds)})/"}]
    elif made.get("type") == "object":
        made["propertyNames"] = {"type": "string"}
        _restrict(made["propertyNames"], ref)
    else:
        for inner in [*made.get("anyOf", ()), *([made["items"]] if "items" in made else ())]:
            _restrict(inner, ref)


def _items_schema(word: str) -> dict[str, Any]:
    """Return the schema of a list of registry items: names, or names with an argument."""
    listed: dict[str, Named] = dict(LISTS[word])
    alone = [name for name, record in listed.items() if record.argument in ("none", "options")]
    arguments = {
        name: {**(_options(record) if record.options else ARGUMENTS[record.argument]), "description": record.doc}
        for name, record in listed.items()
        if record.argument != "none"
    }
    one = {"type": "object", "properties": arguments, "additionalProperties": False, "minProperties": 1}
    return {"items": {"anyOf": [{"enum": alone}, {**one, "maxProperties": 1}]}}


def _options(record: Named) -> dict[str, Any]:
    """Return the schema of a mapping of options, each of a few values."""
    values = {name: {"enum": list(allowed)} for name, allowed in record.options.items()}
    return {"type": "object", "properties": values, "additionalProperties": False}


def _rewards_schema() -> dict[str, Any]:
    """Return the schema of rewards by name: a weight, or a mapping with a weight and arguments."""
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


def _to_kebab_case(made: dict[str, Any]) -> dict[str, Any]:
    """Return an object's schema with kebab-case keys, as in the configuration."""
    properties = {key.replace("_", "-"): each for key, each in made.get("properties", {}).items()}
    required = [key.replace("_", "-") for key in made.get("required", [])]
    return {**made, "properties": properties, **({"required": required} if required else {})}

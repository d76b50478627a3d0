"""Read configuration files (strict YAML) with the recipe files that they list, and merge them.

recipes: [workflow/recipes/qed-nano.yaml]    further files to read as part of this one; paths are relative to this file
plugins: [my_parts.py]                       the user's plugins (plugins.py); paths likewise
prompt: prompts/mine.md                      a prompt or system prompt can be a file; paths likewise
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from proofmill.prompts.templates import is_path
from proofmill.schema.errors import RecipeError
from proofmill.text.own_files import read_text, read_yaml

LISTS = ("recipes", "plugins")  # keys with lists of files
ABSOLUTE = ("/", "~", "$")  # beginnings of paths that are not relative to the file
PROMPT_KEYS = ("prompt", "system")  # the last word of keys that name prompts


def read(*paths: str | Path) -> dict:
    """Read configuration files and the recipe files that they list, each merged onto those before it.

    Mappings are merged, other values replaced. Lists of `plugins` are concatenated; their paths become relative to the
    working directory. Raises RecipeError if a file cannot be read or has a duplicate key.
    """
    config: dict = {}
    for path in paths:
        config = _merge_recipes(Path(path), config, set())
    return config


def _merge_recipes(path: Path, under: dict, seen: set[str]) -> dict:
    """Merge a file, then the recipe files that it lists, onto `under`. Each file is read once."""
    real = os.path.realpath(path)
    if real in seen:
        return under
    seen.add(real)
    loaded = _read_one(path)
    _place_prompts(path, loaded)
    listed = {key: _paths(path, key, loaded.pop(key, None) or []) for key in LISTS}
    merged = overlay(under, loaded)
    if plugins := [*under.get("plugins", []), *listed["plugins"]]:
        merged["plugins"] = list(dict.fromkeys(plugins))
    for further in listed["recipes"]:
        merged = _merge_recipes(Path(further), merged, seen)
    return merged


def _paths(file: Path, key: str, values: Any) -> Iterable[str]:
    """Return the paths that a file lists, relative to the working directory."""
    if not isinstance(values, list) or not all(isinstance(value, str) and value.isprintable() for value in values):
        raise RecipeError(
            f"{file}: `{key}` is {values!r}; expected a list of files, such as `{key}: [my_{key}]`. Write it as a list."
        )
    return [value if value.startswith(ABSOLUTE) else str(file.parent / value) for value in values]


def _place(file: Path, path: str) -> str:
    if path.startswith(ABSOLUTE):
        return path
    place = os.path.abspath(file.parent / path)
    near = os.path.relpath(place)
    return place if near.startswith("..") else near


def _place_prompts(file: Path, loaded: dict) -> None:
    """Make the prompt paths in a file relative to the working directory, independent of how the file itself was named.

    They are part of the identity. Outside of the working directory they are absolute.
    """
    pending, seen = [(loaded, False)], set()
    while pending:
        value, has_prompts = pending.pop()
        if not isinstance(value, dict | list) or id(value) in seen:  # an alias of YAML may contain itself
            continue
        seen.add(id(value))
        for key, inner in value.items() if isinstance(value, dict) else ():
            is_prompt = has_prompts or re.split("[-_]", str(key))[-1] in PROMPT_KEYS
            if is_prompt and isinstance(inner, str) and is_path(inner):
                value[key] = _place(file, inner)
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        pending += [(inner, key == "prompts") for key, inner in pairs]  # of a scaffold: any key is a part's name


def _read_one(path: Path) -> dict:
    advice = " Check the path."
    if path == Path("config.yaml"):
        advice = (
            " Change to the folder that has it, or create one: proofmill init mine (--here in a folder with files)."
        )
    text = read_text(path, f"a configuration file.{advice}")
    loaded = read_yaml(text, str(path), "a mapping of recipes. Fix the file.") or {}
    if not isinstance(loaded, dict):
        raise RecipeError(f"{path}: found a {type(loaded).__name__}; expected a mapping of recipes. Fix the file.")
    return loaded


def overlay(under: Mapping, over: Mapping) -> dict:
    """Merge `over` onto `under`: mappings are merged, other values replaced."""
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = overlay(merged[key], value) if both else value
    return merged

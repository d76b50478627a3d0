"""Configuration files: YAML, read strictly, with the recipe files that they list, and laid over one another.

recipes: [workflow/recipes/qed-nano.yaml]    further files, read as part of this one; paths start at this file
plugins: [my_parts.py]                       files of a user's own parts (plugins.py), with such paths too
prompt: prompts/mine.md                      wherever a prompt or a system prompt may be named: a file of the user's own, too
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from proofmill.prompts.templates import is_path
from proofmill.schema.errors import RecipeError
from proofmill.text.own_files import read_text, read_yaml

LISTS = ("recipes", "plugins")  # keys whose lists in several files are joined
ELSEWHERE = ("/", "~", "$")  # how a path begins that is not taken from the file that names it
ASKS = ("prompt", "ask", "system")  # the last words of the keys under which prompts are named


def read(*paths: str | Path) -> dict:
    """The configuration files with the recipe files that they list, each laid over those before it.

    Mappings merge, and other values replace. Lists of `plugins` are joined; their paths become relative to the working
    directory. Raises RecipeError when a file cannot be read, or has a key twice.
    """
    config: dict = {}
    for path in paths:
        config = _with_recipes(Path(path), config, set())
    return config


def _with_recipes(path: Path, under: dict, seen: set[str]) -> dict:
    """A file and then the recipe files that it lists, laid over `under`; each file is read once."""
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
        merged = _with_recipes(Path(further), merged, seen)
    return merged


def _paths(file: Path, key: str, values: Any) -> Iterable[str]:
    """Paths that a file lists, made relative to the working directory."""
    if not isinstance(values, list) or not all(isinstance(value, str) and value.isprintable() for value in values):
        raise RecipeError(f"{file}: `{key}` is {values!r}; expected a list of files, such as `{key}: [my_{key}]`.")
    return [value if value.startswith(ELSEWHERE) else str(file.parent / value) for value in values]


def _placed(file: Path, path: str) -> str:
    if path.startswith(ELSEWHERE):
        return path
    place = os.path.abspath(file.parent / path)
    near = os.path.relpath(place)
    return place if near.startswith("..") else near


def _place_prompts(file: Path, loaded: dict) -> None:
    """Make the paths of prompts that a file names relative to the working directory, however the file itself was named.

    They are part of what is asked for. Outside of the working directory they are absolute.
    """
    pending, seen = [loaded], set()
    while pending:
        value = pending.pop()
        if not isinstance(value, dict | list) or id(value) in seen:  # an alias of YAML may contain itself
            continue
        seen.add(id(value))
        for key, inner in value.items() if isinstance(value, dict) else ():
            if re.split("[-_]", str(key))[-1] in ASKS and isinstance(inner, str) and is_path(inner):
                value[key] = _placed(file, inner)
        pending += value.values() if isinstance(value, dict) else value


def _read_one(path: Path) -> dict:
    advice = " Check the path."
    if path == Path("config.yaml"):
        advice = " Go to the folder that has one, or write one: proofmill init mine."
    text = read_text(path, f"a configuration file.{advice}")
    loaded = read_yaml(text, str(path), "a mapping of recipes.") or {}
    if not isinstance(loaded, dict):
        raise RecipeError(f"{path}: found a {type(loaded).__name__}; expected a mapping of recipes.")
    return loaded


def overlay(under: Mapping, over: Mapping) -> dict:
    """`over` laid over `under`: mappings merge, other values replace."""
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = overlay(merged[key], value) if both else value
    return merged

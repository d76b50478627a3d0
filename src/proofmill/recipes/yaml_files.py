"""Configuration files: YAML read strictly, with the recipe files that they list, and laid over one another.

recipes: [workflow/recipes/qed-nano.yaml]    further files, read as if they stood here; a path is from the file that names it
plugins: [my_parts.py]                       files of a user's own parts (plugins.py), named in the same way
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from proofmill.schema.errors import RecipeError

LISTS = ("recipes", "plugins")  # what several files list is added up


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key written twice in one mapping, which PyYAML would silently let win."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict:
    seen: dict[Any, int] = {}
    for key, _ in node.value:
        if key.tag != "tag:yaml.org,2002:merge":
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise RecipeError(f"{key.start_mark.name}:{line}: a key is a list or mapping; expected a name.")
            if key.value in seen:
                raise RecipeError(
                    f"{key.start_mark.name}:{line}: `{key.value}` is declared twice (first in line {seen[key.value]}); "
                    "expected each name once. Rename or remove one."
                )
            seen[key.value] = line
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(*paths: str | Path) -> dict:
    """The configuration files with the recipe files that they list, each laid over those before it.

    Mappings merge, everything else replaces; `plugins` add up, their paths from the working directory.
    """
    config: dict = {}
    for path in paths:
        config = _with_recipes(Path(path), config, set())
    return config


def _with_recipes(path: Path, under: dict, met: set[Path]) -> dict:
    """A file, and after it the recipe files that it lists, laid over what was read before; each file once."""
    if path.resolve() in met:
        return under
    met.add(path.resolve())
    loaded = _read_one(path)
    listed = {key: _paths(path, key, loaded.pop(key, None) or []) for key in LISTS}
    merged = overlay(under, loaded)
    if plugins := [*under.get("plugins", []), *listed["plugins"]]:
        merged["plugins"] = list(dict.fromkeys(plugins))
    for further in listed["recipes"]:
        merged = _with_recipes(Path(further), merged, met)
    return merged


def _paths(file: Path, key: str, values: Any) -> Iterable[str]:
    """Paths that a file lists, as the working directory sees them."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise RecipeError(f"{file}: `{key}` is {values!r}; expected a list of files, such as `{key}: [my_{key}]`.")
    return [value if value.startswith(("/", "~", "$")) else str(file.parent / value) for value in values]


def _read_one(path: Path) -> dict:
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        loader.name = str(path)
        loaded = loader.get_single_data() or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: cannot be read as YAML ({error}); expected a mapping of recipes.") from error
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror}; expected a configuration file.") from error
    if not isinstance(loaded, dict):
        raise RecipeError(f"{path}: found a {type(loaded).__name__}; expected a mapping of recipes.")
    return loaded


def overlay(under: Mapping, over: Mapping) -> dict:
    """`over` laid over `under`: mappings merge, everything else replaces."""
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = overlay(merged[key], value) if both else value
    return merged

"""Read files that a user writes: configuration, prompts, Python. A file is read completely, or raises RecipeError.

YAML is parsed strictly: no key twice in a mapping, and no number in another base than it seems (in YAML 1.1, `0777` is
octal and `1:30` has the base 60).
"""

import re
import stat
from pathlib import Path
from typing import Any

import yaml

from proofmill.schema.errors import RecipeError, short, shorten

LARGEST = 4 * 2**20  # characters of a file; the largest of this project has 40,000
_OTHER_BASE = re.compile(r"[-+]?0[0-7_]+|.*:.*")
# Exceptions of PyYAML for values such as an impossible date, 5,000 digits, `!!int ""` and `!!timestamp x`.
_FAULTS = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError)


def read_text(path: Path, expected: str) -> str:
    """Return the text of a regular file in UTF-8; `expected` ends the message of the RecipeError for anything else."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            problem = "is a folder" if stat.S_ISDIR(status.st_mode) else "is a pipe, a socket or a device"
        elif not status.st_size:  # empty, or a file of the kernel, which may block its reader
            return ""
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read(LARGEST + 1)
            if len(text) <= LARGEST:
                return text
            problem = f"has more than {LARGEST:,} characters"
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror}; expected {expected}") from error
    except ValueError as error:  # bytes that are not UTF-8; a path with a NUL
        raise RecipeError(f"{path}: is no text in UTF-8; expected {expected}") from error
    raise RecipeError(f"{path}: {problem}; expected {expected}")


class _Loader(yaml.SafeLoader):
    """A YAML loader that rejects duplicate keys of a mapping; PyYAML would silently take the last."""


def read_yaml(text: str, where: str, expected: str) -> Any:
    """Return the value of a YAML text. Raises RecipeError, which begins with `where` and ends in `expected`."""
    try:
        loader = _Loader(text)
        loader.name = where
        return loader.get_single_data()
    except RecursionError as error:
        raise RecipeError(f"{where}: is nested too deeply; expected {expected}") from error
    except _FAULTS as error:
        problem = " ".join(str(error).split())
        raise RecipeError(f"{where}: cannot be read as YAML ({problem}); expected {expected}") from error


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


def _number(loader: _Loader, node: yaml.ScalarNode) -> int | float:
    kind = node.tag.rpartition(":")[2]
    value = loader.construct_yaml_int(node) if kind == "int" else loader.construct_yaml_float(node)
    if _OTHER_BASE.fullmatch(node.value):
        raise RecipeError(
            f"{node.start_mark.name}:{node.start_mark.line + 1}: `{short(node.value)}` is {shorten(value)} in YAML; expected a "
            f'decimal number. Write it without leading zeros and colons, or "{short(node.value)}" for a text.'
        )
    return value


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)

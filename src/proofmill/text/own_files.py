"""Files that a user writes: configuration, prompts, Python. Any bytes give their text or value, or a RecipeError.

YAML is read strictly: no key twice in a mapping, and no number that YAML 1.1 takes for another than is written (`0777` is
octal, `1:30` has the base 60).
"""

import re
import stat
from pathlib import Path
from typing import Any

import yaml

from proofmill.schema.errors import RecipeError, short, shown

LARGEST = 4 * 2**20  # characters of a file; those of this project have 40,000
_OTHER_BASE = re.compile(r"[-+]?0[0-7_]+|.*:.*")
# What PyYAML raises for values such as a date of no calendar, 5,000 digits, `!!int ""` and `!!timestamp x`.
_FAULTS = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError)


def read_text(path: Path, expected: str) -> str:
    """Return the text of a regular file in UTF-8; `expected` ends the message of the RecipeError for anything else."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            found = "is a folder" if stat.S_ISDIR(status.st_mode) else "is a pipe, a socket or a device"
        elif not status.st_size:  # a file of the kernel has no size, and may keep its reader waiting
            return ""
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read(LARGEST + 1)
            if len(text) <= LARGEST:
                return text
            found = f"has more than {LARGEST:,} characters"
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror}; expected {expected}") from error
    except ValueError as error:  # bytes that are no UTF-8; a path with a NUL
        raise RecipeError(f"{path}: is no text in UTF-8; expected {expected}") from error
    raise RecipeError(f"{path}: {found}; expected {expected}")


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key written twice in one mapping; PyYAML would silently take the second."""


def read_yaml(text: str, where: str, expected: str) -> Any:
    """Return the value of a YAML text. Raises RecipeError, which begins with `where` and ends in `expected`."""
    try:
        loader = _Loader(text)
        loader.name = where
        return loader.get_single_data()
    except RecursionError as error:
        raise RecipeError(f"{where}: is nested too deeply; expected {expected}") from error
    except _FAULTS as error:
        found = " ".join(str(error).split())
        raise RecipeError(f"{where}: cannot be read as YAML ({found}); expected {expected}") from error


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
            f"{node.start_mark.name}:{node.start_mark.line + 1}: `{short(node.value)}` is {shown(value)} in YAML; expected a "
            f'decimal number. Write it without leading zeros and colons, or "{short(node.value)}" for a text.'
        )
    return value


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)

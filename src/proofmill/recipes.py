"""One entry of a recipe is one artifact: here config.yaml is read and expanded (kinds.py says what it may hold, checks.py what it
gets wrong).

A name is a path: `sft/cold` is the key in config.yaml, the value of fields that refer to it, and results/sft/cold.parquet.
Nothing here computes rows, so importing it is cheap.

`python -m proofmill.recipes` prints the expanded list.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from proofmill import templates
from proofmill.checks import among, check, cycles, description
from proofmill.expansion import expand_repeats, expand_scores
from proofmill.kinds import (
    DECLARED,
    ENTRY_TYPES,
    MARKING_PROMPT,
    PROGRAMS,
    TAKEN,
    Api,
    Examples,
    Grades,
    Grpo,
    RecipeError,
    Responses,
    Schemes,
    Scores,
    canonical,
    graders_of,
    kind_of,
    origin_of,
    parents,
    relied_on,
    value_of,
)

NAME = re.compile(r"^[a-z]+/[a-z0-9][a-z0-9.-]*$")


def prompts_of(entry: Any, declared: Mapping[str, Any]) -> dict[str, str]:
    """The prompts an entry asks with, and a digest of each: editing one changes what the entry makes."""
    names: list[str | None] = []
    if isinstance(entry, Grades | Grpo | Schemes):
        tests = isinstance(entry, Schemes)
        grader, prompt = (entry.tester, entry.tester_prompt) if tests else (entry.grader, entry.prompt)
        names += _asked_by(grader, prompt, declared) if grader else []
    if isinstance(entry, Grpo):
        names.append(entry.ask)
        names += [entry.turn_prompt, entry.summary_prompt] if entry.summarizer else []
        marking = {name: given.get("prompt") for name, given in entry.preferences.items()}
        marking |= {entry.hold_out: entry.hold_out_prompt} if entry.hold_out else {}
        for name, prompt in marking.items():
            names += _asked_by(name, prompt, declared) if kind_of(name) not in ("base", "sft") else []
    elif isinstance(entry, Schemes):
        names.append(entry.prompt if entry.model else None)
    elif isinstance(entry, Responses):
        names.append(None if entry.model in TAKEN or entry.rollouts else entry.prompt)
    elif isinstance(entry, Examples):
        names.append(None if entry.mix or entry.join else entry.prompt)
    elif not isinstance(entry, Grades | Scores):  # of scores, its grades ask
        names.append(getattr(entry, "prompt", None))
    return {name: templates.prompt(name).digest for name in names if name}


def _asked_by(name: str, prompt: str | None, declared: Mapping[str, Any]) -> Iterator[str]:
    """The prompts of a grader, of its further rounds, and of whom it escalates to."""
    if name in PROGRAMS or name == "human":
        return
    for grader in graders_of(name, prompt, declared):
        if grader.judges[0] not in PROGRAMS:
            yield grader.prompt or MARKING_PROMPT
        if grader.rounds:
            yield "reconsider"
        if grader.normalizer:
            yield "normalize"


def identity(entry: Any, declared: Mapping[str, Any]) -> str:
    """All that decides the rows besides the parents: the entry, its kind's revision, its prompts, models and graders."""
    relied = {name: json.loads(canonical(value)) for name, value in relied_on(entry, declared).items()}
    for values in relied.values():
        for key in ("price_source", "guess", "max_parked"):  # said for people, for planning and for stopping
            values.pop(key, None)
    return json.dumps(
        {
            "entry": json.loads(canonical(entry)),
            "revision": type(entry).revision,
            "prompts": prompts_of(entry, declared),
            "declared": relied,
        },
        sort_keys=True,
        ensure_ascii=False,
    )


def terms(book: "Book") -> str:
    """What calls may cost and how many of them may fail: for jobs to know, and no part of what decides rows."""
    return json.dumps(
        {
            "budget": book.budget,
            "max_parked": {name: api.max_parked for name, api in book.declared.items() if isinstance(api, Api)},
        }
    )


def local_path(text: str) -> Path:
    """A path of an entry with its `${VARIABLES}` filled from the environment."""
    missing = [name for name in re.findall(r"\$\{(\w+)\}", text) if name not in os.environ]
    if missing:
        raise RecipeError(
            f"path {text}: the environment has no {', '.join(missing)}; expected the folder with the data. "
            f"Set it, for example: export {missing[0]}=/path/to/data"
        )
    return Path(os.path.expandvars(text)).expanduser()


# --------------------------------------------------------------------------------------------------- reading and checks


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
    """The configuration files, each laid over those before it (mappings merge, everything else replaces)."""
    config: dict = {}
    for path in paths:
        try:
            loader = _Loader(Path(path).read_text(encoding="utf-8"))
            loader.name = str(path)
            loaded = loader.get_single_data() or {}
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise RecipeError(f"{path}: cannot be read as YAML ({error}); expected a mapping of recipes.") from error
        except OSError as error:
            raise RecipeError(f"{path}: {error.strerror}; expected a configuration file.") from error
        if not isinstance(loaded, dict):
            raise RecipeError(f"{path}: found a {type(loaded).__name__}; expected a mapping of recipes.")
        config = overlay(config, loaded)
    return config


def overlay(under: Mapping, over: Mapping) -> dict:
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = overlay(merged[key], value) if both else value
    return merged


@dataclass(frozen=True)
class Book:
    """The checked and expanded configuration: every artifact's entry, models and graders, the recipes by name, the budget."""

    entries: dict[str, Any]
    declared: dict[str, Any]  # api/... and grader/...
    recipes: dict[str, list[str]]
    budget: float | None = None  # dollars for all calls under one results folder; None is no limit

    def targets(self, recipe: str) -> list[str]:
        """The artifacts of a recipe that nothing else in it is made from, with the expansions they stand for."""
        names = self.recipes[recipe]
        used = {parent for name in names for parent in parents(self.entries[name])}
        return [name for name in names if name not in used]


def expand(config: Mapping) -> Book:
    """Check the whole configuration and expand what stands for more; raises RecipeError with every mistake found."""
    entries: dict[str, Any] = {}
    recipes: dict[str, list[str]] = {}
    homes: dict[str, str] = {}
    mistakes: list[str] = []
    for recipe, declared in config.items():
        if str(recipe).startswith("_") or recipe == "budget":
            continue
        if not isinstance(declared, Mapping):
            mistakes.append(
                f"{recipe}: found {declared!r}; expected a mapping of entries (or a key that begins with _)."
            )
            continue
        recipes[recipe] = []
        for name, values in declared.items():
            where = f"{recipe} > {name}"
            if not (isinstance(name, str) and NAME.match(name)) or kind_of(name) not in ENTRY_TYPES:
                mistakes.append(
                    f"{where}: expected <kind>/<name> in small letters, the kind one of {among(kind_of(str(name)), ENTRY_TYPES)}"
                )
            elif name in homes:
                mistakes.append(
                    f"{where}: declared in `{homes[name]}` too; expected each name once. Rename one of the two."
                )
            else:
                homes[name] = recipe
                entry = _entry(where, ENTRY_TYPES[kind_of(name)], values, mistakes)
                if entry is not None:
                    entries[name] = entry
                    if kind_of(name) not in DECLARED:
                        recipes[recipe].append(name)
    budget = config.get("budget")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int | float) or budget < 0):
        mistakes.append(f"budget: found {budget!r}; expected dollars for all calls together, such as 25.0.")
    mistakes += [m for name, entry in entries.items() for m in check(f"{homes[name]} > {name}", entry, entries, homes)]
    if not mistakes:
        mistakes += cycles(entries)
    if not mistakes:
        expand_scores(entries, recipes, mistakes)
        expand_repeats(entries, recipes)
    if mistakes:
        raise RecipeError("\n".join(mistakes))
    declared = {name: entry for name, entry in entries.items() if kind_of(name) in DECLARED}
    artifacts = {name: entry for name, entry in entries.items() if name not in declared}
    return Book(artifacts, declared, {name: listed for name, listed in recipes.items() if listed}, budget)


def entry_from(kind: str, values: Mapping) -> Any:
    """The checked entry of one artifact, from config or from the JSON that a rule hands to its job."""
    mistakes: list[str] = []
    entry = _entry(kind, ENTRY_TYPES[kind], values, mistakes)
    if mistakes:
        raise RecipeError("\n".join(mistakes))
    return entry


def _entry(where: str, cls: type, values: Any, mistakes: list[str]) -> Any:
    if not isinstance(values, Mapping):
        mistakes.append(f"{where}: found {values!r}; expected a mapping of fields.")
        return None
    try:
        # `null` is a field's default: so an overlay takes back what the file below it says.
        return cls(**{key: value for key, value in _underscored(values).items() if value is not None})
    except ValidationError as error:
        known = {f.name.replace("_", "-") for f in fields(cls)}
        for e in error.errors():
            key = ".".join(
                str(part).replace("_", "-")
                for part in e["loc"]
                if not re.match(
                    r"^(str|dict\[.*|function-.*|Price|Guess|literal\[.*|constrained-.*|list\[.*)$", str(part)
                )
            )
            if e["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
                mistakes.append(f"{where}: unknown key `{key}`; expected one of {among(key, known)}")
            elif e["type"] in ("missing", "missing_argument"):
                mistakes.append(f"{where}: `{key}` is missing; expected {description(cls, key)}.")
            else:
                message = e["msg"].replace("Input should be", "").strip()
                mistakes.append(f"{where}: `{key}` is {e['input']!r}; expected {message} ({description(cls, key)}).")
        return None


def _underscored(values: Mapping) -> dict:
    """Config writes `max-tokens`, Python `max_tokens`; the keys of a named mapping (`mix`, `rewards`) are names and stay."""
    inner = {
        "sampling": lambda ways: {way: _underscored(v) if isinstance(v, Mapping) else v for way, v in ways.items()},
        "price": lambda price: {str(key).replace("-", "_"): value for key, value in price.items()},
        "preferences": lambda given: {
            name: _underscored(v) if isinstance(v, Mapping) else v for name, v in given.items()
        },
    }
    plain = {str(key).replace("-", "_"): value for key, value in values.items()}
    return {k: inner[k](v) if k in inner and isinstance(v, Mapping) else v for k, v in plain.items()}


def source_files(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> list[Path]:
    """The local files an entry reads that are no artifacts; of a folder all its files."""
    origin = origin_of(kind, entry, entry_of)
    path = getattr(entry, "path", None) if origin is None else value_of(entry_of(origin), "path")
    if not path:
        return []
    found = local_path(path)
    return sorted(file for file in found.rglob("*") if file.is_file()) if found.is_dir() else [found]


# ---------------------------------------------------------------------------------------------------------- the command


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m proofmill.recipes", description="Print every artifact of every recipe."
    )
    parser.add_argument("recipe", nargs="?", help="only this recipe")
    parser.add_argument("--configfile", nargs="+", default=[], help="laid over config.yaml")
    options = parser.parse_args()
    try:
        book = expand(read("config.yaml", *options.configfile))
        if options.recipe and options.recipe not in book.recipes:
            raise RecipeError(
                f"{options.recipe}: no such recipe; expected one of {among(options.recipe, book.recipes)}"
            )
    except RecipeError as error:
        sys.exit(f"RecipeError: {error}")
    for recipe in [options.recipe] if options.recipe else book.recipes:
        print(f"{recipe}:")
        for name in book.recipes[recipe]:
            print(f"  {name}: {canonical(book.entries[name])}")


if __name__ == "__main__":
    main()

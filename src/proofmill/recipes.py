"""One entry of a recipe is one artifact: here config.yaml is read, checked and expanded (kinds.py says what it may hold).

    RecipeError   a mistake in the configuration: every mistake is collected, and all are shown at once

A name is a path: `sft/cold` is the key in config.yaml, the value of fields that refer to it, and results/sft/cold.parquet.
Nothing here computes rows, so importing it is cheap.

`python -m proofmill.recipes` prints the expanded list.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from pydantic import ValidationError

from proofmill import arithmetic, filters, measures, named, rewards, selectors
from proofmill.expansion import expand_repeats, expand_scores
from proofmill.kinds import (
    ENTRY_TYPES,
    SOURCES,
    Api,
    Base,
    Examples,
    Grades,
    Grpo,
    Problems,
    Schemes,
    Scores,
    Sft,
    canonical,
    kind_of,
    parents,
    ref_of,
    references,
)

PROMPTS = Path(__file__).parent / "prompts"
NAME = re.compile(r"^[a-z]+/[a-z0-9][a-z0-9.-]*$")


class RecipeError(Exception):
    """A mistake in the configuration. The message reads: where: what was found; expected what. What to do."""


def prompt_text(name: str) -> str:
    """The text of a prompt by name; the comment on top of the file is not part of it."""
    text = (PROMPTS / f"{name}.md").read_text(encoding="utf-8")
    return re.sub(r"\A<!--.*?-->\s*", "", text, flags=re.DOTALL)


def prompt_names() -> list[str]:
    return sorted(path.stem for path in PROMPTS.glob("*.md"))


def prompts_of(entry: Any) -> dict[str, str]:
    """The prompts an entry asks with, and a digest of their text: editing one changes what the entry makes."""
    asked = {"prompt": True, "ask": True}
    if isinstance(entry, Grades | Grpo):  # a program that checks is asked nothing
        asked["prompt"] = kind_of(entry.grader) == "api"
    elif isinstance(entry, Schemes):
        asked["prompt"] = entry.model is not None
    elif isinstance(entry, Examples):
        asked["prompt"] = not entry.mix
    elif isinstance(entry, Scores):  # its grades ask
        asked["prompt"] = False
    names = [getattr(entry, key, None) for key, really in asked.items() if really]
    return {name: hashlib.sha256(prompt_text(name).encode()).hexdigest()[:16] for name in names if name}


def identity(entry: Any, apis: Mapping[str, Api]) -> str:
    """All that decides the rows besides the parents: the entry, its kind's revision, its prompts, its remote models."""
    remote = {name: json.loads(canonical(apis[name])) for name in references(entry) if kind_of(name) == "api"}
    for declared in remote.values():
        for key in ("price_source", "guess", "max_parked"):  # said for people, for planning and for stopping
            del declared[key]
    return json.dumps(
        {
            "entry": json.loads(canonical(entry)),
            "revision": type(entry).revision,
            "prompts": prompts_of(entry),
            "apis": remote,
        },
        sort_keys=True,
        ensure_ascii=False,
    )


def terms(book: "Book") -> str:
    """What calls may cost and how many of them may fail: for jobs to know, and no part of what decides rows."""
    return json.dumps({"budget": book.budget, "max_parked": {name: api.max_parked for name, api in book.apis.items()}})


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
    """The checked and expanded configuration: every artifact's entry, the remote models, the recipes by name, the budget."""

    entries: dict[str, Any]
    apis: dict[str, Any]
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
                    f"{where}: expected <kind>/<name> in small letters, the kind one of {_among(kind_of(str(name)), ENTRY_TYPES)}"
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
                    if kind_of(name) != "api":
                        recipes[recipe].append(name)
    budget = config.get("budget")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int | float) or budget < 0):
        mistakes.append(f"budget: found {budget!r}; expected dollars for all calls together, such as 25.0.")
    mistakes += [m for name, entry in entries.items() for m in _check(f"{homes[name]} > {name}", entry, homes)]
    if not mistakes:
        mistakes += _cycles(entries)
    if not mistakes:
        expand_scores(entries, recipes, mistakes)
        expand_repeats(entries, recipes)
    if mistakes:
        raise RecipeError("\n".join(mistakes))
    apis = {name: entry for name, entry in entries.items() if kind_of(name) == "api"}
    artifacts = {name: entry for name, entry in entries.items() if kind_of(name) != "api"}
    return Book(artifacts, apis, {name: listed for name, listed in recipes.items() if listed}, budget)


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
        return cls(**_underscored(values))
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
                mistakes.append(f"{where}: unknown key `{key}`; expected one of {_among(key, known)}")
            elif e["type"] in ("missing", "missing_argument"):
                mistakes.append(f"{where}: `{key}` is missing; expected {_description(cls, key)}.")
            else:
                message = e["msg"].replace("Input should be", "").strip()
                mistakes.append(f"{where}: `{key}` is {e['input']!r}; expected {message} ({_description(cls, key)}).")
        return None


def _underscored(values: Mapping) -> dict:
    """Config writes `max-tokens`, Python `max_tokens`; the keys of a named mapping (`mix`, `rewards`) are names and stay."""
    inner = {
        "sampling": lambda ways: {way: _underscored(v) if isinstance(v, Mapping) else v for way, v in ways.items()},
        "price": lambda price: {str(key).replace("-", "_"): value for key, value in price.items()},
    }
    plain = {str(key).replace("-", "_"): value for key, value in values.items()}
    return {k: inner[k](v) if k in inner and isinstance(v, Mapping) else v for k, v in plain.items()}


def _description(cls: type, key: str) -> str:
    docs = {f.name.replace("_", "-"): f.default.description for f in fields(cls)}
    return docs.get(key.split(".")[0], "a value")


def _among(found: str, known: Any, limit: int = 8) -> str:
    """The nearest known name first; a short list otherwise."""
    near = difflib.get_close_matches(str(found), [str(k) for k in known], n=1, cutoff=0.6)
    listed = sorted(str(k) for k in known)
    return f"{', '.join(listed[:limit])}{' ...' if len(listed) > limit else ''}" + (
        f". Did you mean `{near[0]}`?" if near else "."
    )


NAMED = {  # which lists of small named things a field of a kind draws on
    ("problems", "keep"): filters.FILTERS,
    ("examples", "keep"): selectors.SELECTORS,
    ("scores", "measures"): measures.MEASURES,
    ("grpo", "rewards"): rewards.REWARDS,
}


def _check(where: str, entry: Any, declared: Mapping) -> Iterator[str]:
    """What one entry gets wrong beyond types: unknown references, names, prompts, and fields that do not go together."""
    kind = next(k for k, cls in ENTRY_TYPES.items() if cls is type(entry))
    hints = get_type_hints(type(entry), include_extras=True)
    for f in fields(entry):
        value, ref = getattr(entry, f.name), ref_of(hints[f.name])
        key = f.name.replace("_", "-")
        if value is not None and ref is not None:
            for name in [value] if isinstance(value, str) else value:
                if "/" not in name and name in ref.kinds:
                    continue
                if kind_of(name) not in ref.kinds or "/" not in name:
                    yield f"{where}: `{key}` is `{name}`; expected {_among(name, ref.kinds, 20)}"
                elif name not in declared:
                    alike = [n for n in declared if kind_of(n) == kind_of(name)]
                    yield f"{where}: `{key}` refers to `{name}`, which no recipe declares; expected one of {_among(name, alike)}"
        if (names := NAMED.get((kind, f.name))) is not None:
            for item in value:
                name = named.name_of(item)
                if not isinstance(item, str) and len(item) != 1:
                    yield f"{where}: `{key}` has an item with {len(item)} names: {', '.join(item)}; expected each as an item of its own."
                elif name not in names:
                    yield f"{where}: `{key}` names `{name}`; expected one of {_among(name, names, 30)}"
                elif kind != "grpo" and (fault := names[name].fault(item)):
                    yield f"{where}: `{key}`: {fault}"
        if f.name in ("prompt", "ask") and value not in prompt_names():
            yield f"{where}: `{key}` is `{value}`, which is no file in prompts/; expected one of {_among(value, prompt_names())}"
    yield from (f"{where}: {fault}" for fault in _FAULTS.get(kind, lambda _: [])(entry))


def _api_faults(entry: Api) -> Iterator[str]:
    paid = isinstance(entry.price, dict) and any(entry.price.values())
    if paid and not re.search(r"\d{4}-\d{2}-\d{2}", entry.price_source):
        yield (
            f"`price-source` is {entry.price_source!r}; expected where the price was read and on which day, such as "
            "`https://example.org/pricing, 2026-11-20`."
        )
    if "response_format" in entry.options or {"model", "messages", "input"} & set(entry.options):
        yield "`options` sets what a question consists of; expected further fields of the request only."


def _problems_faults(entry: Problems) -> Iterator[str]:
    if "/" in entry.source or entry.source not in SOURCES:
        reads = {"rows"}
    else:
        reads = SOURCES[entry.source]
        if {"path", "id"} & reads and not (entry.path or entry.id):
            yield f"source `{entry.source}` needs {' or '.join(sorted({'path', 'id'} & reads))}; expected one of them."
    for f in fields(entry):
        own = {"source", "labels", "grades", "keep", "apart_from", "overlap_words", "overlap_similarity"}
        if f.name not in own | reads and getattr(entry, f.name) not in (f.default.default, [], {}, None):
            yield f"`{f.name}` is not read by source `{entry.source}`; expected only {', '.join(sorted(reads))}. Remove it."
    if entry.source in ("arithmetic", "arithmetic-threads"):
        if entry.rows is None:
            yield f"source `{entry.source}` needs `rows`; expected how many to make."
        if unknown := [family for family in entry.families if family not in arithmetic.FAMILIES]:
            yield f"`families` names `{unknown[0]}`; expected some of {_among(unknown[0], arithmetic.FAMILIES)}"
    if entry.id and not entry.commit:
        yield "a dataset of the hub has `id` and no `commit`; expected the commit that the rows come from. Pin it."
    if any(name in filters.NEEDS_LABELS for name in filters.names_in(entry.keep)) and not entry.labels:
        yield "`keep` asks for labels and `labels` is not given; expected a labels/<name>."
    if "pass-rate" in filters.names_in(entry.keep) and not entry.grades:
        yield "`keep` asks for a pass rate and `grades` is not given; expected a grades/<name>."


def _base_faults(entry: Base) -> Iterator[str]:
    needs = {"scratch": "problems", "folder": "path", "hub": "id"}[entry.source]
    if getattr(entry, needs) is None:
        yield f"source `{entry.source}` needs `{needs}`; expected {_description(Base, needs)}."
    if entry.source == "hub" and not entry.commit:
        yield "source `hub` has no `commit`; expected the commit that the weights come from. Pin it."


def _examples_faults(entry: Examples) -> Iterator[str]:
    given = [key for key in ("problems", "responses", "grades", "mix") if getattr(entry, key)]
    if entry.mix and abs(sum(entry.mix.values()) - 1) > 1e-6:
        yield f"the shares of `mix` add up to {sum(entry.mix.values()):g}; expected 1."
    if entry.mix and entry.keep:
        yield "`keep` stands beside `mix`; expected selectors in the tables that are mixed, before they are mixed."
    if entry.rows and not entry.mix:
        yield "`rows` is for `mix`; expected none here. Use the selector `at-most-per-problem`, or mix with share 1."
    if len(given) != 1:
        yield f"found {' and '.join(given) or 'no source'}; expected exactly one of problems, responses, grades, mix."


def _judged_faults(entry: Grades | Grpo | Scores) -> Iterator[str]:
    judged = entry.grader is not None and kind_of(entry.grader) == "api"
    if judged and not entry.schemes and entry.prompt in prompt_names() and "{scheme}" in prompt_text(entry.prompt):
        yield f"prompt `{entry.prompt}` shows the judge a scheme and `schemes` is not given; expected a schemes/<name>."


def _sft_faults(entry: Sft) -> Iterator[str]:
    if (entry.steps is None) == (entry.epochs is None):
        yield "expected exactly one of `steps` and `epochs`."


def _scores_faults(entry: Scores) -> Iterator[str]:
    yield from _judged_faults(entry)
    if len(set(entry.seeds)) < len(entry.seeds):
        yield f"`seeds` are {entry.seeds}; expected each once."
    for way, sampling in entry.sampling.items():
        if sampling.prompt not in prompt_names():
            known = _among(sampling.prompt, prompt_names())
            yield f"sampling `{way}`: `prompt` is `{sampling.prompt}`, which is no file in prompts/; expected one of {known}"
    of_attempts = [
        m for m in map(named.name_of, entry.measures) if m in measures.MEASURES and measures.MEASURES[m].apply
    ]
    if of_attempts and not (entry.models or entry.grades or entry.repeat):
        yield f"`{of_attempts[0]}` measures attempts and there are none; expected models, grades or repeat."
    if entry.repeat and (not entry.seeds or entry.models or entry.grades or entry.problems):
        yield "`repeat` needs `seeds`, and nothing else that is measured; expected `repeat`, `seeds` and `measures`."
    elif not (entry.repeat or entry.measures):
        yield "`measures` is missing; expected named measures."
    elif not (entry.repeat or entry.models or entry.grades or entry.problems):
        yield "nothing to measure; expected models and problems, grades, problems, or repeat."
    if entry.models and not (entry.problems and entry.sampling and entry.grader):
        yield "`models` needs `problems`, `sampling` and `grader`; expected all four."
    if entry.schemes and len(entry.schemes) != len(entry.problems):
        yield f"{len(entry.schemes)} schemes for {len(entry.problems)} benchmarks; expected a scheme for each, in the same order."


_FAULTS: dict[str, Any] = {
    "api": _api_faults,
    "problems": _problems_faults,
    "grades": _judged_faults,
    "grpo": _judged_faults,
    "base": _base_faults,
    "examples": _examples_faults,
    "sft": _sft_faults,
    "scores": _scores_faults,
}


def _cycles(entries: Mapping[str, Any]) -> Iterator[str]:
    try:
        TopologicalSorter({name: references(entry) for name, entry in entries.items()}).prepare()
    except CycleError as error:
        yield f"entries go round in a circle: {' <- '.join(error.args[1])}; expected each to be made from earlier ones."


def source_files(entry: Any) -> list[Path]:
    """The local files an entry reads that are no artifacts; of a folder all its files."""
    if not getattr(entry, "path", None):
        return []
    path = local_path(entry.path)
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


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
                f"{options.recipe}: no such recipe; expected one of {_among(options.recipe, book.recipes)}"
            )
    except RecipeError as error:
        sys.exit(f"RecipeError: {error}")
    for recipe in [options.recipe] if options.recipe else book.recipes:
        print(f"{recipe}:")
        for name in book.recipes[recipe]:
            print(f"  {name}: {canonical(book.entries[name])}")


if __name__ == "__main__":
    main()

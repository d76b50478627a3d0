"""Check the configuration and expand it into the entry of every artifact.

A name is a path: `sft/cold` is the key in config.yaml, the value of fields that refer to it, and
results/sft/cold.parquet. A recipe is a mapping of entries, and a target. Blocks under `shared` have entries that several
recipes need; they are not targets. A recipe lists in `with` the blocks and recipes that its entries refer to:

    shared:
      benchmarks:
        problems/bench: {...}
    mine:
      with: [benchmarks]
      scores/mine: {problems: [problems/bench], ...}

An entry may copy the fields of another: `{like: grpo/baseline, steps: 100}`. An `sft` may also continue the training of
another: `{continue: sft/x, steps: 40}` is `{like: sft/x, continues: sft/x, steps: 40}`.
This module computes no rows, so importing it is cheap. `python -m proofmill.config` prints the expanded list.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proofmill.config import plugins as plugins_module
from proofmill.config.entry_values import as_number, read_entry
from proofmill.config.expansion import derive_names, expand_repeats, expand_scores, fill_defaults
from proofmill.config.reference_checks import check, cycles
from proofmill.schema.entries.declared import Api
from proofmill.schema.entries.grpo_entry import Grpo
from proofmill.schema.entries.model_entries import Sft
from proofmill.schema.entries.selfplay_entry import Selfplay
from proofmill.schema.errors import RecipeError, short, shorten
from proofmill.schema.kinds import DECLARED, ENTRY_TYPES, KINDS
from proofmill.schema.names import NAME, RECIPE, RESULTS, file_fault, kind_of
from proofmill.schema.references import ancestors, references
from proofmill.text.suggestions import among

# Folders in a results folder, in addition to kinds.
RESULT_FOLDERS = ("calls", "archive", "configurations", "unfinished", "human", "services", "tensorboard")
SETTINGS = ("budget", "plugins", "results")  # top-level keys that are not recipes, in addition to `shared`
WITH, LIKE, CONTINUE = "with", "like", "continue"
# The length of a training; one that continues another sets its own.
LENGTH_FIELDS = ("steps", "epochs", "last-step", "last_step")
STATE_FIELDS = ("save-state", "save_state")


@dataclass(frozen=True)
class Config:
    """The expanded configuration: entries, models and graders, the artifacts of each recipe, and global settings."""

    entries: dict[str, Any]
    declared: dict[str, Any]  # api/... and grader/...
    recipes: dict[str, list[str]]
    budget: float | None = None  # dollars for all calls of one results folder; None: no limit
    plugins: tuple[str, ...] = ()  # files
    results: str = "results"  # the folder of all tables
    faults: Mapping[str, str] = field(default_factory=dict)  # mistakes, by the name of what was left out

    @property
    def terms(self) -> str:
        """The settings of a job in addition to its entry, as JSON: budget, failure limits, transport, plugins, saved states."""
        failed = {name: api.max_failed for name, api in self.declared.items() if isinstance(api, Api)}
        trainings = {name: entry for name, entry in self.entries.items() if isinstance(entry, Grpo | Selfplay)}
        unscored = {name: entry.max_unscored for name, entry in trainings.items()}
        attacks = {
            name: most for name, entry in trainings.items() if (most := getattr(entry, "max_attack", None)) is not None
        }
        ways = {
            name: {field: getattr(api, field) for field in api.transport}
            for name, api in self.declared.items()
            if api.transport
        }
        published = {
            name: rows for name, entry in self.entries.items() if (rows := getattr(entry, "published_rows", None))
        }
        failing = {"max_failed": failed, "max_unscored": unscored, "max_attack": attacks}
        return json.dumps(
            {
                "budget": self.budget,
                **failing,
                "published_rows": published,
                "transport": ways,
                "plugins": self.plugins,
                "states": self.states,
            }
        )

    @property
    def states(self) -> list[str]:
        """The trainings that save their state, because `save-state` is set or another training continues them."""
        trainings = {name: entry for name, entry in self.entries.items() if isinstance(entry, Sft)}
        continued = {entry.continues for entry in trainings.values()}
        return sorted(name for name, entry in trainings.items() if entry.save_state or name in continued)

    def list_target(self, target: str) -> list[str]:
        """Return the artifacts of a target: a recipe, the name of an artifact, or the path of its table.

        Raises RecipeError for an unknown target and for one with a mistake.
        """
        name = target.removeprefix(f"{self.results}/").removesuffix(".parquet")
        if target in self.faults or name in self.faults:
            raise RecipeError(self.faults.get(target) or self.faults[name])
        if target in self.recipes:
            return self.recipes[target]
        if name not in self.entries:
            known = [*self.recipes, *(entry for entry in self.entries if kind_of(entry) == kind_of(name))]
            raise RecipeError(
                f"{target}: neither a recipe nor an artifact; expected one of {among(name, known)} See: snakemake --list"
            )
        return [name]


@dataclass(frozen=True)
class _Block:
    """A recipe or shared block as written, before expansion."""

    name: str
    entries: Mapping[str, Any]
    requires: list[str]
    shared: bool

    def where(self, entry: str) -> str:
        """Return the place of an entry, for messages."""
        return f"{'shared > ' * self.shared}{self.name} > {short(str(entry))}"


class _Mistakes:
    """Mistakes of the configuration (`whole`) and of entries by name (`of`); each begins with its place."""

    def __init__(self) -> None:
        self.whole: list[str] = []
        self.of: defaultdict[str, list[str]] = defaultdict(list)

    def __bool__(self) -> bool:
        return bool(self.whole or self.of)

    def all(self) -> list[str]:
        """Return all mistakes."""
        return [*self.whole, *(mistake for mistakes in self.of.values() for mistake in mistakes)]


def expand(config: Mapping, drafts: bool = False) -> Config:
    """Check and expand the configuration. Raises RecipeError with all mistakes.

    With `drafts`, entries with mistakes and entries that need them are left out, with the mistakes in `Config.faults`. Other
    targets can be built meanwhile.
    """
    plugins_module.use(config.get("plugins", []))
    with plugins_module.blamed():
        return _expand(config, drafts)


def _expand(config: Mapping, drafts: bool) -> Config:
    mistakes = _Mistakes()
    blocks = {block.name: block for block in _read_blocks(config, mistakes.whole)}
    mistakes.whole += [*_number_faults(config), *_settings_faults(config)]
    entries, homes = _read_entries(blocks, mistakes)
    if drafts and not mistakes.whole:
        _remove_faulty(entries, mistakes)
    sound = not mistakes or (drafts and not mistakes.whole)
    recipes = _list_recipes(blocks, entries) if sound else {}
    if sound:
        expand_scores(entries, recipes, mistakes.whole)
        mistakes.whole += cycles(entries)  # through a derived name
    if sound and not mistakes.whole:
        expand_repeats(entries, recipes)
        fill_defaults(entries)
    for name in entries:
        if kind_of(name) not in DECLARED and (fault := file_fault(name)):
            mistakes.whole.append(f"{homes[name].where(name) if name in homes else name}: {fault}")
    if mistakes.whole or not (drafts or not mistakes):
        raise RecipeError("\n".join(mistakes.all()))
    declared = {name: entry for name, entry in entries.items() if kind_of(name) in DECLARED}
    artifacts = {name: entry for name, entry in entries.items() if name not in declared}
    faults = {name: _join(own) for name, own in mistakes.of.items()}
    for block in blocks.values():
        left_out = [mistake for name in map(str, block.entries) for mistake in mistakes.of.get(name, ())]
        if left_out and not block.shared:
            faults[block.name] = _join(left_out)
    listed = {name: names for name, names in recipes.items() if names or name in faults}
    plugins, results = tuple(config.get("plugins", [])), config.get("results", "results")
    return Config(artifacts, declared, listed, as_number(config.get("budget")), plugins, results, faults)


def _join(mistakes: list[str]) -> str:
    return "\n".join(dict.fromkeys(mistakes))


def _settings_faults(config: Mapping) -> Iterator[str]:
    budget, results = as_number(config.get("budget")), config.get("results", "results")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int | float) or budget < 0):
        yield f"budget: found {budget!r}; expected a number of dollars for all calls together, such as 25.0. Set one, or remove it."
    if not isinstance(results, str) or not (results and RESULTS.match(results)):
        yield (
            f"results: found {results!r}; expected the path of a folder, such as `results` or `/scratch/me/mill`, from letters, "
            "digits, `-`, `_`, `.` and `/`. Set another one."
        )
    elif fault := _place_fault(Path(results)):
        yield f"results: `{results}` {fault}; expected a new or empty folder, or one of an earlier run. Set another."


def _place_fault(results: Path) -> str | None:
    """Return why a folder cannot be the results folder: it is unreadable, or has only files of other origin; else None."""
    try:
        files = [path for path in results.iterdir() if not path.name.startswith(".")]
        ours = {path.name for path in files if path.is_dir()} & {*KINDS, *RESULT_FOLDERS}
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be read as a folder ({error.strerror})"
    return "has other files" if files and not ours else None


def _read_entries(blocks: Mapping[str, _Block], mistakes: _Mistakes) -> tuple[dict[str, Any], dict[str, _Block]]:
    """Return the entries that could be read, and the block of each name. Checks each entry and their references."""
    homes: dict[str, _Block] = {}
    written: dict[str, Any] = {}
    for block in blocks.values():
        for name, values in block.entries.items():
            if fault := _name_fault(name, homes):
                mistakes.of[str(name)].append(f"{block.where(name)}: {fault}")
            else:
                homes[name], written[name] = block, values
    entries: dict[str, Any] = {}
    for name, block in homes.items():
        where = block.where(name)
        values = _resolve_like(name, written, where, mistakes.of[name])
        entry = read_entry(where, ENTRY_TYPES[kind_of(name)], values, mistakes.of[name])
        if entry is not None:
            entries[name] = entry
    known = {name: homes[by] for name, by in derive_names(entries).items()} | homes
    for name, entry in entries.items():
        mistakes.of[name] += check(homes[name].where(name), entry, entries, known)
        mistakes.of[name] += _scope_faults(name, entry, written[name], known, blocks)
    mistakes.of = defaultdict(list, {name: own for name, own in mistakes.of.items() if own})
    if not mistakes:
        mistakes.whole += cycles(entries)
    return entries, homes


def _remove_faulty(entries: dict[str, Any], mistakes: _Mistakes) -> None:
    """Remove entries with mistakes, and those that need them, directly or not. The latter get the same mistakes."""
    faulty, derived = set(mistakes.of), derive_names(entries)
    while faulty:
        for name in faulty:
            entries.pop(name, None)
        needed_by = {
            name: [derived.get(other, other) for other in references(entry)] for name, entry in entries.items()
        }
        needing = {name: [other for other in needed if other in faulty] for name, needed in needed_by.items()}
        faulty = {name for name, needed in needing.items() if needed}
        for name in faulty:
            mistakes.of[name] = [mistake for other in needing[name] for mistake in mistakes.of[other]]
    mistakes.whole += cycles(entries)


def _read_blocks(config: Mapping, mistakes: list[str]) -> Iterator[_Block]:
    """Yield the recipes and shared blocks of a configuration."""
    shared = config.get("shared", {})
    if not isinstance(shared, Mapping):
        mistakes.append(f"shared: found {shared!r}; expected a mapping of blocks of entries.")
        shared = {}
    recipes = {name: entries for name, entries in config.items() if name not in (*SETTINGS, "shared")}
    for mapping, is_shared in ((shared, True), (recipes, False)):
        for name, entries in mapping.items():
            if str(name).startswith("_"):
                continue
            if not (isinstance(name, str) and RECIPE.match(name)) or name in KINDS:
                mistakes.append(
                    f"{short(str(name))}: has the name {shorten(name)}; expected letters, digits, `-`, `_` and `.`, "
                    "a letter first, and not the name of a kind. Rename it."
                )
                continue
            if not isinstance(entries, Mapping):
                mistakes.append(
                    f"{name}: found {entries!r}; expected a mapping of entries (or a key that begins with _)."
                )
                continue
            if not is_shared and name in shared:
                mistakes.append(
                    f"{name}: is the name of a recipe and of a shared block; expected different names. Rename one of them."
                )
            requires = entries.get(WITH) or []
            known_names = {*shared, *recipes}
            if not isinstance(requires, list) or (unknown := [n for n in requires if str(n) not in known_names]):
                wrong = requires if not isinstance(requires, list) else f"`{unknown[0]}`"
                known = among(str(wrong), [n for n in (*shared, *recipes) if n != name])
                mistakes.append(
                    f"{name}: `{WITH}` names {wrong}; expected some of {known} Declare it, or fix the name."
                )
                requires = []
            yield _Block(name, {key: value for key, value in entries.items() if key != WITH}, requires, is_shared)


def _number_faults(config: Any) -> Iterator[str]:
    """Yield mistakes for numbers anywhere that are infinite, NaN, or at least 2^63."""
    pending, seen = [("", config)], set()
    while pending:
        where, value = pending.pop()
        if isinstance(value, Mapping | list) and id(value) not in seen:
            seen.add(id(value))  # a YAML alias may contain itself
            items = value.items() if isinstance(value, Mapping) else enumerate(value, 1)
            pending += ((f"{where} > {short(str(key))}" if where else short(str(key)), inner) for key, inner in items)
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{where}: found {value}; expected a finite number. Write another one."
        elif isinstance(value, int) and abs(value) >= 2**63:
            yield f"{where}: found {shorten(value)}; expected a number below 2^63. Write another one."


def _name_fault(name: Any, homes: Mapping[str, _Block]) -> str | None:
    """Return the fault in the name of an entry, or None."""
    if isinstance(name, str) and kind_of(name) in ENTRY_TYPES and "/" in name and not NAME.match(name):
        right = re.sub(r"[^a-z0-9.-]+", "-", name.partition("/")[2].lower()).strip("-.")
        return (
            f"has the name `{short(name.partition('/')[2])}`; expected lower-case letters, digits, `-` and `.` after `{kind_of(name)}/`, a letter or digit first. "
            f"{f'Rename it to `{kind_of(name)}/{right}`.' if right else 'Rename it.'}"
        )
    if not (isinstance(name, str) and NAME.match(name)) or kind_of(name) not in ENTRY_TYPES:
        return f"has the kind `{short(kind_of(str(name)))}`; expected <kind>/<name> in lower-case letters, with a kind of {among(kind_of(str(name)), ENTRY_TYPES)}"
    if name in homes:
        return f"also declared in `{homes[name].name}`; expected each name once. Rename one of them."
    return None


def _resolve_like(
    name: str, written: Mapping[str, Any], where: str, mistakes: list[str], seen: tuple[str, ...] = ()
) -> Any:
    """Return the values of an entry, merged onto those of the entry that its `like` names."""
    values = written[name]
    ways = (CONTINUE, LIKE) if kind_of(name) == "sft" else (LIKE,)
    way = next((way for way in ways if isinstance(values, Mapping) and way in values), None)
    if way is None:
        return values
    own = {key: value for key, value in values.items() if key != way}
    other = values[way]
    if other in (name, *seen) or kind_of(str(other)) != kind_of(name) or other not in written:
        known = among(str(other), [n for n in written if kind_of(n) == kind_of(name) and n != name])
        mistakes.append(f"{where}: `{way}` is `{other}`; expected another entry of its kind, one of {known}")
        return own
    base = _resolve_like(other, written, where, mistakes, (name, *seen))
    if not isinstance(base, Mapping):
        return own
    if way == CONTINUE:
        replaced = {*STATE_FIELDS, *(LENGTH_FIELDS if {"steps", "epochs"} & {*own} else ())}
        base = {key: value for key, value in base.items() if key not in replaced}
        own["continues"] = other
    return {**base, **own}


def _scope_faults(
    name: str, entry: Any, values: Mapping[str, Any], homes: Mapping[str, _Block], blocks: Mapping[str, _Block]
) -> Iterator[str]:
    """Yield mistakes for references to blocks or recipes that the `with` of the entry's block does not include."""
    home = homes[name]
    for other in dict.fromkeys([str(values.get(LIKE)), *references(entry)]):
        target = homes.get(other)
        if target is not None and target is not home and target.name not in _reachable(home, blocks):
            yield (
                f"{home.where(name)}: refers to `{other}` of {'the shared block' if target.shared else 'the recipe'} "
                f"`{target.name}`; expected `{WITH}: [{', '.join([*home.requires, target.name])}]` in {home.name}. Add it."
            )


def _reachable(block: _Block, blocks: Mapping[str, _Block]) -> set[str]:
    """Return the names of the blocks that a block lists in `with`, directly or not."""
    reached: set[str] = set()
    pending = [*block.requires]
    while pending:
        if (name := pending.pop()) not in reached:
            reached.add(name)
            pending.extend(blocks[name].requires if name in blocks else [])
    return reached


def _list_recipes(blocks: Mapping[str, _Block], entries: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the artifacts of each recipe: those of shared blocks that it needs, then its own."""
    recipes: dict[str, list[str]] = {}
    shared = [name for block in blocks.values() if block.shared for name in block.entries if name in entries]
    for block in blocks.values():
        own = [name for name in block.entries if name in entries and kind_of(name) not in DECLARED]
        if not block.shared:
            needed = {other for name in own for other in ancestors(entries, name)}
            recipes[block.name] = [name for name in shared if name in needed] + own
    return recipes

"""The book of recipes: the configuration, checked and expanded into every artifact's entry.

A name is a path: `sft/cold` is the key in config.yaml, the value of fields that refer to it, and
results/sft/cold.parquet. A recipe is a mapping of entries and a target. Blocks under `shared` hold what several recipes
need, and are no targets. A recipe lists in `with` the blocks and other recipes that its entries refer to:

    shared:
      benchmarks:
        problems/bench: {...}
    mine:
      with: [benchmarks]
      scores/mine: {problems: [problems/bench], ...}

An entry may begin with the fields of another: `{like: grpo/baseline, steps: 100}`. An `sft` may also go on from the
training of another: `{continue: sft/x, steps: 40}` is `{like: sft/x, continues: sft/x, steps: 40}`.
This module computes no rows, so importing it is cheap. `python -m proofmill.recipes` prints the expanded list.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proofmill.recipes import plugins as plugins_module
from proofmill.recipes.checks import check, cycles
from proofmill.recipes.entry_values import as_number, read_entry
from proofmill.recipes.expansion import expand_repeats, expand_scores, fill_defaults
from proofmill.schema.declared import Api
from proofmill.schema.errors import RecipeError, short, shown
from proofmill.schema.kinds import DECLARED, ENTRY_TYPES, KINDS
from proofmill.schema.model_entries import Grpo, Sft
from proofmill.schema.names import NAME, RECIPE, RESULTS, file_fault, kind_of
from proofmill.schema.references import ancestors, references
from proofmill.schema.selfplay_entry import Selfplay
from proofmill.text.suggestions import among

OF_RESULTS = (
    "calls",
    "configurations",
    "kept",
    "unfinished",
    "human",
    "services",
    "tensorboard",
)  # in a results folder, besides kinds
SETTINGS = ("budget", "plugins", "results")  # top-level keys that name no recipe, besides `shared`
WITH, LIKE, CONTINUE = "with", "like", "continue"
LENGTH = ("steps", "epochs", "last-step", "last_step")  # of a training; one that goes on has its own
KEEPING = ("keep-state", "keep_state")


@dataclass(frozen=True)
class Book:
    """Every artifact's entry, models and graders, the artifacts of each recipe, and what holds for all of them."""

    entries: dict[str, Any]
    declared: dict[str, Any]  # api/... and grader/...
    recipes: dict[str, list[str]]
    budget: float | None = None  # dollars for all calls under one results folder; None is no limit
    plugins: tuple[str, ...] = ()  # the user's own parts
    results: str = "results"  # the folder of all tables
    faults: Mapping[str, str] = field(default_factory=dict)  # of entries and recipes that were left out: the mistakes

    @property
    def terms(self) -> str:
        """Return the settings of a job next to its entry, as JSON: budget, limits of failures, transport, own parts."""
        parked = {name: api.max_parked for name, api in self.declared.items() if isinstance(api, Api)}
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
        failing = {"max_parked": parked, "max_unscored": unscored, "max_attack": attacks}
        return json.dumps(
            {"budget": self.budget, **failing, "transport": ways, "plugins": self.plugins, "states": self.states}
        )

    @property
    def states(self) -> list[str]:
        """The trainings whose state is kept, because their entry asks for it or another goes on from them."""
        trainings = {name: entry for name, entry in self.entries.items() if isinstance(entry, Sft)}
        going_on = {entry.continues for entry in trainings.values()}
        return sorted(name for name, entry in trainings.items() if entry.keep_state or name in going_on)

    def targeted(self, target: str) -> list[str]:
        """The artifacts that a target names: those of a recipe, one by its name, or one by the path of its table.

        Raises RecipeError for a target that nothing declares, and for one with a mistake.
        """
        name = target.removeprefix(f"{self.results}/").removesuffix(".parquet")
        if target in self.faults or name in self.faults:
            raise RecipeError(self.faults.get(target) or self.faults[name])
        if target in self.recipes:
            return self.recipes[target]
        if name not in self.entries:
            known = [*self.recipes, *(entry for entry in self.entries if kind_of(entry) == kind_of(name))]
            raise RecipeError(f"{target}: no recipe and no artifact; expected one of {among(name, known)}")
        return [name]


@dataclass(frozen=True)
class _Block:
    """A recipe or shared block as written, before expansion."""

    name: str
    entries: Mapping[str, Any]
    leans_on: list[str]
    shared: bool

    def where(self, entry: str) -> str:
        return f"{'shared > ' * self.shared}{self.name} > {short(str(entry))}"


class _Mistakes:
    """Mistakes of the configuration as a whole, and by the name of an entry; each says where it is."""

    def __init__(self) -> None:
        self.whole: list[str] = []
        self.of: defaultdict[str, list[str]] = defaultdict(list)

    def __bool__(self) -> bool:
        return bool(self.whole or self.of)

    def all(self) -> list[str]:
        return [*self.whole, *(mistake for mistakes in self.of.values() for mistake in mistakes)]


def expand(config: Mapping, drafts: bool = False) -> Book:
    """Check the whole configuration and expand it. Raises RecipeError with all mistakes.

    With `drafts`, an entry with a mistake is left out with all that needs it, and the mistakes stand in `Book.faults`:
    whoever asks for something else need not wait until they are mended.
    """
    plugins_module.use(config.get("plugins", []))
    with plugins_module.blamed():
        return _expanded(config, drafts)


def _expanded(config: Mapping, drafts: bool) -> Book:
    mistakes = _Mistakes()
    blocks = {block.name: block for block in _blocks(config, mistakes.whole)}
    mistakes.whole += [*_endless(config), *_settings_faults(config)]
    entries, homes = _entries(blocks, mistakes)
    if drafts and not mistakes.whole:
        _leave_out(entries, mistakes)
    sound = not mistakes or (drafts and not mistakes.whole)
    recipes = _recipes(blocks, entries) if sound else {}
    if sound:
        expand_scores(entries, recipes, mistakes.whole)
        expand_repeats(entries, recipes)
        fill_defaults(entries)
    for name in entries:
        if kind_of(name) not in DECLARED and (fault := file_fault(name)):
            mistakes.whole.append(f"{homes[name].where(name) if name in homes else name}: {fault}")
    if mistakes.whole or not (drafts or not mistakes):
        raise RecipeError("\n".join(mistakes.all()))
    declared = {name: entry for name, entry in entries.items() if kind_of(name) in DECLARED}
    artifacts = {name: entry for name, entry in entries.items() if name not in declared}
    faults = {name: _lines(found) for name, found in mistakes.of.items()}
    for block in blocks.values():
        left_out = [mistake for name in map(str, block.entries) for mistake in mistakes.of.get(name, ())]
        if left_out and not block.shared:
            faults[block.name] = _lines(left_out)
    listed = {name: names for name, names in recipes.items() if names or name in faults}
    plugins, results = tuple(config.get("plugins", [])), config.get("results", "results")
    return Book(artifacts, declared, listed, as_number(config.get("budget")), plugins, results, faults)


def _lines(mistakes: list[str]) -> str:
    return "\n".join(dict.fromkeys(mistakes))


def _settings_faults(config: Mapping) -> Iterator[str]:
    budget, results = as_number(config.get("budget")), config.get("results", "results")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int | float) or budget < 0):
        yield f"budget: found {budget!r}; expected dollars for all calls together, such as 25.0."
    if not isinstance(results, str) or not (results and RESULTS.match(results)):
        yield (
            f"results: found {results!r}; expected a folder for all tables, such as `results` or `/scratch/me/mill`, of letters, "
            "digits, `-`, `_`, `.` and `/`."
        )
    elif fault := _place_fault(Path(results)):
        yield f"results: `{results}` {fault}; expected a new or empty folder, or one of earlier runs. Name another."


def _place_fault(results: Path) -> str | None:
    """Return why tables cannot be in a folder: it is none, or has files and none of them is of a run."""
    try:
        found = [path for path in results.iterdir() if not path.name.startswith(".")]
        ours = {path.name for path in found if path.is_dir()} & {*KINDS, *OF_RESULTS}
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be read as a folder ({error.strerror})"
    return "has files of others" if found and not ours else None


def _entries(blocks: Mapping[str, _Block], mistakes: _Mistakes) -> tuple[dict[str, Any], dict[str, _Block]]:
    """The entries that could be read, and the block of each name; they are checked one by one and together."""
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
        values = _like(name, written, where, mistakes.of[name])
        entry = read_entry(where, ENTRY_TYPES[kind_of(name)], values, mistakes.of[name])
        if entry is not None:
            entries[name] = entry
    for name, entry in entries.items():
        mistakes.of[name] += check(homes[name].where(name), entry, entries, homes)
        mistakes.of[name] += _unseen(name, entry, written[name], homes, blocks)
    mistakes.of = defaultdict(list, {name: found for name, found in mistakes.of.items() if found})
    if not mistakes:
        mistakes.whole += cycles(entries)
    return entries, homes


def _leave_out(entries: dict[str, Any], mistakes: _Mistakes) -> None:
    """Take out the entries with mistakes, and those that need them, however far behind: theirs are the same mistakes."""
    faulty = set(mistakes.of)
    while faulty:
        for name in faulty:
            entries.pop(name, None)
        needing = {name: [other for other in references(entry) if other in faulty] for name, entry in entries.items()}
        faulty = {name for name, needed in needing.items() if needed}
        for name in faulty:
            mistakes.of[name] = [mistake for other in needing[name] for mistake in mistakes.of[other]]
    mistakes.whole += cycles(entries)


def _blocks(config: Mapping, mistakes: list[str]) -> Iterator[_Block]:
    """The recipes and shared blocks of a configuration."""
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
                    f"{short(str(name))}: is called {shown(name)}; expected a name of letters, digits, `-`, `_` and `.` that "
                    "begins with a letter and is no kind. Rename it."
                )
                continue
            if not isinstance(entries, Mapping):
                mistakes.append(
                    f"{name}: found {entries!r}; expected a mapping of entries (or a key that begins with _)."
                )
                continue
            if not is_shared and name in shared:
                mistakes.append(f"{name}: is a recipe and a shared block; expected two names. Rename one of the two.")
            leans_on = entries.get(WITH) or []
            known_names = {*shared, *recipes}
            if not isinstance(leans_on, list) or (unknown := [n for n in leans_on if str(n) not in known_names]):
                found = leans_on if not isinstance(leans_on, list) else f"`{unknown[0]}`"
                known = among(str(found), [n for n in (*shared, *recipes) if n != name])
                mistakes.append(f"{name}: `{WITH}` names {found}; expected some of {known}")
                leans_on = []
            yield _Block(name, {key: value for key, value in entries.items() if key != WITH}, leans_on, is_shared)


def _endless(config: Any) -> Iterator[str]:
    """Mistakes for numbers that are infinite, no numbers at all, or larger than any machine counts, wherever they stand."""
    pending, seen = [("", config)], set()
    while pending:
        where, value = pending.pop()
        if isinstance(value, Mapping | list) and id(value) not in seen:
            seen.add(id(value))  # an alias of YAML may contain itself
            items = value.items() if isinstance(value, Mapping) else enumerate(value, 1)
            pending += ((f"{where} > {short(str(key))}" if where else short(str(key)), inner) for key, inner in items)
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{where}: found {value}; expected a number that is finite."
        elif isinstance(value, int) and abs(value) >= 2**63:
            yield f"{where}: found {shown(value)}; expected a number below 2^63."


def _name_fault(name: Any, homes: Mapping[str, _Block]) -> str | None:
    """The fault in the name of an entry, or None."""
    if isinstance(name, str) and kind_of(name) in ENTRY_TYPES and "/" in name and not NAME.match(name):
        right = re.sub(r"[^a-z0-9.-]+", "-", name.partition("/")[2].lower()).strip("-.")
        return (
            f"expected small letters, digits, `-` and `.` after `{kind_of(name)}/`, the first a letter or digit. "
            f"{f'Call it `{kind_of(name)}/{right}`.' if right else 'Rename it.'}"
        )
    if not (isinstance(name, str) and NAME.match(name)) or kind_of(name) not in ENTRY_TYPES:
        return f"expected <kind>/<name> in small letters, the kind one of {among(kind_of(str(name)), ENTRY_TYPES)}"
    if name in homes:
        return f"declared in `{homes[name].name}` too; expected each name once. Rename one of the two."
    return None


def _like(name: str, written: Mapping[str, Any], where: str, mistakes: list[str], seen: tuple[str, ...] = ()) -> Any:
    """The values of an entry, laid over those of the entry that its `like` names."""
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
    base = _like(other, written, where, mistakes, (name, *seen))
    if not isinstance(base, Mapping):
        return own
    if way == CONTINUE:
        replaced = {*KEEPING, *(LENGTH if {"steps", "epochs"} & {*own} else ())}
        base = {key: value for key, value in base.items() if key not in replaced}
        own["continues"] = other
    return {**base, **own}


def _unseen(
    name: str, entry: Any, values: Mapping[str, Any], homes: Mapping[str, _Block], blocks: Mapping[str, _Block]
) -> Iterator[str]:
    """Mistakes of references to a block or recipe that the `with` of the entry's own block does not reach."""
    home = homes[name]
    for other in dict.fromkeys([str(values.get(LIKE)), *references(entry)]):
        target = homes.get(other)
        if target is not None and target is not home and target.name not in _reached(home, blocks):
            yield (
                f"{home.where(name)}: refers to `{other}` of {'the shared block' if target.shared else 'the recipe'} "
                f"`{target.name}`; expected `{WITH}: [{', '.join([*home.leans_on, target.name])}]` in {home.name}. Add it."
            )


def _reached(block: _Block, blocks: Mapping[str, _Block]) -> set[str]:
    """Names of the blocks that a block lists in `with`, and of those that they list, and so on."""
    reached: set[str] = set()
    pending = [*block.leans_on]
    while pending:
        if (name := pending.pop()) not in reached:
            reached.add(name)
            pending.extend(blocks[name].leans_on if name in blocks else [])
    return reached


def _recipes(blocks: Mapping[str, _Block], entries: Mapping[str, Any]) -> dict[str, list[str]]:
    """The artifacts of each recipe: those of shared blocks that it is made from, then its own."""
    recipes: dict[str, list[str]] = {}
    shared = [name for block in blocks.values() if block.shared for name in block.entries if name in entries]
    for block in blocks.values():
        own = [name for name in block.entries if name in entries and kind_of(name) not in DECLARED]
        if not block.shared:
            needed = {other for name in own for other in ancestors(entries, name)}
            recipes[block.name] = [name for name in shared if name in needed] + own
    return recipes

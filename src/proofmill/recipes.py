"""One entry of a recipe is one artifact: its kind's dataclass is at once the config schema, the defaults and the manual.

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
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_type_hints

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from proofmill import arithmetic, filters, measures, rewards, selectors

PROMPTS = Path(__file__).parent / "prompts"
NAME = re.compile(r"^[a-z]+/[a-z0-9][a-z0-9.-]*$")


class RecipeError(Exception):
    """A mistake in the configuration. The message reads: where: what was found; expected what. What to do."""


# ------------------------------------------------------------------------------------------------------ what an entry is


class Ref:
    """Marks a field as a reference to another entry of one of `kinds`: an edge of the pipeline."""

    def __init__(self, *kinds: str):
        self.kinds = kinds


ProblemsRef = Annotated[str, Ref("problems")]
Judge = Annotated[str, Ref("api")]
Model = Annotated[str, Ref("api", "base", "sft", "grpo")]
Weights = Annotated[str, Ref("base", "sft", "grpo")]
Strict = ConfigDict(extra="forbid", strict=True)
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
# A list such as `keep: [has-problem, {length: [20, 4000]}]`: a name, or a name with its argument.
Named = list[str | dict[str, Any]]


def doc(text: str, default: Any = ..., **limits: Any) -> Any:
    """A field with its sentence in the manual; lists and mappings default to empty ones."""
    if default in ([], {}):
        return Field(default_factory=type(default), description=text, **limits)
    return Field(default, description=text, **limits)


@dataclass(frozen=True, config=Strict)
class Api:
    """A remote model: what it is called and what it costs. Its address, key and rate limits are in the environment."""

    id: str = doc("the model's id as the server knows it")
    price: dict[str, float] | Literal["unknown"] = doc(
        "dollars per million tokens, `{input: , output: }`, or `unknown`, which must be said aloud"
    )
    price_source: str = doc("where the price was read, and when", "")
    program: Literal["referee"] | None = doc("a program of this project that a job starts and stops for itself", None)
    max_tokens: Count = doc("the most tokens one answer may have", 4096)
    temperature: float | None = doc("sampling temperature when judging; none leaves it to the server", None, ge=0)
    delimiters: list[str] = doc("marks that end the reasoning part of an answer, in the order tried", [])


# Which fields a source reads besides `keep` and its company; `problems` refuses the others.
SOURCES: dict[str, set[str]] = {
    "arithmetic": {"part", "families", "rows", "seed"},
    "arithmetic-threads": {"part", "families", "rows", "seed"},
    "aops-threads": {"path", "rows"},
    "aops": {"path", "id", "commit", "config", "split", "rows"},
    "harp": {"path", "rows"},
    "proofbench": {"path", "id", "commit", "config", "split", "rows"},
    "answerbench": {"path", "id", "commit", "config", "split", "rows"},
    "gsm8k": {"path", "id", "commit", "config", "split", "rows"},
    "math": {"path", "id", "commit", "config", "split", "rows"},
    "aime": {"path", "id", "commit", "config", "split", "rows"},
    "usamo": {"path", "rows"},
    "hub": {"id", "commit", "config", "split", "columns", "rows"},
    "table": {"path", "columns", "rows"},
}


@dataclass(frozen=True, config=Strict)
class Problems:
    """A problem a row, kept or dropped with the reason: from a source or another table, through named filters."""

    revision: ClassVar[int] = 1
    source: Annotated[str, Ref("problems", *SOURCES)] = doc("a loader by name, or another `problems/<name>`")
    path: str | None = doc(
        "a local file or folder; `${VARIABLES}` come from the environment and are not identity", None
    )
    id: str | None = doc("a dataset's hub id", None)
    commit: str | None = doc("the pinned commit of the dataset; required with `id`", None)
    config: str | None = doc("the dataset's configuration on the hub", None)
    split: str = doc("the dataset's split on the hub", "train")
    columns: dict[str, str] = doc("our column: their column, for `hub` and `table`", {})
    part: Literal["train", "dev", "test"] = doc("which of the three disjoint parts (arithmetic only)", "train")
    families: list[str] = doc("problem families (arithmetic only); empty means all", [])
    rows: Count | None = doc("read at most so many", None)
    seed: int = doc("of the generator (arithmetic only)", 0)
    labels: Annotated[str, Ref("labels")] | None = doc("a judge's classification, which filters may ask", None)
    grades: Annotated[str, Ref("grades")] | None = doc("graded attempts, from which filters know the pass rate", None)
    keep: Named = doc("filters in the order they are asked; the first that refuses a row names it", [])
    apart_from: list[ProblemsRef] = doc("drop what also stands in these tables (decontamination)", [])
    overlap_words: Count = doc("shared run of this many words that counts as the same text (`apart-from`)", 13)
    overlap_similarity: Share = doc("Jaccard similarity that counts as the same text (`apart-from`)", 0.9)


@dataclass(frozen=True, config=Strict)
class Labels:
    """A judge's classification of a problem a row: the fields that filters over labels ask for."""

    revision: ClassVar[int] = 1
    problems: ProblemsRef = doc("whose kept rows are classified")
    model: Judge = doc("the judge")
    prompt: str = doc("a prompt by name", "classify")


@dataclass(frozen=True, config=Strict)
class Schemes:
    """A 0-7 marking scheme a row, written by a judge, or taken from the guidelines the problems came with."""

    revision: ClassVar[int] = 1
    problems: ProblemsRef = doc("whose kept rows get a scheme")
    model: Judge | None = doc("the judge that writes; without one the problems' own guidelines are taken", None)
    prompt: str = doc("a prompt by name", "scheme")


@dataclass(frozen=True, config=Strict)
class Base:
    """A file of a model's weights a row: from the hub, from a folder, or a tiny model made here from random numbers."""

    revision: ClassVar[int] = 1
    source: Literal["scratch", "folder", "hub"] = doc("where the weights come from")
    path: str | None = doc("the folder; `${VARIABLES}` come from the environment", None)
    id: str | None = doc("the hub id", None)
    commit: str | None = doc("the pinned commit on the hub", None)
    problems: ProblemsRef | None = doc("text from which a scratch model's tokenizer is trained", None)
    vocabulary: int = doc("tokens of a scratch model's byte-level BPE", 350, ge=270)
    hidden: Count = doc("hidden size (scratch)", 64)
    layers: Count = doc("layers (scratch)", 3)
    heads: Count = doc("attention heads of 32 dimensions (scratch)", 2)
    feed_forward: Count = doc("feed-forward size (scratch)", 192)
    initializer_range: float = doc(
        "standard deviation of the first weights; 0.02 learns nothing at this size", 0.08, gt=0
    )
    context: Count = doc("longest sequence (scratch)", 512)
    seed: int = doc("of the first weights (scratch)", 0)


@dataclass(frozen=True, config=Strict)
class Responses:
    """One attempt at a problem a row, with why it stopped, its tokens and its cost."""

    revision: ClassVar[int] = 1
    problems: ProblemsRef = doc("whose kept rows are attempted")
    model: Model = doc("the solver")
    prompt: str = doc("a prompt by name", "solve")
    attempts: Count = doc("for each problem", 1)
    temperature: float = doc("0 is greedy", 1.0, ge=0)
    top_p: float = doc("nucleus sampling", 1.0, gt=0, le=1)
    max_tokens: Count = doc("the most tokens of one answer", 128)
    seed: int = doc("of the sampling", 0)


@dataclass(frozen=True, config=Strict)
class Grades:
    """One verdict on a response a row: a mark out of `out_of`, or none with the reason."""

    revision: ClassVar[int] = 1
    responses: Annotated[str, Ref("responses")] = doc("the attempts to grade")
    schemes: Annotated[str, Ref("schemes")] | None = doc("the marking schemes the judge is shown", None)
    grader: Annotated[str, Ref("api", "arithmetic")] = doc(
        "a judge `api/<name>`, or the program `arithmetic` that checks proofs of that family line by line"
    )
    prompt: str = doc("the judge's prompt by name", "grade-of-7")


@dataclass(frozen=True, config=Strict)
class Examples:
    """A training row, kept or dropped with the reason: from problems' own solutions, responses or grades, or a mixture."""

    revision: ClassVar[int] = 1
    problems: ProblemsRef | None = doc("take the problems' own solutions", None)
    responses: Annotated[str, Ref("responses")] | None = doc("take attempts as they are", None)
    grades: Annotated[str, Ref("grades")] | None = doc("take graded attempts", None)
    mix: dict[Annotated[str, Ref("examples")], Share] = doc("take other examples in these shares", {})
    keep: Named = doc("selectors in the order they are asked; the first that refuses a row names it", [])
    prompt: str = doc("the solver's prompt by name", "solve")
    rows: Count | None = doc("how many rows a mixture has; without it, as many as the shares allow", None)
    seed: int = doc("of the order of rows", 0)


@dataclass(frozen=True, config=Strict)
class Sft:
    """A measured training step a row; the weights stand beside the table."""

    revision: ClassVar[int] = 1
    model: Weights = doc("where training starts")
    examples: Annotated[str, Ref("examples")] = doc("whose kept rows are learned, the answer only")
    steps: Count | None = doc("optimizer steps; give this or `epochs`", None)
    epochs: float | None = doc("passes over the examples; give this or `steps`", None, gt=0)
    batch: Count = doc("examples in one step, over all devices", 8)
    learning_rate: float = doc("at its highest", 3e-5, gt=0)
    schedule: Literal["cosine", "linear", "constant", "constant_with_warmup"] = doc("of the learning rate", "cosine")
    warmup: Share = doc("share of the steps that warm up", 0.03)
    beta2: Share = doc("of AdamW", 0.999)
    weight_decay: float = doc("of AdamW", 0.0, ge=0)
    clip: float = doc("largest norm of the gradient", 1.0, gt=0)
    max_length: Count = doc("tokens; a longer example stops the stage before training, none is cut silently", 512)
    precision: Literal["float32", "bfloat16"] = doc("of the arithmetic", "float32")
    log_every: Count = doc("steps between rows of the table", 10)
    seed: int = doc("of the order of examples", 0)


@dataclass(frozen=True, config=Strict)
class Grpo:
    """A measured training step a row; the weights and the rollouts stand beside the table."""

    revision: ClassVar[int] = 1
    model: Weights = doc("where training starts")
    problems: ProblemsRef = doc("whose kept rows are attempted")
    schemes: Annotated[str, Ref("schemes")] | None = doc("the marking schemes the judge is shown", None)
    grader: Annotated[str, Ref("api", "arithmetic")] = doc("as in `grades`")
    prompt: str = doc("the judge's prompt by name", "grade-of-7")
    ask: str = doc("the solver's prompt by name", "solve")
    rewards: dict[str, float] = doc("named rewards and their weights, such as `{grade: 1, format: 0.1}`")
    unscored: Literal["drop", "zero"] = doc(
        "an attempt without a verdict: `drop` gives it no gradient and leaves it out of its group's mean"
    )
    group: int = doc("attempts at each problem", 8, ge=2)
    problems_per_step: Count = doc("problems in one step", 16)
    steps: Count = doc("optimizer steps")
    learning_rate: float = doc("at its highest", 1e-6, gt=0)
    schedule: Literal["cosine", "linear", "constant", "constant_with_warmup"] = doc("of the learning rate", "constant")
    warmup: Share = doc("share of the steps that warm up", 0.0)
    beta2: Share = doc("of AdamW", 0.999)
    weight_decay: float = doc("of AdamW", 0.0, ge=0)
    clip: float = doc("largest norm of the gradient", 1.0, gt=0)
    temperature: float = doc("of the rollouts", 1.0, gt=0)
    max_tokens: Count = doc("the most tokens of one rollout", 128)
    loss: Literal["grpo", "dr_grpo", "dapo", "bnpo"] = doc("aggregation over tokens, as TRL names it", "dapo")
    scale: Literal["group", "batch", "none"] = doc("what the advantage is divided by the deviation of", "group")
    kl: float = doc("weight of the divergence from the start", 0.0, ge=0)
    epsilon: float = doc("clip below", 0.2, gt=0)
    epsilon_high: float | None = doc("clip above, if different", None, gt=0)
    iterations: Count = doc("updates for each batch of rollouts", 1)
    mask_truncated: bool = doc("leave cut-off rollouts out of the loss", False)
    precision: Literal["float32", "bfloat16"] = doc("of the arithmetic", "float32")
    seed: int = doc("of the problems' order and the rollouts", 0)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))  # strict would refuse a mapping inside `Scores`
class Sampling:
    """How a benchmark is sampled."""

    attempts: Count = doc("for each problem", 1)
    temperature: float = doc("0 is greedy", 1.0, ge=0)
    top_p: float = doc("nucleus sampling", 1.0, gt=0, le=1)
    max_tokens: Count = doc("the most tokens of one answer", 128)
    prompt: str = doc("the solver's prompt by name", "solve")
    seed: int = doc("of the sampling", 0)


@dataclass(frozen=True, config=Strict)
class Scores:
    """One measured number a row, with its interval, its n and its share unscored.

    `models` x `problems` x `sampling` expand into entries `responses/<model>@<problems>` and `grades/...`.
    """

    revision: ClassVar[int] = 1
    models: list[Model] = doc("the models to measure", [])
    problems: list[ProblemsRef] = doc("the benchmarks; without `models`, the tables to measure", [])
    schemes: list[Annotated[str, Ref("schemes")]] = doc("a scheme for each benchmark, in the same order", [])
    sampling: dict[str, Sampling] = doc("named ways to sample, such as `sampled` and `greedy`", {})
    grader: Annotated[str, Ref("api", "arithmetic")] | None = doc("as in `grades`", None)
    prompt: str = doc("the judge's prompt by name", "grade-of-7")
    grades: list[Annotated[str, Ref("grades")]] = doc("graded attempts to measure as they are", [])
    measures: Named = doc("named measures; a `repeat` takes those it repeats", [])
    confidence: float = doc("of the intervals", 0.95, gt=0, lt=1)
    resamples: Count = doc("of the bootstrap over problems", 2000)
    max_unscored: Share = doc("stop when a larger share of the attempts has no verdict", 0.1)
    repeat: Annotated[str, Ref("scores")] | None = doc(
        "measure another scores entry over `seeds`, retraining all it needs", None
    )
    seeds: list[int] = doc("the seeds of `repeat`", [])
    seed: int = doc("of the bootstrap", 0)


KINDS: dict[str, type] = {
    "problems": Problems,
    "labels": Labels,
    "schemes": Schemes,
    "base": Base,
    "responses": Responses,
    "grades": Grades,
    "examples": Examples,
    "sft": Sft,
    "grpo": Grpo,
    "scores": Scores,
}
ENTRY_TYPES = {"api": Api, **KINDS}


# --------------------------------------------------------------------------------------------------- entries and edges


def kind_of(name: str) -> str:
    return name.partition("/")[0]


def references(entry: Any) -> list[str]:
    """Names of the entries that this one is made from, `api/...` included, in the order of its fields."""
    found = []
    hints = get_type_hints(type(entry), include_extras=True)
    for f in fields(entry):
        value = getattr(entry, f.name)
        if value is not None and _ref(hints[f.name]) is not None:
            found.extend([value] if isinstance(value, str) else value)
    return [name for name in dict.fromkeys(found) if "/" in name]


def parents(entry: Any) -> list[str]:
    """Names of the artifacts that this entry reads: edges of the graph (a remote model is not an artifact)."""
    return [name for name in references(entry) if kind_of(name) != "api"]


def _ref(hint: Any) -> Ref | None:
    """The reference inside a type such as `list[Annotated[str, Ref("x")]] | None`."""
    for argument in getattr(hint, "__metadata__", ()):
        if isinstance(argument, Ref):
            return argument
    return next((ref for part in get_args(hint) if (ref := _ref(part)) is not None), None)


def canonical(entry: Any) -> str:
    """The entry as JSON with defaults filled and keys sorted: equal text means equal rows wanted."""
    return json.dumps(TypeAdapter(type(entry)).dump_python(entry), sort_keys=True, ensure_ascii=False)


def prompt_text(name: str) -> str:
    """The text of a prompt by name; the comment on top of the file is not part of it."""
    text = (PROMPTS / f"{name}.md").read_text(encoding="utf-8")
    return re.sub(r"\A<!--.*?-->\s*", "", text, flags=re.DOTALL)


def prompt_names() -> list[str]:
    return sorted(path.stem for path in PROMPTS.glob("*.md"))


def prompts_of(entry: Any) -> dict[str, str]:
    """The prompts an entry names, with a digest of their text: editing one changes what the entry makes."""
    if isinstance(entry, Scores):  # asks nobody: what it expands to does
        return {}
    names = [getattr(entry, key, None) for key in ("prompt", "ask")]
    return {name: hashlib.sha256(prompt_text(name).encode()).hexdigest()[:16] for name in names if name}


def identity(entry: Any, apis: Mapping[str, Api]) -> str:
    """All that decides the rows besides the parents: the entry, its kind's revision, its prompts, its remote models."""
    remote = {name: json.loads(canonical(apis[name])) for name in references(entry) if kind_of(name) == "api"}
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


@dataclass(frozen=True, config=ConfigDict(arbitrary_types_allowed=True))
class Book:
    """The checked and expanded configuration: every artifact's entry, the remote models, and the recipes by name."""

    entries: dict[str, Any]
    apis: dict[str, Any]
    recipes: dict[str, list[str]]

    def targets(self, recipe: str) -> list[str]:
        """The artifacts of a recipe that nothing else in it is made from, with the expansions they stand for."""
        names = self.recipes[recipe]
        used = {parent for name in names for parent in parents(self.entries[name])}
        return [name for name in names if name not in used]

    def ancestors(self, name: str) -> Iterator[str]:
        """The artifacts that `name` is made from, at any distance, each once."""
        seen, stack = set(), parents(self.entries[name])
        while stack:
            if (parent := stack.pop()) not in seen:
                seen.add(parent)
                yield parent
                stack.extend(parents(self.entries[parent]))


def expand(config: Mapping) -> Book:
    """Check the whole configuration and expand what stands for more; raises RecipeError with every mistake found."""
    entries: dict[str, Any] = {}
    recipes: dict[str, list[str]] = {}
    homes: dict[str, str] = {}
    mistakes: list[str] = []
    for recipe, declared in config.items():
        if str(recipe).startswith("_"):
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
    mistakes += [m for name, entry in entries.items() for m in _check(f"{homes[name]} > {name}", entry, homes)]
    if not mistakes:
        mistakes += _cycles(entries)
    if not mistakes:
        _expand_scores(entries, recipes, mistakes)
        _expand_repeats(entries, recipes)
    if mistakes:
        raise RecipeError("\n".join(mistakes))
    apis = {name: entry for name, entry in entries.items() if kind_of(name) == "api"}
    artifacts = {name: entry for name, entry in entries.items() if kind_of(name) != "api"}
    return Book(artifacts, apis, {name: listed for name, listed in recipes.items() if listed})


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
                if not str(part).startswith(("function", "str", "dict"))
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
        "sampling": lambda ways: {way: _underscored(v) if isinstance(v, Mapping) else v for way, v in ways.items()}
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
        value, ref = getattr(entry, f.name), _ref(hints[f.name])
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
                name = item if isinstance(item, str) else next(iter(item), "")
                if name not in names:
                    yield f"{where}: `{key}` names `{name}`; expected one of {_among(name, names, 30)}"
                elif kind != "grpo" and (fault := names[name].fault(item)):
                    yield f"{where}: `{key}`: {fault}"
        if f.name in ("prompt", "ask") and value not in prompt_names():
            yield f"{where}: `{key}` is `{value}`, which is no file in prompts/; expected one of {_among(value, prompt_names())}"
    yield from (f"{where}: {fault}" for fault in _FAULTS.get(kind, lambda _: [])(entry))


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
    if len(given) != 1:
        yield f"found {' and '.join(given) or 'no source'}; expected exactly one of problems, responses, grades, mix."


def _sft_faults(entry: Sft) -> Iterator[str]:
    if (entry.steps is None) == (entry.epochs is None):
        yield "expected exactly one of `steps` and `epochs`."


def _scores_faults(entry: Scores) -> Iterator[str]:
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
    "problems": _problems_faults,
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


# ------------------------------------------------------------------------------------------------------------ expansion


def slug(name: str) -> str:
    """`sft/cold` as part of a derived name: `sft-cold`."""
    return name.replace("/", "-")


def _values(entry: Any) -> dict:
    return {f.name: getattr(entry, f.name) for f in fields(entry)}


def derived_grades(entry: Scores) -> Iterator[tuple[str, str, str, str]]:
    """(grades name, model, problems, sampling name) of every cell of a scores entry."""
    for model in entry.models:
        for problems in entry.problems:
            for way in entry.sampling:
                yield f"grades/{slug(model)}@{problems.partition('/')[2]}@{way}", model, problems, way


def _expand_scores(entries: dict[str, Any], recipes: dict[str, list[str]], mistakes: list[str]) -> None:
    for name in [n for n, entry in entries.items() if kind_of(n) == "scores" and entry.models]:
        entry = entries[name]
        scheme = dict(zip(entry.problems, entry.schemes, strict=True)) if entry.schemes else {}
        cells = list(derived_grades(entry))
        for grades, model, problems, way in cells:
            responses = grades.replace("grades/", "responses/", 1)
            made = {
                responses: Responses(problems=problems, model=model, **_values(entry.sampling[way])),
                grades: Grades(
                    responses=responses, schemes=scheme.get(problems), grader=entry.grader, prompt=entry.prompt
                ),
            }
            for new, value in made.items():
                if new in entries and entries[new] != value:
                    mistakes.append(
                        f"{name}: sampling `{way}` means two things for {model} on {problems}; expected one. Name it differently."
                    )
                entries[new] = value
                for listed in recipes.values():
                    if name in listed and new not in listed:
                        listed.insert(listed.index(name), new)
        entries[name] = Scores(**{**_values(entry), "grades": [*entry.grades, *(cell[0] for cell in cells)]})


RESEEDED = ("base", "responses", "examples", "sft", "grpo")


def _expand_repeats(entries: dict[str, Any], recipes: dict[str, list[str]]) -> None:
    """`repeat: scores/x, seeds: [0, 1]` makes all that `scores/x` measures once more, trained with other seeds."""
    for name in [n for n, entry in entries.items() if kind_of(n) == "scores" and entry.repeat]:
        entry = entries[name]
        order = TopologicalSorter({n: references(e) for n, e in entries.items()})
        book = Book(entries, {}, {})
        needed = {entry.repeat, *(n for n in book.ancestors(entry.repeat) if kind_of(n) != "api")}
        chain = [n for n in order.static_order() if n in needed]
        grades: list[str] = []
        for seed in entry.seeds:
            renamed: dict[str, str] = {}
            for old in chain:
                values = _values(entries[old])
                moved = {key: _renamed(value, renamed) for key, value in values.items()}
                if kind_of(old) in RESEEDED:
                    moved["seed"] = values["seed"] + seed
                if seed == 0 or moved == values or kind_of(old) == "scores":
                    continue
                renamed[old] = new = f"{old}@seed-{seed}"
                entries[new] = type(entries[old])(**moved)
                for listed in recipes.values():
                    if name in listed:
                        listed.insert(listed.index(name), new)
            grades += _renamed(entries[entry.repeat].grades, renamed)
        measured = entry.measures or entries[entry.repeat].measures
        entries[name] = Scores(**{**_values(entry), "repeat": None, "grades": grades, "measures": measured})


def _renamed(value: Any, renamed: Mapping[str, str]) -> Any:
    """`value` of a field with references to renamed entries replaced."""
    if isinstance(value, str):
        return renamed.get(value, value)
    if isinstance(value, list):
        return [_renamed(item, renamed) for item in value]
    if isinstance(value, dict):
        return {_renamed(key, renamed): _renamed(item, renamed) for key, item in value.items()}
    return value


def source_files(entry: Any) -> list[Path]:
    """The local files or folders an entry reads that are no artifacts."""
    path = getattr(entry, "path", None)
    return [local_path(path)] if path else []


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

"""Write cards, the pages of repositories on the hub, from the stamps (metadata) of tables, with what remains unknown.

`dataset.md` and `model.md` are the templates (Jinja). The YAML at their beginning is for the hub: `configs` makes each
table a configuration of `datasets.load_dataset`.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

import proofmill
from proofmill.metrics.page import format_p
from proofmill.runtime.progress import clock
from proofmill.schema.columns import COLUMNS, FILE_COLUMNS
from proofmill.schema.kinds import KINDS, ROLLOUTS
from proofmill.schema.names import kind_of

SOURCES = (
    Path(proofmill.__file__).parents[2] / "data" / "sources.csv"
)  # only in a checkout; without it no license is known
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True)
class TableCard:
    """A table as a card shows it; `stamp` is the stamp of its file, without private texts."""

    name: str
    stamp: Mapping[str, Any]
    rows: int
    page: bool = False  # whether it has a score page
    extra_files: Mapping[str, int] = field(default_factory=dict)  # rows of the files next to the weights of a training

    @property
    def kind(self) -> str:
        return kind_of(self.name)

    @property
    def config(self) -> str:
        """Its name in `load_dataset`."""
        return self.name.replace("/", "--")

    @property
    def outcomes(self) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in self.stamp["counts"].items()) or "–"

    @property
    def parents(self) -> str:
        return ", ".join(f"`{name}`" for name in self.stamp["parents"]) or "–"

    @property
    def contents(self) -> str:
        return ", ".join(f"`{name}` (content `{content}`)" for name, content in self.stamp["parents"].items())

    @property
    def seed(self) -> str:
        return _or_dash(self.stamp["seed"])

    @property
    def tokens(self) -> str:
        return f"{self.stamp['tokens']:,}" if "tokens" in self.stamp else "–"

    @property
    def cost(self) -> str:
        """Dollars; a dash if no model was called."""
        if "cost" not in self.stamp:
            return "–"
        return "unknown" if self.stamp["cost"] is None else f"${self.stamp['cost']:,.2f}"

    @property
    def time(self) -> str:
        gpus = self.stamp.get("gpus")
        return clock(self.stamp["seconds"]) + (f" on {gpus} GPUs" if gpus else "")

    @property
    def made_by(self) -> str:
        versions = ", ".join(f"{package} {version}" for package, version in self.stamp["versions"].items())
        commit = f"commit `{self.stamp['commit']}`" if self.stamp["commit"] else "an unknown commit"
        return f"Built at {commit} with {versions}."

    @cached_property
    def entry(self) -> str:
        """The entry as in config.yaml, without null fields."""
        values = {key.replace("_", "-"): value for key, value in self.stamp["entry"].items() if value is not None}
        return fence(yaml.safe_dump({self.name: values}, sort_keys=False, allow_unicode=True, width=1000), "yaml")


def dataset(id: str, recipes: Sequence[str], tables: Sequence[TableCard], models: Mapping[str, str]) -> str:
    """Write the card of the tables of some recipes; `models` are the repositories of the weights by artifact."""
    configs = [
        {"config_name": table.config, "data_files": f"results/{table.name}.parquet"} for table in tables if table.rows
    ]
    configs += [
        {"config_name": f"{table.config}--{Path(file).stem}", "data_files": f"results/{table.name}/{file}"}
        for table in tables
        for file, rows in table.extra_files.items()
        if rows
    ]
    return TEMPLATES.get_template("dataset.md").render(
        id=id,
        metadata=_yaml({"configs": configs, "tags": ["proofmill"]}),
        recipes=_recipes(recipes),
        tables=tables,
        example=configs[0]["config_name"] if configs else None,
        empty=_join_names(table.name for table in tables if not table.rows),
        extra_files=[table for table in tables if table.extra_files],
        models=models,
        origins=list(origins_of(tables)) or ["The stamps name no source."],
        unknown=list(_unknown(tables, "these tables")),
        kinds=list(_kinds(tables)),
    )


def model(
    id: str, recipes: Sequence[str], lineage: Sequence[TableCard], scores: Sequence[Mapping[str, Any]], tables_id: str
) -> str:
    """Write the card of a model, the first of its `lineage`; `scores` are rows of `scores` tables with their `table`."""
    table, root = lineage[0], lineage[-1]
    metadata = {"library_name": "transformers", "pipeline_tag": "text-generation", "datasets": [tables_id]}
    if root.stamp["entry"].get("source") == "hub":
        metadata["base_model"] = root.stamp["entry"]["id"]
    return TEMPLATES.get_template("model.md").render(
        id=id,
        metadata=_yaml({**metadata, "tags": ["proofmill", table.kind]}),
        recipes=_recipes(recipes),
        table=table,
        about=f"{KINDS[table.kind].trains}.",
        tables_id=tables_id,
        rollouts=table.extra_files.get(ROLLOUTS),
        lineage=[_ancestor(shown) for shown in lineage],
        scores=[_score(row) for row in scores],
        unknown=[*_unknown([table], "this model", of_weights=True), *_describe_unmeasured(scores)],
    )


# ------------------------------------------------------------------------------------------------------------ sentences


def _recipes(names: Sequence[str]) -> str:
    return f"the recipe{'s' * (len(names) > 1)} {' and '.join(f'`{name}`' for name in names)}"


def origins_of(tables: Iterable[TableCard]) -> Iterator[str]:
    """Yield a sentence for each source, and for each model that was called."""
    licenses = _licenses()
    models: dict[str, str] = {}
    for table in tables:
        entry = table.stamp["entry"]
        if table.kind in ("problems", "base", "examples") and "/" not in (entry.get("source") or "/"):
            yield f"`{table.name}`: {_source(table)}"
        for path, sha256 in table.stamp["sources"].items():
            yield f"`{table.name}` reads `{path}` (SHA-256 `{sha256}`): {licenses.get(sha256, 'unknown license')}"
        for name, api in table.stamp["declared"].items():
            if kind_of(name) == "api":
                program = ", a program of this project, not a language model" if api.get("program") else ""
                models[name] = f"calls to `{name}`: the model `{api['id']}`{program}"
    yield from models.values()


def _source(table: TableCard) -> str:
    """Describe the origin of a table without parents, or of a model's weights."""
    entry = table.stamp["entry"]
    if entry["id"]:
        of = "model" if table.kind == "base" else "dataset"
        part = f", configuration `{entry['subset']}`" if entry.get("subset") else ""
        part += f", split `{entry['split']}`" if of == "dataset" else ""
        return f"the {of} `{entry['id']}` from the hub at commit `{entry['commit'] or 'unknown'}`{part}"
    if entry["path"]:
        return f"the source `{entry['source']}` at `{entry['path']}`"
    if entry["source"] == "scratch":
        return f"random weights, seed {entry['seed']}"
    if "/" in entry["source"]:
        return f"the weights of `{entry['source']}`"
    return f"the generator `{entry['source']}` of this project, split `{entry['split']}`, seed {entry['seed']}"


def _ancestor(shown: TableCard) -> str:
    """Describe one step of a model's lineage."""
    entry = shown.stamp["entry"]
    if shown.kind == "base":
        return f"`{shown.name}`: {_source(shown)}"
    training = {
        "sft": f"fine-tuned on `{entry.get('examples')}`",
        "grpo": f"trained with GRPO on problems of `{entry.get('problems')}`",
        "selfplay": "trained with self-play on programming tasks that it proposed and solved",
    }[shown.kind]
    return f"`{shown.name}`: `{entry['model']}`, {training}"


def _unknown(tables: Sequence[TableCard], what: str, of_weights: bool = False) -> Iterator[str]:
    """Yield a sentence for each fact that is missing in the stamps."""
    basis = "its parent model and training data" if of_weights else "the sources and models above"
    yield f"License of {what}: not recorded in the stamps. It depends on the licenses and terms of {basis}."
    if costs := [table.name for table in tables if table.stamp.get("cost", 0) is None]:
        yield f"Cost of the calls of {_join_names(costs)}: the price of a called model is declared unknown."
    if commits := [table.name for table in tables if not table.stamp["commit"]]:
        yield f"Commit of the project for {_join_names(commits)}: built outside a checkout."
    here = {table.name for table in tables}
    behind = dict.fromkeys(name for table in tables for name in table.stamp["parents"] if name not in here)
    if behind and not of_weights:
        yield f"Contents of {_join_names(behind)}: these parent tables are not published."


def _describe_unmeasured(scores: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield ("Quality on tasks other than those scored above." if scores else "Quality: no scores are published with it.")


def _score(row: Mapping[str, Any]) -> dict[str, str]:
    """Format a row of a `scores` table as cells."""
    digits = 2 if row["value"] is not None and abs(row["value"]) < 100 else 0
    value = "–" if row["value"] is None else f"{row['value']:.{digits}f}"
    ends = "" if row["low"] is None else f" [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"
    p = "" if row["p_value"] is None else f", {format_p(row)}"
    against = (
        ""
        if row["baseline"] is None
        else f" {'minus' if row['p_value'] is not None else 'baseline'} `{row['baseline']}`"
    )
    return {
        **{key: _cell(row[key]) for key in ("table", "problems", "sampling", "grader", "slice")},
        "metric": f"{row['metric']}{against}",
        "value": f"{value}{ends}{p}",
        "attempts": f"{row['n']:,} at {row['n_problems']:,} problems",
        "unscored": f"{row['unscored']:.1%}",
    }


def _kinds(tables: Sequence[TableCard]) -> Iterator[dict[str, Any]]:
    """Yield the meaning of a row and the columns, for each kind and each file next to its weights."""
    for kind in dict.fromkeys(table.kind for table in tables):
        yield {
            "title": kind,
            "about": str(KINDS[kind].entry.__doc__).splitlines()[0],
            "columns": _columns(COLUMNS[kind]),
        }
    for kind, file in dict.fromkeys((table.kind, file) for table in tables for file in table.extra_files):
        yield {
            "title": f"{Path(file).stem} of `{kind}`",
            "about": f"One row is {KINDS[kind].extra_files[file]}.",
            "columns": _columns(FILE_COLUMNS[kind][file]),
        }


def _columns(columns: Mapping[str, tuple[Any, str]]) -> list[dict[str, str]]:
    return [
        {"name": name, "type": _cell(str(dtype)), "meaning": _cell(meaning)}
        for name, (dtype, meaning) in columns.items()
    ]


def _licenses() -> dict[str, str]:
    """Return name, address and license of each file in data/sources.csv, by its SHA-256."""
    if not SOURCES.exists():
        return {}
    with open(SOURCES, encoding="utf-8", newline="") as file:
        return {
            row["sha256"]: f"{row['name']} ({row['source']}), license {row['license']}" for row in csv.DictReader(file)
        }


# ------------------------------------------------------------------------------------------------------------- Markdown


def fence(text: str, language: str) -> str:
    """Return a block of code whose fence is longer than any in the text."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", text))])
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1000)


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(value: Any) -> str:
    return _or_dash(value).replace("|", "\\|").replace("\n", " ")


def _or_dash(value: Any) -> str:
    return "–" if value is None else str(value)

"""Measure recipes seed by seed, and keep the attempts of each finished seed as CSV.

    python benchmarks/seeds.py nano-claims nano-seeds [--cores 2] [--seeds 0 1 2] [--folder docs/measurements]

The recipes have `scores` with `repeat`, which name their seeds. A seed that FOLDER/RECIPE.csv lacks is built with
Snakemake, and its lines are written at once. So an interrupted measurement continues with the seed that it was in; with the
committed files, on any machine. `read` returns the attempts as metrics read them: scores, comparisons and claims can be
computed from the files alone (benchmarks/claims.py).

- RECIPE.csv has a line for each table of grades. `grades`, `well_formed` and `tokens` are lists in the order of problems
  and attempts; a missing value is `-`.
- RECIPE-problems.csv has the problems of each benchmark in that order, with their level.
- RECIPE-trainings.csv has curves of trainings, and what trainings and responses took.
"""

import argparse
import csv
import io
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl

from proofmill import scores
from proofmill.artifacts.tables import Table
from proofmill.config import yaml_files
from proofmill.config.config import Config, expand
from proofmill.metrics.attempt_table import AttemptTable, Rows
from proofmill.metrics.score_rows import Cell
from proofmill.runtime import durable
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.kinds import ROLLOUTS
from proofmill.schema.names import kind_of, parse_seed
from proofmill.schema.references import ancestors

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/measurements"
BLOCK = re.compile(r"(<!-- numbers: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)  # of a page, with its name
CURVES = (  # metrics of a training that pages show
    *("audit/grade", "audit/gap", "unscored", "teacher/kl"),
    *("frac_reward_zero_std", "idle/left", "retired", "evaluate/grade"),
)
SECONDS, ATTEMPTS = "training-seconds", "attempts"  # what a training or a table of responses took, at step 0
# Fields of an attempt that the files do not keep; the metrics of such recipes do not read them.
NOT_KEPT = (
    "reason", "answer", "answer_extraction", "stop_reason", "prompt_tokens", "tokens", "reasoning_tokens", "year", "writer",
    "response", "response_cost", "max_tokens", "reads", "human", "selecting", "selecting_tokens", "selecting_cost",
)  # fmt: skip
NONE = dict.fromkeys(("grade", "well_formed", "response_tokens"))
Line = Mapping[str, Any]


def repeated(config: Config, recipe: str) -> dict[str, Scores]:
    """Return the `scores` of a recipe that repeat others, by name."""
    entries = {name: config.entries[name] for name in config.recipes[recipe] if kind_of(name) == "scores"}
    return {name: entry for name, entry in entries.items() if entry.seeds}


def tables_of(entries: Mapping[str, Scores], seed: int) -> list[str]:
    """Return the tables of grades of one seed."""
    return list(dict.fromkeys(name for entry in entries.values() for name in entry.grades if parse_seed(name) == seed))


# -------------------------------------------------------------------------------------------------------------- writing


def write(config: Config, recipe: str, seed: int, results: Path, folder: Path) -> None:
    """Add the lines of a finished seed. The file of grades comes last: a seed that it has is complete."""
    entries = repeated(config, recipe)
    names = tables_of(entries, seed)
    job = SimpleNamespace(name=recipe, parent=lambda name: Table(name, results))
    problems: dict[str, list[tuple[str, str]]] = {}
    lines = []
    for name in names:
        entry = replace(next(entry for entry in entries.values() if name in entry.grades), grades=[name])
        for cell, attempts in scores.group_attempts(entry, job).items():  # type: ignore[arg-type]  # it reads no more
            given = {(row["problem"], row["attempt"]): row for row in attempts}
            asked = list_problems(name, results)
            if problems.setdefault(cell.problems, asked) != asked:
                sys.exit(
                    f"{name}: other problems of {cell.problems}, or in another order; expected those of the other tables."
                )
            each = range(max(attempt for _, attempt in given) + 1)
            # A dropped problem has no attempts: those of graded attempts are dropped in some seeds.
            rows = [given.get((problem, attempt), NONE) for problem, _ in asked for attempt in each]
            lines.append(
                {
                    **{"table": name, "seed": seed, **cell._asdict(), "commit": Table(name, results).stamp["commit"]},
                    "max_points": attempts[0]["max_points"],
                    "grades": _list(row["grade"] for row in rows),
                    "well_formed": _list(row["well_formed"] for row in rows),
                    "tokens": _list(row["response_tokens"] for row in rows),
                }
            )
    numbered = [
        {"problems": name, "problem": problem, "level": level or ""}
        for name, asked in problems.items()
        for problem, level in asked
    ]
    known = [line for line in read_lines(folder / f"{recipe}-problems.csv") if line["problems"] in problems]
    if known and known != numbered:
        sys.exit(
            f"{folder}: its seeds have other problems than seed {seed} of {recipe}; expected the same. Remove its files to measure again."
        )
    _replace(folder / f"{recipe}-problems.csv", "problems", numbered)
    _replace(folder / f"{recipe}-trainings.csv", "seed", list(_trainings(config, names, seed, results)))
    _replace(folder / f"{recipe}.csv", "seed", lines)


def list_problems(grades: str, results: Path) -> list[tuple[str, str]]:
    """Return id and level of each problem of a table of grades, of dropped ones, too."""
    responses = Table(grades, results).stamp["entry"]["responses"]
    problems = Table(responses, results).stamp["entry"]["problems"]
    return [(row["problem"], row["level"]) for row in Table(problems, results).rows("problem", "level", kept=False)]


def _trainings(config: Config, names: Iterable[str], seed: int, results: Path) -> Iterator[Line]:
    """Yield the curves and costs of the trainings that some tables of grades need, and of responses to train on."""
    needed = dict.fromkeys(other for name in names for other in ancestors(config.entries, name))
    for name in needed:
        kind, table = kind_of(name), Table(name, results)
        if parse_seed(name) != seed or kind not in ("sft", "grpo", "responses") or "@" in name.split("@seed-")[0]:
            continue
        cost = {SECONDS: table.stamp.get("training_seconds")}
        if kind != "sft":
            cost[ATTEMPTS] = (
                table.height
                if kind == "responses"
                else pl.scan_parquet(table.weights() / ROLLOUTS).select(pl.len()).collect().item()
            )
        curves = [(row["step"], row["metric"], row["value"]) for row in table.rows()] if kind == "grpo" else []
        points = [(0, metric, value) for metric, value in cost.items()]
        points += [point for point in curves if point[1] in CURVES]
        for step, metric, value in points:
            if value is not None and value == value:
                yield {"seed": seed, "name": name, "metric": metric, "step": step, "value": round(value, 6)}


def _list(values: Iterable[float | None]) -> str:
    return " ".join("-" if value is None else repr(float(value)).removesuffix(".0") for value in values)


def _replace(path: Path, key: str, lines: Sequence[Line]) -> None:
    """Add lines to a file, in place of those with the same keys."""
    if not lines:
        return
    keys = {str(line[key]) for line in lines}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows([*(line for line in read_lines(path) if line[key] not in keys), *lines])
    durable.write(path, text.getvalue())


# -------------------------------------------------------------------------------------------------------------- reading


def read(recipe: str, folder: Path = FOLDER) -> dict[str, tuple[Cell, Rows]]:
    """Return the cell and the attempts of each table of grades in the file of a recipe."""
    problems: dict[str, list[Line]] = {}
    for line in read_lines(folder / f"{recipe}-problems.csv"):
        problems.setdefault(line["problems"], []).append(line)
    return {
        line["table"]: (Cell(*(line[field] for field in Cell._fields)), AttemptTable(_attempts(line, problems)))
        for line in read_lines(folder / f"{recipe}.csv")
    }


def _attempts(line: Line, problems: Mapping[str, Sequence[Line]]) -> Iterator[dict[str, Any]]:
    grades, formed, tokens = (_values(line[field]) for field in ("grades", "well_formed", "tokens"))
    asked = problems[line["problems"]]
    count = len(grades) // len(asked)
    blank = dict.fromkeys(NOT_KEPT) | {"loader": "arithmetic", "opinions": (), "seed": int(line["seed"])}
    for place, values in enumerate(zip(grades, formed, tokens, strict=True)):
        yield {
            **blank,
            **{"problem": asked[place // count]["problem"], "level": asked[place // count]["level"] or None},
            **{"attempt": place % count, "max_points": float(line["max_points"])},
            **dict(zip(("grade", "well_formed", "response_tokens"), values, strict=True)),
        }


def _values(text: str) -> list[float | None]:
    return [None if value == "-" else float(value) for value in text.split(" ")]


def commits(recipe: str, folder: Path = FOLDER) -> list[str]:
    """Return the commits that the seeds in the file of a recipe were measured with, shortened."""
    return list(dict.fromkeys(line["commit"][:10] for line in read_lines(folder / f"{recipe}.csv")))


def group(read_tables: Mapping[str, tuple[Cell, Rows]], entry: Scores) -> dict[Cell, Rows]:
    """Return the attempts of all finished seeds of one `scores`, by cell."""
    cells: dict[Cell, list[Rows]] = {}
    for name in entry.grades:
        if name in read_tables:
            cell, attempts = read_tables[name]
            cells.setdefault(cell, []).append(attempts)
    return {cell: AttemptTable(row for rows in some for row in rows) for cell, some in cells.items()}


def read_trainings(recipe: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return the points of all trainings: seed, name, metric, step, value."""
    types = {"seed": int, "step": int, "value": float}
    return [{key: types.get(key, str)(value) for key, value in line.items()} for line in read_lines(folder / f"{recipe}-trainings.csv")]  # fmt: skip


def read_lines(path: Path) -> list[dict[str, str]]:
    """Return the lines of a CSV file by the names of its columns; none if it is missing."""
    if not path.exists():
        return []
    csv.field_size_limit(2**24)
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def fill(text: str, lines_of: Callable[[str], Iterable[str]]) -> str:
    """Return a page with new lines in each block, by the block's name; a block without new lines stays as it is."""

    def block(match: re.Match[str]) -> str:
        lines = list(lines_of(match[2]))
        return match[1] + "\n".join(lines).strip("\n") + "\n" + match[3] if lines else match[0]

    return BLOCK.sub(block, text)


# ------------------------------------------------------------------------------------------------------------ measuring


def complete(config: Config, recipes: Sequence[str], seeds: Sequence[int] | None, cores: str, folder: Path) -> None:
    """Build what a file lacks of each seed, and add its lines."""
    entries = {recipe: repeated(config, recipe) for recipe in recipes}
    planned = sorted({seed for some in entries.values() for entry in some.values() for seed in entry.seeds})
    if unknown := sorted({*(seeds or ())} - {*planned}):
        sys.exit(f"--seeds has {unknown[0]}, which {', '.join(recipes)} do not name; expected some of {planned}.")
    for seed in planned if seeds is None else seeds:
        wanted = {recipe: tables_of(some, seed) for recipe, some in entries.items()}
        kept = {recipe: {line["table"] for line in read_lines(folder / f"{recipe}.csv")} for recipe in recipes}
        missing = {recipe: names for recipe, names in wanted.items() if not kept[recipe].issuperset(names)}
        if not missing:
            print(f"seed {seed}: complete in {folder}", flush=True)
            continue
        targets = dict.fromkeys(
            str(Table(name, Path(config.results)).path) for names in missing.values() for name in names
        )
        print(f"seed {seed}: {len(targets)} tables of grades for {', '.join(missing)}", flush=True)
        subprocess.run([sys.executable, "-m", "snakemake", "--cores", cores, *targets], check=True)
        for recipe in missing:
            write(config, recipe, seed, Path(config.results), folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure recipes seed by seed.")
    parser.add_argument("recipes", nargs="+", help="recipes with `scores` that `repeat` others")
    parser.add_argument("--cores", default="2")
    parser.add_argument("--seeds", nargs="+", type=int, help="some of the seeds (default: all)")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    complete(expand(yaml_files.read("config.yaml")), options.recipes, options.seeds, options.cores, options.folder)

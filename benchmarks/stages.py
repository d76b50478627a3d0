"""Fill the scores of `nano` in README.md and docs/performance.md from the attempts that benchmarks/seeds.py keeps.

    python benchmarks/stages.py [--folder docs/measurements]
    python docs/images/nano-scores.py          # then draws the table of README.md

The script replaces what is between `<!-- numbers: X -->` and `<!-- end -->`, and prints the differences of `compare` with
their intervals and adjusted p.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import seeds

from proofmill import scores
from proofmill.config import yaml_files
from proofmill.config.config import expand
from proofmill.metrics.page import difference

RECIPE = "nano-seeds"
PAGES = (seeds.ROOT / "README.md", seeds.ROOT / "docs/performance.md")
STAGES = {
    "sft/cold": "cold start (`sft/cold`)",
    "sft/rejection": "cold start, then rejection sampling (`sft/rejection`)",
    "sft/round-2": "rejection sampling twice (`sft/round-2`, control)",
    "sft/partial": "rejection sampling twice, keeping 4 points or more (`sft/partial`, control)",
    "grpo/nano": "rejection sampling, then GRPO (`grpo/nano`)",
    "sft/student": "student, cold start (`sft/student`)",
    "sft/student-longer": "student, 500 more SFT steps (`sft/student-longer`, control)",
    "grpo/student": "student, GRPO alone (`grpo/student`)",
    "sft/distilled": "student, 500 distillation steps (`sft/distilled`)",
}
COLUMNS = {
    "usual, T=1": ("problems/bench", "sampled"),
    "usual, greedy": ("problems/bench", "greedy"),
    "longer, T=1": ("problems/bench-longer", "sampled"),
    "longer, greedy": ("problems/bench-longer", "greedy"),
}
Rows = list[dict[str, Any]]


def _cell(rows: Rows, model: str, column: str, metric: str, by_seed: bool = False) -> str:
    """Return a value with its interval, and with the values of the seeds if wanted; empty if it is not there."""
    place = (model, *COLUMNS[column])
    chosen = [
        row
        for row in rows
        if (row["model"], row["problems"], row["sampling"]) == place
        and row["metric"].partition("@")[0] == metric
        and row["baseline"] is None
    ]
    texts = [f"{r['value']:.2f} [{r['low']:.2f}, {r['high']:.2f}]" for r in chosen if r["slice"] == "all"]
    of_seeds = [f"{row['value']:.2f}" for row in chosen if row["slice"].startswith("seed ")]
    return "; ".join([*texts, *([", ".join(of_seeds)] if by_seed and of_seeds else [])])


def list_grades(rows: Rows, labels: dict[str, str], by_seed: bool = False) -> Iterator[str]:
    """Yield the table of mean grades."""
    yield f"| {'model' if by_seed else 'stage'} | {' | '.join(COLUMNS)} |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    for model, shown in labels.items():
        yield f"| {shown} | {' | '.join(_cell(rows, model, column, 'avg', by_seed) for column in COLUMNS)} |".replace(
            "  ", " "
        )


def list_rates(rows: Rows) -> Iterator[str]:
    """Yield the table of solve rates, and of format rates at T=1."""
    formed = [column for column in COLUMNS if column.endswith("T=1")]
    first, *others = COLUMNS
    titles = [f"solved: {first}", *others, f"format: {formed[0]}", *formed[1:]]
    yield f"| model | {' | '.join(titles)} |"
    yield "|---" * (len(titles) + 1) + "|"
    for model in STAGES:
        cells = [_cell(rows, model, column, "solve-rate") for column in COLUMNS]
        cells += [_cell(rows, model, column, "format-rate") for column in formed]
        yield f"| `{model}` | {' | '.join(cells)} |".replace("  ", " ")


def score(folder: Path) -> Rows:
    """Return the score rows of all finished seeds."""
    config, tables = expand(yaml_files.read("config.yaml")), seeds.read(RECIPE, folder)
    if not tables:
        sys.exit(f"{folder}: has no {RECIPE}.csv; expected finished seeds. Run python benchmarks/seeds.py {RECIPE}.")
    entries = seeds.repeated(config, RECIPE).values()
    return [row for entry in entries for row in scores.score_groups(seeds.group(tables, entry), entry)[0]]


def fill(text: str, rows: Rows) -> str:
    """Return a page with the tables of these rows."""
    blocks = {
        "stages": list_grades(rows, STAGES),
        "stages-by-seed": list_grades(rows, {model: f"`{model}`" for model in STAGES}, by_seed=True),
        "rates": list_rates(rows),
    }
    return seeds.fill(text, blocks.__getitem__)


def main(folder: Path) -> None:
    """Fill the pages, and print the differences."""
    rows = score(folder)
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8"), rows), encoding="utf-8")
    for row in rows:
        if row["baseline"] and row["slice"] == "all":
            where = f"{row['model']} - {row['baseline']} on {row['problems']} ({row['sampling']}), {row['metric']}"
            print(f"{where}: {difference(row)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fill the scores of `nano`.")
    parser.add_argument("--folder", type=Path, default=seeds.FOLDER, help="measurements (default: docs/measurements)")
    main(parser.parse_args().folder)

"""Fill the scores of `smol` and `nano` in README.md and docs/performance.md from the attempts that seeds.py keeps.

    python benchmarks/stages.py [--folder docs/measurements]
    python docs/images/scores.py          # then draws the tables of README.md

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
# Models that practiced each task. The form, more of it and the mixed pool serve for both tasks.
SMOL_STAGES = {
    "before": ("base/smol", "base/smol"),
    "the form of an answer, 12 SFT steps": ("sft/smol-form", "sft/smol-form"),
    "then more of the form, control": ("sft/smol-more", "sft/smol-more"),
    "or rejection sampling, control": ("sft/smol-largest-rejection", "sft/smol-sort-rejection"),
    "or SFT on correct answers, control": ("sft/smol-largest-gold", "sft/smol-sort-gold"),
    "or distillation from GRPO": ("", "sft/smol-distilled"),
    "or GRPO on all nine tasks, with kl": ("grpo/smol-mixed", "grpo/smol-mixed"),
    "or GRPO": ("grpo/smol-largest", "grpo/smol-sort"),
}
SMOL_COLUMNS = {  # the task that was practiced, the problems, and the metric
    "largest of four": (0, "problems/smol-largest-test", "solve-rate"),
    "three to sort": (1, "problems/smol-sort-test", "solve-rate"),
    "other tasks, after the first": (0, "problems/smol-others-test", "avg"),
    "after the second": (1, "problems/smol-others-test", "avg"),
}
Rows = list[dict[str, Any]]


def _cell(rows: Rows, model: str, where: tuple[str, ...], metric: str, by_seed: bool = False) -> str:
    """Return a value with its interval, and with the values of the seeds if wanted; empty if it is not there."""
    place = (model, *where)
    chosen = [
        row
        for row in rows
        if (row["model"], row["problems"], row["sampling"]) == place
        and row["metric"].partition("@")[0] == metric
        and row["baseline"] is None
    ]
    # Two tables of scores may have the same cell: the form and GRPO are compared with distillation, too.
    texts = [f"{r['value']:.2f} [{r['low']:.2f}, {r['high']:.2f}]" for r in chosen if r["slice"] == "all"][:1]
    of_seeds = {row["slice"]: f"{row['value']:.2f}" for row in chosen if row["slice"].startswith("seed ")}.values()
    return "; ".join([*texts, *([", ".join(of_seeds)] if by_seed and of_seeds else [])])


def list_grades(rows: Rows, labels: dict[str, str], by_seed: bool = False) -> Iterator[str]:
    """Yield the table of mean grades."""
    yield f"| {'model' if by_seed else 'stage'} | {' | '.join(COLUMNS)} |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    for model, shown in labels.items():
        yield f"| {shown} | {' | '.join(_cell(rows, model, place, 'avg', by_seed) for place in COLUMNS.values())} |".replace(
            "  ", " "
        )


def list_smol(rows: Rows, by_seed: bool = False) -> Iterator[str]:
    """Yield the table of greedy scores of `smol`."""
    yield f"| training | {' | '.join(SMOL_COLUMNS)} |"
    yield "|---" * (len(SMOL_COLUMNS) + 1) + "|"
    for stage, models in SMOL_STAGES.items():
        cells = [
            _cell(rows, models[task], (name, "greedy"), metric, by_seed) for task, name, metric in SMOL_COLUMNS.values()
        ]
        shown = ", ".join(f"`{model}`" for model in dict.fromkeys(models) if model)
        yield f"| {stage} ({shown}) | {' | '.join(cells)} |".replace("  ", " ")


def list_rates(rows: Rows) -> Iterator[str]:
    """Yield the table of solve rates, and of format rates at T=1."""
    formed = [column for column in COLUMNS if column.endswith("T=1")]
    first, *others = COLUMNS
    titles = [f"solved: {first}", *others, f"format: {formed[0]}", *formed[1:]]
    yield f"| model | {' | '.join(titles)} |"
    yield "|---" * (len(titles) + 1) + "|"
    for model in STAGES:
        cells = [_cell(rows, model, place, "solve-rate") for place in COLUMNS.values()]
        cells += [_cell(rows, model, COLUMNS[column], "format-rate") for column in formed]
        yield f"| `{model}` | {' | '.join(cells)} |".replace("  ", " ")


def score(folder: Path, recipe: str = "nano-seeds") -> Rows:
    """Return the score rows of all finished seeds of a recipe."""
    config, tables = expand(yaml_files.read("config.yaml")), seeds.read(recipe, folder)
    if not tables:
        sys.exit(f"{folder}: has no {recipe}.csv; expected finished seeds. Run python benchmarks/seeds.py {recipe}.")
    entries = seeds.repeated(config, recipe).values()
    return [row for entry in entries for row in scores.score_groups(seeds.group(tables, entry), entry)[0]]


def fill(text: str, rows: Rows, smol: Rows) -> str:
    """Return a page with the tables of these rows."""
    blocks = {
        "smol": list_smol(smol),
        "smol-by-seed": list_smol(smol, by_seed=True),
        "stages": list_grades(rows, STAGES),
        "stages-by-seed": list_grades(rows, {model: f"`{model}`" for model in STAGES}, by_seed=True),
        "rates": list_rates(rows),
    }
    return seeds.fill(text, blocks.__getitem__)


def main(folder: Path) -> None:
    """Fill the pages, and print the differences."""
    rows, smol = score(folder), score(folder, "smol-seeds")
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8"), rows, smol), encoding="utf-8")
    for row in (*smol, *rows):
        if row["baseline"] and row["slice"] == "all":
            where = f"{row['model']} - {row['baseline']} on {row['problems']} ({row['sampling']}), {row['metric']}"
            print(f"{where}: {difference(row)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fill the scores of `smol` and `nano`.")
    parser.add_argument("--folder", type=Path, default=seeds.FOLDER, help="measurements (default: docs/measurements)")
    main(parser.parse_args().folder)

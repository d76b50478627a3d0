"""Print held-out accuracy of self-play on two cores by task, model and seed, from the tables of `absolute-zero-nano`.

    snakemake absolute-zero-nano absolute-zero-nano-seeds
    python benchmarks/selfplay.py [--results results] [--seeds 0 1 2] [--way greedy]

Intervals are those of one proportion, at 95 %. Seed 0 is `absolute-zero-nano` itself.
"""

import argparse
from math import sqrt
from pathlib import Path

import polars as pl

from proofmill.artifacts.tables import Table
from proofmill.schema.names import cell, reseed

MODELS = (
    *("sft/tiny-cold", "sft/tiny-longer", "selfplay/tiny", "selfplay/tiny-frozen", "selfplay/tiny-any"),
    "selfplay/tiny-induce",
)


def accuracies(grades: Table, tasks: pl.DataFrame) -> dict[str, tuple[float, float, int]]:
    """Return the share of correct answers, half of its interval, and the number of tasks, by kind of task."""
    rows = grades.scan().select("problem", "grade").collect().join(tasks, on="problem")
    found = {}
    for (task,), some in rows.group_by("task", maintain_order=True):
        all_points = some["grade"].drop_nulls()
        share = float(all_points.mean() or 0)
        found[str(task)] = share, 1.96 * sqrt(share * (1 - share) / len(all_points)), len(all_points)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--way", choices=["greedy", "sampled"], default="greedy")
    options = parser.parse_args()
    bench = Table("problems/tiny-bench", options.results).scan().select("problem", "level").collect()
    tasks = bench.with_columns(task=pl.col("level").str.split("-").list.first())
    for task in tasks["task"].unique(maintain_order=True):
        print(f"\n| {task}, {options.way} | {' | '.join(f'seed {seed}' for seed in options.seeds)} |")
        print("|---" * (len(options.seeds) + 1) + "|")
        for model in MODELS:
            name = cell("grades", model, "problems/tiny-bench", options.way)
            names = [name if seed == 0 else reseed(name, seed) for seed in options.seeds]
            by_seed = [accuracies(Table(each, options.results), tasks)[task] for each in names]
            shown = " | ".join(f"{share:.3f} ± {half:.3f}" for share, half, _ in by_seed)
            print(f"| `{model}` | {shown} |")


if __name__ == "__main__":
    main()

"""Measure debiased scores: how often the intervals hold, and how wide they are next to those of the labels alone.

    python benchmarks/debiasing.py [--draws 2000] [--folder docs/measurements] [--opc opc/graded_proofs.jsonl]

*nano*: grades of 0 to 7 by the program, of the 150 cells of docs/measurements/nano-claims.csv. They are the labels. The judge
is the referee of `nano` with `noise` (synthetic/_referee_biases.py): that share of its grades is another number of points.
A draw takes a cell and as many of its problems, with replacement, with 4 attempts each; its true score is the cell's mean.

*OPC* ($PROOFMILL_DATA/opc, by default): proofs with human labels, correct or not. The judge is weak on purpose: a program
that calls a proof correct if it is shorter than the median. A draw takes problems with replacement.

*labels alone* is the mean by problem of the labelled attempts with its usual interval (metrics/uncertainty/intervals.py),
*judge alone* that of all attempts with the judge's grades. With *proposed*, the labels are those that `proofmill view`
proposes, 30 at a time.
"""

import argparse
import csv
import json
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from proofmill.metrics.uncertainty.debiasing import debias, propose
from proofmill.metrics.uncertainty.intervals import of_mean

FOLDER = Path(__file__).parents[1] / "docs" / "measurements"
NOISE, POINTS, ATTEMPTS = (0.1, 0.3), 7, 4
LABELS = (15, 30, 60, 120)
Draw = tuple[np.ndarray, np.ndarray, np.ndarray, float]  # problem, label and judge's grade of each attempt; true score
World = Callable[[np.random.Generator], Draw]


def nano(folder: Path, noise: float) -> World:
    """Return a function that draws a cell of the kept grades, with an erring referee."""
    with (folder / "nano-claims-problems.csv").open(encoding="utf-8") as file:
        sizes: dict[str, int] = defaultdict(int)
        for row in csv.DictReader(file):
            sizes[row["problems"]] += 1
    with (folder / "nano-claims.csv").open(encoding="utf-8") as file:
        cells = [
            np.array([float("nan") if grade == "-" else float(grade) for grade in row["grades"].split()])
            .reshape(sizes[row["problems"]], -1)[:, :ATTEMPTS]
            for row in csv.DictReader(file)
        ]  # fmt: skip
    cells = [cell / POINTS for cell in cells if not np.isnan(cell).any()]

    def draw(rng: np.random.Generator) -> Draw:
        cell = cells[rng.integers(len(cells))]
        labels = cell[rng.integers(len(cell), size=len(cell))]
        others = (labels * POINTS + rng.integers(1, POINTS + 1, size=labels.shape)) % (POINTS + 1) / POINTS
        judged = np.where(rng.random(labels.shape) < noise, others, labels)
        problems = np.repeat(np.arange(len(cell)), cell.shape[1])
        return problems, labels.ravel(), judged.ravel(), float(cell.mean())

    return draw


def opc(path: Path) -> World:
    """Return a function that draws problems of the labelled proofs, with a program that judges them by their length."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    median = np.median([len(row["proof"]) for row in rows])
    proofs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        proofs[row["problem_id"]].append((float(row["human_label"] == "correct"), float(len(row["proof"]) < median)))
    groups = [np.array(some) for some in proofs.values()]
    truth = float(np.mean([group[:, 0].mean() for group in groups]))
    agreed = float(np.mean(np.concatenate(groups)[:, 0] == np.concatenate(groups)[:, 1]))
    print(f"OPC: {len(rows)} proofs of {len(groups)} problems, {truth:.2f} correct; the judge agrees on {agreed:.2f}\n")

    def draw(rng: np.random.Generator) -> Draw:
        drawn = [groups[place] for place in rng.integers(len(groups), size=len(groups))]
        problems = np.repeat(np.arange(len(drawn)), [len(group) for group in drawn])
        labels, judged = np.concatenate(drawn).T
        return problems, labels, judged, truth

    return draw


def label(
    names: list[str], labels: np.ndarray, judged: np.ndarray, number: int, proposed: bool, seed: int
) -> np.ndarray:
    """Return the labels of some attempts, NaN for the others."""
    shown = np.full(len(names), np.nan)
    if not proposed:
        chosen = np.random.default_rng(seed).choice(len(names), number, replace=False)
        shown[chosen] = labels[chosen]
    while (missing := number - int((~np.isnan(shown)).sum())) > 0:
        chosen = [int(name) for name in propose(names, judged, shown, min(30, missing), seed)]
        shown[chosen] = labels[chosen]
    return shown


def print_rows(name: str, world: World, draws: int) -> None:
    """Print a row for each number of labels, with labels at random and proposed."""
    for number in LABELS:
        for proposed in (False, True):
            rng = np.random.default_rng(number)
            found: dict[str, list[tuple[bool, float]]] = defaultdict(list)
            errors, weights = [], []
            for seed in range(draws):
                problems, labels, judged, truth = world(rng)
                names = [str(place) for place in range(len(problems))]
                shown = label(names, labels, judged, number, proposed, seed)
                estimate = debias([str(problem) for problem in problems], judged, shown)
                assert estimate is not None, "there are labels"
                drawn = ~np.isnan(label(names, labels, judged, number, False, seed))
                of_problem = {p: labels[drawn & (problems == p)].mean() for p in np.unique(problems[drawn])}
                judges = [judged[problems == p].mean() for p in np.unique(problems)]
                for kind, (low, high) in (
                    ("debiased", estimate.ends(0.95)),
                    ("labels", of_mean(np.array([*of_problem.values()]), (0, 1), resamples=500)),
                    ("judge", of_mean(np.array(judges), (0, 1), resamples=500)),
                ):
                    found[kind].append((low <= truth <= high, high - low))
                errors.append(estimate.value - truth)
                weights.append(estimate.weight)
            shown_numbers = [f"{np.mean(found[kind], axis=0)[0]:.1%}" for kind in ("debiased", "labels", "judge")]
            narrower = np.mean([w for _, w in found["debiased"]]) / np.mean([w for _, w in found["labels"]])
            how = "proposed" if proposed else "at random"
            print(
                f"| {name} | {number} {how} | {' | '.join(shown_numbers)} | {narrower:.2f} | {np.mean(weights):.2f} "
                f"| {np.mean(errors):+.4f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument(
        "--opc", type=Path, default=Path(os.environ.get("PROOFMILL_DATA", "")) / "opc/graded_proofs.jsonl"
    )
    options = parser.parse_args()
    worlds = {f"nano, noise {noise:g}": nano(options.folder, noise) for noise in NOISE}
    if options.opc.exists():
        worlds["OPC"] = opc(options.opc)
    print("| data | labels | covers: debiased | labels alone | judge alone | width, labels alone = 1 | weight | bias |")
    print("|---|---|---|---|---|---|---|---|")
    for name, world in worlds.items():
        print_rows(name, world, options.draws)


if __name__ == "__main__":
    main()

"""Measure sequential decisions on stored grades: false alarms, and how much of the data they need.

    python benchmarks/sequential.py [--orders 10000] [--folder docs/measurements]

Comparisons: each pair of models with the same seed, benchmark and sampling in the measurements of `benchmarks/seeds.py`. The
difference of a problem is that of the models' mean grades, as a share of the points. Problems arrive in random orders,
and the rule may decide where a stage looks (estimation/stopping.py, error 0.05): after 16, 20, 25, ... problems.

- *null*: in each order, each problem's difference gets a random sign, so the models are equal. Every decision is a false
  alarm. The same for looks after each problem, and for the usual 95 % interval after each problem from the tenth on.
- *needed*: the median share of the problems until the decision, by size of the difference; a comparison that stays
  undecided needs all. *wrong*: decisions against the sign of all problems together. *missed*: decisions whose interval does
  not contain the difference of all problems, and the same for the usual 95 % interval at the same stop.

Pass rates: attempts at a problem with a known chance, until a band is decided, exactly (`expect_attempts`).
"""

import argparse
import csv
import math
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np

from proofmill.estimation.sequential import BETS, Band, expect_attempts, interval, looks
from proofmill.estimation.stopping import PROBLEMS

FOLDER = Path(__file__).parents[1] / "docs" / "measurements"
ERROR = 0.05
SIZES = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)  # upper ends of classes of differences, as shares of the points


def comparisons(folder: Path) -> list[np.ndarray]:
    """Return the differences by problem of all pairs of models."""
    groups: dict[tuple, dict[str, np.ndarray]] = defaultdict(dict)
    for path in sorted(folder.glob("*.csv")):
        if not (problems := folder / f"{path.stem}-problems.csv").exists():
            continue
        sizes = defaultdict(int)
        for row in csv.DictReader(problems.open()):
            sizes[row["problems"]] += 1
        for row in csv.DictReader(path.open()):
            grades = [math.nan if grade == "-" else float(grade) for grade in row["grades"].split()]
            shares = np.array(grades).reshape(sizes[row["problems"]], -1) / float(row["max_points"])
            key = path.stem, row["seed"], row["problems"], row["sampling"], row["grader"]
            groups[key][row["model"]] = np.nanmean(shares, axis=1)
    pairs = (combinations(some.values(), 2) for some in groups.values())
    return [one - other for some in pairs for one, other in some if not np.isnan(one - other).any()]


def first_decisions(orders: np.ndarray, at: list[int]) -> np.ndarray:
    """Return, for each row of differences, after how many problems of `at` a sign is decided, negative for a negative one; 0 for none."""
    bets = ((np.arange(BETS) + 0.5) / BETS)[:, None, None]
    decided = np.zeros(len(orders), dtype=int)
    for sign in (1, -1):
        capitals = np.cumsum(np.log1p(bets * sign * orders), axis=2)
        peak = capitals.max(axis=0)
        evidence = peak + np.log(np.exp(capitals - peak).mean(axis=0))
        crossed = np.zeros(orders.shape, dtype=bool)
        crossed[:, np.array(at) - 1] = (evidence >= math.log(2 / ERROR))[:, np.array(at) - 1]
        first = np.where(crossed.any(axis=1), crossed.argmax(axis=1) + 1, 0)
        decided = np.where((first > 0) & ((decided == 0) | (first < abs(decided))), sign * first, decided)
    return decided


def peeking(orders: np.ndarray) -> np.ndarray:
    """Return whether a 95 % interval excludes 0 after any number of problems from 10 on."""
    number = np.arange(1, orders.shape[1] + 1)
    mean = np.cumsum(orders, axis=1) / number
    variance = np.maximum(np.cumsum(orders**2, axis=1) / number - mean**2, 0) * number / np.maximum(number - 1, 1)
    outside = abs(mean) > 1.96 * np.sqrt(variance / number)
    return outside[:, 9:].any(axis=1)


def misses(orders: np.ndarray, decided: np.ndarray) -> np.ndarray:
    """Return for each order whether the interval at its end misses the mean of all problems: ours, and the usual one."""
    rows = []
    for differences, number in zip(orders, abs(decided), strict=True):
        some, mean = differences[:number], differences.mean()
        low, high = (2 * end - 1 for end in interval((some + 1) / 2, ERROR))
        rows.append((not low <= mean <= high, abs(some.mean() - mean) > 1.96 * some.std(ddof=1) / math.sqrt(number)))
    return np.array(rows).reshape(-1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    chance = np.random.default_rng(0)
    found = comparisons(options.folder)
    each = -(-options.orders // len(found))
    rows: dict[float, list[tuple]] = defaultdict(list)
    alarms = each_problem = peeks = 0
    missed = []
    for differences in found:
        size = abs(differences.mean())
        orders = np.array([chance.permutation(differences) for _ in range(each)])
        null = orders * chance.choice((-1, 1), size=orders.shape)
        at = list(looks(len(differences), PROBLEMS))
        alarms += int((first_decisions(null, at) != 0).sum())
        each_problem += int((first_decisions(null, list(range(1, len(differences) + 1))) != 0).sum())
        peeks += int(peeking(null).sum())
        decided = first_decisions(orders, at)
        missed.append(misses(orders[decided != 0], decided[decided != 0]))
        needed = np.where(decided == 0, len(differences), abs(decided)) / len(differences)
        wrong = (decided != 0) & (np.sign(decided) != np.sign(differences.mean()))
        rows[next(end for end in SIZES if size <= end)].append((needed, decided != 0, wrong))
    total = each * len(found)
    print(f"{len(found)} comparisons, {total:,} orders\n")
    print(
        f"false alarms under the null: {alarms / total:.1%}; with looks after each problem {each_problem / total:.1%}; "
        f"of the usual interval at every look {peeks / total:.1%}\n"
    )
    ours, usual = np.concatenate(missed).mean(axis=0)
    print(
        f"intervals at a decision that miss the difference of all problems: {ours:.1%}; usual intervals: {usual:.1%}\n"
    )
    print(
        "| difference, share of the points | comparisons | decided | problems needed (median) | wrong |\n|---|---|---|---|---|"
    )
    for begin, end in zip((0.0, *SIZES), SIZES, strict=False):
        if some := rows.get(end):
            needed, decided, wrong = (np.concatenate(part) for part in zip(*some, strict=True))
            print(
                f"| {begin:g} to {end:g} | {len(some)} | {decided.mean():.0%} | {np.median(needed):.0%} | {wrong.mean():.1%} |"
            )
    print("\n| pass rate | attempts of 128 until [0, 0.9] is decided | share |\n|---|---|---|")
    band = Band(0, 0.9, ERROR)
    for rate in (0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0):
        number = expect_attempts(band, 128, rate)
        print(f"| {rate:g} | {number:.0f} | {number / 128:.0%} |")
    random_rates = [expect_attempts(band, 128, rate / 50) for rate in range(51)]
    print(f"\nevenly spread rates: {np.mean(random_rates) / 128:.0%}")


if __name__ == "__main__":
    main()

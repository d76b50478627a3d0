"""Measure how often intervals contain the true value, and how wide they are, before and after a change of method.

    python benchmarks/intervals.py [--samples 300] [--table]

Four sets of designs are simulated, each with as many samples as `--samples`:

    scores       Mean of 3 to 500 problems with 1 to 16 attempts: right or wrong, or 0 to 7 points; rates from 0.01 to
                 0.99; attempts at a problem independent or alike.
    differences  Two models on the same 6 to 200 problems, alike or not, which find the same problems hard.
    skewed       Two equally good models: one solves each problem in most attempts, the other most problems always and
                 the others never.
    trainings    Two models with 2 to 10 seeds of each; seeds, problems or neither matter.

`before` is the percentile bootstrap (Clopper and Pearson's interval if all problems are right or wrong, Hoeffding's if
they are equal), for differences next to the p of a permutation test; for trainings it has problems only. `after` is what
`scores` does (metrics/uncertainty/intervals.py, metrics/uncertainty/paired.py). Both have a nominal 95 %. `--table` prints every design.
"""

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from proofmill.metrics.uncertainty import intervals, paired

RATES = (0.01, 0.03, 0.1, 0.3, 0.5, 0.9, 0.97, 0.99)
# What an attempt earns, attempts, and the share of the variance that is between problems.
WAYS = (
    ("binary", 1, 0.0), ("binary", 4, 0.0), ("binary", 4, 0.3), ("binary", 16, 0.3), ("binary", 8, 0.8),
    ("points", 1, 0.2), ("points", 4, 0.2), ("points", 16, 0.5),
)  # fmt: skip
RESAMPLES, DRAWS = 1000, 4000
MANY = 1_000_000
AIM = (0.93, 0.97)


class Found(NamedTuple):
    """Of a design and a method: the share of intervals with the true value, of those below it, and the mean width."""

    covered: float
    below: float
    width: float


class Design(NamedTuple):
    """A set of benchmarks: what is drawn, and the true value."""

    group: str
    name: str
    truth: float
    draw: Callable[[np.random.Generator], np.ndarray]


# -------------------------------------------------------------------------------------------------------------- designs


def problem_means(rng: np.random.Generator, rate_P: np.ndarray, way: tuple[str, int, float]) -> np.ndarray:
    """Draw the mean of each problem's attempts, as a share of all points."""
    kind, attempts, _ = way
    if kind == "binary":
        return rng.binomial(attempts, rate_P) / attempts
    rate_P = np.clip(rate_P, 1e-6, 1 - 1e-6)
    rate_AP = rng.beta(
        1.5 * rate_P, 1.5 * (1 - rate_P), size=(attempts, len(rate_P))
    )  # most attempts earn few or most points
    return rng.binomial(7, rate_AP).mean(axis=0) / 7


def hardness(rng: np.random.Generator, problems: int, rate: float, alike: float) -> np.ndarray:
    """Draw the true rate of each problem."""
    if alike == 0:
        return np.full(problems, rate)
    spread = (1 - alike) / alike
    return rng.beta(rate * spread, (1 - rate) * spread, size=problems)


@cache
def ordered_rates(rate: float, alike: float) -> np.ndarray:
    """Return many true rates in order, from which two models take those of the same problems."""
    return np.sort(hardness(np.random.default_rng(0), MANY, rate, alike))


def scores() -> Iterator[Design]:
    for problems, way, rate in itertools.product((3, 6, 15, 30, 60, 200, 500), WAYS, RATES):

        def draw(
            rng: np.random.Generator, problems: int = problems, way: tuple = way, rate: float = rate
        ) -> np.ndarray:
            return problem_means(rng, hardness(rng, problems, rate, way[2]), way)

        yield Design(f"{problems} problems", f"{way[0]}, {way[1]} attempts, alike {way[2]}, rate {rate}", rate, draw)


def differences() -> Iterator[Design]:
    pairs = ((0.02, 0.02), (0.02, 0.06), (0.1, 0.1), (0.1, 0.25), (0.5, 0.5), (0.5, 0.6), (0.9, 0.95))
    for problems, way, pair in itertools.product((6, 10, 15, 30, 60, 200), WAYS[::2], pairs):

        def draw(
            rng: np.random.Generator, problems: int = problems, way: tuple = way, pair: tuple = pair
        ) -> np.ndarray:
            luck_P, alike = rng.random(problems), max(way[2], 0.3)
            own_P = np.where(rng.random(problems) < 0.7, luck_P, rng.random(problems))
            first_P, second_P = (
                problem_means(rng, ordered_rates(rate, alike)[(some_P * MANY).astype(int)], way)
                for rate, some_P in zip(pair, (luck_P, own_P), strict=True)
            )
            return second_P - first_P

        yield Design(f"{problems} problems", f"{way}, rates {pair}", pair[1] - pair[0], draw)


def skewed() -> Iterator[Design]:
    for problems, attempts, rate in itertools.product((10, 20, 60, 200), (1, 4, 16), (0.8, 0.9, 0.95)):

        def draw(rng: np.random.Generator, n: int = problems, k: int = attempts, rate: float = rate) -> np.ndarray:
            return (rng.random(n) < rate) - rng.binomial(k, rate, n) / k

        yield Design(f"{problems} problems, skewed", f"{attempts} attempts, rate {rate}", 0.0, draw)


def trainings() -> Iterator[Design]:
    spreads = ((0.0, 1.0), (0.2, 1.0), (1.0, 1.0), (1.0, 0.0))
    for seeds, problems, (by_seed, by_problem) in itertools.product((2, 3, 5, 10), (30, 384), spreads):

        def draw(rng: np.random.Generator, shape: tuple = (seeds, problems), s: float = by_seed, p: float = by_problem) -> np.ndarray:  # fmt: skip
            return 0.5 + rng.normal(0, s, (shape[0], 1)) + rng.normal(0, p, (1, shape[1])) + rng.normal(0, 1, shape)

        yield Design(
            f"{seeds} seeds", f"{problems} problems, deviations {by_seed} by seed, {by_problem} by problem", 0.5, draw
        )


# -------------------------------------------------------------------------------------------------------------- methods


def percentiles(values_P: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    chosen_RP = rng.integers(len(values_P), size=(RESAMPLES, len(values_P)))
    low, high = np.quantile(values_P[chosen_RP].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def score_before(values_P: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    problems = len(values_P)
    if np.all((values_P == 0) | (values_P == 1)):
        right = int(values_P.sum())
        return least_share(right, problems), 1 - least_share(problems - right, problems)
    if np.all(values_P == values_P[0]):
        margin = math.sqrt(math.log(40) / (2 * problems))
        return max(0.0, values_P[0] - margin), min(1.0, values_P[0] + margin)
    return percentiles(values_P, rng)


@cache
@cache
def least_share(right: int, n: int) -> float:
    """Return the lower end of Clopper and Pearson's interval, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(40):
        share = (low + high) / 2
        tail = sum(math.comb(n, j) * share**j * (1 - share) ** (n - j) for j in range(right, n + 1))
        low, high = (share, high) if tail < 0.025 else (low, share)
    return low


def score_after(values_P: np.ndarray, rng: np.random.Generator) -> tuple[float | None, float | None]:
    return intervals.of_mean(values_P, (0, 1), resamples=RESAMPLES, seed=int(rng.integers(4)))


def difference_after(values_P: np.ndarray, rng: np.random.Generator) -> tuple[float | None, float | None]:
    return paired.over_problems(values_P, 1, resamples=RESAMPLES, seed=int(rng.integers(4)), draws=DRAWS)[:2]


def training_before(values_SP: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    return percentiles(values_SP.mean(axis=0), rng)


def training_after(values_SP: np.ndarray, rng: np.random.Generator) -> tuple[float | None, float | None]:
    return paired.over_seeds(values_SP, None)[:2]


SETS: dict[str, tuple[Callable[[], Iterator[Design]], tuple[Callable, Callable]]] = {
    "scores": (scores, (score_before, score_after)),
    "differences": (differences, (percentiles, difference_after)),
    "skewed": (skewed, (percentiles, difference_after)),
    "trainings": (trainings, (training_before, training_after)),
}


def try_out(design: Design, methods: tuple[Callable, Callable], samples: int) -> list[Found]:
    """Return what each method finds on the same samples."""
    tallies = [[0, 0, 0.0] for _ in methods]
    for sample in range(samples):
        drawn = design.draw(np.random.default_rng(sample))
        for tally, method in zip(tallies, methods, strict=True):
            low, high = method(drawn, np.random.default_rng([sample, 1]))
            tally[0] += low - 1e-12 <= design.truth <= high + 1e-12
            tally[1] += high < design.truth - 1e-12
            tally[2] += high - low
    return [Found(*(total / samples for total in tally)) for tally in tallies]


def contradictions(samples: int) -> str:
    """Compare interval and p of differences: how often one excludes 0 at 5 % and the other does not."""
    rng, found = np.random.default_rng(0), np.zeros(2, dtype=int)
    designs = list(differences())
    for sample in range(samples):
        values_P = designs[sample % len(designs)].draw(np.random.default_rng(sample))
        low, high, p = paired.over_problems(values_P, 1, resamples=RESAMPLES, draws=DRAWS)
        before = percentiles(values_P, rng)
        for place, (least, most) in enumerate((before, (low, high))):
            found[place] += (least > 0 or most < 0) != (p < 0.05)
    return (
        f"interval and p contradict each other in {found[0]:,} of {samples:,} comparisons before, in {found[1]:,} after"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=[*SETS])
    parser.add_argument("--comparisons", type=int, default=2000)
    parser.add_argument("--table", action="store_true", help="print every design")
    options = parser.parse_args()
    for name in options.sets:
        designs, methods = SETS[name]
        groups: dict[str, list[list[Found]]] = {}
        for design in designs():
            pair = try_out(design, methods, options.samples)
            groups.setdefault(design.group, []).append(pair)
            if options.table:
                print(
                    f"{design.group}, {design.name}:",
                    *(f"{f.covered:.3f} of width {f.width:.3f}" for f in pair),
                    flush=True,
                )
        print(f"\n{name}: {options.samples} samples of each design; before -> after", flush=True)
        print("| | designs | least coverage | mean coverage | under 0.93 | over 0.97 | truth above | mean width |")
        print("|---|---|---|---|---|---|---|---|")
        for group, pairs in groups.items():
            cells = []
            for of_method in zip(*pairs, strict=True):
                covered = [found.covered for found in of_method]
                cells.append(
                    (
                        f"{min(covered):.3f}", f"{np.mean(covered):.3f}", str(sum(c < AIM[0] for c in covered)),
                        str(sum(c > AIM[1] for c in covered)), f"{np.mean([found.below for found in of_method]):.3f}",
                        f"{np.mean([found.width for found in of_method]):.3f}",
                    )
                )  # fmt: skip
            print(f"| {group} | {len(pairs)} | {' | '.join(map(' -> '.join, zip(*cells, strict=True)))} |", flush=True)
    if "differences" in options.sets:
        print(f"\n{contradictions(options.comparisons)}")


if __name__ == "__main__":
    main()

"""One row of `scores` is a measured number with its interval, its n and its share unscored.

Intervals are clustered by problem: attempts at one problem are not independent (Miller 2024, "Adding Error Bars to
Evals", section 3.2); problems are resampled with replacement, each with all its attempts.

How we differ from the usual table of means:
1. Unscored attempts are left out of the mean and reported beside it; too large a share of them stops the stage.
2. Where every problem has the same value, a bootstrap would claim certainty; the interval is then the exact binomial one
   (Clopper and Pearson 1934) at an end of the scale, and Hoeffding's elsewhere, for that many problems.
3. Several seeds are several trainings: they are shown one by one and together, and the interval of the latter takes the
   problems as clusters, so it speaks of these problems' population, not of further seeds.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from proofmill import arithmetic, kinds, statements
from proofmill.jobs import Job, run
from proofmill.measures import MEASURES, OfAttempts, label
from proofmill.named import split
from proofmill.progress import say
from proofmill.tables import TableError

SEED = re.compile(r"@seed-(\d+)")
LEVELS = range(2, 13)  # so many levels are worth a split of their own; one is no split, and many are hardly levels


def main(entry: kinds.Scores, job: Job) -> None:
    measures = [split(item)[0] for item in entry.measures]
    rows = [
        row for measure in measures if MEASURES[measure].apply is None for row in shared_problems(entry.problems, job)
    ]
    groups = grouped(entry.grades, job)
    for (model, problems, sampling), attempts in groups.items():
        where = f"{model} on {problems} ({sampling})"
        _gate(job.name, where, attempts, entry.max_unscored)
        for measure in measures:
            if isinstance(kernel := MEASURES[measure].apply, OfAttempts):
                for part, chosen in _splits(attempts):
                    found = measured(kernel, chosen, entry.confidence, entry.resamples, entry.seed)
                    name = label(measure, _attempts(attempts))
                    rows.append(
                        {
                            "model": model,
                            "problems": problems,
                            "sampling": sampling,
                            "measure": name,
                            "split": part,
                            **found,
                        }
                    )
    page = report(job.name, rows, entry)
    for line in page.splitlines():
        say(job.name, line)
    job.finish(rows, {"numbers": len(rows)}, page=page)


# ------------------------------------------------------------------------------------------------------------- attempts


def grouped(names: Iterable[str], job: Job) -> dict[tuple[str, str, str], list[dict]]:
    """Graded attempts by (model, problems, sampling), each with its problem's level and its seed."""
    groups: dict[tuple[str, str, str], list[dict]] = defaultdict(list)
    homes: dict[tuple[str, str, str], str] = {}
    for name in names:
        responses = job.parent(job.parent(name).stamp["entry"]["responses"]).stamp["entry"]
        model, seed = _without_seed(responses["model"])
        problems = responses["problems"]
        levels = {row["problem"]: row["level"] for row in job.parent(problems).rows("problem", "level")}
        way = name.split("@")[2] if name.count("@") > 1 else _way(responses)
        home = homes.setdefault((model, problems, way), SEED.sub("", name))
        if home != SEED.sub("", name):
            raise TableError(
                f"{job.name}: {home} and {name} both measure {model} on {problems} ({way}); expected one. "
                "Measure them in two scores entries."
            )
        for row in job.parent(name).rows("problem", "attempt", "grade", "out_of", "well_formed", "stop"):
            groups[model, problems, way].append({**row, "level": levels[row["problem"]], "seed": seed})
    return groups


def _without_seed(model: str) -> tuple[str, int]:
    found = SEED.search(model)
    return SEED.sub("", model), int(found[1]) if found else 0


def _way(responses: Mapping) -> str:
    return "greedy" if responses["temperature"] == 0 else f"T={responses['temperature']:g}"


def _attempts(attempts: Sequence[Mapping]) -> int:
    """Attempts at each problem in one seed."""
    return max(row["attempt"] for row in attempts) + 1


def _splits(attempts: list[dict]) -> Iterator[tuple[str, list[dict]]]:
    yield "all", attempts
    for key, prefix in (("seed", "seed "), ("level", "")):
        parts = sorted({row[key] for row in attempts if row[key] is not None})
        if len(parts) in LEVELS:
            for part in parts:
                yield f"{prefix}{part}", [row for row in attempts if row[key] == part]


def _gate(name: str, where: str, attempts: list[dict], most: float) -> None:
    unscored = sum(row["grade"] is None for row in attempts) / len(attempts)
    if unscored > most:
        raise TableError(
            f"{name}: {unscored:.1%} of the attempts of {where} have no verdict; expected at most {most:.1%} (`max-unscored`). "
            "Their reasons are in the grades table; grade them again, or raise the limit if you accept the gap."
        )


def measured(
    kernel: OfAttempts, attempts: Sequence[Mapping], confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> dict[str, Any]:
    """value, low, high, n, problems_n and unscored of one measure over attempts."""
    by_problem: dict[str, list[float]] = defaultdict(list)
    for row in attempts:
        if (value := kernel.value(row)) is not None:
            by_problem[row["problem"]].append(value)
    means_P = np.array([np.mean(values) for values in by_problem.values()])
    n = sum(map(len, by_problem.values()))
    low, high = interval(means_P, kernel.scale, confidence, resamples, seed)
    return {
        "value": float(means_P.mean()) if n else None,
        "low": low,
        "high": high,
        "n": n,
        "problems_n": len(by_problem),
        "unscored": 1 - n / len(attempts) if attempts else 0.0,
    }


def interval(
    means_P: np.ndarray, scale: float | None, confidence: float, resamples: int, seed: int
) -> tuple[float | None, float | None]:
    """Percentile bootstrap interval of the mean over problems; where all have one value, a bound that needs no spread."""
    if len(means_P) == 0:
        return None, None
    if np.all(means_P == means_P[0]):
        return _without_spread(float(means_P[0]), len(means_P), scale, 1 - confidence)
    tail = (1 - confidence) / 2
    chosen_RP = np.random.default_rng(seed).integers(len(means_P), size=(resamples, len(means_P)))
    low, high = np.quantile(means_P[chosen_RP].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)


def _without_spread(mean: float, n: int, scale: float | None, alpha: float) -> tuple[float | None, float | None]:
    """Clopper-Pearson at an end of the scale, else Hoeffding's inequality (1963, theorem 2); nothing without a scale."""
    if scale is None:
        return None, None
    margin = scale * (1 - (alpha / 2) ** (1 / n) if mean in (0, scale) else math.sqrt(math.log(2 / alpha) / (2 * n)))
    return max(0.0, mean - margin), min(scale, mean + margin)


# ------------------------------------------------------------------------------------------------------------- problems


def shared_problems(names: Sequence[str], job: Job) -> Iterator[dict]:
    """For each two tables, how many kept problems they share by normalised statement: an exact count."""
    kept = {name: {statements.normal(row["statement"]) for row in job.parent(name).rows("statement")} for name in names}
    for one, other in combinations(names, 2):
        shared = len(kept[one] & kept[other])
        size = len(kept[one]) + len(kept[other])
        yield {
            "model": None,
            "problems": f"{one} & {other}",
            "sampling": None,
            "measure": "shared-problems",
            "split": "all",
            "value": float(shared),
            "low": float(shared),
            "high": float(shared),
            "n": size,
            "problems_n": size,
            "unscored": 0.0,
        }


def _content(statement: str) -> str:
    """What a statement states: of the arithmetic family the problem itself, else its normalised text."""
    problem = arithmetic.read(statement)
    return statements.normal(statement) if problem is None else repr(problem)


# --------------------------------------------------------------------------------------------------------------- report


def report(name: str, rows: Sequence[Mapping], entry: kinds.Scores) -> str:
    """The numbers over all problems as Markdown, a sheet for each way of sampling; then the same for each seed."""
    everything = [row for row in rows if row["model"] and (row["split"] == "all" or row["split"].startswith("seed"))]
    lines = [f"# {name}", ""]
    if everything:
        lines += [
            f"Value [low, high]: {entry.confidence:.0%} intervals, clustered by problem. Marks (avg@k) are out of 7.",
            "",
        ]
    for part in ("all", *sorted({row["split"] for row in everything} - {"all"})):
        for way in dict.fromkeys(row["sampling"] for row in everything):
            title = way if part == "all" else f"{way}, {part}"
            lines += [*_sheet(title, [r for r in everything if (r["sampling"], r["split"]) == (way, part)]), ""]
    for row in rows:
        if row["model"] is None:
            lines.append(f"- {row['problems']}: {row['value']:g} {row['measure']}")
    return "\n".join(lines) + "\n"


def _sheet(title: str, rows: Sequence[Mapping]) -> list[str]:
    """One way of sampling: a line for each model and benchmark, a column for each measure."""
    columns = list(dict.fromkeys(row["measure"] for row in rows))
    lines = [f"| {title} | problems | {' | '.join(columns)} | attempts | unscored |", "|---" * (len(columns) + 4) + "|"]
    for model, problems in dict.fromkeys((row["model"], row["problems"]) for row in rows):
        cells = {row["measure"]: row for row in rows if (row["model"], row["problems"]) == (model, problems)}
        first = next(iter(cells.values()))
        shown = " | ".join(_cell(cells.get(column)) for column in columns)
        attempts = f"{first['n']:,} at {first['problems_n']:,} problems"
        lines.append(f"| {model} | {problems} | {shown} | {attempts} | {first['unscored']:.1%} |")
    return lines


def _cell(row: Mapping | None) -> str:
    if row is None or row["value"] is None:
        return "–"
    return f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


if __name__ == "__main__":
    run(main)

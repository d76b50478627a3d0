"""Compare the verifiers of the recipe verifier-nano with controls that do not read the proof.

    python benchmarks/verifiers.py 0 1 2 3 4 [--results results]     # keeps the verdicts of finished seeds as CSV
    python benchmarks/claims.py                                      # fills the numbers of docs/claims.md

Controls, fitted to the verdicts that the verifiers are trained on:
- `most-frequent` always gives the grade with the lowest error there.
- `surface` gives the median grade of the attempts there with the same number of lines, length, boxes and length of the
  statement; with fewer than LEAST of these, the last of these features is ignored, and so on.

docs/measurements/verifier-nano-verdicts.csv has a line for each seed, table and grader: the grades in the order of
verifier-nano-problems.csv (`-`: no verdict, or the attempt was dropped). The grader `truth` has the true grades, and
`fault` the kind of fault that the checker found.
"""

import argparse
import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

import numpy as np
import seeds

from proofmill.artifacts.tables import Table
from proofmill.graders.verifiers import Truth
from proofmill.metrics.agreement import AGREEMENTS
from proofmill.metrics.uncertainty import paired
from proofmill.metrics.uncertainty.intervals import interval
from proofmill.runtime import durable
from proofmill.schema.names import reseed

FILE = "verifier-nano-verdicts.csv"
TABLES = {"problems/verdicts-tested": "grades/tested", "problems/verdicts-student": "grades/tested-student"}
MODELS = ("sft/verifier", "sft/verifier-longer", "grpo/verifier", "sft/verifier-again")
CONTROLS = ("most-frequent", "surface")
POINTS, LEAST = 7, 5
FAULTS = {  # of a checker's verdict, by a part of its text; the first counts
    "false line": "is false or cannot be read",
    "missing line": "lines are missing",
    "order": "out of order",
    "too many lines": "the argument needs",
    "form": "",
}
SAID = re.compile(r"(\d+) for \d+")  # in the verdict of `grade-distance`
PROOF = re.compile(r"<problem>\n(.*)\n</problem>\n<proof>\n(.*)\n</proof>", re.DOTALL)
Verdicts = Mapping[tuple[int, str, str], list[str]]  # by seed, problems table and grader


# -------------------------------------------------------------------------------------------------------------- writing


def collect(results: Path, seed: int, folder: Path) -> None:
    """Add the verdicts of a finished seed to the file."""

    def table(name: str) -> Table:
        return Table(reseed(name, seed) if seed else name, results)

    known = [
        (_features(row["statement"]), Truth.of(row["answer"]))
        for row in table("problems/verdicts").rows("statement", "answer")
    ]
    controls = _fit([(features, truth.grade) for features, truth in known if truth])
    lines = []
    for problems, grades in TABLES.items():
        rows = table(problems).rows("problem", "statement", "answer", kept=False)
        truths = [truth.grade if (truth := Truth.of(row["answer"])) else None for row in rows]
        verdicts = [row["verdict"] for row in table(grades).rows("verdict")]
        kinds = [
            "-" if truth is None else _name_fault(verdict) for truth, verdict in zip(truths, verdicts, strict=True)
        ]
        given: dict[str, list[str]] = {"truth": [*map(_show, truths)], "fault": kinds}
        for name, control in controls.items():
            given[name] = [
                "-" if truth is None else _show(control(_features(row["statement"])))
                for row, truth in zip(rows, truths, strict=True)
            ]
        for model in MODELS:
            cell = f"grades/{model.replace('/', '-')}@{problems.partition('/')[2]}@checked"
            said = {row["problem"]: row["verdict"] for row in table(cell).rows("problem", "verdict")}
            given[model] = [m[1] if (m := SAID.match(said.get(row["problem"], ""))) else "-" for row in rows]
        lines += [
            {"seed": seed, "problems": problems, "grader": name, "grades": "|".join(values)}
            for name, values in given.items()
        ]
    kept = [line for line in seeds.read_lines(folder / FILE) if line["seed"] != str(seed)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows([*kept, *lines])
    durable.write(folder / FILE, text.getvalue())


def _show(grade: float | None) -> str:
    return "-" if grade is None else f"{grade:g}"


def _name_fault(verdict: str) -> str:
    return next((kind for kind, part in FAULTS.items() if part in verdict), "none") if verdict else "none"


def _features(statement: str) -> tuple[int, ...]:
    """Return lines, characters by tens, boxes and the statement's length of the attempt that a prompt shows."""
    shown = PROOF.search(statement)
    if shown is None:
        return ()
    return shown[2].count("\n") + 1, len(shown[2]) // 10, shown[2].count("\\boxed{"), len(shown[1])


def _fit(examples: Sequence[tuple[tuple[int, ...], float]]) -> dict[str, Callable[[tuple[int, ...]], float]]:
    """Return the controls, which minimize the absolute error on the examples."""
    by_features: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for features, grade in examples:
        for length in range(len(features) + 1):
            by_features[features[:length]].append(grade)
    best = median(by_features[()])

    def surface(features: tuple[int, ...]) -> float:
        lengths = range(len(features), -1, -1)
        return next(float(round(median(g))) for n in lengths if len(g := by_features.get(features[:n], [])) >= LEAST)

    return {"most-frequent": lambda features: best, "surface": surface}


# -------------------------------------------------------------------------------------------------------------- reading


def read(folder: Path) -> Verdicts:
    """Return the grades of each seed, table and grader."""
    lines = seeds.read_lines(folder / FILE)
    return {(int(line["seed"]), line["problems"], line["grader"]): line["grades"].split("|") for line in lines}


def _values(grades: Sequence[str]) -> np.ndarray:
    return np.array([np.nan if grade == "-" else float(grade) for grade in grades])


def closeness(verdicts: Verdicts, problems: str, grader: str) -> np.ndarray:
    """Return 1 - |grade - truth| / POINTS by seed and problem; 0 without a verdict, NaN for a dropped attempt."""
    known = sorted({seed for seed, *_ in verdicts})
    truth_SP = np.stack([_values(verdicts[seed, problems, "truth"]) for seed in known])
    grade_SP = np.stack([_values(verdicts[seed, problems, grader]) for seed in known])
    close_SP = np.where(np.isnan(grade_SP), 0.0, 1 - np.abs(grade_SP - truth_SP) / POINTS)
    return np.where(np.isnan(truth_SP), np.nan, close_SP)


def list_agreement(verdicts: Verdicts) -> Iterator[str]:
    """Yield closeness, error, bias and weighted kappa of each grader, and how far it is above each control."""
    known = sorted({seed for seed, *_ in verdicts})
    if not known:
        return
    yield f"Seeds {', '.join(map(str, known))}. Error and bias are in points, over verdicts that can be read."
    yield ""
    yield "| attempts | grader | closeness | read | error | bias | kappa | above most-frequent | above surface |"
    yield "|---" * 9 + "|"
    for problems in TABLES:
        of = {name: closeness(verdicts, problems, name) for name in (*MODELS, *CONTROLS)}
        for name in (*MODELS, *CONTROLS):
            truth_N = np.concatenate([_values(verdicts[seed, problems, "truth"]) for seed in known])
            grade_N = np.concatenate([_values(verdicts[seed, problems, name]) for seed in known])
            read_N = ~np.isnan(truth_N) & ~np.isnan(grade_N)
            pairs = list(zip(grade_N[read_N], truth_N[read_N], strict=True))
            cells = [problems.partition("/")[2], name, f"{np.nanmean(of[name]):.2f}"]
            cells.append(f"{read_N.sum() / (~np.isnan(truth_N)).sum():.0%}")
            cells += [_agreement(metric, pairs) for metric in ("mae", "bias", "quadratic-kappa")]
            cells += ["–" if name in CONTROLS else _apart(of[name] - of[control]) for control in CONTROLS]
            yield f"| {' | '.join(cells)} |"


def _agreement(name: str, pairs: Sequence[tuple[float, float]]) -> str:
    """Return an agreement over attempts, with the interval over attempts (seeds are not resampled)."""
    metric = AGREEMENTS[name]
    sums = [metric.sums(np.array([grade]), np.array([truth])) for grade, truth in pairs]
    sums_PD = np.array([each for each in sums if each is not None])
    value = float(metric.value(sums_PD.sum(axis=0, keepdims=True))[0])
    low, high = interval(sums_PD, metric.value, metric.ends(POINTS, 1.0))
    return f"{value:.2f}" if np.isnan(value) or low is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _apart(differences_SP: np.ndarray) -> str:
    """Return a mean difference with its interval, over seeds and problems."""
    with_value_P = ~np.isnan(differences_SP).all(axis=0)
    differences_SP = differences_SP[:, with_value_P]
    if len(differences_SP) > 1:
        test = paired.over_seeds(differences_SP, 1.0)
    else:
        test = paired.over_problems(differences_SP[0], 1.0)
    shown = f"{np.nanmean(np.nanmean(differences_SP, axis=0)):+.2f}"
    return shown if test.low is None else f"{shown} [{test.low:+.2f}, {test.high:+.2f}]"


def list_errors(verdicts: Verdicts) -> Iterator[str]:
    """Yield the mean error in points of each verifier by true grade and by kind of fault, on all attempts."""
    for title, of, values in verdicts and (
        ("true grade", "truth", [*map(str, range(POINTS + 1))]),
        ("fault", "fault", ["none", *FAULTS]),
    ):
        rows: dict[str, list[str]] = {value: [] for value in values}
        for name in MODELS:
            errors: dict[str, list[float]] = defaultdict(list)
            for seed, problems, grader in verdicts:
                if grader == name:
                    given = zip(
                        _values(verdicts[seed, problems, name]),
                        _values(verdicts[seed, problems, "truth"]),
                        verdicts[seed, problems, of],
                        strict=True,
                    )
                    for grade, truth, value in given:
                        if not np.isnan(grade - truth):
                            errors[value].append(grade - truth)
            for value in values:
                some = errors.get(value, [])
                shown = f"{fmean(map(abs, some)):.2f} ({fmean(some):+.2f})" if some else "–"
                rows[value].append(shown if name != MODELS[0] else f"{len(some):,} | {shown}")
        yield f"| {title} | attempts | {' | '.join(MODELS)} |"
        yield "|---" * (len(MODELS) + 2) + "|"
        yield from (f"| {value} | {' | '.join(cells)} |" for value, cells in rows.items() if "–" not in cells)
        yield ""


def main() -> None:
    """Keep the verdicts of finished seeds."""
    parser = argparse.ArgumentParser(description="Keep verdicts of verifiers, next to controls without the proof.")
    parser.add_argument("seeds", type=int, nargs="+", help="finished seeds, whose tables are in the results folder")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--folder", type=Path, default=seeds.FOLDER)
    options = parser.parse_args()
    for seed in options.seeds:
        collect(options.results, seed, options.folder)


if __name__ == "__main__":
    main()

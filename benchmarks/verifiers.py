"""Compare the verifiers of verifier-nano and verifier-smol with controls that do not read the proof.

    python benchmarks/verifiers.py verifier-nano 0 1 2 3 4 [--results results]   # keeps verdicts of finished seeds as CSV
    python benchmarks/claims.py                                                  # fills the numbers of docs/claims.md

Controls, fitted to the verdicts that the verifiers are trained on:
- `most-frequent` always gives the grade with the lowest error there.
- `surface` gives the median grade of the attempts there with the same number of lines, length, boxes (verifier-smol:
  comparisons) and length of the statement; with fewer than LEAST of these, the last of these features is ignored, and
  so on.

docs/measurements/RECIPE-verdicts.csv has a line for each seed, table and grader: the grades in the order of
RECIPE-problems.csv (`-`: no verdict, or the attempt was dropped). The grader `truth` has the true grades, and `fault`
the kind of fault that the checker found.
"""

import argparse
import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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

LEAST = 5
CONTROLS = ("most-frequent", "surface")


@dataclass(frozen=True)
class Study:
    """The tables of one recipe, and how its prompt shows an attempt."""

    recipe: str
    points: int
    trained: str  # problems
    tested: Mapping[str, str]  # problems, with the grades that they are made of
    models: Sequence[str]
    shown: re.Pattern[str]  # the statement and the proof in a judge's prompt
    features: Callable[[str], tuple[int, ...]]  # of a proof
    faults: Mapping[str, str]  # of a checker's verdict, by a part of its text; the first counts

    @property
    def file(self) -> str:
        """Return the name of the file with its verdicts."""
        return f"{self.recipe}-verdicts.csv"


NANO = Study(
    recipe="verifier-nano",
    points=7,
    trained="problems/verdicts",
    tested={"problems/verdicts-tested": "grades/tested", "problems/verdicts-student": "grades/tested-student"},
    models=("sft/verifier", "sft/verifier-longer", "grpo/verifier", "sft/verifier-again"),
    shown=re.compile(r"<problem>\n(.*)\n</problem>\n<proof>\n(.*)\n</proof>", re.DOTALL),
    features=lambda proof: (proof.count("\n") + 1, len(proof) // 10, proof.count("\\boxed{")),
    faults={
        "false line": "is false or cannot be read",
        "missing line": "lines are missing",
        "order": "out of order",
        "too many lines": "the argument needs",
        "form": "",
    },
)
UNLIKE = replace(
    NANO,
    recipe="verifier-unlike",
    tested={"problems/verdicts-recurrence": "grades/tested", "problems/verdicts-slips": "grades/slips"},
    models=("sft/verifier", "sft/verifier-longer", "grpo/verifier"),
)
SMOL = Study(
    recipe="verifier-smol",
    points=3,
    trained="problems/proof-verdicts",
    tested={
        f"problems/proof-verdicts-{of}": f"grades/proofs-{table}"
        for of, table in (("strong", "strong"), ("weak", "weak"), ("longer", "weak-longer"))
    },
    models=("sft/proof-verifier", "sft/proof-verifier-longer", "grpo/proof-verifier", "sft/proof-verifier-again"),
    shown=re.compile(r"\A(.*?)\n\n.*ignore them\.\n\n(.*)\n\nPoints\?", re.DOTALL),
    features=lambda proof: (proof.count("\n") + 1, proof.count(">"), len(proof)),
    faults={
        "false or no comparison": "only true comparisons",
        "wrong number": "number is first",
        "missing comparison": "",
    },
)
STUDIES = {study.recipe: study for study in (NANO, UNLIKE, SMOL)}
SAID = re.compile(r"(\d+) for \d+")  # in the verdict of `grade-distance`
Verdicts = Mapping[tuple[int, str, str], list[str]]  # by seed, problems table and grader


# -------------------------------------------------------------------------------------------------------------- writing


def collect(study: Study, results: Path, seed: int, folder: Path) -> None:
    """Add the verdicts of a finished seed to the file of a study."""

    def table(name: str) -> Table:
        return _table(name, seed, results)

    controls, lines = _fit(_known(study, table(study.trained))), []
    for problems, grades in study.tested.items():
        rows = table(problems).rows("problem", "statement", "answer", "dropped", kept=False)
        truths = [truth.grade if not row["dropped"] and (truth := Truth.of(row["answer"])) else None for row in rows]
        verdicts = [row["verdict"] for row in table(grades).rows("verdict")]
        kinds = [
            "-" if truth is None else _name_fault(study, verdict)
            for truth, verdict in zip(truths, verdicts, strict=True)
        ]
        given: dict[str, list[str]] = {"truth": [*map(_show, truths)], "fault": kinds}
        for name, control in controls.items():
            given[name] = [
                "-" if truth is None else _show(control(_features(study, row["statement"])))
                for row, truth in zip(rows, truths, strict=True)
            ]
        for model in study.models:
            cell = f"grades/{model.replace('/', '-')}@{problems.partition('/')[2]}@checked"
            said = {row["problem"]: row["verdict"] for row in table(cell).rows("problem", "verdict")}
            given[model] = [m[1] if (m := SAID.match(said.get(row["problem"], ""))) else "-" for row in rows]
        lines += [
            {"seed": seed, "problems": problems, "grader": name, "grades": "|".join(values)}
            for name, values in given.items()
        ]
    kept = [line for line in seeds.read_lines(folder / study.file) if line["seed"] != str(seed)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows([*kept, *lines])
    durable.write(folder / study.file, text.getvalue())


def print_controls(study: Study, results: Path, seed: int, tables: Sequence[str]) -> None:
    """Print the closeness of the controls on other graded attempts."""
    controls = _fit(_known(study, _table(study.trained, seed, results)))
    for name in tables:
        known = _known(study, _table(name, seed, results))
        for control, grade in controls.items():
            error = fmean(abs(grade(features) - truth) for features, truth in known)
            print(f"{name}  seed {seed}  {control}  {1 - error / study.points:.3f}")


def _table(name: str, seed: int, results: Path) -> Table:
    return Table(reseed(name, seed) if seed else name, results)


def _known(study: Study, table: Table) -> list[tuple[tuple[int, ...], float]]:
    """Return the features of graded attempts, and their true grades."""
    truths = ((row["statement"], Truth.of(row["answer"])) for row in table.rows("statement", "answer"))
    return [(_features(study, statement), truth.grade) for statement, truth in truths if truth]


def _show(grade: float | None) -> str:
    return "-" if grade is None else f"{grade:g}"


def _name_fault(study: Study, verdict: str) -> str:
    return next((kind for kind, part in study.faults.items() if part in verdict), "none") if verdict else "none"


def _features(study: Study, statement: str) -> tuple[int, ...]:
    """Return the features of the attempt that a prompt shows, and the statement's length."""
    shown = study.shown.search(statement)
    return (*study.features(shown[2]), len(shown[1])) if shown else ()


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


def read(study: Study, folder: Path) -> Verdicts:
    """Return the grades of each seed, table and grader."""
    lines = seeds.read_lines(folder / study.file)
    return {(int(line["seed"]), line["problems"], line["grader"]): line["grades"].split("|") for line in lines}


def _values(grades: Sequence[str]) -> np.ndarray:
    return np.array([np.nan if grade == "-" else float(grade) for grade in grades])


def closeness(study: Study, verdicts: Verdicts, problems: str, grader: str) -> np.ndarray:
    """Return 1 - |grade - truth| / (max points) by seed and problem; 0 without a verdict, NaN for a dropped attempt."""
    known = sorted({seed for seed, *_ in verdicts})
    truth_SP = np.stack([_values(verdicts[seed, problems, "truth"]) for seed in known])
    grade_SP = np.stack([_values(verdicts[seed, problems, grader]) for seed in known])
    close_SP = np.where(np.isnan(grade_SP), 0.0, 1 - np.abs(grade_SP - truth_SP) / study.points)
    return np.where(np.isnan(truth_SP), np.nan, close_SP)


def list_agreement(study: Study, verdicts: Verdicts) -> Iterator[str]:
    """Yield closeness, error, bias and weighted kappa of each grader, and how far it is above each control."""
    known = sorted({seed for seed, *_ in verdicts})
    if not known:
        return
    yield f"Seeds {', '.join(map(str, known))}. Error and bias are in points, over verdicts that can be read."
    yield ""
    yield "| attempts | grader | closeness | read | error | bias | kappa | above most-frequent | above surface |"
    yield "|---" * 9 + "|"
    for problems in study.tested:
        of = {name: closeness(study, verdicts, problems, name) for name in (*study.models, *CONTROLS)}
        for name in (*study.models, *CONTROLS):
            truth_N = np.concatenate([_values(verdicts[seed, problems, "truth"]) for seed in known])
            grade_N = np.concatenate([_values(verdicts[seed, problems, name]) for seed in known])
            read_N = ~np.isnan(truth_N) & ~np.isnan(grade_N)
            pairs = list(zip(grade_N[read_N], truth_N[read_N], strict=True))
            cells = [problems.partition("/")[2], name, f"{np.nanmean(of[name]):.2f}"]
            cells.append(f"{read_N.sum() / (~np.isnan(truth_N)).sum():.0%}")
            cells += [_agreement(study, metric, pairs) for metric in ("mae", "bias", "quadratic-kappa")]
            cells += ["–" if name in CONTROLS else _apart(of[name] - of[control]) for control in CONTROLS]
            yield f"| {' | '.join(cells)} |"


def _agreement(study: Study, name: str, pairs: Sequence[tuple[float, float]]) -> str:
    """Return an agreement over attempts, with the interval over attempts (seeds are not resampled)."""
    metric = AGREEMENTS[name]
    sums = [metric.sums(np.array([grade]), np.array([truth])) for grade, truth in pairs]
    sums_PD = np.array([each for each in sums if each is not None])
    value = float(metric.value(sums_PD.sum(axis=0, keepdims=True))[0])
    low, high = interval(sums_PD, metric.value, metric.ends(study.points, 1.0))
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


def list_errors(study: Study, verdicts: Verdicts) -> Iterator[str]:
    """Yield the mean error in points of each verifier by true grade and by kind of fault, on all attempts."""
    for title, of, values in verdicts and (
        ("true grade", "truth", [*map(str, range(study.points + 1))]),
        ("fault", "fault", ["none", *study.faults]),
    ):
        rows: dict[str, list[str]] = {value: [] for value in values}
        for name in study.models:
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
                rows[value].append(shown if name != study.models[0] else f"{len(some):,} | {shown}")
        yield f"| {title} | attempts | {' | '.join(study.models)} |"
        yield "|---" * (len(study.models) + 2) + "|"
        yield from (f"| {value} | {' | '.join(cells)} |" for value, cells in rows.items() if "–" not in cells)
        yield ""


def main() -> None:
    """Keep the verdicts of finished seeds."""
    parser = argparse.ArgumentParser(description="Keep verdicts of verifiers, next to controls without the proof.")
    parser.add_argument("recipe", choices=STUDIES)
    parser.add_argument("seeds", type=int, nargs="+", help="finished seeds, whose tables are in the results folder")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--folder", type=Path, default=seeds.FOLDER)
    parser.add_argument("--on", nargs="+", metavar="PROBLEMS", help="instead: print the controls on these attempts")
    options = parser.parse_args()
    for seed in options.seeds:
        if options.on:
            print_controls(STUDIES[options.recipe], options.results, seed, options.on)
            continue
        collect(STUDIES[options.recipe], options.results, seed, options.folder)


if __name__ == "__main__":
    main()

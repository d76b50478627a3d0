"""Attack every grader that needs no server, and print what each attack earns: the table of docs/grading.md.

    python benchmarks/attacks.py [--rows 32] [--data ../shared/data]

The problems are those of the synthetic family, MATH, GSM8K and CRUXEval, and the small programs of data/. The referee
is called with each rubric that shows a scheme; the table has the rubric that pays most. A cell is the mean share of the
points of the best variant of an attack. Lines below the table explain every attack that earns something.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from proofmill.artifacts import jobs
from proofmill.cli.attack import run_attacks
from proofmill.config.config import Config, expand
from proofmill.config.identity import identity_of
from proofmill.graders import robustness
from proofmill.graders.attacks import ATTACKS
from proofmill.planning.attack_plan import Aim, AttackPlan
from proofmill.prompts import templates
from proofmill.schema.names import kind_of

ROOT = Path(__file__).resolve().parents[1]
REFEREE = {"id": "referee-1", "program": "referee", "price": {"input": 0, "output": 0}, "temperature": 0}
# Grader, problems and schemes of each column.
COLUMNS = {
    "api/referee": ("api/referee", "problems/family", "schemes/family"),
    "arithmetic": ("arithmetic", "problems/family", None),
    "final-answer, MATH": ("final-answer", "problems/math", None),
    "final-answer-flexible, GSM8K": ("final-answer-flexible", "problems/gsm8k", None),
    "tests, functions": ("tests", "problems/functions", None),
    "tests, programs": ("tests", "problems/programs", None),
    "tests, CRUXEval": ("tests", "problems/cruxeval", None),
    "rules, MATH": ("rules", "problems/math", None),
}


def entries(data: Path) -> dict[str, dict]:
    """Return the entries of problems, schemes and the referee."""
    programs = {"columns": {"statement": "problem", "answer": "tests"}, "question-type": "code"}
    return {
        "api/referee": REFEREE,
        "problems/family": {"source": "arithmetic", "split": "test", "rows": 256, "seed": 2},
        "schemes/family": {"problems": "problems/family", "model": "api/referee"},
        "problems/math": {"source": "math", "path": str(data / "math/train_every5th.jsonl")},
        "problems/gsm8k": {"source": "gsm8k", "path": str(data / "gsm8k/train.jsonl")},
        "problems/functions": {"source": "humaneval", "path": str(ROOT / "data/functions.jsonl")},
        "problems/programs": {"source": "table", "path": str(ROOT / "data/programs.jsonl"), **programs},
        "problems/cruxeval": {"source": "cruxeval-o", "path": str(data / "cruxeval/first400.jsonl")},
    }


def make(config: Config, results: Path) -> None:
    """Build the tables of problems and schemes."""
    for name in config.entries:
        main = import_module(f"proofmill.{kind_of(name)}").main
        jobs.make(main, name, identity_of(config.entries[name], config.declared), results, config.terms)


def rubrics() -> list[str]:
    """Return the rubrics that show a judge a grading scheme."""
    read = {name: templates.prompt(name) for name in templates.names()}
    return [name for name, prompt in read.items() if prompt.verdict and "scheme" in (*prompt.needs, *prompt.optional)]


def attack_graders(config: Config, results: Path, rows: int) -> Iterator[tuple[str, list[robustness.AttackResult]]]:
    """Yield the results of the attacks on each grader, by column."""
    for column, (grader, problems, schemes) in COLUMNS.items():
        for prompt in rubrics() if kind_of(grader) == "api" else [None]:
            aim = Aim(grader, grader, prompt, ((problems, schemes),))
            yield column, run_attacks(AttackPlan(config, aim, results, min(rows, 8) if prompt else rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = ROOT.parent / "shared" / "data"
    parser.add_argument("--rows", type=int, default=32, help="problems of each table; at most 8 for the referee")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("PROOFMILL_DATA", shared)))
    options = parser.parse_args()
    config = expand({"attacks": entries(options.data.resolve())})
    most: dict[tuple[str, str], robustness.AttackResult] = {}
    with tempfile.TemporaryDirectory() as folder:
        make(config, Path(folder))
        for column, results in attack_graders(config, Path(folder), options.rows):
            for result in results:
                key = result.attack, column
                if key not in most or (result.share or 0.0) > (most[key].share or 0.0):
                    most[key] = result
    print("| attack | " + " | ".join(COLUMNS) + " |\n|" + "---|" * (len(COLUMNS) + 1))
    for attack in ATTACKS:
        cells = (_cell(most.get((attack, column))) for column in COLUMNS)
        print(f"| `{attack}` | " + " | ".join(cells) + " |")
    print()
    for (_, column), result in most.items():
        if not result.control and result.most:
            print(f"{column}: {robustness.sentence(result)}; {result.unscored:.0%} unscored")


def _cell(result: robustness.AttackResult | None) -> str:
    """Return the share of the points; `-` if the attack does not apply, and `unscored` if no attempt has a grade."""
    if result is None:
        return "-"
    return "unscored" if result.share is None else f"{result.share:.2f}".replace("0.00", "0").replace("1.00", "1")


if __name__ == "__main__":
    main()

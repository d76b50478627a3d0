"""Take docs/images/problem.png and report.png: a problem of `nano` in the viewer, and the scores of its report.

python docs/images/screenshots.py FOLDER

FOLDER is one in which `make run` has finished. tests/pipeline/test_pipeline.py checks the same pages at a reduced size;
its screenshots are in build/screenshots.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests/fixtures"))

from browsing import chromium, opened, page_of, viewing  # noqa: E402 (a module of the tests)
from proofmill.artifacts.tables import Table  # noqa: E402

SHOWN = ("grades/sft-cold@bench@greedy", "grades/grpo-nano@bench@greedy")
WIDTH, HEIGHT = 1280, 980  # pixels of the picture of the problem
GRADES = (3.0, 7.0)  # of the two models on the problem to show


def choose_problem(results: Path) -> str:
    """Return the first problem on which the two models have GRADES."""
    grades = [{row["problem"]: row["grade"] for row in Table(name, results).rows("problem", "grade")} for name in SHOWN]
    return next(problem for problem, grade in grades[0].items() if (grade, grades[1][problem]) == GRADES)


def main(folder: Path) -> None:
    """Take both screenshots."""
    problem = choose_problem(folder / "results")
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "nano.html"
        command = [sys.executable, "-m", "proofmill", "report", "nano", "--out", report]
        subprocess.run(command, cwd=folder, check=True)
        with viewing(folder) as address, chromium() as browser:
            with page_of(browser, width=WIDTH) as page:
                page.goto(address)
                opened(page, address, f"/problem/problems/bench/{problem}?{'&'.join(f'show={n}' for n in SHOWN)}")
                page.screenshot(path=HERE / "problem.png", clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT})
            with page_of(browser, width=1100) as page:
                page.goto(report.as_uri())
                page.locator("#scores ~ .written table").first.screenshot(path=HERE / "report.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

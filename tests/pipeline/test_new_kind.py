"""The cost of a new kind: six files add a toy kind to a copy of the project, and everything supports it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from project import LOCAL, ROOT

pytestmark = pytest.mark.pipeline

ENTRY = '''"""Define the entry of `outlines`."""

from collections.abc import Callable
from typing import ClassVar

from pydantic.dataclasses import dataclass

from proofmill.schema.fields import Entry, ProblemsRef, Strict, doc


@dataclass(frozen=True, config=Strict)
class Outlines(Entry):
    """One row is the length of a problem."""

    revision: ClassVar[int] = 1
    problems: ProblemsRef = doc("The problems whose kept rows are measured.")

    def estimate_rows(self, rows_of: Callable[[str], int | None]) -> int | None:
        return rows_of(self.problems)
'''
COLUMNS = """    "outlines": {
        "problem": (pl.String, "as in `problems`"),
        "characters": (pl.Int64, "of the statement"),
    },
    "overlaps": {
"""
MODULE = '''"""One row of `outlines` is the length of a problem's statement."""

from proofmill.artifacts.jobs import Job, run
from proofmill.schema.entries.outlines_entry import Outlines


def main(entry: Outlines, job: Job) -> None:
    problems = job.parent(entry.problems).rows("problem", "statement")
    rows = [{"problem": row["problem"], "characters": len(row["statement"])} for row in problems]
    job.finish(rows, {"rows": len(rows)})


if __name__ == "__main__":
    run(main)
'''
TEST = '''"""Lengths of statements."""


def test_statement_is_measured(mill):
    """A row has the number of characters of its statement."""
    made = mill({"problems/x": {"source": "arithmetic", "rows": 3}, "outlines/x": {"problems": "problems/x"}})
    rows = made.make("problems/x", "outlines/x").rows()
    statements = {row["problem"]: row["statement"] for row in made.table("problems/x").rows()}
    assert {row["problem"]: row["characters"] for row in rows} == {id: len(text) for id, text in statements.items()}
'''
CONFIG = "toy:\n  problems/x: {source: arithmetic, rows: 3}\n  outlines/x: {problems: problems/x}\n"

# What is added to a file, after or before which of its lines; None stands for a new file.
ADDED = {
    "src/proofmill/schema/entries/outlines_entry.py": (None, ENTRY),
    "src/proofmill/schema/columns.py": ('    "overlaps": {\n', COLUMNS),
    "src/proofmill/schema/kinds.py": (
        '    "overlaps": Kind(Overlaps, "overlap", calls_models=True),\n',
        '    "overlaps": Kind(Overlaps, "overlap", calls_models=True),\n    "outlines": Kind(Outlines, "problem"),\n',
    ),
    "src/proofmill/outlines.py": (None, MODULE),
    "workflow/rules/outlines.smk": (
        None,
        (ROOT / "workflow/rules/overlaps.smk").read_text().replace("overlaps", "outlines"),
    ),
    "tests/test_outlines.py": (None, TEST),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """Return a copy of the project with the toy kind, and with a configuration that has one of it."""
    folder = tmp_path_factory.mktemp("kind") / "project"
    away = shutil.ignore_patterns(".*", "results", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, folder, ignore=away)
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    for name, (place, text) in ADDED.items():
        path = folder / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        assert place is None or before.count(place) == 1
        path.write_text(before.replace(place, text) if place else before + text, encoding="utf-8")
    kinds = folder / "src/proofmill/schema/kinds.py"
    imported = "from proofmill.schema.entries.problem_entries import"
    outlines = "from proofmill.schema.entries.outlines_entry import Outlines\n"
    kinds.write_text(kinds.read_text().replace(imported, outlines + imported))
    (folder / "config.yaml").write_text(CONFIG)
    return folder


def ran(copy: Path, *command: str, **environment: str) -> subprocess.CompletedProcess:
    """Run a module in the copy and return its result."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), **environment}
    command = [sys.executable, "-m", *command]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)


def test_new_kind_takes_six_files(copy):
    """An entry, its columns, a record, a module, a rule and a test: nothing else is written by hand."""
    assert len(ADDED) == 6
    done = ran(copy, "snakemake", "toy", *LOCAL)
    assert done.returncode == 0, done.stderr
    assert pl.read_parquet(copy / "results/outlines/x.parquet").height == 3
    assert "rule outlines:" in done.stderr
    assert "rule outlines:" not in ran(copy, "snakemake", "toy", *LOCAL).stderr


@pytest.mark.long
def test_everything_knows_the_new_kind(copy):
    """The plan, the list of rules, the manual, and the tests of the house and of the words."""
    assert "outlines/x" in ran(copy, "proofmill", "plan", "toy", "--verbose").stdout
    assert "outlines" in ran(copy, "snakemake", "--list").stdout
    assert ran(copy, "proofmill.config.manual").returncode == 0
    assert "| `characters` | Int64 |" in (copy / "docs/kinds/outlines.md").read_text()
    tests = ["tests/test_outlines.py", "tests/test_vocabulary.py", "tests/test_house.py"]
    done = ran(copy, "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout


@pytest.mark.sampled(0, "True")
@pytest.mark.parametrize(("asks", "minutes"), [(False, "240"), (True, "1440")])
def test_cluster_gives_the_new_kind_its_resources(copy, asks, minutes):
    """The SLURM profile derives time, memory and the guard against a second job from the record; site.yaml can name it."""
    kinds = copy / "src/proofmill/schema/kinds.py"
    record = 'Kind(Outlines, "problem"'
    before = kinds.read_text()
    kinds.write_text(before.replace(f"{record})", f"{record}, calls_models=True)") if asks else before)
    (copy / "site.yaml").write_text("outlines: {mem_mb: 3210, qos: long}\n")
    (copy / "bin").mkdir(exist_ok=True)
    for command in ("sbatch", "squeue"):  # nothing is submitted, and the queue is empty
        (copy / "bin" / command).unlink(missing_ok=True)
        (copy / "bin" / command).symlink_to("/bin/true")
    try:
        planned = ("toy", "--forcerun", "outlines", "-n", "--workflow-profile", "slurm")
        done = ran(copy, "snakemake", *planned, PATH=os.pathsep.join([str(copy / "bin"), os.environ["PATH"]]))
    finally:
        kinds.write_text(before)
        (copy / "site.yaml").unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    (said,) = re.findall(r"^rule outlines:.*?resources: (.*?)$", done.stdout + done.stderr, re.MULTILINE | re.DOTALL)
    assert f"runtime={minutes}" in said and "mem_mb=3210" in said and "qos=long" in said and "--signal=USR1@120" in said

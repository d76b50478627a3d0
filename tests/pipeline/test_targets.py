"""Targets and messages: names as targets, mistakes, logs, the last lines, the results folder."""

import os
import re

import pytest

from project import ROOT, Project

pytestmark = pytest.mark.pipeline

SLURM = {"sbatch", "squeue", "sinfo", "sacct", "srun", "scancel"}
TWO = """
results: made
good:
  problems/x: {source: arithmetic, rows: 12}
  problems/y: {source: problems/x, keep: [{statement-length: [0, 500]}]}
faulty:
  problems/z: {source: arithmetic, rovs: 3}
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Project:
    """Return a recipe of two tables and one with a mistake, run without profile, flag or path."""
    project = Project(tmp_path_factory.mktemp("two") / "project", TWO)
    project.said = project.run("snakemake", "problems/y").stdout
    return project


def typed(project: Project, *words: str, **environment: str) -> tuple[int, str]:
    done = project.run("snakemake", *words, **environment)
    assert "Traceback" not in done.stdout, done.stdout
    return done.returncode, done.stdout


def test_artifact_is_a_target_by_its_name(two):
    """Its table and its parents are built, in the folder of the configuration, and the result is shown."""
    assert {path.name for path in two.results.glob("problems/*.parquet")} == {"x.parquet", "y.parquet"}
    assert "1 of 1 tables are in made/" in two.said
    assert not (two.folder / "results").exists()


def test_snakemake_speaks_little(two):
    """Of a run of two jobs fewer than 20 lines are Snakemake's and ours together."""
    assert len(two.said.splitlines()) < 20, two.said
    assert not re.search("Select jobs|Execute|input:|jobid:", two.said)


def test_finished_recipe_is_shown_again(two):
    """A second run makes nothing, and shows what there is."""
    before = {path: path.stat().st_mtime_ns for path in two.results.rglob("*.parquet")}
    code, said = typed(two, "good")
    assert code == 0 and "2 of 2 tables are in made/" in said
    assert before == {path: path.stat().st_mtime_ns for path in two.results.rglob("*.parquet")}


def test_forced_by_its_name_and_logged_after_what_was(two):
    """`--forcerun problems/y` makes it again. Its log has both runs, each with day, time and host, each line its time."""
    code, said = typed(two, "problems/y", "--forcerun", "problems/y")
    assert code == 0 and "restored" not in said
    log = (two.results / "problems/y.log").read_text()
    begun = re.findall(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ on \S+$", log, re.MULTILINE)
    assert len(begun) == 2
    assert len(re.findall(r"^\d\d:\d\d:\d\d  problems/y  12 kept", log, re.MULTILINE)) == 2


@pytest.mark.sampled(0, "godo", "faulty-")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("godo", "godo: neither a recipe nor an artifact; expected one of faulty, good. Did you mean `good`?"),
        ("problems/xx", "Did you mean `problems/x` or `problems/y`?"),
        ("made/problems/xx.parquet", "neither a recipe nor an artifact"),
        ("faulty", "faulty > problems/z: unknown key `rovs`"),
        ("problems/z", "faulty > problems/z: unknown key `rovs`"),
    ],
)
def test_target_that_cannot_be_made_says_why(two, target, said):
    """In one line, and nothing runs."""
    code, text = typed(two, target)
    assert code == 1 and said in text


def test_what_stopped_is_said_last(tmp_path):
    """The last words of a job that failed, and where all of them are, come once more at the end."""
    (tmp_path / "a.jsonl").write_text('{"statement": "Why?"}\n{"question": "Why?"}\n')
    project = Project(tmp_path / "project", f"r:\n  problems/bad: {{source: table, path: {tmp_path}/a.jsonl}}\n")
    code, said = typed(project, "r")
    (line,) = [line for line in said.splitlines() if line.startswith("problems/bad failed: ")]
    assert code == 1 and "TableError" in line and line.endswith("(full log: results/problems/bad.log)")
    assert "--entry" not in said


@pytest.mark.long
def test_site_of_the_docs_is_planned_for_a_cluster(tmp_path):
    """The file in docs/cluster.md gives each job of `nano` the memory that it says, and those that only ask what is shipped."""
    project = Project(tmp_path / "project")
    page = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
    site = next(block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if block.startswith("default: "))
    (project.folder / "site.yaml").write_text(site)
    (tmp_path / "sbatch").symlink_to("/bin/true")  # nothing is submitted
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = project.snakemake("nano", "-n", profile=("--workflow-profile", "profiles/slurm"), PATH=path)
    assert done.returncode == 0, done.stdout
    given = dict(re.findall(r"^rule (\w+):.*?mem_mb=(\d+)", done.stdout, re.MULTILINE | re.DOTALL))
    assert (given["base"], given["schemes"], given["responses"], given["sft"]) == ("4000", "4000", "64000", "800000")


def test_cluster_without_its_commands_is_said_at_once(two, tmp_path):
    """Where there is no `sbatch`, a run by SLURM stops with a message instead of waiting."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in filter(os.path.isdir, os.environ["PATH"].split(os.pathsep)):
        for tool in {*os.listdir(folder)} - SLURM - {*os.listdir(tools)}:
            (tools / tool).symlink_to(os.path.join(folder, tool))
    two.edit("rows: 12}", "rows: 13}")
    code, said = typed(two, "--workflow-profile", "slurm", "problems/x", PATH=str(tools))
    two.edit("rows: 13}", "rows: 12}")
    assert code == 1 and "sbatch: no such command; expected SLURM's" in said

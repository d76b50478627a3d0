"""The cluster path: the same recipe through a real SLURM ends with the same tables."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from own_parts import write_parts
from project import LOCAL, Project
from proofmill.schema import references
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of

pytestmark = pytest.mark.slurm
SLURM = ("--workflow-profile", "slurm")
# Jobs of seconds are looked at more often than the profile does for jobs of hours.
OFTEN = ("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "10")
# The rehearsal of nano without the stages between cold start and reinforcement learning: every kind, 16 jobs. The plugin waits
# five seconds before each submission and eleven between its looks at a job, so the whole of nano would take ten minutes.
# A filter, a reward, a grader and a metric are a user's own (docs/plugins.md): their file must reach every node.
TARGET = "scores/nano"
OVERLAY = """
plugins: [my_parts.py]
nano:
  base/nano: {source: scratch, problems: problems/train}
  grader/both: {judges: [line-overlap], escalate-to: api/referee, escalate-on: [unscored, band], escalate-band: [0, 3]}
  problems/train: {keep: [labeled, not-wrong, complete, not-duplicate, {solution-lines: [null, 20]}]}
  grpo/nano: {model: sft/cold, rewards: {grade: 1, format: 0.1, brief: {weight: 0.1, tokens: 20}}}
  scores/nano: {models: [grpo/nano], compare: [], grader: grader/both, metrics: [avg-at-k, long-rate]}
"""


@pytest.fixture(scope="module")
def both(slurm, tmp_path_factory) -> tuple[Project, Project]:
    """Return the same recipe, run on this machine and through SLURM, concurrently: the latter mostly waits."""

    def run(folder: Path, profile: tuple, options: tuple) -> Project:
        project = Project(folder / "project", overlay="workflow/rehearsal.yaml")
        (project.folder / "small.yaml").write_text(OVERLAY)
        write_parts(project.folder)
        project.overlay = (*project.overlay, "small.yaml")
        done = project.snakemake(TARGET, *options, profile=profile)
        assert done.returncode == 0, done.stdout
        project.said = done.stdout
        return project

    # Created sequentially: the first one creates, or empties, their common folder.
    folders = [tmp_path_factory.mktemp(where) for where in ("local", "slurm")]
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(run, folders, (LOCAL, SLURM), ((), OFTEN)))


def made(project: Project) -> list[str]:
    return ["scores/nano", *references.ancestors(project.config.entries, "scores/nano")]


def test_recipe_through_slurm_ends_with_the_same_tables(both):
    """Every table of the recipe has equal data columns, whether its job ran here or was submitted."""
    local, cluster = both
    assert set(KINDS) - {"overlaps", "selfplay"} == {kind_of(name) for name in made(local)}  # nano has neither
    for name in made(local):
        assert local.frame(name).equals(cluster.frame(name)), name
        assert local.table(name).content == cluster.table(name).content, name


def test_own_parts_work_on_the_nodes(both):
    """A user's file reaches the jobs on the cluster: its reward, its grader and its metric have values."""
    _, cluster = both
    assert "rewards/brief/mean" in set(cluster.frame("grpo/nano")["metric"])
    assert "long-rate" in set(cluster.frame("scores/nano")["metric"])
    grades = pl.concat(cluster.frame(name) for name in made(cluster) if name.startswith("grades/"))
    judges = grades["opinions"].explode().drop_nulls().struct.field("judge")
    assert {"api/referee", "line-overlap"} <= set(judges)


def test_jobs_really_went_through_slurm(both):
    """Each table was made by a job that SLURM knows by number."""
    _, cluster = both
    submitted = cluster.said.count("has been submitted with SLURM jobid")
    assert len(made(cluster)) == submitted


@pytest.mark.long
def test_second_run_on_the_cluster_submits_nothing(both):
    """A finished table is up to date, wherever it was built."""
    _, cluster = both
    again = cluster.snakemake(TARGET, *OFTEN, profile=SLURM)
    assert again.returncode == 0, again.stdout
    assert "has been submitted" not in again.stdout


@pytest.mark.long
def test_forced_table_is_made_again_on_the_cluster(both):
    """--forcerun reaches a submitted job: the table is computed, not brought back, and comes out equal."""
    _, cluster = both
    before = cluster.frame("examples/cold")
    done = cluster.snakemake("examples/cold", "--forcerun", "examples/cold", *OFTEN, profile=SLURM)
    assert done.returncode == 0, done.stdout
    assert "restored" not in (cluster.results / "examples/cold.log").read_text()
    assert before.equals(cluster.frame("examples/cold"))


def test_job_on_a_node_needs_no_environment_of_the_shell(slurm, tmp_path):
    """A job that is submitted with an empty environment makes its table."""
    project = Project(tmp_path / "project", "r:\n  problems/x: {source: arithmetic, rows: 8}\n")
    command = " ".join(project.job_command("problems/x"))
    subprocess.run(
        ["sbatch", "--wait", "--export=NONE", f"--chdir={project.folder}", "--output=job.log", "--wrap", command],
        cwd=project.folder,
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert pl.read_parquet(project.table("problems/x").path).height == 8

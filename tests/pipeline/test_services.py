"""A judge that is served by a job of its own: what becomes of it on the way changes no table."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from project import Project, copy_of
from proofmill.calls import records

pytestmark = pytest.mark.pipeline
CLUSTER = ("--workflow-profile", "slurm")
OFTEN = ("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "10")
SERVE = (sys.executable, "-m", "proofmill", "serve")
# The referee answers slowly and to few at once, so that the stage has a middle.
SLOW = {"PROOFMILL_REFEREE_FAULTS": json.dumps({"delay": 0.1}), "PROOFMILL_CONCURRENCY": "4"}
ASKING = {**SLOW, "PROOFMILL_REFEREE_URL": "service"}


def ungraded(chain: Project, folder: Path) -> Project:
    """Return a copy of the finished chain with ungraded attempts."""
    project = copy_of(chain, folder)
    project.forget("grades/cold")
    return project


@contextmanager
def service_of(project: Project, name: str, *options: str, **environment: str) -> Iterator[subprocess.Popen]:
    """Run `proofmill serve` in a project's folder, and kill it at the end."""
    process = subprocess.Popen(
        [*SERVE, name, *options], cwd=project.folder, env={**os.environ, **SLOW, **environment}, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answered(project: Project, at_least: int, run: subprocess.Popen) -> None:
    """Wait until a number of verdicts is in the journal."""
    tail = project.table("grades/cold").calls / "calls.jsonl"
    while not (tail.exists() and len(tail.read_bytes().splitlines()) >= at_least):
        assert run.poll() is None, "it ended before its middle"
        time.sleep(0.05)


def same(project: Project, chain: Project) -> None:
    """Assert that the table is the chain's, every request was sent once, and none failed."""
    assert project.table("grades/cold").content == chain.table("grades/cold").content
    rows = list(records.all_rows(project.table("grades/cold").calls))
    assert sorted(row.key for row in rows) == sorted(chain.journal("grades/cold"))


def test_judge_killed_in_the_middle_of_a_stage_changes_no_row(chain, tmp_path):
    """kill -9 of the service, and later another one: the stage waits for it and ends with the same table."""
    project = ungraded(chain, tmp_path / "project")
    with service_of(project, "api/referee") as first:
        command = project.snakemake_command("grades/cold")
        run = subprocess.Popen(command, cwd=project.folder, env={**os.environ, **ASKING}, stdout=subprocess.DEVNULL)
        answered(project, 60, run)
        first.send_signal(signal.SIGKILL)
        first.wait()
        with service_of(project, "api/referee"):
            assert run.wait() == 0
    same(project, chain)


@pytest.mark.long
@pytest.mark.vllm
def test_weights_are_served_once_for_several_jobs(chain, tmp_path):
    """Three shards ask one vLLM server, and the table is that of transformers but for rounding in a close race."""
    project = copy_of(chain, tmp_path / "project")
    project.forget("responses/cold")
    project.edit("attempts: 6, max-tokens: 32", "attempts: 2, max-tokens: 32, temperature: 0")
    sampled = copy_of(project, tmp_path / "sampled")
    assert sampled.job("responses/cold").returncode == 0
    with service_of(project, "sft/cold", OMP_NUM_THREADS="1"):
        shards = [
            subprocess.Popen(
                project.job_command("responses/cold", "--shard", f"{number}/3", "--engine", "service"),
                cwd=project.folder,
            )
            for number in (1, 2, 3)
        ]
        assert [shard.wait() for shard in shards] == [0, 0, 0]
        done = project.job("responses/cold", "--engine", "service")
        assert done.returncode == 0, done.stdout
    ours, theirs = project.frame("responses/cold"), sampled.frame("responses/cold")
    assert ours["response"].to_list() == theirs["response"].to_list()
    assert (ours["text"] == theirs["text"]).mean() >= 0.9
    assert project.table("responses/cold").stamp["engine"] == "service"


# ------------------------------------------------------------------------------------------------------------ on a cluster


def jobs(project: Project, name: str) -> list[str]:
    """Return the SLURM jobs of a name that were submitted in a project's folder."""
    said = subprocess.run(
        ["squeue", "--noheader", f"--name={name}", "--format=%i|%Z"], capture_output=True, text=True, check=True
    ).stdout
    return [
        job for job, _, folder in (line.partition("|") for line in said.splitlines()) if folder == str(project.folder)
    ]


@pytest.mark.long
@pytest.mark.slurm
def test_judge_on_a_cluster_is_killed_in_the_middle_of_a_stage(slurm, chain, tmp_path):
    """The grading job has the judge's own SLURM job submitted, and another when that is killed: the table is the same."""
    project = ungraded(chain, tmp_path / "project")
    start = f'sbatch --job-name=judge --output=service.log --open-mode=append --wrap "{" ".join(SERVE)} {{name}}"'
    environment = {**os.environ, **ASKING, "PROOFMILL_SERVICE_COMMAND": start, "PROOFMILL_SERVICE_IDLE_SECONDS": "15"}
    log = tmp_path / "log"
    command = project.snakemake_command("grades/cold", *OFTEN, profile=CLUSTER)
    try:
        with open(log, "w") as file:
            run = subprocess.Popen(command, cwd=project.folder, env=environment, stdout=file, stderr=subprocess.STDOUT)
            answered(project, 60, run)
            (judge,) = jobs(project, "judge")
            subprocess.run(["scancel", "--signal=KILL", "--full", judge], check=True)
            assert run.wait() == 0, log.read_text()
        assert (project.folder / "service.log").read_text().count("is up at") == 2
    finally:
        subprocess.run(["scancel", *jobs(project, "judge")], check=False)
    same(project, chain)

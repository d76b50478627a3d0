"""A `kill -9` at ten random moments of self-play: it ends with the table, weights and tasks of a run that was left alone."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from pyarrow import parquet

from playing import SELFPLAY, entries
from project import Project, copy_of
from proofmill.schema.ids import file_sha256
from proofmill.schema.kinds import BUFFER, ROLLOUTS
from proofmill.selfplay_tasks.round import COUNTERS
from proofmill.training.rollout_log import ROLLOUT_LOG

pytestmark = pytest.mark.pipeline
KILLS, STEPS = 10, 40
NAME = "selfplay/x"
OFTEN = {"PROOFMILL_SAVE_STEPS": "1"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Project:
    """Return an undisturbed run."""
    folder = tmp_path_factory.mktemp("whole")
    config = {"play": {**entries(folder / "files"), NAME: {**SELFPLAY, "steps": STEPS}}}
    project = Project(folder / "project", yaml.safe_dump(config))
    project.made(NAME)
    return project


def lines(project: Project) -> int:
    """Return the replies in the rollout log of an unfinished run."""
    found = list(project.table(NAME).scratch.glob(f"checkpoints-*/{ROLLOUT_LOG}"))
    return found[0].read_bytes().count(b"\n") if found else 0


def begun(project: Project) -> subprocess.Popen:
    command, quiet = project.job_command(NAME), {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=project.folder, env={**os.environ, **OFTEN}, start_new_session=True, **quiet)


@pytest.mark.long
def test_killed_ten_times_it_ends_as_if_it_had_not_been(whole, tmp_path):
    """Ten kills, each beyond the last and anywhere within a round or a checkpoint."""
    project = copy_of(whole, tmp_path / "killed")
    project.forget(NAME)
    draw = random.Random()
    for _ in range(KILLS):
        process = begun(project)
        wanted = lines(project) + draw.randint(1, 24)
        while lines(project) < wanted:
            assert process.poll() is None
            time.sleep(0.002)
        time.sleep(draw.random() * 0.7)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    done = project.job(NAME, **OFTEN)
    assert done.returncode == 0, done.stdout
    assert "resumes from checkpoint-" in done.stdout
    assert whole.frame(NAME).equals(project.frame(NAME))
    assert whole.table(NAME).content == project.table(NAME).content
    for file in ("model.safetensors", ROLLOUTS, BUFFER):
        assert file_sha256(path(whole, file)) == file_sha256(path(project, file)), file
    assert counted(whole) == counted(project)


def path(project: Project, file: str) -> Path:
    return project.table(NAME).folder / file


def counted(project: Project) -> bytes:
    """Return how often each literal occurred, according to the buffer."""
    return parquet.read_schema(path(project, BUFFER)).metadata[COUNTERS]


@pytest.mark.long
def test_sigterm_leaves_a_checkpoint_of_the_step_at_hand(whole, tmp_path):
    """After a signal it stops at the end of the step with a message, and resumes from that step."""
    project = copy_of(whole, tmp_path / "stopped")
    project.forget(NAME)
    process = subprocess.Popen(
        project.job_command(NAME), cwd=project.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    while lines(project) < 2 * 24:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[0].splitlines()[-1]
    step = int(said.partition("step ")[2].split()[0])
    assert (
        said
        == f"{NAME}: stopped by SIGTERM; step {step} of {STEPS} is saved in a checkpoint. Rerun the same command to resume."
    )
    done = project.job(NAME)
    assert done.returncode == 0, done.stdout
    assert f"resumes from checkpoint-{step}" in done.stdout
    assert whole.table(NAME).content == project.table(NAME).content

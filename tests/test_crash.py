"""A stage against a judge that fails in every way, killed again and again: it ends with the table of an undisturbed run."""

import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from project import Project, copy_of
from proofmill import journal as journals

pytestmark = pytest.mark.pipeline
IN_FLIGHT = 16
KILLS = 20
CONFIG = """
crash:
  api/referee: {id: referee-1, price: {input: 0, output: 0}, temperature: 0, max-tokens: 1024}
  problems/many: {source: arithmetic-threads, rows: 640}
  labels/many: {problems: problems/many, model: api/referee}
"""
SCHEDULE = {
    "seed": 5,
    "delay": 0.25,
    "shares": {
        "rate-limit": 0.002, "rate-limit-bare": 0.01, "broken": 0.03, "overloaded": 0.01, "drop": 0.03, "truncated": 0.03,
        "empty": 0.02, "wrong-type": 0.02, "garbage": 0.03, "timeout": 0.003, "trickle": 0.003,
    },
}  # fmt: skip


@contextmanager
def adversary(**schedule) -> Iterator[tuple[dict[str, str], str]]:
    """A faulty referee; yields the environment that leads jobs to it, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "proofmill.referee", "--faults", json.dumps({**SCHEDULE, **schedule})],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    url = process.stdout.readline().strip()
    try:
        yield {"PROOFMILL_REFEREE_URL": url, "PROOFMILL_CONCURRENCY": str(IN_FLIGHT), "PROOFMILL_TIMEOUT": "2"}, url
    finally:
        process.kill()


def answered(url: str) -> int:
    with urllib.request.urlopen(url.replace("/v1", "/faults")) as reply:
        return json.load(reply)["answered"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Project, int]:
    """The finished table against the adversary, and how many calls were answered for it."""
    project = Project(tmp_path_factory.mktemp("crash") / "undisturbed", CONFIG)
    assert project.job("problems/many").returncode == 0
    with adversary() as (environment, url):
        done = project.job("labels/many", **environment)
        assert done.returncode == 0, done.stdout
        calls = answered(url)
    frame = project.frame("labels/many")
    assert frame.height >= 500
    assert set(frame["reason"]) == {"ok", "no-verdict"}, "nothing is parked by passing faults, garbage is no verdict"
    assert 0.01 < (frame["reason"] == "no-verdict").mean() < 0.06
    return project, calls


def test_stage_that_is_killed_twenty_times_ends_with_the_same_table(undisturbed, tmp_path):
    """SIGKILL at twenty random moments: the same rows, byte for byte, and at most kills x in-flight calls paid twice."""
    whole, calls = undisturbed
    project = copy_of(whole, tmp_path / "killed")
    project.forget("labels/many")
    rng, kills = random.Random(11), 0
    with adversary() as (environment, url):
        while kills < KILLS:
            process = subprocess.Popen(
                project.job_command("labels/many"),
                cwd=project.folder,
                env={**os.environ, **environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(rng.uniform(0.3, 1.7))
            assert process.poll() is None, "the stage ended before it was killed often enough"
            process.kill()
            process.wait()
            kills += 1
        assert not project.table("labels/many").path.exists()
        at_kills = journals.frame(project.table("labels/many").calls).height
        done = project.job("labels/many", **environment)
        assert done.returncode == 0, done.stdout
        again = answered(url)
    assert at_kills > 100, "the kills came while calls were being answered"
    assert whole.frame("labels/many").equals(project.frame("labels/many"))
    assert whole.table("labels/many").content == project.table("labels/many").content
    assert again - calls <= KILLS * IN_FLIGHT


def test_stage_that_is_stopped_loses_no_answer(undisturbed, tmp_path):
    """SIGTERM lets what is in flight finish: the next run asks only what was not answered."""
    whole, calls = undisturbed
    project = copy_of(whole, tmp_path / "stopped")
    project.forget("labels/many")
    with adversary() as (environment, url):
        for _ in range(3):
            process = subprocess.Popen(
                project.job_command("labels/many"),
                cwd=project.folder,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            time.sleep(2.5)
            process.terminate()
            said, _ = process.communicate(timeout=30)
            assert process.returncode == 1
            assert "labels/many: stopped by SIGTERM;" in said
            assert said.strip().endswith("Run the same command to go on.")
        done = project.job("labels/many", **environment)
        assert done.returncode == 0, done.stdout
        assert answered(url) == calls
    assert whole.table("labels/many").content == project.table("labels/many").content


def test_server_that_dies_is_waited_for(undisturbed, tmp_path):
    """A judge of our own that dies at some row is started again, a few times; the table is that of an undisturbed run."""
    whole, _ = undisturbed
    project = copy_of(whole, tmp_path / "died")
    project.edit("id: referee-1,", "id: referee-1, program: referee,")
    project.forget("labels/many")
    # A new server knows nothing of the old one's questions: it would say nothing to the same ones once more.
    shares = {name: share for name, share in SCHEDULE["shares"].items() if name != "empty"} | {"truncated": 0.05}
    schedule = {**SCHEDULE, "shares": shares, "script": {"300": "die"}}
    environment = {
        "PROOFMILL_REFEREE_FAULTS": json.dumps(schedule),
        "PROOFMILL_TIMEOUT": "2",
        "PROOFMILL_CONCURRENCY": "16",
    }
    done = project.job("labels/many", **environment)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("the server died") >= 1
    assert whole.frame("labels/many").equals(project.frame("labels/many"))
    project.forget("labels/many")
    mortal = json.dumps({**SCHEDULE, "script": {"20": "die"}})
    done = project.job("labels/many", **{**environment, "PROOFMILL_REFEREE_FAULTS": mortal})
    assert done.returncode == 1
    assert "the server died again and again: exit 9" in done.stdout
    assert journals.frame(project.table("labels/many").calls).height > 30

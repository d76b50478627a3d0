"""A stage against a judge that fails in every way, killed again and again: it ends with the table of an undisturbed run."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl
import pytest

from project import Project, copy_of
from proofmill.calls import records
from proofmill.synthetic import referee
from served import good, server

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
    """Start a faulty referee; yield the environment that leads jobs to it, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "proofmill.synthetic.referee", "--faults", json.dumps({**SCHEDULE, **schedule})],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    url = process.stdout.readline().strip()
    try:
        yield (
            {"PROOFMILL_REFEREE_URL": url, "PROOFMILL_CONCURRENCY": str(IN_FLIGHT), "PROOFMILL_CALL_TIMEOUT": "2"},
            url,
        )
    finally:
        process.kill()


def answered(url: str) -> int:
    with urllib.request.urlopen(url.replace("/v1", "/faults")) as reply:
        return json.load(reply)["answered"]


def size(project: Project) -> int:
    """Return the bytes of the journal's newest outputs."""
    tail = project.table("labels/many").calls / "calls.jsonl"
    return tail.stat().st_size if tail.exists() else 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Project, int]:
    """Return the finished table against the adversary, and the number of its calls."""
    project = Project(tmp_path_factory.mktemp("crash") / "undisturbed", CONFIG)
    assert project.job("problems/many").returncode == 0
    with adversary() as (environment, url):
        done = project.job("labels/many", **environment)
        assert done.returncode == 0, done.stdout
        calls = answered(url)
    frame = project.frame("labels/many")
    assert frame.height >= 500
    assert set(frame["reason"]) == {"ok", "no-verdict"}, "transient faults fail no row, garbage is no verdict"
    assert 0.01 < (frame["reason"] == "no-verdict").mean() < 0.06
    return project, calls


@pytest.mark.long
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
            if rng.random() < 0.75:  # while calls are answered; else at any time, while it starts too
                before = size(project)
                while size(project) == before and process.poll() is None:
                    time.sleep(0.005)
            time.sleep(rng.uniform(0.0, 0.4))
            assert process.poll() is None, "the stage ended before it was killed often enough"
            process.kill()
            process.wait()
            kills += 1
        assert not project.table("labels/many").path.exists()
        at_kills = records.frame(project.table("labels/many").calls).height
        done = project.job("labels/many", **environment)
        assert done.returncode == 0, done.stdout
        again = answered(url)
    assert at_kills > 100, "the kills came while calls were being answered"
    assert whole.frame("labels/many").equals(project.frame("labels/many"))
    assert whole.table("labels/many").content == project.table("labels/many").content
    assert again - calls <= KILLS * IN_FLIGHT


@pytest.mark.long
def test_stage_that_is_stopped_loses_no_answer(undisturbed, tmp_path):
    """SIGTERM lets what is in flight finish: the next run asks only what was not answered."""
    whole, calls = undisturbed
    project = copy_of(whole, tmp_path / "stopped")
    project.forget("labels/many")
    with adversary() as (environment, url):
        for _ in range(3):
            before = answered(url)
            process = subprocess.Popen(
                project.job_command("labels/many"),
                cwd=project.folder,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            while answered(url) < before + 10:  # in the middle of its calls, however busy the machine
                assert process.poll() is None
                time.sleep(0.1)
            process.terminate()
            said, _ = process.communicate(timeout=30)
            assert process.returncode == 1
            assert "labels/many: stopped by SIGTERM;" in said
            assert said.strip().endswith("Rerun the same command to resume.")
        done = project.job("labels/many", **environment)
        assert done.returncode == 0, done.stdout
        assert answered(url) == calls
    assert whole.table("labels/many").content == project.table("labels/many").content


@pytest.mark.long
def test_server_that_dies_is_waited_for(undisturbed, tmp_path):
    """A judge of our own that dies at some row is started again, a few times; the table is that of an undisturbed run."""
    whole, _ = undisturbed
    project = copy_of(whole, tmp_path / "died")
    project.edit("id: referee-1,", "id: referee-1, program: referee,")
    project.forget("labels/many")
    # A new server fails at the questions of the old one once more: one fault of each, or a row fails for it.
    schedule = {**SCHEDULE, "times": 1, "script": {"400": "die"}}
    environment = {
        "PROOFMILL_REFEREE_FAULTS": json.dumps(schedule),
        "PROOFMILL_CALL_TIMEOUT": "2",
        "PROOFMILL_CONCURRENCY": "16",
    }
    done = project.job("labels/many", **environment)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("the server died") == 1
    assert whole.frame("labels/many").equals(project.frame("labels/many"))
    project.forget("labels/many")
    mortal = json.dumps({**SCHEDULE, "script": {"20": "die"}})
    done = project.job("labels/many", **{**environment, "PROOFMILL_REFEREE_FAULTS": mortal})
    assert done.returncode == 1
    assert "the server died after each restart: exit 9" in done.stdout
    assert records.frame(project.table("labels/many").calls).height > 30


# ------------------------------------------------------------------------------------------------------ under Snakemake

KEY = "sk-planted-0123456789abcdef"
SMALL = """
small:
  api/judge: {id: judge-1, price: unknown, max-failed: 0.5}
  problems/some: {source: arithmetic-threads, rows: 60}
  labels/some: {problems: problems/some, model: api/judge}
"""


def judge(request: dict, number: int) -> tuple[int, dict, dict]:
    """Start a judge that is slow, and at times fails and repeats our key."""
    time.sleep(0.05)
    if number % 5 == 2:
        return 500 + number % 2 * 3, {"error": {"message": f"wrong key {KEY}", "headers": f"Bearer {KEY}"}}, {}
    text = referee.verdict(request["messages"][-1]["content"])
    return 200, good(text), {}


@pytest.fixture
def asking(tmp_path):
    """Return a project, and the environment that leads it to that judge."""
    with server(judge) as (url, served):
        environment = {"PROOFMILL_JUDGE_URL": url, "PROOFMILL_JUDGE_KEY": KEY, "PROOFMILL_CONCURRENCY": "2"}
        yield Project(tmp_path / "project", SMALL), environment, served


def test_key_is_nowhere(asking):
    """After a run with failures, the plan and a traceback's worth of logs, the key is in no file and no output."""
    project, environment, served = asking
    said = project.snakemake("small", **environment).stdout
    said += project.run(sys.executable, "-m", "proofmill", "plan", "small", **environment).stdout
    said += project.job(
        "labels/some", **{**environment, "PROOFMILL_JUDGE_URL": "http://127.0.0.1:9/v1", "PROOFMILL_FORCE": "all"}
    ).stdout
    assert any(request["key"] == f"Bearer {KEY}" for request in served.requests)
    assert project.frame("labels/some").height == 60
    assert KEY not in said
    for path in (p for p in project.folder.rglob("*") if p.is_file()):
        assert KEY.encode() not in path.read_bytes(), path
        if path.suffix == ".parquet":
            assert KEY not in str(pl.read_parquet(path).to_dicts()) + str(pl.read_parquet_metadata(path)), path
    assert records.frame(project.table("labels/some").calls)["tries"].max() > 1


def test_sigterm_to_a_whole_job_is_heard_and_written_down(asking):
    """After a SIGTERM to all processes of a job, as from SLURM, the job and its log say how to resume."""
    project, environment, _ = asking
    process = subprocess.Popen(
        project.snakemake_command("results/labels/some.parquet"),
        cwd=project.folder,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    tail = project.table("labels/some").calls / "calls.jsonl"
    while not (tail.exists() and tail.read_bytes().count(b"\n") >= 10):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(60)
    log = (project.results / "labels/some.log").read_text()
    assert "labels/some: stopped by SIGTERM; " in log
    assert log.strip().endswith("Rerun the same command to resume.")
    assert not project.table("labels/some").path.exists()
    answered = records.frame(project.table("labels/some").calls).filter(stop_reason="end").height
    assert 10 <= answered < 60
    assert project.made("results/labels/some.parquet", **environment) == ["labels/some"]

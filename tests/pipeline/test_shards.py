"""A stage asked by several jobs ends with the table of one, whatever becomes of them on the way."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mill import REFEREE
from project import Project, copy_of, snapshot
from proofmill.calls import records

pytestmark = pytest.mark.pipeline
SHARDS = "labels=2 schemes=2 responses/cold=3 grades/cold=2"
SPLIT = ("labels/threads", "schemes/train", "responses/cold", "grades/cold")
# Jobs of seconds are looked at more often than the profile does for jobs of hours.
CLUSTER = ("--workflow-profile", "slurm")
OFTEN = ("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "10")


def without(chain: Project, folder: Path, *names: str) -> Project:
    """Return a copy of the finished chain without these tables and their calls."""
    project = copy_of(chain, folder)
    for name in names:
        project.forget(name)
    return project


def same(project: Project, other: Project, *names: str) -> None:
    for name in names:
        assert project.table(name).content == other.table(name).content, name
        assert sorted(project.journal(name)) == sorted(other.journal(name)), name
        assert not records.shards(project.table(name).calls), name


@pytest.fixture(scope="module")
def sharded(chain, tmp_path_factory) -> tuple[Project, list[str]]:
    """Return the tables of the chain that call models, built by shards, and Snakemake's list of them."""
    project = without(chain, tmp_path_factory.mktemp("shards") / "project", *SPLIT)
    done = project.snakemake("grades/cold", PROOFMILL_SHARDS=SHARDS)
    assert done.returncode == 0, done.stdout
    return project, re.findall(r"^localrule (\w+):", done.stdout, re.MULTILINE)


def test_stages_in_shards_have_the_tables_of_one_job(chain, sharded):
    """Labels, schemes, attempts and verdicts have the same rows, every question was asked once, and no shard left a trace."""
    project, rules = sharded
    assert [rules.count(f"{kind}_shard") for kind in ("labels", "schemes", "responses", "grades")] == [2, 2, 3, 2]
    same(project, chain, *SPLIT)
    assert not list(project.results.glob("unfinished/*/*/shard-*"))


def test_number_of_shards_is_no_part_of_a_table(sharded):
    """With another number, or none, nothing is due: not for Snakemake, not for the plan."""
    project, _ = sharded
    for number in ({}, {"PROOFMILL_SHARDS": "grades=7 responses=2"}):
        assert project.planned("grades/cold", **number) == set()
    assert "0 to make, 0 to restore" in project.run("proofmill", "plan", "grades/cold").stdout


@pytest.mark.long
def test_shards_of_an_edited_entry_ask_what_is_new(sharded, tmp_path):
    """No shard repeats a call in the journal, and the plan counts outputs of shards that are not merged yet."""
    project = copy_of(sharded[0], tmp_path / "project")
    project.edit("attempts: 6, max-tokens: 32", "attempts: 8, max-tokens: 32")
    before = set(project.journal("responses/cold"))
    for shard in ("1/2", "2/2"):
        done = project.job("responses/cold", "--shard", shard)
        assert done.returncode == 0 and "all calls are done" in done.stdout, done.stdout
    problems = project.frame("responses/cold")["problem"].n_unique()
    fresh = [records.frame(path).height for path in records.shards(project.table("responses/cold").calls)]
    assert sum(fresh) == 2 * problems and all(fresh)
    assert f"{8 * problems:,} cached, 0 to do" in project.run("proofmill", "plan", "responses/cold").stdout
    asked = snapshot(project.table("responses/cold").calls)
    done = project.job("responses/cold", "--shard", "1/2")  # as a requeued job comes again
    assert done.returncode == 0, done.stdout
    assert {name for name in snapshot(project.table("responses/cold").calls)} == set(asked)
    done = project.job("responses/cold")
    assert done.returncode == 0, done.stdout
    assert project.frame("responses/cold").height == 8 * problems
    assert before < set(project.journal("responses/cold"))
    assert "nothing to do" in project.job("responses/cold", "--shard", "1/2").stdout


@pytest.mark.long
def test_shard_killed_in_the_middle_changes_nothing(chain, tmp_path):
    """After kill -9 of one shard the other and the artifact's own job end with the same table, and ask only what was lost."""
    project = without(chain, tmp_path / "project", "grades/cold")
    tail = project.table("grades/cold").calls / "shards/1-of-2/calls.jsonl"
    process = subprocess.Popen(
        project.job_command("grades/cold", "--shard", "1/2"),
        cwd=project.folder,
        env={**os.environ, "PROOFMILL_CONCURRENCY": "1"},
        start_new_session=True,
    )
    while not (tail.exists() and len(tail.read_bytes().splitlines()) >= 20):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    process.kill()
    process.wait()
    answered = {row.key for row in records.whole_rows(tail)}
    assert 20 <= len(answered) < len(chain.journal("grades/cold")) / 2
    done = project.snakemake("grades/cold", PROOFMILL_SHARDS="grades/cold=2")
    assert done.returncode == 0, done.stdout
    same(project, chain, "grades/cold")


def test_word_that_says_no_number_of_shards_is_refused(chain):
    """Before anything runs, with the word and what would be one."""
    done = chain.snakemake("grades/cold", PROOFMILL_SHARDS="labels=2 sft/cold=2")
    assert done.returncode != 0 and "has the word `sft/cold=2`; expected words such as grades=4" in done.stdout


@pytest.mark.long
def test_shards_have_threads_of_their_own_where_they_are_set(tmp_path):
    """Of the rule otherwise, also where the threads of the rule are set."""
    project = Project(
        tmp_path / "project",
        "small:\n  problems/p: {source: arithmetic, rows: 6}\n  schemes/s: {problems: problems/p, model: api/referee}\n"
        f"  api/referee: {json.dumps(REFEREE)}\n",
    )
    for set_threads, threads in ((), {"1"}), (("schemes=2",), {"2"}), (("schemes=2", "schemes_shard=3"), {"3"}):
        words = ["--set-threads", *set_threads] if set_threads else []
        said = project.snakemake("schemes/s", "-n", "--cores", "4", *words, PROOFMILL_SHARDS="schemes=2").stdout
        jobs = re.findall(r"rule schemes_shard:\n((?: .*\n)*)", said)
        assert len(jobs) == 2, said
        assert {(re.findall(r"threads: (\d+)", job) or ["1"])[0] for job in jobs} == threads, said


# ------------------------------------------------------------------------------------------------------------ on a cluster


def at_work(project: Project, rule: str) -> Iterator[str]:
    """Return the SLURM jobs of a project's shards that have started calls."""
    said = subprocess.run(
        ["squeue", "--noheader", "--states=RUNNING", "--format=%i|%Z|%k"], capture_output=True, text=True, check=True
    ).stdout
    for line in said.splitlines():
        job, folder, comment = line.split("|")
        if folder == str(project.folder) and rule in comment:
            number, of = comment.split("_")[-2:]  # the last two wildcards
            if (project.results / f"responses/cold.{number}-of-{of}.log").exists():
                yield job


@pytest.mark.long
@pytest.mark.slurm
def test_shards_on_a_cluster_of_which_one_is_requeued(slurm, chain, tmp_path):
    """Four SLURM jobs sample one table; one is killed at work and comes again; the rows are those of one job."""
    project = without(chain, tmp_path / "project", "responses/cold", "grades/cold")
    # Of a tiny model the answers come in a second: nearly all of the job is its start, in which it is killed.
    command = project.snakemake_command("responses/cold", *OFTEN, profile=CLUSTER)
    environment = {**os.environ, "PROOFMILL_SHARDS": "responses/cold=4"}
    log = tmp_path / "log"
    with (
        open(log, "w") as file,
        subprocess.Popen(command, cwd=project.folder, env=environment, stdout=file, stderr=file) as run,
    ):
        while not (jobs := list(at_work(project, "responses_shard"))):
            assert run.poll() is None, log.read_text()
            time.sleep(0.3)
        subprocess.run(["scontrol", "requeue", jobs[0]], check=True)
        while subprocess.run(
            ["scontrol", "update", f"JobId={jobs[0]}", "StartTime=now"], capture_output=True
        ).returncode:
            time.sleep(0.3)  # it is being ended; SLURM would let it wait for two minutes
        assert run.wait() == 0, log.read_text()
    assert log.read_text().count("has been submitted with SLURM jobid") == 5
    begun = [path.read_text().count(" on ") for path in sorted(project.results.glob("responses/cold.*-of-4.log"))]
    assert sorted(begun) == [1, 1, 1, 2]  # a line each time
    same(project, chain, "responses/cold")

"""A `kill -9` at any time: the next run resumes, ends with the same tables, and repeats no completed call."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import polars as pl
import psutil
import pytest

from project import CHAIN, Project, copy_of
from proofmill.schema.ids import file_sha256
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from slow_referee import IN_FLIGHT, any_grades, slow_referee

pytestmark = pytest.mark.pipeline


def started(project: Project, command: list[str], **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        cwd=project.folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )


def killed(process: subprocess.Popen, when: Callable[[], bool], how: int = signal.SIGKILL, group: bool = False) -> int:
    """Send the signal as soon as the condition holds; returns the exit code."""
    while not when():
        assert process.poll() is None, f"ended before it could be killed:\n{process.stdout.read()}"
        time.sleep(0.002)
    (os.killpg if group else os.kill)(process.pid, how)
    return process.wait(timeout=60)


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def answers(project: Project, name: str) -> Path:
    return project.table(name).calls / "calls.jsonl"


def weights(project: Project, name: str) -> str:
    return file_sha256(project.table(name).folder / "model.safetensors")


def checkpoint(project: Project, name: str, step: int) -> bool:
    return any(project.table(name).scratch.glob(f"checkpoints-*/checkpoint-{step}/running.json"))


def assert_equal_to(whole: Project, project: Project, *names: str) -> None:
    """Assert that tables, weights and journals are those of the undisturbed run, and nothing unfinished is left."""
    for name in names:
        assert whole.frame(name).equals(project.frame(name)), name
        assert whole.table(name).content == project.table(name).content, name
        assert whole.table(name).stamp["counts"] == project.table(name).stamp["counts"], name
        if whole.table(name).calls.exists():
            assert sorted(whole.journal(name)) == sorted(project.journal(name)), name
    left = [path for path in project.results.rglob("*") if path.is_file() and path.name.startswith(".")]
    assert left + [path for path in (project.results / "unfinished").rglob("*") if path.is_file()] == []


@pytest.fixture
def copy(chain, tmp_path) -> Callable[..., Project]:
    """Return the finished small project without these artifacts."""

    def without(*names: str) -> Project:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        project = copy_of(chain, tmp_path / "copy")
        for name in names:
            project.forget(name)
        return project

    return without


# ---------------------------------------------------------------------------------------------------------------- calls


@pytest.mark.sampled(0, "grades/cold")
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("labels/threads", signal.SIGKILL),
        ("grades/cold", signal.SIGKILL),
        ("grades/jury", signal.SIGKILL),
        ("schemes/train", signal.SIGTERM),
    ],
)
def test_killed_judging_goes_on_and_repeats_no_answered_call(chain, copy, name, how):
    """No call answered before the kill is repeated; at most the calls in flight are."""
    project = copy(name)
    with slow_referee(0.01) as (environment, asked):
        code = killed(
            started(project, project.job_command(name), **environment),
            when=lambda: len(lines(answers(project, name))) >= 10,
            how=how,
        )
        assert code != 0 and not project.table(name).path.exists()
        project.table(name).path.with_name(f".{project.table(name).path.name}.new").write_bytes(b"PAR1 and no more")
        done = project.job(name, **environment)
    assert done.returncode == 0, done.stdout
    assert_equal_to(chain, project, name)
    assert len(asked) <= len(chain.journal(name)) + IN_FLIGHT


@pytest.mark.long
def test_killed_sampling_goes_on_and_samples_the_same(chain, copy):
    """Attempts sampled after a kill are those that an unbroken run samples, and none is sampled twice."""
    name = "responses/cold"
    project = copy(name)
    code = killed(started(project, project.job_command(name)), when=lambda: len(lines(answers(project, name))) > 0)
    assert (code, project.table(name).path.exists()) == (-signal.SIGKILL, False)
    assert 0 < len(lines(answers(project, name))) < len(chain.journal(name))
    done = project.job(name)
    assert done.returncode == 0, done.stdout
    assert_equal_to(chain, project, name)


@pytest.mark.long
def test_damaged_journal_asks_only_for_what_is_damaged(chain, copy):
    """A torn last line and a damaged line in the middle are two calls to repeat, not a broken journal."""
    name = "labels/threads"
    project = copy(name)
    with slow_referee(0.01) as (environment, asked):
        killed(
            started(project, project.job_command(name), **environment),
            when=lambda: len(lines(answers(project, name))) >= 30,
        )
    path = answers(project, name)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*whole[:20], b"\x00" * (len(whole[20]) - 1) + b"\n", *whole[21:-1], whole[-1][:-9]]))
    with slow_referee() as (environment, asked):
        done = project.job(name, **environment)
    assert done.returncode == 0, done.stdout
    assert chain.table(name).content == project.table(name).content
    assert len(asked) == len(chain.journal(name)) - (len(whole) - 2)


@pytest.mark.long
def test_second_process_on_one_artifact_stops_with_a_message(chain, copy):
    """Two processes never make one artifact: the second says so after a while, or waits and takes what the first made."""
    name = "labels/threads"
    project = copy(name)
    with slow_referee(0.5) as (environment, asked):
        environment = {**environment, "PROOFMILL_CONCURRENCY": "4"}  # so that the first is at work when others come
        first = started(project, project.job_command(name), **environment)
        while not lines(answers(project, name)):
            time.sleep(0.01)
        patient = started(project, project.job_command(name), **environment)
        hasty = project.job(name, **environment, PROOFMILL_LOCK_SECONDS="0.1")
        assert (first.wait(60), patient.wait(60)) == (0, 0)
    assert hasty.returncode == 1
    assert hasty.stdout.splitlines()[-1].startswith(f"TableError: {name}: another process has been making it")
    assert len(asked) == len(chain.journal(name))
    assert_equal_to(chain, project, name)


# ------------------------------------------------------------------------------------------------------------- training


@pytest.mark.sampled(0, "9--9")
@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 1), (signal.SIGINT, 1)])
def test_killed_sft_goes_on_from_its_checkpoint_to_the_same_weights(chain, copy, how, code):
    """Every number of the table and every byte of the weights are those of an unbroken training; a signal keeps the last step."""
    name = "sft/cold"
    project = copy(name)
    often = {"PROOFMILL_SAVE_STEPS": "8"}
    process = started(project, project.job_command(name), **often)
    assert killed(process, when=lambda: checkpoint(project, name, 8), how=how) == code
    assert not project.table(name).path.exists()
    if how != signal.SIGKILL:
        said = process.stdout.read().splitlines()[-1]
        step = int(said.partition("step ")[2].split()[0])
        assert (
            said
            == f"{name}: stopped by {how.name}; step {step} of 40 is saved in a checkpoint. Rerun the same command to resume."
        )
        assert checkpoint(project, name, step)
    done = project.job(name, **often)
    assert done.returncode == 0, done.stdout
    assert "resumes from checkpoint-" in done.stdout
    assert_equal_to(chain, project, name)


def workers(launcher: int) -> list[int]:
    """Return the processes that a launcher has started."""
    return [int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_killed_sft_of_two_processes_goes_on_to_the_same_table(chain, copy, how):
    """Its launcher stopped or one of its processes killed, a training of two ends with the table of one, up to rounding."""
    name = "sft/cold"
    project = copy(name)
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "workflow/accelerate/ddp.yaml"]
    command += ["--num_processes", "2", "-m", "proofmill.sft", name]
    often = {"PROOFMILL_SAVE_STEPS": "8"}
    process = started(project, command, **often)
    while not checkpoint(project, name, 8):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.002)
    os.kill(process.pid if how == signal.SIGTERM else workers(process.pid)[-1], how)
    said = process.communicate(timeout=120)[0]
    assert process.returncode != 0 and not project.table(name).path.exists()
    if how == signal.SIGTERM:
        assert len(re.findall(r"stopped by SIGTERM; step \d+ of 40 is saved in a checkpoint", said)) == 1
    done = project.run(*command, **often)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("resumes from checkpoint-") == 1
    expected, found = chain.frame(name), project.frame(name)
    assert found.drop("value").equals(expected.drop("value"))
    assert found["value"].to_list() == pytest.approx(expected["value"].to_list(), rel=1e-4, abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 1)])
def test_killed_grpo_goes_on_from_its_checkpoint_to_the_same_weights(chain, copy, tmp_path, how, code):
    """Rollouts, numbers and weights are those of an unbroken training, and no rollout is judged twice."""
    name = "grpo/cold"
    whole, project = copy_of(copy(name), tmp_path / "whole"), copy(name)
    with slow_referee(verdict=any_grades) as (environment, _):
        done = whole.job(name, **environment)
    assert done.returncode == 0, done.stdout
    assert weights(whole, name) != weights(chain, "sft/cold")
    often = {"PROOFMILL_SAVE_STEPS": "5"}  # every fourth step: two share their rollouts

    def in_the_fifth_step() -> bool:
        found = list(project.table(name).scratch.glob("checkpoints-*/rollouts.jsonl"))
        return bool(found) and b'"step": 5,' in found[0].read_bytes()

    with slow_referee(verdict=any_grades) as (environment, asked):
        command = project.job_command(name)
        assert killed(started(project, command, **often, **environment), when=in_the_fifth_step, how=how) == code
        assert not project.table(name).path.exists()
        done = project.job(name, **often, **environment)
    assert done.returncode == 0, done.stdout
    step = int(re.search(r"resumes from checkpoint-(\d+)", done.stdout)[1])
    assert step % (4 if how == signal.SIGKILL else 2) == 0
    assert_equal_to(whole, project, name)
    assert len(asked) <= len(whole.journal(name)) + IN_FLIGHT


@pytest.mark.long
def test_killed_training_with_staleness_resumes_and_repeats_no_call(copy):
    """After kill -9 all steps exist, no rollout is older than `max-staleness`, and each judge request was sent once."""
    name = "grpo/cold"
    project = copy(name)
    project.edit("iterations: 2", "max-staleness: 2")
    often = {"PROOFMILL_SAVE_STEPS": "4"}

    def in_the_seventh_step() -> bool:
        found = list(project.table(name).scratch.glob("checkpoints-*/rollouts.jsonl"))
        return bool(found) and b'"step": 7,' in found[0].read_bytes()

    with slow_referee(verdict=any_grades) as (environment, asked):
        command = project.job_command(name)
        assert killed(started(project, command, **often, **environment), when=in_the_seventh_step) == -signal.SIGKILL
        done = project.job(name, **often, **environment)
    assert done.returncode == 0, done.stdout
    assert "resumes from checkpoint-4" in done.stdout
    rollouts = pl.read_parquet(project.table(name).folder / "rollouts.parquet")
    assert rollouts.height == rollouts["rollout"].n_unique() == 16 * 4 * 2
    assert (rollouts["step"] - 1 - rollouts["policy_step"]).max() <= 2
    assert len(asked) <= len(project.journal(name)) + IN_FLIGHT


# -------------------------------------------------------------------------------------------------------- the whole run


@pytest.mark.sampled(0, "with-its-jobs")
@pytest.mark.parametrize("group", [True, False], ids=["with-its-jobs", "alone"])
def test_killed_snakemake_is_run_again_like_any_other_time(chain, copy, group):
    """The same command resumes, without --unlock, also next to a job that outlived its Snakemake."""
    names, target = ["labels/threads", "problems/train", "schemes/train"], "results/schemes/train.parquet"
    project = copy(*names)
    with slow_referee(0.1) as (environment, asked):
        killed(
            started(project, project.snakemake_command(target), **environment),
            when=lambda: len(lines(answers(project, "labels/threads"))) >= 10,
            group=group,
        )
        # A job that outlived its Snakemake may have ended by now.
        made = set(project.made(target, **environment))
        assert made == set(names) or (not group and made == set(names) - {"labels/threads"})
    assert_equal_to(chain, project, *names)
    trials = 2  # each run first tries the server
    most = len(chain.journal("labels/threads")) + len(chain.journal("schemes/train")) + IN_FLIGHT + trials
    assert len(asked) <= most
    assert set() == project.planned(target)


INTERRUPTED = """


from snakemake.scheduling.job_scheduler import JobScheduler as Scheduler


def interrupted(self, finish=Scheduler._finish_jobs):
    os.kill(os.getpid(), signal.SIGTERM)  # the main thread holds the lock that Snakemake's handler takes
    return finish(self)


Scheduler._finish_jobs = interrupted
"""


def test_sigterm_while_snakemake_schedules_ends_it(tmp_path):
    """The run ends though the signal comes in the moment in which Snakemake's own handler would wait for itself."""
    project = Project(tmp_path / "project", "r:\n  problems/p: {source: arithmetic, rows: 6}\n")
    snakefile = project.folder / "Snakefile"
    snakefile.write_text(snakefile.read_text(encoding="utf-8") + INTERRUPTED, encoding="utf-8")
    process = started(project, project.snakemake_command("r", "--cores", "1"))
    said, _ = process.communicate(timeout=90)
    assert process.returncode == 1 and "Shutting down" in said, said


@pytest.mark.long
def test_many_kills_of_whole_runs_lose_nothing(chain, tmp_path):
    """However often a run, or the jobs alone, are killed at any moment, each run in the end has what an undisturbed one has.

    PROOFMILL_KILLS is the number of kills: 3 here, 100 by hand (docs/performance.md).
    """
    kills, rng, runs, project = int(os.environ.get("PROOFMILL_KILLS", "3")), random.Random(0), 0, None
    names = [name for name in chain.config.recipes["chain"] if kind_of(name) in KINDS]
    often = {"PROOFMILL_SAVE_STEPS": "4"}
    while kills:
        if project is None:
            runs += 1
            project = Project(tmp_path / f"run-{runs}", CHAIN)
        process = started(project, project.snakemake_command("chain"), **often)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=rng.uniform(2, 14))
        if process.poll() is None:
            killing(process.pid, rng)
            kills -= 1
        if process.wait(timeout=300) == 0:
            project = finished_like(chain, project, names)
    if project is not None:
        project.made("chain", **often)
        finished_like(chain, project, names)
    print(f"{runs} runs", file=sys.stderr)


def killing(pid: int, rng: random.Random) -> None:
    """Send SIGKILL to all processes of a run, to its jobs, or to Snakemake; or SIGTERM to all."""
    way = rng.choice(("all", "all", "jobs", "alone", "term"))
    jobs = [job.pid for job in psutil.Process(pid).children(recursive=True)] if way == "jobs" else []
    with suppress(ProcessLookupError):
        if way in ("all", "term"):
            os.killpg(pid, signal.SIGKILL if way == "all" else signal.SIGTERM)
        for one in jobs if way == "jobs" else [pid] * (way == "alone"):
            os.kill(one, signal.SIGKILL)


def finished_like(chain: Project, project: Project, names: list[str]) -> None:
    """Assert that the project equals the undisturbed one, and that another run does nothing; then delete it."""
    assert_equal_to(chain, project, *names)
    assert project.planned("chain") == set()
    shutil.rmtree(project.folder)

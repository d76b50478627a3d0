"""A cluster stops jobs, requeues them and outlives their driver; the tables are the same, and calls are paid once.

Every scenario has its own project. They start together, because each mostly waits.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import polars as pl
import pytest
import torch

import fixed_rollouts
from project import Project, copy_of
from proofmill.calls import records
from proofmill.synthetic import referee
from slow_referee import IN_FLIGHT, any_grades, slow_referee

pytestmark = pytest.mark.slurm

LABELS, GRPO = "labels/threads", "grpo/cold"
TRIAL = 1  # each Snakemake tries a server before it submits anything
# SLURM looks for walltimes each half minute, and speaks up to half a minute early: of two minutes, after 55 to 85 seconds.
# A job among many others may take half a minute to start.
LIMIT = "{runtime: 2, signal_seconds: 35, exclusive: false}"
# What a user says to sbatch leaves the notice as it is.
SHORT = f"default: {{slurm_extra: --mail-type=NONE}}\nremote: {LIMIT}\ntrain: {LIMIT}\n"
SEEN = """
import os, sys

from proofmill.schema.registry_items import Named

if "SLURM_JOB_ID" in os.environ and not sys.argv[1].startswith("-"):  # a job, not its Snakemake
    with open("seen", "a") as file:
        print(sys.argv[1], os.environ.get("CUDA_VISIBLE_DEVICES"), file=file)

FILTERS = {"any": Named(lambda row: True, "all")}
"""


@dataclass
class Outcome:
    """The outcome of a scenario: the code of each Snakemake, its output, the prompts that the judge received."""

    project: Project
    codes: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)  # what squeue said of a job on which another waits

    @property
    def said(self) -> str:
        return (self.project.folder / "said").read_text()

    def log(self, name: str) -> str:
        return self.project.table(name).log.read_text()


def driver(project: Project, name: str, **environment: str) -> subprocess.Popen:
    """Start a Snakemake that submits to SLURM, in the background; its jobs last seconds and are polled often."""
    often = (
        "--slurm-init-seconds-before-status-checks",
        "1",
        "--latency-wait",
        "10",
        "--seconds-between-status-checks",
        "3",
    )
    command = project.snakemake_command(f"results/{name}.parquet", *often, profile=("--workflow-profile", "slurm"))
    with open(project.folder / "said", "a") as said:
        environment = {**os.environ, **environment}
        return subprocess.Popen(command, cwd=project.folder, env=environment, stdout=said, stderr=subprocess.STDOUT)


def until(found: Callable[[], object], process: subprocess.Popen) -> object:
    """Return what a check finds in the end, while a process runs."""
    while not (what := found()):
        assert process.poll() is None, f"Snakemake has ended with {process.returncode}"
        time.sleep(0.1)
    return what


def numbers(project: Project) -> list[str]:
    """Return the SLURM jobs that were submitted for a project, in order."""
    return re.findall(r"submitted with SLURM jobid (\d+)", (project.folder / "said").read_text())


def answered(project: Project, name: str) -> int:
    return sum(1 for _ in records.all_rows(project.table(name).calls)) if project.table(name).calls.is_dir() else 0


def slurm_says(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


# ------------------------------------------------------------------------------------------------------------ scenarios


def cancelled(project: Project) -> Outcome:
    """Run `scancel` on a stage that makes calls, then the same command again."""
    project.forget(LABELS)
    with slow_referee(1.0) as (environment, asked):
        outcome = Outcome(project, asked=asked)
        first = driver(project, LABELS, **environment)
        until(lambda: answered(project, LABELS) >= 10, first)
        slurm_says("scancel", numbers(project)[0])
        outcome.codes += [first.wait(), driver(project, LABELS, **environment).wait()]
    return outcome


def requeued(project: Project) -> Outcome:
    """Run `scontrol requeue` on a stage that makes calls, as for a preempted job."""
    project.forget(LABELS)
    with slow_referee(1.0) as (environment, asked):
        outcome = Outcome(project, asked=asked)
        one = driver(project, LABELS, **environment)
        until(lambda: answered(project, LABELS) >= 10, one)
        slurm_says("scontrol", "requeue", numbers(project)[0])
        outcome.codes.append(one.wait())
    return outcome


def asks_beyond_its_walltime(project: Project) -> Outcome:
    project.forget(LABELS)
    (project.folder / "site.yaml").write_text(SHORT)
    with slow_referee(1.6) as (environment, asked):  # 60 of them take 96 seconds
        code = driver(project, LABELS, **{**environment, "PROOFMILL_CONCURRENCY": "1"}).wait()
    return Outcome(project, [code], asked)


def trains_beyond_its_walltime(project: Project) -> Outcome:
    project.forget(GRPO)
    (project.folder / "site.yaml").write_text(SHORT)
    with slow_referee(6.0, any_grades) as (environment, asked):  # eight times eight, four at a time: 96 seconds
        code = driver(project, GRPO, **environment).wait()
    return Outcome(project, [code], asked)


def trains_at_leisure(project: Project) -> Outcome:
    """Run the same training on this machine, undisturbed."""
    project.forget(GRPO)
    with slow_referee(0.0, any_grades) as (environment, asked):
        code = project.job(GRPO, **environment).returncode
    return Outcome(project, [code], asked)


def two_drivers(project: Project) -> Outcome:
    """Run two Snakemakes at once that build one table."""
    project.forget(LABELS)
    with slow_referee(1.0) as (environment, asked):
        both = [driver(project, LABELS, **environment) for _ in range(2)]
        codes = [each.wait() for each in both]
    return Outcome(project, codes, asked)


def two_jobs(project: Project) -> Outcome:
    """Run a job without a dependency that finds another one at its table; the judge answers once it has said so."""
    project.forget(LABELS)
    answering = threading.Event()
    answering.set()
    with slow_referee(0.0, lambda prompt: answering.wait(600) and referee.verdict(prompt)) as (environment, asked):
        first = driver(project, LABELS, **environment)
        until(lambda: numbers(project), first)
        answering.clear()
        until(project.table(LABELS).lock.exists, first)
        command = shlex.join(project.job_command(LABELS))
        second = subprocess.Popen(
            ["sbatch", "--wait", "--requeue", "--output=second", "--open-mode=append", "--mem=2000", "--wrap", command],
            cwd=project.folder,
            env={**os.environ, **environment, "PROOFMILL_LOCK_SECONDS": "2"},
        )
        said = project.folder / "second"
        until(lambda: said.exists() and "is requeued" in said.read_text(), second)
        answering.set()
        return Outcome(project, [first.wait(), second.wait()], asked)


def dead_driver(project: Project) -> Outcome:
    """Kill a Snakemake while its job continues, and give the same command again."""
    project.forget(LABELS)
    with slow_referee(2.0) as (environment, asked):
        outcome = Outcome(project, asked=asked)
        dead = driver(project, LABELS, **environment)
        until(lambda: answered(project, LABELS) >= 4, dead)
        os.kill(dead.pid, signal.SIGKILL)
        outcome.codes.append(dead.wait())
        second = driver(project, LABELS, **environment)
        until(lambda: len(numbers(project)) == 2, second)
        outcome.queued.append(slurm_says("squeue", "--noheader", "--format=%i %E %T", "--jobs", numbers(project)[1]))
        outcome.codes.append(second.wait())
    return outcome


def failing(project: Project) -> Outcome:
    project.forget("sft/cold")
    (project.folder / "site.yaml").write_text("train: {exclusive: false}\n")  # together with other jobs
    return Outcome(project, [driver(project, "sft/cold", PROOFMILL_MICRO_BATCH_SIZE="0").wait()])


def gpus(project: Project) -> Outcome:
    """Run jobs of four kinds; each serving job gets a GPU and each training two."""
    (project.folder / "seen.py").write_text(SEEN)
    project.config_file.write_text(f"plugins: [seen.py]\n{project.config_file.read_text()}")
    (project.folder / "site.yaml").write_text("inference: {gpu: 1}\ntrain: {gpu: 2, exclusive: false}\n")
    for name in ("examples/cold", "sft/cold", "responses/cold", "grades/cold"):
        project.forget(name)
    return Outcome(project, [driver(project, "grades/cold").wait()])


def on_two_nodes(project: Project) -> Outcome:
    """Run a training on two nodes, one process on each."""
    launch = "python -m proofmill.runtime.cluster.launching ddp --processes 1"
    (project.folder / "site.yaml").write_text(
        f"train: {{nodes: 2, mem_mb: 3000, exclusive: false, launch: {launch}}}\n"
    )
    project.forget("sft/cold")
    project.forget(GRPO)
    return Outcome(project, [driver(project, name).wait() for name in ("sft/cold", GRPO)])


def curve_on_two_nodes(project: Project) -> Outcome:
    """Compute the losses of a grpo on given rollouts, by two ranks, each on its node."""
    command = [sys.executable, "-m", "proofmill.runtime.cluster.launching", "ddp", "--processes", "1", "fixed_rollouts"]
    command += [str(project.table("sft/cold").folder), "losses.pt", "2", "curve"]
    done = subprocess.run(
        ["sbatch", "--wait", "--nodes=2", "--output=said", "--mem=3000", "--wrap", shlex.join(command)],
        cwd=project.folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    return Outcome(project, [done.returncode])


SCENARIOS = (
    on_two_nodes, curve_on_two_nodes, trains_beyond_its_walltime, asks_beyond_its_walltime, dead_driver, two_drivers, two_jobs, requeued, cancelled, gpus,
    failing, trains_at_leisure,
)  # fmt: skip


@pytest.fixture(scope="module")
def ended(request, slurm, chain, tmp_path_factory) -> Iterator[Callable[[Callable], Outcome]]:
    """Yield `ended(scenario)`, the outcome of a finished scenario; those that a selected test names are started."""
    named = {name for item in request.session.items for name in item.function.__code__.co_names}
    scenarios = [scenario for scenario in SCENARIOS if scenario.__name__ in named]

    def run(scenario: Callable[[Project], Outcome]) -> Outcome:
        return scenario(copy_of(chain, tmp_path_factory.mktemp(scenario.__name__) / "project"))

    with ThreadPoolExecutor(len(scenarios)) as pool:
        futures: dict[Callable, Future] = {scenario: pool.submit(run, scenario) for scenario in scenarios}
        yield lambda scenario: futures[scenario].result()


# -------------------------------------------------------------------------------------------------------------- stopped


def assert_made_once(chain: Project, outcome: Outcome, *codes: int, stopped: int = 1) -> None:
    """Assert that labels are those of an undisturbed run, and only calls in flight at the stop were paid twice."""
    project = outcome.project
    assert outcome.codes == list(codes), outcome.said
    assert chain.frame(LABELS).equals(project.frame(LABELS))
    assert chain.table(LABELS).content == project.table(LABELS).content
    trials = TRIAL * len(codes)
    assert len(outcome.asked) <= len(chain.journal(LABELS)) + trials + stopped * IN_FLIGHT


def test_cancelled_stage_is_reported_and_the_next_run_pays_only_for_the_rest(chain, ended):
    """The driver names the stage that scancel ended, with its log, and the rerun ends with the undisturbed table."""
    outcome = ended(cancelled)
    assert_made_once(chain, outcome, 1, 0)
    assert f"{LABELS} failed: " in outcome.said and f"(full log: results/{LABELS}.log)" in outcome.said


@pytest.mark.long
def test_requeued_stage_goes_on_without_a_new_command(chain, ended):
    """One Snakemake waits through `scontrol requeue`, for one job, and earlier calls are not repeated."""
    outcome = ended(requeued)
    assert_made_once(chain, outcome, 0)
    assert len(numbers(outcome.project)) == 1 and "stopped by SIGTERM" in outcome.log(LABELS)


@pytest.mark.long
def test_stage_that_asks_beyond_its_walltime_goes_on_by_itself(chain, ended):
    """SLURM's signal stops it cleanly, without losing a call in flight; the same job resumes to the same table."""
    outcome = ended(asks_beyond_its_walltime)
    assert_made_once(chain, outcome, 0, stopped=0)
    assert len(numbers(outcome.project)) == 1
    assert "stopped by SIGUSR1, before the walltime is over" in outcome.log(LABELS)


@pytest.mark.long
def test_training_beyond_its_walltime_goes_on_by_itself_to_the_same_numbers(ended):
    """A grpo of several walltimes has the table, the weights and the rollouts of an undisturbed one."""
    stopped, whole = ended(trains_beyond_its_walltime), ended(trains_at_leisure)
    assert stopped.codes == whole.codes == [0], stopped.said
    assert whole.project.frame(GRPO).equals(stopped.project.frame(GRPO))
    assert whole.project.table(GRPO).content == stopped.project.table(GRPO).content
    log = stopped.log(GRPO)
    assert re.search(
        r"stopped by SIGUSR1, before the walltime is over; step \d+ of 16 is saved in a checkpoint", log
    ), log
    assert "resumes from checkpoint-" in log and len(numbers(stopped.project)) == 1


@pytest.mark.long
def test_two_drivers_at_once_make_one_table(chain, ended):
    """Both end well, and each answer was paid for once."""
    outcome = ended(two_drivers)
    assert_made_once(chain, outcome, 0, 0, stopped=0)
    assert len(numbers(outcome.project)) == 2


@pytest.mark.long
def test_job_that_finds_another_at_its_table_goes_back_into_the_queue(chain, ended):
    """It waits for the lock first, names the other, and ends well when its turn comes."""
    outcome = ended(two_jobs)
    assert_made_once(chain, outcome, 0, 0, stopped=0)
    said = (outcome.project.folder / "second").read_text()
    assert f"SLURM job {numbers(outcome.project)[0]} is making it; this one is requeued" in said


@pytest.mark.long
def test_driver_that_is_started_again_waits_for_the_running_job(chain, ended):
    """Its own job is queued behind that of the dead one, takes no node meanwhile, and finds the table made."""
    outcome = ended(dead_driver)
    assert_made_once(chain, outcome, -signal.SIGKILL, 0, stopped=0)
    first, second = numbers(outcome.project)
    assert outcome.queued[0].startswith(f"{second} afterany:{first}") and outcome.queued[0].endswith("PENDING")


@pytest.mark.long
def test_failed_job_is_reported_with_its_log(ended):
    """The driver's last line has the job's own message and the path of the log."""
    outcome = ended(failing)
    assert outcome.codes == [1]
    assert (
        "PROOFMILL_MICRO_BATCH_SIZE is `0`; expected a whole number of rows"
        in outcome.said.rpartition("sft/cold failed: ")[2]
    )
    assert "(full log: results/sft/cold.log)" in outcome.said


# ----------------------------------------------------------------------------------------------------- GPUs, two nodes


@pytest.mark.long
def test_jobs_see_the_gpus_of_their_sort(ended):
    """One process of a training sees both of its GPUs, one that serves weights one, and one that asks or computes none."""
    outcome = ended(gpus)
    assert outcome.codes == [0], outcome.said
    lines = (outcome.project.folder / "seen").read_text().splitlines()
    seen = dict(line.split() for line in lines)
    assert len(lines) == 4
    assert seen["sft/cold"] == "0,1" and seen["responses/cold"] in ("0", "1")
    assert seen["examples/cold"] == seen["grades/cold"] == "None"


@pytest.mark.long
def test_two_nodes_train_what_one_process_does(chain, ended):
    """An sft of two ranks, each on its node, has the numbers of one rank with the doubled batch, within 1e-4."""
    outcome = ended(on_two_nodes)
    assert outcome.codes == [0, 0], outcome.said
    one, two = chain.frame("sft/cold"), outcome.project.frame("sft/cold")
    assert two.drop("value").equals(one.drop("value"))
    assert two["value"].to_list() == pytest.approx(one["value"].to_list(), rel=1e-4, abs=1e-5)
    assert "4 rows a step: 2 x 2 x 1 (devices, micro-batch, accumulation steps)" in outcome.log("sft/cold")


@pytest.mark.long
def test_two_nodes_share_the_rollouts_of_a_training(ended):
    """A grpo of two ranks, each on its node, has every rollout once and each with a verdict."""
    project = ended(on_two_nodes).project
    frame = pl.read_parquet(project.table(GRPO).folder / "rollouts.parquet")
    assert frame.height == frame["rollout"].n_unique() == 8 * 4 * 2 and frame["grade"].null_count() == 0


@pytest.mark.long
def test_two_nodes_have_the_loss_curve_of_one_process(chain, ended):
    """Twelve steps of grpo on the same rollouts, by a rank on each node and by one process, within 1e-4 of the loss."""
    outcome = ended(curve_on_two_nodes)
    assert outcome.codes == [0], outcome.said
    one = fixed_rollouts.curve(chain.table("sft/cold").folder, 8)
    two = torch.load(outcome.project.folder / "losses.pt")
    assert two == pytest.approx(one, rel=1e-4, abs=1e-5)

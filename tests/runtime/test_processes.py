"""Processes that train one model together: DDP and FSDP2 on a CPU (gloo) give what one process gives."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from project import copy_of
from proofmill.schema.names import kind_of
from slow_referee import any_grades, slow_referee

pytestmark = [pytest.mark.long, pytest.mark.pipeline]

ROWS = "model: base/tiny, examples: examples/cold, batch-size: 8, learning-rate: 1.0e-3, log-every: 3, seed: 1"
ROLLOUTS = """
    model: sft/cold
    problems: problems/train
    schemes: schemes/train
    grader: api/referee
    rewards: {grade: 1, format: 0.1}
    unscored: drop
    group-size: 2
    problems-per-step: 4
    max-tokens: 24
    learning-rate: 1.0e-3
    log-every: 3"""
LORA = "lora: {rank: 4, alpha: 8}"
ENTRIES = f"""
  base/half: {{source: folder, path: half}}
  sft/all: {{{ROWS}, steps: 12, evaluate-share: 0.3, evaluate-every: 5, packing: true, max-length: 256}}
  sft/adapter: {{{ROWS}, steps: 12, {LORA}}}
  sft/half: {{{ROWS.replace("tiny", "half")}, steps: 6, {LORA}, precision: bfloat16}}
  grpo/all: {ROLLOUTS}
    steps: 8
    kl: 0.01
    iterations: 2
  grpo/adapter: {ROLLOUTS}
    steps: 8
    kl: 0.01
    teacher: sft/cold
    iterations: 2
    {LORA}
  grpo/synced: {ROLLOUTS}
    steps: 10
    kl: 0.1
    reference-sync-steps: 4
"""
# Differences, as a share of the distance that the training moves the weights. Several processes add the same numbers in
# another order: float32 rounds to 6e-8, and AdamW enlarges that where a gradient is nearly zero (measured: 1e-6). With
# bfloat16 arithmetic, each micro-batch rounds to 4e-3 (measured: 4e-3).
SAME = {"float32": 1e-4, "bfloat16": 2e-2}


@pytest.fixture(scope="module")
def project(chain, tmp_path_factory):
    """Return a project whose launch files use the CPU, with a base of bfloat16 files."""
    made = copy_of(chain, tmp_path_factory.mktemp("processes") / "project")
    made.config_file.write_text(made.config_file.read_text() + ENTRIES)
    for file in (made.folder / "workflow/accelerate").glob("*.yaml"):
        file.write_text(file.read_text() + "use_cpu: true\n")
    base, half = made.table("base/tiny").folder, made.folder / "half"
    AutoModelForCausalLM.from_pretrained(base, dtype="bfloat16").save_pretrained(half)
    AutoTokenizer.from_pretrained(base).save_pretrained(half)
    assert made.job("base/half").returncode == 0
    return made


@pytest.fixture(scope="module")
def judge():
    """Start a judge whose points differ between proofs."""
    with slow_referee(verdict=any_grades) as (environment, _):
        yield environment


@pytest.fixture(scope="module")
def trained(project, judge, tmp_path_factory):
    """Return `trained(name, launch)`, a project in which the entry was trained, by one process if `launch` is None."""
    made = {}

    def train(name, launch=None, kill=False):
        if (name, launch, kill) not in made:
            twin = copy_of(project, tmp_path_factory.mktemp("trained") / "project")
            run_job(twin, name, launch, judge, kill)
            made[name, launch, kill] = twin
        return made[name, launch, kill]

    return train


def run_job(project, name, launch, environment, kill):
    """Run a training to its end; with `kill`, kill its processes at their second checkpoint and start it again."""
    starts = ["accelerate.commands.launch", "--config_file", f"workflow/accelerate/{launch}.yaml"]
    starts += ["--num_processes", "2", "-m"]
    command = [sys.executable, "-m", *(starts if launch else []), "cpu_processes", f"proofmill.{kind_of(name)}", name]
    environment = {**environment, "PROOFMILL_MICRO_BATCH_SIZE": "2", "PROOFMILL_SAVE_STEPS": "2"}
    fixtures = str(Path(__file__).parents[1] / "fixtures")
    environment["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), fixtures])
    if kill:
        process = psutil.Popen(
            command, cwd=project.folder, env={**os.environ, **environment}, stderr=subprocess.DEVNULL
        )
        folder = project.table(name).scratch
        while not (there := [*folder.glob("checkpoints-*/checkpoint-4/running.json")]) and process.poll() is None:
            time.sleep(0.02)
        for one in [process, *process.children(recursive=True)]:
            one.kill()
        assert there and process.wait() == -signal.SIGKILL, "the training ended before it could be killed"
        shards = {path.name for path in there[0].parent.rglob("*.distcp")}
        assert shards == ({"__0_0.distcp", "__1_0.distcp"} if launch == "fsdp2" else set())  # one of each process
    done = project.run(*command, **environment)
    assert done.returncode == 0, done.stdout
    assert ("resumes from checkpoint-" in done.stdout) == kill


def assert_same(one, two, name):
    """Assert that two projects have the same table and weights of an entry, up to rounding."""
    tables, share = [project.frame(name) for project in (one, two)], SAME[one.config.entries[name].precision]
    assert tables[0].drop("value").equals(tables[1].drop("value"))
    assert tables[0]["value"].to_list() == pytest.approx(tables[1]["value"].to_list(), rel=share, abs=1e-6)
    parent = one.config.entries[name].model
    before, after, other = (
        load_file(project.table(artifact).folder / "model.safetensors")
        for project, artifact in ((one, parent), (one, name), (two, name))
    )
    assert before.keys() == after.keys() == other.keys()
    assert distance(after, other) <= share * distance(before, after)


def distance(one, other):
    """Return the distance between two sets of weights."""
    return torch.cat([(one[part].float() - other[part].float()).flatten() for part in one]).norm().item()


@pytest.mark.parametrize(
    ("name", "launch"),
    [
        ("sft/all", "fsdp2"),
        ("sft/adapter", "fsdp2"),
        ("sft/half", "fsdp2"),
        ("sft/half", "ddp"),
        ("grpo/all", "fsdp2"),
        ("grpo/all", "ddp"),
        ("grpo/adapter", "fsdp2"),
        ("grpo/synced", "ddp"),
    ],
)
def test_two_processes_train_what_one_does(trained, name, launch):
    """Table and weights are those of one process up to rounding; two micro-batches of each process make a step."""
    assert_same(trained(name), trained(name, launch), name)


@pytest.mark.parametrize(
    ("name", "launch"), [("sft/all", "fsdp2"), ("sft/adapter", "fsdp2"), ("grpo/all", "fsdp2"), ("grpo/synced", "ddp")]
)
def test_killed_processes_resume_to_the_same_weights(trained, name, launch):
    """After all processes are killed, two others end with exactly the weights of a training without a break, and its table.

    A checkpoint has the mean of the processes' losses since the last row, rounded to float32.
    """
    whole, resumed = trained(name, launch), trained(name, launch, kill=True)
    tables = [project.frame(name) for project in (whole, resumed)]
    assert tables[0].drop("value").equals(tables[1].drop("value"))
    assert tables[0]["value"].to_list() == pytest.approx(tables[1]["value"].to_list(), rel=1e-6)
    files = [project.table(name).folder / "model.safetensors" for project in (whole, resumed)]
    assert files[0].read_bytes() == files[1].read_bytes()

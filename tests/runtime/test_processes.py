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
  sft/all: {{{ROWS}, steps: 12, evaluate-share: 0.3, evaluate-every: 5}}
  sft/packed: {{{ROWS}, steps: 6, packing: true, max-length: 256}}
  sft/adapter: {{{ROWS}, steps: 12, {LORA}}}
  sft/half: {{{ROWS.replace("tiny", "half")}, steps: 6, {LORA}, precision: bfloat16}}
  grpo/all: {ROLLOUTS}
    steps: 8
    kl: 0.01
    iterations: 2
  grpo/adapter: {ROLLOUTS}
    steps: 8
    kl: 0.01
    iterations: 2
    {LORA}
  grpo/synced: {ROLLOUTS}
    steps: 10
    kl: 0.1
    reference-sync-steps: 4
"""
# A step of AdamW moves a weight by about the learning rate, 1e-3. Sums in another order differ by 1e-7 of their size, which
# AdamW enlarges where a gradient is nearly zero.
SAME = 1e-5


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
    assert bool(shards) == (launch == "fsdp2")  # each process has written its own
    done = project.run(*command, **environment)
    assert done.returncode == 0, done.stdout
    assert ("resumes from checkpoint-" in done.stdout) == kill


def read_weights(project, name):
    return load_file(project.table(name).folder / "model.safetensors")


def assert_same(one, two, name, weight=SAME, value=1e-4):
    """Assert that two projects have the same table and weights of an entry, up to rounding."""
    tables = [project.frame(name) for project in (one, two)]
    assert tables[0].drop("value").equals(tables[1].drop("value"))
    assert tables[0]["value"].to_list() == pytest.approx(tables[1]["value"].to_list(), rel=value, abs=1e-6)
    before, after = read_weights(one, name), read_weights(two, name)
    assert before.keys() == after.keys()
    for part in before:
        torch.testing.assert_close(before[part], after[part], rtol=0, atol=weight)
    moved = read_weights(one, one.config.entries[name].model)
    assert max(float((moved[part] - before[part]).abs().max()) for part in moved) > 100 * weight


@pytest.mark.parametrize("launch", ["ddp", "fsdp2"])
@pytest.mark.parametrize("name", ["sft/all", "sft/packed", "sft/adapter", "grpo/all", "grpo/adapter"])
def test_two_processes_train_what_one_does(trained, name, launch):
    """Table and weights are those of one process up to rounding, with rows accumulated over micro-batches."""
    assert_same(trained(name), trained(name, launch), name)

"""A job reads only what its entry declares; stopped by its walltime it is requeued if it saved progress."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mill import SMALL, Mill
from proofmill.artifacts import jobs
from proofmill.config.identity import identity_of
from proofmill.schema.errors import SettingError


def test_table_that_the_entry_does_not_name_is_refused(small: Mill):
    """A table that is in no fingerprint cannot be read, though it is there."""

    def main(entry, job):
        assert job.parent("problems/train").rows()
        job.parent("problems/bench")

    entries = {**SMALL, "examples/other": {"problems": "problems/train", "keep": ["has-text"]}}
    mill = Mill(small.results, **entries)
    identity = identity_of(mill.config.entries["examples/other"], mill.config.declared)
    with pytest.raises(LookupError, match=r"examples/other reads problems/bench, which neither its entry nor `behind`"):
        jobs.make(main, "examples/other", identity, small.results)
    assert not mill.table("examples/other").path.exists()


@pytest.mark.parametrize("identity", ["", "{", "[]", "7", '{"entry": {}}', "[" * 100_000])
def test_entry_of_the_command_line_that_is_none_is_refused(tmp_path, identity):
    """The argument of `--entry` is the identity of an entry, or a message says what is wrong with it."""
    with pytest.raises(SettingError, match=r"^problems/x: --entry is .+; expected the checked entry as JSON"):
        jobs.make(lambda *_: None, "problems/x", identity, tmp_path)


WALLTIME = """
import os, signal, sys, time
from proofmill.artifacts import jobs

kind, results, body = sys.argv[1:4]
def make(main, name, identity, results, advanced, **_):
    exec(body)
    os.kill(os.getpid(), signal.SIGUSR1)
    while True:
        time.sleep(0.05)

jobs.make = make
sys.argv = [f"{kind}.py", f"{kind}/x", "--entry", "{}", "--results", results]
jobs.run(None)
"""


def stopped_by_its_walltime(folder: Path, kind: str, body: str, **environment: str) -> tuple[int, str, bool]:
    """Run `body` in a SLURM job whose walltime ends; return its code, its output, and whether it was requeued.

    Its `scontrol` is a script.
    """
    control = folder / "scontrol"
    control.write_text(f"#!/bin/sh\ntouch {folder}/requeued\n")
    control.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", WALLTIME, kind, str(folder / "results"), body],
        env={**os.environ, "SLURM_JOB_ID": "7", "PATH": f"{folder}:{os.environ['PATH']}", **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr, (folder / "requeued").exists()


def wrote(*paths: str) -> str:
    """Return a body that writes files below `results`."""
    return "\n".join(
        f"p = results / {path!r}; p.parent.mkdir(parents=True, exist_ok=True); p.write_text('x')" for path in paths
    )


TRAINING = wrote("unfinished/grpo/x/checkpoints-7/rollouts.jsonl", "calls/grpo/x/calls.jsonl")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("grpo", TRAINING, "a checkpoint. Raise `runtime` of its kind in site.yaml, or lower PROOFMILL_SAVE_MINUTES."),
        ("labels", wrote("unfinished/labels/x/vllm.log"), "a model output. Raise `runtime` of its kind in site.yaml."),
    ],
)
def test_job_that_kept_nothing_within_its_walltime_fails(tmp_path, kind, body, expected):
    """A new rollout log, outputs of a training's judges or a server's log would requeue it forever."""
    code, said, requeued = stopped_by_its_walltime(tmp_path, kind, body)
    assert code == 1 and not requeued
    assert f"{kind}/x: saved no progress within the walltime of SLURM job 7; expected {expected}" in said


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("grpo", f"{TRAINING}\nadvanced.set()"),
        ("selfplay", wrote("selfplay/x.parquet")),
        ("labels", wrote("calls/labels/x/calls.jsonl")),
    ],
)
def test_job_that_kept_something_within_its_walltime_goes_on_by_itself(tmp_path, kind, body):
    """Progress is a checkpoint reported by a training, a model output, or the table."""
    code, said, requeued = stopped_by_its_walltime(tmp_path, kind, body)
    assert code == 1 and requeued
    assert f"{kind}/x  resumes automatically: SLURM job 7 is requeued" in said


SIGNALLED = """
from pathlib import Path

def rglob(self, pattern, found=Path.rglob):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)
    return found(self, pattern)

Path.rglob = rglob
"""


def test_leader_that_looks_for_what_was_kept_heeds_no_launcher(tmp_path):
    """torchrun and srun end a training of which a process has ended: the job goes back into the queue all the same."""
    body = f"{wrote('calls/labels/x/calls.jsonl')}\n{SIGNALLED}"
    _, said, requeued = stopped_by_its_walltime(tmp_path, "labels", body)
    assert requeued and said.count("stopped by SIGUSR1") == 1


def test_other_process_waits_for_the_end_of_the_job(tmp_path):
    """One that ended at once would have its launcher end the leader before its last words."""
    start, ranks = time.monotonic(), {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    code, said, requeued = stopped_by_its_walltime(tmp_path, "sft", "jobs.signals.LAST_WORDS = 4.0", **ranks)
    assert (code, said, requeued) == (1, "", False) and time.monotonic() - start > 4


def test_other_process_ends_with_the_job(tmp_path):
    """A signal while it waits is the end of the job, or of a leader that kept nothing."""
    start, ranks = time.monotonic(), {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    body = "import threading; threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()"
    code, _, requeued = stopped_by_its_walltime(tmp_path, "sft", body, **ranks)
    assert (code, requeued) == (1, False) and time.monotonic() - start < 25

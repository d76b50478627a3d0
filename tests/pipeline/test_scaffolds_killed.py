"""Scaffolds that are killed again and again: no answered call is repeated, and the table is that of an unbroken run."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import polars as pl
import pytest

from project import Project
from proofmill.scaffolds.scaffolds import SCAFFOLDS
from served import good, server

pytestmark = pytest.mark.pipeline
KILLS = 4
SMALL = {
    "reasoning-cache": {},
    "rsa": {"population": 4, "rounds": 2},
    "deepseek-math": {"pool": 2, "verifications": 2},
    "nomos": {"solutions": 4, "kept": 3, "perfect": 2},
    "selfcheck": {"passes": 2, "failures": 3, "iterations": 5},
    "graph": {"free": 2},
    "planner": {"calls": 4},
}
CONFIG = """
killed:
  api/solver: {{id: solver, price: {{input: 1, output: 1}}, price-source: "test, 2026-11-01", max-tokens: 256}}
  problems/some: {{source: arithmetic, rows: 6}}
  responses/unbroken: &play {{problems: problems/some, model: api/solver, scaffold: {scaffold}}}
  responses/killed: *play
"""
PLAN = '```json\n[{"tool": "solve"}, {"tool": "verify", "solution": 1}]\n```'


def reply(request, number):
    """An answer that the request alone decides; slow enough to be killed in the middle."""
    time.sleep(0.03)
    said = request["messages"][-1]["content"]
    drawn = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).digest()[0]
    score = ["0", "0.5", "yes", "no", "7", "A", "B"][drawn % 7]
    text = PLAN if "calls are left" in said or "You direct the work" in said else f"Text {drawn}. \\boxed{{{score}}}"
    return 200, good(text), {}


@pytest.mark.parametrize("name", list(SCAFFOLDS))
def test_killed_scaffold_repeats_no_answered_call(tmp_path, name):
    """kill -9 at random moments, then run to the end: the rows are those of an unbroken run, and so are the requests."""
    project = Project(tmp_path / "project", CONFIG.format(scaffold=json.dumps({"name": name, **SMALL[name]})))
    with server(reply) as (url, served):
        environment = {**os.environ, "PROOFMILL_SOLVER_URL": url, "PROOFMILL_CONCURRENCY": "4"}

        def run(what: str) -> subprocess.Popen:
            return subprocess.Popen(
                [sys.executable, "-m", f"proofmill.{what.partition('/')[0]}", what], cwd=project.folder, env=environment
            )

        assert run("problems/some").wait() == 0
        start = time.monotonic()
        assert run("responses/unbroken").wait() == 0
        took, unbroken = time.monotonic() - start, len(served.requests)
        chance = random.Random(name)
        for _ in range(KILLS):
            process = run("responses/killed")
            time.sleep(took * chance.uniform(0.5, 0.95))
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert run("responses/killed").wait() == 0
        repeated = len(served.requests) - 2 * unbroken
    assert repeated <= KILLS * 4  # those in flight
    tables = [
        pl.read_parquet(project.folder / f"results/responses/{which}.parquet") for which in ("unbroken", "killed")
    ]
    assert tables[0].equals(tables[1])
    assert tables[0]["steps"].list.len().min() > 1

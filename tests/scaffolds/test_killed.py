"""Scaffolds that are killed repeatedly: no completed call is repeated, and the table is that of an uninterrupted run."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from mill import SMALL
from proofmill.scaffolds.scaffolds import SCAFFOLDS
from served import good, server

pytestmark = pytest.mark.slow

KILLS = 4
IN_FLIGHT = 4
SIZES = {
    "reasoning-cache": {},
    "rsa": {"population": 4, "rounds": 2},
    "deepseek-math": {"pool": 2, "verifications": 2},
    "nomos": {"solutions": 4, "finalists": 3, "min-perfect": 2},
    "selfcheck": {"required-passes": 2, "max-failures": 3, "iterations": 5},
    "graph": {"unguided": 2},
    "planner": {"max-calls": 4},
}
SOLVER = {"id": "solver", "price": {"input": 1, "output": 1}, "price-source": "test, 2026-11-01", "max-tokens": 256}
PLAN = '```json\n[{"tool": "solve"}, {"tool": "verify", "solution": 1}]\n```'


# Imports everything once and forks for each artifact, so that a run that will be killed starts at once.
HOST = """
import json, os, sys
from pathlib import Path
from mill import Mill
import proofmill.responses, proofmill.engines.remote
for line in sys.stdin:
    results, entries, name, environment = json.loads(line)
    process = os.fork()
    if not process:
        os.environ.update(environment)
        Mill(Path(results), **entries).make(name)
        os._exit(0)
    print(process, flush=True)
    os.waitpid(process, 0)
"""


@pytest.fixture(scope="module")
def host():
    """Start a process that makes artifacts in forks of itself and prints the process id of each."""
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOST]
    with subprocess.Popen(command, env=path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.stdin.close()


def reply(request, number):
    """Return an output that the request alone decides."""
    said = request["messages"][-1]["content"]
    drawn = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).digest()[0]
    score = ["0", "0.5", "yes", "no", "7", "A", "B"][drawn % 7]
    plans = "calls are left" in said or "You direct the work" in said
    return 200, good(PLAN if plans else f"Text {drawn}. \\boxed{{{score}}}"), {}


@pytest.mark.sampled(0, "deepseek-math", "rsa")
@pytest.mark.parametrize("name", list(SCAFFOLDS))
def test_killed_scaffold_repeats_no_answered_call(small, mill, monkeypatch, host, name):
    """After four times kill -9 and a complete run, the rows and the calls are those of an uninterrupted run."""
    play = {"problems": "problems/bench", "model": "api/solver", "scaffold": {"name": name, **SIZES[name]}}
    unbroken, killed = f"responses/unbroken-{name}", f"responses/killed-{name}"
    entries = {**SMALL, "api/solver": SOLVER, unbroken: play, killed: play}
    made = mill(entries)
    made.results = small.results
    answered, due = [0], threading.Event()

    def counted(request, number):
        answered[0] += 1
        if answered[0] >= wanted[0]:
            due.set()
        time.sleep(0.002)
        return reply(request, number)

    with server(counted) as (url, served):
        environment = {"PROOFMILL_SOLVER_URL": url, "PROOFMILL_CONCURRENCY": str(IN_FLIGHT)}
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        wanted = [10**9]
        whole = list(made.make(unbroken).rows())
        calls, chance = len(served.requests), random.Random(name)
        for _ in range(KILLS):
            due.clear()
            wanted[0] = answered[0] + chance.randint(1, calls // (KILLS + 1))
            host.stdin.write(json.dumps([str(small.results), entries, killed, environment]) + "\n")
            host.stdin.flush()
            process = int(host.stdout.readline())
            assert due.wait(300)
            os.kill(process, signal.SIGKILL)
        wanted[0] = 10**9
        rows = list(made.make(killed).rows())
    assert len(served.requests) - 2 * calls <= KILLS * IN_FLIGHT
    assert rows == whole

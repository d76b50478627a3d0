"""Scaffolds that are killed again and again: no answered call is repeated, and the table is that of an unbroken run."""

import hashlib
import json
import multiprocessing
import os
import random
import signal
import threading
import time

import pytest

from mill import SMALL, Mill
from proofmill.scaffolds.scaffolds import SCAFFOLDS
from served import good, server

KILLS = 4
IN_FLIGHT = 4
SIZES = {
    "reasoning-cache": {},
    "rsa": {"population": 4, "rounds": 2},
    "deepseek-math": {"pool": 2, "verifications": 2},
    "nomos": {"solutions": 4, "kept": 3, "perfect": 2},
    "selfcheck": {"passes": 2, "failures": 3, "iterations": 5},
    "graph": {"free": 2},
    "planner": {"calls": 4},
}
SOLVER = {"id": "solver", "price": {"input": 1, "output": 1}, "price-source": "test, 2026-11-01", "max-tokens": 256}
PLAN = '```json\n[{"tool": "solve"}, {"tool": "verify", "solution": 1}]\n```'


# A fork of a process that has imported all and begun nothing: it starts at once.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["mill", "proofmill.responses"])


def make(results, entries, name, url):
    """Make an artifact, in a process of its own."""
    os.environ.update(PROOFMILL_SOLVER_URL=url, PROOFMILL_CONCURRENCY=str(IN_FLIGHT))
    Mill(results, **entries).make(name)


def reply(request, number):
    """An answer that the request alone decides."""
    said = request["messages"][-1]["content"]
    drawn = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).digest()[0]
    score = ["0", "0.5", "yes", "no", "7", "A", "B"][drawn % 7]
    plans = "calls are left" in said or "You direct the work" in said
    return 200, good(PLAN if plans else f"Text {drawn}. \\boxed{{{score}}}"), {}


@pytest.mark.parametrize("name", list(SCAFFOLDS))
def test_killed_scaffold_repeats_no_answered_call(small, mill, monkeypatch, name):
    """kill -9 after some replies, four times, then to the end: the rows are those of an unbroken run, and so are the calls."""
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
        monkeypatch.setenv("PROOFMILL_SOLVER_URL", url)
        monkeypatch.setenv("PROOFMILL_CONCURRENCY", str(IN_FLIGHT))
        wanted = [10**9]
        whole = list(made.make(unbroken).rows())
        calls, chance = len(served.requests), random.Random(name)
        for _ in range(KILLS):
            due.clear()
            wanted[0] = answered[0] + chance.randint(1, calls // (KILLS + 1))
            process = FORKS.Process(target=make, args=(small.results, entries, killed, url))
            process.start()
            assert due.wait(120)
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        wanted[0] = 10**9
        rows = list(made.make(killed).rows())
    assert len(served.requests) - 2 * calls <= KILLS * IN_FLIGHT
    assert rows == whole

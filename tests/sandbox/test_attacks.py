"""Attacking programs: they reach nothing outside, the pool survives, neighbors are unaffected, wrong programs fail."""

import json
import os
import socket
import subprocess
import sys
import tempfile

import psutil
import pytest

from attacks import BOMBS, FORGERIES, REACHES
from boxed import block
from proofmill.sandbox import jails
from proofmill.sandbox.executor import Execution, Executor
from proofmill.sandbox.sandbox import Ran, Sandbox

SECRET = "a secret that no program may see"
NEIGHBOUR = Execution("def f(n):\n    yield n * n", "list(f(12))")


@pytest.fixture(scope="module", params=jails.KINDS)
def kind(request):
    """Yield each kind of jail that works on this machine."""
    if fault := jails._fault(request.param):
        pytest.skip(f"{request.param}: {fault}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jails, "plan", lambda: request.param)
        patch.setattr(jails, "GRACE", 3.0)
        yield request.param


@pytest.fixture(scope="module")
def executor(kind):
    """Yield one executor for all attacks, so that damage done by one is seen by the next."""
    with Executor(seconds=0.25, megabytes=128, workers=2) as made:
        yield made


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Yield targets outside of the jail, by their names in the programs; check afterwards that they are unharmed."""
    monkeypatch.setenv("SECRET", SECRET)
    secret = tmp_path / "secret_module.py"
    secret.write_text(f"out = {SECRET!r}")
    temporary = set(os.listdir(tempfile.gettempdir()))
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        subprocess.Popen(["sleep", "1000"]) as victim,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as box,
    ):
        server.setblocking(False)
        box.bind(f"\0proofmill-{server.getsockname()[1]}")
        names = {"secret": str(secret), "folder": str(tmp_path), "process": victim.pid, "port": server.getsockname()[1]}
        before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}, os.stat(secret).st_mode
        yield names
        with pytest.raises(BlockingIOError):
            server.accept()
        assert victim.poll() is None and psutil.Process(victim.pid).nice() == psutil.Process().nice()
        assert ({path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}, os.stat(secret).st_mode) == before
        assert not {"attack", "soft", "hard", "out"} & (set(os.listdir(tempfile.gettempdir())) - temporary)
        victim.kill()


def filled(program: str, names: dict) -> str:
    for name, value in names.items():
        program = program.replace(f"{{{name}!r}}", repr(value)).replace(f"{{{name}}}", str(value))
    return program


def test_attacks_are_many():
    """There are more than 200 attacks, and each compiles."""
    programs = [*REACHES, *BOMBS.values(), *FORGERIES.values()]
    assert len(set(programs)) == len(programs) > 200
    for program in programs:
        compile(filled(program, {"secret": "/s", "folder": "/f", "process": 1, "port": 2}), "<attack>", "exec")


def test_attack_on_what_is_outside_gets_nothing(executor, outside):
    """No file, variable, process or connection is reached, and no process is killed or started."""
    executions = [Execution(filled(program, outside), "out") for program in REACHES]
    results = list(executor.run(execution for one in executions for execution in (one, NEIGHBOUR)))
    got = [(one.program, result) for one, result in zip(executions, results[::2], strict=True) if result.status == "ok"]
    assert [(program, result.value) for program, result in got if result.value != "None"] == []
    assert {result.value for result in results[1::2]} == {"[144]"}


@pytest.mark.sampled(2)
def test_attack_that_takes_all_there_is_costs_no_other(executor):
    """Each bomb ends without a value, and programs that run at the same time have their values."""
    results = list(executor.run(e for program in BOMBS.values() for e in (Execution(program, "1"), NEIGHBOUR)))
    values = {name: result for name, result in zip(BOMBS, results[::2], strict=True) if result.status == "ok"}
    assert values == {}
    assert {result.value for result in results[1::2]} == {"[144]"}
    assert all(result.error for result in results[::2])


@pytest.mark.parametrize("truth", [False, True])
def test_attack_on_the_verdict_earns_nothing(kind, truth):
    """A program passes only by returning the correct values, whatever it does to names, files and memory."""
    numbers = (1, 4, 911)
    tests = [(f"f({n})", f"{7 * n + 5}") for n in numbers]
    if truth:
        tests = [(f"f({n}) == {7 * n + 5}", "True") for n in numbers]
    answer = json.dumps([{"call": call, "result": result} for call, result in tests])
    with Sandbox(seconds=0.25, megabytes=128, workers=2) as sandbox:
        codes = [code for forgery in FORGERIES.values() for code in (forgery, "def f(n): return 7 * n + 5")]
        results = list(sandbox.check([(block("\n" + code), answer) for code in codes]))
    assert {name: one for name, one in zip(FORGERIES, results[::2], strict=True) if one.share} == {}
    assert set(results[1::2]) == {Ran(1.0, 3, 3, "ok")}


def test_attack_leaves_nothing_for_the_next_program(executor):
    """Later programs in the same jail see nothing that a program wrote, changed or hid."""
    leaves = """
import builtins, math, os, sys, gc
try: found = [builtins.left, math.left, sys.left]
except AttributeError: found = None
builtins.left = math.left = sys.left = 1
os.environ['LEFT'] = 'x'
math.sqrt = builtins.abs = builtins.len = None
sys.setrecursionlimit(60)
"""
    results = list(executor.run([Execution(leaves, "(found, os.environ.get('LEFT2'), gc.isenabled())")] * 40))
    assert {result.value for result in results} == {"(None, None, True)"}
    memory = "import gc\nmine = 'x' * 3 + 'secret'\nout = sum('xxx' + 'secret' in str(o) for o in gc.get_objects() if type(o) is dict and o is not globals())"
    assert {result.value for result in executor.run([Execution(memory, "out")] * 20)} == {"0"}


LEAVES = """
import sys, psutil
from proofmill.sandbox import jails
from proofmill.sandbox.executor import Execution, Executor
jails.plan = lambda: sys.argv[1]
with Executor(seconds=60, workers=2) as executor:
    some = executor.run([Execution("1", "1")] + [Execution("while True: pass")] * 3)
    next(some)
    during = psutil.Process().children(recursive=True)
_, left = psutil.wait_procs(during, timeout=30)
print(len(during), len(left))
"""


def test_attack_leaves_no_process_behind(kind):
    """No process is left when the executor is closed. This is checked in a process without other children."""
    ended = subprocess.run([sys.executable, "-c", LEAVES, kind], stdout=subprocess.PIPE, text=True, check=True)
    during, left = map(int, ended.stdout.split())
    assert during >= 2 and left == 0


ORPHANS = """
import os, sys, psutil
from proofmill.sandbox import jails
from proofmill.sandbox.executor import Execution, Executor
jails.plan = lambda: sys.argv[1]
with Executor(seconds=1, workers=2) as executor:
    some = executor.run([Execution("1", "1")] + [Execution("while True: pass")] * 50)
    next(some)
    print(*[process.pid for process in psutil.Process().children(recursive=True)], flush=True)
    list(some)
"""


def test_jails_of_a_killed_parent_end_though_they_are_busy(kind):
    """All processes end soon after their parent is killed."""
    with subprocess.Popen([sys.executable, "-c", ORPHANS, kind], stdout=subprocess.PIPE, text=True) as parent:
        processes = [int(number) for number in parent.stdout.readline().split()]
        living = [psutil.Process(number) for number in processes if psutil.pid_exists(number)]
        parent.kill()
    assert processes
    _, left = psutil.wait_procs([process for process in living if process.is_running()], timeout=120)
    assert [process for process in left if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.sampled(2)
def test_jail_that_is_killed_from_outside_costs_nothing(kind):
    """A program whose jail dies is rerun in another."""
    with Executor(seconds=5, workers=1) as executor:
        assert next(executor.run([NEIGHBOUR])).value == "[144]"
        for process in psutil.Process().children():
            process.kill()
        assert [result.value for result in executor.run([NEIGHBOUR] * 9)] == ["[144]"] * 9

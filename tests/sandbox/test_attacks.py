"""Programs that attack: nothing gets out, the pool survives, no neighbour is affected, no wrong program has marks."""

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
    """Each kind of jail that this machine has."""
    if fault := jails._fault(request.param):
        pytest.skip(f"{request.param}: {fault}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jails, "plan", lambda: request.param)
        patch.setattr(jails, "GRACE", 3.0)
        yield request.param


@pytest.fixture(scope="module")
def executor(kind):
    """One for all attacks: whatever an attack breaks, those after it find broken."""
    with Executor(seconds=0.25, megabytes=128, workers=2) as made:
        yield made


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """What there is to be had or harmed outside, as the names that stand in the programs; afterwards it is unharmed."""
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
    """There are more than a hundred, and each compiles."""
    programs = [*REACHES, *BOMBS.values(), *FORGERIES.values()]
    assert len(set(programs)) == len(programs) > 200
    for program in programs:
        compile(filled(program, {"secret": "/s", "folder": "/f", "process": 1, "port": 2}), "<attack>", "exec")


def test_attack_on_what_is_outside_gets_nothing(executor, outside):
    """No file is read, written or listed, no variable seen, no process seen, struck or started, nothing connected."""
    asked = [Execution(filled(program, outside), "out") for program in REACHES]
    found = list(executor.run(execution for one in asked for execution in (one, NEIGHBOUR)))
    got = [(one.program, result) for one, result in zip(asked, found[::2], strict=True) if result.status == "ok"]
    assert [(program, result.value) for program, result in got if result.value != "None"] == []
    assert {result.value for result in found[1::2]} == {"[144]"}


def test_attack_that_takes_all_there_is_costs_no_other(executor):
    """Each bomb ends at a limit or by itself, gives no value, and what is run beside it has its own."""
    found = list(executor.run(e for program in BOMBS.values() for e in (Execution(program, "1"), NEIGHBOUR)))
    values = {name: result for name, result in zip(BOMBS, found[::2], strict=True) if result.status == "ok"}
    assert values == {}
    assert {result.value for result in found[1::2]} == {"[144]"}
    assert all(result.error for result in found[::2])


@pytest.mark.parametrize("truth", [False, True])
def test_attack_on_its_marks_gets_none(kind, truth):
    """Whatever a program does to the names, files and memory that it finds, it passes only by giving the right values."""
    numbers = (1, 4, 911)
    tests = [(f"f({n})", f"{7 * n + 5}") for n in numbers]
    if truth:
        tests = [(f"f({n}) == {7 * n + 5}", "True") for n in numbers]
    answer = json.dumps([{"call": call, "result": result} for call, result in tests])
    with Sandbox(seconds=0.25, megabytes=128, workers=2) as sandbox:
        codes = [code for forgery in FORGERIES.values() for code in (forgery, "def f(n): return 7 * n + 5")]
        found = list(sandbox.check([(block("\n" + code), answer) for code in codes]))
    assert {name: one for name, one in zip(FORGERIES, found[::2], strict=True) if one.share} == {}
    assert set(found[1::2]) == {Ran(1.0, 3, 3, "ok")}


def test_attack_leaves_nothing_for_the_next_program(executor):
    """What a program writes, changes or hides is not there for those after it in the same jail."""
    leaves = """
import builtins, math, os, sys, gc
try: found = [builtins.left, math.left, sys.left]
except AttributeError: found = None
builtins.left = math.left = sys.left = 1
os.environ['LEFT'] = 'x'
math.sqrt = builtins.abs = builtins.len = None
sys.setrecursionlimit(60)
"""
    found = list(executor.run([Execution(leaves, "(found, os.environ.get('LEFT2'), gc.isenabled())")] * 40))
    assert {result.value for result in found} == {"(None, None, True)"}
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
    """When the executor is closed nothing of it runs. It is asked in a process that has no other children."""
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
    """No process outlives for long a parent that is killed outright."""
    with subprocess.Popen([sys.executable, "-c", ORPHANS, kind], stdout=subprocess.PIPE, text=True) as parent:
        processes = [int(number) for number in parent.stdout.readline().split()]
        living = [psutil.Process(number) for number in processes if psutil.pid_exists(number)]
        parent.kill()
    assert processes
    _, left = psutil.wait_procs([process for process in living if process.is_running()], timeout=120)
    assert [process for process in left if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []


def test_jail_that_is_killed_from_outside_costs_nothing(kind):
    """A program whose jail dies is run again in another."""
    with Executor(seconds=5, workers=1) as executor:
        assert next(executor.run([NEIGHBOUR])).value == "[144]"
        for process in psutil.Process().children():
            process.kill()
        assert [result.value for result in executor.run([NEIGHBOUR] * 9)] == ["[144]"] * 9

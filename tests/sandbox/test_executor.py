"""The executor: values and reasons, limits, order, fresh processes, and unsupported machines."""

import math

import pytest

from proofmill.sandbox import jails
from proofmill.sandbox.executor import Execution, Executor, Result
from proofmill.schema.errors import SandboxError


@pytest.fixture(scope="module")
def executor():
    """Yield an executor for programs that do not damage it."""
    with Executor(seconds=30, workers=2, longest=1000) as made:
        yield made


def value(executor: Executor, program: str, call: str = "f()", **options) -> Result:
    return next(executor.run([Execution(program, call, **options)]))


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("None", "None"),
        ("[True, 1, 2.0, 1e400, -1j, 'a', b'b']", "[True, 1, 2.0, float('inf'), complex(-0.0, -1.0), 'a', b'b']"),
        ("{3, 1, 20}, frozenset(), set(), ()", "({1, 3, 20}, frozenset(), set(), ())"),
        ("{'b': float('nan'), 'a': (1,)}", "{'b': float('nan'), 'a': (1,)}"),
        ("__import__('collections').Counter('aab')", "Counter({'a': 2, 'b': 1})"),
        ("__import__('collections').namedtuple('P', 'x y')(1, [2])", "(1, [2])"),
        ("__import__('enum').IntEnum('E', 'A B').B", "2"),
        ("'\\ud800'", "'\\ud800'"),
        ("type('S', (str,), {'__repr__': lambda self: '5'})('a')", "'a'"),
    ],
)
def test_value_of_a_call_is_plain_data(executor, given, written):
    """Each kind of plain data is written in one way; an object of a derived class is written as its base."""
    assert value(executor, f"def f(): return {given}").value == written


@pytest.mark.parametrize(
    ("given", "status", "error"),
    [
        ("object()", "refused", "a value of the type object, which is no plain data"),
        ("[print]", "refused", "a value of the type builtin_function_or_method, which is no plain data"),
        ("(x for x in 'a')", "refused", "a value of the type generator, which is no plain data"),
        ("'a' * 999", "refused", None),
        ("[1] * 334", "refused", None),
        ("[[[]]] * 10**7", "refused", None),
        ("x", "raised", "NameError: name 'x' is not defined"),
        ("1 / 0", "raised", "ZeroDivisionError: division by zero"),
        ("[][0]", "raised", "IndexError: list index out of range"),
        ("__import__('nothing')", "raised", "ModuleNotFoundError: No module named 'nothing'"),
        ("int('9' * 5000)", "raised", None),
        ("10 ** 5000", "raised", None),
        ("'a' * 10 ** 12", "memory", "MemoryError"),
        ("exit(3)", "raised", None),
    ],
)
def test_missing_value_has_a_reason(executor, given, status, error):
    """Values that are not plain data or too long are refused, not truncated; exceptions keep class and text."""
    result = value(executor, f"def f(): return {given}")
    assert (result.status, result.value) == (status, "") and result.error and error in (None, result.error)


def test_value_of_the_maximal_length_is_complete(executor):
    """A value of the maximal length is returned and one character more refused, in shared and separate processes."""
    for setup in ("", "import os\n"):
        results = [value(executor, f"{setup}def f(n): return 'a' * (n + {n})", "f(0)") for n in (998, 999)]
        assert [(one.status, len(one.value)) for one in results] == [("ok", 1000), ("refused", 0)]


@pytest.mark.parametrize(
    ("program", "stdin", "printed"),
    [
        ("print(int(input()) + 1)", "4\n", "'5\\n'"),
        ("import sys\nprint(sys.stdin.read().upper(), end='')", "aé\nb", "'AÉ\\nB'"),
        ("print(open(0).read())", "x", "'x\\n'"),
        ("import os\nos.write(1, os.read(0, 9))", "x", "'x'"),
        ("import sys\nfor line in sys.stdin: sys.stdout.buffer.write(line.encode())", "a\nb", "'a\\nb'"),
        ("import sys\nprint('x', file=sys.stderr); sys.exit()", "", "''"),
        ("import time\ntime.sleep(10**6); print(1)", "", "'1\\n'"),
        ("if __name__ == '__main__': print(__name__)", "", "'__main__\\n'"),
    ],
)
def test_value_without_a_call_is_what_is_printed(executor, program, stdin, printed):
    """A program can read its input and print in every way of Python, and sleeping takes no time."""
    result = value(executor, program, "", stdin=stdin)
    assert (result.status, result.value) == ("ok", printed)


def test_run_gives_results_in_their_order(executor):
    """Results keep the order of the programs, fast or slow, tame or not."""
    programs = [
        "def f(n): return {n}",
        "def f(n): yield {n}",
        "def f(n): raise ValueError({n})",
        "def f(n): return sum(range(n)) * 0 + {n}",
    ]
    executions = [
        Execution(programs[n % 4].replace("{n}", str(n)), "f(10**4)" if n % 4 != 1 else "next(f(1))")
        for n in range(300)
    ]
    results = list(executor.run(iter(executions)))
    assert [one.value or one.error for one in results] == [
        f"ValueError: {n}" if n % 4 == 2 else str(n) for n in range(300)
    ]
    assert list(executor.run([])) == []


def test_unfinished_run_does_not_affect_others(executor):
    """After a run is closed early, another gets its own results."""
    some = executor.run(Execution(f"def f(): yield {n}", "list(f())") for n in range(10**6))
    assert [next(some).value for _ in range(3)] == ["[0]", "[1]", "[2]"]
    some.close()
    assert [one.value for one in executor.run([Execution("def f(): return 5", "f()")] * 50)] == ["5"] * 50


def test_limits_have_their_own_reasons():
    """Time, memory and output each end a program with their own status."""
    executions = [
        "while True: pass",
        "x = [0]\nwhile True: x += x",
        "while True: print('a' * 999)",
        "import os; os._exit(0)",
    ]
    with Executor(seconds=0.25, megabytes=64, workers=2) as executor:
        results = list(executor.run(Execution(program) for program in executions))
    assert [one.status for one in results] == ["timeout", "memory", "output", "crashed"]


NOT_DETERMINED = {
    "random": "import random\ndef f(): return random.random()",
    "random draws": "import random\ndef f(): return random.sample(range(10**9), 3)",
    "system's random": "import os\ndef f(): return os.urandom(8)",
    "secrets": "import secrets\ndef f(): return secrets.token_hex(8)",
    "identifiers": "import uuid\ndef f(): return uuid.uuid4().hex",
    "time": "import time\ndef f(): return time.time()",
    "date": "import datetime\ndef f(): return str(datetime.datetime.now())",
    "processor time": "import time\ndef f(): return time.perf_counter_ns()",
    "hash": "def f(): return hash('proofmill')",
    "order of a set": "def f(): return list({str(n) for n in range(99)})",
    "order of a set, printed": "def f(): return str({str(n) for n in range(99)})",
    "first of a set": "def f(): return [s.pop() for s in [{str(n) for n in range(k)} for k in range(9, 99)]]",
    "address": "def f(): return id([])",
    "address in a text": "def f(): return repr(object())",
    "hash of an object": "def f(): return hash(object())",
    "environment": "import os\ndef f(): return dict(os.environ)",
}
REFUSED = {
    "file system": "import os\ndef f(): return os.listdir('/var')",
    "file": "def f(): return open('/etc/hostname').read()",
    "variable": "import os\ndef f(): return os.environ['PATH']",
    "network": "import socket\ndef f(): return socket.gethostbyname('localhost') + socket.create_connection(('1.1.1.1', 53)).getsockname()[0]",
}


def test_program_that_depends_on_more_than_its_input_is_detected(executor):
    """Two fresh runs give different results, or none."""
    executions = [Execution(program, "f()") for program in [*NOT_DETERMINED.values(), *REFUSED.values()]]
    one, other = (list(executor.run(executions, fresh=True)) for _ in range(2))
    results = dict(zip([*NOT_DETERMINED, *REFUSED], zip(one, other, strict=True), strict=True))
    assert {name for name, (one, other) in results.items() if one.status == "ok" and one.value == other.value} == set()
    assert {name for name, (one, _) in results.items() if one.status != "ok"} == set(REFUSED)


def test_program_that_depends_on_its_input_alone_is_the_same_when_fresh(executor):
    """A deterministic program has the same value in fresh processes."""
    program = "def f(n): return sorted({str(k % 7): [k / 3] for k in range(n)}.items())"
    results = [next(executor.run([Execution(program, "f(40)")], fresh=fresh)).value for fresh in (False, True, True)]
    assert len(set(results)) == 1


def test_random_numbers_are_the_same_unless_fresh(executor):
    """Random numbers and hashes are equal in all runs."""
    program = Execution("import random\ndef f(): return [random.random(), hash('a')]", "f()")
    assert len({result.value for result in executor.run([program] * 20)}) == 1


@pytest.mark.parametrize("package", ["numpy"])
def test_package_that_is_installed_can_be_imported(executor, package):
    """numpy works in the jail, and its numbers and arrays are plain data."""
    pytest.importorskip(package)
    program = "import numpy as np\ndef f(x): return np.{}(np.array(x))"
    results = [
        value(executor, program.format(name), "f([[1, 2], [3, 4]])") for name in ("sum", "mean", "linalg.det", "sqrt")
    ]
    assert [one.value for one in results[:2]] == ["10", "2.5"] and results[2].status == "ok"
    assert results[3].value.startswith("numpy.array([[1.0, 1.414213562373095")


# --------------------------------------------------------------------------------------------------- unsupported machines


@pytest.mark.parametrize(
    "options",
    [{"workers": 0}, {"seconds": 0}, {"seconds": math.nan}, {"seconds": 10**6}, {"megabytes": 1}, {"longest": 0}],
)
def test_executor_without_workers_time_or_memory_is_refused(options):
    """Limits out of range raise SandboxError."""
    with pytest.raises(SandboxError, match="expected at least 1"):
        Executor(**options)


def test_run_outside_the_context_is_refused():
    """Programs run only while the executor is open; a run stops when it is closed."""
    made = Executor(workers=1)
    with pytest.raises(SandboxError, match="not open"):
        made.run([])
    with made:
        some = made.run([Execution("1", "1")] * 100)
        assert next(some).value == "1"
    with pytest.raises(SandboxError, match="not open"):
        list(some)


def test_machine_without_a_working_jail_is_refused_with_the_faults(monkeypatch):
    """The error names the jail that a program escapes from and the one that is not installed."""
    jails.plan.cache_clear()
    monkeypatch.setattr(jails.shutil, "which", lambda name: None)
    monkeypatch.setattr(jails, "_ESCAPES", {"add numbers": "1 + 1"})
    expected = "bubblewrap: `bwrap` is not installed; landlock: a program can add numbers.* Install bubblewrap"
    with pytest.raises(SandboxError, match=expected):
        Executor(workers=1).__enter__()
    monkeypatch.undo()
    jails.plan.cache_clear()
    assert jails.plan() in jails.KINDS


def test_other_processor_is_refused(monkeypatch):
    """The filter of system calls works on x86-64 only."""
    monkeypatch.setattr(jails.platform, "machine", lambda: "aarch64")
    assert jails._fault("landlock") == "the filter of system calls is for x86-64, this is aarch64"

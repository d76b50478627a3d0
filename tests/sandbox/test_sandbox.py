"""Programs against tests: which share passes, and what no program can do."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boxed import DOUBLE, PASSED, RIGHT, block, calls, prints, ran, real_programs
from proofmill.sandbox import sandbox
from proofmill.sandbox._programs import LONGEST
from proofmill.sandbox.cases import same_value
from proofmill.sandbox.sandbox import CANARIES, Ran, Sandbox
from proofmill.schema.errors import SandboxError


@pytest.fixture(scope="module")
def box():
    """A sandbox for all tests that leave it as it was; a program may take long, since the machine may be busy."""
    with Sandbox(seconds=60, workers=2) as made:
        yield made


@pytest.fixture(scope="module")
def short():
    """A sandbox with little time and memory, for programs that would take all there is."""
    with pytest.MonkeyPatch.context() as patch, Sandbox(seconds=0.5, megabytes=64, workers=2) as made:
        patch.setattr(sandbox, "PATIENCE", 10_000)  # a machine may be as busy as it likes
        yield made


# ------------------------------------------------------------------------------------------------------------ what passes


@pytest.mark.parametrize(
    ("code", "share", "status", "detail"),
    [
        (RIGHT, 1.0, "ok", ""),
        ("print(6)", 1 / 3, "ok", ""),
        ("pass", 0.0, "ok", ""),
        ("n = int(input())\nprint(n and 2 * n, end='')", 1.0, "ok", ""),
        ("n = int(input())\nassert n > 0\nprint(2 * n)", 2 / 3, "failed", "test 2: AssertionError (line 2)"),
        ("print(2 * int(input()))\n1 / 0", 0.0, "failed", "test 1: ZeroDivisionError: division by zero (line 2)"),
        ("print(2 * int(input(' ')))", 0.0, "ok", ""),  # a prompt is printed
        ("print(2 * int(input())); input()", 0.0, "failed", "test 1: EOFError: EOF when reading a line (line 1)"),
        ("print(2 * int(input())); exit()", 1.0, "ok", ""),
        ("print(2 * int(input())); exit(0); 1 / 0", 1.0, "ok", ""),
        ("print(2 * int(input())); raise SystemExit", 1.0, "ok", ""),
        ("import sys\nprint(2 * int(input())); sys.exit(3)", 0.0, "failed", "test 1: SystemExit: 3 (line 2)"),
        ("print(2 * int(input())", 0.0, "failed", "SyntaxError: '(' was never closed (<program>, line 1)"),
        (
            "print(2 * int(input()))\nreturn 5",
            0.0,
            "failed",
            "SyntaxError: 'return' outside function (<program>, line 2)",
        ),
        ("print 2 * int(input())", 0.0, "failed", None),
        ("\0", 0.0, "failed", None),
        ("-" * 30_000 + "1", 0.0, "failed", "SyntaxError: too deeply nested"),
        ("x = int(input())\nif x > 0:\n\tprint(x)\n        print(x)", 0.0, "failed", None),
        ("print('\ud800')", 0.0, "failed", None),
    ],
)
def test_check_of_a_program_gives_the_share_of_tests_that_it_passes(box, code, share, status, detail):
    """Tests that raise are not passed and the others count; what Python does not compile passes none."""
    found = next(box.check([(f"```python\n{code}\n```", DOUBLE)]))
    assert (found.share, found.status, found.of) == (share, status, 3)
    assert found.passed == round(share * 3)
    assert detail in (None, found.detail)


def test_check_of_a_text_without_a_program_passes_nothing(box):
    """No block of Python is a share of 0, for nothing was written that could be run."""
    assert list(box.check([("It is 6.", DOUBLE)])) == [Ran(0.0, 0, 3, "no-code", "no closed block of Python")]


def test_check_of_too_long_a_program_is_unscored(box):
    """A program of the greatest length runs, and a longer one is not run."""
    longest = RIGHT + "\n" + "#" * (LONGEST - len(RIGHT) - 2)
    texts = [f"```python\n{code}\n```" for code in (longest, longest + "#")]
    assert [found.share for found in box.check([(text, DOUBLE) for text in texts])] == [1.0, None]


def test_check_of_calls_compares_values(box):
    """An expression is evaluated after the program, whose printing does not matter, and each starts anew."""
    code = "print('hello')\nseen = []\ndef f(x):\n    seen.append(x)\n    return {len(seen): x}"
    assert ran(box, code, calls(("f('a')", "{1: 'a'}"), ("f(f(2))", "{2: {1: 2}}"), ("f(3)", "{ 1:3 }"))) == Ran(
        1.0, 3, 3, "ok"
    )
    assert ran(box, code, calls(("f(1)", "{1: 2}"), ("g(1)", "1"), ("f(0)", "{1: 0}"))) == Ran(
        1 / 3, 1, 3, "failed", "test 2: NameError: name 'g' is not defined"
    )


def test_check_of_a_call_with_an_endless_value_is_wrong(box):
    """A value far longer than the right one is cut where it was made, and is not the right one."""
    assert ran(box, "def f(x): return [x] * 10**6", calls(("f(1)", "[1]"))) == Ran(0.0, 0, 1, "ok")
    assert ran(box, "def f(x): return [x] * 10**4", calls(("f(1)", repr([1] * 10**4)))) == Ran(1.0, 1, 1, "ok")


OWN_REPR = {  # what a program may make of the name by which Python would write its value
    "list": "def repr(x): return [x]",
    "none": "def repr(x): return None",
    "number": "def repr(x): return 5",
    "right answer": "def repr(x): return '3'",
    "true": "def repr(x): return 'True'",
    "bytes": "def repr(x): return b'3'",
    "tuple": "def repr(x): return ('3',)",
    "set": "def repr(x): return {'3'}",
    "mapping": "def repr(x): return {'3': 3}",
    "function": "def repr(x): return repr",
    "class": "class A: pass\ndef repr(x): return A",
    "object": "class A: pass\ndef repr(x): return A()",
    "class itself": "class repr:\n    def __init__(self, x): self.x = x",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass repr:\n    x: int",
    "date": "import datetime\ndef repr(x): return datetime.datetime(2020, 1, 1)",
    "path": "from pathlib import Path\ndef repr(x): return Path('3')",
    "decimal": "import decimal\ndef repr(x): return decimal.Decimal(3)",
    "cyclic list": "y = []\ny.append(y)\ndef repr(x): return y",
    "nested list": "y = []\nfor _ in range(200): y = [y]\ndef repr(x): return y",
    "error": "def repr(x): raise ValueError('3')",
    "no function": "repr = '3'",
}


@pytest.mark.parametrize("own", OWN_REPR.values(), ids=OWN_REPR)
def test_check_of_calls_asks_no_function_of_the_program_for_their_values(box, own):
    """Whatever a program calls `repr`, its sum passes and its product does not, of numbers and of comparisons."""
    tests = calls(("f(1, 2)", "3"), ("f(1, 2) == 3", "True"))
    right, wrong = (f"{own}\n\ndef f(a, b): return a {sign} b" for sign in "+*")
    found = list(box.check([(f"```python\n{code}\n```", tests) for code in (right, wrong)]))
    assert found == [Ran(1.0, 2, 2, "ok"), Ran(0.0, 0, 2, "ok")]


@pytest.mark.parametrize("given", ["[x]", "None", "5", "b'3'", "A"])
def test_check_of_a_call_whose_value_has_no_text_is_failed(box, given):
    """An object that says of itself what is no text has no value, as in Python."""
    code = f"class A:\n    def __repr__(self):\n        return {given}\nx = 3\ndef f(a, b): return A()"
    found = ran(box, code, calls(("f(1, 2)", "3")))
    assert (found.share, found.status) == (0.0, "failed") and "__repr__ returned non-string" in found.detail


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        (
            "for iter in range(3): pass\nprint(sum(x for x in [2, 3]), [i + x for i, x in enumerate([5, 6])])",
            "5 [5, 7]",
        ),
        ("import sys\nlist = len = float = isinstance = 7\nprint(sys.stdin.readlines(), round(2.5, 1))", "[] 2.5"),
        ("import sys\nlen = str = 7\nprint(len, sys.stdout.write('6'), file=None)\nsys.exit(0)", "67 1"),
    ],
)
def test_check_of_a_program_with_names_of_its_own_is_that_of_python(box, code, printed):
    """A program may use the names of built-in functions for its own values: what stands in for Python needs none."""
    assert ran(box, code, prints(printed)) == Ran(1.0, 1, 1, "ok")


def test_check_of_the_same_program_is_the_same(box):
    """What is drawn at random is the same each time, so that a share does not depend on luck; nobody waits for a sleep."""
    code = "import random, time\ntime.sleep(10**6)\nprint(random.random(), random.sample(range(10**9), 3))"
    found = {ran(box, f"{code}\nassert False, (random.random(), random.randrange(10**9))").detail for _ in range(5)}
    assert len(found) == 1


def test_check_gives_thousands_in_their_order(box):
    """500 programs of all kinds come back in the order in which they went in."""
    kinds = {
        "right": ("print({n} + int(input()))", PASSED),
        "wrong": ("print({n} - 1)", Ran(0.0, 0, 3, "ok")),
        "raises": ("[][{n}]", Ran(0.0, 0, 3, "failed", "test 1: IndexError: list index out of range (line 1)")),
        "syntax": ("{n} = 5", None),
        "lacks": ("import heapq; {n}", None),
    }
    names = [list(kinds)[n * n % 5] for n in range(500)]
    asked = [
        (
            block(kinds[name][0].format(n=n)).replace("\n\n", "\n"),
            json.dumps([{"input": f"{i}", "output": f"{n + i}"} for i in (5, 6, 7)]),
        )
        for n, name in enumerate(names)
    ]
    for name, found in zip(names, box.check(asked), strict=True):
        expected = {"syntax": (0.0, "failed"), "lacks": (None, "unsupported")}.get(name)
        assert found == kinds[name][1] or (found.share, found.status) == expected


# ---------------------------------------------------------------------------------------------------- what programs can do

TOO_LONG, TOO_LARGE = "more than 0.5 s of processor time", "MemoryError"
BOMBS = {  # and what is said of them, where it is the same on every machine
    "loop that catches": ("while True:\n    try:\n        while True: pass\n    except Exception: pass", TOO_LONG),
    "sum": ("sum(range(10**12))", TOO_LONG),
    "long operation": ("pow(7, 2**(10**6), 2**(10**6) + 1)", TOO_LONG),
    "text": ("'a' * 10**12", TOO_LARGE),
    "growing text": ("x = 'a'\nwhile True: x += x", TOO_LARGE),
    "list": ("x = []\nwhile True: x.append(x[:])", TOO_LARGE),
    "dict": ("d = {}\nn = 0\nwhile True:\n    d[n] = n\n    n += 1", ""),
    "numbers": ("x = 2**(10**8)\ny = x * (x - 1) * (x - 3)", TOO_LARGE),
    "padding": ("f'{1:>1000000000000}'", TOO_LARGE),
    "nested list": ("x = []\nwhile True: x = [x]", ""),
    "recursion": ("def f(): f()\nf()", "RecursionError"),
    "deep recursion": ("import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", ""),
    "recursion that catches": ("def f():\n    try: f()\n    except RecursionError: f()\nf()", TOO_LONG),
    "nested source": ("exec('(' * 10**6)", ""),
    "long source": ("exec('x=' * 10**6 + '1')", ""),
    "output": ("while True: print('a' * 1000)", "MemoryError: printed more than 65,544 characters"),
    "empty output": ("while True: print()", "MemoryError: printed more than 65,544 characters"),
    "one output": ("print('a' * 10**8)", TOO_LARGE),
    "output that catches": (
        "while True:\n    try: print('a' * 1000)\n    except BaseException: pass",
        "MemoryError: printed more than 65,544 characters",
    ),
    "errors": ("import sys\nwhile True: print('a' * 1000, file=sys.stderr)", TOO_LONG),
}


@pytest.mark.parametrize(("code", "detail"), BOMBS.values(), ids=BOMBS)
def test_program_that_takes_all_there_is_fails_and_costs_no_other(short, code, detail):
    """It passes nothing, and the programs before, beside and after it pass what they pass."""
    texts = [block(one) for one in ("print(2)", code, "print(2)", "print(2)")]
    first, bomb, *rest = short.check([(text, prints("2\n")) for text in texts])
    assert [first, *rest] == [Ran(1.0, 1, 1, "ok")] * 3
    assert not bomb.share and detail in bomb.detail
    assert bomb.status == "failed" or (bomb.status == "unsupported" and not detail)


def test_program_that_hangs_in_some_tests_passes_the_others(short):
    """The time of one test is not taken from another."""
    assert ran(short, "n = int(input())\nwhile n < 0: pass\nprint(2 * n)").passed == 2


REACHES = [
    "print(open({path!r}).read())",
    "from pathlib import Path\nprint(Path({path!r}).read_text())",
    "open({path!r}, 'w').write('x')",
    "open('made', 'w').write('x'); print('secret')",
    "import os\nprint(os.listdir({folder!r}))",
    "import os\nos.remove({path!r})",
    "import os\nprint(os.environ['SECRET'])",
    "import os\nprint(os.getenv('SECRET', ''))",
    "import os\nos.system('cat {path}')",
    "import os\nos.kill(os.getppid(), 9)",
    "import subprocess\nprint(subprocess.run(['cat', {path!r}], capture_output=True, text=True).stdout)",
    "import socket\nsocket.create_connection(('127.0.0.1', 1))",
    "import urllib.request\nurllib.request.urlopen('file://' + {path!r})",
    "import ctypes\nctypes.CDLL(None).puts(b'secret')",
    "print(__import__('os').popen('cat {path}').read())",
    "exec('import subprocess')\nprint(subprocess.getoutput('cat {path}'))",
    "print(eval(\"__import__('os').environ['SECRET']\"))",
    "print([c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen'])",
    "import sys\nprint(sys.modules['os'].environ['SECRET'])",
    "import sys\nsys.stdin = open({path!r})\nprint(input())",
    "print(globals()['__builtins__'].open({path!r}).read())",
    "import asyncio\nprint(asyncio.run(asyncio.create_subprocess_shell('cat {path}')))",
]


@pytest.mark.parametrize("code", REACHES)
def test_program_reaches_nothing_outside(box, code, tmp_path, monkeypatch):
    """No file is read, written or listed, no variable of the environment read, no process or connection made."""
    monkeypatch.setenv("SECRET", "secret")
    path = tmp_path / "file"
    path.write_text("secret")
    found = ran(box, code.format(path=str(path), folder=str(tmp_path)), prints("secret"))
    assert found.passed == 0 and found.status in ("failed", "unsupported")
    assert path.read_text() == "secret" and list(tmp_path.iterdir()) == [path]
    assert not Path("made").exists()


def test_programs_do_not_meet(short):
    """Nothing that a program leaves behind is there for the next test or the next program."""
    leaving = "try:\n    left\n    print('met')\nexcept NameError:\n    print('alone')\nleft = 1\nprint = len = None\nimport math\n"
    answer = json.dumps([{"input": "", "output": "alone"}] * 5)
    assert list(short.check([(block(leaving), answer)] * 20)) == [Ran(1.0, 5, 5, "ok")] * 20


def test_worker_may_open_and_start_nothing(box):
    """After its first program the kernel lets a worker open no file or connection and start no process."""
    with box._pool.checkout() as session:
        sandbox.confine(session.worker_pid, 60)
        limits = Path(f"/proc/{session.worker_pid}/limits").read_text().splitlines()
    zero = {line[:26].strip() for line in limits if line[26:].split()[:2] == ["0", "0"]}
    assert zero >= {"Max open files", "Max file size", "Max core file size", "Max processes"}
    assert ran(box, RIGHT) == PASSED


def state(process: int) -> str:
    """T for a process that is stopped, Z for one that has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


@pytest.fixture
def struck(monkeypatch):
    """`struck(number, n)`: the workers of the next n runs are sent a signal, which has come before they run."""
    confine, left = sandbox.confine, []

    def confine_and_strike(worker: int, seconds: float) -> None:
        confine(worker, seconds)
        if left:
            os.kill(worker, left.pop())
            while state(worker) not in "TZ":
                time.sleep(0.001)

    monkeypatch.setattr(sandbox, "confine", confine_and_strike)
    return lambda number, n: left.extend([number] * n)


def test_worker_killed_from_outside_costs_nothing(short, struck):
    """A program whose worker is killed is run again in another one."""
    struck(signal.SIGKILL, 1)
    assert ran(short, RIGHT) == PASSED


def test_worker_killed_twice_leaves_its_program_unscored(short, struck):
    """A program whose workers die is not at fault, and the next one passes."""
    struck(signal.SIGKILL, 2)
    assert ran(short, RIGHT) == Ran(None, 0, 3, "unsupported", "test 1: its worker died")
    assert ran(short, RIGHT) == PASSED


def test_worker_that_gets_no_processor_leaves_its_program_unscored(struck, monkeypatch):
    """Time by the wall is no fault of a program that has not computed."""
    with Sandbox(seconds=1, workers=1) as made:
        struck(signal.SIGSTOP, 1)
        with monkeypatch.context() as patch:
            patch.setattr(sandbox, "PATIENCE", 0.1)
            assert ran(made, RIGHT).detail == "test 1: it got too little processor time: the machine is busy"
        assert ran(made, RIGHT) == PASSED


# ---------------------------------------------------------------------------------------------------------------- the pool


def test_check_outside_the_context_is_refused():
    """Without an open sandbox there is no run, neither before nor half way."""
    made = Sandbox(workers=1)
    with pytest.raises(SandboxError, match="not open"):
        made.check([])
    with made:
        some = made.check([(block(RIGHT), DOUBLE)] * 100)
        assert next(some) == PASSED
    with pytest.raises(SandboxError, match="not open"):
        list(some)
    with made:
        assert ran(made, RIGHT) == PASSED


def test_sandbox_that_is_closed_does_not_wait_for_all_tests(monkeypatch):
    """A program with thousands of slow tests ends with the test that it is at."""
    monkeypatch.setattr(sandbox, "PATIENCE", 10_000)
    slow = json.dumps([{"input": str(n), "output": "2"} for n in range(100_000)])
    with Sandbox(seconds=0.1, workers=1) as made:
        some = made.check([(block("print(2)"), prints("2")), (block("while True: pass"), slow)])
        assert next(some).share == 1.0
    with pytest.raises(SandboxError, match="not open"):
        next(some)


def test_check_that_is_left_half_way_disturbs_no_other(box):
    """After a check is closed, and beside one that is not, another one has its own runs."""
    some, others = (box.check([(block(f"print({n} * int(input()))"), DOUBLE) for n in range(200)]) for _ in range(2))
    shares = [next(some).share for _ in range(3)]
    assert shares == [0.0, 0.0, 1.0]
    some.close()
    assert [one.share for one in others] == [0.0, 0.0, 1.0] + [0.0] * 197
    assert list(box.check([])) == []


def test_check_with_an_answer_that_is_no_tests_stops_at_once(box):
    """A problem without tests is found before anything is run, and before the first run is asked for."""
    with pytest.raises(ValueError, match=r"^tests: `18` is no list"):
        box.check([(block(RIGHT), DOUBLE), (block(RIGHT), "18")])


@pytest.mark.parametrize(
    "options", [{"workers": 0}, {"seconds": 0}, {"seconds": math.nan}, {"seconds": 10**6}, {"megabytes": 1}, {"megabytes": math.inf}]
)  # fmt: skip
def test_sandbox_without_workers_time_or_memory_is_refused(options):
    """No workers, no time and no limit are mistakes."""
    with pytest.raises(SandboxError, match="expected at least one"):
        Sandbox(**options)


def test_canaries_have_every_status_but_one():
    """The known answers have programs that pass, fail and cannot be run, in both forms of tests."""
    assert {status for _, _, status, _ in CANARIES} == {"ok", "failed", "unsupported"}
    assert {share for _, _, _, share in CANARIES} == {None, 0.0, 0.5, 1.0}


@pytest.mark.parametrize("place", [0, 3, 6])
def test_canary_that_fails_stops_the_sandbox(monkeypatch, place):
    """A machine on which a known answer is not found gets no sandbox, and nothing goes on running."""
    code, answer, status, share = CANARIES[place]
    monkeypatch.setattr(
        sandbox, "CANARIES", (*CANARIES[:place], (code, answer, "no-code", 0.0), *CANARIES[place + 1 :])
    )
    made = Sandbox(workers=1)
    with pytest.raises(
        SandboxError, match=rf"is found {status} with the share {share} .*expected no-code with 0.0. Install"
    ):
        made.__enter__()
    with pytest.raises(SandboxError, match="not open"):
        made.check([])


def test_sandbox_whose_interpreter_is_missing_says_so(monkeypatch, tmp_path):
    """Without the interpreter's program the message names what to install."""
    monkeypatch.setenv("MONTY_BIN", str(tmp_path / "monty"))
    with (
        pytest.raises(SandboxError, match=r"does not start .* Install pydantic-monty, .* as envs/cpu.txt has them"),
        Sandbox(),
    ):
        pass


def test_sandbox_is_imported_without_the_interpreter():
    """A job that runs no program does not load it."""
    code = "import sys, proofmill.sandbox.sandbox; print('pydantic_monty' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


ORPHANS = r"""
import os
from proofmill.sandbox import sandbox
confine, told = sandbox.confine, []
def confine_and_tell(worker, seconds):
    confine(worker, seconds)
    if told:
        os.write(1, b"%d\n" % worker)  # at once: two threads tell
sandbox.confine, sandbox.PATIENCE = confine_and_tell, 10_000
with sandbox.Sandbox(seconds=0.1, workers=2) as made:
    told.append(True)
    list(made.check([("```python\nwhile True: pass\n```", '[{"input": "", "output": ""}]')] * 50))
"""


def test_workers_of_a_killed_parent_end_though_they_are_busy():
    """No worker outlives for long a parent that is killed outright."""
    with subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True) as parent:
        processes = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
    for _ in range(600):
        if all(state(process) == "Z" for process in processes):
            return
        time.sleep(0.1)
    pytest.fail("a worker still runs")


# ---------------------------------------------------------------------------------------------------------- real programs


@pytest.fixture(scope="module")
def records(data) -> list[tuple[str, str, str]]:
    return real_programs(data)


def test_real_programs_have_their_outputs_or_no_share(records, box):
    """No output of a real program is called wrong, and at least 95 of 100 are reproduced."""
    found = list(box.check([(block("\n" + code), calls((f"f({given})", output))) for code, given, output in records]))
    wrong = [row for row, one in zip(records, found, strict=True) if one.share == 0.0]
    assert [output for _, _, output in wrong if not output.startswith("dict(")] == []  # which no repr writes
    assert sum(one.share == 1.0 for one in found) >= 0.95 * len(records)


def test_real_programs_with_outputs_of_others_pass_nothing(records, box):
    """With another program's output a program has no share above 0, and at least 95 of 100 have one."""
    asked = [(row, other) for row, (_, _, other) in zip(records, [*records[7:], *records[:7]], strict=True)]
    asked = [(row, other) for row, other in asked if not same_value(row[2], other) and "dict(" not in row[2] + other]
    found = list(box.check([(block("\n" + code), calls((f"f({given})", other))) for (code, given, _), other in asked]))
    assert {one.share for one in found} == {0.0, None}
    assert sum(one.share == 0.0 for one in found) >= 0.95 * len(asked)


def test_steps_of_gsm8k_are_computed_as_they_are_written(data, box):
    """A program made of the steps of a solution prints their results."""
    asked = []
    for line in (data / "gsm8k/test_first660.jsonl").open(encoding="utf-8"):
        steps = re.findall(r"<<([\d.+*/()-]+)=(-?\d+)>>", json.loads(line)["answer"])
        code = "\n".join(f"x{n} = {step}\nprint(round(x{n}))" for n, (step, _) in enumerate(steps))
        asked.append((block("\n" + code), prints("".join(f"{result}\n" for _, result in steps))))
    found = list(box.check(asked))
    assert sum(one.share == 1.0 for one in found) >= 0.97 * len(asked)
    assert {one.status for one in found} <= {"ok", "failed"}

"""Programs against tests: the share passed, and what no program can do."""

import json
import math
import re

import pytest

from boxed import DOUBLE, PASSED, RIGHT, block, calls, prints, ran, real_programs
from proofmill.sandbox import sandbox
from proofmill.sandbox.cases import same_value
from proofmill.sandbox.sandbox import CANARIES, Ran, Sandbox
from proofmill.schema.errors import SandboxError


@pytest.fixture(scope="module")
def box():
    """Yield a sandbox for tests that do not damage it; its time limit is long because the machine may be busy."""
    with Sandbox(seconds=60, workers=2) as made:
        yield made


@pytest.fixture(scope="module")
def short():
    """Yield a sandbox with little time and memory, for programs that exhaust them."""
    with Sandbox(seconds=0.5, megabytes=64, workers=2) as made:
        yield made


# ------------------------------------------------------------------------------------------------------------ shares


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
        ("print(2 * int(input())", 0.0, "failed", "test 1: SyntaxError: '(' was never closed (<program>, line 1)"),
        (
            "print(2 * int(input()))\nreturn 5",
            0.0,
            "failed",
            "test 1: SyntaxError: 'return' outside function (<program>, line 2)",
        ),
        ("print 2 * int(input())", 0.0, "failed", None),
        ("\0", 0.0, "failed", None),
        ("-" * 30_000 + "1", 0.0, "failed", None),
        ("x = int(input())\nif x > 0:\n\tprint(x)\n        print(x)", 0.0, "failed", None),
        ("print('\ud800')", 0.0, "failed", None),
    ],
)
def test_check_of_a_program_gives_the_share_of_tests_that_it_passes(box, code, share, status, detail):
    """Tests that raise are not passed and the others count; a program that does not compile passes none."""
    result = next(box.check([(f"```python\n{code}\n```", DOUBLE)]))
    assert (result.share, result.status, result.of) == (share, status, 3)
    assert result.passed == round(share * 3)
    assert detail in (None, result.detail)


def test_check_of_a_text_without_a_program_passes_nothing(box):
    """A text without a block of Python has the share 0."""
    assert list(box.check([("It is 6.", DOUBLE)])) == [Ran(0.0, 0, 3, "no-code", "no closed block of Python")]


def test_check_of_calls_compares_values(box):
    """Each call is evaluated in a new run of the program, whose output is ignored."""
    code = "print('hello')\nseen = []\ndef f(x):\n    seen.append(x)\n    return {len(seen): x}"
    assert ran(box, code, calls(("f('a')", "{1: 'a'}"), ("f(f(2))", "{2: {1: 2}}"), ("f(3)", "{ 1:3 }"))) == Ran(
        1.0, 3, 3, "ok"
    )
    assert ran(box, code, calls(("f(1)", "{1: 2}"), ("g(1)", "1"), ("f(0)", "{1: 0}"))) == Ran(
        1 / 3, 1, 3, "failed", "test 2: NameError: name 'g' is not defined"
    )


def test_check_of_a_call_with_an_endless_value_is_wrong(box):
    """A value far longer than the expected one is refused in the jail; one of the expected length is not."""
    assert ran(box, "def f(x): return [x] * 10**6", calls(("f(1)", "[1]"))).detail.startswith("test 1: refused: ")
    assert ran(box, "def f(x): return [x] * 10**4", calls(("f(1)", repr([1] * 10**4)))) == Ran(1.0, 1, 1, "ok")


OWN_REPR = {  # redefinitions of `repr`
    "list": "def repr(x): return [x]",
    "none": "def repr(x): return None",
    "number": "def repr(x): return 5",
    "expected answer": "def repr(x): return '3'",
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
    """A redefined `repr` changes no result, neither of a correct nor of a wrong program."""
    tests = calls(("f(1, 2)", "3"), ("f(1, 2) == 3", "True"))
    right, wrong = (f"{own}\n\ndef f(a, b): return a {sign} b" for sign in "+*")
    results = list(box.check([(f"```python\n{code}\n```", tests) for code in (right, wrong)]))
    assert results == [Ran(1.0, 2, 2, "ok"), Ran(0.0, 0, 2, "ok")]


@pytest.mark.parametrize("say", ["'3'", "[x]", "None", "5", "b'3'", "A"])
def test_check_of_a_call_whose_value_is_an_object_is_failed(box, say):
    """The text that an object gives itself is not its value; only plain data have one."""
    code = f"class A:\n    def __repr__(self):\n        return {say}\nx = 3\ndef f(a, b): return A()"
    result = ran(box, code, calls(("f(1, 2)", "3")))
    assert (result.share, result.detail) == (0.0, "test 1: refused: a value of the type A, which is no plain data")


ALL_EQUAL = """
class All(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __sub__(self, other): return self
    def __abs__(self): return self
    def __contains__(self, other): return True
    def __bool__(self): return True
    def __hash__(self): return 3
def f(a, b): return {value}
"""


@pytest.mark.parametrize("value", ["All(7)", "[All(7)]", "type('B', (), dict(vars(All)))()"])
@pytest.mark.parametrize(
    "truth", ["f(1, 2) == 3", "3 == f(1, 2)", "not f(1, 2) != 3", "abs(f(1, 2) - 3) < 1e-6", "f(1, 2) in (3, [3])", "(f(1, 2) == 3) is True"]
)  # fmt: skip
def test_check_of_a_condition_is_not_decided_by_the_program(box, value, truth):
    """An object that equals everything passes no test, however the test compares it."""
    tests = calls((truth, "True"))
    assert ran(box, ALL_EQUAL.replace("{value}", value), tests).passed == 0
    assert ran(box, "def f(a, b): return a + b", tests) == Ran(1.0, 1, 1, "ok")


def test_check_of_truths_about_objects_of_the_program_asks_the_program(box):
    """If both sides are objects of the program's own classes, its own `==` decides, as no other can."""
    code = "class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return self.x == other.x"
    tests = calls(("P(1) == P(1)", "True"), ("P(1) == P(2)", "False"), ("P(1).x == 1", "True"), ("[P(4)][0].x", "4"))
    assert ran(box, code, tests) == Ran(1.0, 4, 4, "ok")


def test_check_of_the_same_program_is_the_same(box):
    """Random numbers are the same in all runs, and sleeping takes no time."""
    code = "import random, time\ntime.sleep(10**6)\nprint(random.random(), random.sample(range(10**9), 3))"
    details = {ran(box, f"{code}\nassert False, (random.random(), random.randrange(10**9))").detail for _ in range(5)}
    assert len(details) == 1


def test_check_gives_thousands_in_their_order(box):
    """The results of 500 programs of all kinds keep their order."""
    kinds = {
        "right": ("print({n} + int(input()))", PASSED),
        "wrong": ("print({n} - 1)", Ran(0.0, 0, 3, "ok")),
        "raises": ("[][{n}]", Ran(0.0, 0, 3, "failed", "test 1: IndexError: list index out of range (line 1)")),
        "syntax": ("{n} = 5", None),
    }
    names = [list(kinds)[n * n % 4] for n in range(500)]
    pairs = [
        (
            block(kinds[name][0].format(n=n)).replace("\n\n", "\n"),
            json.dumps([{"input": f"{i}", "output": f"{n + i}"} for i in (5, 6, 7)]),
        )
        for n, name in enumerate(names)
    ]
    for name, result in zip(names, box.check(pairs), strict=True):
        expected = {"syntax": (0.0, "failed")}.get(name)
        assert result == kinds[name][1] or (result.share, result.status) == expected


# ---------------------------------------------------------------------------------------------------- what programs can do


def test_program_that_takes_all_there_is_costs_no_other(short):
    """It passes nothing, and the programs around it pass as usual."""
    bombs = [
        "while True: pass",
        "x = [0]\nwhile True: x += x",
        "while True: print('a' * 1000)",
        "import os; os._exit(0)",
    ]
    texts = [block(code) for bomb in bombs for code in ("print(2)", bomb, "print(2)")]
    results = list(short.check([(text, prints("2\n")) for text in texts]))
    assert [one.share for one in results] == [1.0, 0.0, 1.0] * len(bombs)
    assert [one.detail.split(":")[1].strip() for one in results[1::3]] == [
        "timeout",
        "MemoryError (line 2)",
        "output",
        "crashed",
    ]


def test_program_that_hangs_in_some_tests_passes_the_others(short):
    """The time of one test is not taken from another."""
    assert ran(short, "n = int(input())\nwhile n < 0: pass\nprint(2 * n)").passed == 2


def test_programs_do_not_affect_later_ones(short):
    """The next test and the next program see nothing that a program leaves behind."""
    leaving = "try:\n    left\n    print('met')\nexcept NameError:\n    print('alone')\nleft = 1\nprint = len = None\nimport math\n"
    answer = json.dumps([{"input": "", "output": "alone"}] * 5)
    assert list(short.check([(block(leaving), answer)] * 20)) == [Ran(1.0, 5, 5, "ok")] * 20


# ---------------------------------------------------------------------------------------------------------------- the pool


def test_check_outside_the_context_is_refused():
    """Programs run only while the sandbox is open; a check stops when it is closed."""
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


def test_sandbox_that_is_closed_does_not_wait_for_all_tests():
    """Closing ends a program with thousands of slow tests."""
    slow = json.dumps([{"input": str(n), "output": "2"} for n in range(100_000)])
    with Sandbox(seconds=60, workers=1) as made:
        some = made.check([(block("print(2)"), prints("2")), (block("while True: pass"), slow)])
        assert next(some).share == 1.0
    with pytest.raises(SandboxError, match="not open"):
        next(some)


def test_unfinished_check_does_not_affect_others(box):
    """A check has its own runs, after a check that was closed early and during one that is open."""
    some, others = (box.check([(block(f"print({n} * int(input()))"), DOUBLE) for n in range(200)]) for _ in range(2))
    shares = [next(some).share for _ in range(3)]
    assert shares == [0.0, 0.0, 1.0]
    some.close()
    assert [one.share for one in others] == [0.0, 0.0, 1.0] + [0.0] * 197
    assert list(box.check([])) == []


def test_check_with_an_answer_that_is_no_tests_stops_at_once(box):
    """A problem without tests raises before any program runs."""
    with pytest.raises(ValueError, match=r"^tests: `18` is not a list"):
        box.check([(block(RIGHT), DOUBLE), (block(RIGHT), "18")])


@pytest.mark.parametrize(
    "options", [{"workers": 0}, {"seconds": 0}, {"seconds": math.nan}, {"seconds": 10**6}, {"megabytes": 1}, {"megabytes": math.inf}]
)  # fmt: skip
def test_sandbox_without_workers_time_or_memory_is_refused(options):
    """Limits out of range raise SandboxError."""
    with pytest.raises(SandboxError, match="expected at least 1"):
        Sandbox(**options)


@pytest.mark.parametrize("place", [0, 3])
def test_canary_that_fails_stops_the_sandbox(monkeypatch, place):
    """The sandbox does not open if a known program gets another result, and no process is left running."""
    code, answer, status, share = CANARIES[place]
    wrong = (code, answer, "no-code", 0.0)
    monkeypatch.setattr(sandbox, "CANARIES", (*CANARIES[:place], wrong, *CANARIES[place + 1 :]))
    made = Sandbox(workers=1)
    with pytest.raises(SandboxError, match=rf"gets {status} with the share {share} .*expected no-code with 0.0. Fix"):
        made.__enter__()
    with pytest.raises(SandboxError, match="not open"):
        made.check([])


# ---------------------------------------------------------------------------------------------------------- real programs


@pytest.fixture(scope="module")
def records(data) -> list[tuple[str, str, str]]:
    return real_programs(data)


def test_real_programs_with_outputs_of_others_pass_nothing(records, box):
    """A program does not pass with the output of another."""
    pairs = [(row, other) for row, (_, _, other) in zip(records, [*records[7:], *records[:7]], strict=True)]
    pairs = [(row, other) for row, other in pairs if not same_value(row[2], other) and "Ellipsis" not in row[2] + other]
    results = list(
        box.check([(block("\n" + code), calls((f"f({given})", other))) for (code, given, _), other in pairs])
    )
    assert {one.share for one in results} == {0.0}


@pytest.mark.long
def test_steps_of_gsm8k_are_computed_as_they_are_written(data, box):
    """A program of the steps of a solution prints their recorded results."""
    pairs = []
    for line in (data / "gsm8k/test_first660.jsonl").open(encoding="utf-8"):
        steps = re.findall(r"<<([\d.+*/()-]+)=(-?\d+)>>", json.loads(line)["answer"])
        code = "\n".join(f"x{n} = {step}\nprint(round(x{n}))" for n, (step, _) in enumerate(steps))
        pairs.append((block("\n" + code), prints("".join(f"{result}\n" for _, result in steps))))
    results = list(box.check(pairs))
    assert sum(one.share == 1.0 for one in results) >= 0.97 * len(pairs)

"""Programs against tests: which share passes, and what no program can do."""

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
    """A sandbox for all tests that leave it as it was; a program may take long, since the machine may be busy."""
    with Sandbox(seconds=60, workers=2) as made:
        yield made


@pytest.fixture(scope="module")
def short():
    """A sandbox with little time and memory, for programs that would take all there is."""
    with Sandbox(seconds=0.5, megabytes=64, workers=2) as made:
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
    """Tests that raise are not passed and the others count; what Python does not compile passes none."""
    found = next(box.check([(f"```python\n{code}\n```", DOUBLE)]))
    assert (found.share, found.status, found.of) == (share, status, 3)
    assert found.passed == round(share * 3)
    assert detail in (None, found.detail)


def test_check_of_a_text_without_a_program_passes_nothing(box):
    """No block of Python is a share of 0, for nothing was written that could be run."""
    assert list(box.check([("It is 6.", DOUBLE)])) == [Ran(0.0, 0, 3, "no-code", "no closed block of Python")]


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
    """A value far longer than the right one is refused where it was made; one as long as the right one is not."""
    assert ran(box, "def f(x): return [x] * 10**6", calls(("f(1)", "[1]"))).detail.startswith("test 1: refused: ")
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


@pytest.mark.parametrize("say", ["'3'", "[x]", "None", "5", "b'3'", "A"])
def test_check_of_a_call_whose_value_is_an_object_is_failed(box, say):
    """What an object says of itself is not its value: only plain data have one."""
    code = f"class A:\n    def __repr__(self):\n        return {say}\nx = 3\ndef f(a, b): return A()"
    found = ran(box, code, calls(("f(1, 2)", "3")))
    assert (found.share, found.detail) == (0.0, "test 1: refused: a value of the type A, which is no plain data")


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
def test_check_of_a_truth_is_not_the_program_to_say(box, value, truth):
    """An object that equals everything passes no test, however the test asks for its equality."""
    tests = calls((truth, "True"))
    assert ran(box, ALL_EQUAL.replace("{value}", value), tests).passed == 0
    assert ran(box, "def f(a, b): return a + b", tests) == Ran(1.0, 1, 1, "ok")


def test_check_of_truths_about_objects_of_the_program_asks_the_program(box):
    """Where both sides are objects of the program's own, it says itself what is equal; nobody else could."""
    code = "class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return self.x == other.x"
    tests = calls(("P(1) == P(1)", "True"), ("P(1) == P(2)", "False"), ("P(1).x == 1", "True"), ("[P(4)][0].x", "4"))
    assert ran(box, code, tests) == Ran(1.0, 4, 4, "ok")


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
    }
    names = [list(kinds)[n * n % 4] for n in range(500)]
    asked = [
        (
            block(kinds[name][0].format(n=n)).replace("\n\n", "\n"),
            json.dumps([{"input": f"{i}", "output": f"{n + i}"} for i in (5, 6, 7)]),
        )
        for n, name in enumerate(names)
    ]
    for name, found in zip(names, box.check(asked), strict=True):
        expected = {"syntax": (0.0, "failed")}.get(name)
        assert found == kinds[name][1] or (found.share, found.status) == expected


# ---------------------------------------------------------------------------------------------------- what programs can do


def test_program_that_takes_all_there_is_costs_no_other(short):
    """It passes nothing, and the programs before, beside and after it pass what they pass."""
    bombs = [
        "while True: pass",
        "x = [0]\nwhile True: x += x",
        "while True: print('a' * 1000)",
        "import os; os._exit(0)",
    ]
    texts = [block(code) for bomb in bombs for code in ("print(2)", bomb, "print(2)")]
    found = list(short.check([(text, prints("2\n")) for text in texts]))
    assert [one.share for one in found] == [1.0, 0.0, 1.0] * len(bombs)
    assert [one.detail.split(":")[1].strip() for one in found[1::3]] == [
        "timeout",
        "MemoryError (line 2)",
        "output",
        "crashed",
    ]


def test_program_that_hangs_in_some_tests_passes_the_others(short):
    """The time of one test is not taken from another."""
    assert ran(short, "n = int(input())\nwhile n < 0: pass\nprint(2 * n)").passed == 2


def test_programs_do_not_meet(short):
    """Nothing that a program leaves behind is there for the next test or the next program."""
    leaving = "try:\n    left\n    print('met')\nexcept NameError:\n    print('alone')\nleft = 1\nprint = len = None\nimport math\n"
    answer = json.dumps([{"input": "", "output": "alone"}] * 5)
    assert list(short.check([(block(leaving), answer)] * 20)) == [Ran(1.0, 5, 5, "ok")] * 20


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


def test_sandbox_that_is_closed_does_not_wait_for_all_tests():
    """Closing ends a program with thousands of slow tests."""
    slow = json.dumps([{"input": str(n), "output": "2"} for n in range(100_000)])
    with Sandbox(seconds=60, workers=1) as made:
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


@pytest.mark.parametrize("place", [0, 3])
def test_canary_that_fails_stops_the_sandbox(monkeypatch, place):
    """A machine on which a known answer is not found gets no sandbox, and nothing goes on running."""
    code, answer, status, share = CANARIES[place]
    wrong = (code, answer, "no-code", 0.0)
    monkeypatch.setattr(sandbox, "CANARIES", (*CANARIES[:place], wrong, *CANARIES[place + 1 :]))
    made = Sandbox(workers=1)
    with pytest.raises(
        SandboxError, match=rf"found {status} with the share {share} .*expected no-code with 0.0. Check"
    ):
        made.__enter__()
    with pytest.raises(SandboxError, match="not open"):
        made.check([])


# ---------------------------------------------------------------------------------------------------------- real programs


@pytest.fixture(scope="module")
def records(data) -> list[tuple[str, str, str]]:
    return real_programs(data)


def test_real_programs_with_outputs_of_others_pass_nothing(records, box):
    """With another program's output a program passes nothing."""
    asked = [(row, other) for row, (_, _, other) in zip(records, [*records[7:], *records[:7]], strict=True)]
    asked = [(row, other) for row, other in asked if not same_value(row[2], other) and "Ellipsis" not in row[2] + other]
    found = list(box.check([(block("\n" + code), calls((f"f({given})", other))) for (code, given, _), other in asked]))
    assert {one.share for one in found} == {0.0}


def test_steps_of_gsm8k_are_computed_as_they_are_written(data, box):
    """A program made of the steps of a solution prints their results."""
    asked = []
    for line in (data / "gsm8k/test_first660.jsonl").open(encoding="utf-8"):
        steps = re.findall(r"<<([\d.+*/()-]+)=(-?\d+)>>", json.loads(line)["answer"])
        code = "\n".join(f"x{n} = {step}\nprint(round(x{n}))" for n, (step, _) in enumerate(steps))
        asked.append((block("\n" + code), prints("".join(f"{result}\n" for _, result in steps))))
    found = list(box.check(asked))
    assert sum(one.share == 1.0 for one in found) >= 0.97 * len(asked)

"""Checks: asserts about a function, which the tested program cannot reach."""

import pytest

from boxed import block
from proofmill.sandbox.asserts import Checks, SandboxCheck
from proofmill.sandbox.executor import Executor

REFERENCE = "def mean(numbers):\n    return sum(numbers) / len(numbers)"
ASSERTS = "def check(candidate):\n    assert candidate([1, 3]) == 2\n    assert abs(candidate([1, 1, 2]) - 4 / 3) < 1e-6\n\ncheck(mean)"
MEAN = SandboxCheck(ASSERTS, "mean", "", REFERENCE)


@pytest.fixture(scope="module")
def checks():
    """Yield checks with one executor; its time limit is long because the machine may be busy."""
    with Executor(seconds=20, workers=2) as executor:
        yield Checks(executor)


def passed(checks, code, check=MEAN):
    (checked,) = checks.check([(block(code), check)])
    return checked.passed


@pytest.mark.parametrize(
    "code",
    [
        REFERENCE,
        "import statistics\nmean = statistics.fmean",
        "class Mean:\n    def __call__(self, a):\n        return sum(a) / len(a)\nmean = Mean()",
        "print('hello')\ndef mean(numbers, *, of=None):\n    return sum(numbers) * (1 / len(numbers))",
        "def mean(a):\n    n, total = len(a), 0\n    while a:\n        total += a.pop()\n    return total / n",
    ],
)
def test_program_that_holds_the_asserts_passes(checks, code):
    """Only the values count, not imports, output or the type of the function."""
    assert passed(checks, code) is True


@pytest.mark.parametrize(
    "code",
    [
        "def mean(numbers):\n    return 2",
        "def mean(numbers):\n    pass",
        "def other(numbers):\n    return sum(numbers) / len(numbers)",
        "def mean(numbers):\n    return sum(numbers) / len(numbers",
        "def mean(numbers):\n    return mean(numbers)",
        "import sys\nsys.exit(0)",
        "raise SystemExit",
        "def mean(numbers):\n    raise SystemExit(0)",
        "class Anything(float):\n    def __eq__(self, other): return True\n    def __sub__(self, other): return 0\ndef mean(a): return Anything()",
        "class Anything:\n    def __eq__(self, other): return True\n    def __sub__(self, other): return self\n    __rsub__ = __sub__\n"
        "    def __abs__(self): return self\n    def __lt__(self, other): return True\ndef mean(a): return Anything()",
        "import builtins\nbuiltins.abs = lambda x: 0\ndef mean(a): return 2",
        "def check(candidate): pass\ndef mean(a): return 0",
        "import sys\ndef mean(a):\n    sys.modules['__main__'].__dict__['check'] = print\n    return 0",
        "import os\ndef mean(a):\n    os._exit(0)",
        "def repr(x): return '[2.0, 1.3333333333333333]'\ndef mean(a): return 0",
        "def mean(a):\n    yield 2",
    ],
)
def test_program_that_does_not_hold_them_gets_nothing(checks, code):
    """Wrong functions and functions that attack the check fail, because values are checked in another process."""
    assert passed(checks, code) is False


def test_text_without_a_program_gets_nothing(checks):
    """A text without a closed block does not pass, and is not a program."""
    (checked,) = checks.check([("I cannot.", MEAN)])
    assert (checked.passed, checked.is_program) == (False, False)


def test_results_of_many_programs_keep_their_order(checks):
    """Checks and programs may repeat and mix."""
    double = SandboxCheck(
        "assert twice(2) == 4\nassert twice('a') == 'aa'", "twice", "", "def twice(x):\n    return x + x"
    )
    right, wrong = block("def twice(x): return x * 2"), block("def twice(x): return 4")
    pairs = [(right, double), (block(REFERENCE), MEAN), (wrong, double), (right, MEAN), ("", double), (right, double)]
    assert [checked.passed for checked in checks.check(pairs)] == [True, True, False, False, False, True]


@pytest.mark.parametrize(
    "check",
    [
        SandboxCheck("import random\nfor _ in range(9):\n    n = random.random()\n    assert half(n) == n / 2", "half", "", "def half(n):\n    return n / 2"),
        SandboxCheck("assert fib(9) == 34", "fib", "", "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)"),
        SandboxCheck("assert area(2) > 12", "area", "import math\nTWO = 2", "def area(r):\n    return math.pi * r**TWO"),
        SandboxCheck("a = [3, 1]\nassert order(a, reverse=True) == [3, 1]\nassert order(set([2, 1])) == [1, 2]", "order", "", "def order(a, reverse=False):\n    return sorted(a, reverse=reverse)"),
        SandboxCheck(
            "import numpy as np\ninputs = [[[0.1, 0.2]], [[3.0]]]\nfor given, expected in zip(inputs, [0.3, 3.0]):\n"
            "    assert np.allclose(total(*given), expected, rtol=1e-7, atol=1e-6)",
            "total", "from typing import List", "def total(a: List[float]):\n    return sum(a)",
        ),
    ],
)  # fmt: skip
def test_check_that_its_reference_passes_is_sound(checks, check):
    """Random inputs, recursion, a setup, keywords, sets, and floats compared by numpy are supported."""
    assert passed(checks, check.reference, check) is True
    assert passed(checks, f"def {check.function}(*arguments, **named):\n    return None", check) is False


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            {"reference": "def mean(a):\n    return 0"},
            "the check does not run with its own reference: raised: AssertionError",
        ),
        ({"reference": "def mean(a):\n    return object()"}, "the check does not run with its own reference"),
        ({"check": "pass"}, "`mean` is never called"),
        (
            {"check": "mean(object())", "reference": "def mean(a):\n    return 0"},
            "`mean` is called with a value of the type object",
        ),
        (
            {"check": "for _ in range(2): mean([1])", "reference": "def mean(a):\n    return iter(a)"},
            "own reference does not pass it",
        ),
    ],
)
def test_check_that_its_reference_does_not_pass_decides_nothing(checks, change, fault):
    """The results of other programs are unknown, and the detail gives the reason."""
    check = SandboxCheck(**{**vars(MEAN), **change})
    (checked,) = checks.check([(block(REFERENCE), check)])
    assert checked.passed is None and fault in checked.detail


CONTAINERS = """
from collections import Counter, OrderedDict, deque
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
"""


@pytest.mark.parametrize(
    ("check", "reference", "wrong"),
    [
        ("assert f(deque([3, 1])) == deque([1, 3])", "def f(a):\n    a.rotate()\n    return a", "def f(a):\n    return a"),
        ("assert f(Counter('aab')) == [('a', 2)]", "def f(a):\n    return a.most_common(1)", "def f(a):\n    return a.most_common(2)"),
        ("assert f('ab') == OrderedDict([('a', 1), ('b', 1)])", "def f(a):\n    return OrderedDict(Counter(a))", "def f(a):\n    return OrderedDict(reversed(Counter(a).items()))"),
        ("assert f(Fraction(1, 3)) == Fraction(2, 3)", "def f(a):\n    return 2 * a", "def f(a):\n    return 2 / 3"),
        ("assert f(Decimal('0.1')) == Decimal('0.3')", "def f(a):\n    return 3 * a", "def f(a):\n    return 3 * float(a)"),
        ("assert (f(date(2024, 2, 28)) - date(2024, 3, 1)) == timedelta(0)", "def f(a):\n    return a + timedelta(2)", "def f(a):\n    return a + timedelta(1)"),
        ("import numpy as np\nassert f(np.array([[1, 2]])).shape == (2, 1)", "def f(a):\n    return a.T", "def f(a):\n    return a"),
        ("assert f(range(5)).stop == 4", "def f(a):\n    return a[:-1]", "def f(a):\n    return range(3)"),
        ("a = [2, 1]\nf(a)\nassert f(a) == [3]\nassert a == [2, 1]", "def f(a):\n    return [sum(a)]", "def f(a):\n    a.append(0)\n    return [sum(a), 0]"),
    ],
)  # fmt: skip
def test_check_passes_and_receives_values_of_the_standard_library(checks, check, reference, wrong):
    """Arguments and results keep their class, so that methods work on both sides."""
    both = SandboxCheck(check, "f", CONTAINERS, reference)
    assert (passed(checks, reference, both), passed(checks, wrong, both)) == (True, False)


def test_program_that_changes_its_arguments_changes_no_other_call(checks):
    """Each call has arguments of its own, as they were when the reference was called."""
    check = SandboxCheck(
        "a = [3, 1]\nassert f(a) == 3\na.append(9)\nassert f(a) == 9", "f", "", "def f(a):\n    return max(a)"
    )
    assert passed(checks, "def f(a):\n    a.sort()\n    return a.pop()", check) is True
    assert passed(checks, "def f(a):\n    return a.pop(0)", check) is False


@pytest.mark.parametrize(
    "code",
    [
        "from dataclasses import make_dataclass\nA = make_dataclass('Total', ['numbers'])\ndef Total(numbers): return A(numbers)",
        "from dataclasses import make_dataclass\nA = make_dataclass('Total', ['numbers'])\ndef Total(numbers): return [A(numbers)][0]",
        "import enum\nclass Expected(enum.Enum): TOTAL = 1\ndef Total(numbers): return Expected.TOTAL",
        "from dataclasses import make_dataclass\nA = make_dataclass('Exception', ['args'])\ndef Total(numbers): return A(numbers)",
        "import os\nfor n in range(3, 33):\n    try: os.write(n, b'v[Total(numbers=[1, 2])]')\n    except OSError: pass\nos._exit(0)",
        "import os\nfor n in range(3, 33):\n    try: os.write(n, b'v[Expected.TOTAL]')\n    except OSError: pass\nos._exit(0)",
        "import os\nfor n in range(3, 33):\n    try: os.write(n, b'v[_check_reference([1, 2])]')\n    except OSError: pass\nos._exit(0)",
    ],
)
def test_value_that_names_a_function_of_the_check_is_refused(checks, code):
    """A value that would call the reference where it is compared earns nothing."""
    reference = "class Expected:\n    TOTAL = 3\ndef Total(numbers):\n    return sum(numbers)"
    check = SandboxCheck("assert Total([1, 2]) == Expected.TOTAL", "Total", "", reference)
    assert passed(checks, reference, check) is True
    assert passed(checks, code, check) is False

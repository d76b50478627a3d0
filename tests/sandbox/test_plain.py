"""Tame programs: which programs are tame, and that tame programs can share a process."""

import pytest

from attacks import BOMBS, FORGERIES, REACHES
from proofmill.sandbox.executor import Execution, Executor
from proofmill.sandbox.plain import is_tame


@pytest.mark.parametrize(
    "program",
    [
        "def f(a): return sorted(set(a))",
        "import re\ndef f(a): return re.sub('a', 'b', a)",
        "from collections import Counter\ndef f(a): return Counter(a).most_common(2)",
        "def f(a):\n    try: return 1 / a\n    except ZeroDivisionError as e: return str(e)",
        "def f(a):\n    for x in a: yield x",
        "import heapq, functools\n@functools.lru_cache(None)\ndef f(a): return heapq.nsmallest(a, [2, 1])",
        "def f(a):\n    del a[0]\n    return f'{a!r:>{9}}'",
    ],
)
def test_programs_of_listed_constructs_are_tame(program):
    """Functions, generators, exception handlers and the listed modules are allowed."""
    assert is_tame(program, "f(1)")


@pytest.mark.parametrize(
    "program",
    [
        "import math\nmath.pi = 3",
        "import math\nfor math.pi in [3]: pass",
        "import math\n[math.pi, x] = 1, 2",
        "import math\ndel math.pi",
        "import math\nmath.pi += 1",
        "from math import *",
        "from . import math",
        "import collections.abc",
        "import os",
        "import random",
        "import operator",
        "from string import Formatter",
        "from functools import update_wrapper",
        "'{0.__class__}'.format(1)",
        "'{0.__class__}'.format_map({})",
        "f = ''.format",
        "(1).__class__",
        "().__class__.__base__",
        "def f(x): return x.gi_frame",
        "def f(x): return x.__globals__",
        "def f(x): return x.f_back",
        "try: pass\nexcept Exception as e: e.__traceback__",
        "try: pass\nexcept Exception as e: e.tb_frame",
        "class A: pass",
        "type(1)",
        "getattr(1, 'real')",
        "setattr",
        "vars()",
        "globals()",
        "locals()",
        "eval('1')",
        "exec('1')",
        "compile('1', '', 'eval')",
        "open('x')",
        "input()",
        "print(1)",
        "hash('a')",
        "id(1)",
        "breakpoint()",
        "super()",
        "object()",
        "memoryview(b'a')",
        "__import__('os')",
        "__builtins__",
        "__builtins__ = 1",
        "__name__ = 1",
        "def __f(): pass",
        "def f(__a): pass",
        "import math as __builtins__",
        "async def f(): pass",
        "with x: pass",
        "match 1:\n    case int(real=x): pass",
        "raise SystemExit",
        "def g(eval): pass\ndef f(x): return eval('1')",
        "open = 3\ndef f(x): return open",
        "def f(x):\n    try: yield x\n    finally: x = 5",
        "def f(x):\n    try: yield from x\n    except ValueError: pass",
        "raise KeyboardInterrupt",
    ],
)
def test_programs_that_could_change_more_than_their_values_are_not_tame(program):
    """Setting attributes, names that lead to the interpreter, and printing are not allowed."""
    assert not is_tame(program, "1") and not is_tame("", f"[{program}]")


def test_attacks_that_are_tame_are_few():
    """No attack that reaches outside is tame; the tame ones take time or memory, or return a wrong value."""
    assert [program for program in REACHES if is_tame(program, "out")] == []
    assert sum(is_tame(program, "1") for program in BOMBS.values()) < len(BOMBS) / 2
    tame = {name for name, program in FORGERIES.items() if is_tame(program, "f(1)")}
    assert tame == {
        *("own repr", "truth", "text of a call", "generator", "not a number", "endless value", "long value"),
        *(
            "a range equal to all",
            "nested deques",
            "deque within itself",
            "colliding integers",
            "text of a constructor",
        ),
    }


def test_tame_programs_that_share_a_process_do_not_affect_each_other():
    """Each has the value that it has alone, whatever the others bind, break or fill."""
    programs = [
        "left = 1\nlen = sorted = None\ndef f(n): return n",
        "def f(n): return [len('abc'), sorted([2, 1]), n]",
        "def f(n):\n    try: return left\n    except NameError: return n",
    ]
    raising = "def f(n):\n    x = [0]\n    while n: x += x"
    endless = "def f(n):\n    while True: n += 1"
    recursive = "def f(n): return f(n + 1)"
    executions = [Execution(program, f"f({n})") for n in range(60) for program in programs]
    executions[30:30] = [Execution(program, "f(1)") for program in (raising, endless, recursive)]
    assert all(is_tame(one.program, one.call) for one in executions if "left\n    except" not in one.program)
    with Executor(seconds=0.5, megabytes=64, workers=1) as executor:
        results = list(executor.run(executions))
    assert [result.status for result in results[30:33]] == ["memory", "timeout", "raised"]
    del results[30:33]
    assert [result.value for result in results] == [v for n in range(60) for v in (f"{n}", f"[3, [1, 2], {n}]", f"{n}")]

"""Programs of which something is known before they run: what makes them tame, and that tame ones do share a process."""

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
    """Functions, generators, handlers of exceptions and the listed modules can share a process."""
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
    """Nothing is set on an object, no name leads to the interpreter, and what is printed is not shared."""
    assert not is_tame(program, "1") and not is_tame("", f"[{program}]")


def test_attacks_that_are_tame_are_few():
    """None that reaches outside is; others take time or memory, or give a value that is wrong."""
    assert [program for program in REACHES if is_tame(program, "out")] == []
    assert sum(is_tame(program, "1") for program in BOMBS.values()) < len(BOMBS) / 2
    tame = {name for name, program in FORGERIES.items() if is_tame(program, "f(1)")}
    assert tame == {
        *("own repr", "truth", "text of a call", "generator", "not a number", "endless value", "long value")
    }


def test_tame_programs_that_share_a_process_do_not_meet():
    """What one binds, breaks or fills is not there for the others, and each has the value that it has alone."""
    programs = [
        "left = 1\nlen = sorted = None\ndef f(n): return n",
        "def f(n): return [len('abc'), sorted([2, 1]), n]",
        "def f(n):\n    try: return left\n    except NameError: return n",
    ]
    raising = "def f(n):\n    x = [0]\n    while n: x += x"
    endless = "def f(n):\n    while True: n += 1"
    recursive = "def f(n): return f(n + 1)"
    asked = [Execution(program, f"f({n})") for n in range(60) for program in programs]
    asked[30:30] = [Execution(program, "f(1)") for program in (raising, endless, recursive)]
    assert all(is_tame(one.program, one.call) for one in asked if "left\n    except" not in one.program)
    with Executor(seconds=0.5, megabytes=64, workers=1) as executor:
        found = list(executor.run(asked))
    assert [result.status for result in found[30:33]] == ["memory", "timeout", "raised"]
    del found[30:33]
    assert [result.value for result in found] == [v for n in range(60) for v in (f"{n}", f"[3, [1, 2], {n}]", f"{n}")]

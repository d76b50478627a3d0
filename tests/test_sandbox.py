"""Programs against tests: which share passes, what the sandbox cannot know, and what no program can do."""

import ast
import contextlib
import io
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofmill import sandbox
from proofmill.sandbox import (
    CANARIES,
    LONGEST,
    Case,
    Ran,
    Sandbox,
    SandboxError,
    cases_of,
    code_of,
    same_lines,
    same_value,
)

DOUBLE = json.dumps([{"input": f"{n}\n", "output": f"{2 * n}\n"} for n in (3, -4, 50)])
RIGHT = "print(2 * int(input()))"
PASSED = Ran(1.0, 3, 3, "ok")


def block(code: str) -> str:
    return f"Here it is.\n```python\n{textwrap.dedent(code)}\n```\nDone."


def calls(*pairs: tuple[str, str]) -> str:
    return json.dumps([{"call": call, "result": result} for call, result in pairs])


def prints(output: str) -> str:
    return json.dumps([{"input": "", "output": output}])


@pytest.fixture(scope="module")
def box():
    """A sandbox for all tests that leave it as it was; a program may take long, since the machine may be busy."""
    with Sandbox(seconds=60, workers=2) as made:
        yield made


@pytest.fixture(scope="module")
def short():
    """A sandbox with little time and memory, for programs that would take all there is."""
    with pytest.MonkeyPatch.context() as patch, Sandbox(seconds=0.5, megabytes=64, workers=2) as made:
        patch.setattr(sandbox, "_PATIENCE", 10_000)  # a machine may be as busy as it likes
        yield made


def ran(made: Sandbox, code: str, answer: str = DOUBLE) -> Ran:
    (one,) = made.check([(block(code), answer)])
    return one


# ------------------------------------------------------------------------------------------------------ texts and answers


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```", "a\n"),
        ("```py\na\n```", "a\n"),
        ("```Python3 title=x\na\n```", "a\n"),
        ("``` python\na\n```", "a\n"),
        ("````python\n```\na\n````", "```\na\n"),
        ("  ```python\n  a\n  ```", "  a\n"),
        ("```python\r\na\r\n```\r\n", "a\r\n"),
        ("```\na\n```", "a\n"),
        ("```python\na\n```\nor\n```python\nb\n```", "b\n"),
        ("```python\na\n```\nprints\n```\nb\n```", "a\n"),  # a bare block counts where there is no other
        ("```\na\n```\nand\n```\nb\n```", "a\n".replace("a", "b")),
        ("```python\na\n```\nthen\n```cpp\nb\n```", "a\n"),
        ("```cpp\na\n```", None),
        ("```python\na\n```\nand\n```python\nb", "a\n"),  # not closed
        ("```python\na\n```python\nb\n```", "b\n"),  # the first is not closed
        ("```python\n```", "\n"),
        ("```python a```", None),
        ("print(1)", None),
        ("", None),
    ],
)
def test_code_of_a_text_is_its_last_block_of_python(text, code):
    """Blocks that say they are Python come before those that say nothing, and what is not closed is no block."""
    assert code_of(text) == code


def test_code_of_a_text_full_of_fences_is_found_at_once():
    """The time goes with the length of the text, not with its square."""
    assert code_of("```python\n" * 100_000) is None


def test_cases_of_an_answer_are_its_tests():
    """Both forms are read, and a result that is no text is written as Python writes it."""
    answer = '[{"input": "1\\n", "output": ""}, {"call": "f(2)", "result": "{1: 2}"}, {"result": [true, null], "call": "g()"}]'
    assert cases_of(answer) == (
        Case("1\n", ""),
        Case(call="f(2)", result="{1: 2}"),
        Case(call="g()", result="[True, None]"),
    )


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("18", "`18` is no list"),
        ("", "`` is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "no list with a test in it"),
        ('{"input": "", "output": ""}', "no list with a test in it"),
        ('["a"]', 'test 1 is `"a"`'),
        ('[{"input": "", "output": ""}, {"input": ""}]', 'test 2 is `{"input": ""}`'),
        ('[{"input": "", "output": "", "call": ""}]', "test 1 is"),
        ('[{"input": 1, "output": ""}]', "the input of test 1 is no text"),
        ('[{"input": "", "output": ["a"]}]', "the output of test 1 is no text"),
        ('[{"input": "\\ud800", "output": ""}]', "the input of test 1 is no text"),
        ('[{"call": 5, "result": 5}]', "the call of test 1 is no text"),
        ('[{"call": "f(", "result": "5"}]', "the call of test 1 is no expression"),
        ('[{"call": "x = 5", "result": "5"}]', "the call of test 1 is no expression"),
    ],
)
def test_cases_of_what_is_no_tests_says_so(answer, found):
    """The sentence names what was found and what is expected, with an example."""
    with pytest.raises(
        ValueError, match=r"^tests: .*expected a JSON list of tests such as .*Correct the answer"
    ) as raised:
        cases_of(answer)
    assert found in str(raised.value)


LINES = st.lists(st.sampled_from(["", " ", "a", "a ", " a", "b"]), max_size=4).map("\n".join)


@given(LINES, LINES)
def test_same_lines_compares_all_lines_of_both(one, other):
    """Two outputs are the same if they are the same after blanks are cut from every line and empty lines from the end."""

    def cut(text: str) -> list[str]:
        lines = [line.rstrip(" ") for line in text.split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    assert same_lines(one, other) == (cut(one) == cut(other))


def test_same_lines_of_a_shorter_output_are_not_the_same():
    """Neither an empty output nor the first lines of the right one pass, as they do in open-r1."""
    assert not same_lines("", "1\n2\n") and not same_lines("1\n", "1\n2\n") and not same_lines("1\n2\n3\n", "1\n2\n")
    assert same_lines("1\r\n2 \n\n", "1\n2")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("{1: 2, 3: 4}", "{3: 4, 1: 2}", True),
        ("(1,2)", "(1, 2)", True),
        ("'a'", '"a"', True),
        ("{2, 1}", "{1, 2}", True),
        ("3.0", "3", True),
        ("Counter({'a': 1})", "Counter({'a': 1})", True),
        ("[1, 2]", "(1, 2)", False),
        ("'1'", "1", False),
        ("a", "b", False),
        ("(" * 5000, "1", False),
        ("{[]}", "1", False),
        ("", "1", False),
    ],
)
def test_same_value_compares_literals_by_value(one, other, same):
    """Texts of equal literals are the same, and of what is no literal only the same texts."""
    assert same_value(one, other) == same_value(other, one) == same


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


@pytest.mark.parametrize(
    "code",
    [
        "n = int(input()); a = list(map(int, input().split())); print(n, sum(a)); print(input())",
        "import sys\nn, *rest = sys.stdin.read().split()\nprint(n, sum(map(int, rest[:3])))\nprint(rest[3])",
        "import sys\ninput = sys.stdin.readline\nprint(int(input()), sum(map(int, input().split())))\nprint(input().strip())",
        "from sys import stdin, stdout as out\nn, a, s = stdin\nout.write(f'{int(n)} {sum(map(int, a.split()))}\\n{s}')",
        "import os, sys as s, math\nn, a, t = [l.rstrip() for l in s.stdin.readlines()]\nprint(n, sum(map(int, a.split())))\nprint(t)",
        "import sys\nd = sys.stdin.buffer.read().split()\nprint(int(d[0]), sum(map(int, d[1:4])))\nprint(d[4].decode())",
        "import sys\nr = sys.stdin.buffer.readline\nprint(int(r()), sum(map(int, r().split())))\nprint(r().decode())",
        "lines = []\ntry:\n    while True:\n        lines.append(input())\nexcept EOFError:\n    pass\n"
        "print(lines[0], sum(map(int, lines[1].split())))\nprint(lines[2])",
        "if True:\n    import sys; it = iter(sys.stdin.read().split())\n    n = int(next(it))\n"
        "    print(n, sum(int(next(it)) for _ in range(n)))\n    print(next(it), file=sys.stdout)\n    print('x', file=sys.stderr)",
        "from sys import (\n    stdin,\n    exit,\n)\nn = int(input()); print(n, sum(int(x) for x in stdin.readline().split()))\n"
        "print(stdin.readline())\nexit()",
        "def main():\n    n = int(input())\n    t = 0\n    for x in map(int, input().split()):\n        t += x\n    print(n, t)\n"
        "    print(input())\nif __name__ == '__main__':\n    main()",
    ],
)
def test_check_of_programs_that_read_in_any_way(box, code):
    """Whichever way a program reads its input and writes its output, it reads and writes the same."""
    answer = json.dumps(
        [{"input": "3\n1 2 4\nné\x0b\n", "output": "3 7\nné"}, {"input": "3\n1 2 -9\nb", "output": "3 -6\nb"}]
    )
    assert ran(box, code, answer) == Ran(1.0, 2, 2, "ok")


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
    assert ran(box, "def f(x): return [x] * 10**7", calls(("f(1)", "[1]"))) == Ran(0.0, 0, 1, "ok")
    assert ran(box, "def f(x): return [x] * 10**4", calls(("f(1)", repr([1] * 10**4)))) == Ran(1.0, 1, 1, "ok")


def test_check_of_the_same_program_is_the_same(box):
    """What is drawn at random is the same each time, so that a share does not depend on luck; nobody waits for a sleep."""
    code = "import random, time\ntime.sleep(10**6)\nprint(random.random(), random.sample(range(10**9), 3))"
    found = {ran(box, f"{code}\nassert False, (random.random(), random.randrange(10**9))").detail for _ in range(5)}
    assert len(found) == 1


def test_check_gives_thousands_in_their_order(box):
    """1,500 programs of all kinds come back in the order in which they went in."""
    kinds = {
        "right": ("print({n} + int(input()))", PASSED),
        "wrong": ("print({n} - 1)", Ran(0.0, 0, 3, "ok")),
        "raises": ("[][{n}]", Ran(0.0, 0, 3, "failed", "test 1: IndexError: list index out of range (line 1)")),
        "syntax": ("{n} = 5", None),
        "lacks": ("import heapq; {n}", None),
    }
    names = [list(kinds)[n * n % 5] for n in range(1500)]
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


# ---------------------------------------------------------------------------------------------- our failures, and the program's

LACKING = [
    "print(2 * int(input()))\ndef f():\n    yield 1",
    "class A(dict): pass\nprint(2 * int(input()))",
    "class A:\n    @property\n    def x(self): return 2\nprint(A().x * int(input()))",
    "d = {1: 2}\ndel d[1]\nprint(2 * int(input()))",
    "import heapq\nprint(2 * int(input()))",
    "import numpy\nprint(2 * int(input()))",
    "import __main__\nprint(2 * int(input()))",
    "import xml.dom\nprint(2 * int(input()))",
    "from functools import cmp_to_key\nprint(2 * int(input()))",
    "import functools\nprint(functools.cmp_to_key and 2 * int(input()))",
    "print(str.strip(' a ') and 2 * int(input()))",
    "print('ab'.translate(str.maketrans('a', 'b')) and 2 * int(input()))",
    "print(callable(print) and 2 * int(input()))",
    "def f(): pass\nf.x = 2\nprint(f.x * int(input()))",
    "def f(): pass\nprint(f.__name__ and 2 * int(input()))",
    "class A: pass\nprint(A().__dict__ == {} and 2 * int(input()))",
    "x = [1]\nx += (2,)\nprint(x[1] * int(input()))",
    "print(len(bytes([1, 2])) * int(input()))",
    "try:\n    raise ValueError(1, 2)\nexcept ValueError as e:\n    print(e.args[1] * int(input()))",
    "import os\nprint(2 * int(input()) if 'X' not in os.environ else 0)",
    "print(2 * int(open(0).read()))",
    "import sys\nprint(2 * int(sys.stdin.readline()), sys.getsizeof(1) > 10 or '')",
    "import sys\nprint(2 * int(sys.stdin.read(3)))",
    "class A:\n    def __bool__(self): return False\nprint(0 if A() else 2 * int(input()))",  # passed over silently
    "class A:\n    def __len__(self): return 0\nprint(0 if A() else 2 * int(input()))",
    "class A:\n    def __lt__(self, other): return True\nprint(2 * int(input()) if A() < A() else 0)",
    "class A:\n    def __getattr__(self, name): return 2\nprint(A().x * int(input()))",
    "class A:\n    def __getitem__(self, n): return [2][n]\nprint(*[x * int(input()) for x in A()])",
    "import itertools\nprint(next(2 * int(input()) for x in itertools.count() if x > 5))",
    "print(any(1 / x for x in (1, 0)) * 2 * int(input()))",
    "a = [1, 1]\nfor n, x in enumerate(a):\n    a[1] += x\nprint(a[1] // 2 * int(input()))",
    "def f(n): return max(map(f, [n - 1])) if n else 2\nprint(f(60) * int(input()))",
    "try:\n    import heapq\n    n = 2\nexcept ImportError:\n    n = 3\nprint(n * int(input()))",  # hidden by a handler
    "try:\n    n = len('ab'.translate({}))\nexcept:\n    n = 3\nprint(n * int(input()))",
    "try:\n    n = issubclass(int, object) + 1\nexcept (ValueError, Exception) as e:\n    n = 3\nprint(n * int(input()))",
]


@pytest.mark.parametrize("code", LACKING)
def test_check_of_a_right_program_that_the_sandbox_cannot_run_is_unscored(box, code):
    """A program that passes in Python and not here has no share, and the detail says why."""
    found = ran(box, code)
    assert (found.share, found.status) == (None, "unsupported") and found.detail.startswith("test ")


def test_check_of_too_long_a_program_is_unscored(box):
    """A program of the greatest length runs, and a longer one is not run."""
    longest = RIGHT + "\n" + "#" * (LONGEST - len(RIGHT) - 2)
    texts = [f"```python\n{code}\n```" for code in (longest, longest + "#")]
    assert [found.share for found in box.check([(text, DOUBLE) for text in texts])] == [1.0, None]


def test_check_of_an_order_that_a_set_gave_is_unscored(box):
    """The order of a set is Python's own: what differs in nothing else is unscored, and what does is wrong."""
    code = "print(*{100, 3, 50})\n"
    assert ran(box, code, prints("50 3 100")).status == "unsupported"
    assert ran(box, code, prints("50 3 101")) == Ran(0.0, 0, 1, "ok")
    assert ran(box, "print(*[100, 3, 50])", prints("50 3 100")) == Ran(0.0, 0, 1, "ok")


@pytest.mark.parametrize(
    "code",
    [
        "print(x)",
        "import nosuchmodule",
        "from math import nosuchname",
        "import math\nmath.nosuchname",
        "'a'.nosuchname",
        "class A: pass\nA().nosuchname",
        "None.append(1)",
        "1 + 'a'",
        "len(5)",
        "len(map(int, '12'))",
        "map(int, '12')[0]",
        "z = zip([1], [2])\nlist(z)\nlist(z)[0]",
        "def f(a): pass\nf()",
        "[] < 5",
        "int('a')",
        "{}['a']",
        "def f():\n    x += 1\nf()",
        "def f(n): return f(n + 1)\nf(0)",
        "raise NotImplementedError",
        "raise ImportError(\"cannot import name 'x' from 'y'\")",
        "raise NameError(\"name 'callable' is not defined\")",
        "raise TimeoutError('feed time limit exceeded: 1s > 1s')",
        "assert 1 == 2",
        "class E: pass\nclass F: pass\nE() < F()",
        "d = {1: 2}\nfor k in d: d[k + 1] = 1",
        "[].sort(1)",
        "input(); input()",
        "sum(int(x) for x in 'ab')",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    {}[1]",
    ],
)
def test_check_of_a_program_that_python_refuses_is_failed(box, code):
    """What raises an exception in Python too is a failure of the program, whatever the exception says."""
    with pytest.raises(Exception), contextlib.redirect_stdout(io.StringIO()):  # noqa: B017 - of any kind
        exec(code, {"input": iter([""]).__next__})
    found = ran(box, code)
    assert (found.share, found.status, found.passed) == (0.0, "failed", 0)


PROGRAMS = """
print(next(x for x in [1, 2] if x > 1), next((x for x in [1] if x > 5), -1), sum(x * x for x in range(5)))
---
it = map(int, '1 2 3'.split()); n = next(it); print(n, list(it), list(it))
---
m = map(int, ['1', '2']); print(1 in m, 1 in m)
---
print([''.join(t) for t in zip(*[iter('abcdef')] * 2)], list(zip([1, 2], [3, 4], strict=True)), dict(enumerate('ab', start=1)))
---
print(round(30.415, 2), round(0.265, 2), round(2.675, 2), round(2.5), round(1234, -2), round(-0.5), round(7, 2), round(1e300, 2))
---
print(f"{sum(x for x in (1, 2))} é {[y for y in 'é']}", max((len(w), w) for w in ['é', 'bb']), 'é' if any(c == 'é' for c in 'aé') else 0)
---
a = [1, 2, 3]
for x in a:
    if x < 3: a.append(x + 2)
print(a, a[::-1], a[1:3], *sorted(a, key=lambda v: -v), sep='|')
---
class Stack:
    count = 0
    def __init__(self): self.items = []; Stack.count += 1
    def push(self, x): self.items.append(x); return self
    def __str__(self): return f'Stack({self.items})'
    def __eq__(self, other): return self.items == other.items
    def __add__(self, other): return Stack().push(1)
print(Stack().push(1).push('a'), Stack() == Stack(), Stack() + Stack(), Stack.count)
---
from collections import Counter, defaultdict, deque, namedtuple
d = defaultdict(list); d[1].append(2); q = deque([1, 2], maxlen=2); q.append(3); P = namedtuple('P', 'x y')
print(Counter('abca').most_common(1), d, q, P(1, 2), P(1, y=2).x)
---
import itertools, math, json, re, bisect, functools
print(list(itertools.permutations('ab')), math.comb(5, 2), json.dumps({'a': [1, None]}), re.findall(r'\\d+', 'a1b22'))
print(bisect.bisect([1, 2, 3], 2), functools.reduce(lambda a, b: a * b, [1, 2, 3]), list(itertools.islice(itertools.count(), 3)))
---
@__import__('functools').lru_cache(None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(50))
---
from functools import lru_cache
@lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(80), 2 ** 200, -7 // 2, -7 % 3, 0.1 + 0.2, 1e16, divmod(-7, 2), pow(3, 100, 7))
---
try:
    try: {}['a']
    except KeyError as e: print(repr(e)); raise ValueError('b') from e
except (ValueError, TypeError) as e: print('caught', e)
else: print('no')
finally: print('end')
---
print('%5.2f|%-4s|%03d' % (3.14159, 'a', 7), '{:>6}|{:^5}|{:,}'.format('x', 'y', 1234567), f'{255:#x} {0.5:%} {"a"!r}')
---
def f(a, b=2, *c, d, **e): return a, b, c, d, e
print(f(1, d=4), f(*[1, 2, 3], **{'d': 5, 'z': 6}), (lambda *x: x)(1), [*range(3)], {**{1: 2}, 3: 4})
---
match [1, 2, 3]:
    case [1, *rest]: print(rest)
if (n := 5) > 3: print(n)
a, (b, *c) = 1, (2, 3, 4); print(a, b, c); print({k: v for k, v in zip('ab', [1, 2])})
---
import sys
sys.setrecursionlimit(10 ** 6)
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
print(depth(5000), sys.maxsize > 0)
---
def outer():
    x = 1
    def inner():
        nonlocal x
        x += 1
        return x
    return inner
g = outer(); g(); print(g(), [i for i in range(3) if i % 2], any([]), all([]), min([3, 1]), 3 in {3}, None is None)
---
def gen(n):
    for i in range(n): yield i
print(list(gen(3)))
---
import heapq; h = [3, 1, 2]; heapq.heapify(h); print(heapq.heappop(h))
"""


def in_python(code: str) -> str:
    """What a program prints in this process."""
    limit = sys.getrecursionlimit()
    with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings(action="ignore"):
        exec(compile(code, "<test>", "exec"), {"__name__": "__main__"})
    sys.setrecursionlimit(limit)
    return printed.getvalue()


def test_check_of_programs_that_python_runs_is_never_wrong(box):
    """Whatever Python prints passes here, or the program is unscored; most are scored."""
    programs = PROGRAMS.replace("\\\\", "\\").split("\n---\n")
    found = list(box.check([(block(code), prints(in_python(code))) for code in programs]))
    assert [code for code, one in zip(programs, found, strict=True) if one.share not in (1.0, None)] == []
    assert sum(one.share == 1.0 for one in found) >= len(programs) - 3


LEAVES = st.one_of(
    st.integers(-9, 99).map(repr),
    st.sampled_from(
        ["2.5", "0.1", "'ab'", "'B c'", "[3, 1, 2]", "(1, 2)", "{'a': 1}", "[]", "''", "True", "None", "range(4)"]
    ),
)
OPERATORS = ["+", "-", "*", "//", "/", "%", "==", "<", "and", "or", "in", "&", "|"]
FUNCTIONS = ["len", "str", "repr", "list", "sorted", "sum", "max", "abs", "int", "bool", "round", "type"]
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(OPERATORS), inner),
        st.builds("{}({})".format, st.sampled_from(FUNCTIONS), inner),
        st.builds("[{} for x in {}]".format, st.one_of(inner, st.just("x")), inner),
        st.builds("list({}({}))".format, st.sampled_from(["enumerate", "reversed", "iter"]), inner),
        st.builds("list(map({}, {}))".format, st.sampled_from(["str", "int", "len", "lambda x: x * 2"]), inner),
        st.builds("list(zip({}, {}))".format, inner, inner),
        st.builds("sum(({}) for x in {})".format, st.one_of(inner, st.just("x")), inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("{}[{}:]".format, inner, inner),
        st.builds("f'{{{}!r:>8}}'".format, inner.filter(lambda text: not set("'\\") & set(text))),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds(
            "({}).{}".format, inner, st.sampled_from(["upper()", "split()", "copy()", "count(1)", "index(1)", "real"])
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(EXPRESSIONS, min_size=1, max_size=4))
def test_check_of_any_expression_agrees_with_python(box, expressions):
    """What Python prints passes here or is unscored; and where Python raises, nothing passes."""
    for expression in expressions:
        code = f"print({expression})"
        try:
            expected = in_python(code)
        except Exception:  # of any kind
            expected = None
        found = ran(box, code, prints(expected or "no output"))
        assert found.share in ((1.0, None) if expected is not None else (0.0, None)), (code, expected, found)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1e9, 1e9) | st.integers(-(10**6), 10**6).map(lambda n: n / 1000), st.integers(0, 6)),
        max_size=20,
    )
)
def test_check_of_rounded_numbers_agrees_with_python(box, pairs):
    """Rounding is Python's, in every digit."""
    answer = calls(("[round(x, n) for x, n in pairs]", repr([round(x, n) for x, n in pairs])))
    assert ran(box, f"pairs = {pairs!r}", answer) == Ran(1.0, 1, 1, "ok")


class _Wrapped(ast.NodeTransformer):
    """What the edits are to do to the tree of a program."""

    def visit_GeneratorExp(self, node):
        self.generic_visit(node)
        return ast.Call(ast.Name("iter", ast.Load()), [node], [])

    def visit_JoinedStr(self, node):
        return node


def edited(code: str) -> tuple[str, str]:
    """The tree of the edited source and what it is to be, as texts."""
    found = ast.parse(sandbox._Program(code).source.removesuffix("\nNone\n"))
    return ast.dump(found), ast.dump(ast.fix_missing_locations(_Wrapped().visit(ast.parse(code))))


@pytest.mark.parametrize(
    "code",
    [
        "sum(x for x in y)", "f((x for x in y), 1)", "é = 'é'; list(é for é in 'é') + list((c for c in d))",
        "((a for a in b) for b in (c for c in d))", "any(\n  x\n  for x in y\n)", "f(x for x in y)(z for z in w)", "x = (  y for y in z  )",
        "f'{sum(x for x in y)}' + ''.join(c for c in s)", "[(x for x in y) for z in w]", "lambda: (x for x in y)", "@f(x for x in y)\ndef g(): pass",
    ],
)  # fmt: skip
def test_edits_of_generators_change_nothing_else(code):
    """Each generator outside f-strings becomes `iter` of itself, and the tree is otherwise the same."""
    found, expected = edited(code)
    assert found == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys", "sys = _sandbox_sys"),
        ("import sys as s, os, sys", "import os; s = _sandbox_sys; sys = _sandbox_sys"),
        ("from sys import stdin as i, exit", "i = _sandbox_sys.stdin; exit = _sandbox_sys.exit"),
        ("if x: import sys; y", "if x: sys = _sandbox_sys; y"),
        ("def f():\n    from sys import (stdin,\n        exit)\n    return 1", None),
        (
            "import system; from system import sys; import os.sys",
            "import system; from system import sys; import os.sys",
        ),
        ("from sys import *", "from sys import *"),
        ("from .sys import x", "from .sys import x"),
    ],
)
def test_edits_of_imports_are_of_sys_alone_and_keep_lines(code, expected):
    """`sys` in any import is the prelude's, other imports stay, and no line is moved."""
    source = sandbox._Program(code).source.removesuffix("\nNone\n")
    assert source.count("\n") == code.count("\n")
    if expected:
        assert ast.dump(ast.parse(source)) == ast.dump(ast.parse(expected))
    else:
        assert ast.parse(source).body[0].body[-1].lineno == ast.parse(code).body[0].body[-1].lineno


SAYS = {  # what the module says of the interpreter: where it is no longer so, the module is to be changed
    "round(30.415, 2)": "30.42",
    "type(map(int, []))": "<class 'list'>",
    "type(x for x in [])": "<class 'list'>",
    "[type(f([])) == list for f in (enumerate, reversed, zip)] + [type(filter(None, [])) == list]": "[True, True, True, True]",
    "bool(type('A', (), {'__bool__': lambda self: False})())": "True",
}


def test_interpreter_is_as_the_module_says(box):
    """Each thing that is made good or doubted is still otherwise in the interpreter, and it still has the modules named."""
    with box._pool.checkout() as session:
        assert {code: session.feed_run(f"repr({code})") for code in SAYS} == SAYS
        for name in ("input", "exit", "EOFError", "callable"):
            assert session.feed_run(f"try:\n    {name}\n    r = 1\nexcept NameError:\n    r = 0\nr") == 0
        for module in sandbox._MODULES:
            session.feed_run(f"import {module}")


@pytest.mark.parametrize(
    "name", sorted(sandbox._CALLED - {"__exit__", "__init__", "__post_init__", "__next__", "__hash__"})
)
def test_special_methods_that_are_called_are_called_as_in_python(box, name):
    """Each special method that the module does not doubt gives here what it gives in Python."""
    word = name.strip("_")
    signs = {
        "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|",
        "xor": "^", "lshift": "<<", "rshift": ">>", "matmul": "@",
    }  # fmt: skip
    uses = {
        "abs": "abs(a)", "call": "a(1, 2)", "contains": "5 in a", "divmod": "divmod(a, 1)", "enter": "a.__enter__()", "eq": "a == 1", "ne": "a != 1",
        "float": "float(a)", "int": "int(a)", "index": "[7, 8, 9][a]", "getitem": "a[1]", "setitem": "a.__setitem__(1, 2)", "invert": "~a", "neg": "-a",
        "pos": "+a", "iter": "list(a)", "repr": "repr(a)", "str": "str(a) + f'{a}'", "round": "round(a)",
        **{sign: f"a {mark} 1" for sign, mark in signs.items()}, **{f"r{sign}": f"1 {mark} a" for sign, mark in signs.items()},
    }  # fmt: skip
    value = {"float": "2.5", "iter": "iter([1])", "repr": "'r'", "str": "'s'"}.get(word, "2")
    code = f"class A:\n    def {name}(self, *rest): return {value}\na = A()\nprint({uses[word]})"
    assert ran(box, code, prints(in_python(code))) == Ran(1.0, 1, 1, "ok")


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
        sandbox._confine(session.worker_pid, 60)
        limits = Path(f"/proc/{session.worker_pid}/limits").read_text().splitlines()
    zero = {line[:26].strip() for line in limits if line[26:].split()[:2] == ["0", "0"]}
    assert zero >= {"Max open files", "Max file size", "Max core file size", "Max processes"}
    assert ran(box, RIGHT) == PASSED


@pytest.fixture
def struck(monkeypatch):
    """`struck(number, n)`: the workers of the next n runs are sent a signal just before they run."""
    confine, left = sandbox._confine, []

    def confine_and_strike(worker: int, seconds: float) -> None:
        confine(worker, seconds)
        if left:
            os.kill(worker, left.pop())

    monkeypatch.setattr(sandbox, "_confine", confine_and_strike)
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
    monkeypatch.setattr(sandbox, "_PATIENCE", 10)
    with Sandbox(seconds=0.1, workers=1) as made:
        struck(signal.SIGSTOP, 1)
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


def test_sandbox_that_is_closed_does_not_wait_for_all_tests():
    """A program with thousands of slow tests ends with the test that it is at."""
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
    code = "import sys, proofmill.sandbox; print('pydantic_monty' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


ORPHANS = r"""
from proofmill import sandbox
confine, told = sandbox._confine, []
def confine_and_tell(worker, seconds):
    confine(worker, seconds)
    if told:
        print(worker, flush=True)
sandbox._confine = confine_and_tell
with sandbox.Sandbox(seconds=1, workers=2) as made:
    told.append(True)
    list(made.check([("```python\nwhile True: pass\n```", '[{"input": "", "output": ""}]')] * 50))
"""


def gone(process: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_workers_of_a_killed_parent_end_though_they_are_busy():
    """No worker outlives for long a parent that is killed outright."""
    with subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True) as parent:
        processes = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
    for _ in range(600):
        if all(map(gone, processes)):
            return
        time.sleep(0.1)
    pytest.fail("a worker still runs")


# ---------------------------------------------------------------------------------------------------------- real programs


@pytest.fixture(scope="module")
def records(data) -> list[tuple[str, str, str]]:
    """Programs of CRUXEval and of Absolute Zero's seeds with an input of `f` and its output; without outputs cut short."""
    made = []
    for name in ("cruxeval/first400.jsonl", "azr/seed_io_64.jsonl", "azr/seed_code_f_64.jsonl"):
        for row in map(json.loads, (data / name).read_text("utf-8").splitlines()):
            code = "\n".join([*row.get("imports", []), row.get("code") or row["snippet"]])
            pairs = (
                zip(row["inputs"], row["outputs"], strict=True) if "inputs" in row else [(row["input"], row["output"])]
            )
            made += [(code, given, output) for given, output in pairs if output and "..." not in output]
    return made


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


def test_edits_of_real_programs_are_of_generators_alone(records):
    """The edited source of each has the tree of the program, each generator wrapped."""
    for code in sorted({code for code, _, _ in records}):
        found, expected = edited(code)
        assert found == expected


def test_steps_of_gsm8k_are_computed_as_they_are_written(data, box):
    """A program made of the steps of a solution prints their results."""
    import re

    asked = []
    for line in (data / "gsm8k/test_first660.jsonl").open(encoding="utf-8"):
        steps = re.findall(r"<<([\d.+*/()-]+)=(-?\d+)>>", json.loads(line)["answer"])
        code = "\n".join(f"x{n} = {step}\nprint(round(x{n}))" for n, (step, _) in enumerate(steps))
        asked.append((block("\n" + code), prints("".join(f"{result}\n" for _, result in steps))))
    found = list(box.check(asked))
    assert sum(one.share == 1.0 for one in found) >= 0.97 * len(asked)
    assert {one.status for one in found} <= {"ok", "failed"}

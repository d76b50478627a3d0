"""Failures of the program and failures of ours, against Python itself."""

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proofmill.sandbox._unsupported import CALLED, MODULES

from boxed import block, in_python, prints, ran
from proofmill.sandbox.sandbox import Ran, Sandbox


@pytest.fixture(scope="module")
def box():
    """A sandbox in which a program may take long, since the machine may be busy."""
    with Sandbox(seconds=60, workers=2) as made:
        yield made


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


# -------------------------------------------------------------------------------------------------------- the interpreter


SAYS = {  # what prelude.py and lacks.py say of the interpreter: where it is no longer so, they are to be changed
    "round(30.415, 2)": "30.42",
    "type(map(int, []))": "<class 'list'>",
    "type(x for x in [])": "<class 'list'>",
    "[type(f([])) == list for f in (enumerate, reversed, zip)] + [type(filter(None, [])) == list]": "[True, True, True, True]",
    "bool(type('A', (), {'__bool__': lambda self: False})())": "True",
}


def test_interpreter_is_as_the_modules_say(box):
    """Each thing that is made good or doubted is still otherwise in the interpreter, and it still has the modules named."""
    with box._pool.checkout() as session:
        assert {code: session.feed_run(f"repr({code})") for code in SAYS} == SAYS
        for name in ("input", "exit", "EOFError", "callable"):
            assert session.feed_run(f"try:\n    {name}\n    r = 1\nexcept NameError:\n    r = 0\nr") == 0
        for module in MODULES:
            session.feed_run(f"import {module}")


@pytest.mark.parametrize("name", sorted(CALLED - {"__exit__", "__init__", "__post_init__", "__next__", "__hash__"}))
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

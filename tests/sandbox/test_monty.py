"""The first tier: what it is given, and that whatever it says Python says, too."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxed import PASSED, in_python, prints, ran
from proofmill.sandbox import values
from proofmill.sandbox.executor import Execution, Executor
from proofmill.sandbox.monty import Monty
from proofmill.sandbox.plain import Source
from proofmill.sandbox.sandbox import Ran, Sandbox


@pytest.fixture(scope="module")
def monty():
    """Monty alone."""
    with Monty(workers=1, seconds=60, megabytes=256) as made:
        yield made


@pytest.fixture(scope="module")
def box():
    """Both tiers, as code rewards use them."""
    with Sandbox(seconds=60, workers=2) as made:
        yield made


ODD = [
    "print(2 * int(input()))\ndef f():\n    yield 1",
    "class A(dict): pass\nprint(2 * int(input()))",
    "class A:\n    @property\n    def x(self): return 2\nprint(A().x * int(input()))",
    "d = {1: 2}\ndel d[1]\nprint(2 * int(input()))",
    "import heapq\nprint(2 * int(input()))",
    "import __main__\nprint(2 * int(input()))",
    "import re\nprint(re.sub('(a)', r'\\1_', 'ab') == 'a_b' and 2 * int(input()))",
    "import os\nprint(os.path.isfile('nothing') or 2 * int(input()))",
    "try: n = len('x'.encode('shift_jis')) + 1\nexcept LookupError: n = 0\nprint(n * int(input()))",
    "from string import ascii_lowercase as s\nprint(s.index('c') * int(input()))",
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
    "import sys\nprint(2 * int(sys.stdin.readline()) * (sys.getsizeof(1) > 10))",
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


@pytest.mark.parametrize("code", ODD)
def test_check_of_a_program_that_monty_lacks_or_has_otherwise_is_that_of_python(box, code):
    """A program that passes in Python passes, whatever the first tier makes of it."""
    assert ran(box, code) == PASSED


SAYS = {  # how Monty differs: programs with these are not given to it
    "round(30.415, 2)": "30.42",
    "repr(type(map(int, [])))": "\"<class 'list'>\"",
    "repr(type(x for x in []))": "\"<class 'list'>\"",
    "bool(type('A', (), {'__bool__': lambda self: False})())": "True",
    "[type(f([])) == list for f in (enumerate, reversed, zip)]": "[True, True, True]",
}


@pytest.mark.parametrize(("call", "value"), SAYS.items())
def test_what_monty_has_otherwise_is_not_given_to_it(monty, call, value):
    """Each difference is still there, and the closed list leaves it out."""
    assert monty.value("", call, 1000) == value
    assert not Source("", call).is_plain


@pytest.mark.parametrize(
    ("program", "plain"),
    [
        ("def f(a, b=2): return [x for x in a if x > b]", True),
        ("def f(a):\n    for i, x in enumerate(a): print(i)\n    return sum(x for x in a)", True),
        ("def f(a):\n    r = []\n    for i, x in enumerate(a):\n        r.append(x)\n    return r", True),
        ("def f(a):\n    for i, x in enumerate(a):\n        a.append(x)\n    return a", False),
        ("def f(a):\n    b = a\n    for i, x in enumerate(a):\n        b.pop()\n    return a", False),
        ("def f(a):\n    for i, x in enumerate(a):\n        g(a)\n    return a\ndef g(a): a.pop()", False),
        ("def f(a):\n    m = map(str, a)\n    return list(m)", False),
        ("def f(a):\n    return (x for x in a)", False),
        ("def f(a): return {1, 2}", False),
        ("def f(a): return set(a)", False),
        ("def f(a): yield 1", False),
        ("class f: pass", False),
        ("import re\ndef f(a): return 1", False),
        ("from math import sqrt\ndef f(a): return sqrt(a)", True),
        ("import random\ndef f(a): return 1", False),
        ("def f(a): return hash(a)", False),
        ("def f(a): return id(a)", False),
        ("def f(a): return a is 5", False),
        ("def f(a): return a is not None", True),
        ("def f(a):\n    try: return 1 / a\n    except Exception: return 0", False),
        ("def f(a): return 'é'.upper()", False),
        ("def f(a): return a.__class__", False),
        ('def f(a): return f"{\'a\' if a else "b"}"', False),  # which Python 3.11 refuses
        ("def f(a: return 1", False),
        ("x = [1]\ndef f(a):\n    while True: pass", True),
    ],
)
def test_is_plain_is_a_closed_list(program, plain):
    """What may differ in value, order or time is left to Python."""
    assert Source(program, "f(1)").is_plain == plain
    assert not Source(program, "").is_plain


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


def test_check_of_programs_that_python_runs_is_that_of_python(box):
    """Whatever Python prints passes."""
    programs = PROGRAMS.replace("\\\\", "\\").split("\n---\n")
    for code in programs:
        assert ran(box, code, prints(in_python(code))) == Ran(1.0, 1, 1, "ok"), code


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
@given(st.lists(EXPRESSIONS, min_size=1, max_size=8))
def test_value_of_any_plain_expression_is_that_of_python(monty, expressions):
    """Monty gives the value that Python gives, or none; and where Python raises, none."""
    for expression in expressions:
        if not Source("", expression).is_plain:
            continue
        found = monty.value("", expression, 10_000)
        try:
            expected = values.write(eval(expression))
        except Exception:  # of any kind
            expected = None
        assert found in (expected, None), (expression, expected, found)


def test_tier_that_gave_a_value_is_said():
    """Plain programs are Monty's, others CPython's; what raises or takes long in Monty is found again by CPython."""
    asked = {
        "def f(n): return n + 1": "monty",
        "def f(n): yield n + 1": "python",
        "def f(n): return n / 0": "python",
        "def f(n):\n    x = 0\n    for i in range(10**7): x += i % 7\n    return x": "python",
    }
    with Executor(seconds=60, workers=1) as executor:
        found = [result.tier for result in executor.run(Execution(code, "f(2)") for code in asked)]
    assert found == list(asked.values())

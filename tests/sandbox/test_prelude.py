"""What the interpreter lacks or has otherwise, as programs find it in the sandbox."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxed import calls, ran
from proofmill.sandbox.sandbox import Ran, Sandbox


@pytest.fixture(scope="module")
def box():
    """A sandbox in which a program may take long, since the machine may be busy."""
    with Sandbox(seconds=60, workers=2) as made:
        yield made


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

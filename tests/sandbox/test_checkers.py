"""Checkers: several outputs are correct, and no program decides about its own."""

import json

import pytest

from boxed import block
from proofmill.graders.code_grading import Code
from proofmill.graders.submissions import Submission
from proofmill.sandbox.sandbox import Sandbox
from proofmill.schema.reasons import Reason

# Print the numbers from 1 to n in an order in which each edge leads from an earlier number to a later one.
ORDER = """
def check(input, output, reference):
    (n, _), *edges = [list(map(int, line.split())) for line in input.splitlines()]
    words = output.split()
    if sorted(words) != sorted(map(str, range(1, n + 1))):
        return False
    place = {int(word): position for position, word in enumerate(words)}
    return all(place[a] < place[b] for a, b in edges)
"""
TESTS = [
    {"input": "4 3\n1 2\n1 3\n3 4\n", "output": "1 2 3 4\n"},
    {"input": "3 0\n", "output": "1 2 3\n"},
    {"input": "5 4\n5 4\n4 3\n3 2\n2 1\n"},
]
PRINTED = json.dumps({"tests": TESTS, "checker": ORDER})
READ = "n, m = map(int, input().split())\nedges = [tuple(map(int, input().split())) for _ in range(m)]\n"
KAHN = """
import heapq
left = {{b: sum(edge[1] == b for edge in edges) for b in range(1, n + 1)}}
ready = [{sign}a for a in left if not left[a]]
heapq.heapify(ready)
order = []
while ready:
    a = {sign}heapq.heappop(ready)
    order.append(a)
    for b in (edge[1] for edge in edges if edge[0] == a):
        left[b] -= 1
        if not left[b]:
            heapq.heappush(ready, {sign}b)
print(*order)
"""
SEARCH = """
order, seen = [], set()
def visit(a):
    if a not in seen:
        seen.add(a)
        for b in (edge[1] for edge in edges if edge[0] == a): visit(b)
        order.append(a)
for a in range(1, n + 1): visit(a)
print('\\n'.join(map(str, reversed(order))))
"""

# Wrong programs that try to be accepted by the checker of orders: each prints an order that is wrong in all tests.
HOSTILE = {
    "no output": "",
    "the input": "import sys\nprint(sys.stdin.read())",
    "true": "print(True)",
    "each number twice": READ + "print(*[a for a in range(1, n + 1) for _ in 'ab'])",
    "too many numbers": READ + "print(*range(n + 2))",
    "signs": READ + "print(*[f'+{a}' for a in range(1, n + 1)])",
    "digits of another script": READ + "print(*[chr(0x660 + a) for a in range(1, n + 1)])",
    "spaces of another script": READ + "print('\\u3000'.join(map(str, range(n, 0, -1))) + ' 9')",
    "a checker of its own": "def check(*a): return True\nprint(check())",
    "a checker in builtins": "import builtins\nbuiltins.check = builtins.sorted = builtins.all = lambda *a: True\nprint(0)",
    "a checker in main": "import sys\nsys.modules['__main__'].check = lambda *a: True\nprint(0)",
    "code as output": "print('1 2 3 4\"); check = lambda *a: True; (\"')",
    "the end of a text": "print(\"' or True or '\")",
    "a null": "print('1 2 3 4\\0')",
    "half a character": "import sys\nsys.stdout.buffer.write(b'\\xff1 2')",
    "a reply": "import os\nfor n in range(3, 33):\n    try: os.write(n, b'vTrue')\n    except OSError: pass\nprint(0)",
    "a reply and an exit": "import os\nfor n in range(3, 33):\n    try: os.write(n, b'pTrue')\n    except OSError: pass\nos._exit(0)",
    "changed modules": "import re, math, json, collections\nfor m in (re, math, json, collections):\n    for name in dir(m):\n        try: setattr(m, name, None)\n        except Exception: pass\nprint(0)",
    "a thread that prints later": "import threading, time\ndef run():\n    time.sleep(9)\n    print('x')\nthreading.Thread(target=run).start()\nprint(0)",
    "a long output": "print('1 ' * 10**6)",
    "long numbers": "print('1' * 5000)",
    "many lines": "print('\\n' * 10**5)",
    "error after the output": "print('1 2 3 4')\n1 / 0",
    "exit with an error": "print('1 2 3 4')\nraise SystemExit(3)",
    "files": "import os\nfor name in ('check', 'check.py', '/tmp/check.py', '__main__.py'):\n    try: open(name, 'w').write('x')\n    except OSError: pass\nprint(0)",
    "memory of others": "import gc\nfor o in gc.get_objects():\n    if isinstance(o, dict) and 'check' in o: o['check'] = lambda *a: True\nprint(0)",
}  # fmt: skip


@pytest.fixture(scope="module")
def code():
    """Open the grader, shared by tests that do not change it."""
    with Code() as opened:
        yield opened


@pytest.fixture(scope="module")
def short():
    """Open a grader with little time and memory."""
    made = Code()
    made._sandbox.executor.seconds, made._sandbox.executor.megabytes = 0.5, 64
    with made as opened:
        yield opened


def verdicts(code, answer: str, *programs: str) -> list:
    return list(
        code.verdicts([Submission("s", answer, None, f"```python\n{p}\n```", question_type="code") for p in programs])
    )


def test_every_correct_order_passes(code):
    """Three algorithms print three different orders, one of them in another layout, and all pass."""
    programs = [READ + KAHN.format(sign=sign) for sign in ("", "-")] + [READ + SEARCH]
    assert [verdict.grade for verdict in verdicts(code, PRINTED, *programs)] == [1.0, 1.0, 1.0]


def test_wrong_orders_get_their_share(code):
    """Ascending numbers are an order of two of three graphs, descending ones of another two."""
    ascending, descending = (READ + f"print(*{numbers})" for numbers in ("range(1, n + 1)", "range(n, 0, -1)"))
    assert [verdict.grade for verdict in verdicts(code, PRINTED, ascending, descending)] == [2 / 3, 2 / 3]


def test_hostile_programs_are_not_accepted(code):
    """No program that prints something else than an order passes, and none leaves a row unscored."""
    graded = dict(zip(HOSTILE, verdicts(code, PRINTED, *HOSTILE.values()), strict=True))
    assert {name: verdict.text for name, verdict in graded.items() if verdict.grade != 0} == {}
    assert verdicts(code, PRINTED, READ + SEARCH)[0].grade == 1


def test_checker_of_a_call_receives_arguments_and_values(code):
    """A checker of a function has the arguments as a tuple, and the value as plain data, also of other containers."""
    source = """
from collections import deque
def check(input, output, reference):
    numbers, total = input
    if not isinstance(output, (list, deque)):
        return False
    return reference in (None, output) or (sum(output) == total and all(n in numbers for n in output))
"""
    tests = [
        {"call": "pick([1, 2, 3, 4], 5)", "result": "[1, 4]"},
        {"call": "pick([deque([1])[0], 7], 8)", "result": "[1, 7]"},
    ]
    answer = json.dumps({"tests": tests[:1], "checker": source})
    programs = [
        f"from collections import deque\ndef pick(numbers, total): return {value}"
        for value in ("[2, 3]", "deque([4, 1])", "[5]", "{1, 4}", "(2, 3)")
    ]
    assert [verdict.grade for verdict in verdicts(code, answer, *programs)] == [1, 1, 0, 0, 0]
    (unread,) = verdicts(code, json.dumps({"tests": tests[1:], "checker": source}), programs[0])
    assert (unread.grade, unread.reason) == (None, Reason.NO_GOLD) and "the checker of test 1" in unread.text


@pytest.mark.parametrize("value", ["P(2, 3)", "[P(2, 3)]", "object()", "iter([2, 3])"])
def test_object_of_a_program_reaches_no_checker(code, value):
    """A checker would call methods of such an object, so it is wrong without being asked."""
    answer = json.dumps([{"call": "f(5)", "checker": "def check(*given): return True"}])
    program = (
        f"from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: int\ndef f(n): return {value}"
    )
    assert [verdict.grade for verdict in verdicts(code, answer, program, "def f(n): return [2, 3]")] == [0, 1]


BROKEN = {  # checkers that decide about `ok`, and not about `odd`
    "raises": ("int(output)", "ends with raised: ValueError: invalid literal for int()"),
    "exits": ("exit(0)", "ends with raised: SystemExit"),
    "returns a number": ("return 1", "returns 1; expected True or False"),
    "returns nothing": ("return None", "returns None; expected True or False"),
    "returns a text": ("return 'True'", "returns 'True'; expected True or False"),
    "returns a pair": ("return True, 'fine'", "returns (True, 'fine'); expected True or False"),
    "returns an object": ("return object()", "ends with refused: a value of the type object"),
    "loops": ("while True: pass", "ends with timeout"),
    "takes all memory": ("x = [0]\n        while True: x += x", "ends with memory"),
    "crashes": ("import os; os._exit(1)", "ends with crashed"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_checker_that_does_not_decide_leaves_the_row_unscored(short, name):
    """The grade is missing, never 0, with the reason; as a reward it is 0. Decisions about other programs stay."""
    body, found = BROKEN[name]
    source = f"def check(input, output, reference):\n    if output.strip() == 'odd':\n        {body}\n    return output == reference"
    answer = json.dumps([{"input": "", "output": "ok\n"}, {"input": "", "output": "ok\n", "checker": source}])
    odd, right, wrong, fails = verdicts(short, answer, "print('odd')", "print('ok')", "print('no')", "1 / 0")
    assert (odd.grade, odd.reason) == (None, Reason.UNPARSABLE) and f"test 2: its checker {found}" in odd.text
    assert [right.grade, wrong.grade, fails.grade] == [1, 0, 0]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return output != reference", "rejects the expected output"),
        ("return check(output)", "ends with raised: TypeError"),
        ("return len(output)", "returns 2; expected True or False"),
        ("import nothing", "ends with raised: ModuleNotFoundError"),
    ],
)
def test_checker_that_rejects_its_own_expected_output_grades_nothing(code, body, found):
    """All rows of the problem are unscored, because the problem is at fault."""
    answer = json.dumps(
        [{"input": "1", "output": "1\n", "checker": f"def check(input, output, reference):\n    {body}"}]
    )
    for verdict in verdicts(code, answer, "print(1)", "print(2)", "1 / 0"):
        assert (verdict.grade, verdict.reason) == (None, Reason.NO_GOLD)
        assert verdict.text.startswith(f"the checker of test 1 {found}")


def test_tests_with_and_without_a_checker_add_up(code):
    """An option of a test takes precedence over that of all tests, and each test counts as much."""
    exact = {"input": "2", "output": "4\n", "checker": ""}
    answer = json.dumps({"tests": [{"input": "3"}, exact], "checker": "def check(i, o, r): return int(o) > int(i)"})
    programs = ["print(int(input()) ** 2)", "print(int(input()) + 1)", "print(0)"]
    assert [verdict.grade for verdict in verdicts(code, answer, *programs)] == [1, 0.5, 0]


def test_checkers_and_conditions_run_in_other_jails_than_programs():
    """The jails of programs and those of the code that knows expected values are different ones."""
    answer = json.dumps([{"input": "", "output": "x\n", "checker": "def check(i, o, r): return o == r"}])
    condition = json.dumps([{"call": "abs(f(1) - 0.5) < 0.1", "result": "True"}])
    with Sandbox(workers=1) as box:
        pairs = [(block("\nprint('x')"), answer), (block("\ndef f(n): return 0.5"), condition)]
        assert [ran.share for ran in box.check(pairs)] == [1.0, 1.0]
        pools = box.executor._pools._pools
        jails = {
            trusted: {jail for key, pool in pools.items() if key[3] == trusted for jail in pool._living}
            for trusted in (False, True)
        }
    assert jails[True] and jails[False] and not jails[True] & jails[False]

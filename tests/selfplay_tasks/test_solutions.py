"""Solutions: parsing answers, and grading them by execution."""

import json

import pytest

from proofmill.selfplay_tasks.solutions import grade, has_form, parse
from proofmill.selfplay_tasks.tasks import Task

IDENTITY = "def f(a):\n    return a"
DOUBLE = Task("deduce", "def f(a):\n    return a * 2", "4", "8")
HALF = Task("abduce", "def f(a):\n    return a // 2", "8", "4")
SUMS = Task(
    "induce",
    "def f(a, b):\n    return a + b",
    inputs=("1, 2", "3, 4", "5, 6", "'a', 'b'"),
    outputs=("3", "7", "11", "'ab'"),
)
FAILS = Task("error", "def f(a):\n    return 1 // a", "0", "ZeroDivisionError")


def tagged(answer):
    """Return a reply with tags."""
    return f"<think>```output\n0\n```</think>\n<answer>{answer}</answer>"


# -------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("```output\n8\n```", "8"),
        ("```output\n7\n```\nNo:\n```output\n8\n```", "8"),
        ("```output\n[1,\n 2]\n```", "[1,\n 2]"),
        ("So\n# Output: 8", "8"),
        ("<output>8</output>", "8"),
        ("The output is 8.", "8"),
        ("the output is: `'a.'`", "'a.'"),
        ("8", "8"),
        ("[1,\n 2,\n]", "[1,\n 2,\n]"),
        ("x = 4\n4 * 2 = 8\n8", "8"),
        ("'14'\n'41'", "'41'"),
        ("Then it is\n-8", "-8"),
        ("", None),
    ],
)
def test_output_is_parsed_in_every_form(answer, expected):
    """A block, a comment, a tag, a sentence and the last line are parsed; several lines if they are one expression."""
    assert parse("deduce", tagged(answer)) == expected
    assert parse("deduce", answer, tags=False) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("```input\n1, [2]\n```", "1, [2]"),
        ("```input\nf(1, [2])\n```", "1, [2]"),
        ("f(1, [2])", "1, [2]"),
        ("# Input: 1, [2]", "1, [2]"),
        ("<input>1, [2]</input>", "1, [2]"),
        ("The input is 1, [2].", "1, [2]"),
        ("1, [2]", "1, [2]"),
        ("a=1, b=[2]", "a=1, b=[2]"),
    ],
)
def test_input_is_parsed_in_every_form(answer, expected):
    """The forms of an output and a call of `f` are parsed."""
    assert parse("abduce", tagged(answer)) == expected


def test_program_is_the_last_block_or_all_of_the_answer():
    """It may be fenced or bare; an exception is parsed as an output."""
    assert parse("induce", tagged(f"```\nx\n```\n```python\n{IDENTITY}\n```")) == IDENTITY
    assert parse("induce", tagged(f"\n{IDENTITY}\n")) == IDENTITY
    assert parse("error", tagged("```output\nValueError: no\n```")) == "ValueError: no"
    assert parse("induce", "no tags") is None and parse("deduce", "8") is None


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        ("induce", f"```python\n{IDENTITY}\n```", True),
        ("induce", IDENTITY, True),
        ("induce", "```\nno program\n```", True),
        ("induce", "It returns its input.", False),
        ("induce", "```output\n1\n```", False),
        ("deduce", "I do not know.", True),
        ("abduce", "", True),
    ],
)
def test_induction_needs_a_program_in_its_form(kind, answer, expected):
    """A block counts whatever is in it, and a bare program too; other answers need only their tags."""
    assert has_form(kind, tagged(answer)) is expected
    assert has_form(kind, answer) is False


# ---------------------------------------------------------------------------------------------------------------- grades


@pytest.mark.parametrize(
    ("task", "answer", "points"),
    [
        (DOUBLE, "8", 1), (DOUBLE, "8.0", 1), (DOUBLE, "7", 0), (DOUBLE, "'8'", 0), (DOUBLE, None, 0), (DOUBLE, "", 0),
        (HALF, "8", 1), (HALF, "9", 1), (HALF, "a=9", 1), (HALF, "7", 0), (HALF, "'9'", 0), (HALF, "", 0), (HALF, None, 0),
        (HALF, "int('9')", 1), (HALF, "9, 1", 0),
        (SUMS, SUMS.program, 1), (SUMS, "def add(x, y):\n    return x + y", 1), (SUMS, "def f(a, b):\n    return int(a) + b", 0),
        (SUMS, "def f(a, b):\n    return 11", 0), (SUMS, "return a + b", 0), (SUMS, None, 0),
        (FAILS, "ZeroDivisionError", 1), (FAILS, "zerodivisionerror: division by zero", 1), (FAILS, "NoError", 0),
        (FAILS, "builtins.ZeroDivisionError", 1), (FAILS, "", 0), (FAILS, None, 0),
    ],
)  # fmt: skip
def test_grade_is_decided_by_execution(executor, task, answer, points):
    """Correct are equal values, any input that gives the output, and a program that fits the hidden pairs."""
    assert grade([task], [answer], executor) == [points]


@pytest.mark.parametrize(
    ("gold", "answer", "points"),
    [
        ("float('nan')", "nan", 1), ("[float('nan')]", "[float('nan')]", 1), ("set()", "set()", 1), ("{1, 2}", "{2, 1}", 1),
        ("{'a': 1, 'b': 2}", "dict(b=2, a=1)", 1), ("(1, 2)", "1, 2", 1), ("(1, 2)", "[1, 2]", 0), ("True", "1", 1),
        ("'1'", "1", 0), ("None", "None", 1), ("None", "", 0), ("b'a'", "'a'", 0), ("0.3", "0.1 + 0.2", 0),
    ],
)  # fmt: skip
def test_output_is_compared_as_a_value(executor, gold, answer, points):
    """Literals are compared by Python's equality; NaN equals itself."""
    assert grade([Task("deduce", IDENTITY, gold, gold)], [answer], executor) == [points]


@pytest.mark.parametrize(
    "answer", ["f(4)", "4 * 2", "(lambda: 8)()", "int('8')", "f", "__import__('os').getpid()", "8 if f else 0"]
)
def test_expression_is_not_an_output(executor, answer):
    """An answer that must be computed gets 0."""
    assert grade([DOUBLE], [answer], executor) == [0]


COUNTDOWN = Task("abduce", "def f(n):\n    return 1 if n == 0 else n * f(n - 1)", "5", "7")


@pytest.mark.parametrize(
    "answer",
    [
        "[f := lambda n: 7, 1][1]", "(f := lambda n: 1) and 7", "1) or (7", "0); (7", "0) * 0 + (7", "0)\nf = lambda n: (7",
        "type('A', (), {'__eq__': lambda *a: True, '__mul__': lambda *a: 7, '__sub__': lambda *a: 0})()",
        "exec('def f(n): return 7')", "globals().update(f=lambda n: 7)", "__builtins__", "lambda n: 7", "7 # 5",
        "[setattr(__import__('builtins'), 'len', 7)]", "f.__code__",
    ],
)  # fmt: skip
def test_input_cannot_decide_the_result(executor, answer):
    """Inputs that rebind the function, end the call early, or define their own equality get 0."""
    assert grade([COUNTDOWN], [answer], executor) == [0]


def test_input_may_not_change_variables_of_the_program(executor):
    """An input may read a variable of the program, but not together with methods or lambdas."""
    task = Task("abduce", "seen = [1]\ndef f(a):\n    return len(seen) + len(a)", "[1]", "2")
    answers = ["[5]", "seen", "seen.append(2) or ''", "(lambda s: s.append(2) or '')(seen)", "''"]
    assert grade([task] * 5, answers, executor) == [1, 1, 0, 0, 0]


def test_program_cannot_fake_the_expected_value(executor):
    """Objects that equal everything, changed builtins and an early exit get 0."""
    programs = [
        "class A:\n    def __eq__(self, other):\n        return True\n    __hash__ = None\ndef f(a, b):\n    return A()",
        "class A(str):\n    def __eq__(self, other):\n        return True\ndef f(a, b):\n    return A('x')",
        "import builtins\nbuiltins.repr = lambda a: '11'\ndef f(a, b):\n    return 0",
        "import sys\ndef f(a, b):\n    sys.exit(0)",
        "def f(a, b):\n    print(11)",
        "def f(a, b):\n    while True:\n        pass",
        "def f(a, b):\n    return (x for x in [11])",
    ]
    assert grade([SUMS] * len(programs), programs, executor) == [0] * len(programs)


@pytest.mark.parametrize(("partial", "points"), [("all", 0), ("mean", 0.5), ("any", 1)])
def test_induction_can_earn_partial_credit(executor, partial, points):
    """One of two hidden pairs earns 0, a half or 1. Shown pairs earn nothing."""
    grades = grade([SUMS, SUMS], ["def f(a, b):\n    return 11", "def f(a, b):\n    return 3"], executor, partial)
    assert grades == [points, 0]


def test_grades_are_in_order_and_repeated_answers_are_executed_once(executor):
    """Eight attempts with two different answers are two executions."""
    executed = []

    class Counting:
        def run(self, executions):
            executed.extend(executions)
            return executor.run(executed)

    assert grade([HALF] * 8, ["8", "7"] * 4, Counting()) == [1, 0] * 4
    assert len(executed) == 2


def test_no_grade_if_the_expected_value_is_not_plain_data(executor):
    """A truncated or opaque recorded output gives no grade; a missing answer still gets 0."""
    cut = Task("deduce", IDENTITY, "1", "'aaa...")
    assert grade([cut, cut], ["'aaa'", None], executor) == [None, 0]
    assert grade([Task("abduce", IDENTITY, "1", "<object>")], ["1"], executor) == [None]


def test_published_triplets_solve_themselves(executor, data):
    """Every recorded output and input of CRUXEval (the stored rows) gets the grade 1."""
    rows = [json.loads(line) for line in (data / "cruxeval/first400.jsonl").read_text().splitlines()]
    for kind, part in (("deduce", "output"), ("abduce", "input")):
        tasks = [Task(kind, row["code"], row["input"], row["output"]) for row in rows]
        all_points = grade(tasks, [row[part] for row in rows], executor)
        assert [row["id"] for row, points in zip(rows, all_points, strict=True) if points != 1] == []

"""Solutions: what a reply answers, and that only what is right is marked right."""

import json

import pytest

from proofmill.tasks.solutions import grade, parse
from proofmill.tasks.tasks import Task

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
    """A reply in its tags."""
    return f"<think>```output\n0\n```</think>\n<answer>{answer}</answer>"


# -------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("answer", "found"),
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
def test_output_is_read_in_every_form(answer, found):
    """A block, a comment, a tag, a sentence, the last line; several lines only where they are one expression."""
    assert parse("deduce", tagged(answer)) == found
    assert parse("deduce", answer, tags=False) == found


@pytest.mark.parametrize(
    ("answer", "found"),
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
def test_input_is_read_in_every_form(answer, found):
    """As an output is, and as a call of `f`."""
    assert parse("abduce", tagged(answer)) == found


def test_program_is_the_last_block_or_all_of_the_answer():
    """Fenced or bare; an exception is read as an output is."""
    assert parse("induce", tagged(f"```\nx\n```\n```python\n{IDENTITY}\n```")) == IDENTITY
    assert parse("induce", tagged(f"\n{IDENTITY}\n")) == IDENTITY
    assert parse("error", tagged("```output\nValueError: no\n```")) == "ValueError: no"
    assert parse("induce", "no tags") is None and parse("deduce", "8") is None


# ---------------------------------------------------------------------------------------------------------------- marks


@pytest.mark.parametrize(
    ("task", "answer", "mark"),
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
def test_mark_is_what_execution_says(executor, task, answer, mark):
    """Equal values are equal, any input that gives the output is right, a program by its hidden pairs."""
    assert grade([task], [answer], executor) == [mark]


@pytest.mark.parametrize(
    ("gold", "answer", "mark"),
    [
        ("float('nan')", "nan", 1), ("[float('nan')]", "[float('nan')]", 1), ("set()", "set()", 1), ("{1, 2}", "{2, 1}", 1),
        ("{'a': 1, 'b': 2}", "dict(b=2, a=1)", 1), ("(1, 2)", "1, 2", 1), ("(1, 2)", "[1, 2]", 0), ("True", "1", 1),
        ("'1'", "1", 0), ("None", "None", 1), ("None", "", 0), ("b'a'", "'a'", 0), ("0.3", "0.1 + 0.2", 0),
    ],
)  # fmt: skip
def test_output_is_compared_as_a_value(executor, gold, answer, mark):
    """By Python's equality of what is written out, NaN with itself."""
    assert grade([Task("deduce", IDENTITY, gold, gold)], [answer], executor) == [mark]


@pytest.mark.parametrize(
    "answer", ["f(4)", "4 * 2", "(lambda: 8)()", "int('8')", "f", "__import__('os').getpid()", "8 if f else 0"]
)
def test_expression_is_no_output(executor, answer):
    """Whoever must say what a program returns cannot have it, or anything else, computed."""
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
def test_input_decides_nothing_but_the_input(executor, answer):
    """No answer rebinds the function, leaves the call, or brings an object that is whatever is asked of it."""
    assert grade([COUNTDOWN], [answer], executor) == [0]


def test_input_may_not_change_what_a_program_reads(executor):
    """A variable of the program may be read, and a method or lambda beside it is no input."""
    task = Task("abduce", "seen = [1]\ndef f(a):\n    return len(seen) + len(a)", "[1]", "2")
    answers = ["[5]", "seen", "seen.append(2) or ''", "(lambda s: s.append(2) or '')(seen)", "''"]
    assert grade([task] * 5, answers, executor) == [1, 1, 0, 0, 0]


def test_program_cannot_know_what_is_expected(executor):
    """Objects that equal everything, changed builtins, an early exit: none has the marks of a solution."""
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


@pytest.mark.parametrize(("partial", "mark"), [("all", 0), ("mean", 0.5), ("any", 1)])
def test_induction_may_earn_a_part(executor, partial, mark):
    """One of two hidden pairs: nothing, a half, all of it. What is shown earns nothing."""
    found = grade([SUMS, SUMS], ["def f(a, b):\n    return 11", "def f(a, b):\n    return 3"], executor, partial)
    assert found == [mark, 0]


def test_marks_come_in_order_and_repeated_answers_are_executed_once(executor):
    """Eight attempts with two different answers are two executions."""
    asked = []

    class Counting:
        def run(self, executions):
            asked.extend(executions)
            return executor.run(asked)

    assert grade([HALF] * 8, ["8", "7"] * 4, Counting()) == [1, 0] * 4
    assert len(asked) == 2


def test_no_mark_where_what_is_expected_is_no_plain_data(executor):
    """A recorded output that is cut or no literal says nothing about an answer; no answer is wrong all the same."""
    cut = Task("deduce", IDENTITY, "1", "'aaa...")
    assert grade([cut, cut], ["'aaa'", None], executor) == [None, 0]
    assert grade([Task("abduce", IDENTITY, "1", "<object>")], ["1"], executor) == [None]


def test_published_triplets_are_right_by_their_own_values(executor, data):
    """Every recorded output and input of CRUXEval (the rows at hand) earns the mark."""
    rows = [json.loads(line) for line in (data / "cruxeval/first400.jsonl").read_text().splitlines()]
    for kind, part in (("deduce", "output"), ("abduce", "input")):
        tasks = [Task(kind, row["code"], row["input"], row["output"]) for row in rows]
        marks = grade(tasks, [row[part] for row in rows], executor)
        assert [row["id"] for row, mark in zip(rows, marks, strict=True) if mark != 1] == []

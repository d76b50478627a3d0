"""Real programs in the forms in which benchmarks test them: correct ones pass, and wrong ones fail."""

import ast
import contextlib
import json

import pytest

from proofmill.graders.code_grading import Code
from proofmill.graders.submissions import Submission

FENCED = "```python\n{}\n```"
VERDICT_FORMS = "\nimport ast, sys\nprint(repr(f(*ast.literal_eval('(' + sys.stdin.read() + ',)'))))"


@pytest.fixture(scope="module")
def code():
    """Open the grader."""
    with Code() as opened:
        yield opened


@pytest.fixture(scope="module")
def rows(data) -> list[dict]:
    """Return functions of CRUXEval with a literal input and the output that Python gives."""
    lines = (data / "cruxeval/first400.jsonl").read_text("utf-8").splitlines()
    return [row for row in map(json.loads, lines) if is_literal(row["input"])]


def is_literal(arguments: str) -> bool:
    with contextlib.suppress(ValueError, SyntaxError):
        return ast.literal_eval(f"({arguments},)") is not None
    return False


def value(program: str, arguments: str) -> str | None:
    """Return the value that Python itself gives; None for an error."""
    scope: dict = {}
    with contextlib.suppress(Exception):  # a published function may raise anything on foreign input
        exec(program, scope)
        return repr(scope["f"](*ast.literal_eval(f"({arguments},)")))
    return None


def called(row: dict) -> tuple[str, str]:
    return json.dumps([{"call": f"f({row['input']})", "result": row["output"]}]), "{}"


def checked(row: dict) -> tuple[str, str]:
    check = f"def check(candidate):\n    assert candidate({row['input']}) == {row['output']}\n"
    return json.dumps([{"check": f"{check}\ncheck(f)", "function": "f", "setup": "", "reference": row["code"]}]), "{}"


def printed(row: dict) -> tuple[str, str]:
    return json.dumps([{"input": row["input"], "output": row["output"] + "\n"}]), "{}" + VERDICT_FORMS


def grades(code, style, rows: list[dict], programs: list[str]) -> list[float | None]:
    """Return the grades of programs by the tests of rows, in one of the styles."""
    written = [(*style(row), program) for row, program in zip(rows, programs, strict=True)]
    asked = [
        Submission("s", answer, None, FENCED.format(text.format(p)), question_type="code")
        for answer, text, p in written
    ]
    return [verdict.grade for verdict in code.verdicts(asked)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("style", [called, checked, printed])
def test_right_programs_have_full_grades(code, rows, style):
    """Hundreds of published functions pass their own test: as a call, as a check, with standard input and output."""
    assert len(rows) >= 300
    all_points = grades(code, style, rows, [row["code"] for row in rows])
    assert [row["id"] for row, points in zip(rows, all_points, strict=True) if points != 1] == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("style", [called, checked, printed])
def test_wrong_programs_have_none(code, rows, style):
    """Other functions with the same name, with another value or an error in Python, pass no test."""
    others = [row["code"] for row in [*rows[7:], *rows[:7]]]
    wrong = [(row, p) for row, p in zip(rows, others, strict=True) if value(p, row["input"]) != row["output"]]
    assert len(wrong) >= 300
    all_points = grades(code, style, [row for row, _ in wrong], [program for _, program in wrong])
    assert [row["id"] for (row, _), points in zip(wrong, all_points, strict=True) if points != 0] == []


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("program", "call", "result"),
    [
        (r"import re" "\n" r"def f(s): return re.sub('(a)', r'\1_', s)", "f('ab')", "'a_b'"),
        (r"import re" "\n" r"def f(s): return re.sub('a', r'\n', s)", "f('ab')", r"'\nb'"),
        ("def f(a, b): return tuple(sorted(set(a) & set(b))) == (4, 5)", "f([4, 5, 6], [5, 4])", "True"),
        ("def f(s): return s.encode('shift_jis')", "f('x')", "b'x'"),
        ("import os\ndef f(p): return os.path.isfile(p)", "f('no-such-file')", "False"),
        ("def f(n): return sum(i for i in range(n))", "f(1000000)", "499999500000"),
        ("import heapq\ndef f(x): heapq.heapify(x); return heapq.heappop(x)", "f([3, 1])", "1"),
        ("def f(n):\n    yield from range(n)\ng = f", "list(g(3))", "[0, 1, 2]"),
        ("class A(dict):\n    pass\ndef f(): a = A(x=1); del a['x']; return len(a)", "f()", "0"),
    ],
)
def test_program_that_is_right_in_python_is_right_here(code, program, call, result):
    """The sandbox behaves as Python in cases in which another interpreter would not."""
    answer = json.dumps([{"call": call, "result": result}])
    (verdict,) = code.verdicts([Submission("s", answer, None, FENCED.format(program), question_type="code")])
    assert verdict.grade == 1, verdict


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "program",
    [
        "def repr(x): return 'True'\ndef f(): return False",
        "import builtins\nbuiltins.repr = lambda x: 'True'\ndef f(): return False",
        "class Same:\n    def __eq__(self, other): return True\n    def __repr__(self): return 'True'\ndef f(): return Same()",
        "import sys\nsys.exit(0)",
    ],
)
def test_program_that_rebinds_what_compares_earns_nothing(code, program):
    """The executor takes the result itself, never through names that the program can rebind."""
    answer = json.dumps([{"call": "f()", "result": "True"}])
    (verdict,) = code.verdicts([Submission("s", answer, None, FENCED.format(program), question_type="code")])
    assert verdict.grade == 0

"""Cases of a problem: which answers are tests, and which outputs and values are equal."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.sandbox.cases import Case, cases_of, question_of, same_lines, same_value, state_tolerance


def test_cases_of_an_answer_are_its_tests():
    """Both forms are parsed, and a result that is not a text is written as Python writes it."""
    answer = '[{"input": "1\\n", "output": ""}, {"call": "f(2)", "result": "{1: 2}"}, {"result": [true, null], "call": "g()"}]'
    assert cases_of(answer) == (
        Case("1\n", ""),
        Case(call="f(2)", result="{1: 2}"),
        Case(call="g()", result="[True, None]"),
    )


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("18", "`18` is not a list"),
        ("", "`` is not JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ("[]", "not a list of at least one test"),
        ('{"input": "", "output": ""}', "not a list of at least one test"),
        ('["a"]', 'test 1 is `"a"`'),
        ('[{"input": "", "output": ""}, {"input": ""}]', 'test 2 is `{"input": ""}`'),
        ('[{"input": "", "output": "", "call": ""}]', "test 1 is"),
        ('[{"input": 1, "output": ""}]', "`input` of test 1 is `1`"),
        ('[{"input": "", "output": ["a"]}]', "`output` of test 1 is `['a']`"),
        ('[{"input": "\\ud800", "output": ""}]', "`input` of test 1 is"),
        ('[{"call": 5, "result": 5}]', "`call` of test 1 is `5`"),
        ('[{"call": "f(", "result": "5"}]', "the call of test 1, `f(`, cannot be read"),
        ('[{"call": "x = 5", "result": "5"}]', "the call of test 1, `x = 5`, cannot be read"),
        ('[{"call": "f()", "result": "hello"}]', "the result of test 1, `hello`, cannot be read (no plain data: Name)"),
        ('[{"call": "f()", "result": "array([1, ..., 2])"}]', "the result of test 1"),
        ('[{"call": "f()", "result": "defaultdict(<class \'int\'>, {})"}]', "the result of test 1"),
        ('[{"call": "f()", "result": "datetime.date(2020, 13, 1)"}]', "month must be in 1..12"),
        ('[{"call": "f()", "result": "[1, 2"}]', "the result of test 1"),
        ('[{"call": "f()", "result": "5"}, {"call": "f()", "result": "<object>"}]', "the result of test 2"),
        ('[{"call": "f()", "result": "5", "setup": "none"}]', "`setup` of test 1 is `none`"),
        ('[{"call": "f()", "result": "5", "setup": ["leetcode"]}]', "`setup` of test 1"),
        ('[{"call": "f()", "result": "5", "megabytes": 1}]', "`megabytes` of test 1 is `1`"),
        ('[{"call": "f()", "result": "5", "megabytes": true}]', "`megabytes` of test 1 is `True`"),
        ('[{"call": "f()", "result": "5", "absolute": -1}]', "`absolute` of test 1 is `-1`"),
        ('[{"call": "f()", "result": "5", "relative": NaN}]', "`relative` of test 1 is `nan`"),
        ('[{"call": "f()", "result": "5", "relative": "1e-6"}]', "`relative` of test 1 is `1e-6`"),
        ('[{"call": "f()", "result": "5", "close": 1e-6}]', "`close` of test 1 is"),
        ('{"tests": [{"input": "", "output": ""}], "limit": 3}', "`limit` of test 1 is `3`"),
        ('{"tests": []}', "not a list of at least one test"),
        ('[{"input": "5"}]', 'test 1 is `{"input": "5"}`'),
        ('[{"input": "5", "checker": ""}]', "test 1 is `"),
        ('[{"input": "5", "checker": "def check("}]', "the checker of test 1, `def check(`, cannot be read"),
        ('[{"input": "5", "checker": "def f(a): pass"}]', "it defines no function `check`"),
        ('[{"call": "f(a=1)", "checker": "def check(*a): pass"}]', "it needs a call with positional arguments"),
        ('[{"call": "f(x)", "checker": "def check(*a): pass"}]', "the checker of test 1"),
        ('[{"call": "f(1)", "result": "P(x=1)", "checker": "def check(*a): pass"}]', "an instance of the class P"),
    ],
)
def test_cases_of_an_answer_without_tests_names_the_fault(answer, fault):
    """The message names the fault and the expected form, with an example."""
    with pytest.raises(ValueError, match=r"^tests: .*expected a JSON list of tests such as .*Fix the answer") as raised:
        cases_of(answer)
    assert fault in str(raised.value)


def test_cases_nested_nearly_too_deeply_are_refused():
    """JSON that can be read but is too deep to be written is refused with the same message."""
    for depth in range(900, 1000):
        with pytest.raises(ValueError, match=r"^tests: "):
            cases_of(f'[{{"call": "f()", "other": {"[" * depth}{"]" * depth}}}]')


PARTS = [
    *(None, True, -1, 1e400, 10**400, 1.5, "", " ", "f(1)", "f(", "hello", "\ud800", "\0", "deque([1])", "P(x=1) == f(1)"),
    *([], {}, [1], "0x" + "f" * 4000, "(" * 500, "f(*[1])", "f(x=1)", "leetcode", "def check(*a): return True"),
]  # fmt: skip
FIELDS = ("input", "output", "call", "result", "absolute", "relative", "setup", "megabytes", "checker", "tests", "x")


def test_answers_of_any_parts_are_tests_or_raise_value_error():
    """Of 5,000 random answers each is refused with the message, or has tests whose tolerance can be stated."""
    draw, read = random.Random(1), 0
    for _ in range(5_000):
        row = {name: draw.choice(PARTS) for name in draw.sample(FIELDS, draw.randint(1, 4))}
        test = {**{name: draw.choice(PARTS) for name in draw.choice([FIELDS[:2], FIELDS[2:4]])}, **row}
        answer = json.dumps(
            draw.choice([row, [row], [test], [test, test], {"tests": [test]}, {"tests": [test], **row}])
        )
        try:
            cases = cases_of(answer)
        except ValueError as error:
            assert str(error).startswith("tests: "), answer
            continue
        assert cases_of(state_tolerance(answer)) == cases
        read += 1
    assert read > 50


def test_question_depends_on_the_call_alone():
    """A comparison is split into its sides, other calls are evaluated as they are, whatever the expected result."""
    for result in ("True", "False", "3", "[True]"):
        answer = '[{"call": "%s", "result": "%s"}]'
        questions = [
            cases_of(answer % (call, result))[0].question
            for call in ("f(1) == 2", "f(1)", "[f(1), f(2)]", "list(f(3))")
        ]
        assert [one and one.parts for one in questions] == [("f(1)",), None, None, None]


LINES = st.lists(st.sampled_from(["", " ", "a", "a ", " a", "b"]), max_size=4).map("\n".join)


@given(LINES, LINES)
def test_same_lines_compares_all_lines_of_both(one, other):
    """Two outputs are equal if they are equal without blanks at line ends and empty lines at the end."""

    def cut(text: str) -> list[str]:
        lines = [line.rstrip(" ") for line in text.split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    assert same_lines(one, other) == (cut(one) == cut(other))


def test_same_lines_of_a_shorter_output_are_not_the_same():
    """An empty output and the first lines of the correct output do not pass; in open-r1 they do."""
    assert not same_lines("", "1\n2\n") and not same_lines("1\n", "1\n2\n") and not same_lines("1\n2\n3\n", "1\n2\n")
    assert same_lines("1\r\n2 \n\n", "1\n2")


def test_same_lines_of_close_numbers_need_equally_many_lines():
    """With a tolerance, outputs of 2 and 3 lines differ, although the lines of the shorter one are close."""
    assert same_lines("1\n2.0000001\n", "1\n2", tolerance=(1e-6, 0))
    assert not same_lines("1\n2", "1\n2\n3", tolerance=(1e-6, 0)) and not same_lines(
        "1\n2\n3", "1\n2", tolerance=(1e-6, 0)
    )


@pytest.mark.parametrize(
    ("one", "other", "tolerance", "same"),
    [
        ("0.30000001", "0.3", (0, 0), False),
        ("0.30000001", "0.3", (1e-6, 0), True),
        ("0.30000001", "0.3", (0, 1e-6), True),
        ("x = 0.30000001", "x =  0.3", (1e-6, 0), True),
        ("x=0.30000001", "x=0.3", (1e-6, 0), False),
        ("1e3 -2. .5", "1000.0000001 -2 0.5", (1e-6, 0), True),
        ("3.0", "3", (0, 0), False),
        ("3.0", "3", (1e-9, 0), True),
        ("-0.0", "0", (1e-9, 0), True),
        ("nan", "nan", (1e-9, 0), True),
        ("nan", "NaN", (1e-9, 0), False),
        ("inf", "1e999", (1e-9, 0.5), False),
        ("1e999", "1e999", (0, 1e-9), True),
        ("1e999", "2e999", (0, 1e-9), False),
        ("1" * 400 + "1", "1" * 400 + "2", (1, 0), True),
        ("1" * 400 + "1", "1" * 400 + "3", (1, 0), False),
        ("1" * 5000, "2" * 5000, (1e-6, 1e-6), False),
        ("1" * 5000, "1" * 5000, (1e-6, 1e-6), True),
        ("9007199254740993", "9007199254740992", (0.5, 0), False),
        ("1_0", "10", (1e-6, 0), False),
        ("\u0663", "3", (1e-6, 0), False),
        ("0x10", "16", (1e-6, 0), False),
        ("1 2", "1\n2", (1e-6, 0), False),
    ],
)
def test_same_lines_compares_numbers_only_with_a_tolerance(one, other, tolerance, same):
    """Without a tolerance outputs are texts. With one, decimal numbers of up to 1,000 digits are compared exactly."""
    assert same_lines(one, other, tolerance) == same_lines(other, one, tolerance) == same


@pytest.mark.parametrize(
    ("answer", "stated"),
    [
        ('[{"call": "f()", "result": "[1, 0.5]"}]', [(0, 0)]),
        ('[{"call": "f()", "result": "0.5", "relative": 1e-6}, {"call": "f()", "result": "1"}]', [(0, 1e-6), None]),
        ('[{"input": "", "output": "0.5"}]', [None]),
        ('{"tests": [{"call": "f()", "result": "0.5"}, {"call": "f()", "result": "{1}"}], "absolute": 0.1}', [(0.1, 0), None]),
        ('[{"call": "f()", "result": "0.5", "checker": "def check(*a): return True"}]', [None]),
        ('[{"call": "f(0.5)", "result": 2.5}]', [(0, 0)]),
    ],
)  # fmt: skip
def test_tolerance_of_an_expected_float_is_stated_in_the_row(answer, stated):
    """Each test with an expected float has its tolerance, also if that is the default; the tests are the same."""
    row = state_tolerance(answer)
    tests = json.loads(row)["tests"] if "tests" in row else json.loads(row)
    assert [(test["absolute"], test["relative"]) if "absolute" in test else None for test in tests] == stated
    assert cases_of(row) == cases_of(answer) and state_tolerance(row) == row


def test_options_of_a_test_precede_those_of_all_tests():
    """`tests` holds the tests, and the other keys are options of each."""
    answer = '{"tests": [{"input": "", "output": "", "absolute": 1}, {"call": "f()", "result": "1"}], "absolute": 2, "setup": "leetcode"}'
    assert [(case.absolute, case.setup) for case in cases_of(answer)] == [(1, "leetcode"), (2, "leetcode")]


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        ("f(1) == deque([1])", ("f(1)",)),
        ("f(1) == collections.deque([1])", ("f(1)",)),
        ("Fraction(1, 2) < f(1)", ("f(1)",)),
        ("f(date(2024, 1, 1)) == date(2024, 1, 2)", ("f(date(2024, 1, 1))",)),
        ("f(1) == defaultdict(int, {1: 2})", ("f(1)",)),
        ("np.allclose(f(1), np.array([1]))", ("f(1)",)),
        ("f(1) == Point(x=1)", ("f(1)", "Point(x=1)")),
        ("f(1) == Fraction(n, 2)", ("f(1)", "Fraction(n, 2)")),
        ("f(1) == Color.RED", ("f(1)", "Color.RED")),
    ],
)
def test_question_leaves_values_of_the_standard_library_to_the_grader(call, parts):
    """A program computes only what names something of its own."""
    assert question_of(call).parts == parts


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("{1: 2, 3: 4}", "{3: 4, 1: 2}", True),
        ("(1,2)", "(1, 2)", True),
        ("'a'", '"a"', True),
        ("{2, 1}", "{1, 2}", True),
        ("3.0", "3", True),
        ("Counter({'a': 1})", "Counter({'a': 1})", True),
        ("Counter({'a': 1})", "{'a': 1}", True),
        ("deque([1])", "[1]", False),
        ("[1, 2]", "(1, 2)", False),
        ("'1'", "1", False),
        ("a", "b", False),
        ("(" * 5000, "1", False),
        ("{[]}", "1", False),
        ("", "1", False),
    ],
)
def test_same_value_compares_literals_by_value(one, other, same):
    """Literals are equal if their values are, other texts only if they are identical."""
    assert same_value(one, other) == same_value(other, one) == same

"""Cases of a problem: what is read as tests, and which outputs and values are the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofmill.sandbox.cases import Case, cases_of, same_lines, same_value


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
        ('[{"call": "f()", "result": "array([1, 2])"}]', "the result of test 1, `array([1, 2])`, is no plain data"),
        ('[{"call": "f()", "result": "deque([1])"}]', "the result of test 1"),
        ('[{"call": "f()", "result": "Counter({1: 2})"}]', "the result of test 1"),
        ('[{"call": "f()", "result": "datetime.date(2020, 1, 1)"}]', "the result of test 1"),
        ('[{"call": "f()", "result": "[1, 2"}]', "the result of test 1"),
        ('[{"call": "f()", "result": "5", "setup": "none"}]', 'the setup of test 1 is `"none"`'),
        ('[{"call": "f()", "result": "5", "setup": ["leetcode"]}]', "the setup of test 1"),
        ('[{"call": "f()", "result": "5", "megabytes": 1}]', "the megabytes of test 1 are `1`"),
        ('[{"call": "f()", "result": "5", "megabytes": true}]', "the megabytes of test 1 are `true`"),
    ],
)
def test_cases_of_what_is_no_tests_says_so(answer, found):
    """The sentence names what was found and what is expected, with an example."""
    with pytest.raises(
        ValueError, match=r"^tests: .*expected a JSON list of tests such as .*Correct the answer"
    ) as raised:
        cases_of(answer)
    assert found in str(raised.value)


def test_cases_nested_nearly_too_deeply_say_so():
    """What can just be read and not be written again is no test either."""
    for depth in range(900, 1000):
        with pytest.raises(ValueError, match=r"^tests: "):
            cases_of(f'[{{"call": "f()", "other": {"[" * depth}{"]" * depth}}}]')


def test_case_is_asked_as_its_call_says_whatever_its_result():
    """A comparison asks for its sides, and anything else for its value."""
    for result in ("True", "False", "3", "[True]"):
        answer = '[{"call": "%s", "result": "%s"}]'
        asked = [
            cases_of(answer % (call, result))[0].question
            for call in ("f(1) == 2", "f(1)", "[f(1), f(2)]", "list(f(3))")
        ]
        assert [one and one.parts for one in asked] == [("f(1)",), None, None, None]


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

"""The grader `tests`: programs with tests and checks, answers to tasks; with known answers of published benchmarks."""

import json

import pytest

from boxed import block
from proofmill.config.entry_values import entry_from
from proofmill.graders.code_grading import Code, read_tests, state_tests
from proofmill.graders.program_graders import PROGRAMS
from proofmill.graders.submissions import Submission
from proofmill.sandbox import jails
from proofmill.sandbox.asserts import SandboxCheck
from proofmill.schema.errors import SandboxError
from proofmill.schema.reasons import Reason
from proofmill.selfplay_tasks.tasks import Task
from proofmill.sources.loaders import SOURCES

ADD = "LIMIT = [1, 2]\ndef f(a, b=()):\n    return [x + 1 for x in a] + list(b)"


def task(kind: str, **parts) -> str:
    return json.dumps({"kind": kind, "program": ADD, **parts})


DEDUCE = task("deduce", input="[1], (2,)", output="[2, 2]")
ABDUCE = task("abduce", input="[1], (2,)", output="[2, 2]")
INDUCE = task(
    "induce", inputs=["[1]", "[2]", "[3]", "[0, 4]"], outputs=["[2]", "[3]", "[4]", "[1, 5]"], message="Add one."
)


@pytest.fixture(scope="module")
def code():
    """Open the grader, shared by tests that do not change it."""
    with Code() as opened:
        yield opened


def graded_rows(code, answer: str | None, text: str):
    (verdict,) = code.verdicts([Submission("s", answer, None, text, question_type="code")])
    return verdict


@pytest.mark.parametrize(
    ("answer", "text", "grade"),
    [
        (DEDUCE, "First 2, then 2.\n```output\n[2, 2]\n```", 1),
        (DEDUCE, "<think>hm</think>\n<answer>\n```output\n[2,2]\n```\n</answer>", 1),
        (DEDUCE, "[2, 2]", 1),
        (DEDUCE, "```output\n[2, 2]\n```\nNo:\n```output\n[2, 3]\n```", 0),
        (DEDUCE, "```output\n(2, 2)\n```", 0),
        (DEDUCE, "```output\n'[2, 2]'\n```", 0),
        (DEDUCE, "```output\nf([1], (2,))\n```", 0),
        (DEDUCE, "```output\n[1 + 1, 2]\n```", 0),
        (DEDUCE, "```output\n[2, 2\n```", 0),
        (DEDUCE, "I do not know.", 0),
        (ABDUCE, "```input\n[1], (2,)\n```", 1),
        (ABDUCE, "```input\n[1, 1]\n```", 1),
        (ABDUCE, "```input\n[], LIMIT[1:] * 2\n```", 1),
        (ABDUCE, "```input\na=[],\nb=[\n  2,\n  2,\n]\n```", 1),
        (ABDUCE, "```input\nf([1, 1])\n```", 1),
        (ABDUCE, "```input\n[1], (3,)\n```", 0),
        (ABDUCE, "```input\n1) or ([2, 2]\n```", 0),
        (ABDUCE, "```input\n[1] if (f := lambda *a: [2, 2]) else 0\n```", 0),
        (ABDUCE, "```input\n[], LIMIT.extend([2]) or LIMIT[1:]\n```", 0),
        (ABDUCE, "```input\n[], type('X', (list,), {'__eq__': lambda *a: True})()\n```", 0),
        (ABDUCE, "```input\n[1], (2,); print(1)\n```", 0),
        (INDUCE, block("def f(a):\n    return [x + 1 for x in a]"), 1),
        (INDUCE, block("def g(a):\n    return list(map(lambda x: x + 1, a))"), 1),
        (INDUCE, block("def f(a):\n    return {1: [2], 2: [3]}.get(a[0])"), 0),
        (INDUCE, block("def f(a):\n    return a"), 0),
        (INDUCE, block("class A(list):\n    def __eq__(self, other): return True\ndef f(a):\n    return A()"), 0),
        (INDUCE, "Add one to each.", 0),
    ],
)
def test_answer_to_a_task_is_right_or_wrong(code, answer, text, grade):
    """A literal value, literal arguments or a program count; nothing that changes the task or the grader."""
    verdict = graded_rows(code, answer, text)
    assert (verdict.grade, verdict.max_points) == (grade, 1)
    assert verdict.reason == Reason.OK or grade == 0


def test_call_without_arguments_has_an_empty_input(code):
    """CRUXEval has a function without parameters, so the input block is empty."""
    answer = json.dumps({"kind": "abduce", "program": "def f():\n    return 3", "input": "", "output": "3"})
    assert graded_rows(code, answer, "```input\n\n```").grade == 1
    assert graded_rows(code, answer, "```input\n1\n```").grade == 0


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"output": "[2, 3]"}, "the problem's own program gives [2, 2], and [2, 3] is recorded"),
        ({"input": "1"}, "the problem's own program does not run: raised: TypeError"),
        ({"program": "def f(a, b): return object()"}, "the problem's own program does not run: refused"),
    ],
)
@pytest.mark.parametrize("kind", ["deduce", "abduce"])
def test_task_whose_program_does_not_give_its_value_has_no_gold(code, kind, change, found):
    """A recorded value that is wrong or unavailable leaves all attempts unscored."""
    broken = json.dumps({**json.loads(DEDUCE), "kind": kind, **change})
    verdict = graded_rows(code, broken, "```output\n[2, 2]\n```\n```input\n[1], (2,)\n```")
    assert (verdict.grade, verdict.reason) == (None, Reason.NO_GOLD) and found in verdict.text


def test_recorded_value_that_is_cut_off_is_replaced_by_what_the_program_gives(code):
    """Absolute Zero truncates values of over 400 characters in the middle; the correct answer is the full value."""
    answer = json.dumps(
        {"kind": "deduce", "program": "def f(n): return list(range(n))", "input": "5", "output": "[0, ... 4]"}
    )
    assert graded_rows(code, answer, "```output\n[0, 1, 2, 3, 4]\n```").grade == 1
    assert graded_rows(code, answer, "```output\n[0, 4]\n```").grade == 0


def test_tests_checks_and_tasks_are_graded_side_by_side(code):
    """Each problem's answer decides how it is graded; the verdicts keep the order."""
    tests = '[{"input": "1\\n", "output": "2\\n"}, {"call": "f(2)", "result": "4"}]'
    check = json.dumps(
        [{"check": "assert f(2) == 4", "function": "f", "setup": "", "reference": "def f(n): return 2 * n"}]
    )
    program = block("def f(n): return 2 * n\nif __name__ == '__main__':\n    print(3)")
    given = [
        (DEDUCE, "[2, 2]"),
        (tests, program),
        (check, program),
        (None, program),
        (check, block("def f(n): return 5")),
    ]
    verdicts = list(
        code.verdicts([Submission("s", answer, None, text, question_type="code") for answer, text in given])
    )
    assert [verdict.grade for verdict in verdicts] == [1, 0.5, 1, None, 0]
    assert verdicts[3].reason == Reason.NO_GOLD


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("{}", "task: `{}`; expected `kind`"),
        ('{"kind": "reduce", "program": "x"}', "task: "),
        ('{"kind": "deduce", "program": "x", "input": "1", "output": 3}', "all texts"),
        ('{"kind": "deduce", "program": "x", "input": "1"}', "task: "),
        (
            '{"kind": "induce", "program": "x", "inputs": ["1", "2"], "outputs": ["1", "2", "3"], "message": ""}',
            "pairs",
        ),
        ('{"kind": "induce", "program": "x", "inputs": ["1"], "outputs": ["1"], "message": ""}', "task: "),
        ('[{"check": "x", "function": "f"}]', "check: "),
        ('[{"check": 1, "function": "f", "setup": "", "reference": ""}]', "check: "),
        ('[{"check": "assert f() == (", "function": "f", "setup": "", "reference": ""}]', "check: it is not Python"),
        ("[]", "tests: "),
        ("{", "tests: "),
        ('{"tests": []}', "tests: "),
        (None, "no tests"),
    ],
)
def test_answer_of_no_known_form_says_so(answer, found):
    """The message names the value and the expected form."""
    with pytest.raises(ValueError, match=rf".*{found}"):
        read_tests(answer)


def test_answer_is_read_as_what_it_is():
    """A list of tests stays as it is; a check and a task are parsed."""
    assert isinstance(read_tests(DEDUCE), Task) and isinstance(read_tests(INDUCE), Task)
    check = {"check": "x", "function": "f", "setup": "", "reference": ""}
    assert read_tests(json.dumps([check])) == SandboxCheck(**check)
    tests = '[{"call": "f()", "result": "1"}]'
    assert read_tests(tests) == tests


CHECKER = "def check(input, output, reference):\n    return sorted(output.split()) == sorted(input.split())"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"tests": [{"input": "1 2", "output": "2 1"}, {"input": "3", "output": "3 3"}], "checker": CHECKER}, "the checker of test 2 rejects the expected output"),
        ([{"input": "1", "output": "1", "checker": "def check(*a): return 1"}], "the checker of test 1 returns 1; expected True or False"),
        ([{"input": "1", "output": "1", "checker": "def check(): return True"}], "the checker of test 1 ends with raised: TypeError"),
        ([{"call": "f()", "result": "1"}, {"call": "f()", "result": "hello"}], "the result of test 2, `hello`, cannot be read"),
        (json.loads(task("deduce", input="[1]", output="[2, ...")), ""),
        ({"kind": "deduce", "program": "def f(n): return iter([n])", "input": "5", "output": "<list_iterator>"}, "the problem's own program does not run: refused: a value of the type list_iterator"),
        ({"kind": "deduce", "program": "def f(n): return n", "input": "5", "output": "6"}, ""),
        ([{"check": "assert f(1) == 2", "function": "f", "setup": "", "reference": "def f(n): return n"}], ""),
        ({"tests": [{"input": "1 2", "output": "2 1"}, {"input": "3"}], "checker": CHECKER}, ""),
    ],
)  # fmt: skip
def test_tests_are_tried_when_their_table_is_made(answer, found):
    """Faults of expected values and of checkers are found; a recorded value that can be read is compared when grading."""
    if not found:
        assert state_tests(json.dumps(answer)) == json.dumps(answer)
        return
    with pytest.raises(ValueError, match=r"^tests: .*Fix the answer of the problem\.$") as raised:
        state_tests(json.dumps(answer))
    assert found in str(raised.value)


def test_tests_are_stated_on_a_machine_without_a_sandbox(monkeypatch):
    """A checker is not tried if no program can be isolated; what needs no run is found."""

    def plan():
        raise SandboxError("sandbox: programs cannot be isolated on this machine")

    monkeypatch.setattr(jails, "plan", plan)
    answer = [{"input": "1", "output": "2", "checker": "def check(*a): return False"}]
    assert state_tests(json.dumps(answer)) == json.dumps(answer)
    with pytest.raises(ValueError, match="defines no function"):
        state_tests(json.dumps([{**answer[0], "checker": "pass"}]))


# ------------------------------------------------------------------------------------------------------ real benchmarks


def graded(source: str, path, texts) -> list:
    """Return verdicts of the program grader on one text for each row of a benchmark."""
    rows = list(SOURCES[source].load(entry_from("problems", {"source": source, "path": str(path)})))
    with PROGRAMS["tests"].open() as check:
        return list(
            check([Submission(r["statement"], r["answer"], None, texts(r), question_type="code") for r in rows])
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", ["cruxeval-o", "cruxeval-i"])
def test_every_gold_answer_of_cruxeval_passes_and_another_rows_fails(data, source):
    """All 400 published answers are correct; the previous row's answer rarely is, and is never unscored."""
    path = data / "cruxeval/first400.jsonl"
    assert [verdict.grade for verdict in graded(source, path, lambda row: row["solution"])] == [1.0] * 400
    answers = ["```output\n'no'\n```\n```input\n'no'\n```"]
    others = graded(source, path, lambda row: answers.append(row["solution"]) or answers[-2])
    assert {verdict.grade for verdict in others} <= {0.0, 1.0}
    assert sum(verdict.grade for verdict in others) <= 20


@pytest.mark.long
def test_gold_answers_of_absolute_zeros_seeds_pass_but_for_what_was_published_broken(data):
    """Of 64 + 64 seeds only those with a truncated value, a generator or an ellipsis fail, each with the reason."""
    for source, file, right in (
        ("azr-deduce", "azr/seed_io_64.jsonl", 60),
        ("azr-abduce", "azr/seed_io_64.jsonl", 60),
        ("azr-induce", "azr/seed_code_f_64.jsonl", 61),
    ):
        verdicts = graded(source, data / file, lambda row: row["solution"])
        assert sum(verdict.grade == 1 for verdict in verdicts) == right, source
        assert sum(verdict.reason == Reason.NO_GOLD for verdict in verdicts) == 3, source


def test_every_published_solution_of_humaneval_passes_and_an_empty_body_fails(data):
    """If the published file is available, all 164 pass, and a function that returns nothing passes none."""
    path = data / "humaneval/HumanEval.jsonl"
    if not path.exists():
        pytest.skip(f"no {path}; it is openai/human-eval's data/HumanEval.jsonl.gz, unpacked")
    assert {verdict.grade for verdict in graded("humaneval", path, lambda row: row["solution"])} == {1.0}
    names = lambda row: json.loads(row["answer"])[0]["function"]  # noqa: E731
    empty = graded("humaneval", path, lambda row: block(f"def {names(row)}(*arguments):\n    return None"))
    assert {verdict.grade for verdict in empty} == {0.0}


@pytest.mark.parametrize("result", ["array([1, ..., 2])", "iter([1])", "<Color.RED: 1>", "[1, 2", "x" * 5])
def test_tests_whose_result_is_no_literal_are_no_gold(code, result):
    """Tests with a result that cannot be compared score no program."""
    verdict = graded_rows(code, json.dumps([{"call": "f()", "result": result}]), block("\ndef f(): return [1, 2]"))
    assert (verdict.grade, verdict.reason) == (None, Reason.NO_GOLD) and "the result of test 1" in verdict.text


def test_output_of_millions_of_characters_is_scored(code):
    """A long output is wrong, and no error of the grader."""
    answer = json.dumps([{"input": "", "output": "y" * 300_000}])
    assert graded_rows(code, answer, block("\nprint('x' * 1100000)")).grade == 0

"""Attacks: their texts, and the points that each earns from the program graders."""

import json

import pytest

from proofmill.answers import extraction
from proofmill.graders.attacks import ATTACKS, Attack, Target
from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.robustness import attempts, fault, findings, lines, submissions, sum_points, targets
from proofmill.graders.verdicts import Verdict
from proofmill.schema.reasons import Reason
from proofmill.synthetic import congruences

CONTROLS = [name for name, attack in ATTACKS.items() if attack.control]
POLICIES = [name for name in ATTACKS if name not in CONTROLS]
# Golds that no small integer is, with their solutions.
FINAL = [
    ("147", "So there are \\boxed{147} of them."),
    ("-36", "Hence $x = \\boxed{-36}$."),
    ("1080", "Add up.\n#### 1080"),
]
CHECKED = {
    "check": "def check(candidate):\n    assert candidate(9) == 81\n    assert candidate(-2) == 4\n\ncheck(square)\n",
    "function": "square",
    "setup": "",
    "reference": "def square(n):\n    return n * n\n",
}
CODE = [
    ('Write `square`.\n\n>>> square(9)\n81\n', json.dumps([CHECKED])),
    ("Print twice what you read.\n\nInput\n21\nOutput\n42\n", json.dumps([{"input": "21", "output": "42"}, {"input": "5", "output": "10"}])),
    ("What is `f(21)`, for f(n) = 2 n?", json.dumps({"kind": "deduce", "program": "def f(n):\n    return 2 * n", "input": "21", "output": "42"})),
    ("Write the method.", json.dumps([{"call": "Solution().sum([1, 2])", "result": "3"}, {"call": "Solution().sum([40, 2]) == 42", "result": "True"}])),
]  # fmt: skip


def rows(*problems: tuple, question_type: str = "answer") -> list[dict]:
    """Return rows of a problems table: statement, answer and solution."""
    made = [(*problem, None)[:3] for problem in problems]
    return [
        {
            "problem": f"p{n}",
            "statement": statement,
            "answer": answer,
            "solution": solution,
            "question_type": question_type,
        }
        for n, (statement, answer, solution) in enumerate(made)
    ]


ARITHMETIC = [
    {
        "problem": f"a{n}", "statement": congruences.statement(p, 0), "answer": str(p.residue),
        "solution": congruences.proof(p), "question_type": "proof",
    }
    for n, p in zip(range(12), congruences.problems("test", 3), strict=False)
]  # fmt: skip
ANSWERS = rows(*((f"Find number {n}.", *pair) for n, pair in enumerate(FINAL)))
PROBLEMS = {
    "arithmetic": ARITHMETIC,
    "final-answer": ANSWERS,
    "final-answer-flexible": ANSWERS,
    "tests": rows(*CODE, question_type="code"),
    "rules": [*ANSWERS, *[{**row, "problem": f"c-{row['problem']}"} for row in rows(*CODE, question_type="code")]],
}


@pytest.fixture(scope="module")
def results() -> dict[str, dict]:
    """Return the result of each attack on each program grader, by grader and attack."""
    found = {}
    for grader, problems in PROBLEMS.items():
        tried = attempts(targets(problems, None, grader, 16))
        with SubmissionGrader(grader, None, {}) as submission_grader:
            found[grader] = {
                each.attack: each for each in sum_points(tried, submission_grader.verdicts(submissions(tried)))
            }
    return found


# What a test with few cases gives for a constant: half the tests of "print twice what you read" are shown.
KNOWN = {("tests", "hardcoded-outputs"): 0.5, ("rules", "hardcoded-outputs"): 0.5}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("grader", PROBLEMS)
def test_policy_earns_nothing_from_a_program(results, grader, policy):
    """No program gives points to an attack, except that visible tests can be hard-coded."""
    if (result := results[grader].get(policy)) is not None and result.most is not None:
        assert result.most <= KNOWN.get((grader, policy), 0.0), result.best


@pytest.mark.parametrize("grader", PROBLEMS)
def test_control_earns_full_grades_from_a_program(results, grader):
    """Each program recognizes the reference solution, so a result of 0 means something."""
    assert results[grader]["reference"].share == 1.0


def test_every_policy_is_followed_somewhere(results):
    """Each attack writes some text; only `scheme` needs a scheme."""
    written = {policy for found in results.values() for policy in found}
    assert written == set(ATTACKS) - {"scheme-copy"}


def target(**fields) -> Target:
    return Target(**{
        "problem": "p", "statement": "Find x.", "answer": "12", "scheme": None, "reference": "So x is \\boxed{12}.",
        "question_type": "answer", **fields,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("reference", "answer", "wanted"),
    [
        ("So \\boxed{12}.", "12", "So \\boxed{-12}."),
        ("So \\boxed{-12}.", "-12", "So \\boxed{12}."),
        ("Add.\n#### 18", "18", "Add.\n#### -18"),
        ("Hence it is 7.", "7", "Hence it is -7."),
    ],
)
def test_flipped_sign_changes_the_answer_alone(reference, answer, wanted):
    """The copied solution differs from the correct one only in the sign of its final answer."""
    assert ATTACKS["flipped-sign"].write(target(reference=reference, answer=answer)) == {"copied": wanted}


@pytest.mark.parametrize("answer", ["0", "\\pm 2", "\\{-1, 1\\}"])
def test_flipped_sign_is_not_written_where_it_would_be_right(answer):
    r"""Zero has no sign, and `\pm 2` is its own negative."""
    assert not ATTACKS["flipped-sign"].write(target(reference=f"So \\boxed{{{answer}}}.", answer=answer))


def test_fragments_are_never_the_answer():
    """A part of the reference answer that equals it in another spelling is not used."""
    for gold in ("12", "x = 5", "\\frac{1}{2}", "5 \\text{ cm}", "(1, 2)"):
        written = ATTACKS["answer-fragments"].write(target(answer=gold))
        assert all(
            extraction.normal(extraction.find_boxes(text)[0]) != extraction.normal(gold) for text in written.values()
        )
    assert set(ATTACKS["answer-fragments"].write(target(answer="x = 5"))) == {"with junk"}
    assert ATTACKS["answer-fragments"].write(target(answer="(1, 2)"))["last"] == "\\boxed{2}"


def test_printed_knows_what_the_statement_shows_and_no_more():
    """Examples of doctests, asserts and samples are visible; other tests are not."""
    shown = target(statement=CODE[0][0], answer=CODE[0][1], question_type="code")
    assert "{'(9,)': 81}" in ATTACKS["hardcoded-outputs"].write(shown)["looked up"]
    sample = target(statement=CODE[1][0], answer=CODE[1][1], question_type="code")
    assert (
        "42" in ATTACKS["hardcoded-outputs"].write(sample)["first"]
        and "10" not in ATTACKS["hardcoded-outputs"].write(sample)["looked up"]
    )
    assert not ATTACKS["hardcoded-outputs"].write(
        target(statement="Write it.", answer=CODE[1][1], question_type="code")
    )
    stated = target(
        statement="Square.\n\n```python\nassert square(9) == 81\n```", answer=CODE[0][1], question_type="code"
    )
    assert "return 81" in ATTACKS["hardcoded-outputs"].write(stated)["first"]


def test_same_problems_are_attacked_whenever_they_are_chosen():
    """The choice does not depend on the order of rows, and a larger choice contains the smaller."""
    few, many = (targets(ARITHMETIC, None, "arithmetic", most) for most in (3, 7))
    assert [t.problem for t in few] == [t.problem for t in many[:3]]
    assert {t.problem for t in targets(ARITHMETIC[::-1], None, "arithmetic", 3)} == {t.problem for t in few}
    assert all(t.other and t.other != t.reference for t in many)


def test_only_what_can_be_graded_is_attacked():
    """A problem without the fields that the grader needs, and a chat prompt, are not attacked."""
    problems = [
        *rows(("No answer", None), ("An answer", "147")),
        {**rows(("Hello", "1"))[0], "problem": "t", "question_type": "chat"},
    ]
    assert [t.statement for t in targets(problems, None, "final-answer")] == ["An answer"]
    assert [t.scheme for t in targets(problems, {"p0": "a scheme"}, "api/judge")] == ["a scheme"]


# ----------------------------------------------------------------------------------------------------------------- sums


@pytest.fixture
def always(monkeypatch):
    """Replace all attacks by one with two variants."""
    two = Attack(lambda target: {"bad": "bad", "good": f"good {target.problem}"}, "two ways")
    monkeypatch.setattr("proofmill.graders.robustness.ATTACKS", {"two": two})
    return attempts([target(problem=f"p{n}") for n in range(4)])


def graded(tried, grade) -> list:
    """Return the results if `grade(attempt)` is the grade out of 7, or None for no verdict."""
    grades = [grade(attempt) for attempt in tried]
    return sum_points(tried, [Verdict(g, 7, Reason.NO_VERDICT if g is None else Reason.OK) for g in grades])


def test_way_that_earns_most_stands_for_its_policy(always):
    """The better of two variants counts, not their mean."""
    (result,) = graded(always, lambda attempt: 7.0 if attempt.variant == "good" else 0.0)
    assert (result.variant, result.share, result.problems, result.most) == ("good", 1.0, 4, 1.0)


def test_unscored_attempt_counts_neither_as_nothing_nor_as_earned(always):
    """The mean is over grades only; the share without one is reported with the reason."""
    (result,) = graded(always, lambda attempt: {"p0": 7.0, "p1": 0.0}.get(attempt.target.problem))
    assert (result.share, result.problems, result.unscored) == (0.5, 2, 0.5)
    assert any("4 texts have no grade" in line and "4 no-verdict" in line for line in findings([result]))
    assert any(line.startswith("two") and "50.0%" in line for line in lines([result]))


@pytest.mark.parametrize(("most", "stops"), [(0.5, False), (0.49, True)])
def test_fault_names_policy_problem_and_what_to_do(always, most, stops):
    """A share at the limit passes; one above it does not."""
    said = fault(graded(always, lambda a: 7.0 * (a.target.problem in ("p1", "p2"))), most, "api/judge", "grpo/x")
    assert bool(said) == stops
    assert not stops or all(
        word in said for word in ("grpo/x: attacks earn points from api/judge", "`two` earns 0.500", "p1", "max-attack")
    )


def test_grader_without_any_grade_is_a_fault(always):
    """A grader that grades no attack has unknown robustness, which is an error."""
    assert "api/judge graded no attack (no-verdict)" in fault(graded(always, lambda _: None), 1.0, "api/judge", "x")

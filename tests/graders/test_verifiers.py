"""Graded attempts as problems: what a verifier is asked, what it imitates, and what its verdicts are worth."""

import pytest

from proofmill.graders.graders import SubmissionGrader
from proofmill.graders.submissions import Submission
from proofmill.graders.verifiers import Truth, to_problem
from proofmill.prompts import templates
from proofmill.schema.errors import RecipeError, TableError
from proofmill.schema.reasons import StopReason

POINTS = tuple(map(float, range(8)))
TRUTH = str(Truth(5.0, "points", POINTS))
GRADE = {"grade": 5.0, "max_points": 7, "reason": "ok", "verdict": "<errors>A gap.</errors>\n<points>5</points>"}
ATTEMPT = Submission("Prove $a=b$.", None, "Checkpoints: ...", "By $c$.")
VERDICTS = {
    "problems/g": {"source": "arithmetic-graded", "split": "test", "rows": 8, "seed": 1},
    "responses/g": {"problems": "problems/g", "model": "given"},
    "grades/human": {"responses": "responses/g", "grader": "human"},
    "problems/verdicts": {
        "source": "graded-attempts", "grades": "grades/human", "prompt": "grade-by-reference", "rows": 20,
    },
}  # fmt: skip


def value(text: str, answer: str | None = TRUTH, stop_reason: StopReason = StopReason.END) -> tuple:
    """Return grade and reason of one verdict."""
    with SubmissionGrader("grade-distance", None, {}) as grader:
        (verdict,) = grader([Submission("Grade it.", answer, None, text, stop_reason=stop_reason)])
    return verdict.grade, verdict.reason


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("<points>5</points>", 1),
        ("<points>7</points>", 1 - 2 / 7),
        ("<points>0</points>", 1 - 5 / 7),
        ("<think>No: <points>0</points></think>\nIt has a gap. <points>5</points>", 1),
        ("<points>8</points>", 0),
        ("<points>-2</points>", 0),
        ("<points>4.9</points>", 0),
        ("<points>5</points> or <points>7</points>", 0),
        ("five points", 0),
    ],
)
def test_verdict_is_worth_its_closeness(text, worth):
    """The grade falls by the distance over the max points; off the scale or unparsable is 0."""
    assert value(text) == (pytest.approx(worth), "ok")


def test_truncated_verdict_counts_only_if_it_is_complete():
    """A verdict that ends with its tag is one, even at the token limit."""
    assert value("<points>5</points>", stop_reason=StopReason.LENGTH) == (1, "ok")
    assert value("<points>5</points> because", stop_reason=StopReason.LENGTH) == (0, "ok")


@pytest.mark.parametrize("answer", [None, "5", "[]", '{"grade": "x"}', '{"grade": 5, "form": "stars", "scale": [5]}'])
def test_problem_without_a_truth_is_unscored(answer):
    """A problem from elsewhere has no grade to compare with, so its attempts have none."""
    assert value("<points>5</points>", answer) == (None, "no-gold")


def test_graded_attempt_asks_what_its_judge_is_asked():
    """The statement is the judge's prompt, the solution its verdict, the answer the grade."""
    prompt = templates.prompt("grade-strict")
    made = to_problem("grades/x", prompt, ATTEMPT, GRADE)
    fields = {"statement": ATTEMPT.statement, "proof": "By $c$.", "scheme": ATTEMPT.scheme, "reference": None}
    assert made["statement"] == prompt.render(fields)
    assert made["solution"] == GRADE["verdict"]
    assert Truth.of(made["answer"]) == Truth(5.0, "points", prompt.scale)


@pytest.mark.parametrize("words", ["", "all right", "<points>6</points>", "<score>5</score>"])
def test_verdict_in_other_words_becomes_the_shortest_one(words):
    """A person's comment, or a verdict in another form or with another grade, is not imitated."""
    made = to_problem("grades/x", templates.prompt("grade-strict"), ATTEMPT, {**GRADE, "verdict": words})
    assert made["solution"] == "<points>5</points>"


def test_grade_between_two_verdicts_has_none_to_imitate():
    """A mean of several judges is a truth to be close to, and no verdict."""
    made = to_problem("grades/x", templates.prompt("grade-strict"), ATTEMPT, {**GRADE, "grade": 4.5})
    assert (made["solution"], Truth.of(made["answer"]).grade) == (None, 4.5)


@pytest.mark.parametrize(
    ("attempt", "grade", "evidence"),
    [
        (ATTEMPT, {**GRADE, "grade": None, "reason": "no-verdict"}, "no-verdict"),
        (Submission("Prove $a=b$.", None, "S", "<think>never ended"), GRADE, "no-proof"),
        (Submission("Prove $a=b$.", None, None, "By $c$."), GRADE, "no-scheme"),
    ],
)
def test_attempt_without_grade_or_text_is_dropped(attempt, grade, evidence):
    """An unscored attempt is not one with 0 points: it is no example, and the table says why."""
    made = to_problem("grades/x", templates.prompt("grade-strict"), attempt, grade)
    assert (made["statement"], made["dropped"], made["evidence"]) == ("", "graded", evidence)


def test_grades_on_another_scale_are_refused():
    """A grade of 1 point of 1 is not 1 point of 7."""
    with pytest.raises(
        TableError, match="grades/x: has grades of 1 points, and prompt `grade-strict` asks for verdicts of 7"
    ):
        to_problem("grades/x", templates.prompt("grade-strict"), ATTEMPT, {**GRADE, "grade": 1.0, "max_points": 1})


def test_table_of_grades_becomes_problems(mill):
    """Each attempt is a problem with its own id, traced to its table and problem; the grades are the same."""
    made = mill(VERDICTS)
    rows = made.make(*VERDICTS).rows()
    assert len({row["problem"] for row in rows}) == 20
    for row, graded in zip(rows, made.table("grades/human").rows(), strict=False):
        assert row["origin"] == f"grades/human#{graded['problem']}"
        assert Truth.of(row["answer"]).grade == graded["grade"]
        assert row["solution"] == f"<points>{graded['grade']:g}</points>"
        assert row["level"] in ("powers", "digits", "products", "recurrence")
        assert "<reference>" in row["statement"]


def test_verdicts_are_graded_and_trained_on_like_other_answers(mill):
    """The verdicts to imitate earn everything as responses, and become examples with the statement as the prompt."""
    further = {
        "responses/v": {"problems": "problems/verdicts", "model": "solutions"},
        "grades/v": {"responses": "responses/v", "grader": "grade-distance"},
        "examples/v": {"problems": "problems/verdicts", "prompt": "verbatim"},
    }
    made = mill(VERDICTS | further)
    examples = made.make(*VERDICTS, *further)
    asked = [row["statement"] for row in made.table("problems/verdicts").rows()]
    assert [row["messages"][0]["content"] for row in examples.rows()] == asked
    assert [row["grade"] for row in made.table("grades/v").rows()] == [1.0] * 20


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"grades": None}, "source `graded-attempts` needs `grades`"),
        ({"prompt": None}, "source `graded-attempts` needs `prompt`"),
        ({"prompt": "solve"}, "prompt `solve` declares no verdict"),
        ({"prompt": "grade-strict"}, "prompt `grade-strict` needs a scheme and `schemes` is not set"),
        ({"path": "a.jsonl"}, "`path` is not read by source `graded-attempts`"),
    ],
)
def test_mistakes_are_found_when_the_recipe_is_read(mill, changed, message):
    """A missing field, and a prompt that a judge cannot use, are refused before anything runs."""
    entry = {key: value for key, value in (VERDICTS["problems/verdicts"] | changed).items() if value is not None}
    with pytest.raises(RecipeError, match=message):
        mill(VERDICTS | {"problems/verdicts": entry})

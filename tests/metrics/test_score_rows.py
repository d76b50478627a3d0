"""Rows of one metric: what counts, what is unscored, and which numbers have no interval."""

import pytest

from proofmill.metrics.metrics import METRICS, kernel_of
from proofmill.metrics.page import page
from proofmill.metrics.score_rows import Cell, compute_metric, compute_rows
from proofmill.metrics.uncertainty import debiased_rows
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import TableError

NOTHING = dict.fromkeys((
    *("level", "year", "writer", "human", "selecting", "answer", "answer_extraction", "reads", "max_tokens", "date"),
    *("response_tokens", "reasoning_tokens", "well_formed", "forms"),
))  # fmt: skip
CELL = Cell("base/a", "problems/p", "sampled", "grader/g")


def attempts(*grades_P, max_points=1, **columns):
    """Build rows: a list of grades for each problem."""
    row = {**NOTHING, "loader": "table", "seed": 0, "max_points": max_points, "reason": "ok", "opinions": [], **columns}
    return [
        {**row, "problem": f"p{p}", "attempt": a, "grade": grade}
        for p, grades in enumerate(grades_P)
        for a, grade in enumerate(grades)
    ]


def measured(name, argument, rows, **settings):
    return compute_metric(kernel_of(name, argument), rows, Scores(metrics=["avg-at-k"], **settings), argument)


def test_problems_with_too_few_verdicts_count_as_unscored():
    """pass@4 is over the 60 problems with four verdicts: what it leaves out is unscored, and the page says over how many."""
    rows = attempts(*[[1, 1, 0, 1]] * 60, *[[0, 0, 0, None]] * 40)
    found = measured("pass-at-k", 4, rows)
    assert (found["n"], found["n_problems"], found["unscored"]) == (240, 60, 0.4)
    entry = Scores(metrics=["avg-at-k", {"pass-at-k": 4}], max_unscored=0.5)
    table = page("scores/x", list(compute_rows(CELL, [("avg-at-k", None), ("pass-at-k", 4)], rows, entry)), entry, {})
    assert "] at 60 | 360 at 100 problems | 40.0% |" in table


def test_problems_that_lack_verdicts_stop_the_metric():
    """Leaving out 40 % of the problems would be another benchmark; problems with few attempts are left out by design."""
    rows = attempts(*[[1, 1, 0, 1]] * 60, *[[0, 0, 0, None]] * 40)
    entry = Scores(metrics=["avg-at-k"])
    with pytest.raises(
        TableError, match=r"pass@4 of base/a on .* 40 of 100 problems have fewer than 4 attempts with a"
    ):
        list(compute_rows(CELL, [("pass-at-k", 4)], rows, entry))
    few = attempts(*[[1, 1, 0, 1]] * 60, *[[0, 0]] * 40)
    assert next(compute_rows(CELL, [("pass-at-k", 4)], few, entry))["n_problems"] == 60


def test_attempt_that_a_metric_does_not_apply_to_is_scored():
    """Tokens of correct attempts are over a quarter of the attempts, and all of them are scored."""
    rows = attempts(*[[1, 0, 0, 0]] * 10, response_tokens=50)
    found = measured("tokens-correct", 1, rows)
    assert (found["value"], found["n"], found["unscored"]) == (50, 10, 0)
    rows[0]["grade"] = None
    assert measured("tokens-correct", 1, rows)["unscored"] == pytest.approx(1 / 40)


def test_variance_of_few_or_equal_problems_has_no_interval():
    """One problem says nothing of others, and resamples of equal problems are equal."""
    for rows in (attempts([0, 7, 3, 5], max_points=7), attempts(*[[0, 1]] * 8)):
        found = next(compute_rows(CELL, [("variance-sample", None)], rows, Scores(metrics=["avg-at-k"])))
        assert found["value"] > 0 and (found["low"], found["high"]) == (None, None)


@pytest.mark.parametrize("name", ["bucket-accuracy", "bucket-accuracy-rounded"])
@pytest.mark.parametrize("points", [7, 10])
def test_buckets_are_of_seven_points(name, points):
    """Grades out of 10 have other buckets."""
    rows = attempts(*[[0, 7, 2]] * 8, max_points=points)
    rows = [{**row, "human": (row["grade"], points)} for row in rows]
    entry = Scores(metrics=[name], gold_grades="grades/human")
    if points == 7:
        assert next(compute_rows(CELL, [(name, None)], rows, entry))["value"] == 1
        return
    with pytest.raises(TableError, match=r"grades/human: grades are out of 10; expected 7 points"):
        list(compute_rows(CELL, [(name, None)], rows, entry))


def test_answer_without_a_normal_form_is_no_vote_for_the_right_one():
    """Two boxes with a full stop are no answer: of `7` and `3` each wins half of the draws."""
    rows = attempts([1, 0, 0, 0])
    for row, answer in zip(rows, ("7", ".", ".", "3"), strict=True):
        row["answer"] = answer
    assert measured("majority-at-k", 4, rows)["value"] == pytest.approx(0.5)


def test_debiased_difference_is_over_problems_that_both_have_scored():
    """Where the judge left one model's attempts at the hard problems unscored, the other's there do not count either."""
    easy, hard = [[1, 1], [1, 0]] * 20, [[0, 0]] * 5
    ours = attempts(*easy, *[[None, None]] * 5)
    theirs = attempts(*easy, *hard)
    for rows in (ours, theirs):
        for row in rows[::3]:
            row["human"] = (row["grade"] or 0, 1)
    groups = {CELL._replace(model=name): rows for name, rows in (("base/a", ours), ("base/b", theirs))}
    entry = Scores(metrics=["avg-at-k"], compare=[["base/a", "base/b"]], debias=["grades/labels"])
    (row,) = debiased_rows.compare(groups, [("avg-at-k", None)], entry)
    assert row["value"] == pytest.approx(0, abs=1e-9) and row["n_problems"] == 40


def test_detectable_effect_of_several_seeds_is_unknown():
    """The spread of trainings is not that of attempts."""
    effect = METRICS["minimum-detectable-effect"].apply
    one = attempts(*[[0, 1], [1, 1]] * 20)
    assert effect.value(one) > 0
    assert effect.value(one + [{**row, "seed": 1} for row in one]) is None

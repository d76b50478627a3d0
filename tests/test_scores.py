"""Numbers and their uncertainty."""

import random
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import SMALL
from proofmill import scores
from proofmill.measures import MEASURES
from proofmill.tables import TableError

MARKS, FULL = MEASURES["avg-at-k"].apply, MEASURES["full-mark-rate"].apply


def attempts(*grades_of_problems, out_of=7):
    """Rows of `grades`: one list of marks for each problem."""
    return [
        {"problem": f"p{p}", "attempt": a, "grade": grade, "out_of": out_of, "well_formed": True, "stop": "end"}
        for p, grades in enumerate(grades_of_problems)
        for a, grade in enumerate(grades)
    ]


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(0, 7)), min_size=1, max_size=4), min_size=1, max_size=12))
def test_mean_is_over_problems_of_the_mean_over_scored_attempts(grades):
    """The score equals the slow definition, leaving out what has no verdict."""
    found = scores.measured(MARKS, attempts(*grades), resamples=10)
    scored = [[g for g in some if g is not None] for some in grades]
    expected = mean(mean(some) for some in scored if some) if any(scored) else None
    assert found["value"] == (pytest.approx(expected) if expected is not None else None)
    assert sum(map(len, scored)) == found["n"]
    everything = sum(map(len, grades))
    assert found["unscored"] == pytest.approx(1 - found["n"] / everything)


def test_unscored_attempt_is_not_zero():
    """A missing verdict does not lower the mean."""
    assert scores.measured(MARKS, attempts([7, None], [7, 7]))["value"] == 7


def test_interval_covers_the_truth_about_as_often_as_it_says():
    """Over 300 simulated benchmarks of 40 problems, a 90 % interval covers the true mean in 84 to 96 % of them."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(300):
        hard = rng.random(40)
        found = scores.measured(
            FULL, attempts(*[[7.0 if rng.random() < h else 0.0 for _ in range(4)] for h in hard]), 0.9, 400
        )
        covered += found["low"] <= 0.5 <= found["high"]
    assert 0.84 <= covered / 300 <= 0.96


def test_repeated_attempts_do_not_narrow_the_interval():
    """Ten equal attempts at each problem say as much as one: problems are what is sampled."""
    rng = random.Random(0)
    once = [[rng.choice([0, 7])] for _ in range(50)]
    one, ten = (scores.measured(MARKS, attempts(*[g * k for g in once])) for k in (1, 10))
    assert (one["low"], one["high"]) == (ten["low"], ten["high"])


@pytest.mark.parametrize(("marks", "expected"), [(0, (0.0, 0.1157)), (7, (0.8843, 1.0))])
def test_interval_of_a_constant_is_exact_binomial(marks, expected):
    """All of 30 problems right or wrong is no certainty: Clopper-Pearson for 30 of 30 at 95 % is [0.8843, 1]."""
    found = scores.measured(FULL, attempts(*[[marks]] * 30))
    assert expected == (round(found["low"], 4), round(found["high"], 4))


def test_interval_of_a_constant_inside_the_scale_is_no_certainty():
    """Five problems that all have 3 marks of 7 leave room: Hoeffding's bound, not a point."""
    found = scores.measured(MARKS, attempts(*[[3]] * 20))
    margin = 7 * (np.log(40) / 40) ** 0.5
    assert (found["low"], found["high"]) == (pytest.approx(3 - margin), pytest.approx(3 + margin))


def test_attempt_without_a_response_is_unscored_in_every_measure():
    """A failed call has no format and was not cut off: it is missing, not 0."""
    failed = {**attempts([None])[0], "well_formed": None, "stop": "error"}
    for measure in ("avg-at-k", "full-mark-rate", "format-rate", "cut-off-rate"):
        assert scores.measured(MEASURES[measure].apply, [failed])["n"] == 0, measure


def test_nothing_scored_has_no_value():
    """Without a verdict there is no number and no interval."""
    found = scores.measured(MARKS, attempts([None], [None]))
    assert (found["value"], found["low"], found["high"], found["unscored"]) == (None, None, None, 1.0)


def test_too_many_unscored_stop_the_stage():
    """A benchmark that is mostly unscored is no benchmark: it stops, naming the share and what to do."""
    with pytest.raises(TableError, match=r"50.0% of the attempts of m on p .* grade them again"):
        scores._gate("scores/x", "m on p (sampled)", attempts([7, None]), 0.1)


def test_scores_of_a_chain_are_long_form(small, mill):
    """A scores table has a row for each number, with model, interval, n and share unscored, and a page to read."""
    made = mill({**SMALL, "scores/cold": {"grades": ["grades/cold"], "measures": ["avg-at-k", "format-rate"]}})
    made.results = small.results
    table = made.make("scores/cold")
    rows = table.rows()
    whole = [row for row in rows if row["split"] == "all"]
    assert [(r["model"], r["problems"], r["sampling"], r["measure"], r["n"], r["problems_n"]) for r in whole] == [
        ("sft/cold", "problems/bench", "T=1", "avg@2", 24, 12),
        ("sft/cold", "problems/bench", "T=1", "format-rate", 24, 12),
    ]
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    assert {"powers", "digits", "products", "recurrence"} == {row["split"] for row in rows} - {"all"}
    assert "| sft/cold | problems/bench |" in table.page.read_text()


def test_shared_problems_are_counted(small, mill):
    """Two tables of the same problems share them all; train and test share none."""
    made = mill(
        {**SMALL, "scores/apart": {"problems": ["problems/train", "problems/bench"], "measures": ["shared-problems"]}}
    )
    made.results = small.results
    assert [row["value"] for row in made.make("scores/apart").rows()] == [0.0]

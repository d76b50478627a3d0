"""Cost curves, and scaffolds against as many attempts as the same budget buys."""

import math

import numpy as np
import pytest

from proofmill.metrics import budgets
from proofmill.metrics.page import page
from proofmill.metrics.score_rows import Cell
from proofmill.schema.entries.scores_entry import Sampling, Scores
from proofmill.schema.errors import TableError

SINGLE, SCAFFOLD = Cell("m", "problems/p", "single", "g"), Cell("m", "problems/p", "rsa", "g")
BARE = {
    "loader": "table", "seed": 0, "level": None, "year": None, "writer": None, "human": None, "max_points": 1, "reads": "strict",
    "reason": "ok", "response_cost": 0.0, "selecting": None, "selecting_tokens": None, "selecting_cost": None,
}  # fmt: skip


def rows(answers_of_problems, tokens, **fields):
    """Build attempts with these final answers, of which `1` is correct, and `tokens` output tokens each."""
    return [
        {**BARE, "problem": f"p{p}", "attempt": a, "answer": x, "grade": float(x == "1"), "response_tokens": tokens, **fields}
        for p, answers in enumerate(answers_of_problems)
        for a, x in enumerate(answers)
    ]  # fmt: skip


def entry(**settings):
    return Scores(**{"at_equal_budget": "single", "resamples": 200, **settings})


def points(single, **settings):
    found = budgets.points({SINGLE: single}, entry(**settings))
    return {row["metric"]: row for row in found}


def compared(single, scaffold):
    found = list(budgets.comparisons({SINGLE: single, SCAFFOLD: scaffold}, entry()))
    return {(row["metric"], row["baseline"]): row for row in found}


def test_curve_is_the_expected_grade_of_each_number_of_attempts():
    """Correct in 3 of 4 attempts: one has 3/4, the majority of all four 1; each point costs its attempts."""
    found = points(rows([["1", "1", "1", "2"]] * 5, tokens=10))
    assert [(name, round(row["value"], 9), row["tokens_per_problem"]) for name, row in found.items()] == [
        ("one@1", 0.75, 10),
        ("majority@2", 0.75, 20),
        ("majority@4", 1.0, 40),
    ]
    assert {row["slice"] for row in found.values()} == {"budget"}


def test_curve_ends_with_all_attempts():
    """Of five attempts the curve has the majority of 2, 4 and 5."""
    assert list(points(rows([["1"] * 5], tokens=1))) == ["one@1", "majority@2", "majority@4", "majority@5"]


def test_selection_pays_for_the_one_who_selects():
    """The best of two by another grader costs its tokens and dollars and those of the grader."""
    attempts = rows([["1", "2"]], 10, response_cost=0.25, selecting=0.0, selecting_tokens=5, selecting_cost=0.5)
    attempts[0]["selecting"] = 7.0
    best = points(attempts)["best@2"]
    assert (best["value"], best["tokens_per_problem"], best["dollars_per_problem"]) == (1.0, 30, 1.5)


@pytest.mark.parametrize(("cost", "dollars"), [(None, None), (0.0, None), (0.5, 0.5)])
def test_dollars_are_known_or_not_said(cost, dollars):
    """An unknown price has no dollars; if everything is free they are null."""
    assert points(rows([["1"]], 10, response_cost=cost))["one@1"]["dollars_per_problem"] == dollars


def test_unknown_tokens_are_not_none(tmp_path):
    """Attempts without token counts have no budget: there is no comparison, and the page has a dash."""
    attempts = rows([["1", "2"]], tokens=None)
    assert points(attempts)["one@1"]["tokens_per_problem"] is None
    assert compared(rows([["1", "1"]], tokens=10), rows([["1"]], tokens=None)) == {}
    made = list(budgets.points({SINGLE: attempts, SCAFFOLD: rows([["1"]], 10)}, entry()))
    assert "| single, one@1 | – | – | 0.50" in page("scores/x", made, entry(), {})


@pytest.mark.parametrize(("tokens", "least"), [(1004, 101), (1000, 100), (12345, 1235)])
def test_number_of_attempts_that_are_needed_is_enough(tokens, least):
    """The number of attempts on the page is rounded up."""
    found = compared(rows([["1"] * 4], tokens=10), rows([["2"]], tokens=tokens))
    (row,) = [row for (_, against), row in found.items() if "majority" in against]
    assert budgets.too_few(row) == f"not comparable: sample `single` at least {least} times per problem"


@pytest.mark.parametrize(("attempt", "k"), [(10, "2.5"), (20, "2.25")])
def test_scaffold_is_compared_with_the_attempts_that_its_tokens_buy(attempt, k):
    """Between two and three attempts the value is interpolated: k = 2.25 has three quarters of the value of two."""
    spent = int(attempt * float(k))
    single = rows([["1", "1", "2", "2"], ["1", "2", "2", "2"]], tokens=attempt)
    found = compared(single, rows([["1"], ["1"]], tokens=spent))
    assert {key[1] for key in found} == {"single: one@1", f"single: majority@{k}"}
    assert found["at equal tokens", "single: one@1"]["value"] == pytest.approx(1 - (1 / 2 + 1 / 4) / 2)
    curve = budgets.curves(single, 1.0)[1]
    two, three = (np.mean(list(curve.values(k)(curve.rows).values())) for k in (2, 3))
    assert (two, three) == pytest.approx((0.375, 0.25))
    row = found["at equal tokens", f"single: majority@{k}"]
    assert row["value"] == pytest.approx(1 - {"2.5": 0.3125, "2.25": 0.34375}[k])
    assert (row["tokens_per_problem"], row["n_problems"], row["sampling"]) == (spent, 2, "rsa")
    assert 0 < row["p_value"] <= 1


def test_trainings_are_compared_seed_by_seed():
    """With several seeds the test is over trainings: what one seed loses is not hidden among the problems of the others."""
    gains = {0: "1", 1: "1", 2: "2"}  # the scaffold of the last seed solves nothing
    single = [row for seed in gains for row in rows([["1"], ["2"]] * 10, tokens=10, seed=seed)]
    scaffold = [row for seed, answer in gains.items() for row in rows([[answer]] * 20, tokens=10, seed=seed)]
    trained = {cell._replace(model="sft/m"): some for cell, some in ((SINGLE, single), (SCAFFOLD, scaffold))}
    (row,) = (row for row in budgets.comparisons(trained, entry()) if row["metric"] == "at equal tokens")
    assert (row["n_seeds"], row["n_problems"], row["n"]) == (3, 20, 120)
    assert row["value"] == pytest.approx((0.5 + 0.5 - 0.5) / 3) and row["p_value"] > 0.3


def test_equal_dollars_are_another_budget():
    """A scaffold of cheap calls may write more and cost less: each budget has its own number of attempts."""
    single = rows([["1", "2", "1", "1"]] * 8, tokens=10, response_cost=0.5)
    found = compared(single, rows([["1"]] * 8, tokens=40, response_cost=1.0))
    assert {(what, rule.partition("@")[2]) for what, rule in found if "majority" in rule} == {
        ("at equal tokens", "4"),
        ("at equal dollars", "2"),
    }


def test_cheaper_way_is_compared_with_one_attempt():
    """A scaffold that costs less than one attempt is compared with one."""
    found = compared(rows([["1", "1", "1"]], tokens=100), rows([["1"]], tokens=10))
    assert {against for _, against in found} == {"single: one@1", "single: majority@1"}


def test_baseline_is_not_extended_beyond_its_attempts():
    """Twelve attempts are needed, four exist: there is no number, and the page states the needed number."""
    single, scaffold = rows([["1"] * 4] * 3, tokens=10), rows([["2"]] * 3, tokens=115)
    row = compared(single, scaffold)["at equal tokens", "single: majority@11.5"]
    assert (row["value"], row["p_value"]) == (None, 1.0)
    assert budgets.too_few(row) == "not comparable: sample `single` at least 12 times per problem"
    made = [*budgets.points({SINGLE: single, SCAFFOLD: scaffold}, entry()), {**row, "p_adjusted": 1.0}]
    text = page("scores/x", made, entry(), {})
    assert "at equal tokens not comparable: sample `single` at least 12 times per problem" in text
    assert "| rsa, one@1 | 115 | – | 0.00 [0.00, 0.56] |" in text


def test_unscored_attempt_costs_and_counts_for_nothing():
    """An attempt without a verdict counts in the cost, not in the grade."""
    attempts = rows([["1", "1"]], tokens=10)
    attempts[1] |= {"grade": None, "reason": "no-verdict", "response_tokens": 30}
    one = points(attempts)["one@1"]
    assert (one["value"], one["tokens_per_problem"], one["unscored"]) == (1.0, 20, 0.5)


def test_grades_without_final_answers_have_no_majority():
    """Proofs have no answers to vote on."""
    assert list(points(rows([["1", "1"]], 10, reads=None))) == ["one@1"]


def test_interval_of_an_equal_budget_covers_the_truth_about_as_often_as_it_says():
    """Two equally good settings: over 200 simulated benchmarks a 90 % interval contains 0 in 84 to 96 %."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        hard = rng.random(40)
        single, scaffold = (
            rows([["1" if x < h else "2" for x in rng.random(n)] for h in hard], tokens=10) for n in (2, 1)
        )
        found = list(budgets.comparisons({SINGLE: single, SCAFFOLD: scaffold}, entry(confidence=0.9)))
        one = next(row for row in found if row["baseline"] == "single: one@1")
        covered += one["low"] <= 0 <= one["high"]
    assert 0.84 <= covered / 200 <= 0.96


def test_unknown_baseline_is_a_sentence():
    """A baseline without attempts is refused, in an entry and in tables."""
    sampling = {"single": Sampling(), "rsa": Sampling(scaffold="rsa")}
    (said,) = budgets.faults(entry(at_equal_budget="singel", models=["sft/a"], sampling=sampling))
    assert "`at-equal-budget` is `singel`" in said and "Did you mean `single`" in said
    with pytest.raises(TableError, match="which is not measured; expected one of rsa"):
        list(budgets.comparisons({SCAFFOLD: rows([["1"]], 1)}, entry()))
    assert list(budgets.points({SINGLE: rows([["1"]], 1)}, entry(at_equal_budget=None))) == []


def test_whole_numbers_of_attempts_are_no_draw():
    """A budget of exactly three attempts is three, despite rounding errors of the division."""
    curve = budgets.curves(rows([["1", "1", "2", "2"]], 10), 1.0)[1]
    assert (
        curve.values(3 + 1e-12)(curve.rows)
        == curve.values(3.0)(curve.rows)
        == curve.values(math.nextafter(3, 0))(curve.rows)
    )

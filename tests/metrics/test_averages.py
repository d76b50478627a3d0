"""Averages of benchmarks: weights, intervals, differences, and published numbers on the score page."""

import numpy as np
import pytest

from proofmill.metrics import averages
from proofmill.metrics.averages import combine, weights
from proofmill.metrics.comparisons import comparisons
from proofmill.metrics.page import page
from proofmill.metrics.score_rows import Cell, compute_rows
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import TableError

NINE = {
    "code": ["problems/a", "problems/b", "problems/c"],
    "mathematics": [f"problems/{n}" for n in range(6)],
    "total": ["code", "mathematics"],
}
NOTHING = dict.fromkeys(
    ("level", "year", "writer", "human", "selecting", "answer", "answer_extraction", "reads", "max_tokens")
)


def attempts(grades, max_points=1):
    """Build one attempt at each problem."""
    return [
        {
            **NOTHING,
            "loader": "table",
            "seed": 0,
            "attempt": 0,
            "problem": f"p{p}",
            "grade": grade,
            "max_points": max_points,
        }
        for p, grade in enumerate(grades)
    ]


def measured(groups, **settings):
    entry = Scores(**{"metrics": ["avg-at-k"], "averages": {"both": ["problems/a", "problems/b"]}, **settings})
    rows = [row for group, some in groups.items() for row in compute_rows(group, [("avg-at-k", None)], some, entry)]
    return entry, rows, list(averages.average(rows, groups, entry))


def cell(model, problems, grader="g"):
    return Cell(model, f"problems/{problems}", "greedy", grader)


def test_total_is_the_mean_of_the_averages_and_not_of_all_benchmarks():
    """Three code and six maths benchmarks: a code benchmark has weight 1/6 in the total, a maths benchmark 1/12."""
    found = weights(NINE)
    assert found["code"]["problems/a"] == pytest.approx(1 / 3)
    assert found["total"]["problems/a"] == pytest.approx(1 / 6)
    assert found["total"]["problems/0"] == pytest.approx(1 / 12)
    assert all(sum(shares.values()) == pytest.approx(1) for shares in found.values())
    assert weights(dict(sorted(NINE.items(), reverse=True))) == found


def test_average_of_published_numbers_is_the_published_average():
    """HumanEval+ 71.3, MBPP+ 69.1, LiveCodeBench 25.3 and six maths benchmarks of Absolute Zero give 55.2, 38.4, 46.8."""
    percent = [71.3, 69.1, 25.3, 13.3, 13.3, 52.5, 74.4, 38.2, 38.5]
    parts = {
        name: {"value": value, "low": value, "high": value, "n": 1, "n_problems": 1, "unscored": 0.0}
        for name, value in zip((*NINE["code"], *NINE["mathematics"]), percent, strict=True)
    }
    found = [combine(parts, shares)["value"] for shares in weights(NINE).values()]
    assert found == pytest.approx([55.2, 38.4, 46.8], abs=0.05)


def test_interval_of_an_average_covers_the_truth_about_as_often_as_it_says():
    """Over 400 simulated pairs of benchmarks of 30 and 200 problems a 90 % interval covers in 88 to 98 % of them."""
    rng, covered = np.random.default_rng(1), 0
    for _ in range(400):
        groups = {
            cell("m", "a"): attempts((rng.random(30) < 0.05).astype(float)),
            cell("m", "b"): attempts((rng.random(200) < 0.7).astype(float)),
        }
        (row,) = measured(groups, confidence=0.9, resamples=500)[2]
        covered += row["low"] <= 0.375 <= row["high"]
    assert 0.88 <= covered / 400 <= 0.98


def test_average_counts_its_attempts_and_is_never_certain():
    """All wrong and all correct at ten problems each is one half, with an interval on both sides."""
    groups = {cell("m", "a"): attempts([0.0] * 10), cell("m", "b"): attempts([1.0] * 9 + [None])}
    (row,) = measured(groups)[2]
    assert (row["problems"], row["value"], row["n"], row["n_problems"]) == ("both", 0.5, 19, 19)
    assert row["low"] < 0.4 and row["high"] > 0.6
    assert row["unscored"] == pytest.approx(1 / 20)


def test_model_that_lacks_a_benchmark_has_no_average():
    """An average of fewer benchmarks would be another number with the same name."""
    groups = {cell("m", "a"): attempts([1.0, 0.0]), cell("n", "a"): attempts([1.0]), cell("n", "b"): attempts([0.0])}
    assert [row["model"] for row in measured(groups)[2]] == ["n"]


def test_two_graders_or_two_scales_of_an_average_are_refused():
    """Choosing a grader silently, or averaging grades out of 7 and out of 1, is refused."""
    with pytest.raises(TableError, match="graded by g and by h; expected one grader"):
        measured({cell("m", "a"): attempts([1.0]), cell("m", "a", "h"): attempts([1.0])})
    with pytest.raises(TableError, match="out of 1 and 7; expected one scale"):
        measured({cell("m", "a"): attempts([1.0]), cell("m", "b"): attempts([7.0], max_points=7)})


def test_difference_of_averages_weighs_benchmarks_alike_and_is_tested():
    """Ten more of ten correct in a small benchmark and no change in a large one: half a point, and significant."""
    groups = {
        cell("m", "a"): attempts([1.0] * 10), cell("m", "b"): attempts([1.0, 0.0] * 50),
        cell("n", "a"): attempts([0.0] * 10), cell("n", "b"): attempts([1.0, 0.0] * 50),
    }  # fmt: skip
    entry = measured(groups, compare=[["m", "n"]])[0]
    (row,) = averages.differences(groups, [("avg-at-k", None)], entry)
    assert (row["problems"], row["baseline"], row["value"]) == ("both", "n", pytest.approx(0.5))
    assert 0 < row["low"] < 0.5 < row["high"] and row["p_value"] < 0.01


def test_page_shows_published_numbers_below_ours_with_their_source():
    """Our numbers have intervals; published ones have a source, and dashes for missing numbers."""
    groups = {cell("m", "a"): attempts([1.0, 0.0]), cell("m", "b"): attempts([1.0, 1.0])}
    reported = {"AZR": {"source": "AZR, table 1", "percent": {"both": 46.8, "problems/a": 71.3}}}
    entry, rows, more = measured(groups, published=reported)
    text = page("scores/x", [{**row, "p_value": None} for row in (*rows, *more)], entry, {})
    assert "| greedy, avg@1 | problems/a | problems/b | both | source |" in text
    assert "| AZR | 0.713 | – | 0.468 | AZR, table 1 |" in text
    assert "0.75 [" in text and "measured here" in text


def test_page_averages_the_first_metric_of_each_way_of_sampling():
    """Two attempts per problem are avg@2, one is avg@1; the page shows these and not the truncation rate."""
    once = {cell("m", "a"): attempts([1.0]), cell("m", "b"): attempts([0.0])}
    twice = {
        group._replace(sampling="sampled"): [{**row, "attempt": n} for row in some for n in (0, 1)]
        for group, some in once.items()
    }
    groups = {**once, **twice}
    entry = Scores(averages={"both": ["problems/a", "problems/b"]})
    rows = [
        row
        for group, some in groups.items()
        for row in compute_rows(
            group,
            [("avg-at-k", None), ("truncation-rate", None)],
            [{**each, "well_formed": True, "stop_reason": "end"} for each in some],
            entry,
        )
    ]
    text = page(
        "scores/x", [{**row, "p_value": None} for row in (*rows, *averages.average(rows, groups, entry))], entry, {}
    )
    assert "| greedy, avg@1 | problems/a" in text and "| sampled, avg@2 | problems/a" in text


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"averages": {"code": ["problems/z"]}}, "`averages` has `problems/z` in `code`; expected one of"),
        ({"averages": {"code": []}}, "expected a new name and distinct benchmarks"),
        ({"averages": {"a/b": ["problems/a"]}}, "expected a new name"),
        ({"averages": {"total": ["cod"], "code": ["problems/a"]}}, "has `cod` in `total`"),
        ({"averages": {"a": ["b"], "b": ["a"]}}, "`a`, which contains itself"),
        ({"averages": {"total": ["code"], "code": ["problems/a"]}}, None),
        ({"averages": {"c": ["problems/a"]}}, None),
    ],
)
def test_averages_of_what_is_not_measured_are_refused(settings, found):
    """Names are checked when the configuration is read: an average may name benchmarks of the entry and earlier ones."""
    faults = list(averages.faults(Scores(models=["base/x"], problems=["problems/a"], **settings)))
    assert [found in fault for fault in faults] == [True] * len(faults) and bool(faults) == bool(found)


def test_attempts_of_seeds_that_are_not_compared_do_not_count():
    """Of two trainings with one common seed, only its attempts are in `n` of a comparison and of an average."""
    grades = {"problems/a": [0, 1, 1, 0], "problems/b": [1, 1, 0, 1]}
    groups = {
        cell(model, name[-1]): [{**row, "seed": seed} for seed in seeds for row in attempts(of_problems)]
        for model, seeds in (("sft/m", (0, 1)), ("sft/n", (1, 2)))
        for name, of_problems in grades.items()
    }
    entry, *_ = measured(groups, compare=[["sft/m", "sft/n"]])
    (average,) = averages.differences(groups, [("avg-at-k", None)], entry)
    assert (average["n"], average["n_seeds"], average["n_problems"]) == (16, 1, 4)  # both have the same four problems
    pairs = list(comparisons(groups, [("avg-at-k", None)], entry))
    assert [(row["n"], row["n_seeds"]) for row in pairs] == [(8, 1), (8, 1)]
    for row in groups[cell("sft/n", "a")]:
        row["seed"] += 5
    alone = next(row for row in comparisons(groups, [("avg-at-k", None)], entry) if row["problems"] == "problems/a")
    assert (alone["n"], alone["value"], alone["unscored"]) == (0, None, 0.0)


@pytest.mark.parametrize(
    ("rule", "seeds", "has_interval", "has_p"),
    [(None, 1, True, True), ("sign", 1, True, True), ("sign", 2, True, False), ("pass-rate", 1, False, False)],
)
def test_numbers_that_a_rule_ended_say_no_more_than_they_hold(rule, seeds, has_interval, has_p):
    """A rule over problems allows one benchmark and one seed; a rule for each problem's attempts allows no interval."""
    groups = {
        cell(f"sft/{model}", name): [
            {**row, "seed": seed, "until": rule} for seed in range(seeds) for row in attempts([grade] * 30)
        ]
        for model, grade in (("m", 1.0), ("n", 0.0))
        for name in "ab"
    }
    entry, rows, means = measured(groups, compare=[["sft/m", "sft/n"]])
    assert {row["low"] is not None for row in rows if row["slice"] == "all"} == {has_interval}
    assert {row["low"] is not None for row in means} == {rule is None}
    for row in comparisons(groups, [("avg-at-k", None)], entry):
        assert (row["p_value"] < 0.001, row["low"] is not None) == (has_p, has_p) and row["value"] == 1
    (total,) = averages.differences(groups, [("avg-at-k", None)], entry)
    assert (total["low"] is not None, total["p_value"] < 1) == (rule is None, rule is None)


def test_benchmarks_with_the_same_problems_err_together():
    """The average of two tables of one benchmark has the interval of one, and the difference the p of one."""
    own, other = [0, 1, 1, 0, 1, 0, 1, 1, 1, 0], [0, 0, 1, 0, 0, 0, 1, 0, 1, 0]
    groups = {cell(m, b): attempts(grades) for m, grades in (("sft/m", own), ("sft/n", other)) for b in "ab"}
    entry, rows, means = measured(groups, compare=[["sft/m", "sft/n"]])
    alone = next(row for row in rows if row["model"] == "sft/m")
    together = next(row for row in means if row["model"] == "sft/m")
    assert [together[end] for end in ("value", "low", "high")] == pytest.approx(
        [alone[end] for end in ("value", "low", "high")]
    )
    (average,) = averages.differences(groups, [("avg-at-k", None)], entry)
    pair = next(iter(comparisons(groups, [("avg-at-k", None)], entry)))
    assert [average[name] for name in ("value", "p_value", "n_problems")] == [
        pair[name] for name in ("value", "p_value", "n_problems")
    ]
    for row in groups[cell("sft/m", "b")] + groups[cell("sft/n", "b")]:
        row["problem"] += " of b"
    _, _, (others, _) = measured(groups)
    assert others["high"] - others["low"] < together["high"] - together["low"]


def test_ungraded_attempt_has_no_scale():
    """An attempt without a human grade may have no maximum points; the scale is that of the graded ones."""
    groups = {cell("sft/m", name): attempts([7, 3, 5, 0], max_points=7) for name in "ab"}
    groups[cell("sft/m", "a")][0] |= {"grade": None, "max_points": 0}
    _, _, (average,) = measured(groups)
    assert average["value"] == pytest.approx((8 / 3 + 15 / 4) / 2)

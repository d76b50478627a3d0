"""Scores and their uncertainty."""

import random
from datetime import date
from itertools import combinations
from statistics import mean
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mill import REFEREE, SMALL, Mill
from proofmill.config.config import expand
from proofmill.metrics import score_rows
from proofmill.metrics.agreement import AGREEMENTS
from proofmill.metrics.attempt_table import AttemptTable
from proofmill.metrics.comparisons import comparisons
from proofmill.metrics.kernels import OfRuns
from proofmill.metrics.metrics import METRICS, _by_run, kernel_of, label
from proofmill.metrics.page import _comparison
from proofmill.metrics.page import page as page_of
from proofmill.metrics.score_rows import Cell, _of_runs, _splits
from proofmill.schema.entries.scores_entry import Scores
from proofmill.schema.errors import RecipeError, TableError
from proofmill.schema.registry_items import split
from proofmill.scores import _attempts, _gate, _merge_rows
from served import good, server

MEAN, FULL = METRICS["avg-at-k"].apply, METRICS["solve-rate"].apply


NOTHING = {
    "loader": "table", "max_tokens": None, "reads": None, "answer_extraction": None,
    "seed": 0, "level": None, "year": None, "writer": None, "human": None, "selecting": None, "answer": None, "opinions": (),
    "response_tokens": None, "reasoning_tokens": None, "tokens": 0, "prompt_tokens": 0, "well_formed": True, "stop_reason": "end",
}  # fmt: skip


def measured(kernel, rows, argument=None, **settings):
    return score_rows.compute_metric(kernel, rows, Scores(**settings), argument)


def attempts(*grades_of_problems, max_points=7):
    """Build rows of `grades`: one list of grades per problem."""
    return [
        {
            **NOTHING,
            "problem": f"p{p}",
            "attempt": a,
            "grade": grade,
            "max_points": max_points,
            "reason": "ok" if grade is not None else "no-verdict",
        }
        for p, grades in enumerate(grades_of_problems)
        for a, grade in enumerate(grades)
    ]


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(0, 7)), min_size=1, max_size=4), min_size=1, max_size=12))
def test_mean_is_over_problems_of_the_mean_over_scored_attempts(grades):
    """The score equals the slow definition, without unscored attempts."""
    found = measured(MEAN, attempts(*grades), resamples=10)
    scored = [[g for g in some if g is not None] for some in grades]
    expected = mean(mean(some) for some in scored if some) if any(scored) else None
    assert found["value"] == (pytest.approx(expected) if expected is not None else None)
    assert sum(map(len, scored)) == found["n"]
    everything = sum(map(len, grades))
    assert found["unscored"] == pytest.approx(1 - found["n"] / everything)


def test_unscored_attempt_is_not_zero():
    """A missing verdict does not lower the mean."""
    assert measured(MEAN, attempts([7, None], [7, 7]))["value"] == 7


def test_interval_covers_the_truth_about_as_often_as_it_says():
    """Over 300 simulated benchmarks of 40 problems, a 90 % interval covers the true mean in 84 to 96 % of them."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(300):
        hard = rng.random(40)
        grades = [[7.0 if rng.random() < h else 0.0 for _ in range(4)] for h in hard]
        found = measured(FULL, attempts(*grades), confidence=0.9, resamples=400)
        covered += found["low"] <= 0.5 <= found["high"]
    assert 0.84 <= covered / 300 <= 0.96


def test_repeated_attempts_do_not_narrow_the_interval():
    """Ten equal attempts at each problem are worth one: the interval resamples problems."""
    rng = random.Random(0)
    once = [[rng.choice([0, 7])] for _ in range(50)]
    one, ten = (measured(MEAN, attempts(*[g * k for g in once])) for k in (1, 10))
    assert (one["low"], one["high"]) == (ten["low"], ten["high"])


@pytest.mark.parametrize("grade", [0, 3, 7])
def test_interval_of_a_constant_is_no_certainty(grade):
    """Problems that all have 0, 3 or 7 points of 7 have an interval around it, within the scale."""
    found = measured(MEAN, attempts(*[[grade]] * 30))
    assert 0 <= found["low"] <= grade <= found["high"] <= 7
    assert 0.4 < found["high"] - found["low"] < 1.5


def test_attempt_without_a_response_is_unscored_in_every_metric():
    """A failed call has no format and was not truncated: it is missing, not 0."""
    failed = {**attempts([None])[0], "well_formed": None, "stop_reason": "error"}
    for metric in ("avg-at-k", "solve-rate", "format-rate", "truncation-rate"):
        assert measured(METRICS[metric].apply, [failed])["n"] == 0, metric


def test_nothing_scored_has_no_value():
    """Without verdicts there is no number and no interval."""
    found = measured(MEAN, attempts([None], [None]))
    assert (found["value"], found["low"], found["high"], found["unscored"]) == (None, None, None, 1.0)


def test_too_many_unscored_stop_the_stage():
    """A mostly unscored benchmark stops the stage, with the share and a fix."""
    with pytest.raises(
        TableError, match=r"50.0% of the attempts of m on p .*1 no-verdict.* `proofmill invalidate` on the grades"
    ):
        _gate("scores/x", "m on p (sampled)", attempts([7, None]), Scores(max_unscored=0.1))


def test_scores_of_a_chain_are_long_form(small, mill):
    """A scores table has a row per number, with model, interval, n and share unscored, and a score page."""
    made = mill({**SMALL, "scores/cold": {"grades": ["grades/cold"], "metrics": ["avg-at-k", "format-rate"]}})
    made.results = small.results
    table = made.make("scores/cold")
    rows = table.rows()
    whole = [row for row in rows if row["slice"] == "all"]
    assert [(r["model"], r["problems"], r["sampling"], r["metric"], r["n"], r["n_problems"]) for r in whole] == [
        ("sft/cold", "problems/bench", "T=1", "avg@2", 24, 12),
        ("sft/cold", "problems/bench", "T=1", "format-rate", 24, 12),
    ]
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    assert {"powers", "digits", "products", "recurrence"} == {row["slice"] for row in rows} - {"all"}
    assert "| sft/cold | problems/bench |" in table.page.read_text()


def test_calls_that_failed_or_came_from_another_model_are_next_to_the_score(mill, monkeypatch):
    """Stamp and page count an unknown finish reason, with its word, and report the name of another model."""
    entries = {
        "api/solver": {"id": "asked", "price": "unknown", "max-failed": 0.5},
        "problems/few": {"source": "arithmetic", "rows": 4},
        "responses/few": {"problems": "problems/few", "model": "api/solver", "max-tokens": 64},
        "grades/few": {"responses": "responses/few", "grader": "arithmetic"},
        "scores/few": {"grades": ["grades/few"], "metrics": ["avg-at-k"], "max-unscored": 1},
    }
    first = []

    def reply(request, _):
        first.append(request["messages"]) if not first else None
        broken = request["messages"] == first[0]
        return 200, {**good("no", finish_reason="tool_calls" if broken else "stop"), "model": "other"}, {}

    made = mill(entries)
    with server(reply) as (url, _):
        monkeypatch.setenv("PROOFMILL_SOLVER_URL", url)
        table = made.make("problems/few", "responses/few", "grades/few", "scores/few")
    said = ["3 calls answered by `other`, not by `asked`", "1 call finished with `tool_calls`"]
    assert made.table("responses/few").stamp["calls_noticed"] == said
    assert [row["stop_reason"] for row in made.table("responses/few").rows()].count("error") == 1
    for sentence in said:
        assert f"- responses/few: {sentence}" in table.page.read_text()
        assert f"responses/few: {sentence}" in table.stamp["notices"]


def test_shared_problems_are_counted(small, mill):
    """Two tables of the same problems share them all; train and test share none."""
    made = mill(
        {**SMALL, "scores/apart": {"problems": ["problems/train", "problems/bench"], "metrics": ["shared-problems"]}}
    )
    made.results = small.results
    assert [row["value"] for row in made.make("scores/apart").rows()] == [0.0]


# ------------------------------------------------------------------------------------------- k attempts, runs and tokens


@settings(deadline=None)
@given(
    st.lists(st.lists(st.one_of(st.none(), st.integers(0, 7)), min_size=1, max_size=5), min_size=1, max_size=6),
    st.integers(1, 3),
)
def test_pass_at_k_is_the_share_of_choices_that_hold_a_success(grades, k):
    """pass@k is over all choices of k scored attempts, averaged over the problems with at least k."""
    found = measured(METRICS["pass-at-k"].apply, attempts(*grades), k, success_threshold=6 / 7)
    scored = [[g for g in some if g is not None] for some in grades]
    chances = [mean(max(c) >= 6 for c in combinations(some, k)) for some in scored if len(some) >= k]
    assert found["value"] == (pytest.approx(mean(chances)) if chances else None)
    assert found["n_problems"] == len(chances)


def test_majority_takes_all_right_answers_for_one():
    """Two correct answers in different spellings outvote a wrong one given fewer times; equal ones compare by text."""
    rows = attempts([1, 1, 0, 0], max_points=1)
    for row, answer in zip(rows, ["\\frac12", "0.5", "3", "4"], strict=True):
        row["answer"] = answer
    assert measured(METRICS["majority-at-k"].apply, rows, 4)["value"] == pytest.approx(1)
    for row in rows[2:]:
        row["answer"] = "$3$"
    assert measured(METRICS["majority-at-k"].apply, rows, 4)["value"] == pytest.approx(0.5)


def test_one_text_is_one_answer_whatever_a_judge_says_of_it():
    """Grades of 7, 6 and 6 for the same answer: it has three votes, and is correct because it was once."""
    rows = attempts([7, 6, 6])
    for row in rows:
        row["answer"] = "5"
    assert measured(METRICS["majority-at-k"].apply, rows, 3)["value"] == pytest.approx(1 / 3)


def test_best_of_k_is_chosen_by_another_grader():
    """The attempt that the selecting grades rank first counts, however good another one is."""
    rows = attempts([7, 0, 3])
    for row, selecting in zip(rows, [1, 5, 2], strict=True):
        row["selecting"] = selecting
    assert measured(METRICS["best-at-k"].apply, rows, 3)["value"] == 0
    assert measured(METRICS["max-at-k"].apply, rows, 3)["value"] == 7


def test_shortest_and_longest_of_k_count_by_their_tokens():
    """Of grades 7, 0 and 4 with 30, 10 and 20 tokens the shortest has 0, the longest 7; of two drawn, 4/3 and 6."""
    rows = attempts([7, 0, 4, None])
    for row, tokens in zip(rows, [30, 10, 20, 5], strict=True):
        row["response_tokens"] = tokens
    for metric, k, value in (("shortest", 3, 0), ("longest", 3, 7), ("shortest", 2, 4 / 3), ("longest", 2, 6)):
        assert measured(METRICS[f"{metric}-at-k"].apply, rows, k)["value"] == pytest.approx(value)


def test_rate_of_a_form_leaves_out_texts_that_cannot_have_it():
    """Of three responses one has the form, one has not, and the reasoning of one is separate: half of two."""
    rows = attempts([7], [0], [0])
    for row, forms in zip(rows, [("answer-format",), (), None], strict=True):
        row["forms"] = forms
    found = measured(METRICS["answer-format-rate"].apply, rows)
    assert (found["value"], found["n"]) == (0.5, 2)


def test_rates_of_forms_are_those_of_the_rewards(small, mill):
    """The family's own proofs have reasoning in its tags and one box, but no tags around the answer."""
    forms = {"think-format-rate": 1, "boxed-format-rate": 1, "answer-format-rate": 0}
    made = mill(
        {
            **SMALL,
            "responses/own": {"problems": "problems/bench", "model": "solutions"},
            "grades/own": {"responses": "responses/own", "grader": "arithmetic"},
            "scores/own": {"grades": ["grades/own"], "metrics": ["avg-at-k", *forms]},
        }
    )
    made.results = small.results
    rows = made.make("responses/own", "grades/own", "scores/own").rows()
    assert {r["metric"]: r["value"] for r in rows if r["slice"] == "all" and r["metric"] in forms} == forms


def test_runs_are_merged_as_the_definitions_say():
    """A run is one attempt at every problem: means 4 and 5, so mean 4.5, best 5, worst 4, deviation 0.707 (n - 1)."""
    rows = attempts([7, 3], [1, 7])
    values = {m: _of_runs(METRICS[m].apply, m, rows, Scores())["value"] for m in RUNS}
    assert values == pytest.approx({"run-mean": 4.5, "run-max": 5, "run-min": 4, "run-std": 0.5**0.5})
    assert _of_runs(METRICS["run-std"].apply, "run-std", attempts([7], [1]), Scores())["value"] is None


def test_runs_stand_in_the_order_of_their_first_attempts_scored_or_not():
    """The last digit of a sum depends on its order, which does not depend on which attempts are scored."""
    rows = attempts([None, 1, 2], [7, 3, 5])
    assert [list(run) for run in _by_run(rows, lambda row: row["grade"])] == [[7], [1, 3], [2, 5]]


RUNS = ("run-mean", "run-max", "run-min", "run-std")


def test_tokens_are_those_of_the_definitions():
    """The part that a judge read is the solution, the rest the chain of thought; correct and incorrect are separate."""
    rows = attempts([7, 3, None])
    for row, written, judge in zip(rows, [100, 300, 50], [40, 60, 0], strict=True):
        row.update(response_tokens=written, prompt_tokens=judge, tokens=9)
    entry = Scores()

    def value(name, argument=None):
        kernel = kernel_of(name, argument)
        if isinstance(kernel, OfRuns):
            return _of_runs(kernel, name, rows, entry)["value"]
        return measured(kernel, rows, argument)["value"]

    assert [value("tokens", {"stat": stat}) for stat in ("mean", "min", "max", "p95")] == [150, 50, 300, 280]
    assert [value("tokens", {"of": "chain-of-thought", "stat": stat}) for stat in ("min", "max")] == [60, 240]
    assert (value("tokens"), value("tokens", {"of": "solution"}), value("tokens", {"of": "verdict"})) == (150, 50, 9)
    assert (value("tokens-correct", 6), value("tokens-incorrect", 6)) == (100, 300)
    assert value("tokens-per-run") == 150


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("tokens", "tokens(response, mean)"),
        ({"tokens": {"of": "reasoning", "stat": "p95"}}, "tokens(reasoning, p95)"),
        ({"text-tokens": {"stat": "max"}}, "text-tokens(statement, max)"),
        ({"grade-share": 3}, "grade-share(3)"),
        ("run-std", "run-std"),
    ],
)
def test_name_of_a_metric_has_its_argument(item, name):
    """The name has every option, also defaults."""
    assert label(*split(item), 4) == name


@pytest.mark.parametrize("argument", [{"stat": "p96"}, {"by": "run"}, "p95", []])
def test_unknown_option_of_a_metric_is_refused(argument):
    """The message lists the options and their values."""
    fault = METRICS["tokens"].fault({"tokens": argument})
    assert f"has the argument {argument!r}; expected `tokens` or `{{tokens: {{of: response / reasoning" in fault


@pytest.mark.parametrize(
    ("ids", "years", "expected"),
    [
        (["PB-Basic-001", "PB-Advanced-001"], [None, None], {"Basic", "Advanced"}),
        (["usamo-2025-1", "usamo-2023-1"], [None, None], {"2024/2025", "Others"}),
        (["a", "b"], [2024, 1999], {"2024/2025", "Others"}),
        (["ab2024cd12345678", "b"], [None, None], set()),
    ],
)
def test_published_splits_are_made(ids, years, expected):
    """Only ProofBench has Basic and Advanced by id, else a split by year; a year inside a digest does not count."""
    rows = attempts([7], [3])
    for row, id, year in zip(rows, ids, years, strict=True):
        row.update(problem=id, year=year, loader="proofbench")
    assert {part for part, _ in _splits(rows, by_writer=False)} - {"all"} == expected
    own = [{**row, "loader": "table"} for row in rows]
    assert [part for part, _ in _splits(own, by_writer=False)] == ["all"]


def test_problems_are_split_by_the_release_of_the_model():
    """Problems of the day itself count as later; those of unknown date are in neither part."""
    rows = attempts([1], [2], [3], [4])
    for row, day in zip(rows, ("2025-02-14", "2025-02-15", "2026-02-06", None), strict=True):
        row["date"] = day
    found = {name: [row["problem"] for row in some] for name, some in _splits(rows, False, date(2025, 2, 15))}
    assert found == {
        "all": ["p0", "p1", "p2", "p3"],
        "before 2025-02-15": ["p0"],
        "since 2025-02-15": ["p1", "p2"],
    }
    assert [name for name, _ in _splits(rows[2:], False, date(2025, 2, 15))] == ["all", "since 2025-02-15"]
    assert [name for name, _ in _splits(rows, False)] == ["all"]


def test_interval_of_right_and_wrong_problems_is_a_beta_interval():
    """8 of 20 problems correct: the 2.5 % points of Beta(8.4, 12.6) and Beta(8.6, 12.4) are 0.206 and 0.624."""
    found = measured(FULL, attempts(*[[7]] * 8, *[[0]] * 12))
    assert (found["low"], found["high"]) == pytest.approx((0.206, 0.624), abs=0.01)


# ---------------------------------------------------------------------------------------------------------- comparisons


def compared(ours, theirs, **settings):
    groups = {Cell(m, "p", "s", "g"): attempts(*some) for m, some in (("a", ours), ("b", theirs))}
    rows = list(comparisons(groups, [("avg-at-k", None)], Scores(compare=[["a", "b"]], **settings)))
    return [{**row, "p_adjusted": row["p_value"]} for row in rows]


def test_difference_is_by_problem_and_called_only_when_shown():
    """Half a point with a deviation of three is not significant; two points on each of 30 problems are."""
    rng = random.Random(1)
    base = [[rng.uniform(0, 4)] for _ in range(30)]
    noise = [[b[0] + 0.5 + rng.gauss(0, 2.9)] for b in base]
    (unclear,) = compared(noise, base)
    assert unclear["p_value"] > 0.05 and unclear["low"] < 0 < unclear["high"]
    assert "no difference shown" in _comparison(unclear, 0.05)
    (clear,) = compared([[b[0] + 2 + rng.gauss(0, 1)] for b in base], base)
    assert clear["p_value"] <= 0.001 and clear["low"] > 0.5
    assert "no difference" not in _comparison(clear, 0.05)


def test_comparison_uses_only_problems_that_both_scored():
    """A problem that one model has no verdict on is left out of both."""
    (row,) = compared([[7], [None], [3]], [[5], [7], [None]])
    assert (row["value"], row["n_problems"], row["baseline"]) == (2, 1, "b")


def test_compare_names_what_is_measured():
    """A pair with an unknown model is rejected when the configuration is read."""
    entry = SMALL | {
        "scores/x": {
            "models": ["sft/cold"], "problems": ["problems/bench"], "schemes": ["schemes/bench"], "grader": "api/referee",
            "sampling": {"greedy": {"temperature": 0}}, "metrics": ["avg-at-k"], "compare": [["sft/cold", "sft/colt"]],
        }
    }  # fmt: skip
    with pytest.raises(RecipeError, match=r"names `sft/colt`, which is not in `models`; .* Did you mean `sft/cold`"):
        expand({"r": {"api/referee": REFEREE, **entry}})


# ------------------------------------------------------------------------------------------------- graders against people

STUDY = {
    "problems/g": {"source": "arithmetic-graded", "rows": 12},
    "schemes/g": {"problems": "problems/g", "model": "api/referee"},
    "responses/g": {"problems": "problems/g", "model": "given"},
    "grades/human": {"responses": "responses/g", "grader": "human"},
    "grades/lines": {"responses": "responses/g", "grader": "arithmetic"},
    "grades/answers": {"responses": "responses/g", "grader": "final-answer"},
    "grades/judge": {"responses": "responses/g", "schemes": "schemes/g", "grader": "api/referee"},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = Mill(tmp_path_factory.mktemp("study") / "results", **STUDY)
    made.make(*STUDY)
    return made


def scored(study, mill, **entry):
    made = mill(STUDY | {"scores/s": entry})
    made.results = study.results
    return made.make("scores/s").rows()


def test_grader_that_gives_human_grades_agrees_with_people(study, mill):
    """Error 0 and all agreements 1, with exact intervals that are not certainty."""
    metrics = [*AGREEMENTS, {"balanced-accuracy": 5}, {"cohen-kappa": 5}]
    rows = scored(
        study, mill, grades=["grades/lines", "grades/judge"], **{"gold-grades": "grades/human"}, metrics=metrics
    )
    whole = {(r["grader"], r["metric"]): r for r in rows if r["slice"] == "all"}
    assert len(whole) == 24
    for (_, metric), row in whole.items():
        assert row["value"] == (0 if metric in ("mae", "bias", "advantage-difference") else 1), metric
        assert (row["n"], row["n_problems"], row["unscored"], row["baseline"]) == (48, 12, 0, "grades/human")
    assert whole["arithmetic", "mae"]["high"] > 1 and whole["arithmetic", "pairwise-agreement"]["low"] < 0.8


def test_confusions_of_grader_and_people_are_on_the_page(study, mill):
    """A row for each human grade, a column for each of the grader's; equal grades are on the diagonal."""
    made = mill(STUDY | {"scores/s": {"grades": ["grades/lines"], "gold-grades": "grades/human", "metrics": ["mae"]}})
    made.results = study.results
    page = made.make("scores/s").page.read_text(encoding="utf-8")
    assert "\nGraded by arithmetic (0 to 7 points).\n" in page
    table = page[page.index("| human \\ arithmetic on problems/g |") :].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert cells[0][1:] == [row[0] for row in cells[2:]]
    counts = np.array([row[1:] for row in cells[2:]], dtype=int)
    assert counts.sum() == 48 and (counts == np.diag(np.diag(counts))).all()


def test_low_score_says_how_many_problems_it_rests_on():
    """Points at two of sixty problems: the page says so; points at forty need no words."""
    for solved, said in ((2, "60 at 60 problems (avg@1 above 0 at 2)"), (40, "60 at 60 problems |")):
        rows = attempts(*[[7]] * solved, *[[0]] * (60 - solved))
        cell = Cell("m", "p", "s", "g")
        made = list(score_rows.compute_rows(cell, [("avg-at-k", None)], AttemptTable(rows), Scores()))
        assert said in page_of("scores/x", made, Scores(), {})
    shown = page_of("scores/x", made, Scores(), {}, scales=[("g", 7), ("g", 1), ("h", None)])
    assert "Graded by g (0 to 7 points), g (0 to 1 points)." in shown


def test_grader_is_split_by_writer(study, mill):
    """The scores of a grader are split by the writer of the proofs."""
    rows = scored(study, mill, grades=["grades/lines"], **{"gold-grades": "grades/human"}, metrics=["bias"])
    assert {"by forum-1", "by forum-2", "by forum-3"} <= {row["slice"] for row in rows}


def test_grades_on_two_scales_are_not_subtracted(study, mill):
    """An error between grades out of 1 and out of 7 is refused, and the message suggests decisions."""
    with pytest.raises(TableError, match=r"human grades are out of 7, the grader's out of 1; .* balanced-accuracy"):
        scored(study, mill, grades=["grades/answers"], **{"gold-grades": "grades/human"}, metrics=["mae"])


@pytest.mark.parametrize(("threshold", "message"), [(8, "the threshold is 8"), (5, None), (1, None)])
def test_decision_is_on_the_scale_of_each_side(study, mill, threshold, message):
    """Correct and wrong on one side compares with grades at the threshold on the other; it must be on the scale."""
    entry = {"grades": ["grades/answers"], "gold-grades": "grades/human", "metrics": [{"balanced-accuracy": threshold}]}
    if message:
        with pytest.raises(TableError, match=message):
            scored(study, mill, **entry)
        return
    (row,) = [row for row in scored(study, mill, **entry) if row["slice"] == "all"]
    human = {r["response"]: r["grade"] >= threshold for r in study.table("grades/human").rows()}
    grader = {r["response"]: r["grade"] >= 1 for r in study.table("grades/answers").rows()}
    right, wrong = ([r for r in human if human[r] is value] for value in (True, False))
    expected = (sum(grader[r] for r in right) / len(right) + sum(not grader[r] for r in wrong) / len(wrong)) / 2
    assert row["value"] == pytest.approx(expected)


def test_grades_on_two_scales_are_not_merged(study, mill):
    """Averaging grades out of 7 and out of 1 is refused."""
    with pytest.raises(TableError, match="on several scales"):
        scored(study, mill, grades=["grades/lines", "grades/answers"], reduce="mean", metrics=["avg-at-k"])


@pytest.mark.parametrize("others", [["a"], ["a", "c"]])
def test_grades_of_other_attempts_are_not_merged(others):
    """Two tables with equally many attempts may still be of different ones."""
    first, second = (
        [{"response": name, "max_points": 7, "grade": 1.0, "reason": "ok"} for name in names]
        for names in (["a", "b"], others)
    )
    with pytest.raises(TableError, match=r"x, y: .*of different attempts"):
        list(_merge_rows([first, second], "mean", "x, y"))


def test_several_graders_are_merged_into_one(study, mill):
    """`reduce` combines the grades of several tables of the same attempts into those of one grader."""
    rows = scored(
        study,
        mill,
        grades=["grades/lines", "grades/judge"],
        **{"gold-grades": "grades/human"},
        reduce="mean",
        metrics=["mae", "variance-judge"],
    )
    assert {row["grader"] for row in rows} == {"mean of arithmetic, api/referee"}
    assert {row["value"] for row in rows if row["slice"] == "all"} == {0}


def test_grades_of_a_panel_are_kept_and_not_what_it_wrote(study, mill):
    """The judges' texts of a million attempts would not fit into memory; equal grades share one value."""
    panel = {"grader/panel": {"judges": ["api/referee", "api/referee"]}}
    made = mill(STUDY | panel | {"grades/panel": {**STUDY["grades/judge"], "grader": "grader/panel"}})
    made.results = study.results
    written = made.make("grades/panel").rows()
    assert all(len(row["opinions"]) == 2 for row in written)
    read = list(_attempts(SimpleNamespace(parent=made.table), "grades/panel", "responses/g"))
    assert [row["opinions"] for row in read] == [(row["grade"],) * 2 for row in written]


def test_judge_that_fails_is_unscored_in_the_comparison(study, mill, monkeypatch):
    """Garbage of a judge does not give grades of 0: the stage stops with the reasons and a fix."""
    garbage = '{"shares": {"garbage": 0.8}, "seed": 3}'
    monkeypatch.setenv("PROOFMILL_REFEREE_FAULTS", garbage)
    half = {"grades/half": {**STUDY["grades/judge"], "grader-prompt": "grade-brief"}}
    made = mill(STUDY | half)
    made.results = study.results
    rows = made.make("grades/half").rows()
    honest = {row["response"]: row["grade"] for row in made.table("grades/lines").rows()}
    scored_rows = [row for row in rows if row["grade"] is not None]
    assert 0 < len(scored_rows) < len(rows)
    assert all(row["grade"] == honest[row["response"]] for row in scored_rows)
    assert {row["reason"] for row in rows if row["grade"] is None} <= {"no-verdict", "off-scale"}
    entry = {"grades": ["grades/half"], "gold-grades": "grades/human", "metrics": ["mae"]}
    made = mill(STUDY | half | {"scores/s": entry})
    made.results = study.results
    with pytest.raises(
        TableError, match=r"of the attempts of given on problems/g .* have no verdict \(.* no-verdict.*`parse-retries`"
    ):
        made.make("scores/s")


def test_real_proofs_graded_by_a_failing_judge_are_never_zero(mill, data, monkeypatch):
    """Proofs that the referee cannot grade, with faults: there are no grades, and no score."""
    monkeypatch.setenv(
        "PROOFMILL_REFEREE_FAULTS", '{"shares": {"garbage": 0.2, "broken": 0.1, "truncated": 0.1}, "seed": 1}'
    )
    entries = {
        "problems/o": {
            "source": "graded-proofs",
            "path": str(data / "opc/graded_proofs.jsonl"),
            "keep": ["is-problem"],
        },
        "responses/o": {"problems": "problems/o", "model": "given"},
        "grades/h": {"responses": "responses/o", "grader": "human"},
        "grades/o": {"responses": "responses/o", "grader": "api/referee", "grader-prompt": "grade-imo"},
        "scores/o": {"grades": ["grades/o"], "gold-grades": "grades/h", "metrics": [{"balanced-accuracy": 6}]},
    }
    made = mill(entries)
    made.make("problems/o", "responses/o", "grades/h", "grades/o")
    rows = made.table("grades/o").rows()
    assert len(rows) > 150 and {row["grade"] for row in rows} == {None}
    with pytest.raises(TableError, match=r"100.0% of the attempts of given on problems/o .* have no verdict"):
        made.make("scores/o")

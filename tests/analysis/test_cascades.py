"""Fitted cascades: what is chosen, what is forecast, and that the printed entry grades as the fit computed."""

from itertools import pairwise

import numpy as np
import pytest
import yaml

from mill import REFEREE, Mill
from proofmill import __main__
from proofmill.analysis import cascades
from proofmill.analysis.cascades import Cascade, Sample
from proofmill.schema.errors import TableError


def judge(noise: float, dollars: float, missing: float = 0.0) -> dict:
    price = {"price": {"input": dollars, "output": 0}, "price-source": "a test, 2026-11-28"}
    return {**REFEREE, **price, "extra-body": {"noise": noise, "missing": missing}}


GRADES = ("grades/cheap", "grades/middle", "grades/exact")
STUDY = {
    "api/cheap": judge(0.3, 1, missing=0.05),
    "api/middle": judge(0.05, 4),
    "api/exact": judge(0, 20),
    "problems/g": {"source": "arithmetic-graded", "rows": 400, "seed": 3},
    "problems/new": {"source": "arithmetic-graded", "split": "test", "rows": 400, "seed": 4},
    "schemes/g": {"problems": "problems/g", "model": "api/referee"},
    "schemes/new": {"problems": "problems/new", "model": "api/referee"},
    "responses/g": {"problems": "problems/g", "model": "given"},
    "responses/new": {"problems": "problems/new", "model": "given"},
    "grades/human": {"responses": "responses/g", "grader": "human"},
    "grades/human-new": {"responses": "responses/new", "grader": "human"},
    **{
        name: {"responses": "responses/g", "schemes": "schemes/g", "grader": f"api/{name[7:]}"}
        for name in GRADES
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Mill:
    """Return a project in which three judges and people graded the same 1,600 proofs."""
    made = Mill(tmp_path_factory.mktemp("cascades") / "results", **STUDY)
    made.make(*(name for name in STUDY if not name.startswith("api/")))
    return made


def fitted(study: Mill, bound: float = 0.05) -> cascades.Fit:
    return cascades.fit([study.table(name) for name in GRADES], study.table("grades/human"), bound, 0.95, "grader/c")


def test_cascade_is_cheaper_at_the_bound_and_its_entry_realizes_the_forecast(study):
    """On other problems, graded by the printed entry, error and dollars are within the forecast's uncertainty."""
    fit = fitted(study)
    assert fit.forecast.within(0.05)
    assert fit.forecast.dollars < fit.alone[-1].dollars
    low, high = fit.saved[1]
    assert 0 < low <= fit.saved[0] <= high
    assert fit.alone[0].error > 0.05 > fit.forecast.error
    further = {"grades/c": {"responses": "responses/new", "schemes": "schemes/new", "grader": "grader/c"}}
    made = Mill(study.results, **STUDY, **fit.entry, **further)
    made.make("grades/c")
    text = "\n".join(cascades.compare_realized(fit, made.table("grades/c"), made.table("grades/human-new"), 0.95))
    assert text.count(": as forecast") == 2, text


def test_printed_entry_grades_each_response_as_the_fit_computed(study):
    """The same responses get the same grades at the same dollars: bands and unscored verdicts mean the same."""
    sample = cascades.read_sample([study.table(name) for name in GRADES], study.table("grades/human"))
    entries = [study.table(name).stamp["entry"] for name in GRADES]
    cascade = Cascade((0, 1, 2), ((1, 6), None))
    declared = cascades.declare(cascade, entries, "grader/three")
    made = Mill(
        study.results, **STUDY, **declared, **{"grades/three": {**STUDY["grades/cheap"], "grader": "grader/three"}}
    )
    rows = sorted(made.make("grades/three").rows(), key=lambda row: row["response"])
    grade_N, dollars_N = cascade.apply(sample)
    assert [row["grade"] for row in rows] == [None if np.isnan(grade) else grade for grade in grade_N]
    assert [row["cost"] for row in rows] == pytest.approx(list(dollars_N))
    assert {len(row["opinions"]) for row in rows} >= {1, 2}


def test_all_choices_are_tried():
    """Alone, pairs and triples in their order, each with no band or any band of whole points."""
    tried = list(cascades.list_cascades(3, 2))
    assert len(tried) == len(set(tried)) == 3 + 3 * 7 + 7 * 7
    assert Cascade((0, 2), ((1, 2),)) in tried and Cascade((0, 1, 2), (None, (0, 0))) in tried


def test_halves_share_no_problem(study):
    """Attempts at one problem are not in both halves, or the second would not be held out."""
    sample = cascades.read_sample([study.table(name) for name in GRADES], None)
    first, second = sample.half(second=False), sample.half(second=True)
    assert not {*first.problems} & {*second.problems}
    assert len(first.problems) + len(second.problems) == len(sample.problems)
    assert min(len({*first.problems}), len({*second.problems})) > 50


def test_cascades_are_tested_in_an_order_that_the_other_half_fixed(study):
    """Each is cheaper and less accurate than the one before it on the first half; the chosen one and all before it pass."""
    sample = cascades.read_sample([study.table(name) for name in GRADES], study.table("grades/human"))
    first, second = sample.half(second=False), sample.half(second=True)
    ordered = cascades.order(first, 3)
    numbers = [cascades.Numbers.of(*cascade.apply(first), first, 0.95) for cascade in ordered]
    assert all(a.error < b.error and a.dollars > b.dollars for a, b in pairwise(numbers))
    fit = fitted(study)
    place = ordered.index(fit.cascade)
    tested = [cascades.Numbers.of(*cascade.apply(second), second, 0.95) for cascade in ordered[: place + 2]]
    assert [each.within(0.05) for each in tested] == [True] * (place + 1) + [False]
    assert fit.forecast == tested[place]


def test_bound_that_none_keeps_is_refused_with_what_there_is(study):
    """A judge cannot be more exact than the best one; the message names each judge's error."""
    tables = [study.table("grades/cheap"), study.table("grades/middle")]
    with pytest.raises(
        TableError, match=r"no cascade has an error of at most 0\.001 .* \(alone: grades/cheap 0\.1.* --error"
    ):
        cascades.fit(tables, study.table("grades/human"), 0.001, 0.95, "grader/c")


def test_unscored_responses_are_no_errors_and_are_shown():
    """A response without a grade has no error, and the share of those is next to the error."""
    sample = Sample(np.array([[np.nan, 7.0]]), np.array([[1.0, 1.0]]), np.array([0.0, 7.0]), ["a", "b"], 7)
    numbers = cascades.Numbers.of(*Cascade((0,)).apply(sample), sample, 0.95)
    assert (numbers.error, numbers.unscored, numbers.dollars) == (0, 0.5, 1000)


def test_judge_that_declines_what_is_hard_is_not_accurate():
    """A cheap judge without an error, and without a grade for half of the responses, is not chosen alone."""
    grades_GN = np.array([[7.0, np.nan] * 20, [7.0, 3.0] * 20])
    problems = [f"p{number}" for number in range(40)]
    sample = Sample(grades_GN, np.array([[1.0] * 40, [9.0] * 40]), np.array([7.0, 4.0] * 20), problems, 7)
    ordered = cascades.order(sample, 2)
    assert Cascade((0,)) not in ordered and Cascade((0, 1), (None,)) in ordered


def test_tables_of_different_responses_are_refused(study):
    """Judges must have graded the same sample."""
    with pytest.raises(TableError, match="grades/human-new: graded other responses than grades/cheap"):
        cascades.read_sample([study.table("grades/cheap"), study.table("grades/human-new")], None)


def test_grader_that_escalates_is_refused_unless_it_is_the_last(study):
    """In a longer cascade its `escalate-to` would be another, so its entry would grade otherwise than its table."""
    grader = {"judges": ["api/cheap"], "escalate-to": "api/middle", "escalated": "multiplies"}
    more = {"grader/own": grader, "grades/own": {**STUDY["grades/cheap"], "grader": "grader/own"}}
    table = Mill(study.results, **STUDY, **more).make("grades/own")
    others, human = [study.table(name) for name in GRADES[:2]], study.table("grades/human")
    with pytest.raises(TableError, match="grades/own: grader/own escalates to api/middle; expected a grader without"):
        cascades.fit([others[0], table, others[1]], human, 0.3, 0.95, "grader/c")
    assert cascades.fit([*others, table], human, 0.3, 0.95, "grader/c")


def test_command_prints_an_entry_that_can_be_pasted(study, monkeypatch, capsys):
    """The last lines are YAML of graders."""
    asked = ["fit-cascade", *GRADES, "--gold", "grades/human", "--error", "0.03", "--results", str(study.results)]
    monkeypatch.setattr("sys.argv", ["proofmill", *asked])
    __main__.main()
    text = capsys.readouterr().out
    entry = yaml.safe_load(text.split("\n\n")[-1])
    assert entry["grader/cascade"]["escalate-to"] == "grader/cascade-2"
    assert "saved against api/exact: $" in text
    assert "the error is at most 0.03 with 95% confidence" in text

"""Curves: points as logged, a moving average without bias, one picture of several trainings."""

import pytest

from proofmill.artifacts.tables import Table
from proofmill.inspect import curves
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import SettingError


def test_smoothing_is_the_weighted_mean_of_what_came_before():
    """With a half, the third point weighs 4 parts of 7, the second 2, the first 1; 0 leaves points as they are."""
    assert curves.smoothed([1.0, 2.0, 4.0], 0.5) == pytest.approx([1, 5 / 3, (4 * 4 + 2 * 2 + 1) / 7])
    assert curves.smoothed([1.0, 2.0, 4.0], 0) == [1, 2, 4]


def test_curves_are_the_points_of_the_table(small):
    """A measure's points are the table's rows, by step."""
    found = curves.read(["sft/cold"], small.results, ["loss"])
    rows = [(r["step"], r["value"]) for r in small.table("sft/cold").rows() if r["measure"] == "loss"]
    assert found == {"loss": {"sft/cold": rows}}
    assert list(curves.read(["sft/cold"], small.results)) == ["entropy", "loss"]


def test_picture_is_the_same_for_the_same_curves(small, tmp_path):
    """Two drawings of one training are one file, with a title for each measure."""
    found = curves.read(["sft/cold"], small.results)
    for name in ("a.svg", "b.svg"):
        curves.draw(
            {m: {**by, "sft/other": [(1, 0.5), (2, 0.4), (3, 0.1)]} for m, by in found.items()}, tmp_path / name
        )
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_spending_is_drawn_by_way_and_rule(tmp_path):
    """A panel for each model and benchmark, a line for each way and rule, cheapest point first; the same file again."""
    blank = {
        **dict.fromkeys(COLUMNS["scores"]),
        "model": "m",
        "problems": "problems/p",
        "grader": "g",
        "split": "budget",
    }
    points = [("rsa", "one@1", 390.0, 0.7), ("single", "majority@4", 40.0, 0.6), ("single", "majority@2", 20.0, 0.5)]
    rows = [
        {
            **blank,
            "sampling": way,
            "measure": measure,
            "spent_tokens": tokens,
            "value": value,
            "low": value - 0.1,
            "high": None,
        }
        for way, measure, tokens, value in points
    ]
    Table("scores/x", tmp_path).write(
        [*rows, {**blank, "split": "all", "value": 1.0}], {"entry": {}, "fingerprint": "f"}
    )
    panels = curves.read_spending(["scores/x"], tmp_path)
    assert {
        title: {name: [r["spent_tokens"] for r in some] for name, some in by.items()} for title, by in panels.items()
    } == {"m on problems/p\nby g": {"single, majority": [20, 40], "rsa, one": [390]}}
    for name in ("a.svg", "b.svg"):
        curves.draw_spending(panels, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_scores_without_a_budget_have_no_curve(tmp_path):
    """The message names the field that measures spending."""
    blank = {**dict.fromkeys(COLUMNS["scores"]), "split": "all"}
    Table("scores/x", tmp_path).write([blank], {"entry": {}, "fingerprint": "f"})
    with pytest.raises(SettingError, match="expected a scores entry with `at-equal-budget`"):
        curves.read_spending(["scores/x"], tmp_path)


@pytest.mark.parametrize(
    ("names", "measures", "said"),
    [(["scores/x"], [], "has no steps"), (["sft/cold"], ["los"], "no `los` was logged.*Did you mean `loss`")],
)
def test_what_was_not_measured_is_refused(small, names, measures, said):
    """A table without steps and a measure that nobody logged are named, with what there is."""
    with pytest.raises(SettingError, match=said):
        curves.read(names, small.results, measures)

"""Curves: points as logged, a moving average without bias, one picture of several trainings."""

import math

import pytest

from proofmill.analysis import curves
from proofmill.artifacts.tables import Table
from proofmill.schema.columns import COLUMNS
from proofmill.schema.errors import SettingError


def test_smoothing_is_the_weighted_mean_of_what_came_before():
    """With a half, the third point weighs 4 parts of 7, the second 2, the first 1; 0 leaves points as they are."""
    assert curves.smooth_values([1.0, 2.0, 4.0], 0.5) == pytest.approx([1, 5 / 3, (4 * 4 + 2 * 2 + 1) / 7])
    assert curves.smooth_values([1.0, 2.0, 4.0], 0) == [1, 2, 4]


def test_curves_are_the_points_of_the_table(small):
    """A metric's points are the table's rows, by step."""
    found = curves.read(["sft/cold"], small.results, ["loss"])
    rows = [(r["step"], r["value"]) for r in small.table("sft/cold").rows() if r["metric"] == "loss"]
    assert found == {"loss": {"sft/cold": rows}}
    assert list(curves.read(["sft/cold"], small.results)) == ["entropy", "loss", "mean_token_accuracy", "grad_norm"]


def test_evaluations_are_drawn_with_their_intervals(tmp_path):
    """The ends of a point are those logged at its step, and unknown where none are; the picture has a band."""
    grades = {0: (0.1, 0.0, 0.3), 10: (0.4, 0.2, 0.6), 20: (0.5, None, None)}
    names = ("evaluate/grade", "evaluate/grade/low", "evaluate/grade/high")
    rows = [
        {"step": step, "epoch": 0.0, "metric": name, "value": value}
        for step, values in grades.items()
        for name, value in zip(names, values, strict=True)
        if value is not None
    ]
    table = Table("grpo/x", tmp_path)
    table.write(rows, {"entry": {}, "fingerprint": "f", "model": "m"})
    (points,) = curves.read(["grpo/x"], tmp_path)["evaluate/grade"].values()
    assert points[:2] == [(0, 0.1, 0.0, 0.3), (10, 0.4, 0.2, 0.6)]
    assert points[2][:2] == (20, 0.5) and all(math.isnan(end) for end in points[2][2:])
    curves.draw(["grpo/x"], tmp_path, tmp_path / "x.svg")
    assert "FillBetweenPolyCollection" in (tmp_path / "x.svg").read_text()


def test_picture_is_the_same_for_the_same_curves(small, tmp_path):
    """Two drawings of one training are one file."""
    for name in ("a.svg", "b.svg"):
        curves.draw(["sft/cold"], small.results, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_spending_is_drawn_by_way_and_rule(tmp_path):
    """A panel for each model and benchmark, a line for each way and rule, cheapest point first; the same file again."""
    blank = {
        **dict.fromkeys(COLUMNS["scores"]),
        "model": "m",
        "problems": "problems/p",
        "grader": "g",
        "slice": "budget",
    }
    points = [("rsa", "one@1", 390.0, 0.7), ("single", "majority@4", 40.0, 0.6), ("single", "majority@2", 20.0, 0.5)]
    rows = [
        {
            **blank,
            "sampling": way,
            "metric": metric,
            "tokens_per_problem": tokens,
            "value": value,
            "low": value - 0.1,
            "high": None,
        }
        for way, metric, tokens, value in points
    ]
    Table("scores/x", tmp_path).write(
        [*rows, {**blank, "slice": "all", "metric": "avg@2", "value": 1.0}], {"entry": {}, "fingerprint": "f"}
    )
    (panel,) = curves.read_scores(["scores/x"], tmp_path)
    assert panel.title == "m on problems/p\nby g"
    assert {line: [r["tokens_per_problem"] for r in some] for line, some in panel.lines.items()} == {
        "single, majority": [20, 40],
        "rsa, one": [390],
    }
    for name in ("a.svg", "b.svg"):
        curves.draw(["scores/x"], tmp_path, tmp_path / name)
    picture = (tmp_path / "a.svg").read_text()
    assert picture == (tmp_path / "b.svg").read_text() and "10^{2}" in picture, "tokens are powers of 10"


def test_metrics_of_several_attempts_are_drawn_by_their_number(tmp_path):
    """A panel for each metric, a line for each model by k; differences, slices and a single k have no line."""
    blank = {**dict.fromkeys(COLUMNS["scores"]), "problems": "problems/p", "grader": "g", "sampling": "sampled"}
    rows = [
        {**blank, "model": model, "metric": metric, "slice": piece, "baseline": baseline, "value": 0.5, "low": 0.4, "high": 0.6}
        for model, metric, piece, baseline in [
            ("m", "pass@16", "all", None),
            ("m", "pass@2", "all", None),
            ("n", "pass@2", "all", None),
            ("n", "pass@16", "all", None),
            ("m", "pass@4", "easy", None),
            ("m", "pass@8", "all", "n"),
            ("m", "avg@16", "all", None),
        ]
    ]  # fmt: skip
    Table("scores/x", tmp_path).write(rows, {"entry": {}, "fingerprint": "f"})
    (panel,) = curves.read_scores(["scores/x"], tmp_path)
    assert panel.title == "pass@k on problems/p\nsampled, by g"
    assert {line: [r["metric"] for r in some] for line, some in panel.lines.items()} == {
        "m": ["pass@2", "pass@16"],
        "n": ["pass@2", "pass@16"],
    }
    curves.draw(["scores/x"], tmp_path, tmp_path / "x.svg")
    picture = (tmp_path / "x.svg").read_text()
    assert picture.startswith("<?xml") and "<!-- 16 -->" in picture, "k is a plain number, not a power of 2"


def test_scores_without_a_line_are_refused(tmp_path):
    """The message names what would be one."""
    blank = {**dict.fromkeys(COLUMNS["scores"]), "slice": "all", "value": 1.0, "metric": "avg@2"}
    Table("scores/x", tmp_path).write([blank], {"entry": {}, "fingerprint": "f"})
    with pytest.raises(SettingError, match=r"`pass-at-k`.*`at-equal-budget`"):
        curves.draw(["scores/x"], tmp_path, tmp_path / "x.svg")


@pytest.mark.parametrize(
    ("names", "metrics", "said"),
    [(["scores/x"], [], "has no steps"), (["sft/cold"], ["los"], "no `los` was logged.*Did you mean `loss`")],
)
def test_what_was_not_measured_is_refused(small, names, metrics, said):
    """A table without steps and a metric that was never logged are named, with the alternatives."""
    with pytest.raises(SettingError, match=said):
        curves.read(names, small.results, metrics)

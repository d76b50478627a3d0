"""Curves: a moving average without bias, and scores by attempts and by cost."""

import pytest

from proofmill.analysis import curves
from proofmill.artifacts.tables import Table
from proofmill.schema.columns import COLUMNS


def test_smoothing_is_the_weighted_mean_of_what_came_before():
    """With a half, the third point weighs 4 parts of 7, the second 2, the first 1; 0 leaves points as they are."""
    assert curves.smooth_values([1.0, 2.0, 4.0], 0.5) == pytest.approx([1, 5 / 3, (4 * 4 + 2 * 2 + 1) / 7])
    assert curves.smooth_values([1.0, 2.0, 4.0], 0) == [1, 2, 4]


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
    assert panel.base == 10


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
    assert panel.base == 2

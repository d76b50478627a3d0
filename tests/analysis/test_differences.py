"""`proofmill diff`: entries, outcomes, rows and scores of two artifacts, or of one in two folders."""

import pytest

from proofmill.analysis import differences
from proofmill.schema.errors import SettingError

ROWS = {"source": "arithmetic", "rows": 12}
SCORES = {"metrics": ["avg-at-k"], "max-unscored": 1}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Build two problems tables of which one is filtered, attempts at one sampled twice, and their scores."""
    from mill import Mill

    mill = Mill(
        tmp_path_factory.mktemp("two") / "results",
        **{
            "problems/a": ROWS,
            "problems/b": {**ROWS, "keep": [{"statement-length": [10, 40]}]},
            "problems/more": {**ROWS, "rows": 15},
            "base/tiny": {"source": "scratch", "problems": "problems/a", "hidden": 32, "layers": 1, "heads": 1},
            "responses/a": {"problems": "problems/a", "model": "base/tiny", "max-tokens": 16},
            "responses/right": {"problems": "problems/a", "model": "solutions"},
            "grades/a": {"responses": "responses/a", "grader": "arithmetic"},
            "grades/right": {"responses": "responses/right", "grader": "arithmetic"},
            "scores/a": {"grades": ["grades/a"], **SCORES},
            "scores/right": {"grades": ["grades/right"], **SCORES},
        },
    )
    mill.make(*mill.config.entries)
    return mill


def said(two, one, other):
    return list(differences.lines(differences.compare(two.table(one), two.table(other))))


def test_same_artifact_is_the_same(two):
    """Equal content is said in one line; nothing is read."""
    assert said(two, "problems/a", "problems/a")[1:] == ["  rows are identical"]


def test_changed_rows_are_counted_by_column(two):
    """A filter changes what was dropped and why, in the rows that it refuses and in no others."""
    found = differences.rowwise(two.table("problems/a"), two.table("problems/b"))
    dropped = [row["problem"] for row in two.table("problems/b").rows(kept=False) if row["dropped"]]
    assert 0 < len(dropped) < 12
    assert sorted(found.changed_rows) == sorted(dropped) and found.same == 12 - len(dropped)
    assert set(found.changed) == {"dropped", "evidence"} and set(found.changed.values()) == {len(dropped)}
    assert (found.added, found.removed) == ([], [])
    lines = said(two, "problems/a", "problems/b")
    assert '  entry: `keep` [] -> [{"statement-length": [10, 40]}]' in lines
    assert any(line.startswith("  counts: ") for line in lines)


def test_added_and_removed_rows_are_named(two):
    """Three rows more one way are three fewer the other way; a few ids are named."""
    there = differences.rowwise(two.table("problems/a"), two.table("problems/more"))
    back = differences.rowwise(two.table("problems/more"), two.table("problems/a"))
    assert (len(there.added), len(there.removed), there.same) == (3, 0, 12)
    assert there.added == back.removed
    (line,) = [line for line in said(two, "problems/a", "problems/more") if line.strip().startswith("added: ")]
    assert line.split(": ")[1].split(", ") == there.added


def test_nested_columns_are_compared(two):
    """Lists of records, such as opinions, differ where any value in them does."""
    found = differences.rowwise(two.table("grades/a"), two.table("grades/right"))
    assert len(found.added) == len(found.removed) == 12  # ids of responses are of their model


def test_grades_of_two_scores_are_compared_problem_by_problem(two):
    """The official proofs have 7 points more than a model of random numbers, with interval and test."""
    (line,) = [line for line in said(two, "scores/a", "scores/right") if "scores of" in line]
    assert "solutions on problems/a" in line and "+7.000" in line and "on 12 problems" in line
    assert "no difference shown" not in line


def test_scores_on_different_scales_are_not_compared(two, monkeypatch):
    """Points out of 7 and out of 1 have no difference; the line says why."""
    cells = differences.read_cells

    def rescaled(table):
        of_one = {"max_points": 1} if table.name == "scores/right" else {}
        return {cell: [{**row, **of_one} for row in rows] for cell, rows in cells(table).items()}

    monkeypatch.setattr(differences, "read_cells", rescaled)
    (line,) = [line for line in said(two, "scores/a", "scores/right") if line.strip().startswith("scores")]
    assert line.strip() == "scores of solutions: out of 1 and 7 points; not compared"


def test_two_kinds_have_no_difference(two):
    """Tables of two kinds have other columns."""
    with pytest.raises(SettingError, match="have different kinds"):
        said(two, "problems/a", "grades/a")

"""`proofmill why ... --row`: the way of a row through every table, back to where it was read."""

import random
import shutil

import pytest

from proofmill.analysis import lineage
from proofmill.schema.errors import SettingError, TableError


def way(mill, name, row):
    return lineage.trail(name, row, mill.results)


def test_grade_leads_to_its_attempt_its_model_and_the_problems_of_both(small):
    """Grade, scheme, attempt, problem; the model, a training row, that row's problem; the model it began as."""
    row = small.table("grades/cold").rows()[5]
    steps = way(small, "grades/cold", row["response"])
    assert [(step.artifact, step.depth) for step in steps] == [
        ("grades/cold", 0),
        ("schemes/bench", 1),
        ("responses/cold", 1),
        ("problems/bench", 2),
        ("sft/cold", 2),
        ("examples/cold", 3),
        ("problems/train", 4),
        ("base/tiny", 3),
    ]
    assert (steps[0].row, steps[2].row, steps[3].row) == (row["response"], row["response"], row["problem"])
    assert steps[4].facts == ("trained on 48 rows of examples/cold; the first:",)
    assert steps[3].facts[-1].startswith("read from arithmetic/test")


def test_every_step_stands_in_its_table(small):
    """Of ten random grades, each step is a row of its table, and belongs to the one above it."""
    rows = small.table("grades/cold").rows("response", "problem")
    for row in random.Random(0).sample(rows, 10):
        for step in way(small, "grades/cold", row["response"]):
            if step.row is not None:
                table = small.table(step.artifact)
                key = {"responses": "response", "grades": "response", "examples": "example"}.get(table.kind, "problem")
                (found,) = [r for r in table.rows(kept=False) if r[key] == step.row]
                if step.artifact in ("problems/bench", "schemes/bench", "responses/cold"):
                    assert found["problem"] == row["problem"]


def test_deleted_table_ends_the_way_with_a_sentence(small, tmp_path):
    """A deleted table is named; the rest is traced."""
    for path in small.results.rglob("*.parquet"):
        if "problems/bench" not in str(path) and "archive" not in path.parts and "calls" not in path.parts:
            target = tmp_path / path.relative_to(small.results)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
    row = small.table("grades/cold").rows()[0]
    steps = lineage.trail("grades/cold", row["response"], tmp_path)
    (gone,) = [step for step in steps if step.artifact == "problems/bench"]
    assert gone.facts == ("its table was deleted",)
    assert steps[-1].artifact == "base/tiny"


def test_damaged_table_is_not_taken_for_an_empty_one(small, tmp_path):
    """An unreadable table is reported as damaged, not as lacking the row."""
    shutil.copytree(small.results, tmp_path / "results")
    row = small.table("grades/cold").rows()[0]
    (tmp_path / "results/problems/bench.parquet").write_bytes(b"PAR1")
    with pytest.raises(TableError, match=r"problems/bench\.parquet: is damaged"):
        lineage.trail("grades/cold", row["response"], tmp_path / "results")


def test_text_is_indented_below_what_rests_on_it(small):
    """Two blanks for each table further back, four more for what a row says."""
    row = small.table("responses/cold").rows()[0]
    lines = list(lineage.lines(way(small, "responses/cold", row["response"])))
    assert lines[0] == f"responses/cold  {row['response']}"
    assert lines[1].startswith("    attempt 0 by sft/cold")
    assert f"  problems/bench  {row['problem']}" in lines


@pytest.mark.parametrize(
    ("name", "row", "said"),
    [("grades/cold", "none", "no row has this id"), ("sft/cold", "0", "rows of sft cannot be traced")],
)
def test_row_without_a_way_is_refused(small, name, row, said):
    """An id that is not there, and a kind whose rows come from no other row."""
    with pytest.raises(SettingError, match=said):
        way(small, name, row)

"""Schemes: written by a judge or published with the problem, linted, and tested on known answers."""

import pytest

from grading import SCHEME
from mill import SMALL
from proofmill import schemes
from proofmill.calls.model_requests import ModelOutput
from proofmill.schema.errors import RecipeError
from proofmill.schemes import _unreadable, read_scheme
from proofmill.synthetic import congruences
from proofmill.synthetic.grading import Grading


def test_referee_writes_schemes_that_pass(small):
    """The family's schemes have three sections and seven points, and no faults for the linter."""
    rows = small.table("schemes/train").rows(kept=False)
    assert {("ok", 7, None)} == {(row["reason"], row["points"], row["dropped"]) for row in rows}
    assert not any(row["faults"] for row in rows)


def test_problem_with_guidelines_needs_no_judge(mill, tmp_path):
    """Without a model, a problem's guidelines are its scheme; without guidelines the row has the reason."""
    (tmp_path / "p.jsonl").write_text(
        '{"statement": "Prove that 1 = 1.", "guidelines": "7 points"}\n{"statement": "Prove that 2 = 2.", "guidelines": null}\n'
    )
    made = mill(
        {"problems/x": {"source": "table", "path": str(tmp_path / "p.jsonl")}, "schemes/x": {"problems": "problems/x"}}
    )
    rows = made.make("problems/x", "schemes/x").rows(kept=False)
    found = [(row["scheme"], row["reason"], row["dropped"]) for row in rows]
    assert found == [("7 points", "ok", None), (None, "no-guidelines", "adds-up")]


def test_schemes_of_a_table_find_their_problems(mill, tmp_path):
    """Schemes are looked up by statement, regardless of spaces, or by id; a missing one has the reason."""
    (tmp_path / "p.jsonl").write_text(
        '{"problem": "a", "statement": "Prove that 1 = 1."}\n{"problem": "b", "statement": "Prove that 2 = 2."}\n'
    )
    (tmp_path / "s.jsonl").write_text(
        '{"id": "b", "text": "Prove  that 1 = 1.", "rubrics": "7 points"}\n'
        '{"id": "c", "text": "?", "rubrics": [{"title": "All", "points": 7, "desc": "of it"}]}\n'
    )
    entry = {"problems": "problems/x", "source": "table", "path": str(tmp_path / "s.jsonl"), "keep": []}
    made = mill(
        {
            "problems/x": {"source": "table", "path": str(tmp_path / "p.jsonl")},
            "schemes/text": {**entry, "columns": {"statement": "text", "scheme": "rubrics"}},
            "schemes/id": {**entry, "columns": {"problem": "id", "scheme": "rubrics"}},
        }
    )
    made.make("problems/x", "schemes/text", "schemes/id")
    found = {name: [row["scheme"] for row in made.table(name).rows()] for name in ("schemes/text", "schemes/id")}
    assert found == {"schemes/text": ["7 points", None], "schemes/id": [None, "7 points"]}
    assert [row["reason"] for row in made.table("schemes/id").rows()] == ["no-guidelines", "ok"]
    assert list(made.table("schemes/id").stamp["sources"]) == [str(tmp_path / "s.jsonl")]


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"source": "table", "path": "x.jsonl"}, "needs `path` and `columns`"),
        ({"path": "x.jsonl"}, "without `source`"),
        (
            {"source": "table", "path": "x.jsonl", "columns": {"problem": "a", "scheme": "b"}, "model": "api/referee"},
            "both",
        ),
    ],
)
def test_incomplete_table_of_schemes_is_refused(mill, values, fault):
    """Missing and contradictory fields of a table are refused when the recipe is read."""
    with pytest.raises(RecipeError, match=fault):
        mill({"problems/x": {"source": "arithmetic", "rows": 2}, "schemes/x": {"problems": "problems/x", **values}})


def test_guidelines_without_points_are_kept(data, mill):
    """IMO-ProofBench's guidelines have no points, so they are not linted, but used for grading."""
    path = str(data / "imobench/proofbench_v2.csv")
    entries = {"problems/p": {"source": "proofbench", "path": path}, "schemes/p": {"problems": "problems/p"}}
    rows = mill(entries).make("problems/p", "schemes/p").rows(kept=False)
    assert {(row["dropped"], row["points"]) for row in rows} == {(None, None)}


@pytest.mark.parametrize("text", ["", "   ", "I cannot write one."])
def test_output_without_a_scheme_is_retried(text):
    """A text without a checkpoint is not a scheme; a badly built scheme is kept with its faults."""
    assert _unreadable(ModelOutput(text, "end"))
    assert not _unreadable(ModelOutput(SCHEME.replace("3 pts", "2 pts"), "end"))


def test_failed_call_has_no_scheme():
    """A failed call has no scheme, only the reason."""
    assert read_scheme(ModelOutput(SCHEME, "error", "timeout")) == (None, "timeout")


TESTED = {
    "problems/p": {"source": "arithmetic", "rows": 12},
    "schemes/p": {
        "problems": "problems/p",
        "model": "api/referee",
        "tester": "api/referee",
        "keep": ["clean", {"reference-passes": 6}, "zero-for-empty", "detects-gaps"],
    },
}


def test_self_test_grades_known_answers(mill):
    """The reference gets at least 6 points, an empty answer 0, and the reference without its key step fewer."""
    rows = mill(TESTED).make("problems/p", "schemes/p").rows(kept=False)
    assert len(rows) == 12
    assert {row["self_test"] for row in rows} == {"ok"}
    assert {row["reference_grade"] for row in rows} == {7}
    assert {(row["empty_grade"], row["restated_grade"], row["unrelated_grade"]) for row in rows} == {(0, 0, 0)}
    assert all(row["gapped_grade"] < 7 for row in rows)
    assert {row["dropped"] for row in rows} == {None}


def test_lenient_scheme_is_detected_and_not_used(mill, monkeypatch):
    """A scheme that accepts everything passes the linter and fails its self-test; its row names the answers."""
    monkeypatch.setattr(Grading, "points", lambda *_, **__: 7)
    entries = TESTED | {"schemes/p": TESTED["schemes/p"] | {"tester": "arithmetic"}}
    table = mill(entries).make("problems/p", "schemes/p")
    rows = table.rows(kept=False)
    assert {row["self_test"] for row in rows} == {"empty, restated, unrelated, gapped"}
    assert {row["dropped"] for row in rows} == {"zero-for-empty"}
    assert all(row["scheme"] for row in rows)
    assert table.rows() == []


def test_problem_with_a_failed_scheme_is_dropped(mill, monkeypatch):
    """`has-scheme` drops problems whose scheme was dropped, with the scheme's filter as evidence."""
    monkeypatch.setattr(schemes, "BLANK", congruences.proof(next(congruences.problems("train", 0))))
    entries = TESTED | {"problems/q": {"source": "problems/p", "schemes": "schemes/p", "keep": ["has-scheme"]}}
    rows = mill(entries).make("problems/p", "schemes/p", "problems/q").rows(kept=False)
    dropped = {row["evidence"] for row in rows if row["dropped"] == "has-scheme"}
    assert dropped == {"its scheme was refused: zero-for-empty (empty)"}
    assert rows[0]["dropped"] == "has-scheme"


def test_unscored_self_test_does_not_pass(mill):
    """Without a verdict of the tester a scheme is `unscored`, and a filter that needs the grade drops it."""
    entries = SMALL | {
        "schemes/t": {"problems": "problems/train", "tester": "api/referee", "keep": [{"reference-passes": 6}]}
    }
    made = mill(entries)
    made.make("problems/train")
    rows = made.make("schemes/t").rows(kept=False)
    assert {(row["reason"], row["self_test"], row["dropped"]) for row in rows} == {
        ("no-guidelines", None, "reference-passes")
    }

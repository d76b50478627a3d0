"""Labels, and what the referee writes, read strictly."""

import json

import pytest

from conftest import SMALL
from proofmill import arithmetic, judges, referee, templates
from proofmill.calls import Answer
from proofmill.labels import read_labels

GOOD = {
    "incomplete": False,
    "difficulty": 3,
    "gaps": False,
    "wrong": False,
    "disagreement": False,
    "computational": True,
}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"```json\n{json.dumps(GOOD)}\n```", "ok"),
        (json.dumps(GOOD), "ok"),
        (f"Well.\n```json\n{json.dumps(GOOD)}```\nDone.", "ok"),
        ("```json\n{\n```", "no-verdict"),
        ("", "no-verdict"),
        ("[1, 2]", "no-verdict"),
        (json.dumps({k: v for k, v in GOOD.items() if k != "gaps"}), "no-verdict"),
        (json.dumps({**GOOD, "difficulty": 11}), "off-scale"),
        (json.dumps({**GOOD, "difficulty": True}), "off-scale"),
        (json.dumps({**GOOD, "wrong": "no"}), "off-scale"),
    ],
)
def test_labels_are_read_strictly(text, reason):
    """Labels are all there and of their kinds, or there are none and the reason says why."""
    labels, found = read_labels(Answer(text, "end"))
    assert (reason, GOOD if reason == "ok" else {}) == (found, labels)


def test_failed_call_has_no_labels():
    """A failure is its reason."""
    assert read_labels(Answer(json.dumps(GOOD), "error", "timeout")) == ({}, "timeout")


def test_referee_writes_schemes_that_pass(small):
    """The family's schemes have three sections and seven points, and the linter finds nothing."""
    rows = small.table("schemes/train").rows(kept=False)
    assert {("ok", 7, None)} == {(row["reason"], row["points"], row["dropped"]) for row in rows}
    assert not any(row["faults"] for row in rows)


def test_problem_with_guidelines_needs_no_judge(mill, tmp_path):
    """Without a model the guidelines that a problem came with are its scheme; one without is marked as such."""
    (tmp_path / "p.jsonl").write_text(
        '{"statement": "Prove that 1 = 1.", "guidelines": "7 points"}\n{"statement": "Prove that 2 = 2.", "guidelines": null}\n'
    )
    made = mill(
        {"problems/x": {"source": "table", "path": str(tmp_path / "p.jsonl")}, "schemes/x": {"problems": "problems/x"}}
    )
    rows = made.make("problems/x", "schemes/x").rows(kept=False)
    found = [(row["scheme"], row["reason"], row["dropped"]) for row in rows]
    assert found == [("7 points", "ok", None), (None, "no-guidelines", "adds-up")]


PROBLEM = arithmetic.Congruence("products", 7, (2, 3, 4, 5, 2))


@pytest.mark.parametrize(
    ("solution", "comments", "expected"),
    [
        (arithmetic.proof(PROBLEM), ["Nice!"], set()),
        (arithmetic.proof(PROBLEM), ["Your second line is wrong."], {"disagreement"}),
        ("<think>x</think>\nIn brief: So the residue is \\boxed{0}.", [], {"gaps"}),
        ("<think>x</think>\n2*3=6≡6.", [], {"incomplete"}),
    ],
)
def test_referee_labels_what_a_reader_sees(solution, comments, expected):
    """Objections, missing conclusions and missing work are labelled; a whole proof is not."""
    fields = {
        "statement": arithmetic.statement(PROBLEM),
        "solution": solution,
        "origin": "f",
        "comments": judges.comments(comments),
    }
    labels, reason = read_labels(Answer(referee.verdict(templates.fill("classify", fields)), "end"))
    assert ("ok", expected) == (reason, {key for key, value in labels.items() if value is True})


def test_referee_labels_a_false_statement_wrong():
    """A divisibility that does not hold is labelled `wrong`."""
    false = arithmetic.Congruence("products", 7, (2, 3, 4, 5, 3))
    fields = {"statement": arithmetic.statement(false), "solution": "It is false.", "origin": "f", "comments": ""}
    labels, _ = read_labels(Answer(referee.verdict(templates.fill("classify", fields)), "end"))
    assert labels["wrong"]


def test_labels_of_a_stage_are_all_there(small, mill):
    """Each kept problem has a row with the judge's whole answer."""
    made = mill({**SMALL, "labels/x": {"problems": "problems/train", "model": "api/referee"}})
    made.results = small.results
    rows = made.make("labels/x").rows()
    assert [row["problem"] for row in small.table("problems/train").rows()] == [row["problem"] for row in rows]
    assert all(row["reason"] == "ok" and "json" in row["verdict"] for row in rows)

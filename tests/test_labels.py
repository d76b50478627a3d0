"""Labels: a judge's classification, parsed strictly, one row per problem."""

import json

import pytest

from mill import SMALL
from proofmill.calls.model_requests import ModelOutput
from proofmill.labels import read_labels
from proofmill.prompts import escapes, templates
from proofmill.synthetic import congruences, referee
from proofmill.synthetic.congruences import Congruence

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
        (
            f"```json\n{json.dumps({**GOOD, 'difficulty': 9})}\n``` is his, mine is ```json\n{json.dumps(GOOD)}\n```",
            "ok",
        ),
        (f"```json\n{json.dumps(GOOD)}\n``` is his, mine is ```json\n{{", "no-verdict"),
        (f"```json{json.dumps(GOOD)}", "ok"),
        (f"```json\u00a0{json.dumps(GOOD)}```", "ok"),
        ("[" * 100_000, "no-verdict"),
        (json.dumps(GOOD).replace("3", "3" * 5000), "no-verdict"),
        ("```json" + " " * 100_000, "no-verdict"),
    ],
)
def test_labels_are_parsed_strictly(text, reason):
    """The last block has all labels with the right types, or the row has no labels and the reason."""
    labels, found = read_labels(ModelOutput(text, "end"))
    assert (reason, GOOD if reason == "ok" else {}) == (found, labels)


def test_failed_call_has_no_labels():
    """A failed call keeps its reason."""
    assert read_labels(ModelOutput(json.dumps(GOOD), "error", "timeout")) == ({}, "timeout")


PROBLEM = Congruence("products", 7, (2, 3, 4, 5, 2))


@pytest.mark.parametrize(
    ("solution", "comments", "expected"),
    [
        (congruences.proof(PROBLEM), ["Nice!"], set()),
        (congruences.proof(PROBLEM), ["Your second line is wrong."], {"disagreement"}),
        ("<think>x</think>\nIn brief: So the residue is \\boxed{0}.", [], {"gaps"}),
        ("<think>x</think>\n2*3=6≡6.", [], {"incomplete"}),
    ],
)
def test_referee_labels_faults(solution, comments, expected):
    """Objections, missing conclusions and missing work are labeled; a complete proof is not."""
    fields = {
        "statement": congruences.statement(PROBLEM),
        "solution": solution,
        "origin": "f",
        "comments": escapes.in_blocks("comment", comments),
    }
    labels, reason = read_labels(ModelOutput(referee.verdict(templates.fill("classify", fields)), "end"))
    assert ("ok", expected) == (reason, {key for key, value in labels.items() if value is True})


def test_referee_labels_a_false_statement_wrong():
    """A false divisibility is labeled `wrong`."""
    false = Congruence("products", 7, (2, 3, 4, 5, 3))
    fields = {"statement": congruences.statement(false), "solution": "It is false.", "origin": "f", "comments": ""}
    labels, _ = read_labels(ModelOutput(referee.verdict(templates.fill("classify", fields)), "end"))
    assert labels["wrong"]


def test_stage_labels_every_problem(small, mill):
    """Each kept problem has a row with the judge's complete output."""
    made = mill({**SMALL, "labels/x": {"problems": "problems/train", "model": "api/referee"}})
    made.results = small.results
    rows = made.make("labels/x").rows()
    assert [row["problem"] for row in small.table("problems/train").rows()] == [row["problem"] for row in rows]
    assert all(row["reason"] == "ok" and "json" in row["verdict"] for row in rows)

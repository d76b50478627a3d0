"""A model of ours plays a remote one: it labels and grades, and its outputs are rebuilt when it is another model."""

import pytest

from mill import REFEREE, SMALL, Mill
from proofmill.config.config import expand
from proofmill.planning.plan import RunPlan
from proofmill.schema import references
from proofmill.schema.errors import RecipeError

OWN = {"weights": "base/own", "price": {"input": 0, "output": 0}, "temperature": 0, "max-tokens": 8}
JUDGED = {
    **SMALL,
    "base/own": {**SMALL["base/tiny"], "context": 8192},
    "api/own": OWN,
    "problems/own": {"source": "arithmetic", "split": "test", "rows": 2},
    "labels/own": {"problems": "problems/own", "model": "api/own"},
    "schemes/own": {"problems": "problems/own", "model": "api/referee"},
    "responses/own": {"problems": "problems/own", "model": "solutions"},
    "grades/own": {"responses": "responses/own", "schemes": "schemes/own", "grader": "api/own"},
}


@pytest.fixture(scope="module")
def judged(small):
    mill = Mill(small.results, **JUDGED)
    mill.make("base/own", "problems/own", "labels/own", "schemes/own", "responses/own", "grades/own")
    return mill


def test_untrained_model_gives_no_verdict_and_no_grades(judged):
    """The output of such a judge is stored unchanged, with the reason why it does not count: never a grade of 0."""
    labels, grades = judged.table("labels/own").rows(), judged.table("grades/own").rows()
    assert len(labels) == 2 and {row["reason"] for row in labels} == {"no-verdict"}
    assert len(grades) == 2 and all(row["grade"] is None for row in grades)
    assert judged.table("labels/own").stamp["cost"] == 0


def test_its_weights_are_a_parent_of_what_it_says(judged):
    """Labels and grades read the model: other weights make them again, and the plan makes the model first."""
    assert judged.table("labels/own").stamp["parents"]["base/own"] == judged.table("base/own").content
    entries, declared = judged.config.entries, judged.config.declared
    assert "base/own" in references.reads("labels", entries["labels/own"], entries.get, declared)
    assert "base/own" in references.reads("grades", entries["grades/own"], entries.get, declared)
    assert "base/own" in references.ancestors({**entries, **declared}, "labels/own")


def test_plan_makes_the_judge_before_what_it_judges(tmp_path):
    """In an empty folder the model comes first; the recipe includes it although only the judge names it."""
    config = expand({"test": {"api/referee": REFEREE, **JUDGED}})
    order = list(RunPlan(config, "labels/own", tmp_path).stages)
    assert order.index("base/own") < order.index("labels/own")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"id": "x"}, "found both `id` and `weights`"),
        ({"weights": None}, "found both `id` and `weights`, or neither"),
        ({"temperature": None}, "`temperature` is not set"),
        ({"extra-body": {"top_k": 1}}, "found `weights` with `extra-body`"),
        ({"commit": "a" * 40}, "found `weights` with `commit`, which applies to remote servers"),
        ({"weights": "problems/bench"}, "`weights` is `problems/bench`; expected"),
    ],
)
def test_faulty_declaration_is_refused(changed, said):
    """A judge of ours has weights and a temperature, and nothing that only a server could read."""
    with pytest.raises(RecipeError, match=said):
        expand({"test": {"api/referee": REFEREE, **JUDGED, "api/own": {**OWN, **changed}}})

"""Scores of a judge that are corrected by a few grades of a person: rows, page, comparison, and mistakes."""

import json
import random

import polars as pl
import pytest

from mill import Mill
from proofmill.schema.errors import RecipeError, TableError
from served import good, server

FREE = {"price": {"input": 0, "output": 0}, "max-tokens": 64}
NAMES = ("weak", "strong")


def points(text: str) -> int:
    """Return what an answer truly earns: its last number is the number of points."""
    return int(text.rsplit(" ", 1)[1])


def reply(request, number):
    """Solve a problem with some points, `strong` with more; judge with two points too many, at most 7."""
    content = request["messages"][-1]["content"]
    if request["model"] == "judge":
        claimed = int(content.partition("This proof earns ")[2][:1])
        return 200, good(f"<points>{min(7, claimed + 2)}</points>"), {}
    chance = random.Random(json.dumps([request["messages"], request.get("seed"), request["model"]]))
    return 200, good(f"This proof earns {chance.randrange(4) + 3 * (request['model'] == 'strong')}"), {}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Return the folder, the entries and the results of attempts by two models, with grades by a generous judge."""
    folder = tmp_path_factory.mktemp("judged")
    rows = [{"statement": f"Prove the statement number {n}, please.", "solution": "Clear."} for n in range(40)]
    (folder / "statements.jsonl").write_text("\n".join(map(json.dumps, rows)))
    entries = {
        **{f"api/{name}": {"id": name, **FREE} for name in ("weak", "strong", "judge")},
        "grader/generous": {"judges": ["api/judge"], "prompt": "grade-by-reference", "show-reference": True},
        "problems/statements": {"source": "table", "path": str(folder / "statements.jsonl")},
    }
    for name in ("weak", "strong"):
        path = str(folder / f"{name}.jsonl")
        entries |= {
            f"responses/{name}": {"problems": "problems/statements", "model": f"api/{name}", "attempts": 2},
            f"grades/{name}": {"responses": f"responses/{name}", "grader": "grader/generous"},
            f"grades/{name}-human": {"responses": f"responses/{name}", "grader": "human", "path": path},
        }
    with server(reply) as (url, _), pytest.MonkeyPatch.context() as patch:
        for name in ("WEAK", "STRONG", "JUDGE"):
            patch.setenv(f"PROOFMILL_{name}_URL", url)
        mill = Mill(folder / "results", **entries)
        mill.make("problems/statements", *(f"{kind}/{name}" for kind in ("responses", "grades") for name in NAMES))
    return folder, entries


@pytest.fixture
def graded(judged):
    """Return a function that labels some attempts, scores them with these fields, and returns the results."""
    folder, entries = judged

    def make(number=30, max_points=7, choose=None, **fields):
        scores = {
            "grades": ["grades/weak", "grades/strong"], "metrics": ["avg-at-k"], "compare": [["api/strong", "api/weak"]],
            "debias": ["grades/weak-human", "grades/strong-human"], **fields,
        }  # fmt: skip
        made = Mill(folder / "results", **{**entries, "scores/all": scores})
        for name in NAMES:
            rows = made.table(f"responses/{name}").rows()
            rows = sorted(rows, key=choose)[-number:] if choose else random.Random(name).sample(rows, number)
            lines = [
                {"response": row["response"], "grade": min(max_points, points(row["text"])), "max_points": max_points}
                for row in rows
            ]
            (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
            made.make(f"grades/{name}-human")
        return made, made.make("scores/all")

    return make


def test_score_is_corrected_by_the_labels(graded):
    """The judge is two points too generous; the debiased score is near the truth, with an interval, next to both others."""
    made, scores = graded()
    rows = scores.scan().collect()
    for model in ("weak", "strong"):
        truth = sum(points(row["text"]) for row in made.table(f"responses/{model}").rows()) / 80
        of_model = rows.filter((pl.col("model") == f"api/{model}") & pl.col("baseline").is_null())
        cells = {row["grader"].split(",")[-1].strip(): row for row in of_model.iter_rows(named=True)}
        judged, debiased, labels = cells["grader/generous"], cells["debiased"], cells["labels alone"]
        assert judged["low"] > truth + 0.5 and debiased["low"] < truth < debiased["high"]
        assert abs(debiased["value"] - truth) < 0.5 and labels["n"] == 30 and debiased["n"] == 80
    (pair,) = rows.filter(pl.col("baseline").is_not_null() & pl.col("grader").str.ends_with("debiased")).to_dicts()
    assert 0 < pair["low"] < pair["value"] < pair["high"] and pair["p_value"] < 0.05 and pair["n_problems"] == 40
    page = scores.path.with_suffix(".md").read_text()
    assert "30 of 80 attempts, at " in page and "have labels (`debias`); the judge's weight in avg@2 is" in page


def test_labels_of_few_problems_have_no_interval(graded):
    """The page says that more are needed."""
    _, scores = graded(number=3)
    rows = scores.scan().collect().filter(pl.col("grader").str.ends_with("debiased"))
    assert set(rows["low"]) == {None} and rows.height == 3
    assert "an interval needs labels at 5 problems: grade more" in scores.path.with_suffix(".md").read_text()


def test_labels_on_another_scale_are_refused(graded):
    """A person's 1 of 1 is not one point of seven."""
    with pytest.raises(TableError, match="has a label out of 1 and a grade out of 7; expected one scale"):
        graded(max_points=1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gold-grades": "grades/weak-human"}, "found `debias` and `gold-grades`; expected one of them"),
        ({"metrics": [{"pass-at-k": 2}]}, "`debias` corrects mean grades, and none is in `metrics`"),
    ],
)
def test_mistakes_are_found_first(graded, fields, said):
    """Mistakes are refused before anything is paid."""
    with pytest.raises(RecipeError, match=said):
        graded(**fields)


def test_labels_of_other_attempts_are_refused(graded):
    """Labels must be of the attempts that are scored."""
    with pytest.raises(TableError, match="none of the scored attempts has a grade there; expected grades of the same"):
        graded(grades=["grades/weak"], debias=["grades/strong-human"], compare=[])


def test_chosen_labels_are_noticed(graded):
    """Labels of the attempts with the most points are no random draw, and the page says so."""
    _, scores = graded(number=40, choose=lambda row: (points(row["text"]), row["response"]))
    assert "labelled attempts have more points by the judge than others" in scores.path.with_suffix(".md").read_text()


def test_pair_with_one_labelled_model_has_no_debiased_difference(graded):
    """The page says which model lacks labels."""
    _, scores = graded(debias=["grades/strong-human"])
    page = scores.path.with_suffix(".md").read_text()
    assert "no debiased difference from api/weak, whose attempts have no labels" in page
    assert scores.scan().collect().filter(pl.col("baseline").is_not_null()).height == 1

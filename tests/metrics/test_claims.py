"""Claims: shown, refuted, or not shown at this size, for hand-made grades; and the claims a recipe may have."""

import random
import runpy

import pytest

from mill import REFEREE, ROOT, SMALL
from proofmill.config.config import expand
from proofmill.config.identity import identity_of
from proofmill.metrics import claims
from proofmill.metrics.comparisons import adjust, comparisons
from proofmill.metrics.score_rows import Cell
from proofmill.schema.entries.scores_entry import Claim, Scores
from proofmill.schema.errors import RecipeError, TableError
from proofmill.schema.registry_items import split

CLAIM = {"statement": "A proves more than B.", "compare": ["a", "b"], "problems": "p", "sampling": "s"}


def attempts(*grades_of_seeds):
    """Build rows of one model: for each seed a grade, or a list of grades, per problem."""
    return [
        {"problem": f"p{p}", "attempt": a, "grade": grade, "max_points": 7, "seed": seed}
        for seed, of_problems in enumerate(grades_of_seeds)
        for p, grades in enumerate(of_problems)
        for a, grade in enumerate(grades if isinstance(grades, list) else [grades])
    ]


def settled(models, metrics=("avg-at-k",), graders=("g",), compare=(), **stated):
    """Return the claims about models, given the attempts of each by name."""
    groups = {Cell(model, "p", "s", grader): rows for model, rows in models.items() for grader in graders}
    stated = {name: Claim(**{**CLAIM, **fields}) for name, fields in (stated or {"better": {}}).items()}
    entry = Scores(metrics=[*metrics], claims=stated, compare=[*compare], resamples=500)
    compared = list(comparisons(groups, [split(item) for item in metrics], entry))
    adjust(compared)
    return claims.settle(groups, compared, entry), compared


def noisy(shift, seed=0, size=40):
    """Return grades around 3, higher by `shift`, with a spread of 1 between problems."""
    rng = random.Random(seed)
    return [3 + shift + rng.gauss(0, 1) for _ in range(size)]


@pytest.mark.parametrize(
    ("shift", "outcome"),
    [(2, "shown"), (-2, "refuted"), (0.1, "not shown at this size"), (0, "not shown at this size")],
)
def test_claim_is_decided_by_the_interval_and_by_p(shift, outcome):
    """A difference of two points on 40 problems is shown, or refuted; a tenth of a point is neither."""
    (claim,), (row,) = settled({"a": attempts(noisy(shift)), "b": attempts(noisy(0, seed=1))})
    assert claim.outcome == outcome
    assert (row["low"] > 0, row["high"] < 0) == (outcome == "shown", outcome == "refuted")
    assert claim.sentence.startswith(
        f"A proves more than B: **{outcome}**. a - b on p (s), avg@1 {row['value']:+.2f} ["
    )


def test_interval_alone_shows_nothing():
    """If Holm's p is too large because of many comparisons, an interval above 0 is not enough."""
    grades = {"a": attempts(noisy(0.85)), "b": attempts(noisy(0, seed=1))}
    assert settled(grades)[0][0].outcome == "shown"
    others = {f"m{n}": attempts(noisy(0, seed=n)) for n in range(2, 30)}
    (claim,), rows = settled({**grades, **others}, compare=[[model, "b"] for model in others])
    assert len(rows) == 29
    assert claim.row["low"] > 0 and claim.row["p_value"] < 0.05 < claim.row["p_adjusted"]
    assert claim.outcome == "not shown at this size"


def test_seeds_are_counted_by_their_own_intervals():
    """Of three trainings two are better and one is worse: the sentence counts them, and the stamp has each."""
    ours = attempts(noisy(2), noisy(2, seed=1), noisy(-2, seed=2))
    theirs = attempts(noisy(0, seed=3), noisy(0, seed=4), noisy(0, seed=5))
    (claim,), _ = settled({"a": ours, "b": theirs})
    assert claim.sentence.endswith("; the interval is above 0 in 2 of 3 seeds, below 0 in 1.")
    seeds = claim.to_stamp()["seeds"]
    assert [numbers["low"] > 0 for numbers in seeds.values()] == [True, True, False]
    assert claim.to_stamp()["value"] == pytest.approx(sum(numbers["value"] for numbers in seeds.values()) / 3)


def test_one_seed_is_not_counted():
    """Without other trainings the sentence mentions no seeds."""
    (claim,), _ = settled({"a": attempts(noisy(2)), "b": attempts(noisy(0, seed=1))})
    assert "seeds" not in claim.sentence and claim.to_stamp()["seeds"] == {}


def test_seeds_are_those_of_trained_models():
    """An untrained baseline counts in every seed; a trained one only in its own, and one seed is too few."""
    ours = attempts(*(noisy(2, seed=seed) for seed in range(5)))
    base = attempts(noisy(0, seed=9))
    for baseline, outcome, seeds in (("api/b", "shown", 5), ("sft/b", "not decided: too few seeds", 1)):
        (claim,), (row,) = settled({"sft/a": ours, baseline: base}, better={"compare": ["sft/a", baseline]})
        assert (claim.outcome, row["n_seeds"], len(claim.seeds)) == (outcome, seeds, seeds)
    (claim,), (row,) = settled(
        {"sft/a": ours, "sft/b": [{**r, "seed": r["seed"] + 5} for r in ours]}, better={"compare": ["sft/a", "sft/b"]}
    )
    assert row["value"] is None and claim.outcome == "not shown at this size"


def test_page_of_the_docs_has_a_row_for_each_claim(monkeypatch):
    """The table of benchmarks/claims.py has the statement, the outcome, the earlier one and the numbers."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    script = runpy.run_path(str(ROOT / "benchmarks/claims.py"))
    (claim,), _ = settled(
        {"a": attempts(noisy(2), noisy(2, seed=1)), "b": attempts(noisy(0, seed=2), noisy(0, seed=3))}
    )
    *_, row = script["_claim_rows"]({claim.name: claim.to_stamp()})
    assert row.startswith(f"| better | A proves more than B | **{claim.outcome}** | – | `a` - `b`, avg@1 | +")
    assert row.endswith("| 2 of 2 | 0 of 2 |")


def test_claim_about_another_metric_has_its_own_comparison():
    """`{pass-at-k: 2}` of a model that is correct in every second attempt, at problems where the other never is."""
    models = {"a": attempts([[7, 0]] * 12 + [[0, 0]] * 3), "b": attempts([[5, 5]] * 15)}
    (mean, solved), rows = settled(models, ["avg-at-k", {"pass-at-k": 2}], mean={}, solved={"metric": {"pass-at-k": 2}})
    assert [row["metric"] for row in rows] == ["avg@2", "pass@2"]
    assert (mean.outcome, solved.outcome) == ("refuted", "shown")
    assert solved.row["value"] == pytest.approx(0.8)


def test_comparison_that_is_there_is_not_made_twice():
    """A claim about a pair of `compare` uses its row: there is one test to adjust for, not two."""
    models = {"a": attempts(noisy(2)), "b": attempts(noisy(0, seed=1))}
    assert settled(models, compare=[["a", "b"]])[1] == settled(models)[1]


def test_problems_without_a_verdict_show_nothing():
    """Models without a common graded problem are not compared; equal differences are compared, without certainty."""
    nothing = {"a": attempts([None, 7]), "b": attempts([3, None])}
    (claim,), _ = settled(nothing)
    assert (claim.outcome, claim.row["value"]) == ("not shown at this size", None)
    assert claim.sentence.endswith("avg@1: no seeds or problems in common.")
    (alike,), _ = settled({"a": attempts([7] * 20), "b": attempts([5] * 20)})
    assert (alike.outcome, alike.row["value"]) == ("shown", 2) and 0.5 < alike.row["low"] < 2


def test_claim_about_what_was_not_measured_is_an_error():
    """With `grades`, models are known when the tables are read; two graders are ambiguous."""
    models = {"a": attempts(noisy(2)), "b": attempts(noisy(0, seed=1))}
    with pytest.raises(TableError, match="`claims` names c, which has no grades; expected two of a, b"):
        settled(models, better={"compare": ["a", "c"]})
    with pytest.raises(TableError, match=r"`better`, and a and b on q \(s\) were both graded 0 times; expected once"):
        settled(models, better={"problems": "q"})
    with pytest.raises(TableError, match="2 times by g and h; expected once"):
        settled(models, graders=("g", "h"))


# -------------------------------------------------------------------------------------------------------- in a recipe

SCORES = {
    "models": ["sft/cold", "base/tiny"],
    "problems": ["problems/bench"],
    "schemes": ["schemes/bench"],
    "sampling": {"greedy": {"temperature": 0, "max-tokens": 24}},
    "grader": "api/referee",
    "metrics": ["avg-at-k", "format-rate", "run-mean"],
}
STATED = {
    "statement": "Teaching helps.",
    "compare": ["sft/cold", "base/tiny"],
    "problems": "problems/bench",
    "sampling": "greedy",
}


def recipe(**fields):
    claim = {key: value for key, value in {**STATED, **fields}.items() if value is not None}
    return {**SMALL, "scores/x": {**SCORES, "claims": {"teaching": claim}}}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"compare": ["sft/cold", "sft/warm"]}, "`compare` names `sft/warm`, which is not measured; expected one of"),
        ({"compare": ["sft/cold"]}, "`compare` is ['sft/cold']; expected `[model, baseline]`"),
        ({"compare": ["sft/cold", "sft/cold"]}, "expected `[model, baseline]`, two different models"),
        ({"problems": "problems/bank"}, "`problems` names `problems/bank`, which is not measured; expected one of"),
        ({"sampling": "sampled"}, "`sampling` names `sampled`, which is not measured; expected one of"),
        ({"metric": "solve-rate"}, "`metric` is `solve-rate`; expected one of the `metrics`"),
        ({"metric": "run-mean"}, "that compare models: avg-at-k, format-rate."),
    ],
)
def test_claim_about_something_else_is_refused(fields, said):
    """The message names the claim, the unknown name and the known ones, before any stage runs."""
    with pytest.raises(RecipeError) as error:
        expand({"test": {"api/referee": REFEREE, **recipe(**fields)}})
    assert "scores/x: `claims` > `teaching`: " in str(error.value) and said in str(error.value)


@pytest.mark.parametrize("missing", ["statement", "problems", "sampling"])
def test_claim_says_all_that_it_is_about(missing):
    """A claim needs its statement, its benchmark and its sampling setting."""
    with pytest.raises(RecipeError, match=missing):
        expand({"test": {"api/referee": REFEREE, **recipe(**{missing: None})}})


def test_repeated_scores_have_the_claims_of_what_they_repeat():
    """Over seeds the same claims are evaluated, with model names without a seed."""
    entries = {**recipe(), "scores/x-seeds": {"repeat": "scores/x", "seeds": [0, 1]}}
    config = expand({"test": {"api/referee": REFEREE, **entries}})
    assert config.entries["scores/x-seeds"].claims == config.entries["scores/x"].claims
    assert identity_of(config.entries["scores/x"], config.declared)


def test_claims_stand_on_the_page_and_in_the_stamp(small, mill):
    """Eight steps train nothing into a tiny model, and one training of it decides nothing; the page says both."""
    made = mill(recipe())
    made.results = small.results
    names = [f"{kind}/{model}@bench@greedy" for model in ("sft-cold", "base-tiny") for kind in ("responses", "grades")]
    table = made.make(*names, "scores/x")
    found = table.stamp["claims"]["teaching"]
    assert (found["outcome"], found["value"]) == ("not decided: too few seeds", 0)
    assert (found["baseline"], found["metric"], found["seeds"]) == ("base/tiny", "avg@1", {})
    page = table.page.read_text(encoding="utf-8")
    assert f"- {found['sentence']}" in page
    assert "- sft/cold - base/tiny: compared in one seed. Whether the difference holds for other seeds" in page
    assert [row["metric"] for row in table.rows() if row["baseline"]] == ["avg@1"]


def test_comparison_that_could_not_be_made_is_not_adjusted_for():
    """Without a value there was no test: it has p of 1, and the others are adjusted without it."""
    rows = [{"value": 1.0, "p_value": 0.01}, {"value": None, "p_value": 1.0}, {"value": 2.0, "p_value": 0.04}]
    adjust(rows)
    assert [row["p_adjusted"] for row in rows] == [0.02, 1.0, 0.04]

"""Every recipe but `nano` under the rehearsal: it runs to its end on two cores, and a second run does nothing."""

import pytest

from project import Project
from proofmill import recipes

pytestmark = pytest.mark.pipeline
# `nano` is rehearsed in test_pipeline.py; `nano-seeds` is nano again.
RECIPES = ("real-corpus", "gold-answers", "gsm8k-lengths", "grader-study", "imo-bench")


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory) -> Project:
    """The recipes made in one run, from nothing."""
    project = Project(tmp_path_factory.mktemp("rehearsed") / "project", overlay="workflow/rehearsal.yaml")
    project.first = project.made(*RECIPES)
    return project


def test_every_recipe_is_rehearsed():
    """A recipe added to config.yaml is rehearsed too."""
    known = set(recipes.expand(recipes.read("config.yaml")).recipes)
    assert known == {*RECIPES, "nano", "nano-seeds"}


def test_rehearsal_makes_every_table_and_nothing_twice(rehearsed):
    """One job for each artifact; then none."""
    wanted = {name for recipe in RECIPES for name in rehearsed.book.recipes[recipe]}
    assert wanted <= set(rehearsed.first)
    assert rehearsed.made(*RECIPES) == []


def test_rehearsed_graders_agree_with_the_checker(rehearsed):
    """The referee marks as the checker does, alone, as a jury and in a cascade: each agreement is 1, and nothing is unscored."""
    rows = rehearsed.table("scores/grader-study").rows()
    agreed = [row for row in rows if row["measure"].startswith(("balanced", "cohen")) and row["split"] == "all"]
    assert len(agreed) == 10
    assert {(row["value"], row["unscored"]) for row in agreed} == {(1.0, 0.0)}
    assert {row["value"] for row in rehearsed.table("scores/gold-answers").rows()} == {1.0}


def test_rehearsed_benchmarks_are_measured(rehearsed):
    """A model that solves nothing has 0 marks on every attempt, each with its interval, and none is unscored."""
    for name, attempts in (("scores/imo-proofbench", 60), ("scores/imo-answerbench", 60)):
        rows = {r["measure"]: r for r in rehearsed.table(name).rows() if r["split"] == "all"}
        assert (rows["avg@3"]["value"], rows["avg@3"]["n"], rows["avg@3"]["unscored"]) == (0, attempts, 0)
        assert rows["avg@3"]["high"] > 0


def test_rehearsed_corpora_are_apart_from_the_benchmarks(rehearsed):
    """What `apart-from` left stands in no benchmark by the same method; the evidence table says so."""
    found = rehearsed.table("overlaps/corpus").rows()
    benchmarks = ("problems/proofbench", "problems/answerbench", "problems/aime", "problems/usamo")
    assert [row for row in found if row["against"] in benchmarks and row["method"] == "exact"] == []

"""Edits of every kind: what `snakemake` would make is what `proofmill plan` says, and what the edit asks for."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from project import ROOT, Project, copy_of

pytestmark = pytest.mark.pipeline

CONFIG = """
plugins: [parts.py]
budget: 5.0
edits:
  api/referee: {id: referee-1, program: referee, price: {input: 1, output: 1}, price-source: "a test, 2026-11-22", temperature: 0, max-tokens: 1024}
  problems/family: {source: arithmetic, split: test, rows: 12}
  problems/file: {source: table, path: corpus, columns: {statement: statement, solution: solution}}
  problems/train: {source: problems/file, keep: [{shorter: 900}]}
  schemes/train: {problems: problems/train, model: api/referee}
  responses/given: {problems: problems/train, model: solutions}
  grades/given: {responses: responses/given, schemes: schemes/train, grader: api/referee, grader-prompt: prompts/mine.md}
  examples/given: {grades: grades/given, keep: [one-per-problem]}
  scores/given: {grades: [grades/given], metrics: [avg-at-k]}
"""
PARTS = '''"""A user's own parts."""

from pack.sub import MORE
from proofmill.schema.registry_items import Named
from stars import *


def shorter(row, most):
    return None if len(row["statement"]) < most + MORE + EXTRA else "long"


FILTERS = {"shorter": Named(shorter, "characters of the statement", "count")}
'''
GRADED = {"grades/given", "examples/given", "scores/given"}
TRAIN = {"problems/train", "schemes/train", "responses/given", *GRADED}
FILE = {"problems/file", *TRAIN}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Project:
    """Return the recipe `edits`, completely built, with all files an hour old."""
    project = Project(tmp_path_factory.mktemp("edits") / "project", CONFIG)
    (project.folder / "parts.py").write_text(PARTS, encoding="utf-8")
    (project.folder / "pack").mkdir()
    (project.folder / "pack/sub.py").write_text("MORE = 0\n", encoding="utf-8")
    (project.folder / "stars.py").write_text("EXTRA = 0\n", encoding="utf-8")
    prompts = project.folder / "prompts"
    prompts.mkdir()
    shutil.copy(ROOT / "src/proofmill/prompts/grade-strict.md", prompts / "mine.md")
    corpus = project.folder / "corpus"
    corpus.mkdir()
    (corpus / "a.jsonl").write_text("", encoding="utf-8")
    made = project.job("problems/family")
    assert made.returncode == 0, made.stdout
    rows = [json.dumps(row) for row in project.table("problems/family").rows("statement", "solution")]
    for name, some in (("a.jsonl", rows[:6]), ("b.jsonl", rows[6:])):
        (corpus / name).write_text("\n".join(some) + "\n", encoding="utf-8")
    assert {"problems/file", "scores/given"} <= set(project.made("edits"))
    return project


def config(old: str, new: str) -> Callable[[Project], None]:
    return lambda project: project.edit(old, new)


def text(name: str, old: str, new: str) -> Callable[[Project], None]:
    """Edit a file, as with an editor."""

    def edit(project: Project) -> None:
        path = project.folder / name
        before = path.read_text(encoding="utf-8")
        assert old in before
        path.write_text(before.replace(old, new, 1), encoding="utf-8")

    return edit


def older(project: Project) -> None:
    """Replace a source by an older one, as by `cp -p`, `rsync -t` or `tar`."""
    path = project.folder / "corpus/a.jsonl"
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    os.utime(path, (1e9, 1e9))


def touched(name: str) -> Callable[[Project], None]:
    return lambda project: os.utime(project.folder / name, (time.time() + 60, time.time() + 60))


def without(*names: str) -> Callable[[Project], None]:
    def remove(project: Project) -> None:
        for name in names:
            path = project.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def both(*edits: Callable[[Project], None]) -> Callable[[Project], None]:
    return lambda project: [edit(project) for edit in edits]


def added(project: Project) -> None:
    path = project.folder / "corpus"
    shutil.copy(path / "a.jsonl", path / "c.jsonl")
    (path / "c.jsonl").write_text(
        json.dumps({"statement": "Prove that $1+1=2$.", "solution": "It is."}), encoding="utf-8"
    )


def renamed(name: str, *names: str) -> Callable[[Project], None]:
    """Rename a source to each of some names in turn."""

    def edit(project: Project) -> None:
        for old, new in pairwise((name, *names)):
            (project.folder / "corpus" / old).rename(project.folder / "corpus" / new)

    return edit


def without_times(project: Project) -> None:
    """Copy the results without their times, at once and in arbitrary order."""
    for number, path in enumerate(sorted((project.folder / "results").rglob("*.parquet"), reverse=True)):
        os.utime(path, (1.5e9 + number, 1.5e9 + number))


NO_RECORDS = without(".snakemake")
EDITS: dict[str, tuple[Callable[[Project], None], set[str]]] = {
    "nothing": (lambda project: None, set()),
    "a number": (config("{shorter: 900}", "{shorter: 800}"), TRAIN),
    "a default written out": (config("model: api/referee}", "model: api/referee, prompt: scheme}"), set()),
    "a comment": (config("edits:", "# all of it\nedits:"), set()),
    "the order of keys": (config("{problems: problems/train, model: solutions}", "{model: solutions, problems: problems/train}"), set()),
    "the budget": (config("budget: 5.0", "budget: 6.0"), set()),
    "a price": (config("output: 1}", "output: 2}"), {"schemes/train", *GRADED}),
    "a setting of a model": (config("max-tokens: 1024", "max-tokens: 1025"), {"schemes/train", *GRADED}),
    "a share that may fail": (config("max-tokens: 1024", "max-tokens: 1024, max-failed: 0.2"), set()),
    "a metric": (config("[avg-at-k]", "[avg-at-k, solve-rate]"), {"scores/given"}),
    "a selector": (config("[one-per-problem]", "[solved]"), {"examples/given"}),
    "a prompt": (text("prompts/mine.md", "\n", "\n"), set()),
    "a prompt's text": (lambda project: text("prompts/mine.md", "# ", "# The ")(project), GRADED),
    "a part": (text("parts.py", "< most", "<= most"), TRAIN),
    "a part's comment": (text("parts.py", "    return None", "    # short enough\n    return None"), set()),
    "a source": (text("corpus/a.jsonl", "that", "whether"), FILE),
    "an older source": (older, FILE),
    "a source that is touched": (touched("corpus/a.jsonl"), set()),
    "a source more": (added, FILE),
    "a source renamed": (renamed("a.jsonl", "0.jsonl"), FILE),
    "a source disabled": (renamed("a.jsonl", "a.jsonl.off"), FILE),
    "two sources swapped": (
        both(renamed("a.jsonl", "c"), renamed("b.jsonl", "a.jsonl"), renamed("c", "b.jsonl")), FILE,
    ),
    "a source renamed and back": (renamed("a.jsonl", "0.jsonl", "a.jsonl"), set()),
    "a star import": (text("stars.py", "0", "1"), TRAIN),
    "a module of a package": (text("pack/sub.py", "0", "1"), TRAIN),
    "a source less": (without("corpus/b.jsonl"), FILE),
    "a table that is touched": (touched("results/problems/train.parquet"), set()),
    "a table that is gone": (without("results/schemes/train.parquet"), {"schemes/train"}),
    "a table and its copy that are gone": (
        without("results/schemes/train.parquet", "results/archive/schemes"), {"schemes/train", *GRADED},
    ),
    "copies that are gone": (without("results/archive"), set()),
    "calls that are gone": (without("results/calls"), set()),
    "no records": (NO_RECORDS, set()),
    "no records, and a number": (both(NO_RECORDS, config("{shorter: 900}", "{shorter: 800}")), TRAIN),
    "no records, and a part": (both(NO_RECORDS, text("parts.py", "< most", "<= most")), TRAIN),
    "no records, and an older source": (both(NO_RECORDS, older), FILE),
    "results without their times": (both(NO_RECORDS, without_times), set()),
    "results without their times, and a prompt": (
        both(NO_RECORDS, without_times, text("prompts/mine.md", "# ", "# The ")), GRADED,
    ),
}  # fmt: skip


def by_plan(project: Project, target: str = "edits") -> set[str]:
    """Return the artifacts that `proofmill plan` would make or restore."""
    planned = project.run(sys.executable, "-m", "proofmill", "plan", target, "--json")
    return {stage["name"] for stage in json.loads(planned.stdout)["stages"] if stage["state"] != "done"}


@pytest.mark.sampled(10, "a prompt's text", "an older source", "results without their times]")
@pytest.mark.parametrize(("edit", "expected"), EDITS.values(), ids=EDITS)
def test_snakemake_and_plan_agree_about_an_edit(finished, tmp_path, edit, expected):
    """An edit that changes what a table is made from is seen by both, whatever the files' times and Snakemake's records say."""
    project = copy_of(finished, tmp_path / "project")
    edit(project)
    assert by_plan(project) == expected
    assert project.planned("edits") == expected


def test_edit_and_its_reverse_restore_what_was(finished, tmp_path):
    """An edit that is taken back brings the old tables back without a call, also where Snakemake has no records."""
    project = copy_of(finished, tmp_path / "project")
    before = {name: project.table(name).content for name in FILE}
    project.edit("{shorter: 900}", "{shorter: 100}")
    assert set(project.made("edits")) == TRAIN
    shutil.rmtree(project.folder / ".snakemake")
    project.edit("{shorter: 100}", "{shorter: 900}")
    again = project.snakemake("edits")
    assert again.returncode == 0, again.stdout
    assert "restored from the archive" in again.stdout
    assert {name: project.table(name).content for name in FILE} == before
    assert project.planned("edits") == set()


def test_missing_table_is_made_only_where_it_is_asked_for_or_read(finished, tmp_path):
    """A recipe wants all of its tables; one table whose stamp is right needs none that it was made from."""
    project = copy_of(finished, tmp_path / "project")
    project.table("schemes/train").path.unlink()
    one = "results/scores/given.parquet"
    assert project.planned(one) == by_plan(project, one) == set()
    assert project.made("edits") == ["schemes/train"]
    assert project.planned("edits") == by_plan(project) == set()


@pytest.mark.long
def test_tables_from_the_future_are_read_like_others(finished, tmp_path):
    """A clock behind those that wrote the tables loses nothing: downstream tables are built, once."""
    project = copy_of(finished, tmp_path / "project")
    for name in ("grades/given", "problems/train"):
        touched(f"results/{name}.parquet")(project)
    project.edit("[one-per-problem]", "[solved]")
    assert project.made("edits") == ["examples/given"]
    assert project.made("edits") == []


@pytest.mark.long
@pytest.mark.parametrize("forced", [("--forcerun", "results/schemes/train.parquet"), ("-R", "schemes")])
def test_forced_table_is_made_again_with_its_descendants(finished, tmp_path, forced):
    """Forced tables and everything downstream are rebuilt; the rest stays."""
    project = copy_of(finished, tmp_path / "project")
    assert project.planned("edits", *forced) == {"schemes/train", *GRADED}


def test_file_that_is_no_table_of_ours_is_not_overwritten(finished, tmp_path):
    """A file in a table's place that proofmill did not write stops both with what to do, and stays."""
    project = copy_of(finished, tmp_path / "project")
    path = project.table("schemes/train").path
    path.write_bytes(b"mine")
    done = project.snakemake("edits")
    assert done.returncode != 0
    assert "schemes/train.parquet: is damaged, and cannot be read as Parquet" in done.stdout
    assert path.read_bytes() == b"mine"
    assert (
        "is damaged, and cannot be read as Parquet"
        in project.run(sys.executable, "-m", "proofmill", "plan", "edits").stdout
    )

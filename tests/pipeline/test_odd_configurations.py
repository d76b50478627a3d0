"""Odd but possible configurations under Snakemake: an entry longer than an argument, paths with Snakemake's own signs,
unreadable files."""

import json

import pytest

from project import Project
from proofmill.config.identity import identity_of

pytestmark = pytest.mark.pipeline

LONG = [*(f"an-origin-that-nothing-has-{number}-é" for number in range(8_000)), "arithmetic"]
PROBLEM = '{"statement": "Show that 2 divides 4.", "solution": "4 = 2 * 2."}\n'


def test_entry_of_many_arguments_is_made_once_and_again_when_it_is_edited(tmp_path):
    """An entry larger than any argument of Linux reaches its job; a rerun does nothing, an edit is noticed."""
    words = json.dumps(LONG, ensure_ascii=False)
    config = f"r:\n  problems/x: {{source: arithmetic, rows: 3, keep: [{{origin: {words}}}]}}\n"
    project = Project(tmp_path / "project", config)
    book = project.config
    assert len(identity_of(book.entries["problems/x"], book.declared).encode()) > 2 * 128 * 1024
    assert project.made("r") == ["problems/x"]
    assert project.table("problems/x").stamp["entry"]["keep"] == [{"origin": LONG}]
    assert project.made("r") == [] and project.planned("r") == set()
    project.edit(LONG[0], "another")
    assert project.made("r") == ["problems/x"]
    left = [path for path in (project.results / "unfinished").rglob("*") if path.is_file()]
    assert left + list(project.folder.glob(".snakemake/shell_tmp*")) == []


def test_source_with_signs_in_its_path_is_read_and_watched(tmp_path):
    """Blanks, quotes, dollars and what Snakemake takes for a wildcard are part of a path like any other sign."""
    source = tmp_path / "a b'c\"$d&{}{e f}*{name}{2}.jsonl"
    source.write_text(PROBLEM)
    entry = {"r": {"problems/x": {"source": "table", "path": str(source)}}}
    project = Project(tmp_path / "project", json.dumps(entry))
    assert project.made("r") == ["problems/x"]
    source.write_text(PROBLEM * 2)
    assert project.made("r") == ["problems/x"] and project.frame("problems/x").height == 2


def refused(project: Project, *said: str) -> None:
    done = project.snakemake("r")
    assert (done.returncode, "Traceback (most" in done.stdout) == (1, False), done.stdout
    assert [part for part in (*said, "expected") if part not in done.stdout] == [], done.stdout
    assert not list(project.results.rglob("*.parquet"))


@pytest.mark.sampled(0, "/proc/self/mem")
@pytest.mark.parametrize("path", ["nowhere.jsonl", "~nosuchuser/a.jsonl", "/dev/zero", "/proc/self/mem", "a/" * 2_500])
def test_source_that_cannot_be_read_is_refused(tmp_path, path):
    """A file that has no rows gives one message, whatever it is."""
    refused(
        Project(tmp_path / "project", f"r:\n  problems/x: {{source: table, path: '{path}'}}\n"),
        "Error: ",
        path[:20],
    )


@pytest.mark.sampled(0, "nested", "periodic")
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("r: " + "[" * 300 + "]" * 300, "config.yaml: is nested too deeply"),
        ("r: " + "9" * 5_000, "config.yaml: cannot be read as YAML"),
        ("r: {", "config.yaml: cannot be read as YAML"),
        ("1:\n  problems/x: {source: arithmetic, rows: 3}\n", "has the name 1"),
        ("r:\n  problems/" + "a" * 230 + ": {source: arithmetic, rows: 3}\n", "has 230 characters"),
        ("r:\n  problems/" + "a" * 20 + ": {source: arithmetic, rows: 3}\n", "ends in `a` twenty times"),
    ],
    ids=["nested", "digits", "broken", "number", "long", "periodic"],
)
def test_configuration_that_cannot_be_read_is_refused(tmp_path, config, said):
    """A file that our reader refuses is not read by Snakemake first."""
    refused(Project(tmp_path / "project", config), "RecipeError: ", said)

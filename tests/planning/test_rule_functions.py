"""The functions of the rules: what is forced, what a job waits for, and the last words about what is refused."""

import os
import time
from types import SimpleNamespace

import pytest

from mill import Mill
from proofmill.artifacts.graph import Graph
from proofmill.planning.rule_functions import RuleFunctions

ENTRIES = {
    "problems/a": {"source": "arithmetic", "rows": 6},
    "problems/b": {"source": "problems/a"},
    "problems/public": {"source": "table", "path": f"hub:AI-MO/aops@{'0' * 40}/x.parquet"},
    "schemes/b": {"problems": "problems/b", "model": "api/referee"},
}


@pytest.fixture
def functions(tmp_path, monkeypatch):
    """Return a function that builds the rule functions of a folder in which `problems/a` is built."""
    monkeypatch.chdir(tmp_path)
    for name in ("PROOFMILL_DATA", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    mill = Mill(tmp_path / "results", **ENTRIES)
    mill.make("problems/a")

    def build(shards=None, **workflow):
        dag = SimpleNamespace(forcefiles=set())
        given = {"dag": dag, "remote_exec": False, "dag_settings": SimpleNamespace(targets=[]), **workflow}
        return RuleFunctions(Graph(mill.config, shards or {}, set), SimpleNamespace(**given)), dag.forcefiles

    return build


def wildcards(name):
    return SimpleNamespace(name=name)


def test_tables_that_are_due_are_forced(functions):
    """Snakemake compares modification times only, so the job's table and its due parents are forced."""
    rules, forced = functions()
    assert rules.parents("schemes")(wildcards("b")) == ["results/problems/b.parquet"]
    assert forced == {"results/schemes/b.parquet", "results/problems/b.parquet"}


def test_tables_that_are_up_to_date_are_inputs_of_any_age(functions):
    """They are flagged `ancient`, and nothing but the job's table is forced."""
    rules, forced = functions()
    (table,) = rules.parents("problems")(wildcards("b"))
    assert table == "results/problems/a.parquet" and table.flags["ancient"]
    assert forced == {"results/problems/b.parquet"}


def test_files_that_snakemake_refuses_are_no_inputs(functions):
    """A table with a time in the future would stop the run, although its stamp says that it is up to date."""
    rules, _ = functions()
    later = time.time() + 3600
    os.utime("results/problems/a.parquet", (later, later))
    assert rules.parents("problems")(wildcards("b")) == []


def test_job_on_a_node_forces_nothing(functions):
    """There, one artifact is built with the files that are there."""
    rules, forced = functions({"schemes": 2}, remote_exec=True)
    rules.parents("problems")(wildcards("b"))
    assert len(rules.shards("schemes")(wildcards("b"))) == 2 and not forced


def test_shards_are_forced(functions):
    """Files of shards belong to the run that made them."""
    rules, forced = functions({"schemes": 2})
    assert set(rules.shards("schemes")(wildcards("b"))) == forced and len(forced) == 2


def test_entry_of_a_job_is_one_text(functions):
    """It is the text by which a change of the entry is recognised."""
    rules, _ = functions()
    text = rules.entry("problems")(wildcards("b"))
    assert "problems/a" in text and text == rules.entry("problems")(wildcards("b"))


@pytest.mark.parametrize("kind", ["parents", "entry", "shards"])
def test_unknown_artifact_ends_the_run_with_the_known_names(functions, kind):
    """Every function says which names there are."""
    rules, _ = functions()
    with pytest.raises(SystemExit, match="problems/lost"):
        getattr(rules, kind)("problems")(wildcards("lost"))


def test_a_target_is_no_file(functions):
    """A known target that comes as a file was written into a rule."""
    rules, _ = functions()
    with pytest.raises(SystemExit, match=r"problems/a: is a target and not a file.*Run: snakemake problems/a"):
        rules.refuse("problems/a")


def test_data_that_are_not_here_are_named_with_the_command_that_fetches_them(functions):
    """The message is about all targets, and comes before any job."""
    rules, _ = functions()
    with pytest.raises(SystemExit, match=r"public data are not on this machine: .*aops.*Run: proofmill fetch"):
        rules.parents("problems")(wildcards("public"))

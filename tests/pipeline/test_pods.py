"""Jobs whose executor gives them an environment of their own, as pods of Kubernetes have."""

from pathlib import Path

import pytest

from project import Project

pytestmark = pytest.mark.pipeline

PODS = Path(__file__).parents[1] / "fixtures/pods"
CONFIG = """
small:
  problems/a: {source: arithmetic, rows: 4}
  problems/b: {source: problems/a, keep: [has-statement]}
"""


def test_forced_table_is_computed_in_a_pod_and_not_restored(tmp_path, monkeypatch):
    """`--forcerun` reaches a job on another node; without it the table is restored from the archive."""
    monkeypatch.delenv("PROOFMILL_FORCE", raising=False)
    project = Project(tmp_path / "project", CONFIG)
    pods = ("--executor", "pods", "--jobs", "2", "--seconds-between-status-checks", "1", "--quiet", "host")
    where = {"PYTHONPATH": str(PODS), "profile": pods}
    log = project.table("problems/b").log
    assert set(project.made("small", **where)) == {"problems/a", "problems/b"}
    project.table("problems/b").path.unlink()
    project.made("small", **where)
    assert "restored from the archive" in log.read_text()
    before = log.read_text().count("restored")
    project.made("small", "--forcerun", "results/problems/b.parquet", **where)
    assert log.read_text().count("restored") == before

"""Servers of a full run, under Snakemake: missing settings are reported first, and `.env` reaches every job."""

import json
import re
import sys

import pytest

from project import Project
from served import good, server

pytestmark = pytest.mark.pipeline

CONFIG = """
mine:
  api/solver: {id: s, price: {input: 1, output: 10}, price-source: "x, 2026-01-01"}
  api/far: {id: f, price: unknown}
  problems/p: {source: arithmetic, rows: 3}
  responses/p: {problems: problems/p, model: api/solver}
theirs:
  with: [mine]
  responses/far: {problems: problems/p, model: api/far}
"""
KEY = "sk-very-secret-0123456789"


def test_run_is_stopped_before_its_first_job_or_not_at_all(tmp_path):
    """Unset variables and a dead port stop all jobs at once, a dry run none; then one trial precedes the answers."""
    project = Project(tmp_path / "project", CONFIG)
    unset = project.snakemake("mine", "theirs")
    assert unset.returncode and "no PROOFMILL_SOLVER_URL" in unset.stdout and "no PROOFMILL_FAR_URL" in unset.stdout
    assert project.planned("theirs") == {"problems/p", "responses/far"}
    wrong = project.snakemake("mine", "-n", PROOFMILL_FAR_URL="htp:/127.0.0.1/v1")
    assert wrong.returncode and "SettingError: PROOFMILL_FAR_URL: is not the address of a server" in wrong.stdout
    assert {path.name for path in project.results.glob("*")} <= {"calls"}  # of trying the servers
    dead = project.snakemake("theirs", PROOFMILL_FAR_URL="http://127.0.0.1:9/v1")
    assert dead.returncode and re.search(
        r"ServiceError: api/far: cannot be reached: .*Connect call failed", dead.stdout
    )
    assert {path.name for path in project.results.glob("*")} <= {"calls"}  # of trying the servers
    with server(lambda *_: (200, good("fine"), {})) as (url, served):
        (project.folder / ".env").write_text(f"PROOFMILL_SOLVER_URL={url}\nPROOFMILL_SOLVER_KEY='{KEY}'\n")
        assert set(project.made("mine")) == {"problems/p", "responses/p"}
        assert [request["max_tokens"] == 1 for request in served.requests] == [True, False, False, False]
        assert {request["key"] for request in served.requests} == {f"Bearer {KEY}"}
        project.forget("responses/p")
        assert project.job("responses/p").returncode == 0 and len(served.requests) == 7
    written = [path.read_bytes() for path in project.results.rglob("*") if path.is_file()]
    assert not [content for content in written if KEY.encode() in content]
    assert KEY not in json.dumps(project.table("responses/p").stamp)


def test_broken_line_of_the_file_stops_everything_at_once(tmp_path):
    """Snakemake, the command and a job name the file and the line, and do not show it."""
    project = Project(tmp_path / "project", CONFIG)
    (project.folder / ".env").write_text(f"# ours\nPROOFMILL_SOLVER_KEY {KEY}\n")
    runs = [project.snakemake("mine", "-n"), project.job("problems/p")]
    runs.append(project.run(sys.executable, "-m", "proofmill", "plan", "mine"))
    for done in runs:
        assert done.returncode and "SettingError: .env:2: is not NAME=value" in done.stdout and KEY not in done.stdout

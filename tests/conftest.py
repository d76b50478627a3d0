"""Shared pieces of the tests: a place for results, a finished small chain, and where real data lie."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mill import ROOT, SMALL, Mill
from project import CHAIN, Project

os.environ.setdefault("HF_HUB_OFFLINE", "1")

LONGEST = (
    "test_rehearsals.py",
    "test_slurm_stops.py",
    "test_slurm.py",
    "test_pipeline.py",
    "test_kill.py",
    "test_edits.py",
)  # files with whole runs


def pytest_collection_modifyitems(items):
    """Files that take longest come first: begun last, one of them would run alone in the end (`make test-slow`)."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real public data; tests that read it are skipped where it is absent."""
    folder = Path(os.environ.get("PROOFMILL_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set PROOFMILL_DATA to the folder described in data/README.md")
    return folder


@pytest.fixture
def mill(tmp_path):
    """`mill(**{"problems/x": {...}})` gives a Mill whose results are thrown away after the test."""
    return lambda entries, plugins=(): Mill(tmp_path / "results", plugins, **entries)


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Mill:
    """A finished small chain of artifacts, from problems to grades, shared by tests that only read it."""
    made = Mill(tmp_path_factory.mktemp("small") / "results", **SMALL)
    made.make(*SMALL)
    return made


@pytest.fixture(scope="session")
def chain(tmp_path_factory) -> Project:
    """A finished project with every kind once, made by Snakemake and shared by tests that only read or copy it."""
    project = Project(tmp_path_factory.mktemp("chain") / "project", CHAIN)
    project.made("chain")
    return project


@pytest.fixture(scope="session")
def slurm() -> None:
    """A SLURM that answers; where one is promised (PROOFMILL_EXPECT_SLURM), its absence is a failure."""
    answers = shutil.which("sinfo") and subprocess.run(["sinfo"], capture_output=True, check=False).returncode == 0
    if not answers and os.environ.get("PROOFMILL_EXPECT_SLURM"):
        pytest.fail("no SLURM answers `sinfo`, and PROOFMILL_EXPECT_SLURM promises one; see tests/pipeline/slurm.sh")
    if not answers:
        pytest.skip("no SLURM answers `sinfo`; tests/pipeline/slurm.sh starts one on a single Debian machine")

"""Shared pieces of the tests: a place for results, a finished small chain, and where real data lie."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mill import ROOT, SMALL, Mill
from project import CHAIN, Project

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest_plugins = ["budgets", "sampled"]  # in tests/fixtures/


@pytest.fixture(scope="session")
def data() -> Path:
    """Return the folder of real public data; tests that read it are skipped if it is absent."""
    folder = Path(os.environ.get("PROOFMILL_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set PROOFMILL_DATA to the folder described in data/README.md")
    return folder


@pytest.fixture
def mill(tmp_path):
    """Return `mill(**{"problems/x": {...}})`, which makes a Mill whose results are deleted after the test."""
    return lambda entries, plugins=(): Mill(tmp_path / "results", plugins, **entries)


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Mill:
    """Build a small chain of artifacts, from problems to grades, shared by tests that only read it."""
    made = Mill(tmp_path_factory.mktemp("small") / "results", **SMALL)
    made.make(*SMALL)
    return made


@pytest.fixture(scope="session")
def chain(tmp_path_factory) -> Project:
    """Build a project with every kind once by Snakemake, shared by tests that only read or copy it."""
    project = Project(tmp_path_factory.mktemp("chain") / "project", CHAIN)
    project.made("chain")
    return project


@pytest.fixture(scope="session")
def inspect_python(tmp_path_factory) -> str:
    """Install inspect_ai from the package index, and return the interpreter that has it."""
    folder = tmp_path_factory.mktemp("inspect")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "inspect_ai", "openai"]
    if subprocess.run(pip, capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached, from which inspect_ai is installed")
    return str(folder / "bin/python")


@pytest.fixture(scope="session")
def slurm() -> None:
    """Check that SLURM responds; if it is promised (PROOFMILL_EXPECT_SLURM), its absence is a failure."""
    answers = shutil.which("sinfo") and subprocess.run(["sinfo"], capture_output=True, check=False).returncode == 0
    if not answers and os.environ.get("PROOFMILL_EXPECT_SLURM"):
        pytest.fail("no SLURM answers `sinfo`, and PROOFMILL_EXPECT_SLURM promises one; see tests/pipeline/slurm.sh")
    if not answers:
        pytest.skip("no SLURM answers `sinfo`; tests/pipeline/slurm.sh starts one on a single Debian machine")

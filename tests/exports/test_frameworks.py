"""Exported packages in environments with the real frameworks, from the package index: installed, run, and compared."""

import importlib.util
import subprocess
import sys

import pytest

from mill import ROOT
from proofmill.exports import packages

pytestmark = pytest.mark.long


@pytest.mark.parametrize("to", ["inspect", "verifiers"])
def test_framework_gives_the_same_verdicts(small, tmp_path, to):
    """A bare environment with the framework and the package: every stored attempt has the grade of the pipeline."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", tmp_path / "index", "packaging"]
    if subprocess.run(pip, capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached, from which the framework is installed")
    spec = importlib.util.spec_from_file_location("exports", ROOT / "benchmarks/exports.py")
    compared = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compared)
    packages.export(small.config, "grades/cold", to, tmp_path / "package", small.results)
    attempts = compared.read_attempts("grades/cold", small.results, 100)
    assert compared.compare(to, tmp_path / "package", attempts, tmp_path) == (len(attempts), 0)

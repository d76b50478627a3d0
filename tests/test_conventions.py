"""Test what others' tools look for: Snakemake's linter and catalog, citations, the versions of Python, types."""

import re
import subprocess
import sys
import tomllib

import yaml

import proofmill
from mill import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
# docs/dependencies.md says why.
EXCEPTIONS = {
    "No log directive defined:",
    "Specify a conda environment or container for each rule.:",
}


def test_snakemakes_linter_finds_what_the_docs_except_and_nothing_else():
    """`snakemake --lint` has no further finding, and each exception is still one."""
    command = [sys.executable, "-m", "snakemake", "--lint"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stderr
    assert set(re.findall(r"^    \* (.*)$", found, re.MULTILINE)) == EXCEPTIONS


def test_catalog_finds_what_it_asks_for():
    """Snakemake's catalog needs the workflow and its configuration page where it looks for them."""
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text(encoding="utf-8"))["usage"]
    assert {"mandatory-flags", "software-stack-deployment"} <= set(usage)
    assert (ROOT / "config/README.md").is_file() and (ROOT / "workflow/Snakefile").is_file()


def test_citation_names_this_version_and_license():
    """CITATION.cff does not fall behind the package."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (proofmill.__version__, PROJECT["license"])
    assert citation["authors"] == PROJECT["authors"]


def test_versions_of_python_are_the_same_everywhere():
    """The Python versions of pyproject.toml are those of its classifiers, of make and of the docs."""
    versions = [found[1] for each in PROJECT["classifiers"] if (found := re.search(r":: (3\.\d+)$", each))]
    low, high = versions[0], versions[-1]
    after = f"3.{int(high.partition('.')[2]) + 1}"
    assert PROJECT["requires-python"] == f">={low},<{after}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"PYTHONS := {' '.join(f'python{version}' for version in versions)}\n" in makefile


def test_no_type_error_is_ignored():
    """mypy ignores the errors of no module, and an ignored line says which error and why."""
    mypy = SETTINGS["tool"]["mypy"]
    assert not any("ignore_errors" in table or "disable_error_code" in table for table in (mypy, *mypy["overrides"]))
    for path in sorted((ROOT / "src").rglob("*.py")):
        for ignored in re.findall(r"# type: ignore.*|# mypy:.*", path.read_text(encoding="utf-8")):
            assert re.match(r"# type: ignore\[[a-z-]+\]  # \w", ignored), f"{path}: {ignored}"


def test_make_help_lists_every_target():
    """`make help` says a line of each target that a person would call."""
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony and set(phony[1].split()) == {line.split()[0] for line in done.stdout.splitlines()}


def test_make_without_a_python_says_what_to_install(tmp_path):
    """No `Error 127`: the message names the versions and ways to get one."""
    command = ["make", "PYTHON=python3.99", f"VENV={tmp_path}/venv", f"{tmp_path}/venv/ready"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode and "python3.99" in done.stderr and "uv python install 3.11" in done.stderr
    assert not (tmp_path / "venv").exists()

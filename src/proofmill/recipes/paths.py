"""The files of this machine that an entry reads and that are no artifacts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from proofmill.runtime.paths import local_path
from proofmill.schema.references import origin_of, value_of


def source_files(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> list[Path]:
    """The local files an entry reads that are no artifacts; of a folder all its files."""
    origin = origin_of(kind, entry, entry_of)
    path = getattr(entry, "path", None) if origin is None else value_of(entry_of(origin), "path")
    if not path:
        return []
    found = local_path(path)
    return sorted(file for file in found.rglob("*") if file.is_file()) if found.is_dir() else [found]

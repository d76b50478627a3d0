"""Local source files of an entry: the files that it reads besides artifacts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from proofmill.runtime.paths import local_path
from proofmill.schema.references import origin_of, value_of


def source_files(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> list[Path]:
    """The local files that an entry reads besides artifacts, sorted; for a folder, all files in it."""
    origin = origin_of(kind, entry, entry_of)
    path = getattr(entry, "path", None) if origin is None else value_of(entry_of(origin), "path")
    if not path:
        return []
    source = local_path(path)
    return sorted(file for file in source.rglob("*") if file.is_file()) if source.is_dir() else [source]

"""Local source files of an entry: the files that it reads besides artifacts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from proofmill.runtime.paths import files_of, local_path
from proofmill.schema.references import origin_of, value_of


def source_path(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> str | None:
    """The `path` that an entry reads besides artifacts, or the problems whose attempts it takes; None without one."""
    origin = origin_of(kind, entry, entry_of)
    return getattr(entry, "path", None) if origin is None else value_of(entry_of(origin), "path")


def source_files(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> list[Path]:
    """The local files that an entry reads besides artifacts: those of its source, and a chat template; of a folder, all.

    Raises TableError when one is missing or is nothing that can be read, MissingData where public data are not here.
    """
    template = getattr(entry, "template", None)
    paths = [source_path(kind, entry, entry_of), template if template != "plain" else None]
    return [file for text in paths if text for file in files_of(local_path(text))]

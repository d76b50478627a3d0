"""Local source files of an entry: the files that it reads besides artifacts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from proofmill.runtime.paths import files_of, local_path
from proofmill.schema.references import origin_of, value_of


def source_files(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> list[Path]:
    """The local files that an entry reads besides artifacts: those of its source, and a chat template; of a folder, all.

    Raises TableError when one is missing or is nothing that can be read.
    """
    origin = origin_of(kind, entry, entry_of)
    path = getattr(entry, "path", None) if origin is None else value_of(entry_of(origin), "path")
    template = getattr(entry, "template", None)
    paths = [path, template if template != "plain" else None]
    return [file for text in paths if text for file in files_of(local_path(text))]

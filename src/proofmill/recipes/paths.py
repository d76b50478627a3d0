"""Source files of an entry: the files that it reads in addition to artifacts, and the names that count for its identity."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from proofmill.runtime.paths import files_of, local_path
from proofmill.runtime.public_data import expected_digests, is_public, place
from proofmill.schema.references import origin_of, value_of


def source_path(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> str | None:
    """The `path` that an entry reads besides artifacts, or the problems whose attempts it takes; None without one."""
    origin = origin_of(kind, entry, entry_of)
    return getattr(entry, "path", None) if origin is None else value_of(entry_of(origin), "path")


def source_names(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> dict[Path, str]:
    """Return the source files with their names: the path as the entry has it, and the place in that folder.

    Rows depend on these names: files are read in their order, and `origin`, ids and writers come from them. They are the
    same on every machine. If a variable holds the last part of the path, its value belongs to the name.

    Raises TableError when one is missing or is nothing that can be read, MissingData where public data are not here.
    """
    template = getattr(entry, "template", None)
    paths = [source_path(kind, entry, entry_of), template if template != "plain" else None]
    return {file: name for text in paths if text for file, name in _names(text, local_path(text))}


def _names(text: str, root: Path) -> Iterator[tuple[Path, str]]:
    own = text if is_public(text) or root.name == Path(text).name else f"{text} ({root.name})"
    for file in files_of(root):
        yield file, own if file == root else f"{own}/{file.relative_to(root)}"


def known_digests(address: str) -> dict[str, str]:
    """Return SHA-256 by name of the files of public data that are not on this machine, as far as they are known."""
    folder = f"{place(address)}/"
    return {
        f"{address}/{file.removeprefix(folder)}" if file.startswith(folder) else address: sha256
        for file, sha256 in expected_digests(address).items()
    }

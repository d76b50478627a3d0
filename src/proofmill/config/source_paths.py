"""Find the source files of an entry: files that it reads in addition to artifacts, and their names in its identity."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from proofmill.public_data.locations import files_of, local_path
from proofmill.public_data.registry import is_public, place, read_expected_digests
from proofmill.schema.entries.problem_entries import Problems, Schemes
from proofmill.schema.entries.response_entries import Examples
from proofmill.schema.errors import SettingError, TableError
from proofmill.schema.references import origin_of, value_of
from proofmill.sources import conversations, files, record_fields
from proofmill.sources.file_formats import Record
from proofmill.sources.loaders import SOURCES


def source_path(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> str | None:
    """Return the `path` of an entry, or of the problems whose given attempts it uses; None without one."""
    origin = origin_of(kind, entry, entry_of)
    return getattr(entry, "path", None) if origin is None else value_of(entry_of(origin), "path")


def source_names(kind: str, entry: Any, entry_of: Callable[[str], Any]) -> dict[Path, str]:
    """Return the source files with their names: `path` as written in the entry, and for a folder the file's path in it.

    Rows depend on these names: they set the order of files, and `origin`, ids and writers. They are the same on every
    machine, except that the value of a variable is included if it is the last part of the path (`$DATA`).

    Raises TableError if a file is missing or unreadable, and MissingData if public data are not on this machine.
    """
    template = getattr(entry, "chat_template", None)
    paths = [source_path(kind, entry, entry_of), template if template != "plain" else None]
    return {file: name for text in paths if text for file, name in _names(text, local_path(text))}


def _names(text: str, root: Path) -> Iterator[tuple[Path, str]]:
    own = text if is_public(text) or root.name == Path(text).name else f"{text} ({root.name})"
    for file in files_of(root):
        yield file, own if file == root else f"{own}/{file.relative_to(root)}"


def read_known_digests(address: str) -> dict[str, str]:
    """Return the known SHA-256 digests, by name, of public data files that are not on this machine."""
    folder = f"{place(address)}/"
    return {
        f"{address}/{file.removeprefix(folder)}" if file.startswith(folder) else address: sha256
        for file, sha256 in read_expected_digests(address).items()
    }


def _first_record(entry: Any) -> Record | None:
    """Return the first record of the local file that an entry reads; None without one. Raises TableError if invalid."""
    path = getattr(entry, "path", None) if isinstance(entry, Problems | Schemes | Examples) else None
    file = None if not path or is_public(path) else local_path(path)
    if file is None or not file.is_file() or file.suffix.lower() not in files.READERS:
        return None
    return next(files.read(file))


def lacks_column(entry: Any, column: str) -> bool:
    """Return whether problems come from a local table without a column for one of ours: mapped, or without a map of its name."""
    if getattr(entry, "source", None) != "table" or column in entry.columns:
        return False
    try:
        first = _first_record(entry)
    except (SettingError, TableError, OSError):  # reported where the file is read
        return False
    return first is not None and (bool(entry.columns) or column not in first[1])


def row_fault(entry: Any) -> str | None:
    """Return the fault in the first row of a local file that an entry reads, such as a misnamed column; else None."""
    try:
        if (first := _first_record(entry)) is None:
            return None
        where, record = first
        if isinstance(entry, Examples):
            conversations.read(where, record, entry.columns)
            return None
        for column in entry.columns.values() if isinstance(entry, Schemes) else entry.where:
            record_fields.field(where, record, column)
        if isinstance(entry, Problems) and entry.source in SOURCES and not entry.where:  # else it may not be selected
            next(SOURCES[entry.source].load(entry), None)
    except (SettingError, TableError, OSError) as error:  # others are reported where the file is needed
        return str(error) if isinstance(error, TableError) else None
    return None

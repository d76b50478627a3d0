"""Paths of entries on this machine, and the files that they name.

A path is on this machine, or is the address of public data (registry.py). `${VARIABLES}` in a path come from the
environment. Their values do not affect the fingerprint, except as the last part of the path.
"""

import os
import re
import stat
import unicodedata
from collections.abc import Container
from pathlib import Path

from proofmill.public_data.registry import is_public, local_copy
from proofmill.schema.errors import SettingError, TableError, escape
from proofmill.text.suggestions import nearest


def local_path(text: str) -> Path:
    """Return a path of an entry with `${VARIABLES}` and `~` expanded, or the copy of the public data that it names.

    Raises MissingData without a copy, SettingError for an unset variable, TableError for an unknown user or invalid
    characters.
    """
    if is_public(text):
        return local_copy(text)
    missing = [name for name in re.findall(r"\$\{(\w+)\}", text) if name not in os.environ]
    if missing:
        raise SettingError(
            f"path {text}: the environment has no {', '.join(missing)}; expected the folder with the data. "
            f"Set it, for example: export {missing[0]}=/path/to/data"
        )
    path = Path(os.path.expandvars(text))
    _check_name(path)
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise TableError(
            f"path {text}: there is no user or home folder of that name; expected a path of this machine. Fix the path."
        ) from error


def files_of(path: Path, suffixes: Container[str] = ()) -> list[Path]:
    """Return the files of a path: itself, or all below a folder, in the order of their names. Follows links.

    Entries read these files, and watch them for changes. They are not opened here. Raises TableError for a missing
    file, for links that lead to one folder twice, for pipes, sockets and devices, for the folder of the project, and for
    a sub-folder whose name ends in one of `suffixes`.
    """
    files: list[Path] = []
    if path.resolve() in (Path.cwd(), *Path.cwd().parents) and Path("config.yaml").exists():
        raise TableError(
            f"{path}: contains the project, with its results and logs; expected a file, or a folder of data alone. Move the "
            "data into a folder of its own."
        )
    folders: set[tuple[int, int]] = set()
    pending = [path]
    while pending:
        place = pending.pop()
        _check_name(place)
        try:
            status = place.stat()
            inside = list(place.iterdir()) if stat.S_ISDIR(status.st_mode) else []
        except OSError as error:
            raise TableError(_unreachable(place, error)) from error
        if stat.S_ISREG(status.st_mode):
            files.append(place)
        elif not stat.S_ISDIR(status.st_mode):
            raise TableError(
                f"{place}: is a pipe, a socket or a device; expected files and folders. Remove it, or name another path."
            )
        elif place != path and place.suffix.lower() in suffixes:
            raise TableError(f"{place}: is a folder; expected a file, as its name says. Rename it, or name its path.")
        elif (status.st_dev, status.st_ino) in folders:
            raise TableError(
                f"{place}: leads to a folder that was read before; expected each folder once. Remove the link."
            )
        else:
            folders.add((status.st_dev, status.st_ino))
            pending += inside
    return sorted(files)


def _unreachable(path: Path, error: OSError) -> str:
    if os.path.islink(path):
        fault = f"a link to {os.readlink(path)}, which cannot be reached ({error.strerror})"
    elif isinstance(error, FileNotFoundError | NotADirectoryError):
        fault = "no such file or folder"
    else:
        fault = f"cannot be accessed ({error.strerror})"
    near = "".join(f" Did you mean `{path.parent / n}`?" for n in nearest(path.name, _names_in(path.parent))[:1])
    return f"{path}: {fault}; expected the source that the entry names.{near} Check the path and its variables."


def _names_in(folder: Path) -> list[str]:
    return [escape(name) for name in os.listdir(folder)] if os.access(folder, os.R_OK) and folder.is_dir() else []


def _check_name(path: Path) -> None:
    """Raise TableError for a name with control characters or invalid UTF-8, which no table or log can hold."""
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in str(path)):
        raise TableError(
            f"{escape(str(path))}: the name has a control character or is not UTF-8; expected a printable name. "
            "Rename it."
        )

"""Files that survive a power cut: data are on the disk before the file's name, and both before they are needed.

A rename alone guarantees neither. After a power cut a file may be empty under its new name, or still have its old name.
"""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

NO_SYNC = (errno.EINVAL, errno.EOPNOTSUPP)  # of a folder, on a file system that only syncs files
_named: set[tuple[Path, int]] = set()  # folders whose own names are on the disk, with their inodes


def sync(path: Path) -> None:
    """Wait until the disk has the data of a file, or the names in a folder."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in NO_SYNC or not path.is_dir():
            error.filename = str(path)
            raise
    finally:
        os.close(file)


def sync_name(path: Path) -> None:
    """Wait until the disk has the name of a file or folder, and the names of the folders that lead to it."""
    synced = set()
    for folder in path.absolute().parents:
        if not os.access(folder, os.W_OK):  # this user created nothing here
            break
        sync(folder)
        synced.add((folder, folder.stat().st_ino))
        if not synced.isdisjoint(_named):
            break
    _named.update(synced)


def sync_tree(top: Path) -> None:
    """Wait until the disk has a file, or a folder with everything in it. Files that vanish meanwhile are skipped."""
    if not top.is_dir():
        sync(top)
        return
    for folder, _, names in os.walk(top, topdown=False):
        for path in (*(Path(folder, name) for name in names), Path(folder)):
            with suppress(FileNotFoundError):
                sync(path)


def replace(new: Path, path: Path) -> None:
    """Move a file or folder to `path` by one rename: syncs its data before, and its name before this returns."""
    sync_tree(new)
    os.replace(new, path)
    sync_name(path)


def write(path: Path, data: str | bytes) -> None:
    """Write a file by one rename, so that `path` has the old data or the new. Several processes may do so at once."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        new.write_bytes(data.encode() if isinstance(data, str) else data)
        replace(new, path)
    finally:
        new.unlink(missing_ok=True)

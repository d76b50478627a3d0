"""Append-only files of lines: rollouts, sampled attempts, human grades, and the lines of journals.

A crash leaves at most an incomplete last line. Readers skip it, and the next writer keeps its own lines apart from it.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from proofmill.runtime import durable


def append(path: Path, lines: Iterable[bytes], sync: bool = True) -> None:
    """Append lines, each with its line end, while no other process does; with `sync`, wait until the disk has them."""
    with open(path, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            file.write(b"" if file.read(1) == b"\n" else b"\n")
        file.writelines(lines)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    if sync:  # also of a file that is not new: its writer may have been killed before this
        durable.sync_name(path)


def complete_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines that have their line end, as bytes; none if there is no file.

    Text would be split at more characters: JSON leaves U+2028, at which `str.splitlines` splits.
    """
    if path.exists():
        with open(path, "rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))

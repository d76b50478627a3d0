"""Locks that let one process write at a time: the operating system's, on an open file, and gone with their holder."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proofmill.runtime import environment
from proofmill.runtime.progress import say


def wait_seconds() -> float:
    """How long a process waits for another one that holds a lock, before it gives up."""
    return environment.seconds("PROOFMILL_LOCK_SECONDS", 60.0)


def take(file: int, where: str, wait: float) -> bool:
    """Lock an open file; waits up to `wait` seconds for a process that is being stopped. False if it keeps the lock."""
    start, announced = time.monotonic(), False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() - start > wait:
                return False
            if not announced:
                say(
                    where,
                    f"another process is writing here ({holder(file)}); waiting up to {wait:g} s for it to let go",
                )
                announced = True
            time.sleep(0.2)


def sign(file: int) -> None:
    """Write the holder of a lock into the locked file, for processes that have to wait."""
    job = os.environ.get("SLURM_JOB_ID")
    text = f"process {os.getpid()} on {os.uname().nodename}{f', SLURM job {job}' if job else ''}, since {time.ctime()}"
    os.ftruncate(file, 0)
    os.pwrite(file, text.encode(), 0)


def held(path: Path) -> bool:
    """Whether some process holds the lock on `path`, which may be another user's that one can only read."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:  # no such file, or no right to read it
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # over NFS, a file open for reading takes no other
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)


def holder(file: int) -> str:
    """Who holds the lock on an open file, by its signature."""
    return os.pread(file, 500, 0).decode(errors="replace") or "of unknown name"


@contextmanager
def alone(path: Path, name: str = "") -> Iterator[bool]:
    """Hold the lock on `path`, and remove the file at the end; yields False when another process keeps the lock.

    `name` stands in the log for what is locked, where that is not the path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        locked = take(file, name or str(path), wait_seconds())
        if not locked or _is_same(path, file):
            break
        os.close(file)  # its last holder removed the file during the wait
    try:
        if locked:
            with suppress(OSError):  # a disk without room for a name is found out by what has to be written
                sign(file)
        yield locked
    finally:
        if locked:
            path.unlink(missing_ok=True)
        os.close(file)


def _is_same(path: Path, file: int) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False

"""Locks for one writer at a time: `flock` on an open file, released by the system when the holder ends."""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proofmill.runtime import environment
from proofmill.runtime.cluster import slurm
from proofmill.runtime.progress import log


def wait_seconds() -> float:
    """Return how long a process waits for a lock before it gives up."""
    return environment.seconds("PROOFMILL_LOCK_SECONDS", 60.0)


def take(file: int, where: str, wait: float, shared: bool = False) -> bool:
    """Lock an open file; return False if another process keeps the lock for `wait` seconds.

    A `shared` lock may be held by several processes at once, but not together with an exclusive one.
    """
    start, announced = time.monotonic(), False
    while True:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() - start > wait:
                return False
            if not announced:
                log(
                    where,
                    f"another process is writing here ({holder(file)}); waiting up to {wait:g} s for the lock",
                )
                announced = True
            time.sleep(0.2)


def let_go(file: int) -> None:
    """Release the lock on an open file."""
    fcntl.flock(file, fcntl.LOCK_UN)


def sign(file: int) -> None:
    """Write the holder of a lock into the locked file, for processes that have to wait."""
    job = slurm.job()
    text = f"process {os.getpid()} on {os.uname().nodename}{f', SLURM job {job}' if job else ''}, since {time.ctime()}"
    os.ftruncate(file, 0)
    os.pwrite(file, text.encode(), 0)


def is_held(path: Path, shared: bool = False) -> bool:
    """Return whether some process holds the lock on `path`, which may belong to another user and be read-only.

    With `shared`, also a lock that several may hold; the file must then be writable.
    """
    try:
        file = os.open(path, os.O_RDWR if shared else os.O_RDONLY)
    except OSError:  # no such file, or no permission
        return False
    try:
        # Over NFS, a file opened for reading can take only a shared lock.
        fcntl.flock(file, (fcntl.LOCK_EX if shared else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)


def holder(file: int) -> str:
    """Return the holder of the lock on an open file, from its signature."""
    return os.pread(file, 500, 0).decode(errors="replace") or "unknown"


def slurm_job(path: Path) -> str | None:
    """Return the number of the SLURM job that holds the lock on `path`, from its signature."""
    with suppress(OSError):
        if match := re.search(r", SLURM job (\d+),", path.read_text(errors="replace")):
            return match[1]
    return None


@contextmanager
def together(path: Path) -> Iterator[None]:
    """Hold a shared lock on `path`, so that it is `is_held(path, shared=True)`. Waits for an exclusive holder."""
    with _wait_for(path, fcntl.LOCK_SH):
        yield


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Hold the lock on `path` exclusively, for a short operation; waits without a message."""
    with _wait_for(path, fcntl.LOCK_EX):
        yield


@contextmanager
def _wait_for(path: Path, how: int) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, how)
        yield
    finally:
        os.close(file)


@contextmanager
def alone(path: Path, name: str = "") -> Iterator[bool]:
    """Hold the lock on `path`, and remove the file at the end; yields False if another process keeps the lock.

    `name` is used in the log instead of the path.
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
            with suppress(OSError):  # a full disk is reported when results are written
                sign(file)
        yield locked
    finally:
        if locked:
            path.unlink(missing_ok=True)
        os.close(file)


def _is_same(path: Path, file: int) -> bool:
    """Return whether `path` still names the open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False

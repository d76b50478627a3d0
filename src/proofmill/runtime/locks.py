"""One writer at a time: the operating system's lock on an open file, which goes with the process that held it."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proofmill.runtime.progress import say

WAIT_SECONDS = float(os.environ.get("PROOFMILL_LOCK_SECONDS", "60"))


def take(file: int, where: str, wait: float) -> bool:
    """Lock an open file, waiting a while for a process that is being stopped to let go; False when it does not."""
    start, told = time.monotonic(), False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() - start > wait:
                return False
            if not told:
                say(where, "another process is writing here; waiting for it to let go")
                told = True
            time.sleep(0.2)


def sign(file: int) -> None:
    """Write into a file that is locked who holds it, for whoever has to wait."""
    job = os.environ.get("SLURM_JOB_ID")
    text = f"process {os.getpid()} on {os.uname().nodename}{f', SLURM job {job}' if job else ''}, since {time.ctime()}"
    os.ftruncate(file, 0)
    os.pwrite(file, text.encode(), 0)


def held(path: Path) -> bool:
    """Whether some process holds the lock that `path` stands for."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:  # none, or not ours to lock
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)


def holder(file: int) -> str:
    """Who holds the lock of an open file, as it signed."""
    return os.pread(file, 500, 0).decode(errors="replace") or "of unknown name"


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Hold the lock that `path` stands for; yields False when another process keeps it. The file is gone afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        held = take(file, str(path), WAIT_SECONDS)
        if not held or _still(path, file):
            break
        os.close(file)  # its last holder removed it while we waited
    try:
        yield held
    finally:
        if held:
            path.unlink(missing_ok=True)
        os.close(file)


def _still(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False

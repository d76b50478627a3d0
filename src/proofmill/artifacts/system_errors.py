"""System errors that libraries report in their own words: a full disk, a damaged parent, a file that vanished."""

import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import polars as pl
import pyarrow as pa
from safetensors import SafetensorError

from proofmill.artifacts.tables import Table
from proofmill.schema.errors import ProofmillError, TableError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
# torch reports a partly written checkpoint with these words and no cause.
CUT_OFF = ("unexpected pos", "PytorchStreamWriter failed")
# Errors of reading a damaged file: the system and transformers (OSError), polars, pyarrow, safetensors, JSON or text.
DAMAGED = (
    OSError,
    pl.exceptions.PolarsError,
    pa.ArrowException,
    SafetensorError,
    json.JSONDecodeError,
    UnicodeDecodeError,
)


class explained:
    """Context manager that turns system errors into a TableError with a remedy; other errors pass.

    It uses `__exit__` and not `except`, because tokenizers raises a bare Exception when a disk is full.
    """

    def __init__(self, table: Table, parents: Iterable[str]):
        self.table, self.parents = table, parents

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(error, Exception) or isinstance(error, ProofmillError):
            return
        where = getattr(error, "filename", None)
        if why := no_room(error):
            raise TableError(
                f"{where or self.table.results}: {why}; expected room and permission to write there. "
                f"Free space and rerun: {self.table.name} resumes."
            ) from error
        if isinstance(error, DAMAGED):
            for parent in self.parents:
                self.table.other(parent).check(deep=True)
        if isinstance(error, OSError) and where and self.table.results.resolve() in Path(where).resolve().parents:
            raise TableError(
                f"{where}: {error.strerror}; expected a writable results folder that no other program changes. "
                f"Check {self.table.results} and rerun: {self.table.name} resumes."
            ) from error


def no_room(error: BaseException) -> str | None:
    """Return the message of a full or read-only disk in an error or its causes; None for other errors."""
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            return os.strerror(cause.errno)
        for number in NO_ROOM:  # polars, safetensors, tokenizers and torch report only the message
            if os.strerror(number) in str(cause):
                return os.strerror(number)
        if isinstance(cause, RuntimeError) and any(words in str(cause) for words in CUT_OFF):
            return f"a file was written only in part ({str(cause).splitlines()[0]})"
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

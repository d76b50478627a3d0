"""Faults of the machine that libraries report in words of their own: a full disk, a damaged parent, a file that vanished."""

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
# torch's words for a checkpoint of which the disk took a part; it names no cause.
CUT_OFF = ("unexpected pos", "PytorchStreamWriter failed")
# What a damaged file ends in where it is read: by the system and by transformers (OSError), polars, pyarrow, safetensors,
# and as JSON or text (config.json, tokenizer.json).
DAMAGED = (
    OSError,
    pl.exceptions.PolarsError,
    pa.ArrowException,
    SafetensorError,
    json.JSONDecodeError,
    UnicodeDecodeError,
)


class explained:
    """An error inside that such a fault caused becomes a TableError that says what to do; every other one passes.

    An exit instead of an `except`: tokenizers raises a bare Exception where a disk is full.
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
                f"Make room and run again: {self.table.name} goes on where it was."
            ) from error
        if isinstance(error, DAMAGED):
            for parent in self.parents:
                self.table.other(parent).check(deep=True)
        if isinstance(error, OSError) and where and self.table.results.resolve() in Path(where).resolve().parents:
            raise TableError(
                f"{where}: {error.strerror}; expected a writable results folder, in which nobody else changes files meanwhile. "
                f"See to {self.table.results} and run again: {self.table.name} goes on where it was."
            ) from error


def no_room(error: BaseException) -> str | None:
    """How an error, or one behind it, says that a disk took no more; None for other errors."""
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            return os.strerror(cause.errno)
        for number in NO_ROOM:  # polars, safetensors, tokenizers and torch have only its words
            if os.strerror(number) in str(cause):
                return os.strerror(number)
        if isinstance(cause, RuntimeError) and any(words in str(cause) for words in CUT_OFF):
            return f"a file was cut off while it was written ({str(cause).splitlines()[0]})"
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

"""Read foreign Parquet files lazily: a value is read on access, so unused columns may hold anything."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from proofmill.schema.errors import TableError, short
from proofmill.sources.file_formats import Record, check_texts

BATCH = 1_000  # rows in memory
# Raised by pyarrow for values without a Python form: a year beyond 9999, an unknown time zone.
UNREADABLE = (pa.ArrowException, ValueError, ArithmeticError, LookupError, OSError)


class _Batch:
    """Rows of a file; a column is validated on first access."""

    def __init__(self, batch: pa.RecordBatch):
        self.columns = {name: number for number, name in enumerate(batch.schema.names)}
        self._batch = batch
        self._arrays: dict[str, Any] = {}

    def value(self, column: str, row: int) -> Any:
        if column not in self._arrays:
            array = self._batch.column(self.columns[column])
            array.validate(full=True)  # offsets of a damaged file may point outside its memory
            self._arrays[column] = array
        return self._arrays[column][row].as_py()


class _Row(Mapping):
    """A row as a mapping of columns."""

    def __init__(self, where: str, batch: _Batch, row: int):
        self._where, self._batch, self._row = where, batch, row

    def __getitem__(self, column: str) -> Any:
        if column not in self._batch.columns:
            raise KeyError(column)
        try:
            value = self._batch.value(column, self._row)
        except UNREADABLE as error:
            raise TableError(
                f"{self._where}: `{short(column)}` cannot be read ({first_line(error)}); expected texts or numbers. "
                "Convert the column, or download the file again."
            ) from error
        check_texts(self._where, value, column)
        return value

    def __contains__(self, column: object) -> bool:
        return column in self._batch.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch.columns)

    def __len__(self) -> int:
        return len(self._batch.columns)


def records(path: Path) -> Iterator[Record]:
    """Yield the rows of a file. Raises TableError if it cannot be read or has two columns of one name."""
    number = 0
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            if twice := _twice(list(file.schema_arrow)):
                raise TableError(
                    f"{path}: two columns have the name `{short(twice)}`; expected distinct names. Rename one."
                )
            for batch in file.iter_batches(BATCH):
                columns = _Batch(batch)
                for row in range(batch.num_rows):
                    number += 1
                    yield f"{path}:{number}", _Row(f"{path}:{number}", columns, row)
    except UNREADABLE as error:
        raise TableError(
            f"{path}: cannot be read as Parquet after row {number} ({first_line(error)}); expected a Parquet file. "
            "Download it again."
        ) from error


def _twice(fields: list[pa.Field]) -> str | None:
    """Return a name that two sibling fields share, at any depth; None if all are distinct."""
    names: set[str] = set()
    for field in fields:
        if field.name in names:
            return field.name
        names.add(field.name)
        inner = [field.type.field(index) for index in range(field.type.num_fields)]
        if twice := _twice(inner):
            return twice
    return None


def first_line(error: Exception) -> str:
    """Return an error of a library in one line."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"

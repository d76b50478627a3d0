"""Parquet files with a checksum on every page, which is verified whenever rows are read.

Parquet has no checksum for the footer, so SEAL holds its SHA-256 (`seal`). It covers the stamp of a table.

Difference from reading with polars: polars 2.1 ignores page checksums, so pyarrow reads and passes batches to polars.
Both skip columns and rows that are not requested. A file without checksums can still be opened.
"""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source
from pyarrow import parquet

from proofmill.schema.errors import TableError

BATCH = 2048
NARROW = 65_536  # rows of a batch that has few columns
NARROW_BYTES = 64  # of a row, at most, in a batch of so many
CHUNK = 2**20  # bytes
SEAL = "proofmill-sha256"  # metadata key: SHA-256 of the footer, computed with zeros instead of these digits
UNSEALED = {SEAL: "0" * 64}
END = 8  # bytes after a footer: its length, and PAR1


def writer(path: Path, schema: pa.Schema) -> parquet.ParquetWriter:
    """Return a writer for a file of this schema, with zstd compression and page checksums."""
    return parquet.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)


def seal(path: Path) -> None:
    """Write the SHA-256 of a file's footer into the footer. The file was written with UNSEALED in its metadata."""
    with open(path, "r+b") as file:
        start, footer = _read_raw_footer(file)
        file.seek(start + footer.index(_value(UNSEALED[SEAL])))
        file.write(_value(hashlib.sha256(footer).hexdigest()))


def _read_raw_footer(file: BinaryIO) -> tuple[int, bytes]:
    """Return the place of a footer in its file, and its bytes to the end of the file."""
    size = file.seek(-END, os.SEEK_END) + END
    start = max(0, size - END - int.from_bytes(file.read(4), "little"))
    file.seek(start)
    return start, file.read()


def _value(digits: str) -> bytes:
    """Return SEAL and its value as Thrift has them in a footer."""
    return SEAL.encode() + b"\x18\x40" + digits.encode()


def frame_of(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """Convert rows of a file to polars."""
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame), "tables and batches have columns"
    return frame


def no_rows(schema: pa.Schema) -> pl.DataFrame:
    """Return an empty frame of this schema. Arrow's own `empty_table` imports pandas, which takes 0.3 s."""
    return frame_of(pa.Table.from_batches([], schema=schema))


@lru_cache(maxsize=16)
def _read_footer(path: Path, *_: int) -> parquet.FileMetaData:
    """Read the footer of a file, cached by its version: for a million rows this takes as long as reading a row."""
    return parquet.read_metadata(path)


@dataclass(frozen=True)
class CheckedParquet:
    """A Parquet file that is read with its checksums. All methods raise TableError if it is damaged."""

    path: Path
    holds: str  # expected contents, for messages
    remedy: str  # what to do if it is damaged, for messages

    def metadata(self, key: str) -> bytes | None:
        """Return a value of the file's own metadata; None without the key."""
        with self._readable():
            return (self._footer().metadata or {}).get(key.encode())

    def is_sealed(self) -> bool | None:
        """Return whether the footer is the one that was written; None if the file was written without SEAL."""
        sealed = self.metadata(SEAL)
        if sealed is None:
            return None
        with self._readable(), open(self.path, "rb") as file:
            _, footer = _read_raw_footer(file)
        written = footer.replace(SEAL.encode() + b"\x18\x40" + sealed, _value(UNSEALED[SEAL]))
        return hashlib.sha256(written).hexdigest().encode() == sealed

    def height(self) -> int:
        """Return the number of rows."""
        with self._readable():
            return self._footer().num_rows

    def pages(self, length: int | None = None) -> dict[str, Any]:
        """Return length and SHA-256 of the first `length` bytes, the pages; of all bytes before there is a footer."""
        sha256, size = hashlib.sha256(), 0
        with self._readable(), open(self.path, "rb") as file:
            while part := file.read(CHUNK if length is None else min(CHUNK, length - size)):
                sha256.update(part)
                size += len(part)
        return {"bytes": size, "sha256": sha256.hexdigest()}

    def scan(self) -> pl.LazyFrame:
        """Scan the rows lazily: reads only the requested columns and number of rows.

        Do not take the `head` of a filtered query: polars ends it while a thread still reads batches, and a process
        that exits then is aborted. Use `places` and `at` to find the first rows that match.
        """
        with self._readable(), self._open() as file:
            schema = no_rows(file.schema_arrow).schema

        def frames(
            columns: list[str] | None, predicate: pl.Expr | None, most: int | None, _: int | None
        ) -> Iterator[pl.DataFrame]:
            for batch in self.batches(columns, self._batch_size(columns)):
                frame = frame_of(batch)
                frame = (frame if predicate is None else frame.filter(predicate)).slice(0, most)
                yield frame
                if most is not None and (most := most - frame.height) == 0:
                    return

        return register_io_source(frames, schema=schema, is_pure=True)

    def batches(self, columns: Sequence[str] | None = None, size: int = BATCH) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the named columns (None: all) in order, `size` at a time."""
        with self._readable(), self._open() as file:
            for batch in file.iter_batches(batch_size=size, columns=None if columns is None else list(columns)):
                batch.validate(full=True)  # without checksums, damage can be invalid UTF-8
                yield batch

    def places(self, condition: pl.Expr) -> list[int]:
        """Return the numbers of the rows that match a row-wise condition; reads only its columns."""
        numbers: list[int] = []
        before = 0
        for batch in self.batches(condition.meta.root_names(), size=NARROW):
            matches = frame_of(batch).select(condition).to_series()
            numbers += (matches.arg_true() + before).to_list()
            before += batch.num_rows
        return numbers

    def at(self, places: Sequence[int], columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the rows with these numbers, in this order; reads only the row groups that contain them."""
        with self._readable(), self._open() as file:
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            ends = list(accumulate(sizes))
            names = file.schema_arrow.names if columns is None else list(columns)
            parts = [no_rows(file.schema_arrow).select(names)]
            taken: list[int] = []
            for group, some in groupby(sorted(set(places)), key=lambda place: bisect_right(ends, place)):
                first = ends[group] - sizes[group]
                wanted = list(some)
                part = file.read_row_group(group, columns=names).take([place - first for place in wanted])
                part.validate(full=True)
                parts.append(frame_of(part))
                taken += wanted
        order = {place: index for index, place in enumerate(taken)}
        return pl.concat(parts)[[order[place] for place in places]]

    def _batch_size(self, columns: Sequence[str] | None) -> int:
        """Return the rows of a batch: many if the columns are small."""
        if columns is None or not self._footer().num_row_groups:
            return BATCH
        group = self._footer().row_group(0)
        chunks = (group.column(place) for place in range(group.num_columns))
        size = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.partition(".")[0] in columns)
        return NARROW if size <= NARROW_BYTES * group.num_rows else BATCH

    def _open(self) -> parquet.ParquetFile:
        """Open the file with its own footer: it may be replaced at any moment."""
        while True:
            version = self._version()
            file = parquet.ParquetFile(
                self.path, metadata=_read_footer(self.path, *version), page_checksum_verification=True
            )
            if self._version() == version:
                return file
            file.close()

    def _footer(self) -> parquet.FileMetaData:
        return _read_footer(self.path, *self._version())

    def _version(self) -> tuple[int, int, int]:
        stat = self.path.stat()
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            where, why = f"{self.path}: ", str(error).splitlines()[0] if str(error) else type(error).__name__
            if self.path.is_dir():
                raise TableError(f"{where}is a folder; expected {self.holds}. Move it away. {self.remedy}") from error
            if getattr(error, "errno", None):  # the system refuses the file, whatever it contains
                raise TableError(
                    f"{where}cannot be read ({error.strerror or why}); expected {self.holds}. Check the file system."
                ) from error
            raise TableError(
                f"{where}is damaged, and cannot be read as Parquet ({why}); expected {self.holds}. {self.remedy}"
            ) from error

"""Rows in a temporary file, for a stage that must read all rows before it writes the first."""

import os
import pickle
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

Row = dict[str, Any]
T = TypeVar("T")


class Records:
    """Byte strings in an unnamed temporary file, by number: 8 bytes of memory per record.

    Raises OSError with the folder of temporary files as its file name if that is full.
    """

    def __init__(self) -> None:
        # Buffered: on a full disk an unbuffered file writes only a part and raises no error.
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed with this object
        self._starts = array("Q", [0])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def append(self, record: bytes) -> None:
        """Append a record."""
        try:
            self._file.write(record)
        except OSError as error:
            raise _locate(error) from None
        self._starts.append(self._starts[-1] + len(record))

    def __getitem__(self, place: int) -> bytes:
        start, end = self._starts[place], self._starts[place + 1]
        try:
            self._file.flush()
        except OSError as error:
            raise _locate(error) from None
        return os.pread(self._file.fileno(), end - start, start)


def _locate(error: OSError) -> OSError:
    return OSError(error.errno, error.strerror, tempfile.gettempdir())


class Spilled(Sequence[Row]):
    """A sequence of rows in a temporary file. Changes of a row are not written back."""

    def __init__(self, rows: Iterable[Row]):
        self._records = Records()
        for row in rows:
            self._records.append(pickle.dumps(row, pickle.HIGHEST_PROTOCOL))

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Row]:
        return map(self._read, range(len(self)))

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        places = range(len(self))[place]
        return [self._read(each) for each in places] if isinstance(places, range) else self._read(places)

    def _read(self, place: int) -> Row:
        return pickle.loads(self._records[place])


class RowSelection(Sequence[T]):
    """A view of the rows of a sequence at these places, in this order."""

    def __init__(self, rows: Sequence[T], places: Sequence[int]):
        self._rows, self._places = rows, places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        return (self._rows[place] for place in self._places)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> "RowSelection[T]": ...
    def __getitem__(self, place: int | slice) -> "T | RowSelection[T]":
        if isinstance(place, slice):
            return RowSelection(self._rows, self._places[place])
        return self._rows[self._places[place]]

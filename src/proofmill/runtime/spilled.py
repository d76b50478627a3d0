"""Rows in a temporary file, for a stage that must see all of them before it writes the first."""

import pickle
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

Row = dict[str, Any]
T = TypeVar("T")


class Spilled(Sequence[Row]):
    """A sequence of rows: 8 bytes for each in memory, all else in the file. A row that is changed is not written back."""

    def __init__(self, rows: Iterable[Row]):
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as this does
        self._starts = array("Q")
        for row in rows:
            self._starts.append(self._file.tell())
            pickle.dump(row, self._file, pickle.HIGHEST_PROTOCOL)

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Row]:
        return map(self._read, self._starts)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        starts = self._starts[place]
        return [self._read(start) for start in starts] if isinstance(starts, array) else self._read(starts)

    def _read(self, start: int) -> Row:
        if self._file.tell() != start:  # else the file's buffer is kept
            self._file.seek(start)
        return pickle.load(self._file)


class Chosen(Sequence[T]):
    """The rows of a sequence with these places, in this order; none is copied."""

    def __init__(self, rows: Sequence[T], places: Sequence[int]):
        self._rows, self._places = rows, places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        return (self._rows[place] for place in self._places)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> "Chosen[T]": ...
    def __getitem__(self, place: int | slice) -> "T | Chosen[T]":
        if isinstance(place, slice):
            return Chosen(self._rows, self._places[place])
        return self._rows[self._places[place]]

"""Graded attempts as metrics read them: rows with named fields, a million of them in memory.

A list of dictionaries takes 1,500 bytes per attempt. Here each field is a column of indices into its distinct values. A row
is a position in the columns. Subsets of rows (one seed, one level, one problem) are lists of positions.
"""

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, overload

import numpy as np

from proofmill.runtime.temporary_rows import RowSelection

Row = Mapping[str, Any]
Rows = Sequence[Row]
_Columns = Mapping[str, tuple[array, list]]  # of each row the index of its value, and the values
_AT_ONCE = 1024  # rows per chunk


class _Column(dict[Any, int]):
    """The index of each distinct value of a field. `numbers_N` holds those of the rows; an unhashable value is always new."""

    def __init__(self) -> None:
        self.different: list[Any] = []
        self.numbers_N = array("B")

    def __missing__(self, value: Any) -> int:
        self[value] = number = self._new(value)
        return number

    def _new(self, value: Any) -> int:
        self.different.append(value)
        return len(self.different) - 1

    def extend(self, values: Sequence[Any]) -> None:
        try:
            numbers = list(map(self.__getitem__, values))
        except TypeError:
            numbers = [self._new(value) for value in values]
        if len(self.different) > 256 and self.numbers_N.typecode == "B":  # more values than fit a byte
            self.numbers_N = array("I", self.numbers_N)
        self.numbers_N.extend(numbers)


class AttemptTable(Sequence[Row]):
    """Read-only rows with the same fields. Equal values of a field are stored once."""

    def __init__(self, rows: Iterable[Row]):
        columns: dict[str, _Column] = {}
        self._size = 0
        unread = iter(rows)
        while some := list(islice(unread, _AT_ONCE)):
            columns = columns or {field: _Column() for field in some[0]}
            for field, column in columns.items():
                column.extend([row[field] for row in some])
            self._size += len(some)
        self._columns = {field: (column.numbers_N, column.different) for field, column in columns.items()}

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Rows: ...
    def __getitem__(self, place: int | slice) -> Row | Rows:
        if isinstance(place, slice):
            return RowSelection(self, range(self._size)[place])
        return _Attempt(self._columns, range(self._size)[place])

    def __iter__(self) -> Iterator[Row]:
        return (_Attempt(self._columns, place) for place in range(self._size))


class _Attempt(Row):
    """A row of `AttemptTable`."""

    __slots__ = ("_columns", "_place")

    def __init__(self, columns: _Columns, place: int):
        self._columns, self._place = columns, place

    def __getitem__(self, field: str) -> Any:
        numbers, values = self._columns[field]
        return values[numbers[self._place]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def where(rows: Rows, holds: Callable[[Row], bool]) -> Rows:
    """Return the rows for which `holds` is true."""
    return RowSelection(rows, array("I", (place for place, row in enumerate(rows) if holds(row))))


def parts(rows: Rows, key: Callable[[Row], Hashable]) -> Iterator[Rows]:
    """Yield the rows of each key in their order, by first occurrence of the key."""
    numbers: dict[Hashable, int] = {}
    number_N = np.fromiter((numbers.setdefault(key(row), len(numbers)) for row in rows), np.int64, len(rows))
    place_N = number_N.argsort(kind="stable")
    ends = np.bincount(number_N, minlength=len(numbers)).cumsum().tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        yield [rows[place] for place in place_N[start:end].tolist()]


def count(rows: Iterable[Row], holds: Callable[[Row], Any]) -> int:
    """Count the rows for which `holds` is true."""
    return sum(1 for row in rows if holds(row))


def has(field: str, value: Any) -> Callable[[Row], bool]:
    """Return a test of whether a field of a row has this value."""
    return lambda row: row[field] == value


def is_scored(row: Row) -> bool:
    """Return whether an attempt has a grade."""
    return row["grade"] is not None

"""Graded attempts as measures read them: rows by name of a field, a million of them in memory.

A list of dictionaries takes 1,500 bytes an attempt. Here each field is a column of numbers of different values, and a row
is a place in the columns; its parts (one seed, one level, one problem) are places, too.
"""

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, overload

import numpy as np

from proofmill.runtime.spilled import Chosen

Row = Mapping[str, Any]
Rows = Sequence[Row]
_Columns = Mapping[str, tuple[array, list]]  # by place the number of the value, and by number the value
_AT_ONCE = 1024  # rows that are taken apart together


class _Column(dict[Any, int]):
    """Numbers the different values of a field. `numbers_N` are those of the rows; a value without a hash is a new one."""

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
        if len(self.different) > 256 and self.numbers_N.typecode == "B":  # more than a byte tells apart
            self.numbers_N = array("I", self.numbers_N)
        self.numbers_N.extend(numbers)


class Attempts(Sequence[Row]):
    """Rows with the same fields. Equal values of a field are kept once; a row cannot be changed."""

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
            return Chosen(self, range(self._size)[place])
        return _Attempt(self._columns, range(self._size)[place])

    def __iter__(self) -> Iterator[Row]:
        return (_Attempt(self._columns, place) for place in range(self._size))


class _Attempt(Row):
    """A row of Attempts."""

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
    """The rows for which something holds."""
    return Chosen(rows, array("I", (place for place, row in enumerate(rows) if holds(row))))


def parts(rows: Rows, key: Callable[[Row], Hashable]) -> Iterator[Rows]:
    """The rows with the same key together, in their order; those whose key comes first are first."""
    numbers: dict[Hashable, int] = {}
    number_N = np.fromiter((numbers.setdefault(key(row), len(numbers)) for row in rows), np.int64, len(rows))
    place_N = number_N.argsort(kind="stable")
    ends = np.bincount(number_N, minlength=len(numbers)).cumsum().tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        yield [rows[place] for place in place_N[start:end].tolist()]


def count(rows: Iterable[Row], holds: Callable[[Row], Any]) -> int:
    """How many rows there are for which something holds."""
    return sum(1 for row in rows if holds(row))


def has(field: str, value: Any) -> Callable[[Row], bool]:
    """Whether a field of a row has this value."""
    return lambda row: row[field] == value


def scored(row: Row) -> bool:
    """Whether an attempt has marks."""
    return row["grade"] is not None

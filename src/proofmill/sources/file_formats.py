"""Read text formats as streams of records with their places: JSONL, CSV, TSV, and a file with one large JSON object.

Differences from the underlying readers:
1. JSON is strict: no NaN, no duplicate key in an object, no number that exceeds a float.
2. A number keeps its original digits (`NumberFormat`).
3. A text has at most a million characters and is Unicode; values are nested at most a hundred levels deep.
4. Logs, which are written by programs, may contain NaN and Infinity as Python writes them. They are read as null.
"""

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from proofmill.schema.errors import TableError, list_names, short
from proofmill.sources.record_fields import kind_of

FIELD_LIMIT = 1_000_000  # characters of one text; the longest AoPS post is far below a tenth of it
LINE_LIMIT = 64 * FIELD_LIMIT  # bytes of one line: enough for a thread of many long posts
VALUE_LIMIT = 256 * FIELD_LIMIT  # characters of one value of a log: a sample with every event of a long run
CHUNK = 1 << 20  # characters of a log per read
DIGITS_LIMIT = 4_000  # of one number; Python converts at most 4,300 to an integer
DEPTH_LIMIT = 100  # of nested lists and objects; the forum's records have seven
FixCells = Callable[[list[str]], list[str]]
Record = tuple[str, Mapping[str, Any]]  # place, `file:line`, and columns

_END = "\0end of the file"
_SURROGATE = re.compile("[\ud800-\udfff]")


def _plain(value: Any, depth: int) -> bool:
    """Return whether a JSON value certainly passes `check_texts`; False is undecided."""
    kind = type(value)
    if kind is str:
        return len(value) <= FIELD_LIMIT and (value.isascii() or not _SURROGATE.search(value))
    if kind is dict or kind is list:
        inner = value.values() if kind is dict else value
        if kind is dict and not all([type(key) is str and key.isascii() for key in value]):
            return False
        return depth > 0 and all([_plain(one, depth - 1) for one in inner])
    return kind in _BARE


def check_texts(where: str, value: Any, column: str = "") -> None:
    """Raise TableError if a text in a record exceeds FIELD_LIMIT or is not Unicode, or a value is nested too deeply."""
    if _plain(value, DEPTH_LIMIT):
        return
    pending = [(column, value, 0)]
    while pending:
        column, value, depth = pending.pop()
        if isinstance(value, str):
            if len(value) > FIELD_LIMIT:
                raise TableError(
                    f"{where}: `{short(column)}` has {len(value):,} characters; expected at most {FIELD_LIMIT:,} in one "
                    "field. Remove the row."
                )
            if _SURROGATE.search(value):
                raise TableError(
                    f"{where}: `{short(column)}` has half a surrogate pair; expected Unicode text. Fix or remove the row."
                )
        elif isinstance(value, Mapping | list | tuple):
            if depth == DEPTH_LIMIT:
                raise TableError(
                    f"{where}: `{short(column)}` is nested over {DEPTH_LIMIT} levels deep; expected a record. "
                    "Fix or remove the row."
                )
            if isinstance(value, Mapping):
                pending += (("a key", key, depth + 1) for key in value if isinstance(key, str))
                pending += ((f"{column}.{k}" if column else str(k), inner, depth + 1) for k, inner in value.items())
            else:
                pending += ((column, inner, depth + 1) for inner in value)


# ----------------------------------------------------------------------------------------------------------------- JSON


class NumberFormat(float):
    """A float that keeps its original text: a float has 17 digits, an answer may have more."""

    written: str

    def __new__(cls, written: str) -> "NumberFormat":
        number = super().__new__(cls, _short_enough(written))
        if not math.isfinite(number):
            raise ValueError(f"{short(written)} exceeds the largest float")
        number.written = written
        return number


_BARE = frozenset((int, float, bool, type(None), NumberFormat))


def _short_enough(written: str) -> str:
    if len(written) > DIGITS_LIMIT:
        raise ValueError(f"a number of {len(written):,} characters")
    return written


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key `{short(twice)}` occurs twice in one object")
    return members


def _no_number(name: str) -> Any:
    raise ValueError(f"JSON has no number {name}; use null")


def _decoder(constant: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_float=NumberFormat,
        parse_int=lambda written: int(_short_enough(written)),
        parse_constant=constant,
    )


_JSON, _LOGGED = _decoder(_no_number), _decoder(lambda name: None)


def parse_json(text: str, logged: bool = False) -> Any:
    """Parse JSON, strictly or as logs have it. Raises ValueError with the fault.

    Strict texts are Unicode and nested at most DEPTH_LIMIT levels deep.
    """
    value = _decode(text, logged)
    pending = [] if logged else [(value, 0)]
    while pending:
        part, depth = pending.pop()
        if isinstance(part, str) and _SURROGATE.search(part):
            raise ValueError("half a surrogate pair")
        if isinstance(part, dict | list) and depth == DEPTH_LIMIT:
            raise ValueError(f"nested over {DEPTH_LIMIT} levels deep")
        if isinstance(part, dict):
            pending += ((inner, depth + 1) for inner in chain(part, part.values()))
        elif isinstance(part, list):
            pending += ((inner, depth + 1) for inner in part)
    return value


def _decode(text: str, logged: bool = False) -> Any:
    try:
        return (_LOGGED if logged else _JSON).decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg}, column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


_BLANKS = re.compile(r"[ \t\r\n]*")


class _Stream:
    """A JSON text of a log, read on demand. Methods raise ValueError."""

    def __init__(self, file: TextIO):
        self._file, self._text, self._at, self._ended = file, "", 0, False

    def peek(self) -> str:
        """Return the next non-blank character; empty at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read()

    def take(self, signs: str) -> str:
        """Consume the next character, which must be one of `signs`."""
        if not (sign := self.peek()) or sign not in signs:
            raise ValueError(f"{f'`{sign}`' if sign else 'the end'} instead of {' or '.join(f'`{s}`' for s in signs)}")
        self._at += 1
        return sign

    def value(self) -> Any:
        """Parse the next value. While it is incomplete, double the text in memory and parse again."""
        self.peek()
        while True:
            try:
                value, end = _LOGGED.raw_decode(self._text, self._at)
                if end < len(self._text) or self._ended:  # else a number may continue
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                if self._ended:
                    raise ValueError(error.msg) from error
            if len(self._text) - self._at > VALUE_LIMIT:
                raise ValueError(f"no end of a value after {VALUE_LIMIT:,} characters")
            self._read()

    def _read(self) -> None:
        more = self._file.read(max(CHUNK, len(self._text) - self._at))
        self._text, self._at, self._ended = self._text[self._at :] + more, 0, not more


def members(path: Path, apart: str) -> Iterator[tuple[str, Any]]:
    """Yield the members of a log's JSON object in order; the elements of the list `apart` one at a time."""
    elements = 0
    with open(path, encoding="utf-8-sig") as file:
        stream = _Stream(file)
        try:
            stream.take("{")
            end = stream.take("}") if stream.peek() == "}" else ","
            while end == ",":
                name = stream.value()
                stream.take(":")
                if name == apart and stream.peek() == "[":
                    stream.take("[")
                    while stream.peek() != "]":
                        elements += 1
                        yield name, stream.value()
                        if stream.peek() != "]":
                            stream.take(",")
                    stream.take("]")
                else:
                    yield name, stream.value()
                end = stream.take(",}")
        except (ValueError, RecursionError) as error:
            raise TableError(
                f"{path}: not JSON after {elements:,} of `{apart}` ({error}); expected one complete JSON object. Copy the file again."
            ) from error


# -------------------------------------------------------------------------------------------------------------- formats


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a UTF-8 file, with line ends."""
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(LINE_LIMIT + 1):
            number += 1
            if len(line) > LINE_LIMIT:
                raise TableError(
                    f"{path}:{number}: over {LINE_LIMIT:,} bytes in one line; expected one row. Check for missing line ends."
                )
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise TableError(
                    f"{path}:{number}: byte {error.start + 1} of the line is {line[error.start]:#04x}, not UTF-8; "
                    "expected UTF-8. Convert the file, for example with iconv."
                ) from error


def jsonl(path: Path, _: FixCells | None = None, logged: bool = False) -> Iterator[Record]:
    """Yield the records of a JSONL file. `logged` records may have NaN, and texts of any length."""
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = _decode(line, logged)
        except ValueError as error:
            raise TableError(
                f"{path}:{number}: not JSON ({error}); expected one JSON object per line. Fix or remove the line."
            ) from error
        if not isinstance(record, dict):
            raise TableError(f"{path}:{number}: a JSON {kind_of(record)}; expected an object with columns as its keys.")
        if not logged:
            check_texts(f"{path}:{number}", record)
        yield f"{path}:{number}", record


def comma_separated(path: Path, fix: FixCells | None = None, delimiter: str = ",") -> Iterator[Record]:
    """Yield the records of a CSV file; `fix` corrects rows with a wrong number of cells."""
    csv.field_size_limit(FIELD_LIMIT)
    # Not `strict`: IMO-AnswerBench has bare quotes inside quoted cells. _END reveals a quote that is never closed.
    reader = csv.reader(chain((line for _, line in _lines(path)), [_END]), delimiter=delimiter)
    header: list[str] | None = None
    line = 1  # where the row begins
    try:
        for cells in reader:
            where, line = f"{path}:{line}", reader.line_num + 1
            if not cells or cells == [_END]:
                continue
            if cells[-1].endswith(_END):
                raise TableError(f"{where}: a quote is not closed; expected the end of the cell. Fix the line.")
            if header is None:
                header = [name.strip() for name in cells]
                if "" in header or len(set(header)) < len(header):
                    raise TableError(
                        f"{where}: the columns are {list_names(map(repr, header))}; expected distinct column names in the "
                        "first line."
                    )
                continue
            if len(cells) != len(header) and fix:
                cells = fix(cells)
            if len(cells) != len(header):
                raise TableError(
                    f"{where}: {len(cells)} cells; expected {len(header)}, one per column. Check for missing quotes."
                )
            record = dict(zip(header, cells, strict=True))
            check_texts(where, record)
            yield where, record
    except csv.Error as error:
        raise TableError(
            f"{path}:{line}: not CSV ({error}); expected quoted fields of at most {FIELD_LIMIT:,} characters. "
            "Fix or remove the line."
        ) from error


def tab_separated(path: Path, fix: FixCells | None = None) -> Iterator[Record]:
    """Yield the records of a TSV file."""
    return comma_separated(path, fix, "\t")

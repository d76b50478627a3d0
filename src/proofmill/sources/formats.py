"""Formats of foreign files made of text: JSONL, CSV and TSV, each read as a stream of records with their places.

How we differ from the readers underneath:
1. JSON is read as its standard has it: no NaN, no key twice in an object, no number that no float can hold.
2. A number keeps the digits it was written with (`Number`).
3. A text has at most a million characters and is Unicode; nothing is nested more than a hundred levels deep.
"""

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from proofmill.schema.errors import TableError
from proofmill.schema.quoting import listed, short
from proofmill.sources.fields import kind_of

FIELD_LIMIT = 1_000_000  # characters of one text; the longest AoPS post is far below a tenth of it
LINE_LIMIT = 64 * FIELD_LIMIT  # bytes of one line: room for a thread of many long posts; an endless line is not read
DIGITS_LIMIT = 4_000  # of one number; Python turns no more than 4,300 into an integer
DEPTH_LIMIT = 100  # of lists and objects inside one another; the records of the forum have seven
Mend = Callable[[list[str]], list[str]]
Record = tuple[str, Mapping[str, Any]]  # its place, `file:line`, and its columns

_END = "\0end of the file"
_SURROGATE = re.compile("[\ud800-\udfff]")


def check_texts(where: str, value: Any, column: str = "") -> None:
    """TableError if a text in a record is longer than FIELD_LIMIT or no Unicode, or is nested too deeply."""
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
                    f"{where}: `{short(column)}` has half a surrogate pair; expected Unicode text. Mend or remove the row."
                )
        elif isinstance(value, Mapping | list | tuple):
            if depth == DEPTH_LIMIT:
                raise TableError(
                    f"{where}: `{short(column)}` is nested over {DEPTH_LIMIT} levels deep; expected a record. "
                    "Mend or remove the row."
                )
            if isinstance(value, Mapping):
                pending += ((f"{column}.{k}" if column else str(k), inner, depth + 1) for k, inner in value.items())
            else:
                pending += ((column, inner, depth + 1) for inner in value)


# ----------------------------------------------------------------------------------------------------------------- JSON


class Number(float):
    """A number with a point or an exponent, and how it was written: a float has 17 digits, an answer may have more."""

    written: str

    def __new__(cls, written: str) -> "Number":
        number = super().__new__(cls, _short_enough(written))
        if not math.isfinite(number):
            raise ValueError(f"{short(written)} is larger than any number that can be computed with")
        number.written = written
        return number


def _short_enough(written: str) -> str:
    if len(written) > DIGITS_LIMIT:
        raise ValueError(f"a number of {len(written):,} characters")
    return written


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key `{short(twice)}` stands twice in one object")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"JSON has no number {name}; write null")


_JSON = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_float=Number,
    parse_int=lambda written: int(_short_enough(written)),
    parse_constant=_no_number,
)


def parsed_json(text: str) -> Any:
    """A JSON text as its standard has it. Raises ValueError, whose message says what is wrong."""
    try:
        return _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg}, column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


# -------------------------------------------------------------------------------------------------------------- formats


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file, line ends included."""
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(LINE_LIMIT + 1):
            number += 1
            if len(line) > LINE_LIMIT:
                raise TableError(
                    f"{path}:{number}: over {LINE_LIMIT:,} bytes in one line; expected one row. Is a line end missing?"
                )
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise TableError(
                    f"{path}:{number}: byte {error.start + 1} of the line is {line[error.start]:#04x}, no UTF-8; "
                    "expected UTF-8. Convert the file, for example with iconv."
                ) from error


def jsonl(path: Path, _: Mend | None = None) -> Iterator[Record]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = parsed_json(line)
        except ValueError as error:
            raise TableError(
                f"{path}:{number}: no JSON ({error}); expected one JSON object a line. Mend or remove the line."
            ) from error
        if not isinstance(record, dict):
            raise TableError(
                f"{path}:{number}: found a JSON {kind_of(record)}; expected an object with columns as its keys."
            )
        check_texts(f"{path}:{number}", record)
        yield f"{path}:{number}", record


def comma_separated(path: Path, mend: Mend | None = None, delimiter: str = ",") -> Iterator[Record]:
    csv.field_size_limit(FIELD_LIMIT)
    # Not `strict`: IMO-AnswerBench has bare quotes inside quoted cells. _END reveals a quote that is never closed.
    reader = csv.reader(chain((line for _, line in _lines(path)), [_END]), delimiter=delimiter)
    header: list[str] | None = None
    line = 1  # of the row's beginning
    try:
        for cells in reader:
            where, line = f"{path}:{line}", reader.line_num + 1
            if not cells or cells == [_END]:
                continue
            if cells[-1].endswith(_END):
                raise TableError(f"{where}: a quote is never closed; expected an end of the cell. Mend the line.")
            if header is None:
                header = [name.strip() for name in cells]
                if "" in header or len(set(header)) < len(header):
                    raise TableError(
                        f"{where}: the columns are {listed(map(repr, header))}; expected a first line of distinct "
                        "column names."
                    )
                continue
            if len(cells) != len(header) and mend:
                cells = mend(cells)
            if len(cells) != len(header):
                raise TableError(
                    f"{where}: {len(cells)} cells; expected {len(header)}, as many as columns. Is a quote missing?"
                )
            record = dict(zip(header, cells, strict=True))
            check_texts(where, record)
            yield where, record
    except csv.Error as error:
        raise TableError(
            f"{path}:{line}: no CSV ({error}); expected quoted fields of at most {FIELD_LIMIT:,} characters. "
            "Mend or remove the line."
        ) from error


def tab_separated(path: Path, mend: Mend | None = None) -> Iterator[Record]:
    return comma_separated(path, mend, "\t")

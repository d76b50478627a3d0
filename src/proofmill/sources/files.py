"""Foreign files and datasets, read one record (row) at a time, each with its place in the file.

Every mistake in such a file ends in one TableError that names the file and the line, before anything is written.
"""

import csv
import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from proofmill.runtime.paths import local_path
from proofmill.schema.entries import Problems
from proofmill.schema.errors import HubError, TableError

FIELD_LIMIT = 1_000_000  # characters of one text; the longest AoPS post is far below a tenth of it
LINE_LIMIT = 64 * FIELD_LIMIT  # bytes of one line: room for a thread of many long posts; an endless line is not read
BATCH = 1_000  # rows of Parquet held at a time
Mend = Callable[[list[str]], list[str]]
Record = tuple[str, dict[str, Any]]  # its place, `file:line`, and its columns

_END = "\0end of the file"
_SURROGATE = re.compile("[\ud800-\udfff]")


def read(path: Path, mend: Mend | None = None) -> Iterator[Record]:
    """The records of a JSONL, CSV, TSV or Parquet file, or of all such files of a folder in the order of their names.

    `mend` corrects CSV rows with a wrong number of cells, for a published file with a known fault.
    """
    if not path.exists():
        raise TableError(
            f"{path}: no such file or folder; expected the rows to read. Check the path and its variables."
        )
    files = sorted(f for f in path.rglob("*") if f.suffix.lower() in READERS) if path.is_dir() else [path]
    if not files:
        raise TableError(f"{path}: a folder without any such file; expected {', '.join(READERS)}.")
    for file in files:
        if file.suffix.lower() not in READERS:
            raise TableError(f"{file}: ends in `{file.suffix}`; expected {', '.join(READERS)}. Convert or rename it.")
        records = READERS[file.suffix.lower()](file, mend)
        first = next(records, None)
        if first is None:
            raise TableError(f"{file}: no rows; expected at least one. An empty file is often an unfinished download.")
        for where, record in chain([first], records):
            check_texts(where, record)
            yield where, record


def records(entry: Problems, mend: Mend | None = None) -> Iterator[Record]:
    """The records of a `problems` entry: from its local `path`, else from the hub."""
    return read(local_path(entry.path), mend) if entry.path else hub(entry.id, entry.commit, entry.config, entry.split)


def hub(id: str, commit: str | None, config: str | None, split: str) -> Iterator[Record]:
    """The records of a dataset of the hub at its pinned commit, streamed; a local folder may stand for the id."""
    import datasets  # takes seconds, and needs no network for a local folder

    where = f"{id}@{commit}" if commit else id
    try:
        rows = datasets.load_dataset(id, config, split=split, revision=commit, streaming=True)
        for number, record in enumerate(rows, 1):
            check_texts(f"{where}:{number}", record)
            yield f"{where}:{number}", record
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise HubError(
            f"{where}: split `{split}`{f' of `{config}`' if config else ''} cannot be read ({_first_line(error)}); "
            "expected a dataset of the hub or a folder. Check the id, the commit, the split and the network, or "
            "download it and give `path`."
        ) from error


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


def _jsonl(path: Path, _: Mend | None = None) -> Iterator[Record]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            at = (
                f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            )
            raise TableError(
                f"{path}:{number}: no JSON ({at}); expected one JSON object a line. Mend or remove the line."
            ) from error
        if not isinstance(record, dict):
            raise TableError(
                f"{path}:{number}: found a JSON {_kind(record)}; expected an object with columns as its keys."
            )
        yield f"{path}:{number}", record


def _csv(path: Path, mend: Mend | None = None, delimiter: str = ",") -> Iterator[Record]:
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
                        f"{where}: the columns are {header}; expected a first line of distinct column names."
                    )
                continue
            if len(cells) != len(header) and mend:
                cells = mend(cells)
            if len(cells) != len(header):
                raise TableError(
                    f"{where}: {len(cells)} cells; expected {len(header)}, as many as columns. Is a quote missing?"
                )
            yield where, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise TableError(
            f"{path}:{line}: no CSV ({error}); expected quoted fields of at most {FIELD_LIMIT:,} characters. "
            "Mend or remove the line."
        ) from error


def _tsv(path: Path, mend: Mend | None = None) -> Iterator[Record]:
    return _csv(path, mend, "\t")


def _parquet(path: Path, _: Mend | None = None) -> Iterator[Record]:
    import pyarrow as pa  # takes a while, and most sources are not Parquet
    from pyarrow import parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH):
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path}:{number}", record
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TableError(
            f"{path}: cannot be read as Parquet after row {number} ({_first_line(error)}); expected a Parquet file. "
            "Fetch it again."
        ) from error


READERS: dict[str, Callable[[Path, Mend | None], Iterator[Record]]] = {
    ".jsonl": _jsonl, ".ndjson": _jsonl, ".csv": _csv, ".tsv": _tsv, ".parquet": _parquet,
}  # fmt: skip


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"


def _kind(value: Any) -> str:
    names = {"str": "text", "int": "number", "float": "number", "bool": "boolean", "NoneType": "null", "dict": "object"}
    return names.get(type(value).__name__, type(value).__name__)


def check_texts(where: str, value: Any, column: str = "") -> None:
    """TableError if a text in a record is longer than FIELD_LIMIT or is not Unicode text."""
    if isinstance(value, str):
        if len(value) > FIELD_LIMIT:
            raise TableError(
                f"{where}: `{column}` has {len(value):,} characters; expected at most {FIELD_LIMIT:,} in one field. "
                "Remove the row."
            )
        if _SURROGATE.search(value):
            raise TableError(
                f"{where}: `{column}` has half a surrogate pair; expected Unicode text. Mend or remove the row."
            )
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            check_texts(where, inner, f"{column}.{key}" if column else str(key))
    elif isinstance(value, list):
        for inner in value:
            check_texts(where, inner, column)


# --------------------------------------------------------------------------------------------------------------- fields


def field(where: str, record: Mapping[str, Any], column: str) -> Any:
    """The value of a column, also of a nested one (`metadata.path`); TableError names the nearest existing column."""
    value: Any = record
    if column in record:
        return record[column]
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise TableError(
                f"{where}: no column `{column}` among {', '.join(map(str, record))}; {_nearest(column, record)}"
            )
        value = value[part]
    return value


def _nearest(column: str, record: Iterable[str]) -> str:
    alike = {str(name).lower(): str(name) for name in record}
    near = difflib.get_close_matches(column.lower(), alike, n=1, cutoff=0.6)
    return f"expected `{column}`." + (
        f" Did you mean `{alike[near[0]]}`?" if near else " Name the right column or source."
    )


def text(where: str, record: Mapping[str, Any], column: str) -> str | None:
    """A text or null; TableError for anything else."""
    value = field(where, record, column)
    if value is not None and not isinstance(value, str):
        raise TableError(f"{where}: `{column}` is a {_kind(value)} ({_shown(value)}); expected text.")
    return value


def word(where: str, record: Mapping[str, Any], column: str) -> str | None:
    """A text or a number, as text: an answer, an id, a level."""
    value = field(where, record, column)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = int(value) if isinstance(value, float) and value.is_integer() else value
        return str(value)
    return text(where, record, column)


def year(where: str, record: Mapping[str, Any], column: str) -> int | None:
    """A year of four digits; null and blank are None, TableError for anything else."""
    value = word(where, record, column)
    if value is None or not value.strip():
        return None
    if not re.fullmatch(r"\s*(1[0-9]{3}|2[0-9]{3})\s*", value):
        raise TableError(f"{where}: `{column}` is {value!r}; expected a year of four digits.")
    return int(value)


def texts(where: str, record: Mapping[str, Any], column: str) -> list[str]:
    """A list of texts; null is an empty list, nulls in it are left out. TableError for anything else."""
    value = field(where, record, column)
    if value is None:
        return []
    if not isinstance(value, list) or any(item is not None and not isinstance(item, str) for item in value):
        raise TableError(f"{where}: `{column}` is a {_kind(value)} ({_shown(value)}); expected a list of texts.")
    return [item for item in value if item is not None]


def rendered(where: str, items: list) -> str:
    """A structured marking scheme as text: two lines an item, a blank line between; TableError for a missing column."""
    blocks = []
    for item in items:
        title, points, what = (
            read(where, item, next((c for c in columns if c in item), columns[0]))
            for read, columns in (
                (text, ("title",)),
                (word, ("max_points", "points")),
                (text, ("grading_scheme_desc", "desc", "description")),
            )
        )
        blocks.append(f"# {title} ({points} points)\nDescription: {what}")
    return "\n\n".join(blocks)


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."

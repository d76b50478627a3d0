"""Read foreign files and datasets one record (row) at a time, each with its place in the file.

Every fault in such a file raises one TableError with the file and the line, before any output is written.
"""

import csv
from collections.abc import Callable, Container, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from proofmill.public_data.locations import files_of, local_path
from proofmill.schema.entries.problem_entries import Problems
from proofmill.schema.entries.response_entries import Examples
from proofmill.schema.errors import HubError, SettingError, TableError
from proofmill.schema.fields import require
from proofmill.sources import record_fields
from proofmill.sources.file_formats import FixCells, Record, check_texts, comma_separated, jsonl, tab_separated


def _parquet(path: Path, _: FixCells | None = None) -> Iterator[Record]:
    from proofmill.sources import parquet  # pyarrow takes a while, and most sources are not Parquet

    return parquet.records(path)


COUNTED = 2**31  # bytes of the files whose rows are counted
Readers = Mapping[str, Callable[[Path, FixCells | None], Iterator[Record]]]  # by file extension
READERS: Readers = {
    ".jsonl": jsonl, ".ndjson": jsonl, ".csv": comma_separated, ".tsv": tab_separated, ".parquet": _parquet,
}  # fmt: skip


def read(path: Path, fix: FixCells | None = None, readers: Readers = READERS, but: Container = ()) -> Iterator[Record]:
    """Yield the records of a JSONL, CSV, TSV or Parquet file, or of all such files of a folder in order of name.

    `fix` corrects CSV rows with a wrong number of cells, for a published file with a known fault. `readers` replaces the
    readers by extension. Files of a folder with a name in `but` are skipped.
    """
    files = files_of(path, readers)
    if path.is_dir():
        files = [file for file in files if file.suffix.lower() in readers and file.name not in but]
    if not files:
        raise TableError(f"{path}: the folder has no data file; expected {', '.join(readers)}.")
    for file in files:
        yield from _rows(file, fix, readers)


def _rows(file: Path, fix: FixCells | None, readers: Readers) -> Iterator[Record]:
    if file.suffix.lower() not in readers:
        raise TableError(f"{file}: ends in `{file.suffix}`; expected {', '.join(readers)}. Convert or rename it.")
    try:
        # Files of size 0 are not opened: a kernel file has no size, and reading it may block.
        rows = readers[file.suffix.lower()](file, fix) if file.stat().st_size else iter(())
        first = next(rows, None)
        if first is None:
            raise TableError(f"{file}: no rows; expected at least one. An empty file is often an unfinished download.")
        yield from chain([first], rows)
    except OSError as error:
        raise TableError(
            f"{file}: cannot be read ({error.strerror}); expected a readable file. Check its permissions and disk."
        ) from error


def count_rows(path: str) -> int | None:
    """Count the rows of a local file or folder without their values; None if it is missing, too large or of another form."""
    try:
        files = [file for file in files_of(local_path(path), READERS) if file.suffix.lower() in READERS]
        is_small = sum(file.stat().st_size for file in files) <= COUNTED
        return sum(map(_count_file, files)) if files and is_small else None
    except (OSError, ValueError, csv.Error, SettingError, TableError):
        return None


def _count_file(file: Path) -> int:
    if (ending := file.suffix.lower()) == ".parquet":
        from pyarrow import parquet

        return parquet.read_metadata(file).num_rows
    with open(file, encoding="utf-8-sig", newline="") as lines:
        if READERS[ending] is jsonl:
            return sum(not line.isspace() for line in lines)
        return max(0, sum(map(bool, csv.reader(lines, delimiter="\t" if ending == ".tsv" else ","))) - 1)


def records(entry: Problems | Examples, fix: FixCells | None = None) -> Iterator[Record]:
    """Yield the records of an entry from its `path`, else from the hub; for problems only the selected ones."""
    if entry.path:
        rows = read(local_path(entry.path), fix)
    else:
        rows = hub(require(entry.id), entry.commit, entry.subset, entry.split)
    return rows if isinstance(entry, Examples) else select(rows, entry)


def select(rows: Iterator[Record], entry: Problems) -> Iterator[Record]:
    """Yield the records that `every` and `where` select."""
    each = islice(rows, 0, None, entry.every)
    return (row for row in each if _is_selected(*row, entry.where)) if entry.where else each


def _is_selected(where: str, record: Mapping[str, Any], wanted: Mapping[str, list]) -> bool:
    return all(_read_value(where, record, column) in [*map(str, values)] for column, values in wanted.items())


def _read_value(where: str, record: Mapping[str, Any], column: str) -> str | None:
    value = record_fields.field(where, record, column)
    return str(value) if isinstance(value, bool) else record_fields.word(where, record, column)


def hub(id: str, commit: str | None, config: str | None, split: str) -> Iterator[Record]:
    """Stream the records of a dataset of the hub at its pinned commit; the id may also be a local folder."""
    import datasets  # takes seconds, and needs no network for a local folder

    from proofmill.sources.parquet import UNREADABLE, first_line

    where = f"{id}@{commit}" if commit else id
    try:
        rows = datasets.load_dataset(id, config, split=split, revision=commit, streaming=True)
        for number, record in enumerate(rows, 1):
            check_texts(f"{where}:{number}", record)
            yield f"{where}:{number}", record
    except (*UNREADABLE, datasets.exceptions.DatasetsError) as error:
        raise HubError(
            f"{where}: split `{split}`{f' of `{config}`' if config else ''} cannot be read ({first_line(error)}); "
            "expected a dataset of the hub or a folder. Check the id, the commit, the split and the network, or "
            "download it and set `path`."
        ) from error

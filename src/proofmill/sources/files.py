"""Foreign files and datasets, read one record (row) at a time, each with its place in the file.

Every mistake in such a file ends in one TableError that names the file and the line, before anything is written.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from proofmill.runtime.paths import files_of, local_path
from proofmill.schema.entries import Examples, Problems
from proofmill.schema.errors import HubError, TableError
from proofmill.schema.fields import required
from proofmill.sources import fields
from proofmill.sources.formats import Mend, Record, check_texts, comma_separated, jsonl, tab_separated


def _parquet(path: Path, _: Mend | None = None) -> Iterator[Record]:
    from proofmill.sources import parquet  # pyarrow takes a while, and most sources are not Parquet

    return parquet.records(path)


Readers = Mapping[str, Callable[[Path, Mend | None], Iterator[Record]]]  # by the end of a file's name
READERS: Readers = {
    ".jsonl": jsonl, ".ndjson": jsonl, ".csv": comma_separated, ".tsv": tab_separated, ".parquet": _parquet,
}  # fmt: skip


def read(path: Path, mend: Mend | None = None, readers: Readers = READERS, but: Container = ()) -> Iterator[Record]:
    """The records of a JSONL, CSV, TSV or Parquet file, or of all such files of a folder in the order of their names.

    `mend` corrects CSV rows with a wrong number of cells, for a published file with a known fault. `readers` are of other
    files; those of a folder that are called as one of `but` are left out.
    """
    files = files_of(path, readers)
    if path.is_dir():
        files = [file for file in files if file.suffix.lower() in readers and file.name not in but]
    if not files:
        raise TableError(f"{path}: a folder without any such file; expected {', '.join(readers)}.")
    for file in files:
        yield from _rows(file, mend, readers)


def _rows(file: Path, mend: Mend | None, readers: Readers) -> Iterator[Record]:
    if file.suffix.lower() not in readers:
        raise TableError(f"{file}: ends in `{file.suffix}`; expected {', '.join(readers)}. Convert or rename it.")
    try:
        # Nothing of no size is opened: a file of the kernel, which has none, may keep its reader waiting.
        rows = readers[file.suffix.lower()](file, mend) if file.stat().st_size else iter(())
        first = next(rows, None)
        if first is None:
            raise TableError(f"{file}: no rows; expected at least one. An empty file is often an unfinished download.")
        yield from chain([first], rows)
    except OSError as error:
        raise TableError(f"{file}: cannot be read ({error.strerror}); expected a file that can. Look at it.") from error


def records(entry: Problems | Examples, mend: Mend | None = None) -> Iterator[Record]:
    """The records of an entry with a source: from its `path`, else from the hub; of problems those that it selects."""
    if entry.path:
        rows = read(local_path(entry.path), mend)
    else:
        rows = hub(required(entry.id), entry.commit, entry.config, entry.split)
    return rows if isinstance(entry, Examples) else selected(rows, entry)


def selected(rows: Iterator[Record], entry: Problems) -> Iterator[Record]:
    """The records that `every` and `where` leave."""
    each = islice(rows, 0, None, entry.every)
    return (row for row in each if _selected(*row, entry.where)) if entry.where else each


def _selected(where: str, record: Mapping[str, Any], wanted: Mapping[str, list]) -> bool:
    return all(
        fields.word(where, record, column) in [str(value) for value in values] for column, values in wanted.items()
    )


def hub(id: str, commit: str | None, config: str | None, split: str) -> Iterator[Record]:
    """The records of a dataset of the hub at its pinned commit, streamed; a local folder may stand for the id."""
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
            "download it and give `path`."
        ) from error

"""Tables: each is one Parquet file with the columns of its kind and a stamp.

A table appears by one atomic rename, so it is complete or absent. The stamp (metadata of the Parquet file) has kind,
name, entry, fingerprint, parents' content, commit, versions, seed, counts by outcome, seconds, tokens, cost. The
archive has a copy of every table without failed calls, by its fingerprint (archive.py). With --forcerun a table is
rebuilt despite its copy.

Differences from similar caches:
1. The fingerprint covers the entry with defaults, the kind's revision, the prompts' text, the models and graders, the
   user's plugins, the names and digests of source files, and the parents' content. It ignores code, machine and path.
2. A parent counts by its content (rows and weights), not by how it was made. An edit that changes no row has no effect
   downstream.
3. `datasets` and polars open the files directly, without an index or extra files.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from proofmill.artifacts import contents
from proofmill.artifacts.archive import ArchivedTable, replace_folder
from proofmill.artifacts.checked_parquet import UNSEALED, CheckedParquet, frame_of, seal, writer
from proofmill.artifacts.contents import ROW_GROUP, content_of, page_sha256, rows_sha256
from proofmill.artifacts.stamps import KEY, read_stamp
from proofmill.artifacts.weights import Fact, Weights, facts_of, model_digest
from proofmill.calls import merging, sampling
from proofmill.runtime import durable, locks
from proofmill.runtime.progress import log
from proofmill.schema.columns import COLUMNS, ENUMS
from proofmill.schema.errors import TableError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import kind_of
from proofmill.schema.reasons import TRANSIENT
from proofmill.text.seen_texts import Seen


@dataclass(frozen=True)
class Table:
    """An artifact in the results folder: its file with the stamp, its weights, its page and its calls."""

    name: str
    results: Path = Path("results")

    @property
    def kind(self) -> str:
        return kind_of(self.name)

    @property
    def path(self) -> Path:
        return self.results / f"{self.name}.parquet"

    @property
    def folder(self) -> Path:
        """The folder with the weights and rollouts of a training, or with the files of a base model."""
        return self.results / self.name

    @property
    def page(self) -> Path:
        """The table as a Markdown page, for kinds that have one (`scores`)."""
        return self.results / f"{self.name}.md"

    @property
    def calls(self) -> Path:
        return self.results / "calls" / self.name

    @property
    def log(self) -> Path:
        """The log of all runs of its job."""
        return self.results / f"{self.name}.log"

    @property
    def scratch(self) -> Path:
        """Checkpoints and unfinished files. Not in declared outputs, which Snakemake deletes before a rerun."""
        return self.results / "unfinished" / self.name

    @property
    def lock(self) -> Path:
        """The lock file that is held by the process that makes the table."""
        return self.scratch.with_name(f"{self.scratch.name}.lock")

    @property
    def is_being_made(self) -> bool:
        """True if a job writes it or a shard makes its calls: shards write no table and do not hold its lock."""
        return locks.is_held(self.lock) or merging.is_written(self.calls)

    def other(self, name: str) -> "Table":
        """Return another table of this results folder."""
        return Table(name, self.results)

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def again(self) -> str:
        """The remedy for a damaged table, for messages."""
        return f"Restore it from the archive or, if it has no copy, rebuild it: rm {self.path}; snakemake {self.path}"

    @property
    def _file(self) -> CheckedParquet:
        return CheckedParquet(self.path, f"the rows of {self.name}", self.again)

    @property
    def _weights(self) -> Weights:
        return Weights(self.folder, self.path, self.again)

    @cached_property
    def stamp(self) -> dict:
        """The stamp (metadata) of the finished table. Raises TableError if the file is missing or not of proofmill."""
        if not self.path.exists():
            raise TableError(
                f"{self.path}: no such table; expected the rows of {self.name}. Build it: snakemake {self.path}"
            )
        stamp = read_stamp(self._file, self.kind)
        if stamp.get("name", self.name) != self.name:
            raise TableError(
                f"{self.path}: is the table of {stamp['name']}; expected that of {self.name}. {self.again}"
            )
        return stamp

    @property
    def content(self) -> str:
        """A digest of the rows and weights. Tables made from equal content are equal."""
        return self.stamp["content"]

    @property
    def model(self) -> str:
        """A digest of weights and tokenizer only: equal models sample equally, whatever their training logged."""
        return self.model_given()

    def model_given(self, *settings: str) -> str:
        """Return the model's name in journal keys, for requests with these sampling settings."""
        return sampling.journal_name(self.stamp["model"], self.folder, settings)

    def scan(self) -> pl.LazyFrame:
        """Scan the rows lazily. Raises TableError for columns of another kind, and for damage in data that is read."""
        _ = self.stamp
        frame = self._file.scan()
        _check_columns(self.kind, str(self.path), frame.collect_schema())
        return frame

    def at(self, places: Sequence[int], *columns: str) -> pl.DataFrame:
        """Return the rows with these numbers, in order, with the named columns (default: all). Reads few others."""
        self.scan()
        return self._file.at(places, columns or None)

    def where(self, column: str, value: Any, most: int | None = None) -> list[dict]:
        """Return the rows, dropped ones included, with a value in a column; at most `most`."""
        self.scan()
        return self._file.at(self._file.places(pl.col(column) == value)[:most]).to_dicts()

    def check(self, deep: bool = False) -> None:
        """Read the full table and check its weights. Raises TableError if a part is damaged.

        `deep` compares every byte with the stamp's digests.
        """
        self.scan()
        contents.check(self._file, self._weights, self.page, self.stamp, self.kind, deep)

    def read_page(self) -> str | None:
        """Return the Markdown page; None without one. Raises TableError if it is not the one written with the table."""
        return contents.read_page(self.page, self._file, self.stamp)

    def rows(self, *columns: str, kept: bool = True) -> list[dict]:
        """Return rows in order, as dictionaries of the named columns (default: all); `kept` skips dropped rows."""
        frame = self.scan()
        if kept and "dropped" in COLUMNS[self.kind]:
            frame = frame.filter(pl.col("dropped").is_null())
        return (frame.select(columns) if columns else frame).collect().to_dicts()

    def stream(self, *columns: str, kept: bool = False) -> Iterator[dict]:
        """Yield rows in order, as dictionaries of the named columns (default: all), with one batch in memory.

        `kept` skips dropped rows.
        """
        self.scan()
        choosing = kept and "dropped" in COLUMNS[self.kind]
        read = [*dict.fromkeys((*columns, "dropped"))] if choosing and columns else columns
        for batch in self.batches(*read):
            if choosing:
                batch = batch.filter(batch.column("dropped").is_null())
            yield from batch.select(columns or batch.schema.names).to_pylist()

    def batches(self, *columns: str) -> Iterator[pa.RecordBatch]:
        """Yield all rows as batches of Arrow."""
        return self._file.batches(columns or None, size=1024)

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield all rows, dropped ones included, a few thousand at a time."""
        self.scan()
        yield from map(frame_of, self._file.batches())

    @property
    def height(self) -> int:
        """The number of rows, dropped ones included; reads only the footer."""
        return self._file.height()

    def weights(self) -> Path:
        """Return the folder of a model. Raises TableError if its weights are missing, damaged or not its own."""
        self._weights.check(self.stamp, self.kind)
        return self.folder

    # ------------------------------------------------------------------------------------------------------- writing

    def write(
        self,
        rows: pl.DataFrame | Iterable[pl.DataFrame] | Iterable[Mapping[str, Any]],
        stamp: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        weights: Path | None = None,
        page: str | None = None,
    ) -> None:
        """Write the table by one rename, after its calls, weights and page are on the disk.

        Rows may be generated as they are written, one by one or as frames of at most ROW_GROUP. A callable stamp is
        called after the last row. Raises TableError if the rows do not fit the kind or an id occurs twice; the old
        table then stays.
        """
        with self._new_file() as temporary:
            facts = facts_of(weights) if weights else None
            stamp = self._write_rows(temporary, rows, stamp, facts, page)
            if weights is not None:
                Weights(weights, self.path, self.again).write_manifest(self.name, stamp["fingerprint"], facts or {})
                self._remove()
                replace_folder(weights, self.folder)
            if page is not None:
                durable.write(self.page, page)  # a new file: the old page may be a hard link into the archive
            else:
                self.page.unlink(missing_ok=True)
            if self.calls.exists():
                durable.sync_tree(self.calls)
            durable.replace(temporary, self.path)
            self._keep(stamp)
        self.__dict__.pop("stamp", None)

    def _remove(self) -> None:
        """Remove the old table before its weights, so that a crash never leaves a table without weights."""
        self.path.unlink(missing_ok=True)
        durable.sync_name(self.path)

    def _keep(self, stamp: Mapping[str, Any]) -> None:
        """Copy the table to the archive if it is complete."""
        if _is_complete(stamp):
            self.archive_of(stamp["fingerprint"]).keep(self.path, self.folder, self.page)

    def _write_rows(
        self, path: Path, rows: Any, stamp: Any, facts: Mapping[str, Fact] | None, page: str | None
    ) -> dict:
        """Write rows and stamp to a file in parts; return the stamp with the digests of rows, weights and page."""
        schema = {name: dtype for name, (dtype, _) in COLUMNS[self.kind].items()}
        arrow = pl.DataFrame(schema=schema).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
        with writer(path, arrow) as file:

            def write_parts() -> Iterator[pl.DataFrame]:
                for frame in self.check_rows(rows, schema):
                    file.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), row_group_size=ROW_GROUP)
                    yield frame

            content = content_of(rows_sha256(write_parts()), facts)
            pages = CheckedParquet(path, "pages", self.again).pages()
            stamp = {**(stamp() if callable(stamp) else stamp), "content": content, "pages": pages}
            stamp["page"] = page_sha256(page)
            if facts:
                stamp["model"] = model_digest(self.kind, facts)
            file.add_key_value_metadata({KEY: json.dumps(stamp, ensure_ascii=False), **UNSEALED})
        seal(path)
        return stamp

    def check_rows(self, rows: Any, schema: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """Yield the rows in parts, with the columns of the kind. Raises TableError for wrong columns, values or ids."""
        key, seen = KINDS[self.kind].key, Seen()
        for frame in _parts(rows, schema):
            _check_columns(self.kind, self.name, frame.schema)
            for value in frame[key] if key else ():
                if not seen.is_new(str(value)):
                    raise TableError(f"{self.name}: {key} `{value}` occurs more than once; expected each id once.")
            _check_enums(self.name, frame)
            yield frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())

    @contextmanager
    def _new_file(self) -> Iterator[Path]:
        """Yield a temporary file next to the table, and remove it at the end."""
        temporary = self.path.with_name(f".{self.path.name}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
        except OSError as error:
            error.filename = error.filename or str(temporary)  # pyarrow names no file
            raise
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    # --------------------------------------------------------------------------------------------------------- archive

    def archive_of(self, fingerprint: str) -> ArchivedTable:
        """Return the archived copy of the table with this fingerprint; it may not exist."""
        return ArchivedTable(self.results / "archive" / self.name / fingerprint, self.name)

    def restore(self, fingerprint: str) -> bool:
        """Restore the table with this fingerprint from the archive; return False without a valid copy."""
        kept = self.archive_of(fingerprint)
        if not kept.exists():
            return False
        try:
            kept.check(deep=True)
        except TableError as error:
            log(self.name, f"{error} Not restored: moved to {kept.set_invalid()}; the table is rebuilt.")
            return False
        with self._new_file() as temporary:
            if kept.weights.exists():
                self._remove()
            kept.bring_back(temporary, self.folder, self.page, self.scratch / "restored")
            os.utime(temporary)
            durable.replace(temporary, self.path)
        self.__dict__.pop("stamp", None)
        return True


def _is_complete(stamp: Mapping[str, Any]) -> bool:
    """Return whether no call failed that another run would retry."""
    failed = TRANSIENT & {reason for reason, count in stamp.get("counts", {}).items() if count}
    return not failed and not stamp.get("failures")


def _parts(rows: Any, schema: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
    """Yield rows as frames of ROW_GROUP rows; each step of a scaffold counts as a row, because it holds a text."""
    if isinstance(rows, pl.DataFrame):
        yield from rows.iter_slices(ROW_GROUP)
        return
    part: list[Any] = []
    size = 0
    for row in rows:
        if isinstance(row, pl.DataFrame):
            yield row
            continue
        part.append(row)
        size += 1 + len(row.get("steps") or ())
        if size >= ROW_GROUP:
            yield pl.DataFrame(part, schema=schema, orient="row")
            part, size = [], 0
    if part:
        yield pl.DataFrame(part, schema=schema, orient="row")


def _check_enums(where: str, frame: pl.DataFrame) -> None:
    for column, enum in ENUMS.items():
        values = set(frame[column].drop_nulls()) if column in frame.columns else set()
        if unknown := sorted(values - set(enum)):
            raise TableError(f"{where}: `{column}` is `{unknown[0]}`; expected one of {', '.join(enum)}.")


def _check_columns(kind: str, where: str, schema: Mapping[str, Any]) -> None:
    wanted = {name: dtype for name, (dtype, _) in COLUMNS[kind].items()}
    missing = [name for name in wanted if name not in schema]
    extra = [name for name in schema if name not in wanted]
    wrong = [
        f"{name} is {schema[name]}" for name in wanted if name in schema and schema[name] not in (wanted[name], pl.Null)
    ]
    if missing or extra or wrong:
        faults = "; ".join(
            part
            for part in (
                f"no column {', '.join(missing)}" if missing else "",
                f"unknown column {', '.join(extra)}" if extra else "",
                ", ".join(wrong),
            )
            if part
        )
        raise TableError(f"{where}: {faults}; expected the columns of `{kind}`: {', '.join(wanted)}.")

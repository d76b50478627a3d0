"""Verify stored results: tables, weights, archived tables and journals.

Reads the stamp (metadata) of each table and the checksums of its Parquet pages; of weights, what `Table.weights` reads
before loading (artifacts/weights.py); of archived tables, the stamp; of journals, every output. With `deep`, reads every
byte of tables, weights and archived tables, and compares digests with the stamps.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proofmill.artifacts.tables import Table
from proofmill.calls import records
from proofmill.runtime.progress import Progress, log
from proofmill.schema.errors import JournalError, SettingError, TableError
from proofmill.schema.kinds import KINDS
from proofmill.text.suggestions import among


@dataclass(frozen=True)
class ResultPart:
    """A unit of verification: a table with its weights, an archived table, or a journal."""

    name: str  # of the artifact
    what: str
    files: Sequence[Path]
    check: Callable[[], object]  # raises TableError if it is damaged

    @property
    def megabytes(self) -> int:
        """Size of the files, in MiB, rounded up."""
        return math.ceil(sum(path.stat().st_size for path in self.files) / 2**20)


def artifacts_in(results: Path) -> set[str]:
    """Return the artifacts of which the results folder has a table, an archived table or a journal."""
    return {part.name for part in _parts(results, deep=False)}


def find_damage(names: Sequence[str], results: Path, deep: bool = False) -> Iterator[TableError]:
    """Yield one error for each damaged part of these artifacts; of all artifacts if `names` is empty.

    Raises SettingError for a name that is not in the results folder.
    """
    parts = list(_parts(results, deep))
    known = {part.name for part in parts}
    if not known:
        raise SettingError(f"{results}: has no tables; expected a results folder. Set --results.")
    if unknown := [name for name in names if name not in known]:
        raise SettingError(f"{unknown[0]}: is not in {results}; expected one of {among(unknown[0], known)}")
    chosen = [part for part in parts if not names or part.name in names]
    progress = Progress("check", sum(part.megabytes for part in chosen), "MB")
    for part in chosen:
        if Table(part.name, results).is_being_made:
            log(part.name, f"is being built: its {part.what} is not checked")
            continue
        try:
            part.check()
            if deep and part.what == "table" and "page" not in Table(part.name, results).stamp:
                log(part.name, "written before page checksums existed; readable but not verifiable")
        except TableError as error:
            yield error
        progress.add(part.megabytes)
    progress.close()


def _parts(results: Path, deep: bool) -> Iterator[ResultPart]:
    """Yield all parts of a results folder."""
    for name in _names(results, "*.parquet"):
        table = Table(name.removesuffix(".parquet"), results)
        weights = _files(table.folder) if deep and KINDS[table.kind].weights else []
        yield ResultPart(table.name, "table", [table.path, *weights], partial(table.check, deep))
    for name in _names(results / "archive", "*"):
        for folder in sorted((results / "archive" / name).iterdir()):
            kept = Table(name, results).archive_of(folder.name)
            if kept.exists() and not kept.is_aside:
                yield ResultPart(name, "archived table", _files(folder) if deep else [], partial(kept.check, deep))
    for name in _names(results / "calls", "*"):
        folder = results / "calls" / name
        for journal in (folder, *records.shards(folder)):
            yield ResultPart(name, "journal", _files(journal), partial(_check_journal, journal))


def _check_journal(folder: Path) -> None:
    """Raise JournalError for a damaged segment or line."""
    for path in records.segments(folder):
        records.read(path)
    tail = folder / "calls.jsonl"
    if tail.is_file():
        with open(tail, "rb") as file:
            broken = sum(line.endswith(b"\n") and records.row_of(line) is None for line in file)
        if broken:
            raise JournalError(
                f"{tail}: {broken:,} lines are damaged; expected model outputs. Restore the file from a backup, or rerun the "
                "stage: it moves damaged lines to another file and repeats their calls."
            )


def _names(folder: Path, pattern: str) -> Iterator[str]:
    """Yield the paths that match below the folders of kinds, as `<kind>/<name>`, in the order of kinds."""
    for kind in KINDS:
        yield from (f"{kind}/{path.name}" for path in sorted((folder / kind).glob(pattern)))


def _files(folder: Path) -> Sequence[Path]:
    """Return all files below a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]

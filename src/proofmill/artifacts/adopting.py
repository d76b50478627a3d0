"""Adopting: finished tables of another results folder are taken over where they are what would be made here.

A table there is taken if its fingerprint is the one that the configuration here expects, with the parents that are
here; so parents come first. Its table or a kept copy of it there is copied to results/unfinished/<kind>/<name>/, every
byte of the copy is compared with its stamp, and then it is moved into place as a table that was made here. Until then
nothing here has changed, and whatever a kill leaves is no table.

How we differ from copying the files:
1. Nothing is believed that is not checked, and what does not fit is refused with the field, prompt, parent or file that
   differs.
2. Files are copied and never linked: a link would let either side change the other's weights. File systems that can
   (Btrfs, XFS) share the blocks of a copy until one of them is changed (copy_file_range(2)).
3. The folder there is only read; its owner may have given no right to do more.
"""

import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from graphlib import TopologicalSorter
from pathlib import Path

from proofmill.artifacts.checked_parquet import CheckedParquet
from proofmill.artifacts.states import Expected, States
from proofmill.artifacts.tables import Table
from proofmill.artifacts.weights import MARK, OF_A_MODEL, Weights
from proofmill.recipes.book import Book
from proofmill.runtime import locks
from proofmill.runtime.progress import Progress
from proofmill.schema import references
from proofmill.schema.errors import TableError
from proofmill.schema.kinds import KINDS
from proofmill.schema.names import TABLES, model_suffix

CHUNK = 16 * 2**20  # bytes
MIB = 2**20


class What(StrEnum):
    """What came of an artifact."""

    TAKEN = "taken"
    HERE = "here already"
    ABSENT = "not finished there"
    WAITS = "waits for others"
    REFUSED = "refused"


@dataclass(frozen=True)
class Outcome:
    """What came of an artifact, and why."""

    name: str
    what: What
    why: str = ""
    first: tuple[str, ...] = ()  # what has to be here before it, parents first


@dataclass(frozen=True)
class _Elsewhere(Table):
    """A table in the results folder of others, or its copy that is not checked yet."""

    there: Path = Path()

    @property
    def again(self) -> str:
        return f"Nothing was taken. Look at it there: proofmill check {self.name} --deep --results {self.there}"


@dataclass(frozen=True)
class _Files:
    """The files of a finished table: where it stands, those of a kept copy, or those of a publication."""

    table: Path
    weights: Path
    page: Path
    model: Path | None = None  # the repository of its model, in which MARK says nothing of the files

    def targets(self, copy: Table) -> dict[Path, Path]:
        """The files, and where the copy of each belongs."""
        page = {self.page: copy.page} if self.page.exists() else {}
        inside = [path for path in self.weights.rglob("*") if path.is_file()]
        weights = {path: copy.folder / path.relative_to(self.weights) for path in inside}
        files = [] if self.model is None else [path for path in self.model.iterdir() if path.suffix in OF_A_MODEL]
        model = {path: copy.folder / path.name for path in files if path.name != MARK}
        return {self.table: copy.path, **page, **weights, **model}


def adopt(book: Book, names: Collection[str], results: Path, there: Path) -> Iterator[Outcome]:
    """Take over the tables of these artifacts that are finished in the results folder `there`, parents first.

    What they are made from, and stands here as a kept copy only, is brought back.
    """
    states = States(book, results)
    behind = {other for name in names for other in _behind(book, name)}
    for name in in_order(book, {*names, *behind}):
        try:
            if name not in names and states[name].name != "restore":
                continue
            outcome = _adopt(states, name, there)
        except TableError as error:
            outcome = Outcome(name, What.REFUSED, str(error))
        except OSError as error:
            where = error.filename or results
            outcome = Outcome(
                name,
                What.REFUSED,
                f"{where}: {error.strerror}; expected a table that can be read there, and room and permission for its copy in "
                f"{results}. Nothing was taken.",
            )
        if outcome.what == What.TAKEN:
            states.forget(name)
        yield outcome


def in_order(book: Book, names: Collection[str]) -> list[str]:
    """These artifacts, each after what it is made from."""
    edges = {n: [*references.parents(e), *references.served(e, book.declared)] for n, e in book.entries.items()}
    return [name for name in TopologicalSorter(edges).static_order() if name in names]


def _behind(book: Book, name: str) -> Iterator[str]:
    """What an artifact is made from, at any distance."""
    return references.ancestors({**book.entries, **book.declared}, name)


def _adopt(states: States, name: str, there: Path) -> Outcome:
    table, other = Table(name, states.results), _Elsewhere(name, there, there)
    if states[name].name == "done":
        return _here(table, other)
    if coming := states.coming(name):
        if not other.path.exists():
            return Outcome(name, What.ABSENT)
        due = {other for other in _behind(states.book, name) if states[other].name == "make"}
        return Outcome(name, What.WAITS, ", ".join(coming), tuple(in_order(states.book, due)))
    expected = states.expected(name)
    if table.kept(expected.fingerprint).is_asked_again:
        raise TableError(
            f"{name}: answers were set aside here, so that they are asked again; expected none. Nothing was taken. Make it: "
            f"snakemake {name}"
        )
    with locks.alone(table.lock) as alone:
        if not alone:
            raise TableError(f"{name}: another process is making it here; expected none. Wait for it or cancel it.")
        if _stands(table, expected.fingerprint):  # made meanwhile
            return _here(table, other)
        if table.restore(expected.fingerprint):
            return Outcome(name, What.TAKEN, "from its kept copy here")
        if locks.held(other.lock):
            raise TableError(
                f"{other.path}: is being made there ({other.lock} is held); expected a finished table. Wait for it."
            )
        files = _found(other, expected.fingerprint)
        if files is None:
            if not other.path.exists():
                return Outcome(name, What.ABSENT)
            raise _differs(states, other, expected)
        staging = table.scratch / "adopting"
        try:
            made = _copied(files, other, staging)
            if made.stamp["fingerprint"] != expected.fingerprint:
                raise TableError(f"{files.table}: was replaced while it was read; expected it to stay. Run it again.")
            _take_log(other, table)
            table.take(Table(name, staging))
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            with suppress(OSError):  # not empty: there are checkpoints, too
                table.scratch.rmdir()
    with suppress(OSError):  # the table is in place, whatever becomes of a line about it
        _log(table, f"adopted from {files.table}")
    return Outcome(name, What.TAKEN, f"from {files.table}")


def _here(table: Table, other: Table) -> Outcome:
    """What is finished here stays. Raises TableError where the same entry was finished there with other rows or weights."""
    try:
        differs = _stands(other, table.stamp["fingerprint"]) and other.content != table.content
    except TableError:  # what is damaged there is not needed
        differs = False
    if differs:
        raise TableError(
            f"{table.name}: is finished here too, and {other.path} has other rows or weights made from the same; expected "
            f"none here, or the same. What is here stays. To take the other, move {table.path} and "
            f"{table.kept(table.stamp['fingerprint']).folder} away first; what was made from it here is then made again."
        )
    return Outcome(table.name, What.HERE)


def _stands(other: Table, fingerprint: str) -> bool:
    """Whether there is a table with this fingerprint, in its place."""
    return other.path.exists() and other.stamp["fingerprint"] == fingerprint


def _found(other: Table, fingerprint: str) -> _Files | None:
    """The files there of the table with this fingerprint: in its place, or kept as what an edit has replaced."""
    if _stands(other, fingerprint):
        return _Files(other.path, other.folder, other.page, _published(other))
    kept = other.kept(fingerprint)
    if kept.stamp is None:
        return None
    return _Files(kept.table, kept.weights, kept.page)


def _published(other: Table) -> Path | None:
    """The repository of a table's model, where the results are those of a publication and it lies beside them."""
    tables = other.results.absolute().parent
    if not tables.name.endswith(TABLES) or not KINDS[other.kind].learns or (other.folder / MARK).exists():
        return None
    model = tables.with_name(tables.name.removesuffix(TABLES) + model_suffix(other.name))
    return model if model.is_dir() else None


def _differs(states: States, other: Table, expected: Expected) -> TableError:
    """What differs between a table there and the one that would be made here."""
    if expected.missing:
        return TableError(
            f"{other.path}: cannot be compared, because {expected.missing[0]} is not on this machine; expected the data that it "
            f"was made from. Fetch them: proofmill fetch {other.name}"
        )
    why = states.changes(other.name, other.stamp, expected)
    return TableError(
        f"{other.path}: is another table (there -> here): {'; '.join(why) or 'made by another version of the project'}; "
        "expected one made from the same entry and parents as here. Nothing was taken."
    )


# --------------------------------------------------------------------------------------------------------------- copying


def _copied(files: _Files, other: _Elsewhere, staging: Path) -> Table:
    """A checked copy of a table with its weights and page. Raises TableError when a part of it is damaged or missing."""
    shutil.rmtree(staging, ignore_errors=True)
    copy = _Elsewhere(other.name, staging, other.there)
    if other.kind == "scores" and not files.page.exists():
        raise TableError(
            f"{files.page}: no such page; expected the one of {files.table}. Nothing was taken; to make the table costs nothing: "
            f"snakemake {other.name}"
        )
    targets = files.targets(copy)
    progress = Progress(other.name, sum(path.stat().st_size // MIB for path in targets), "MiB")
    for source, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(source, target, progress)
    progress.close()
    try:
        if files.model is not None:
            _mark(copy)
        copy.check(deep=True)
    except TableError as error:  # the copy is not for anybody to look at
        text = (
            str(error)
            .replace(str(copy.path), str(files.table))
            .replace(str(copy.folder), str(files.model or files.weights))
        )
        raise TableError(text) from error
    return copy


def _mark(copy: Table) -> None:
    """Name the table of a model that was published: its files are compared with the stamp, those beside it are read."""
    Weights(copy.folder, copy.path, copy.again).write_mark(copy.name, copy.stamp["fingerprint"], {})
    for beside in (copy.folder / file for file in KINDS[copy.kind].beside):
        if beside.exists():
            for _ in CheckedParquet(beside, "what stands beside a model", copy.again).batches():
                pass


def _copy(source: Path, target: Path, progress: Progress) -> None:
    """Copy the bytes of a file, by the file system itself where it can; times and rights are those of a new file."""
    with open(source, "rb", buffering=0) as old, open(target, "wb", buffering=0) as new:
        with suppress(OSError):  # another file system, or one that cannot: what is missing is read and written
            while count := os.copy_file_range(old.fileno(), new.fileno(), CHUNK):
                progress.add(count // MIB)
        while part := old.read(CHUNK):
            rest = memoryview(part)
            while rest:
                rest = rest[new.write(rest) :]
            progress.add(len(part) // MIB)


def _take_log(other: Table, table: Table) -> None:
    """Write the log there below that here, once."""
    theirs = other.log.read_text(encoding="utf-8", errors="replace") if other.log.exists() else ""
    ours = table.log.read_text(encoding="utf-8", errors="replace") if table.log.exists() else ""
    if theirs not in ours:
        table.log.parent.mkdir(parents=True, exist_ok=True)
        with open(table.log, "a", encoding="utf-8") as log:
            log.write(theirs)


def _log(table: Table, text: str) -> None:
    """Add a line to a log as jobs do (workflow/common.smk)."""
    with open(table.log, "a", encoding="utf-8") as log:
        log.write(
            f"\n{time.strftime('%F %T %Z')} on {os.uname().nodename}\n{time.strftime('%T')}  {table.name}  {text}\n"
        )

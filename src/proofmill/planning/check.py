"""Check: whether the servers that a target asks answer, and whether what stands in results is what was written there.

Only servers that stages due ask are tried (connections.py).

Of each table the stamp and the checksums of its pages are read, of weights what `Table.weights` reads before they are
loaded (artifacts/weights.py), of kept copies the stamp, of journals all answers. `deep` reads every byte of tables,
weights and kept copies, and compares it with the digests in the stamps.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proofmill.artifacts.states import States
from proofmill.artifacts.tables import Table
from proofmill.calls import records
from proofmill.planning.connections import connections, due, faults_of
from proofmill.recipes.book import Book
from proofmill.runtime.progress import Progress, say
from proofmill.schema.errors import JournalError, SettingError, TableError
from proofmill.schema.kinds import KINDS
from proofmill.text.suggestions import among


@dataclass(frozen=True)
class Part:
    """What is checked at once: a table with its weights, a kept copy, or a journal."""

    name: str  # of the artifact
    what: str
    files: Sequence[Path]
    check: Callable[[], object]  # raises TableError when it is damaged

    @property
    def megabytes(self) -> int:
        return math.ceil(sum(path.stat().st_size for path in self.files) / 2**20)


def checked(targets: Sequence[str], book: Book | None, results: Path, deep: bool = False) -> Iterator[object]:
    """What is wrong with the targets: connections of stages that are due by the book, and what stands in the results.

    Without a target that is all of the results and no connection; without a book, no connection either. Raises
    SettingError for a target of which neither knows, RecipeError for one with a mistake.
    """
    entries, recipes = (book.entries, book.recipes) if book else ({}, {})
    given = [target.removeprefix(f"{results}/").removesuffix(".parquet") for target in targets]
    declaring = {*recipes, *(book.faults if book else ())}
    of_target = {each: book.targeted(each) if book and each in declaring else [each] for each in given}
    names = list(dict.fromkeys(name for each in given for name in of_target[each]))
    there = {part.name for part in _parts(results, deep=False)} if targets else set()
    if unknown := [name for name in names if name not in entries and name not in there]:
        known = among(unknown[0], {*recipes, *entries, *there})
        raise SettingError(
            f"{unknown[0]}: no recipe declares it, and {results} has nothing of it; expected one of {known}"
        )
    if book and (declared := [name for name in names if name in entries]):
        yield from faults_of(connections(book, due(book, States(book, results), declared)), results, book.budget)
    if not names or there & set(names):
        yield from damaged([name for name in names if name in there], results, deep)


def damaged(names: Sequence[str], results: Path, deep: bool = False) -> Iterator[TableError]:
    """What is damaged of these artifacts (none named: of all), one error for each part that is.

    Raises SettingError for a name of which the results folder has nothing.
    """
    parts = list(_parts(results, deep))
    known = {part.name for part in parts}
    if not known:
        raise SettingError(f"{results}: nothing was made here; expected a results folder. Name one by --results.")
    if unknown := [name for name in names if name not in known]:
        raise SettingError(f"{unknown[0]}: {results} has nothing of it; expected one of {among(unknown[0], known)}")
    chosen = [part for part in parts if not names or part.name in names]
    progress = Progress("check", sum(part.megabytes for part in chosen), "MB")
    for part in chosen:
        if Table(part.name, results).is_being_made:
            say(part.name, f"is being made: its {part.what} is not checked")
            continue
        try:
            part.check()
            if deep and part.what == "table" and "page" not in Table(part.name, results).stamp:
                say(
                    part.name,
                    "was written before stamps and pages had digests: it can be read, and cannot be verified",
                )
        except TableError as error:
            yield error
        progress.add(part.megabytes)
    progress.close()


def _parts(results: Path, deep: bool) -> Iterator[Part]:
    for name in _names(results, "*.parquet"):
        table = Table(name.removesuffix(".parquet"), results)
        weights = _files(table.folder) if deep and KINDS[table.kind].weights else []
        yield Part(table.name, "table", [table.path, *weights], partial(table.check, deep))
    for name in _names(results / "kept", "*"):
        for folder in sorted((results / "kept" / name).iterdir()):
            kept = Table(name, results).kept(folder.name)
            if kept.exists() and not kept.is_aside:
                yield Part(name, "kept copy", _files(folder) if deep else [], partial(kept.check, deep))
    for name in _names(results / "calls", "*"):
        folder = results / "calls" / name
        for journal in (folder, *records.shards(folder)):
            yield Part(name, "journal", _files(journal), partial(_check_journal, journal))


def _check_journal(folder: Path) -> None:
    """Raise JournalError for a segment or a line that is damaged."""
    for path in records.segments(folder):
        records.read(path)
    tail = folder / "answers.jsonl"
    if tail.is_file():
        with open(tail, "rb") as file:
            broken = sum(line.endswith(b"\n") and records.row_of(line) is None for line in file)
        if broken:
            raise JournalError(
                f"{tail}: {broken:,} lines are damaged; expected answers that were paid for. Bring the file back from a copy, or "
                "run the stage: it puts them aside and asks their questions again."
            )


def _names(folder: Path, pattern: str) -> Iterator[str]:
    """What a folder has below its folders of kinds, as `<kind>/<name>`, in the order of kinds."""
    for kind in KINDS:
        yield from (f"{kind}/{path.name}" for path in sorted((folder / kind).glob(pattern)))


def _files(folder: Path) -> Sequence[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]

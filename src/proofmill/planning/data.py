"""The public data that a target needs: which are here, which are missing, and how they come.

A target needs the files that its artifacts name in `path`, and the models that a `base` names on the hub. `proofmill
fetch` brings what is missing; with `--list` it only says so, and asks nobody.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from proofmill.recipes.book import Book
from proofmill.recipes.paths import source_path
from proofmill.runtime import fetching
from proofmill.runtime.progress import say
from proofmill.runtime.public_data import FETCHED, MODEL, copy_of, is_public, place, register
from proofmill.schema import references
from proofmill.schema.errors import HubError
from proofmill.schema.model_entries import Base
from proofmill.schema.names import kind_of
from proofmill.sources import models


@dataclass(frozen=True)
class Needed:
    """Public data by their address, what is known of them, and where they are: None where they are missing."""

    source: str
    name: str
    bytes: int | None
    licence: str
    rows: int | None
    where: str | None
    fetch: Callable[[], None]

    @property
    def missing(self) -> bool:
        return self.where is None


def artifacts(book: Book, targets: Iterable[str]) -> list[str]:
    """The artifacts of targets (recipes, names or paths of tables) with all that they are made from."""
    names: dict[str, None] = {}
    for target in targets:
        for artifact in book.targeted(target):
            names |= dict.fromkeys([artifact, *references.ancestors(book.entries, artifact)])
    return list(names)


def needed(book: Book, names: Iterable[str]) -> list[Needed]:
    """The public data that artifacts read, each once, in the order of their addresses."""
    found: dict[str, Needed] = {}
    for name in names:
        entry = book.entries[name]
        path = source_path(kind_of(name), entry, book.entries.get)
        if path and is_public(path):
            found[path] = _data(path)
        elif isinstance(entry, Base) and entry.id:
            source = f"{MODEL}{entry.id}@{entry.commit}"
            found[source] = _model(source, entry)
    return [found[source] for source in sorted(found)]


def _data(source: str) -> Needed:
    copy = copy_of(source)
    where = None if copy is None else str(copy)
    return _needed(source, place(source), where, lambda: fetching.fetch(source))


def _model(source: str, entry: Base) -> Needed:
    model, commit, weights = str(entry.id), str(entry.commit), entry.source == "hub"
    here = models.is_here(model, commit, weights)

    def fetch() -> None:
        fetching.require_network(source)
        models.snapshot(model, commit, weights)

    return _needed(source, model, "the hub's cache" if here else None, fetch)


def _needed(source: str, otherwise: str, where: str | None, fetch: Callable[[], None]) -> Needed:
    known = register().get(source)
    if known is None:
        return Needed(source, otherwise, None, "not known", None, where, fetch)
    return Needed(source, known.name, known.bytes, known.licence or "not known", known.rows, where, fetch)


# ------------------------------------------------------------------------------------------------------------- as text


def lines(data: list[Needed]) -> Iterator[str]:
    """What there is and what is missing, with sizes, rows and licences, and their sums."""
    if not data:
        yield "no public data are needed"
        return
    width = max(len(item.name) for item in data)
    for item in data:
        rows = f"{item.rows:,} rows" if item.rows is not None else "rows not known"
        yield (
            f"{item.name:<{width}}  {size(item.bytes):>8}  {rows:>14}  {item.licence:<26}  "
            f"{'missing' if item.missing else item.where}"
        )
        yield f"{'':<{width}}  {item.source}"
    missing = [item for item in data if item.missing]
    which = "all" if len(missing) == len(data) else f"{len(missing)}, {summed(missing)}" if missing else "nothing"
    yield f"{len(data)} in all, {summed(data)}; missing: {which}"


def summed(data: list[Needed]) -> str:
    """How large they are together, such as `at least 1.2 GB`."""
    known = [item.bytes for item in data if item.bytes is not None]
    if not known:
        return "size not known"
    return f"{'at least ' * (len(known) < len(data))}{size(sum(known))}"


def size(count: int | None) -> str:
    """Bytes as `4.2 MB`."""
    if count is None:
        return "size ?"
    for unit, worth in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= worth:
            return f"{count / worth:,.1f} {unit}"
    return f"{count / 1e3:,.1f} kB"


def missing_message(data: list[Needed], target: str) -> str | None:
    """One sentence about all that is missing, and the command that brings it; None where all is here."""
    missing = [item for item in data if item.missing]
    if not missing:
        return None
    named = ", ".join(f"{item.name} ({size(item.bytes)})" for item in missing)
    return (
        f"{target}: public data are not on this machine: {named}; expected them in {FETCHED}, or a copy of your own below "
        f"PROOFMILL_DATA. Fetch them: proofmill fetch {target}"
    )


# ------------------------------------------------------------------------------------------------------------- bringing


def fetch(data: list[Needed]) -> None:
    """Bring what is missing, one after the other. What cannot be had is said of all, after the rest has come.

    Raises HubError with a line for each that failed.
    """
    failed = []
    if not data:
        say("fetch", "no public data are needed")
    for item in data:
        if not item.missing:
            say(item.name, f"is here: {item.where}")
            continue
        say(item.name, f"fetching {size(item.bytes)} from {item.source}, licence {item.licence}")
        try:
            item.fetch()
            say(item.name, "is fetched")
        except HubError as error:
            say(item.name, "cannot be had")
            failed.append(str(error))
    if failed:
        raise HubError("\n".join(failed))

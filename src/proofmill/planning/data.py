"""Public data that a target needs: list them, and download those that are missing.

A target needs the files that its artifacts name in `path`, those of prompts that others published, and the hub models
that its `base` entries name. `proofmill fetch` downloads the missing ones; `proofmill fetch --list` only lists them,
without network access.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from proofmill.config.config import Config
from proofmill.config.identity import prompt_files
from proofmill.config.source_paths import source_path
from proofmill.public_data import download
from proofmill.public_data.registry import FETCHED, MODEL, copy_of, is_moving, is_public, place, register
from proofmill.runtime.progress import log
from proofmill.schema import references
from proofmill.schema.entries.model_entries import Base
from proofmill.schema.errors import HubError
from proofmill.schema.names import kind_of
from proofmill.sources import models
from proofmill.text.byte_sizes import format_bytes


@dataclass(frozen=True)
class Needed:
    """A public data set or model: its address, metadata and location (None if it is missing)."""

    source: str
    name: str
    bytes: int | None
    license: str
    rows: int | None
    where: str | None
    fetch: Callable[[], None]

    @property
    def missing(self) -> bool:
        """Return whether it has to be downloaded."""
        return self.where is None


def artifacts(config: Config, targets: Iterable[str]) -> list[str]:
    """Return the artifacts of targets (recipes, names or paths of tables) and all their ancestors."""
    names: dict[str, None] = {}
    for target in targets:
        for artifact in config.list_target(target):
            names |= dict.fromkeys([artifact, *references.ancestors(config.entries, artifact)])
    return list(names)


def list_needed(config: Config, names: Iterable[str]) -> list[Needed]:
    """Return the public data that artifacts read, without duplicates, sorted by address."""
    by_source: dict[str, Needed] = {}
    for name in names:
        entry = config.entries[name]
        path = source_path(kind_of(name), entry, config.entries.get)
        if path and is_public(path):
            by_source[path] = _data(path)
        elif isinstance(entry, Base) and entry.id:
            source = f"{MODEL}{entry.id}@{entry.commit}"
            by_source[source] = _model(source, entry)
        by_source |= {address: _data(address) for address in prompt_files(entry, config.declared)}
    return [by_source[source] for source in sorted(by_source)]


def list_moving(config: Config, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the artifacts that read a branch or a tag instead of a commit, by its address."""
    moving: dict[str, list[str]] = {}
    for name in names:
        entry, kind = config.entries[name], kind_of(name)
        path = source_path(kind, entry, config.entries.get) or ""
        if not path and getattr(entry, "id", None) and getattr(entry, "source", None) != "inspect-task":
            path = f"{MODEL if kind == 'base' else 'hub:'}{entry.id}@{entry.commit}"
        if is_moving(path):
            moving.setdefault(path, []).append(name)
    return moving


def _data(source: str) -> Needed:
    copy = copy_of(source)
    where = None if copy is None else str(copy)
    return _find_needed(source, place(source), where, lambda: download.fetch(source))


def _model(source: str, entry: Base) -> Needed:
    model, commit, weights = str(entry.id), str(entry.commit), entry.source == "hub"
    here = models.is_here(model, commit, weights)

    def fetch() -> None:
        download.require_network(source)
        models.snapshot(model, commit, weights)

    return _find_needed(source, model, "the hub's cache" if here else None, fetch)


def _find_needed(source: str, otherwise: str, where: str | None, fetch: Callable[[], None]) -> Needed:
    known = register().get(source)
    if known is None:
        return Needed(source, otherwise, None, "not known", None, where, fetch)
    return Needed(source, known.name, known.bytes, known.license or "not known", known.rows, where, fetch)


# ------------------------------------------------------------------------------------------------------------- as text


def lines(data: list[Needed]) -> Iterator[str]:
    """Yield the data with location, size, rows and license, and the totals."""
    if not data:
        yield "no public data needed"
        return
    width = max(len(item.name) for item in data)
    for item in data:
        rows = f"{item.rows:,} rows" if item.rows is not None else "rows not known"
        yield (
            f"{item.name:<{width}}  {format_bytes(item.bytes):>8}  {rows:>14}  {item.license:<26}  "
            f"{'missing' if item.missing else item.where}"
        )
        yield f"{'':<{width}}  {item.source}"
    missing = [item for item in data if item.missing]
    which = "all" if len(missing) == len(data) else f"{len(missing)}, {format_total(missing)}" if missing else "nothing"
    yield f"{len(data)} in all, {format_total(data)}; missing: {which}"


def format_total(data: list[Needed]) -> str:
    """Return their total size, e.g. `at least 1.2 GB`."""
    known = [item.bytes for item in data if item.bytes is not None]
    if not known:
        return "size not known"
    return f"{'at least ' * (len(known) < len(data))}{format_bytes(sum(known))}"


def missing_message(data: list[Needed], target: str) -> str | None:
    """Return a message about all missing data, with the command that downloads them; None if none is missing."""
    missing = [item for item in data if item.missing]
    if not missing:
        return None
    named = ", ".join(f"{item.name} ({format_bytes(item.bytes)})" for item in missing)
    return (
        f"{target}: public data are not on this machine: {named}; expected them in {FETCHED}, or your own copy in "
        f"PROOFMILL_DATA. Run: proofmill fetch {target}"
    )


# ------------------------------------------------------------------------------------------------------------- download


def fetch(data: list[Needed]) -> None:
    """Download missing data sequentially. Raises HubError at the end, with a line for each failed download."""
    failed = []
    if not data:
        log("fetch", "no public data needed")
    for item in data:
        if not item.missing:
            log(item.name, f"found: {item.where}")
            continue
        log(item.name, f"downloading {format_bytes(item.bytes)} from {item.source}, license {item.license}")
        try:
            item.fetch()
            log(item.name, "downloaded")
        except HubError as error:
            log(item.name, "download failed")
            failed.append(str(error))
    if failed:
        raise HubError("\n".join(failed))

"""States of artifacts: whether each is as its entry says, by its stamp alone, and why not.

    done       its table was made from exactly what the configuration, the sources and its parents are now
    restore    it was made from that before, and kept
    make       it has to be made; what is made from it, too

`snakemake` and `proofmill plan` both ask here, so they always agree; nothing depends on when a file was written, or on
what Snakemake remembers of its runs.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofmill.artifacts import fingerprints
from proofmill.artifacts.tables import Table
from proofmill.recipes.book import Book
from proofmill.recipes.identity import identity_of
from proofmill.schema import references


@dataclass(frozen=True)
class State:
    """One artifact's: `done`, `restore` or `make`, why, and a digest of its content unless that has to be made."""

    name: str
    why: tuple[str, ...] = ()
    content: str | None = None


class States:
    """The states of all artifacts of a book, each found out when it is first asked for. `forced` ones are made anyway."""

    def __init__(self, book: Book, results: Path = Path("results"), forced: Collection[str] = ()):
        self.book, self.results, self.forced = book, results, forced
        self._found: dict[str, State] = {}

    def __getitem__(self, name: str) -> State:
        """Raises TableError for a table that cannot be read or is none of ours, and for a missing source."""
        if name not in self._found:
            self._found[name] = self._state(name)
        return self._found[name]

    def _state(self, name: str) -> State:
        entry, table = self.book.entries[name], Table(name, self.results)
        if name in self.forced:
            return State("make", ("asked for",))
        read = references.reads(table.kind, entry, self.book.entries.get, self.book.declared)
        if remade := [parent for parent in read if self[parent].name == "make"]:
            return State("make", tuple(f"{parent} will be made" for parent in remade))
        parents = {parent: self[parent].content for parent in read}
        sources = fingerprints.sources_of(table.kind, entry, self.book.entries.get)
        fingerprint = fingerprints.fingerprint_of(entry, self.book.declared, parents, sources)
        old = table.stamp if table.path.exists() else None
        if old and old["fingerprint"] == fingerprint:
            return State("done", (), old["content"])
        if kept := table.kept(fingerprint).stamp:
            return State("restore", (), kept["content"])
        why = list(self._changes(entry, old, parents, sources)) if old else ["never made"]
        return State("make", tuple(why) or ("made by another version of the project",))

    def _changes(self, entry: Any, old: dict, parents: Mapping[str, str], sources: Mapping[str, str]) -> Iterator[str]:
        """The fields, prompts, user's parts, parents and files that differ from those that the table was made from."""
        new = json.loads(identity_of(entry, self.book.declared))
        for key, value in new["entry"].items():
            if old["entry"].get(key) != value:
                yield f"`{key.replace('_', '-')}` {_shown(old['entry'].get(key))} -> {_shown(value)}"
        yield from (f"`{key}` is gone" for key in old["entry"] if key not in new["entry"])
        if old["revision"] != new["revision"]:
            yield f"revision {old['revision']} -> {new['revision']}"
        yield from (f"prompt `{name}` was edited" for name in _differing(new["prompts"], old["prompts"]))
        yield from (
            f"your part `{name}` was edited" for name in _differing(new.get("plugins", {}), old.get("plugins", {}))
        )
        for api in new["declared"].keys() & old["declared"].keys():
            before = old["declared"][api]
            for key, value in new["declared"][api].items():
                if before.get(key) != value:
                    yield f"{api}: `{key.replace('_', '-')}` {_shown(before.get(key))} -> {_shown(value)}"
        yield from (f"{name} has other rows" for name in _differing(parents, old["parents"]))
        yield from (f"{path} was edited" for path in _differing(sources, old["sources"]))


def _differing(new: Mapping[str, str], old: Mapping[str, str]) -> Iterator[str]:
    return (name for name, digest in new.items() if old.get(name, digest) != digest)


def _shown(value: Any, most: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}..."

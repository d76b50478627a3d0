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
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from proofmill.artifacts import fingerprints
from proofmill.artifacts.kept import Kept
from proofmill.artifacts.tables import Table
from proofmill.recipes.book import Book
from proofmill.recipes.identity import identity_of
from proofmill.recipes.paths import known_digests, source_path
from proofmill.runtime.public_data import copy_of, is_public
from proofmill.schema import references
from proofmill.schema.errors import MissingData
from proofmill.schema.names import kind_of


@dataclass(frozen=True)
class State:
    """One artifact's: `done`, `restore` or `make`, why, and a digest of its content unless that has to be made.

    `missing` are the addresses of public data that it reads and that are not on this machine; `weights` is the folder
    of its weights, if it has any.
    """

    name: str
    why: tuple[str, ...] = ()
    content: str | None = None
    missing: tuple[str, ...] = ()
    weights: Path = Path()


@dataclass(frozen=True)
class Expected:
    """What the table of an artifact is made from where it is as its entry says: parents and sources as they are here."""

    fingerprint: str
    parents: Mapping[str, str]  # content by name
    sources: Mapping[str, str]  # digest by name
    missing: tuple[str, ...] = ()  # public data that are not here; `sources` are then what is known of them


class States:
    """The states of all artifacts of a book, each found out when it is first asked for. `forced` ones are made anyway."""

    def __init__(self, book: Book, results: Path = Path("results"), forced: Collection[str] = ()):
        self.book, self.results, self.forced = book, results, forced
        self._found: dict[str, State] = {}

    def __getitem__(self, name: str) -> State:
        """Raises TableError for a table that cannot be read or is none of ours, and for a missing source of one's own."""
        if name not in self._found:
            self._found[name] = self._state(name)
        return self._found[name]

    def _state(self, name: str) -> State:
        entry, table = self.book.entries[name], Table(name, self.results)
        if name in self.forced:
            return State("make", ("asked for",))
        if remade := self.coming(name):
            return State("make", (_named(remade),), missing=tuple(self._missing(table.kind, entry)))
        expected = self.expected(name)
        old = table.stamp if table.path.exists() else None
        if old and old["fingerprint"] == expected.fingerprint:
            return State("done", (), old["content"], weights=table.folder)
        if expected.missing:
            return State("make", ("its data are not here",), missing=expected.missing)
        copy = table.kept(expected.fingerprint)
        if kept := copy.stamp:
            return State("restore", (), kept["content"], weights=copy.weights)
        why = self.changes(name, old, expected) if old else [_no_table(copy)]
        return State("make", tuple(why) or ("made by another version of the project",))

    def coming(self, name: str) -> list[str]:
        """The tables that an artifact reads and that have to be made."""
        return [parent for parent in self._reads(name) if self[parent].name == "make"]

    def expected(self, name: str) -> Expected:
        """What a table is made from that is as the entry says, where none of its parents has to be made."""
        entry = self.book.entries[name]
        read = self._reads(name)
        made = {parent: self[parent] for parent in read}
        parents = {
            parent: fingerprints.as_read(kind_of(name), state.content, state.weights)
            for parent, state in made.items()
            if state.content is not None
        }
        missing: tuple[str, ...] = ()
        try:
            sources = fingerprints.sources_of(kind_of(name), entry, self.book.entries.get)
        except MissingData as error:  # a table that was made from them needs them no more
            sources, missing = known_digests(error.addresses[0]), tuple(error.addresses)
        fingerprint = fingerprints.fingerprint_of(entry, self.book.declared, parents, sources)
        return Expected(fingerprint, parents, sources, missing)

    def _reads(self, name: str) -> list[str]:
        return references.reads(kind_of(name), self.book.entries[name], self.book.entries.get, self.book.declared)

    def _missing(self, kind: str, entry: Any) -> list[str]:
        """The public data that an entry reads and that are not here."""
        path = source_path(kind, entry, self.book.entries.get)
        return [path] if path and is_public(path) and copy_of(path) is None else []

    def changes(self, name: str, old: Mapping[str, Any], expected: Expected) -> list[str]:
        """The fields, prompts, user's parts, parents and files that differ from those in the stamp of an older table."""
        new = json.loads(identity_of(self.book.entries[name], self.book.declared))
        whole = {"revision": None, "prompts": {}, "declared": {}, "parents": {}, "sources": {}, **old}
        return list(_changes(new, whole, expected))


def _changes(new: Mapping[str, Any], old: Mapping[str, Any], expected: Expected) -> Iterator[str]:
    for key, value in new["entry"].items():
        if old["entry"].get(key) != value:
            yield f"`{key.replace('_', '-')}` {change(old['entry'].get(key), value)}"
    yield from (f"`{key}` is gone" for key in old["entry"] if key not in new["entry"])
    if old["revision"] != new["revision"]:
        yield f"revision {old['revision']} -> {new['revision']}"
    yield from (f"prompt `{name}` was edited" for name in _differing(new["prompts"], old["prompts"]))
    yield from (f"your part `{name}` was edited" for name in _differing(new.get("plugins", {}), old.get("plugins", {})))
    for api in new["declared"].keys() & old["declared"].keys():
        before = old["declared"][api]
        for key, value in new["declared"][api].items():
            if before.get(key) != value:
                yield f"{api}: `{key.replace('_', '-')}` {change(before.get(key), value)}"
    yield from (f"{name} has other rows" for name in _differing(expected.parents, old["parents"]))
    yield from (f"{path} was edited" for path in _differing(expected.sources, old["sources"]))
    # Stamps of before names counted have paths of their machine instead.
    if _file_names(expected.sources) != _file_names(old["sources"]) or expected.sources.keys() & old["sources"].keys():
        yield from (f"{path} is new" for path in expected.sources if path not in old["sources"])
        yield from (f"{path} is gone" for path in old["sources"] if path not in expected.sources)


def _file_names(sources: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted((Path(path).name, digest) for path, digest in sources.items())


def _no_table(kept: Kept) -> str:
    return "answers that were set aside are asked again" if kept.is_asked_again else "never made"


MOST_NAMED = 3  # of the parents that will be made


def _named(parents: list[str]) -> str:
    """That parents will be made: the first few by name."""
    named, rest = parents[:MOST_NAMED], len(parents) - MOST_NAMED
    if rest > 0:
        return f"{', '.join(named)} and {rest} more will be made"
    return f"{', '.join(named)} will be made"


def _differing(new: Mapping[str, str], old: Mapping[str, str]) -> Iterator[str]:
    return (name for name, digest in new.items() if old.get(name, digest) != digest)


MOST_SHOWN = 60  # characters of a value


def change(old: Any, new: Any) -> str:
    """What became of a value; of a list or a mapping, the elements that differ where the whole is long."""
    if _long(old) or _long(new):
        if isinstance(old, list) and isinstance(new, list) and (parts := list(_of_lists(old, new))):
            return ", ".join(parts)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
            return ", ".join(f"{key}: {_shown(old.get(key))} -> {_shown(new.get(key))}" for key in keys)
    return f"{_shown(old)} -> {_shown(new)}"


def _of_lists(old: list, new: list) -> Iterator[str]:
    """The elements of two lists that differ, in their order."""
    for before, after in _unlike(old, new):
        if before and after:
            yield f"{_listed(before)} -> {_listed(after)}"
        else:
            yield f"{_listed(before)} is gone" if before else f"{_listed(after)} is new"


def _unlike(old: list, new: list) -> Iterator[tuple[list, list]]:
    before, after = ([json.dumps(item, sort_keys=True) for item in items] for items in (old, new))
    for what, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what != "equal":
            yield old[i:j], new[k:m]


def _listed(items: list) -> str:
    return ", ".join(_shown(item) for item in items)


def _long(value: Any) -> bool:
    return len(json.dumps(value, ensure_ascii=False)) > MOST_SHOWN


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."

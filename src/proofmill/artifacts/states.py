"""Decide from stamps alone whether each artifact is up to date, can be restored or must be rebuilt, and why.

    done       its table was made from exactly the present configuration, sources and parents
    restore    the archive has a copy that was made from these
    make       it must be rebuilt, and so must everything made from it

`snakemake` and `proofmill plan` both use this module, so they always agree. Modification times and Snakemake's own
records do not matter.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from proofmill.artifacts import fingerprints
from proofmill.artifacts.archive import ArchivedTable
from proofmill.artifacts.tables import Table
from proofmill.config.config import Config
from proofmill.config.identity import identity_of, prompt_files
from proofmill.config.source_paths import read_known_digests, source_path
from proofmill.public_data.registry import copy_of, is_public
from proofmill.schema import references
from proofmill.schema.errors import MissingData, TableError
from proofmill.schema.names import kind_of

SHOWN = 5  # tables in a message


@dataclass(frozen=True)
class State:
    """The state of an artifact: `done`, `restore` or `make`, the reasons, and its content unless it is rebuilt.

    `missing` has the addresses of public data that it reads and that are not on this machine; `weights` is the folder
    of its weights, if it has any.
    """

    name: str
    why: tuple[str, ...] = ()
    content: str | None = None
    missing: tuple[str, ...] = ()
    weights: Path = Path()


@dataclass(frozen=True)
class Expected:
    """The parents and sources, as they are now, of a table that is up to date."""

    fingerprint: str
    parents: Mapping[str, str]  # content by name
    sources: Mapping[str, str]  # digest by name
    missing: tuple[str, ...] = ()  # public data that are not on this machine; `sources` then has their known digests


class States:
    """The states of all artifacts of a configuration, computed on first use. `forced` ones are always rebuilt."""

    def __init__(self, config: Config, results: Path = Path("results"), forced: Collection[str] = ()):
        self.config, self.results, self.forced = config, results, forced
        self._states: dict[str, State] = {}

    def __getitem__(self, name: str) -> State:
        """Return a state. Raises TableError for an unreadable or foreign table, and for a missing own source."""
        if name not in self._states:
            self._states[name] = self._state(name)
        return self._states[name]

    def require_done(self, names: Collection[str], remedy: str) -> None:
        """Raise TableError with those of the tables that are missing or out of date."""
        due = {name: self[name].why for name in names if self[name].name != "done"}
        if faults := [f"{name} ({'; '.join(why) or 'archived, not restored'})" for name, why in due.items()]:
            more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
            raise TableError(
                f"{len(faults)} of {len(names)} tables are not finished: {', '.join(faults[:SHOWN])}{more}; expected all of them "
                f"up to date with the configuration. {remedy}"
            )

    def _state(self, name: str) -> State:
        entry, table = self.config.entries[name], Table(name, self.results)
        if name in self.forced:
            return State("make", ("forced",), missing=tuple(self._missing(table.kind, entry)))
        if remade := self.coming(name):
            return State("make", (_name_parents(remade),), missing=tuple(self._missing(table.kind, entry)))
        expected = self.expect(name)
        old = table.stamp if table.path.exists() else None
        if old and old["fingerprint"] == expected.fingerprint:
            return State("done", (), old["content"], weights=table.folder)
        if expected.missing:
            return State("make", ("its data are not on this machine",), missing=expected.missing)
        copy = table.archive_of(expected.fingerprint)
        if kept := copy.stamp:
            return State("restore", (), kept["content"], weights=copy.weights)
        why = self.changes(name, old, expected) if old else [_no_table(copy)]
        return State("make", tuple(why) or ("made by another version of the project",))

    def coming(self, name: str) -> list[str]:
        """Return the tables that an artifact reads and that must be rebuilt."""
        return [parent for parent in self._reads(name) if self[parent].name == "make"]

    def expect(self, name: str) -> Expected:
        """Return the parents and sources of an up-to-date table. None of its parents may need a rebuild."""
        entry = self.config.entries[name]
        read = self._reads(name)
        made = {parent: self[parent] for parent in read}
        parents = {
            parent: fingerprints.as_read(kind_of(name), state.content, state.weights)
            for parent, state in made.items()
            if state.content is not None
        }
        missing = self._missing_prompts(entry)
        try:
            sources = fingerprints.sources_of(kind_of(name), entry, self.config.entries.get)
        except MissingData as error:  # a table that was made from them no longer needs them
            sources, missing = read_known_digests(error.addresses[0]), [*error.addresses, *missing]
        fingerprint = fingerprints.fingerprint_of(name, entry, self.config.declared, parents, sources)
        return Expected(fingerprint, parents, sources, tuple(missing))

    def _reads(self, name: str) -> list[str]:
        return references.reads(kind_of(name), self.config.entries[name], self.config.entries.get, self.config.declared)

    def _missing(self, kind: str, entry: Any) -> list[str]:
        """Return the public data that an entry reads and that are not on this machine."""
        path = source_path(kind, entry, self.config.entries.get)
        own = [path] if path and is_public(path) and copy_of(path) is None else []
        return own + self._missing_prompts(entry)

    def _missing_prompts(self, entry: Any) -> list[str]:
        return [file for file in prompt_files(entry, self.config.declared) if copy_of(file) is None]

    def changes(self, name: str, old: Mapping[str, Any], expected: Expected) -> list[str]:
        """Return the fields, prompts, plugins, parents and files that differ from the stamp of an older table."""
        new = json.loads(identity_of(self.config.entries[name], self.config.declared))
        complete = {"revision": None, "prompts": {}, "declared": {}, "parents": {}, "sources": {}, **old}
        return list(_changes(new, complete, expected))


def _changes(new: Mapping[str, Any], old: Mapping[str, Any], expected: Expected) -> Iterator[str]:
    for key, value in new["entry"].items():
        if old["entry"].get(key) != value:
            yield f"`{key.replace('_', '-')}` {change(old['entry'].get(key), value)}"
    yield from (f"`{key}` was removed" for key in old["entry"] if key not in new["entry"])
    if old["revision"] != new["revision"]:
        yield f"revision {old['revision']} -> {new['revision']}"
    yield from (f"prompt `{name}` was edited" for name in _differing(new["prompts"], old["prompts"]))
    yield from (f"plugin `{name}` was edited" for name in _differing(new.get("plugins", {}), old.get("plugins", {})))
    for api in new["declared"].keys() & old["declared"].keys():
        before = old["declared"][api]
        for key, value in new["declared"][api].items():
            if before.get(key) != value:
                yield f"{api}: `{key.replace('_', '-')}` {change(before.get(key), value)}"
    yield from (f"the content of {name} has changed" for name in _differing(expected.parents, old["parents"]))
    yield from (f"{path} was edited" for path in _differing(expected.sources, old["sources"]))
    yield from (f"{path} is new" for path in expected.sources if path not in old["sources"])
    yield from (f"{path} was removed" for path in old["sources"] if path not in expected.sources)


def _no_table(kept: ArchivedTable) -> str:
    return "its invalidated calls are repeated" if kept.is_invalidated else "never made"


MOST_NAMED = 3  # parents in a reason


def _name_parents(parents: list[str]) -> str:
    """Return the reason that parents are rebuilt, with the first few by name."""
    named, rest = parents[:MOST_NAMED], len(parents) - MOST_NAMED
    if rest > 0:
        return f"{', '.join(named)} and {rest} more will be made"
    return f"{', '.join(named)} will be made"


def _differing(new: Mapping[str, str], old: Mapping[str, str]) -> Iterator[str]:
    return (name for name, digest in new.items() if old.get(name, digest) != digest)


MOST_SHOWN = 60  # characters of a value


def change(old: Any, new: Any) -> str:
    """Return the change of a value as text; of a long list or mapping, only the elements that differ."""
    if _long(old) or _long(new):
        if isinstance(old, list) and isinstance(new, list) and (parts := list(_of_lists(old, new))):
            return ", ".join(parts)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
            return ", ".join(f"{key}: {_format_value(old.get(key))} -> {_format_value(new.get(key))}" for key in keys)
    return f"{_format_value(old)} -> {_format_value(new)}"


def _of_lists(old: list, new: list) -> Iterator[str]:
    """Yield the elements of two lists that differ, in order."""
    for before, after in _unlike(old, new):
        if before and after:
            yield f"{_list_items(before)} -> {_list_items(after)}"
        else:
            yield f"{_list_items(before)} was removed" if before else f"{_list_items(after)} is new"


def _unlike(old: list, new: list) -> Iterator[tuple[list, list]]:
    before, after = ([json.dumps(item, sort_keys=True) for item in items] for items in (old, new))
    for operation, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if operation != "equal":
            yield old[i:j], new[k:m]


def _list_items(items: list) -> str:
    return ", ".join(_format_value(item) for item in items)


def _long(value: Any) -> bool:
    return len(json.dumps(value, ensure_ascii=False)) > MOST_SHOWN


def _format_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
